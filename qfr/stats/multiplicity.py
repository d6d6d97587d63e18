"""Several contrasts at once: Holm, Benjamini-Hochberg, simultaneous intervals.

The family of contrasts is declared by the user; this module takes it as given. Contrasts without a p value
(not estimable) are no tests: they stay None and do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import ndtr, stdtrit

from qfr.errors import TableError
from qfr.stats.intervals import Estimate, Method, check_level, order_statistic
from qfr.stats.lattice import FloatArray
from qfr.stats.reliability import doubt
from qfr.stats.resampling import weight_batches


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Adjusted p values of one family.

    Attributes
    ----------
    values : tuple of float or None
        One per contrast, in the order given; None where there was no p value.
    family : int
        Number of tests that counted.
    method : str
        ``"holm"`` (family-wise error rate) or ``"benjamini-hochberg"`` (false discovery rate).
    """

    values: tuple[float | None, ...]
    family: int
    method: str


@dataclass(frozen=True, slots=True)
class Simultaneous:
    """Intervals that hold together with the nominal level.

    Attributes
    ----------
    intervals : tuple of Estimate
        One per contrast, in the order given.
    critical : float or None
        Quantile of the largest deviation, in bootstrap standard errors, common to all; None when no contrast
        varies. Each half-width corrects it for the contrast's number of tasks (`_reach`).
    family : int
        Number of contrasts that the critical value covers.
    """

    intervals: tuple[Estimate, ...]
    critical: float | None
    family: int


def holm(p_values: Sequence[float | None]) -> Adjusted:
    """Adjust by Holm's step-down method.

    Raises
    ------
    ValueError
        If a p value lies outside 0..1.
    """
    places, values = _defined(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, at in enumerate(np.argsort(values, kind="stable").tolist()):
        running = max(running, min(1.0, (len(values) - rank) * values[at]))
        adjusted[places[at]] = running
    return Adjusted(tuple(adjusted), len(values), "holm")


def benjamini_hochberg(p_values: Sequence[float | None]) -> Adjusted:
    """Adjust by the step-up method of Benjamini and Hochberg.

    Raises
    ------
    ValueError
        If a p value lies outside 0..1.
    """
    places, values = _defined(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    if values:
        # scipy.stats takes most of a second to load.
        from scipy.stats import false_discovery_control

        for at, value in zip(places, false_discovery_control(values).tolist(), strict=True):
            adjusted[at] = value
    return Adjusted(tuple(adjusted), len(values), "benjamini-hochberg")


def simultaneous(
    first: FloatArray,
    second: FloatArray,
    *,
    rng: Generator,
    level: float = 0.95,
    resamples: int = 20_000,
) -> Simultaneous:
    """Give intervals for several differences of means that share tasks (max-T bootstrap).

    One draw of task weights serves all contrasts. Each contrast's deviation is divided by its bootstrap
    standard error; the critical value is the quantile of the largest such deviation. Few tasks make both too
    small, so a half-width is ``t_{n-1}^{-1}(Phi(critical)) sqrt(n / (n - 1))`` standard errors.

    Parameters
    ----------
    first, second : float arrays, shape (n_contrasts, n_tasks)
        Rate of each task on either side of each contrast; nan where the task is not in that side's set. The
        same sets on both sides give matched or full-pipeline contrasts, different sets own-set contrasts.
    rng : numpy.random.Generator
    level : float
        Probability that all intervals cover at once.
    resamples : int

    Returns
    -------
    Simultaneous
        A contrast with an empty side has no value; one with a single task, or without variation, has no share
        in the critical value and says why.

    Raises
    ------
    TableError
        If the shapes differ.
    """
    check_level(level)
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.ndim != 2 or one.shape != other.shape:
        raise TableError(
            f"rates of shape {one.shape} against {other.shape}", hint="contrasts by tasks, both sides"
        )
    contrasts, tasks = one.shape
    sizes = np.stack([np.isfinite(side).sum(axis=1) for side in (one, other)])
    values: FloatArray = np.full(contrasts, np.nan)
    usable = sizes.min(axis=0) > 0
    if usable.any():
        values[usable] = _differences(np.ones((1, tasks)), one[usable], other[usable])[0]
    errors = np.zeros(contrasts)
    critical = None
    varied = sizes.min(axis=0) > 1
    if varied.any():
        batches = weight_batches(tasks, resamples, rng)
        drawn = np.concatenate([_differences(weights, one[varied], other[varied]) for weights in batches])
        errors[varied] = np.nan_to_num(np.nanstd(drawn, axis=0))
        errors[errors < 1e-12] = 0.0
        critical = _critical(np.abs(drawn - values[varied]), errors[varied], level)
    results = []
    for at in range(contrasts):
        pair = (one[at], other[at])
        results.append(_interval(pair, float(values[at]), float(errors[at]), (critical, level, resamples)))
    return Simultaneous(tuple(results), critical, int((errors > 0).sum()))


def _differences(weights: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return weighted mean differences, shape (rows, contrasts); nan where a side drew none of its tasks."""
    means = []
    for side in (first, second):
        inside = np.isfinite(side)
        mass = weights @ inside.T.astype(np.float64)
        total = weights @ np.where(inside, side, 0.0).T
        means.append(np.divide(total, mass, out=np.full_like(total, np.nan), where=mass > 0))
    result: FloatArray = means[0] - means[1]
    return result


def _critical(deviations: FloatArray, errors: FloatArray, level: float) -> float | None:
    moving = errors > 0
    if not moving.any():
        return None
    # A contrast that drew none of its tasks has no deviation in that resample; the others still count.
    scaled = np.nan_to_num(deviations[:, moving] / errors[moving], nan=0.0)
    largest = np.sort(scaled.max(axis=1))
    return float(largest[order_statistic(level, largest.size)])


def _reach(critical: float, n: int) -> float:
    """Return the half-width in bootstrap standard errors that n tasks need: t in the place of the normal.

    The bootstrap standard error divides by n where n - 1 is unbiased (as in `reliability.expanded_tail`).
    """
    # By the smaller tail: close to 1 a probability has no digits left.
    return float(-stdtrit(n - 1, ndtr(-critical))) * math.sqrt(n / (n - 1))


def _interval(
    pair: tuple[FloatArray, FloatArray], value: float, error: float, way: tuple[float | None, float, int]
) -> Estimate:
    critical, level, resamples = way
    sets = [np.isfinite(side) for side in pair]
    n, n_second = (int(inside.sum()) for inside in sets)
    second = None if bool((sets[0] == sets[1]).all()) else n_second
    common = (level, n, second, Method.MONTECARLO, resamples)
    if math.isnan(value):
        return Estimate(
            None, None, None, *common, degenerate=False, reliable=False, reason="no task on one side"
        )
    if min(n, n_second) == 1:
        why = "one task on one side: no interval"
        return Estimate(value, None, None, *common, degenerate=False, reliable=False, reason=why)
    if error == 0 or critical is None:
        why = "degenerate: the resampled value does not vary"
        return Estimate(value, value, value, *common, degenerate=True, reliable=False, reason=why)
    if second is None:
        reason = doubt([np.round((pair[0] - pair[1])[sets[0]], 9)])
    else:
        doubts = [doubt([np.round(side[inside], 9)]) for side, inside in zip(pair, sets, strict=True)]
        reason = next((text for text in doubts if text), None)
    half = _reach(critical, min(n, n_second)) * error
    low, high = value - half, value + half
    return Estimate(value, low, high, *common, degenerate=False, reliable=reason is None, reason=reason)


def _defined(p_values: Sequence[float | None]) -> tuple[list[int], list[float]]:
    places, values = [], []
    for at, p in enumerate(p_values):
        if p is None:
            continue
        if not 0 <= p <= 1:
            raise ValueError(f"p value {p} is not between 0 and 1")
        places.append(at)
        values.append(p)
    return places, values
