"""Trajectory length: turns and tokens per episode (Jang 2026 reports it as a process metric)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.log import codes, find, flags, require
from qfr.analysis.diagnostics.resampled import DEFAULT, Sums, ratios, relatives
from qfr.analysis.frames import score_column
from qfr.records import Policy
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import FloatArray, IntArray

#: What is measured per episode: model turns, tokens read in segments, tokens generated.
MEASURES = ("turns", "tokens_in", "tokens_out")
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Length:
    """One measure over one group of episodes."""

    measure: str
    outcome: str
    # all, succeeded or failed.
    episodes: int
    mean: Estimate
    # Over episodes, tasks resampled.
    quantiles: tuple[float, ...]
    # At PROBABILITIES; empty without episodes.


@dataclass(frozen=True)
class LengthChange:
    """One measure of another log against the reference, over the episodes that both list."""

    measure: str
    episodes: int
    reference: float | None
    other: float | None
    # Means over these episodes.
    ratio: Estimate
    # other / reference.
    difference: Estimate
    # other - reference per episode, in turns or tokens.


def lengths(
    episodes: pd.DataFrame, policy: Policy, *, rng: Generator, options: Options = DEFAULT
) -> tuple[Length, ...]:
    """Return how long episodes are, all of them and by outcome.

    Parameters
    ----------
    episodes : DataFrame
        Of one agent, scores included.
    policy : Policy
        Says which succeeded.
    options : Options
        Level and resamples.
    """
    column = score_column(policy, "success")
    require(episodes, ("task", *MEASURES, column), "episodes")
    task_of, names = pd.factorize(episodes["task"].to_numpy(dtype=object))
    success = flags(episodes[column])
    groups = {"all": np.ones(len(episodes), dtype=np.bool_), "succeeded": success, "failed": ~success}
    labels, tops, bottoms = [], [], []
    for outcome, mask in groups.items():
        for measure in MEASURES:
            values = episodes[measure].to_numpy(dtype=np.float64)
            labels.append((measure, outcome, values[mask]))
            tops.append(np.bincount(task_of, weights=values * mask, minlength=len(names)))
            bottoms.append(np.bincount(task_of, weights=mask, minlength=len(names)))
    means = ratios(Sums(np.stack(tops, axis=1), np.stack(bottoms, axis=1)), rng=rng, options=options)
    return tuple(
        Length(measure, outcome, values.size, mean, _quantiles(values))
        for (measure, outcome, values), mean in zip(labels, means, strict=True)
    )


def length_changes(
    reference: pd.DataFrame, other: pd.DataFrame, *, rng: Generator, options: Options = DEFAULT
) -> tuple[LengthChange, ...]:
    """Compare the length of the episodes (task, fault, site, trial) that both tables list.

    Parameters
    ----------
    reference, other : DataFrame
        Episodes of two agents.
    rng, options
        As for `lengths`.
    """
    for frame in (reference, other):
        require(frame, ("task", *MEASURES), "episodes")
    wanted, among = codes(reference, other)
    at = find(wanted, among)
    one, two = reference[at >= 0], other.iloc[at[at >= 0]]
    task_of, names = pd.factorize(one["task"].to_numpy(dtype=object))
    counts = np.bincount(task_of, minlength=len(names)).astype(np.float64)
    sums = [_by_task(frame, task_of, len(names)) for frame in (one, two)]
    whole = np.stack([counts] * len(MEASURES), axis=1)
    ratio = relatives(Sums(sums[1], whole), Sums(sums[0], whole), rng=rng, options=options)
    difference = ratios(Sums(sums[1] - sums[0], whole), rng=rng, options=options)
    n = len(one)
    return tuple(
        LengthChange(
            measure=measure,
            episodes=n,
            reference=float(sums[0][:, k].sum()) / n if n else None,
            other=float(sums[1][:, k].sum()) / n if n else None,
            ratio=ratio[k],
            difference=difference[k],
        )
        for k, measure in enumerate(MEASURES)
    )


def _by_task(frame: pd.DataFrame, task_of: IntArray, n: int) -> FloatArray:
    values = [frame[measure].to_numpy(dtype=np.float64) for measure in MEASURES]
    return np.stack([np.bincount(task_of, weights=one, minlength=n) for one in values], axis=1)


def _quantiles(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, PROBABILITIES)) if values.size else ()
