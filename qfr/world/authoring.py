"""A world in a few lines: methods become tools, and what can follow from the gold paths does.

    class Library(BaseWorld):
        name = "library"

        @lookup
        def get_book(self, state, book_id: str):
            "Return a book: its shelf."
            ...

`docs/worlds.md` holds a complete example. `qfr world check module:Library` finds mistakes in one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar, get_args, get_type_hints

from qfr.canonical import Json, canonical, read_json
from qfr.errors import ConfigError, did_you_mean
from qfr.records import Kind, Parameter, Role, Tool
from qfr.world.base import (
    Answer,
    Found,
    GoldCall,
    Habits,
    NotFound,
    Outcome,
    Refused,
    Site,
    State,
    Suite,
    Task,
    Transcript,
    Verdict,
    check_families,
    heard_until,
)
from qfr.world.player import next_turn

F = TypeVar("F", bound=Callable[..., Any])
Record = Mapping[str, Json]

SUBMIT = Tool(
    "submit_answer",
    Role.submit,
    (Parameter("answer", Kind.number, "the final answer"),),
    "Submit the final answer and end the task.",
)
FINISH = Tool("finish", Role.submit, (), "End the task when everything is done.")
REPORT = Tool(
    "report_failure",
    Role.report,
    (Parameter("reason", Kind.string, "why the task cannot be done"),),
    "Report that the task cannot be done and end it.",
)
_ROLE = "qfr_role"
_KINDS = {str: Kind.string, bool: Kind.boolean, list: Kind.strings, list[str]: Kind.strings, Any: Kind.any}
_KINDS |= dict.fromkeys((int, float, Decimal), Kind.number)


def lookup(method: F) -> F:
    """Mark a method as a tool that reads: it returns a record, `NotFound` or `Refused`."""
    return _marked(method, Role.lookup)


def write(method: F) -> F:
    """Mark a method as a tool that changes the state: it returns (state, record), `NotFound` or `Refused`."""
    return _marked(method, Role.write)


def _marked(method: F, role: Role) -> F:
    setattr(method, _ROLE, role)
    return method


class BaseWorld:
    """A world whose tools are its methods. Implements `World`.

    A subclass has a `name`, takes a `Suite`, hands its tasks to `super().__init__`, and marks its tools with
    `lookup` and `write`. The parameters of a tool are those of the method after `state`, its description is
    the first line of the docstring. A parameter with a default may be left out by a call; one whose name
    stands in `free` is the agent's own choice.

    Success is the state that the gold calls lead to, and the task's answer: `check` can be overridden.
    """

    name: str = ""
    version: str = "1"
    plain: bool = False
    families: tuple[str, ...] = ()
    # Families of tasks that a suite may ask for; empty = any.
    free: tuple[str, ...] = ()
    # Parameters whose value is the agent's own choice.
    ends: tuple[Tool, ...] = (SUBMIT, REPORT)
    # Tools that end a task.

    def __init__(self, suite: Suite, tasks: tuple[Task, ...]) -> None:
        if self.families:
            check_families(suite, self.families, self.name)
        self.suite = suite
        self.tasks = tuple(sorted(tasks, key=lambda task: task.id))

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in the order in which they are written."""
        methods = {
            name: member
            for part in reversed(type(self).__mro__)
            for name, member in vars(part).items()
            if hasattr(member, _ROLE)
        }
        return (*(_tool(name, method, self.free) for name, method in methods.items()), *self.ends)

    @cached_property
    def _by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    def task(
        self,
        id_: str,
        text: str,
        calls: tuple[GoldCall, ...],
        answer: Answer = None,
        follow_ups: tuple[str, ...] = (),
    ) -> Task:
        """A task with all tools of the world; its family stands before the last hyphen of its id."""
        return Task(
            id_, id_.rpartition("-")[0], text, tuple(self._by_name), calls, answer, follow_ups=follow_ups
        )

    def gold(self, tool: str, *sources: int, user: int = 0, **arguments: Json) -> GoldCall:
        """A gold call; `sources` are the places of the calls whose results its arguments come from."""
        known = self._by_name.get(tool)
        if known is None:
            raise ValueError(f"the world has no tool {tool!r}" + did_you_mean(tool, self._by_name))
        names = {parameter.name: parameter.required for parameter in known.parameters}
        for name in arguments:
            if name not in names:
                raise ValueError(f"{tool} has no argument {name!r}" + did_you_mean(name, names))
        lacking = [name for name, required in names.items() if required and name not in arguments]
        if lacking:
            raise ValueError(f"the gold call of {tool} lacks the argument {lacking[0]!r}")
        return GoldCall(tool, canonical(arguments), sources, known.role is Role.write, user)

    def tool(self, name: str) -> Tool | None:
        return self._by_name.get(name)

    def start(self, task: Task) -> State:
        """The state in which a task begins: nothing, unless a subclass says so."""
        return {}

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        given = getattr(self, tool)(state, **arguments)
        if isinstance(given, NotFound | Refused):
            return state, given
        if isinstance(given, tuple):
            return given[0], Found(given[1])
        return state, Found(given)

    def heard(self, task: Task, state: State) -> State:
        """The state once the user's next message has come: the same, unless a subclass says so."""
        return state

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        if canonical(state) != canonical(self._goal(task)):
            return Verdict(False, "another final state")
        return judge_answer(task.answer, answer)

    def _goal(self, task: Task) -> State:
        """The state that the gold calls lead to."""
        state, user = self.start(task), 0
        for call in task.gold_calls:
            state, user = heard_until(self, task, state, user, call.user)
            state, _ = self.call(task, state, call.tool, arguments_of(call.arguments))
        return heard_until(self, task, state, user, len(task.follow_ups))[0]

    def displaced(self, task: Task, site: Site) -> Record:
        """The record that another gold call of the same tool gets."""
        state = self.start(task)
        true = self.call(task, state, site.tool, arguments_of(site.arguments))[1]
        for other in self.tasks:
            for call in other.gold_calls:
                if call.tool == site.tool and call.arguments != site.arguments:
                    found = self.call(task, state, call.tool, arguments_of(call.arguments))[1]
                    if isinstance(found, Found) and found != true:
                        return found.record
        raise ConfigError(
            f"task {task.id} has no other record of {site.tool} to displace {site.arguments} with",
            where=f"world {self.name}",
            hint="let two tasks call the tool with different arguments, or write `displaced`",
        )

    def content(self, task: Task) -> str:
        return canonical(self.start(task))

    def proofs(self, task: Task) -> tuple[GoldCall | None, ...]:
        """Per gold call, a lookup whose record shows whether the call happened; empty where there is none."""
        return ()

    def next_turn(self, task: Task, transcript: Transcript, habits: Habits) -> str:
        return next_turn(self, task, transcript, habits, self.proofs(task) if habits.reads_first else ())


def judge_answer(gold: Answer, answer: Json) -> Verdict:
    """Compare an answer with the gold one: numbers by value, sets in any order."""
    if gold is None:
        return Verdict(True)
    if isinstance(gold, tuple):
        same = isinstance(answer, list) and len(answer) == len(gold) and set(map(str, answer)) == set(gold)
    else:
        same = answer == gold
    return Verdict(same, "" if same else "another answer")


def arguments_of(text: str) -> dict[str, Json]:
    """The arguments of a gold call."""
    value = read_json(text)
    assert isinstance(value, dict)
    return value


def _tool(name: str, method: Any, free: tuple[str, ...]) -> Tool:
    parameters = list(inspect.signature(method).parameters.values())[2:]
    # Of the tool's parameters alone: other annotations need not be resolvable.
    named = {one.name: one.annotation for one in parameters if one.annotation is not one.empty}
    hints = get_type_hints(type("_", (), {"__annotations__": named}), globalns=method.__globals__)
    return Tool(
        name,
        getattr(method, _ROLE),
        tuple(
            Parameter(
                parameter.name,
                _kind(hints.get(parameter.name, str), f"{name}({parameter.name})"),
                "",
                required=parameter.default is parameter.empty,
                free=parameter.name in free,
            )
            for parameter in parameters
        ),
        (inspect.getdoc(method) or "").partition("\n")[0],
    )


def _kind(hint: Any, where: str) -> Kind:
    options = [option for option in get_args(hint) if option is not type(None)]
    if hint not in _KINDS and len(options) == 1:
        hint = options[0]
    if hint not in _KINDS:
        raise ConfigError(
            f"the parameter has the type {hint}, which no tool can show",
            where=where,
            hint="use str, int, float, Decimal, bool, list[str] or Any",
        )
    return _KINDS[hint]
