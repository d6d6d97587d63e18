"""What a world is: tools, tasks, a state that calls change, and a check of how an episode ended.

Nothing above this room knows an order or an account. Fault sites follow from the argument graph of the gold
path (`GoldCall.sources`) and from its writes. A state is a value: `call` returns the next one and leaves the
one it was given as it was, so a fork, a resumed cell and a second reading replay the calls of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

from qfr.canonical import Json as Json
from qfr.canonical import canonical, sha256_hex
from qfr.errors import ConfigError, did_you_mean
from qfr.faults import FAULTS, FaultKind, Where
from qfr.records import Kind as Kind
from qfr.records import Parameter as Parameter
from qfr.records import Role as Role
from qfr.records import Tool as Tool

State = Mapping[str, Json] | None
# A world's state in the middle of an episode; None where no call changes anything. An entry whose name begins
# with an underscore holds what was only read or said: a call that changes nothing else is no write.
Answer = Decimal | str | tuple[str, ...] | None
# What a task asks for: a number, a text, a set of ids in any order, or nothing but the right final state.


@dataclass(frozen=True)
class GoldCall:
    """A call of the minimal gold path."""

    tool: str
    arguments: str
    # Canonical JSON.
    sources: tuple[int, ...]
    # Indices of earlier gold calls whose results supply an argument; empty when the task text does.
    writes: bool = False
    # It changes the state of the world.
    user: int = 0
    # Number of the user's follow-up messages that come before it.


@dataclass(frozen=True)
class Task:
    """One task of a suite."""

    id: str
    # Unique in the suite, sorts in suite order: "base-00".
    family: str
    text: str
    # The user message.
    tools: tuple[str, ...]
    # Names of all tools that exist in this task (distractors included).
    gold_calls: tuple[GoldCall, ...]
    answer: Answer
    # What the agent has to submit.
    follow_ups: tuple[str, ...] = ()
    # Later messages of the user: a plain message of the agent brings the next one.


@dataclass(frozen=True)
class Site:
    """A call on the gold path at which a fault can be injected."""

    index: int
    # Position among the task's sites of this kind.
    call: int
    # Index into the task's gold_calls.
    tool: str
    arguments: str
    # Canonical JSON.


@dataclass(frozen=True)
class Found:
    """What a call returned."""

    record: Mapping[str, Json]


@dataclass(frozen=True)
class NotFound:
    """The call named something that does not exist."""

    message: str


@dataclass(frozen=True)
class Refused:
    """The call broke a rule of the tool: nothing was changed."""

    message: str


Outcome = Found | NotFound | Refused


@dataclass(frozen=True)
class Verdict:
    """How a world judges the end of an episode."""

    right: bool
    reason: str = ""
    # What is wrong, in a few words; empty when all is right.


class AnswerStyle(StrEnum):
    """How a scripted agent writes the final number."""

    literal = "literal"
    # 57.8
    expression = "expression"
    # 68 * 0.85, without quotes (no JSON)
    quoted = "quoted"
    # "68 * 0.85"


@dataclass(frozen=True)
class Habits:
    """How a scripted agent behaves."""

    attempts: int = 3
    # Calls of a failing tool before it reports failure; 1 = gives up at the first error.
    checks_ids: bool = False
    # Asks again when a record is not the one asked for.
    answer: AnswerStyle = AnswerStyle.literal
    prose: str = ""
    # Text before a repeated call, which makes that turn non-strict.
    reads_first: bool = False
    # Looks whether a failed write happened before it repeats it, where the world has such a lookup.


@dataclass(frozen=True)
class Suite:
    """Which tasks a world is asked for."""

    families: Mapping[str, int]
    # Number of tasks per family.
    seed: int = 2026
    # Of all values and ids.
    version: int = 1
    # Of the suite's generator.
    grid: str = "cents"
    # Amounts of the built-in worlds: cents or round.
    options: Mapping[str, Json] = field(default_factory=dict)
    # Whatever else the world can be told.


Lookup = Callable[[str, str], Mapping[str, Json]]
# (tool, canonical arguments) -> record.
Transcript = Sequence[tuple[str, str]]
# Assistant text and observation of each turn so far.


class World(Protocol):
    """A family of tasks over one set of records. `qfr.world.authoring.BaseWorld` has most of it ready."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def plain(self) -> bool:
        """Whether the world is one of lookups whose answers are numbers equal to the gold.

        Its logs hold no states, and `check` is not asked.
        """
        ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The suite, in its fixed order."""
        ...

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, None when the world has none."""
        ...

    def start(self, task: Task) -> State:
        """The state in which a task begins."""
        ...

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        """Answer a well-formed call of an existing tool. Pure, and never raises on the model's values.

        A lookup, and a call that is not `Found`, return the very state they were given, apart from entries
        that begin with an underscore.
        """
        ...

    def heard(self, task: Task, state: State) -> State:
        """The state once the user's next message has come."""
        ...

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        """Judge a final state and a submitted answer (numbers as Decimal; None when there is none)."""
        ...

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        """Another record of the site's tool whose echoed id differs and whose use changes the outcome."""
        ...

    def content(self, task: Task) -> str:
        """All records behind a task as canonical JSON, for the suite's hash."""
        ...

    def next_turn(self, task: Task, transcript: Transcript, habits: Habits) -> str:
        """The next turn of a scripted agent that knows the task."""
        ...


@dataclass(frozen=True)
class PartOfWorld:
    """Some tasks of a world, with all its records. Implements `World`."""

    whole: World
    tasks: tuple[Task, ...]

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def version(self) -> str:
        return self.whole.version

    @property
    def plain(self) -> bool:
        return self.whole.plain

    def tool(self, name: str) -> Tool | None:
        return self.whole.tool(name)

    def start(self, task: Task) -> State:
        return self.whole.start(task)

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        return self.whole.call(task, state, tool, arguments)

    def heard(self, task: Task, state: State) -> State:
        return self.whole.heard(task, state)

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        return self.whole.check(task, state, answer)

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        return self.whole.displaced(task, site)

    def content(self, task: Task) -> str:
        return self.whole.content(task)

    def next_turn(self, task: Task, transcript: Transcript, habits: Habits) -> str:
        return self.whole.next_turn(task, transcript, habits)


def check_version(suite: Suite, known: tuple[int, ...]) -> None:
    """Refuse a version of the suite's generator that the world does not have."""
    if suite.version not in known:
        versions = " and ".join(map(str, known))
        raise ConfigError(
            f"suite.version={suite.version}: this qfr generates version {versions}",
            hint=f"suite.version={known[-1]}, or the qfr of that version",
        )


def check_options(suite: Suite, known: tuple[str, ...]) -> None:
    """Refuse options that the world does not have."""
    for name in suite.options:
        if name not in known:
            raise ConfigError(
                f"the world has no option {name!r}" + did_you_mean(name, known),
                where="suite.options",
                hint="its options: " + (", ".join(known) or "none"),
            )


def check_families(suite: Suite, known: tuple[str, ...], world: str) -> None:
    """Refuse families that the world does not have, negative counts and a suite without tasks."""
    for family, count in suite.families.items():
        if family not in known:
            raise ConfigError(
                f"{family!r} is no family of the {world} world" + did_you_mean(family, known),
                where="suite.families",
                hint="one of " + ", ".join(known),
            )
        if count < 0:
            raise ConfigError(f"{family}: {count} is negative", where="suite.families")
    if sum(suite.families.values()) == 0:
        raise ConfigError("the suite has no tasks", where="suite.families", hint="give a family a count")


def sites(task: Task, kind: FaultKind) -> tuple[Site, ...]:
    """Valid sites of a fault kind, in gold-path order."""
    return sites_where(task, FAULTS[kind].where)


def sites_where(task: Task, where: Where) -> tuple[Site, ...]:
    """Sites by one of the rules, in gold-path order.

    The rule of ET and EP (an argument comes from an earlier call) and that of IT (the result is the argument
    of a later call) give the published denominators (Hu 2026, tables 1 and 3): 2 ET/EP sites per base task,
    3 per shipping task, and 2 IT sites per task. Which lookups the paper used is not said; the rules are
    ours.
    """
    used = {source for call in task.gold_calls for source in call.sources}
    chosen = [
        index
        for index, call in enumerate(task.gold_calls)
        if (where is Where.dependent and call.sources)
        or (where is Where.used and index in used and not call.writes)
        or (where is Where.writes and call.writes)
    ]
    return tuple(
        Site(i, index, task.gold_calls[index].tool, task.gold_calls[index].arguments)
        for i, index in enumerate(chosen)
    )


def task_tools(world: World, task: Task) -> tuple[Tool, ...]:
    """The tools that exist in a task, in the order in which they are shown."""
    found = (world.tool(name) for name in task.tools)
    return tuple(tool for tool in found if tool is not None)


def talks(world: World, task: Task) -> bool:
    """Whether a plain message of the agent means something: it ends a user's turn, or the task."""
    return bool(task.follow_ups) or all(tool.role is not Role.submit for tool in task_tools(world, task))


def tool_block(world: World) -> str:
    """The tools that every task has, as lines of a system message."""
    first, *others = world.tasks
    shared = [tool for tool in task_tools(world, first) if all(tool.name in task.tools for task in others)]
    return "\n".join(["Tools:", *(f"- {tool.signature}: {tool.doc}" for tool in shared)])


def heard_until(world: World, task: Task, state: State, user: int, until: int) -> tuple[State, int]:
    """The state once the user's messages up to number `until` have come, and that number."""
    for _ in range(user, until):
        state = world.heard(task, state)
    return state, max(user, until)


def effects(state: State) -> State:
    """A state without what was only read or said: entries whose names begin with an underscore."""
    return state and {name: value for name, value in state.items() if not name.startswith("_")}


def state_digest(state: State) -> str:
    """SHA-256 of a state as canonical JSON."""
    return sha256_hex(canonical(state).encode("ascii"))


def gold_text(answer: Answer) -> str:
    """A gold answer as logs hold it: a number as plain decimal, anything else as canonical JSON."""
    if isinstance(answer, Decimal):
        return format(answer, "f")
    return canonical(sorted(answer) if isinstance(answer, tuple) else answer)


def suite_json(world: World) -> str:
    """Everything generated as canonical JSON: tools, task texts, gold paths, answers and records."""
    names = sorted({name for task in world.tasks for name in task.tools})
    tools = [world.tool(name) for name in names]
    return canonical(
        {
            "world": world.name,
            "version": world.version,
            "tools": [[tool.signature, tool.role, tool.doc] for tool in tools if tool is not None],
            "tasks": [_task_content(world, task) for task in world.tasks],
        }
    )


def suite_sha256(world: World) -> str:
    """SHA-256 of `suite_json`."""
    return sha256_hex(suite_json(world).encode("ascii"))


def _task_content(world: World, task: Task) -> dict[str, object]:
    later: dict[str, object] = {"follow_ups": task.follow_ups} if task.follow_ups else {}
    return later | {
        "id": task.id,
        "family": task.family,
        "text": task.text,
        "tools": task.tools,
        "gold_calls": [_call_content(call) for call in task.gold_calls],
        "answer": gold_text(task.answer),
        "records": world.content(task),
    }


def _call_content(call: GoldCall) -> list[object]:
    """As `gold_call` reads it back; what is as in a world of lookups is left out."""
    later: list[object] = [call.writes, call.user] if call.writes or call.user else []
    return [call.tool, call.arguments, call.sources, *later]


def gold_call(content: Sequence[object]) -> GoldCall:
    """A gold call from a suite's JSON."""
    tool, arguments, sources, *later = content
    assert isinstance(sources, list)
    writes, user = later or (False, 0)
    assert isinstance(user, int)
    return GoldCall(str(tool), str(arguments), tuple(sources), bool(writes), user)
