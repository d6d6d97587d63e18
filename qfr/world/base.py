"""What a world is: tools with docstrings, records, a task generator and a solver.

Nothing above this room knows an order or a customer. Fault sites follow from the argument graph of the
gold path (`GoldCall.sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from qfr.canonical import Json as Json
from qfr.canonical import canonical, sha256_hex
from qfr.records import FaultKind
from qfr.records import Kind as Kind
from qfr.records import Parameter as Parameter
from qfr.records import Role as Role
from qfr.records import Tool as Tool


@dataclass(frozen=True)
class GoldCall:
    """A lookup of the minimal gold path."""

    tool: str
    arguments: str
    # Canonical JSON.
    sources: tuple[int, ...]
    # Indices of earlier gold calls whose results supply an argument; empty when the task text does.


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
    answer: Decimal
    # Verified by the independent solver.


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
    """A record that a lookup returned."""

    record: Mapping[str, Json]


@dataclass(frozen=True)
class NotFound:
    """The lookup named an id that does not exist."""

    message: str


Lookup = Callable[[str, str], Mapping[str, Json]]
# (tool, canonical arguments) -> record.


class World(Protocol):
    """A family of tasks over one set of records."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The suite, in its fixed order."""
        ...

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, None when the world has none."""
        ...

    def call(self, task: Task, tool: str, arguments: Mapping[str, Json]) -> Found | NotFound:
        """Answer a well-formed lookup of an existing tool. Never raises on the model's values."""
        ...

    def solve(self, task: Task, lookup: Lookup) -> Decimal:
        """Compute the task's answer from its text by following `lookup`: the independent solver."""
        ...

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        """Another record of the site's tool whose echoed id differs and whose use changes the answer (IT)."""
        ...

    def content(self, task: Task) -> str:
        """All records behind a task as canonical JSON, for the suite's hash."""
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

    def tool(self, name: str) -> Tool | None:
        return self.whole.tool(name)

    def call(self, task: Task, tool: str, arguments: Mapping[str, Json]) -> Found | NotFound:
        return self.whole.call(task, tool, arguments)

    def solve(self, task: Task, lookup: Lookup) -> Decimal:
        return self.whole.solve(task, lookup)

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        return self.whole.displaced(task, site)

    def content(self, task: Task) -> str:
        return self.whole.content(task)


def sites(task: Task, kind: FaultKind) -> tuple[Site, ...]:
    """Valid sites of a fault kind, in gold-path order.

    ET and EP: lookups whose argument comes from an earlier lookup. IT: lookups whose result is the argument
    of a later lookup. One rule that gives the published denominators (Hu 2026, tables 1 and 3): 2 ET/EP
    sites per base task and 3 per shipping task, 2 IT sites per task. Which lookups the paper used is not
    said; the rule is ours.
    """
    if kind is FaultKind.none:
        return ()
    used = {source for call in task.gold_calls for source in call.sources}
    chosen = [
        index
        for index, call in enumerate(task.gold_calls)
        if (index in used if kind is FaultKind.it else bool(call.sources))
    ]
    return tuple(
        Site(i, index, task.gold_calls[index].tool, task.gold_calls[index].arguments)
        for i, index in enumerate(chosen)
    )


def task_tools(world: World, task: Task) -> tuple[Tool, ...]:
    """The tools that exist in a task, in the order in which they are shown."""
    found = (world.tool(name) for name in task.tools)
    return tuple(tool for tool in found if tool is not None)


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
    return {
        "id": task.id,
        "family": task.family,
        "text": task.text,
        "tools": task.tools,
        "gold_calls": [[call.tool, call.arguments, call.sources] for call in task.gold_calls],
        "answer": format(task.answer, "f"),
        "records": world.content(task),
    }
