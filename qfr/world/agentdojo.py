"""The world `agentdojo`: user tasks, tools and checks of AgentDojo v1, read from the installed package.

Nothing of the benchmark is copied here. No injection task is played: what is measured is whether the user's
task is done (`utility`). The modules of its tools get a clock that stands still.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache, cached_property, lru_cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from qfr.canonical import Json, canonical, digest
from qfr.errors import ConfigError, MachineryError
from qfr.records import Kind, Parameter, Role, Tool
from qfr.world.authoring import REPORT, BaseWorld, Record, arguments_of
from qfr.world.base import (
    Found,
    GoldCall,
    Outcome,
    Refused,
    Site,
    State,
    Suite,
    Task,
    Verdict,
    check_families,
    check_options,
    check_version,
    effects,
)
from qfr.world.graph import decode, encode
from qfr.world.plain import Caught, TheVery, another, json_of, leaves, native, sources, stand_still

NAME = "agentdojo"
PACKAGE, VERSION = "agentdojo", "0.1.35"
FAMILIES = ("banking", "slack", "travel", "workspace")
INSTALL = "pip install 'qfr[agentdojo]'"
LEFT_OUT = (("banking", 5), ("banking", 8), ("banking", 9), ("banking", 10), ("workspace", 7))
# Tasks whose check accepts an environment in which nothing was done, and one whose check refuses its own
# ground truth (a later version of the benchmark mends it).
SUBMIT = Tool(
    "submit_answer",
    Role.submit,
    (Parameter("answer", Kind.string, "what to tell the user"),),
    "Tell the user the answer, or that it is done, and end the task.",
)
_KINDS = {"string": Kind.string, "integer": Kind.number, "number": Kind.number, "boolean": Kind.boolean}


@dataclass(frozen=True)
class Entry:
    """One user task of the benchmark, and its suite."""

    family: str
    number: int
    suite: Any
    task: Any


@dataclass(frozen=True)
class _Gold:
    """A ground truth that was played."""

    calls: tuple[GoldCall, ...]
    records: tuple[Record, ...]


def of_suite(suite: Suite) -> AgentDojoWorld:
    """Take user tasks of the benchmark: of each family as many as asked for, in an order that the seed draws.

    Raises
    ------
    ConfigError
        The package is not installed, or has no such family, option or number of tasks.
    """
    check_version(suite, (1,))
    check_options(suite, ())
    check_families(suite, FAMILIES, NAME)
    if suite.seed < 0:
        raise ConfigError(f"{suite.seed} is negative", where="suite.seed", hint="use 0 or more")
    taken: dict[str, Entry] = {}
    for place, family in enumerate(FAMILIES):
        count, known = suite.families.get(family, 0), entries(family)
        if count > len(known):
            raise ConfigError(
                f"{family}: {count} tasks, of which there are {len(known)}", where="suite.families"
            )
        for at in np.random.default_rng([suite.seed, place]).permutation(len(known))[:count].tolist():
            taken[f"{family}-{known[at].number:02d}"] = known[at]
    return AgentDojoWorld(suite, taken)


@cache
def _suites() -> Mapping[str, Any]:
    """The benchmark's suites of v1.

    Raises
    ------
    ConfigError
        The package is not installed, or in another version.
    """
    where = f"suite.world={NAME}"
    if find_spec(PACKAGE) is None:
        raise ConfigError(f"{PACKAGE} is not installed", where=where, hint=INSTALL)
    found = metadata.version(PACKAGE)
    if found != VERSION:
        raise ConfigError(
            f"{PACKAGE} {found} is installed, and this qfr reads {VERSION}", where=where, hint=INSTALL
        )
    try:
        loaded = importlib.import_module("agentdojo.task_suite.load_suites")
    except ImportError as error:
        raise ConfigError(f"{PACKAGE} lacks a library: {error}", where=where, hint=INSTALL) from None
    for name in [name for name in sys.modules if name.startswith("agentdojo.default_suites.v1.tools.")]:
        stand_still(sys.modules[name])
    suites: Mapping[str, Any] = loaded.get_suites("v1")
    return suites


@cache
def entries(family: str) -> tuple[Entry, ...]:
    """The user tasks of a family, by number."""
    suite = _suites()[family]
    numbered = sorted((int(id_.rpartition("_")[2]), task) for id_, task in suite.user_tasks.items())
    return tuple(Entry(family, n, suite, task) for n, task in numbered if (family, n) not in LEFT_OUT)


@cache
def _classes() -> Mapping[str, type]:
    """Classes of the objects that an environment holds, by name."""
    _suites()
    modules = [
        module for name, module in sys.modules.items() if name.startswith("agentdojo.default_suites.v1.")
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and (hasattr(value, "model_fields") or issubclass(value, Enum))
    }


@cache
def _environment(family: str) -> Any:
    return _suites()[family].load_and_inject_default_environment({})


def environment(entry: Entry) -> Any:
    """A task's environment, made anew."""
    return entry.task.init_environment(copy.deepcopy(_environment(entry.family)))


def thaw(frozen: Json) -> Any:
    """An environment from what `encode` made of it."""
    return decode(frozen, _classes(), datetime)


def run(entry: Entry, env: Any, tool: str, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Call a tool as the benchmark does: its result, and an error or None."""
    runtime = importlib.import_module("agentdojo.functions_runtime")
    result, error = runtime.FunctionsRuntime(entry.suite.tools).run_function(env, tool, arguments)
    return result, error


def public(env: Any) -> dict[str, Json]:
    """Digests of the parts of an environment."""
    return {name: digest(encode(value)) for name, value in vars(env).items()}


class AgentDojoWorld(BaseWorld):
    """A selection of the benchmark's user tasks.

    The state holds a digest of each part of the environment and, under names with an underscore, the
    environment itself and the calls so far, which some checks read.
    """

    name = NAME
    version = f"1 {PACKAGE} {VERSION}"
    families = FAMILIES
    ends: tuple[Tool, ...] = (SUBMIT, REPORT)

    def __init__(self, suite: Suite, taken: Mapping[str, Entry]) -> None:
        self._entries = taken
        self._played = {id_: _play(entry) for id_, entry in taken.items()}
        self._writing = {call.tool for gold in self._played.values() for call in gold.calls if call.writes}
        # What the scripted agent asks for again at each turn; a state is a value, so answers can be kept.
        self._begun = lru_cache(maxsize=32)(self._start)
        self._answered = lru_cache(maxsize=128)(self._answer)
        super().__init__(suite, tuple(map(self._task, taken)))

    def _task(self, id_: str) -> Task:
        entry = self._entries[id_]
        shown = [_tool(one, Role.lookup) for one in entry.suite.tools]
        lines = [f"- {one.signature}: {_told(one)}" for one in shown]
        return Task(
            id=id_,
            family=entry.family,
            text="\n".join([f"Tools of task {id_}:", *lines, "", entry.task.PROMPT]),
            tools=(*(one.name for one in shown), *(tool.name for tool in self.ends)),
            gold_calls=self._played[id_].calls,
            answer=entry.task.GROUND_TRUTH_OUTPUT,
        )

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """All tools of the suites that are needed; a tool writes when a gold call of it does."""
        needed = {one.name: one for entry in self._entries.values() for one in entry.suite.tools}
        roles = [Role.write if name in self._writing else Role.lookup for name in needed]
        return (*map(_tool, needed.values(), roles), *self.ends)

    def start(self, task: Task) -> State:
        return self._begun(task.id)

    def _start(self, task_id: str) -> State:
        env = environment(self._entries[task_id])
        return {**public(env), "_environment": encode(env), "_calls": []}

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        assert state is not None
        return self._answered(task.id, TheVery(state), tool, canonical(arguments))

    def _answer(self, task_id: str, given: TheVery, tool: str, text: str) -> tuple[State, Outcome]:
        entry, state = self._entries[task_id], given.state
        env = thaw(state["_environment"])
        with Caught() as caught:
            result, error = run(entry, env, tool, native(dict(arguments_of(text))))
            record = record_of(result)
        calls: list[Json] = [*cast("list[Json]", state["_calls"]), [tool, text]]
        with Caught() as broken:
            after: State = {**public(env), "_environment": encode(env), "_calls": calls}
        if caught.error is not None or broken.error is not None:
            return {**state, "_calls": calls}, Refused(str(caught.error or broken.error))
        return after, Refused(error) if error else Found(record)

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        assert state is not None
        said = answer if isinstance(answer, str) else ""
        calls = [cast("list[str]", one) for one in cast("list[Json]", state["_calls"])]
        with Caught() as caught:
            right = utility(self._entries[task.id], said, thaw(state["_environment"]), calls)
        if caught.error is not None:
            return Verdict(False, f"its check fails: {type(caught.error).__name__}: {caught.error}")
        return Verdict(right, "" if right else "its check does not accept the end")

    def displaced(self, task: Task, site: Site) -> Record:
        """The true record with other values where later gold calls take theirs from it."""
        gold = self._played[task.id]
        record = gold.records[site.call]
        later = [call for call in gold.calls if site.call in call.sources]
        used = {leaf for call in later for leaf in leaves(arguments_of(call.arguments))}
        return {name: another(value, used) for name, value in record.items()}

    def content(self, task: Task) -> str:
        return canonical([task.id, effects(self.start(task))])


def utility(entry: Entry, said: str, env: Any, calls: list[list[str]]) -> bool:
    """The benchmark's own verdict, as its task suite comes to it."""
    kind = importlib.import_module("agentdojo.functions_runtime").FunctionCall
    traces = [kind(function=tool, args=native(dict(arguments_of(text)))) for tool, text in calls]
    pre = environment(entry)
    found = entry.task.utility_from_traces(said, pre, env, traces)
    return bool(entry.task.utility(said, pre, env) if found is None else found)


def record_of(result: Any) -> Record:
    """What a tool returned as a record."""
    shown = json_of(_dumped(result))
    return shown if isinstance(shown, dict) else {"result": shown}


def _dumped(value: Any) -> Any:
    """Models as the plain data that they hold."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_dumped(item) for item in value]
    return {name: _dumped(item) for name, item in value.items()} if isinstance(value, dict) else value


def _play(entry: Entry) -> _Gold:
    """Play the ground truth of an entry."""
    env, calls, records = environment(entry), list[GoldCall](), list[Record]()
    before = public(env)
    for call in entry.task.ground_truth(copy.deepcopy(env)):
        arguments = {str(name): json_of(_dumped(value)) for name, value in call.args.items()}
        result, error = run(entry, env, call.function, native(arguments))
        if error:
            raise MachineryError(f"{entry.family} {entry.number}: the gold call {call} is answered: {error}")
        after = public(env)
        taken = sources(arguments, records, entry.task.PROMPT)
        calls.append(GoldCall(call.function, canonical(arguments), taken, after != before))
        records.append(record_of(result))
        before = after
    return _Gold(tuple(calls), tuple(records))


def _tool(function: Any, role: Role) -> Tool:
    schema = function.parameters.model_json_schema()
    needed = schema.get("required", ())
    parameters = tuple(
        Parameter(name, _kind(one), str(one.get("description", "")), required=name in needed)
        for name, one in schema.get("properties", {}).items()
    )
    return Tool(function.name, role, parameters, " ".join(function.description.split()))


def _kind(schema: Mapping[str, Any]) -> Kind:
    if schema.get("type") == "array" and schema.get("items", {}).get("type") == "string":
        return Kind.strings
    return _KINDS.get(schema.get("type", ""), Kind.any)


def _told(tool: Tool) -> str:
    parts = [tool.doc, *(f"{one.name}: {one.doc}" for one in tool.parameters if one.doc)]
    return " ".join(parts)
