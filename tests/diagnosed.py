"""Hand-made episodes for the diagnostics: every call is spelled out, tables and scores follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qfr.analysis.diagnostics.log import Log, make_log
from qfr.canonical import canonical
from qfr.records import (
    SCHEMA_VERSION,
    Channel,
    Ending,
    Episode,
    FaultKind,
    FaultTrace,
    Generation,
    Observation,
    ParseKind,
    StopReason,
    ToolCall,
    Turn,
)
from qfr.tracking.reading.tables import call_table, to_frame
from tests.builders import make_facts
from tests.logged import logged


@dataclass(frozen=True)
class Made:
    """One call and its answer."""

    tool: str | None
    value: str
    ok: bool
    channel: Channel | None
    injected: bool
    margins: tuple[float, ...]
    text: str | None
    tokens: tuple[int, ...] | None


def good(
    tool: str = "get",
    value: str = "1",
    *,
    margins: tuple[float, ...] = (5.0,),
    text: str | None = None,
    tokens: tuple[int, ...] | None = None,
) -> Made:
    """A call that was answered."""
    return Made(tool, value, True, None, False, margins, text, tokens)


def bad(
    channel: Channel, tool: str | None = "get", value: str = "x", *, margins: tuple[float, ...] = (5.0,)
) -> Made:
    """A call that failed by the agent's own error."""
    return Made(None if channel is Channel.form else tool, value, False, channel, False, margins, None, None)


def hit(value: str = "1", *, ok: bool = False, tool: str = "get") -> Made:
    """A good call that the fault answered; `ok` for displaced data."""
    return Made(tool, value, ok, None, True, (5.0,), None, None)


RIGHT = good("submit_answer", "1")
WRONG = good("submit_answer", "2")
REPORT = good("report_failure", "no")


def episode(
    task: str,
    calls: Sequence[Made],
    fault: FaultKind = FaultKind.none,
    *,
    site: int = 0,
    trial: int = 0,
    ending: Ending | None = None,
) -> Episode:
    """An episode whose trace and ending follow from its calls; the gold answer is 1."""
    turns = tuple(_turn(at, one) for at, one in enumerate(calls))
    trace = None
    if fault is not FaultKind.none:
        fired = next((at for at, one in enumerate(calls) if one.injected), None)
        seen = None if fired is None or fired + 1 >= len(calls) else fired + 1
        dead = sum(one.injected for one in calls)
        trace = FaultTrace(site, "get", '{"k":"1"}', fired, seen, None, None, dead)
    last = calls[-1]
    by_tool = {"submit_answer": Ending.submitted, "report_failure": Ending.reported_failure}
    found = ending or by_tool.get(last.tool or "", Ending.out_of_steps)
    return Episode(
        schema=SCHEMA_VERSION,
        cell_id="c",
        task=task,
        family="f",
        fault=fault,
        trial=trial,
        trace=trace,
        turns=turns,
        ending=found,
        answer=last.value if found is Ending.submitted else None,
        gold="1",
        errors=sum(one.channel is not None for one in calls),
    )


def log_of(name: str, episodes: Sequence[Episode]) -> Log:
    """The log that the tracking store's tables would give."""
    frame = logged(make_facts("m", name, "P0", "none"), episodes).episodes
    return make_log(name, frame, to_frame(call_table(episodes)))


def _turn(index: int, one: Made) -> Turn:
    keys = {"submit_answer": "answer", "report_failure": "reason"}
    call = None
    if one.tool is not None:
        call = ToolCall(one.tool, canonical({keys.get(one.tool, "k"): one.value}))
    text = one.text if one.text is not None else f"{one.tool} {one.value}"
    tokens = one.tokens if one.tokens is not None else tuple(range(len(one.margins)))
    generation = Generation(
        text, tokens, StopReason.end_of_generation, 10 + index, one.margins, "0" * 64, False
    )
    parse = ParseKind.none if call is None else ParseKind.strict
    answer = "" if one.tool in keys else f"{'ok' if one.ok else 'no'} {one.value}"
    return Turn(index, generation, parse, call, Observation(answer, one.ok, one.channel, one.injected))
