"""Injects one scheduled fault into an episode and keeps its life: fired, witnessed, retried, recovered.

Kinds after Hu 2026, section 3 (the taxonomy of ToolMaze): ET fails one call once, EP kills a tool, IT returns
another record once. How IT displaces data and which calls are sites is not said in the paper; both are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qfr.canonical import Json, read_json
from qfr.records import FaultKind, FaultTrace, ToolCall
from qfr.world.base import Found, NotFound, Site, Task, World


@dataclass(frozen=True)
class ScheduledFault:
    """What is to be injected into an episode, and where."""

    kind: FaultKind
    site: Site
    code: str
    # Error code of the failed call (ET, EP).
    message: str
    # Error message of the failed call (ET, EP). One text for both: an agent cannot know which it is.


@dataclass(frozen=True)
class Failed:
    """The tool itself failed: the injected fault, never the agent's error."""

    code: str
    message: str


@dataclass(frozen=True)
class Answered:
    """Answer to a well-formed lookup."""

    outcome: Found | NotFound | Failed
    injected: bool
    # True when the outcome comes from the fault and not from the world.


class Injector:
    """Stands between an episode and its world. One per episode.

    The episode calls `saw` for every turn that was generated and `answer` for every well-formed lookup, in
    order, and takes the `trace` at the end.
    """

    def __init__(self, world: World, task: Task, fault: ScheduledFault | None) -> None:
        self._world = world
        self._task = task
        self._fault = fault
        self._at = None if fault is None else read_json(fault.site.arguments)
        self._fired: int | None = None
        self._witnessed: int | None = None
        self._retried: int | None = None
        self._recovered: int | None = None
        self._dead_calls = 0

    def saw(self, turn: int) -> None:
        """Note that the model wrote turn `turn`, so that its prompt held every earlier observation."""
        if self._fired is not None and self._witnessed is None and turn > self._fired:
            self._witnessed = turn

    def answer(self, turn: int, call: ToolCall, arguments: Mapping[str, Json]) -> Answered:
        """Answer a well-formed lookup: the fault's answer where it applies, else the world's."""
        fault = self._fault
        if fault is None:
            return Answered(self._world.call(self._task, call.tool, arguments), injected=False)
        # Values, not texts: 1.0 is the same argument as 1.
        at_site = call.tool == fault.site.tool and dict(arguments) == self._at
        again = at_site and self._fired is not None
        if again and self._retried is None:
            self._retried = turn
        if self._applies(fault, call, at_site):
            self._fired = turn if self._fired is None else self._fired
            self._dead_calls += 1
            return Answered(self._injected(fault), injected=True)
        outcome = self._world.call(self._task, call.tool, arguments)
        if again and self._recovered is None and isinstance(outcome, Found):
            self._recovered = turn
        return Answered(outcome, injected=False)

    def trace(self) -> FaultTrace | None:
        """The fault's life so far, None when none was scheduled."""
        if self._fault is None:
            return None
        site = self._fault.site
        return FaultTrace(
            site=site.index,
            tool=site.tool,
            arguments=site.arguments,
            fired=self._fired,
            witnessed=self._witnessed,
            retried=self._retried,
            recovered=self._recovered,
            dead_calls=self._dead_calls,
        )

    def _applies(self, fault: ScheduledFault, call: ToolCall, at_site: bool) -> bool:
        """ET and IT: the first call at the site. EP: from that call on every call of the tool."""
        if self._fired is None:
            return at_site
        return fault.kind is FaultKind.ep and call.tool == fault.site.tool

    def _injected(self, fault: ScheduledFault) -> Found | Failed:
        if fault.kind is FaultKind.it:
            return Found(self._world.displaced(self._task, fault.site))
        return Failed(fault.code, fault.message)
