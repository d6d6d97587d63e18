"""What a user is told of a played cell group beyond its counts: why nothing was certified, what was cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qfr.cell import certified
from qfr.config import CellConfig, EngineKind, Gate
from qfr.engine.openai.fields import beside_of
from qfr.records import Channel, Episode, FaultKind, Policy, StopReason
from qfr.scoring import score

_REASONS = {
    "wrong_answer": "a wrong answer",
    "no_number": "an answer that is no number",
    "gave_up": "a report of failure",
    "out_of_steps": "no answer within suite.step_budget",
    "out_of_errors": "more failed calls than suite.error_budget",
    "out_of_context": "a full context",
    "stopped_talking": "plain messages without a call",
}
_CHANNELS = {
    Channel.tool_name: "tools that do not exist",
    Channel.arguments: "wrong arguments",
    Channel.entity: "ids that do not exist",
    Channel.form: "turns that hold no call",
    Channel.policy: "calls that break a rule",
}
# Share of turns cut at their limit from which a user is told.
_MANY = 0.05


def remarks(cell: CellConfig, clean: Sequence[Episode], faults: Sequence[Episode]) -> list[str]:
    """Lines about a clean pass and its fault episodes, none where there is nothing to say."""
    return [
        *_nothing_certified(cell, clean),
        *_never_fired(cell, faults),
        *_cut(cell, [*clean, *faults]),
        *_beside([*clean, *faults]),
    ]


def _nothing_certified(cell: CellConfig, clean: Sequence[Episode]) -> list[str]:
    if not clean or any(certified(one) for one in clean):
        return []
    reasons = Counter(score(one, Policy.tolerant).reason for one in clean)
    ended = ", ".join(f"{count} with {_REASONS.get(name, name)}" for name, count in reasons.most_common())
    lines = [f"no task was passed even without a fault; they ended {ended}{_mostly(clean)}."]
    if cell.suite.gate is Gate.certified:
        lines.append("So no fault could be injected, and nothing can be said about recovery.")
    if cell.model.suite not in (None, cell.suite.name):
        lines.append(
            f"{cell.model.name} is made for suite={cell.model.suite}; this was suite={cell.suite.name}."
        )
    return [" ".join(lines)]


def _never_fired(cell: CellConfig, faults: Sequence[Episode]) -> list[str]:
    scheduled, missed = Counter[FaultKind](), Counter[FaultKind]()
    for one in faults:
        scheduled[one.fault] += one.trace is not None
        missed[one.fault] += one.trace is not None and one.trace.fired is None
    lines = []
    for kind in (kind for kind, count in missed.items() if count and count >= _MANY * scheduled[kind]):
        line = (
            f"{missed[kind]} of {scheduled[kind]} scheduled faults ({kind}) never fired: the agent made no "
            "call at their place. These episodes say nothing about recovery and leave its denominator"
        )
        if cell.suite.gate is Gate.none:
            line += "; suite.gate=none schedules them on tasks that fail without a fault, too"
        lines.append(line + ".")
    return lines


def _mostly(clean: Sequence[Episode]) -> str:
    found = Counter(
        step.observation.channel
        for one in clean
        for turn in one.turns
        for step in turn.steps
        if step.observation.channel
    )
    return f" (failed calls: mostly {_CHANNELS[found.most_common(1)[0][0]]})" if found else ""


def _cut(cell: CellConfig, episodes: Sequence[Episode]) -> list[str]:
    turns = [turn.generation for one in episodes for turn in one.turns]
    cut = sum(turn.stop is StopReason.max_tokens for turn in turns)
    if not turns or cut / len(turns) < _MANY:
        return []
    whose = " or the server's own limit" if cell.engine.kind is EngineKind.openai else ""
    return [
        f"{cut} of {len(turns)} turns were cut at executor.max_tokens={cell.executor.max_tokens}{whose}: a "
        "call that is cut cannot be read. A larger executor.max_tokens lets them end."
    ]


def _beside(episodes: Sequence[Episode]) -> list[str]:
    turns = [turn.generation for one in episodes for turn in one.turns]
    found = Counter(field for turn in turns for field in beside_of(turn))
    if not found:
        return []
    empty = sum(bool(beside_of(turn)) and not turn.text.strip() for turn in turns)
    named = ", ".join(f"{field} in {count}" for field, count in found.most_common())
    return [
        f"of {len(turns)} turns the server answered with {named} beside the text; {empty} had no text "
        "at all. Calls are read out of the text alone; the rest is kept in timing.jsonl (docs/served.md says "
        "what to set)."
    ]
