"""Kinds of fault: one record each in `FAULTS`. Nothing else in the code names a kind.

A kind says at which calls of the gold path it can be injected, which calls it answers, what it answers,
whether the call is carried out all the same, what counts as recovery, and how it is worded and tabulated. A
further kind is a member of `FaultKind`, a record here, a file in `conf/fault/` and a test. `docs/faults.md`
draws a timeline for each.

et, ep and it are those of Hu 2026 (arXiv:2610.07781, section 3), after the taxonomy of ToolMaze
(arXiv:2606.05806). How it displaces data, and which calls are sites, is not said there; both are ours, as are
the other kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What is injected at one call of the gold path (Hu 2026, section 3; ToolMaze's taxonomy)."""

    none = "none"
    et = "et"
    it = "it"
    ep = "ep"
    ip = "ip"
    er = "er"
    rl = "rl"
    ch = "ch"
    tr = "tr"
    la = "la"


class Where(StrEnum):
    """At which calls of the gold path a kind can be injected."""

    nowhere = "nowhere"
    dependent = "dependent"
    # Calls that take an argument from an earlier call.
    used = "used"
    # Calls whose result a later call takes an argument from.
    writes = "writes"
    # Calls that change the state of the world.


class Reach(StrEnum):
    """Which calls the fault answers from the first call at the site on."""

    once = "once"
    # That call alone.
    times = "times"
    # The first `fault.times` calls at the site.
    turns = "turns"
    # Every call of the tool, until `fault.retry_after` turns have passed in which the tool was left alone.
    site = "site"
    # Every call at the site.
    tool = "tool"
    # Every call of the tool.


class Reply(StrEnum):
    """What the fault answers."""

    nothing = "nothing"
    error = "error"
    # The configured error.
    other_record = "other_record"
    # Another record, as if nothing were wrong.
    older_record = "older_record"
    # The configured error with an outdated record attached.
    cut_record = "cut_record"
    # The first half of the true answer's text.


class Recovery(StrEnum):
    """What counts as a success once the fault was delivered."""

    task = "task"
    # The task is solved.
    report = "report"
    # The failure is reported after enough calls of the tool.
    either = "either"
    # One of the two.


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    where: Where
    reach: Reach
    reply: Reply
    recovery: Recovery
    title: str
    # Heading of a table.
    sentence: str
    # What happens, as a clause: "a tool call fails once".
    carried_out: bool = False
    # The call has its effect although the fault answers it.
    keys: tuple[str, ...] = ()
    # Keys under `fault.` that the kind reads: part of a cell's identity, in this order.
    columns: tuple[str, ...] = ()
    # Fields of `Score` that are counted for this kind.
    tree: int = 0
    # Place among the faults at one call: kinds that show the same text first stand side by side.

    @property
    def explicit(self) -> bool:
        """Whether the agent is shown an error."""
        return self.reply in (Reply.error, Reply.older_record)

    @property
    def lasting(self) -> bool:
        """Whether the fault never ends."""
        return self.reach in (Reach.site, Reach.tool)


# Fields of a score that some kinds count, in words.
COUNTED: Mapping[str, str] = {
    "reported": "reported",
    "reported_after": "reported after enough calls",
    "invented": "invented an answer",
    "requeried": "asked again",
    "right_answer": "right answer",
    "blind_trust": "believed it",
    "stale_answer": "stale answer",
    "wasted_calls": "wasted calls",
    "duplicate_writes": "duplicate writes",
}
USUAL = FaultKind.et
# The kind that names leave out and that is taken where one has to be chosen.
_TEXT = ("code", "message")

FAULTS: Mapping[FaultKind, Fault] = {
    FaultKind.none: Fault(
        Where.nowhere, Reach.once, Reply.nothing, Recovery.task, "Clean pass", "nothing is injected"
    ),
    FaultKind.et: Fault(
        Where.dependent,
        Reach.once,
        Reply.error,
        Recovery.task,
        "Temporary failure",
        "a tool call fails once",
        keys=_TEXT,
    ),
    FaultKind.it: Fault(
        Where.used,
        Reach.once,
        Reply.other_record,
        Recovery.task,
        "Displaced data",
        "a tool call returns another record once, without an error",
        columns=("requeried", "right_answer"),
        tree=2,
    ),
    FaultKind.ep: Fault(
        Where.dependent,
        Reach.tool,
        Reply.error,
        Recovery.report,
        "Dead tool, reported",
        "a tool fails from a call on, for ever",
        keys=_TEXT,
        columns=("reported", "reported_after", "invented"),
        tree=1,
    ),
    FaultKind.ip: Fault(
        Where.used,
        Reach.site,
        Reply.other_record,
        Recovery.either,
        "Lasting displaced data",
        "a tool call returns another record whenever it is made, without an error",
        columns=("reported", "reported_after", "requeried", "right_answer", "blind_trust"),
        tree=3,
    ),
    FaultKind.er: Fault(
        Where.dependent,
        Reach.times,
        Reply.error,
        Recovery.task,
        "Repeated failure",
        "a tool call fails several times, then succeeds",
        keys=(*_TEXT, "times"),
        columns=("wasted_calls",),
        tree=4,
    ),
    FaultKind.rl: Fault(
        Where.dependent,
        Reach.turns,
        Reply.error,
        Recovery.task,
        "Rate limit",
        "a tool refuses calls until it has been left alone for some turns",
        keys=(*_TEXT, "retry_after"),
        columns=("wasted_calls",),
        tree=5,
    ),
    FaultKind.ch: Fault(
        Where.used,
        Reach.once,
        Reply.older_record,
        Recovery.task,
        "Changed state",
        "a tool call fails once and shows an outdated record; a second call shows the newer truth",
        keys=_TEXT,
        columns=("stale_answer", "right_answer"),
        tree=6,
    ),
    FaultKind.tr: Fault(
        Where.used,
        Reach.once,
        Reply.cut_record,
        Recovery.task,
        "Cut answer",
        "the answer of a tool call is cut in half once",
        columns=("blind_trust", "right_answer"),
        tree=7,
    ),
    FaultKind.la: Fault(
        Where.writes,
        Reach.once,
        Reply.error,
        Recovery.task,
        "Lost acknowledgement",
        "a tool call is carried out, but its answer is an error",
        carried_out=True,
        keys=_TEXT,
        columns=("duplicate_writes",),
        tree=8,
    ),
}
