"""How the episodes of a cell went, counted from the log, and what a solved one cost.

- *stuck*: one call with one answer at least k times in a row (`scoring.longest_repeat`; k is
  `scorer.stuck_after`, 3 unless told otherwise)
- *forced end*: the episode ended because its turns, its failed calls or its context were used up
- *tokens (turns) per solved episode*: all tokens that the model generated (all its turns) over the successes

A preset's costs are set beside those of the highest preset as ratios, on the tasks that both played. Tasks
are resampled with all that they cost and gave, so that a task has one weight on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from qfr.analysis.frames import Cell, cell_key, score_column
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey
from qfr.faults import FAULTS, FaultKind
from qfr.records import Channel, Ending, Policy
from qfr.scope import Scope, group, scope_of
from qfr.stats.intervals import Options
from qfr.stats.lattice import FloatArray


@dataclass(frozen=True)
class Count:
    """How often something happened."""

    name: str
    count: int


@dataclass(frozen=True)
class Answers:
    """What one policy makes of the episodes. Counts of episodes."""

    policy: str
    successes: int
    expressions: int
    # Successes whose answer was an arithmetic expression or a numeric string.
    reported: int
    # EP: report_failure without a number, however early.
    reported_after: int
    # EP: reported after enough calls of the dead tool (the headline).
    invented: int
    # EP: a number was submitted although the value could not be known.
    without_recovery: int
    # Successes after a fault that was met by no valid repetition: a right guess, or another way.
    counted: tuple[Count, ...]
    # What the kind of fault is counted by (`Fault.columns`): sums over the episodes.


@dataclass(frozen=True)
class Process:
    """One logged cell: a clean pass (fault ``none``) or its fault episodes."""

    key: CellKey
    scope: Scope = field(repr=False)
    cell_id: str
    episodes: int
    tasks: int
    turns: int
    turns_not_strict: int
    # Turns that were not one JSON object throughout.
    errors: int
    # The agent's own failed calls; an injected fault is not one.
    endings: tuple[Count, ...]
    # One per kind of ending, episodes.
    channels: tuple[Count, ...]
    # One per error channel, failed calls.
    faults: tuple[Count, ...]
    # scheduled, fired, witnessed, retried, recovered: episodes; empty for a clean pass.
    answers: tuple[Answers, ...]
    # One per policy.
    tokens_generated: int
    control_texts: int
    # Episodes in which plain text spelled a control token of the model.


def process(cell: Cell, context: str = "") -> Process:
    """Count what happened in one cell; `context` tells it from others of the same names."""
    frame = cell.episodes
    endings = frame["ending"].value_counts()
    return Process(
        key=cell_key(cell.facts, context),
        scope=scope_of(cell.facts),
        cell_id=cell.facts.cell_id,
        episodes=len(frame),
        tasks=int(frame["task"].nunique()),
        turns=int(frame["turns"].sum()),
        turns_not_strict=int(frame["turns_not_strict"].sum()),
        errors=int(frame["errors"].sum()),
        endings=tuple(Count(str(ending), int(endings.get(str(ending), 0))) for ending in Ending),
        channels=tuple(
            Count(str(channel), int(frame[f"errors_{channel.value}"].sum())) for channel in Channel
        ),
        faults=() if cell.facts.fault == FaultKind.none else _faults(frame),
        answers=tuple(_answers(frame, policy, FaultKind(cell.facts.fault)) for policy in Policy),
        tokens_generated=int(frame["tokens_out"].sum()),
        control_texts=int(frame["control_text"].sum()),
    )


def _faults(frame: pd.DataFrame) -> tuple[Count, ...]:
    states = ("fired", "witnessed", "retried", "recovered")
    return (
        Count("scheduled", len(frame)),
        *(Count(state, int(frame[state].notna().sum())) for state in states),
    )


def _answers(frame: pd.DataFrame, policy: Policy, kind: FaultKind) -> Answers:
    def column(field: str) -> pd.Series[bool]:
        return frame[score_column(policy, field)].astype(bool)

    success = column("success") & column("delivered")
    return Answers(
        policy=policy.value,
        successes=int(success.sum()),
        expressions=int((success & column("expression")).sum()),
        reported=int(column("reported").sum()),
        reported_after=int(column("reported_after").sum()),
        invented=int(column("invented").sum()),
        without_recovery=_without_recovery(frame, success & ~column("reported_after")),
        counted=tuple(Count(name, _sum(frame, policy, name)) for name in FAULTS[kind].columns),
    )


def _without_recovery(frame: pd.DataFrame, success: pd.Series[bool]) -> int:
    return int((success & frame["fired"].notna() & frame["recovered"].isna()).sum())


def _sum(frame: pd.DataFrame, policy: Policy, field: str) -> int:
    name = score_column(policy, field)
    return int(frame[name].sum()) if name in frame else 0


#: Endings that the agent did not choose.
FORCED = (Ending.out_of_steps, Ending.out_of_errors, Ending.out_of_context)
MEASURES = ("tokens", "turns")


@dataclass(frozen=True)
class Ratio:
    """A preset's cost over the highest preset's."""

    value: float | None
    low: float | None
    high: float | None
    # Percentile interval over resampled tasks; None where a resample may hold no success.
    tasks: int
    # Tasks that both played.
    reason: str
    # Why something is None; empty otherwise.


@dataclass(frozen=True)
class Waste:
    """One cell under one policy: a clean pass, or its fault episodes."""

    key: CellKey
    scope: Scope = field(repr=False)
    cell_id: str
    policy: str
    episodes: int
    successes: int
    stuck: int | None
    # Episodes; None for a run whose loops were not counted (`qfr rescore` counts them).
    forced: tuple[Count, ...]
    # One per ending of `FORCED`, episodes.
    spent: tuple[float | None, ...]
    # Tokens and turns per solved episode; None without a success, or where they were not counted.
    against: str
    # The highest preset of its setting; empty for that preset itself.
    ratios: tuple[Ratio, ...]
    # Of tokens and of turns; empty for the highest preset.


def wastes(
    cells: Iterable[Cell], options: Options, seed: int, told: Mapping[str, str], *, stuck_after: int = 3
) -> tuple[Waste, ...]:
    """Count loops and costs of every cell under both policies, each against the highest preset.

    Parameters
    ----------
    cells : iterable of Cell
        Clean passes and fault cells.
    options : qfr.stats.intervals.Options
        Level and resamples; the ratios are always Monte Carlo.
    told : mapping
        What tells each cell from others of the same names, by cell_id (see `qfr.analysis.frames`).
    stuck_after : int
        The same call with the same answer so often in a row is stuck.
    """
    usable = [cell for cell in cells if bits(cell.facts.quant) is not None and len(cell.episodes)]
    found = []
    for setting in group(usable, (Axis.quant,), of=lambda cell: scope_of(cell.facts)):
        members = sorted(setting.members, key=lambda cell: order_key(Axis.quant, cell.facts.quant))
        for policy in Policy:
            found += [
                _waste(cell, members[0], policy, (options, seed, stuck_after, told)) for cell in members
            ]
    return tuple(found)


def _waste(cell: Cell, top: Cell, policy: Policy, way: tuple[Options, int, int, Mapping[str, str]]) -> Waste:
    options, seed, least, told = way
    frame, success = cell.episodes, _success(cell.episodes, policy)
    endings, solved = frame["ending"].value_counts(), int(success.sum())
    stuck = int((frame["repeats"] >= least).sum()) if "repeats" in frame else None
    totals = [float(frame[name].sum()) for name in ("tokens_out", "turns")]
    # A log of another program may not count them.
    spent = tuple(total / solved if solved and total else None for total in totals)
    first = cell is top
    return Waste(
        key=cell_key(cell.facts, told.get(cell.facts.cell_id, "")),
        scope=scope_of(cell.facts),
        cell_id=cell.facts.cell_id,
        policy=policy.value,
        episodes=len(frame),
        successes=solved,
        stuck=stuck,
        forced=tuple(Count(str(ending), int(endings.get(str(ending), 0))) for ending in FORCED),
        spent=spent,
        against="" if first else top.facts.quant,
        ratios=() if first else _ratios(cell, top, policy, options, seed),
    )


def _success(frame: pd.DataFrame, policy: Policy) -> pd.Series[bool]:
    return frame[score_column(policy, "success")].astype(bool) & frame[
        score_column(policy, "delivered")
    ].astype(bool)


def _ratios(cell: Cell, top: Cell, policy: Policy, options: Options, seed: int) -> tuple[Ratio, ...]:
    mine, theirs = _per_task(cell.episodes, policy), _per_task(top.episodes, policy)
    tasks = mine.index.intersection(theirs.index)
    names = [cell.facts.name, top.facts.name, policy.value]
    rng = stream(seed, ["waste", *names])
    n = len(tasks)
    weights = rng.multinomial(n, np.full(n, 1.0 / n), size=options.resamples) if n else np.zeros((0, 0))
    sides = [one.loc[tasks].to_numpy(dtype=np.float64) for one in (mine, theirs)]
    return tuple(_ratio(sides, at, weights.astype(np.float64), options.level) for at in (0, 1))


def _per_task(frame: pd.DataFrame, policy: Policy) -> pd.DataFrame:
    columns = pd.DataFrame(
        {
            "tokens": frame["tokens_out"],
            "turns": frame["turns"],
            "solved": _success(frame, policy).astype(int),
            "task": frame["task"],
        }
    )
    return columns.groupby("task", sort=False).sum()


def _ratio(sides: Sequence[FloatArray], at: int, weights: FloatArray, level: float) -> Ratio:
    n = len(sides[0])
    totals = [side.sum(axis=0) for side in sides]
    if not n or any(total[2] == 0 for total in totals):
        return Ratio(None, None, None, n, "no success on the tasks that both played")
    if totals[1][at] == 0 or totals[0][at] == 0:
        return Ratio(None, None, None, n, "not counted")
    value = float((totals[0][at] / totals[0][2]) / (totals[1][at] / totals[1][2]))
    drawn = [weights @ side for side in sides]
    solved = (drawn[0][:, 2] > 0) & (drawn[1][:, 2] > 0)
    if not solved.all():
        return Ratio(value, None, None, n, "too few successes for an interval")
    ratios = (drawn[0][:, at] / drawn[0][:, 2]) / (drawn[1][:, at] / drawn[1][:, 2])
    tail = (1.0 - level) / 2.0
    low, high = (float(end) for end in np.quantile(ratios, (tail, 1.0 - tail)))
    return Ratio(value, low, high, n, "")


def cost_line(one: Waste) -> str:
    """Say in a line what a cell spends per solved episode, and how often it was stuck or stopped."""
    tokens, turns = ("–" if value is None else f"{value:,.1f}" for value in one.spent)
    said = f"{one.key.quant.lower()}: {tokens} tokens and {turns} turns per solved episode"
    if one.ratios and one.ratios[0].value is not None:
        ratio = one.ratios[0]
        ends = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
        said += f" (tokens ×{ratio.value:.2f}{ends} of {one.against.lower()})"
    stuck = "not counted" if one.stuck is None else f"{one.stuck} of {one.episodes}"
    return (
        f"{said}; stuck: {stuck}; forced end: {sum(count.count for count in one.forced)} of {one.episodes}."
    )
