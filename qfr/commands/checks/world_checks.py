"""What can be wrong with a world, tried without a model."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TypeVar

from qfr.canonical import Json, canonical, quote, read_json
from qfr.errors import QfrError
from qfr.faults import Where
from qfr.protocol import read_turn
from qfr.records import Kind, Role
from qfr.world.authoring import arguments_of
from qfr.world.base import (
    Found,
    GoldCall,
    NotFound,
    Outcome,
    Refused,
    State,
    Suite,
    Task,
    World,
    effects,
    gold_text,
    heard_until,
    sites_where,
    suite_json,
    talks,
    task_tools,
)
from qfr.world.finding import GuardedWorld, build_world
from qfr.world.player import call_text

T = TypeVar("T")
_HOSTILE: Mapping[Kind, tuple[Json, ...]] = {
    Kind.string: ("", "no such thing", "\ud800", "x" * 4000),
    Kind.number: (Decimal(0), Decimal(-1), Decimal("1e300"), Decimal("0.001")),
    Kind.boolean: (True, False),
    Kind.strings: ([], ["no such thing", ""]),
    Kind.any: (None, {"a": [Decimal(1)]}, "no such thing"),
}
_SHOWN = {
    Where.dependent: "calls that depend on others",
    Where.used: "lookups used later",
    Where.writes: "writes",
}
# The rules by which sites are chosen, in words.


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong."""

    where: str
    # File and line, or the task.
    what: str
    hint: str = ""


@dataclass(frozen=True)
class Checked:
    """What a check of a world found."""

    mistakes: tuple[Mistake, ...]
    summary: str
    # What was tried, in a line.


def check_world(name: str, suite: Suite) -> Checked:
    """Try a world as a whole.

    Raises
    ------
    ConfigError
        The world cannot be made at all; says file and line.
    """
    world = build_world(name, suite)
    trial = _Trial(world)
    trial.same_again(lambda: build_world(name, suite))
    trial.texts()
    for task in world.tasks:
        trial.task(task)
    counts = (
        f"{sum(len(sites_where(task, where)) for task in world.tasks)} {words}"
        for where, words in _SHOWN.items()
    )
    calls = sum(len(task.gold_calls) for task in world.tasks)
    return Checked(
        tuple(trial.found.values()),
        f"{len(world.tasks)} tasks with {calls} gold calls, nothing wrong found; sites: {', '.join(counts)}",
    )


class _Trial:
    """Tries one world and keeps what is wrong, each kind of mistake once."""

    def __init__(self, world: World) -> None:
        self.found: dict[str, Mistake] = {}
        self._world = world
        self._places: dict[str, str] = {}

    def note(self, where: str, what: str, hint: str = "") -> None:
        """Keep a mistake, unless the like was found before."""
        self.found.setdefault(what, Mistake(where, what, hint))

    def safely(self, action: Callable[[], T], where: str) -> T | None:
        """What an action gives; what it raises is a mistake."""
        try:
            return action()
        except QfrError as error:
            self.note(error.where or where, error.what)
            return None

    def same_again(self, build: Callable[[], World]) -> None:
        """A suite follows from its configuration alone."""
        first = self.safely(lambda: suite_json(self._world), "suite")
        second = self.safely(lambda: suite_json(build()), "suite")
        if first != second:
            self.note(
                self._place(),
                "made twice, the suite is not the same",
                "draw everything from suite.seed: numpy.random.default_rng([suite.seed, index])",
            )

    def texts(self) -> None:
        """Ids and texts of tasks tell them apart."""
        for what, values in (
            ("id", [task.id for task in self._world.tasks]),
            ("text", [task.text for task in self._world.tasks]),
        ):
            for value, count in Counter(values).items():
                if count > 1:
                    self.note(self._place(), f"{count} tasks have the {what} {quote(value)}")

    def task(self, task: Task) -> None:
        """One task: its tools, its gold path, its end."""
        where = f"task {task.id}"
        for name in task.tools:
            if self._world.tool(name) is None:
                self.note(where, f"the tool {name!r} of the task does not exist")
        tools = task_tools(self._world, task)
        for tool in tools:
            if tool.role is Role.report and len(tool.parameters) != 1:
                self.note(self._place(tool.name), f"{tool.name} needs one parameter, for the reason")
        takes = talks(self._world, task) or any(t.role is Role.submit and t.parameters for t in tools)
        if task.answer is not None and not takes:
            self.note(where, "an answer is asked for, and no tool takes one")
        if all(self._gold_call(task, call, place) for place, call in enumerate(task.gold_calls)):
            self._gold_path(task)
            self._displaced(task)
            self._hostile(task)

    def _gold_call(self, task: Task, call: GoldCall, place: int) -> bool:
        """A gold call is one that an agent could make."""
        where = f"task {task.id}, gold call {place}"
        read = read_turn(
            call_text(self._world, task, call, place), task_tools(self._world, task), repair=False
        )
        if read.problem is not None:
            self.note(where, read.problem.message)
        late = [one for one in call.sources if not 0 <= one < place]
        if late:
            self.note(where, f"its source {late[0]} is no earlier gold call")
        return read.problem is None and not late

    def _gold_path(self, task: Task) -> None:
        """The gold calls work, change what they say, and end in what the world takes for right."""
        state, where, user = self._start(task), f"task {task.id}", 0
        for place, call in enumerate(task.gold_calls):
            state, user = heard_until(self._world, task, state, user, call.user)
            before = state
            state, outcome = self._call(task, state, call)
            if not isinstance(outcome, Found):
                self.note(
                    f"{where}, gold call {place}", f"{call.tool} {call.arguments} is answered: {outcome}"
                )
                return
            if (canonical(effects(state)) != canonical(effects(before))) != call.writes:
                what = (
                    "changes the state and is no write"
                    if not call.writes
                    else "is a write and changes nothing"
                )
                self.note(self._place(call.tool), f"{call.tool} {what}", "mark it with @write or @lookup")
        state, _ = heard_until(self._world, task, state, user, len(task.follow_ups))
        gold = read_json(gold_text(task.answer)) if task.answer is not None else None
        verdict = self.safely(lambda: self._world.check(task, state, gold), where)
        if verdict is not None and not verdict.right:
            self.note(
                self._place("check"),
                f"the gold path of task {task.id} does not end right: {verdict.reason or 'no reason given'}",
                "the gold answer, a gold call or `check` is wrong",
            )
        begun = self.safely(lambda: self._world.check(task, self._start(task), None), where)
        if begun is not None and begun.right:
            self.note(self._place("check"), "a task of which nothing was done counts as right")

    def _start(self, task: Task) -> State:
        state = self.safely(lambda: self._world.start(task), f"task {task.id}")
        self._json(state, "start", "a state")
        return state

    def _json(self, value: object, method: str, what: str) -> bool:
        try:
            canonical(value)
        except (TypeError, ValueError) as error:
            self.note(
                self._place(method),
                f"{what} of {method} is no JSON: {error}",
                "texts, numbers, lists and dicts with text keys",
            )
            return False
        return True

    def _call(self, task: Task, state: State, call: GoldCall) -> tuple[State, Outcome | None]:
        """Make a call twice: it must give the same, and leave the state it is given as it was."""
        arguments = arguments_of(call.arguments)
        before = canonical(state)
        first = self.safely(partial(self._world.call, task, state, call.tool, arguments), f"task {task.id}")
        if first is None:
            return state, None
        if canonical(state) != before:
            self.note(
                self._place(call.tool),
                f"{call.tool} changes the state that it is given",
                "return a new one: return {**state, …}, record",
            )
            return copy.deepcopy(first[0]), first[1]
        # What foreign code returns need not be of the type that it promises.
        record: object = first[1].record if isinstance(first[1], Found) else {}
        if not isinstance(record, Mapping):
            self.note(self._place(call.tool), f"{call.tool} returns {type(record).__name__}, not a record")
        elif self._json(record, call.tool, "a record") and self._json(first[0], call.tool, "a state"):
            again = self.safely(
                lambda: self._world.call(task, state, call.tool, arguments), f"task {task.id}"
            )
            if again != first:
                self.note(self._place(call.tool), f"{call.tool} called twice in one state gives two answers")
            return first
        return state, None

    def _displaced(self, task: Task) -> None:
        """Every site of displaced data has another record."""
        for site in sites_where(task, Where.used):
            where = f"task {task.id}"
            other = self.safely(partial(self._world.displaced, task, site), where)
            asked = arguments_of(site.arguments)
            given = self.safely(partial(self._world.call, task, self._start(task), site.tool, asked), where)
            if given is not None and isinstance(given[1], Found) and other == given[1].record:
                self.note(
                    self._place("displaced"), f"{site.tool} is displaced by the record that was asked for"
                )

    def _hostile(self, task: Task) -> None:
        """No value of a model breaks a tool."""
        state = self._start(task)
        for tool in task_tools(self._world, task):
            if tool.role not in (Role.lookup, Role.write):
                continue
            for turn in range(max(len(values) for values in _HOSTILE.values())):
                arguments = {p.name: _HOSTILE[p.kind][turn % len(_HOSTILE[p.kind])] for p in tool.parameters}
                given = self.safely(
                    partial(self._world.call, task, state, tool.name, arguments),
                    self._place(tool.name),
                )
                outcome: object = NotFound("") if given is None else given[1]
                if not isinstance(outcome, Found | NotFound | Refused):
                    what = type(outcome).__name__
                    self.note(self._place(tool.name), f"{tool.name} answers with {what}, which is no outcome")

    def _place(self, method: str = "") -> str:
        """File and line of a method of the world, or of its class."""
        if method not in self._places:
            self._places[method] = self._found(method)
        return self._places[method]

    def _found(self, method: str) -> str:
        inner = self._world.inner if isinstance(self._world, GuardedWorld) else self._world
        target = getattr(type(inner), method, None) or type(inner)
        try:
            file, line = inspect.getsourcefile(target), inspect.getsourcelines(target)[1]
        except (TypeError, OSError):
            return self._world.name
        return f"{Path(file or '?').name} line {line}"
