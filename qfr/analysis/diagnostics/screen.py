"""A risk screen: from runs of the reference preset alone, what a lower preset will probably lose.

Jang 2026 proposes full-precision propensity as the screen: an agent that hardly errs at 16 bit is likely
safe at 4. Here the reference's own error channels, margins, length and failures rank its tasks by risk;
where the lower preset has been run, each predictor is tested by the area under its ROC curve. Nothing is
fitted, so nothing can be fitted too well; the intervals hold for all predictors at once (Bonferroni), so
none is picked by luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.channels import Behaviour, ChannelRate, channel_rates, events
from qfr.analysis.diagnostics.log import Log, require
from qfr.analysis.diagnostics.margins import losses, smallest_margins
from qfr.analysis.diagnostics.resampled import DEFAULT, FEWEST_RESAMPLES
from qfr.records import ParseKind, Policy
from qfr.stats.association import Area, area_under_curve
from qfr.stats.intervals import Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray

#: A turn is narrow when its smallest margin is below this, in logits.
NARROW = 1.0
#: The mean of the rank shares of all predictors that vary.
COMBINED = "combined"
#: Resamples that a tail must hold for its quantile to be told.
FEWEST_BEYOND = 20
#: Values drawn at most for one area.
LARGEST_DRAW = 50_000_000


@dataclass(frozen=True)
class Predictor:
    """One figure of a task in the reference's log; larger = more risk."""

    name: str
    value: float | None
    # None where the log has no margin.


@dataclass(frozen=True)
class TaskRisk:
    """One task of the reference."""

    task: str
    risk: float
    # 0..1: the mean rank share over the predictors that vary; 0.5 when none does.
    predictors: tuple[Predictor, ...]


@dataclass(frozen=True)
class Tested:
    """One predictor against what another preset lost."""

    other: str
    predictor: str
    area: Area
    # Over tasks with a comparable success; positive = the other loses at least one of them. The interval's
    # level is widened to hold for all predictors that vary at once.
    beats_chance: bool | None
    # The interval lies above one half; None without an interval, or with one that is flagged.


@dataclass(frozen=True)
class Screen:
    """What the reference alone foretells, and how well it did where that can be tested."""

    reference: str
    policy: str
    rates: tuple[ChannelRate, ...]
    # Propensity: how often the reference itself errs.
    risks: tuple[TaskRisk, ...]
    # Riskiest first.
    tests: tuple[Tested, ...]
    # Per other preset, each predictor and the combined risk; empty without another preset.


def screen(
    reference: Log,
    others: Sequence[Log] = (),
    *,
    policy: Policy,
    rng: Generator,
    options: Options = DEFAULT,
    ep_min_calls: int = 2,
) -> Screen:
    """Rank the reference's tasks by risk, and test the ranking on other presets.

    Parameters
    ----------
    reference : Log
        Best with the clean pass; the ranking uses nothing else.
    others : sequence of Log
        Lower presets of the same model and prompt, if they have been run.
    options : Options
        Level and resamples; more are taken where the level's tails need them.
    ep_min_calls : int
        As the scorer's.
    """
    names, table = _predictors(reference, policy, ep_min_calls)
    risk = _combined(table)
    order = np.argsort(-risk, kind="stable")
    tests = []
    for other in others:
        tasks, lost = losses(reference, other, policy).by_task(reference)
        # A predictor that is the same everywhere is no test.
        varying = sum(np.unique(scores[tasks]).size > 1 for scores in (*table, risk))
        level = 1 - (1 - options.level) / max(1, varying)
        way = replace(options, level=level)
        for name, scores in zip((*names, COMBINED), (*table, risk), strict=True):
            known = np.isfinite(scores[tasks])
            at = tasks[known]
            tests.append(Tested(other.name, name, *_tested(scores[at], lost[known], at, rng, way)))
    return Screen(
        reference=reference.name,
        policy=str(policy),
        rates=channel_rates(reference, rng=rng, options=options, ep_min_calls=ep_min_calls),
        risks=tuple(
            TaskRisk(reference.tasks[at], float(risk[at]), _named(names, table[:, at])) for at in order
        ),
        tests=tuple(tests),
    )


def _tested(
    scores: FloatArray, lost: BoolArray, tasks: IntArray, rng: Generator, options: Options
) -> tuple[Area, bool | None]:
    """Return the area, and whether its interval shows more than chance; None where it is flagged."""
    needed = math.ceil(FEWEST_BEYOND / options.tail)
    afforded = LARGEST_DRAW // max(1, tasks.size)
    way = replace(options, resamples=max(FEWEST_RESAMPLES, min(afforded, max(options.resamples, needed))))
    area = area_under_curve(scores, lost, tasks, rng=rng, options=way)
    low = area.estimate.low
    if low is not None and way.resamples < needed:
        why = f"unreliable: {way.resamples:,} resamples, of which this level needs {needed:,}"
        reason = "; ".join(text for text in (area.estimate.reason, why) if text)
        area = replace(area, estimate=replace(area.estimate, reliable=False, reason=reason))
    return area, low > 0.5 if low is not None and area.estimate.reliable else None


def _predictors(log: Log, policy: Policy, ep_min_calls: int) -> tuple[tuple[str, ...], FloatArray]:
    """Names and values, shape (n_predictors, n_tasks); larger = more risk, nan where there is no margin."""
    require(log.calls, ("parse",), f"calls of {log.name}")
    margin, narrowest = log.numbers("min_margin"), smallest_margins(log)[1]
    known = np.isfinite(margin)
    calls = log.over_episodes(log.over_calls(np.ones(log.n_calls)))
    measured = log.over_episodes(log.over_calls(known))
    episodes = log.over_episodes(np.ones(log.n_episodes))
    loose = ~log.calls["parse"].isin([str(ParseKind.strict)]).to_numpy(dtype=np.bool_)

    def over(values: FloatArray, whole: FloatArray) -> FloatArray:
        shares: FloatArray = np.divide(values, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
        return shares

    columns = {
        "smallest_margin": np.where(np.isfinite(narrowest), -narrowest, np.nan),
        "mean_margin": over(-log.over_episodes(log.over_calls(np.where(known, margin, 0.0))), measured),
        "narrow_turns": over(log.over_episodes(log.over_calls(known & (margin < NARROW))), measured),
    }
    for one in events(log, ep_min_calls=ep_min_calls):
        # An invented answer needs a dead tool, which few tasks have met: it ranks too few of them.
        if one.name != Behaviour.invented_answer:
            columns[one.name] = over(log.over_episodes(one.counts), calls)
    columns["not_strict"] = over(log.over_episodes(log.over_calls(loose)), calls)
    columns["turns"] = over(calls, episodes)
    columns["own_failures"] = over(log.over_episodes(~log.score(policy)), episodes)
    return tuple(map(str, columns)), np.stack(list(columns.values()))


def _combined(table: FloatArray) -> FloatArray:
    """Mean rank share of each task over the predictors that vary, shape (n_tasks,)."""
    n = table.shape[1]
    shares = []
    for row in table:
        known = np.isfinite(row)
        if known.sum() < 2 or bool((row[known] == row[known][0]).all()):
            continue
        share = np.full(n, 0.5)
        share[known] = (pd.Series(row[known]).rank().to_numpy() - 0.5) / known.sum()
        shares.append(share)
    combined: FloatArray = np.mean(shares, axis=0) if shares else np.full(n, 0.5)
    return combined


def _named(names: tuple[str, ...], values: FloatArray) -> tuple[Predictor, ...]:
    return tuple(
        Predictor(name, float(value) if np.isfinite(value) else None)
        for name, value in zip(names, values, strict=True)
    )
