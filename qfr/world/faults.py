"""Injects one scheduled fault into an episode and keeps its life: fired, witnessed, retried, recovered.

What each kind does stands in `qfr.faults`; here is how a kind of any such shape plays out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from qfr.canonical import Json, read_json
from qfr.faults import FAULTS, FaultKind, Reach, Reply
from qfr.records import FaultTrace, ToolCall
from qfr.world.base import Found, Outcome, Site, State, Task, World, effects


@dataclass(frozen=True)
class ScheduledFault:
    """What is to be injected into an episode, and where."""

    kind: FaultKind
    site: Site
    code: str
    # Error code of a failed call.
    message: str
    # Error message of a failed call. One text for all kinds: an agent cannot know which one it meets.
    times: int = 1
    # Failures of the call (Reach.times).
    retry_after: int = 1
    # Turns that the tool has to be left alone (Reach.turns).


@dataclass(frozen=True)
class Failed:
    """The tool itself failed: the injected fault, never the agent's error."""

    code: str
    message: str
    extra: Mapping[str, Json] = field(default_factory=dict)
    # What else the error tells.


@dataclass(frozen=True)
class Cut:
    """The true answer, of which only the beginning arrives."""

    record: Mapping[str, Json]


@dataclass(frozen=True)
class Answered:
    """Answer to a well-formed call."""

    outcome: Outcome | Failed | Cut
    injected: bool
    # True when the outcome comes from the fault and not from the world.


class Injector:
    """Stands between an episode and its world, and holds the world's state. One per episode.

    The episode calls `saw` for every turn that was generated and `answer` for every well-formed call, in
    order, and takes the `trace` at the end.
    """

    def __init__(self, world: World, task: Task, fault: ScheduledFault | None) -> None:
        self._world = world
        self._task = task
        self._fault = fault
        self.state: State = world.start(task)
        self.duplicate_writes = 0
        # Times that the call at the site changed the state after it had done so once.
        self._effects = 0
        self._fired: int | None = None
        self._witnessed: int | None = None
        self._retried: int | None = None
        self._recovered: int | None = None
        self._dead_calls = 0
        self._refused_turns = 0
        self._refused_last = -1
        if fault is not None:
            self._kind = FAULTS[fault.kind]
            tool = world.tool(fault.site.tool)
            self._free = frozenset(p.name for p in tool.parameters if p.free) if tool else frozenset[str]()
            self._site = self._fixed(_arguments(fault.site))

    def saw(self, turn: int) -> None:
        """Note that the model wrote turn `turn`, so that its prompt held every earlier observation."""
        if self._fired is not None and self._witnessed is None and turn > self._fired:
            self._witnessed = turn

    def heard(self) -> None:
        """Note that the user's next message came."""
        self.state = self._world.heard(self._task, self.state)

    def answer(self, turn: int, call: ToolCall, arguments: Mapping[str, Json]) -> Answered:
        """Answer a well-formed call: the fault's answer where it applies, else the world's."""
        fault = self._fault
        if fault is None:
            return Answered(self._call(call.tool, arguments), injected=False)
        # Values, not texts: 1.0 is the same argument as 1.
        at_site = call.tool == fault.site.tool and self._fixed(arguments) == self._site
        again = at_site and self._fired is not None
        if again and self._retried is None:
            self._retried = turn
        if self._applies(fault, turn, call, at_site):
            injected = self._injected(fault, call, arguments)
            if isinstance(injected, Answered):
                return injected
            self._fired = turn if self._fired is None else self._fired
            self._dead_calls += 1
            self._refused_turns += turn != self._refused_last
            self._refused_last = turn
            return Answered(injected, injected=True)
        outcome = self._call(call.tool, arguments, at_site=at_site)
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

    def _fixed(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """A call's arguments without those that are the agent's own choice."""
        return {name: value for name, value in arguments.items() if name not in self._free}

    def _call(self, tool: str, arguments: Mapping[str, Json], *, at_site: bool = False) -> Outcome:
        """Carry the call out in the world."""
        before = self.state
        self.state, outcome = self._world.call(self._task, before, tool, arguments)
        if at_site and self.state is not before and effects(self.state) != effects(before):
            self.duplicate_writes += self._effects > 0
            self._effects += 1
        return outcome

    def _applies(self, fault: ScheduledFault, turn: int, call: ToolCall, at_site: bool) -> bool:
        """Whether the fault answers this call. Its first is always one at the site."""
        reach = self._kind.reach
        if self._fired is None or reach is Reach.site:
            return at_site
        if reach is Reach.times:
            return at_site and self._dead_calls < fault.times
        same_tool = call.tool == fault.site.tool
        if reach is Reach.turns:
            others = turn - self._fired - self._refused_turns
            return same_tool and others < fault.retry_after
        return reach is Reach.tool and same_tool

    def _injected(
        self, fault: ScheduledFault, call: ToolCall, arguments: Mapping[str, Json]
    ) -> Found | Failed | Cut | Answered:
        """The fault's answer; the world's where there is no effect to hide and nothing to cut."""
        kind, extra = self._kind, dict[str, Json]()
        if kind.carried_out or kind.reply is Reply.cut_record:
            outcome = self._call(call.tool, arguments, at_site=True)
            if not isinstance(outcome, Found):
                return Answered(outcome, injected=False)
            if kind.reply is Reply.cut_record:
                return Cut(outcome.record)
        if kind.reply is Reply.other_record:
            return Found(self._world.displaced(self._task, fault.site))
        if kind.reply is Reply.older_record:
            extra["last_known_result"] = older_record(self._world, self._task, fault.site)
        if kind.reach is Reach.turns:
            extra["retry_after_turns"] = Decimal(fault.retry_after)
        return Failed(fault.code, fault.message, extra)


def older_record(world: World, task: Task, site: Site) -> dict[str, Json]:
    """What the site's record was before the world changed: another record's values under the asked id."""
    record = dict(world.displaced(task, site))
    return record | {name: value for name, value in _arguments(site).items() if name in record}


def _arguments(site: Site) -> dict[str, Json]:
    value = read_json(site.arguments)
    assert isinstance(value, dict)
    return value
