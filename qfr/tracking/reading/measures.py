"""A cell's metrics, from its episodes: what MLflow's own tables and compare view show.

The report computes its estimates from the episode tables, not from these. A quantity without a denominator
is left out, because MLflow drops NaN from filters and cannot hold a reason.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from qfr.facts import Work
from qfr.faults import FAULTS
from qfr.records import Channel, Ending, Episode, FaultKind, ParseKind, Policy, Score
from qfr.scoring import score


@dataclass(frozen=True)
class Measures:
    """Metrics of one cell."""

    scalars: Mapping[str, float]
    # One value each; rates in 0..1. The headline first: MLflow's page of a run and the first plot of its
    # compare view follow the order of logging.
    series: Mapping[str, tuple[float, ...]]
    # One value per episode, in log order; NaN where an episode has none (then no point is logged).


Scored = Sequence[tuple[Episode, Score]]


def measure(
    episodes: Sequence[Episode], clean: Sequence[Episode], *, work: Work | None, ep_min_calls: int
) -> Measures:
    """Metrics of a cell.

    Parameters
    ----------
    episodes : sequence of Episode
        Of this cell, in log order: the clean pass (fault=none) or the fault episodes.
    clean : sequence of Episode
        The clean pass of the cell; the same episodes for fault=none.
    work : Work or None
        What the engine did; None when it is not known.
    ep_min_calls : int
        As `qfr.scoring.score`.
    """
    scalars: dict[str, float] = {}
    series: dict[str, tuple[float, ...]] = {}
    for policy in Policy:
        scored = [(e, score(e, policy, ep_min_calls=ep_min_calls)) for e in episodes]
        screen = [(e, score(e, policy, ep_min_calls=ep_min_calls)) for e in clean]
        values = _policy_values(scored, screen)
        scalars |= {f"{policy}.{name}": value for name, value in values.items()}
        series[f"episode.{policy}_success"] = tuple(
            float(s.success) if s.delivered else math.nan for _, s in scored
        )
    scalars |= _counts(episodes) | _work(work)
    series["episode.turns"] = tuple(float(len(e.turns)) for e in episodes)
    series["episode.errors"] = tuple(float(e.errors) for e in episodes)
    series["episode.min_margin"] = tuple(_lowest(e) for e in episodes)
    series["episode.tokens_out"] = tuple(
        float(sum(len(turn.generation.token_ids) for turn in e.turns) or math.nan) for e in episodes
    )
    return Measures({name: float(value) for name, value in scalars.items() if math.isfinite(value)}, series)


def _policy_values(scored: Scored, screen: Scored) -> dict[str, float]:
    """Clean rate, own recovery and full pipeline (Hu 2026, section 3), and the counts behind them."""
    passed: dict[str, list[bool]] = {}
    for e, s in screen:
        passed.setdefault(e.task, []).append(s.success)
    tasks = set(passed)
    # An imported log runs a task several times: its rate is the mean, and only all successes certify it.
    certified = {task for task, hits in passed.items() if all(hits)}
    clean = [Fraction(sum(hits), len(hits)) for hits in passed.values()]
    counts: dict[str, float] = {"clean_rate": float(sum(clean, Fraction(0)) / len(clean))} if clean else {}
    counts |= {
        "certified": len(certified),
        # A fault that never fired shows nothing of recovery.
        "successes": sum(s.success and s.delivered for _, s in scored),
        "expressions": sum(s.expression and s.delivered for _, s in scored),
    }
    if all(e.fault is FaultKind.none for e, _ in scored):
        return counts
    per_task: dict[str, list[bool]] = {}
    for e, s in scored:
        if s.delivered:
            per_task.setdefault(e.task, []).append(s.success)
    # A fault that never fired leaves r's denominator; a task without any counts 0 in the full pipeline.
    rates = {task: Fraction(sum(hits), len(hits)) for task, hits in per_task.items()}
    own = [rate for task, rate in rates.items() if task in certified]
    values: dict[str, float] = {}
    if tasks:
        values["full"] = float(sum(own, Fraction(0)) / len(tasks))
    if own:
        values["own"] = float(sum(own, Fraction(0)) / len(own))
    # Right though no repetition of the failed call was answered: a guess, or another way to the value.
    values["right_without_recovery"] = sum(
        s.success and not s.reported_after and _unrecovered(e) for e, s in scored
    )
    if set(rates) - certified:
        values["ungated"] = float(sum(rates.values(), Fraction(0)) / len(rates))
    values |= {name: sum(getattr(s, name) for _, s in scored) for name in _kind_columns(scored)}
    return values | counts


def _unrecovered(episode: Episode) -> bool:
    trace = episode.trace
    return trace is not None and trace.fired is not None and trace.recovered is None


def _kind_columns(scored: Scored) -> tuple[str, ...]:
    """Fields of the scores that are counted for the kinds of fault at hand."""
    return tuple(
        dict.fromkeys(name for kind in {e.fault for e, _ in scored} for name in FAULTS[kind].columns)
    )


def _counts(episodes: Sequence[Episode]) -> dict[str, float]:
    turns = [turn for e in episodes for turn in e.turns]
    traces = [e.trace for e in episodes if e.trace is not None]
    endings = Counter(e.ending for e in episodes)
    channels = Counter(step.observation.channel for turn in turns for step in turn.steps)
    counts: dict[str, float] = {
        "episodes": len(episodes),
        "tasks": len({e.task for e in episodes}),
        "turns": len(turns),
        "turns.not_strict": sum(turn.parse is not ParseKind.strict for turn in turns),
        "turns.unreadable": sum(turn.parse is ParseKind.none for turn in turns),
        "turns.control_text": sum(turn.generation.control_text for turn in turns),
        "errors": sum(e.errors for e in episodes),
        **{f"endings.{ending}": endings[ending] for ending in Ending},
        **{f"channels.{channel}": channels[channel] for channel in Channel},
    }
    if traces:
        counts["faults.scheduled"] = len(traces)
        for state in ("fired", "witnessed", "retried", "recovered"):
            counts[f"faults.{state}"] = sum(getattr(trace, state) is not None for trace in traces)
    return counts


def _work(work: Work | None) -> dict[str, float]:
    if work is None:
        return {}
    values = {f"work.{key}": value for key, value in dataclasses.asdict(work).items() if value is not None}
    if not work.tokens_evaluated:
        # A server tells at most what it wrote: a zero would read as a measurement.
        values = {key: value for key, value in values.items() if value or not key.startswith("work.tokens")}
    if work.segment_ratio is not None:
        values["work.segment_ratio"] = work.segment_ratio
    return values


def _lowest(episode: Episode) -> float:
    return min((m for turn in episode.turns for m in turn.generation.margins), default=math.nan)
