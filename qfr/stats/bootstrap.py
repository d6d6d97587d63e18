"""Percentile task bootstrap of means, paired and two-sample differences, and ratios.

The task is the unit that is resampled, never the fault site (Hu 2026, section 3: 95 % percentile intervals, 20,000
resamples, paired for matched and full-pipeline targets, two-sample for separately screened ones). The default
is the exact bootstrap distribution, the limit of infinitely many resamples; ``Method.MONTECARLO`` follows the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.errors import TableError
from qfr.stats import lattice
from qfr.stats.intervals import Estimate, Method, check_level, order_statistic
from qfr.stats.lattice import FloatArray, IntArray, Lattice
from qfr.stats.reliability import doubt, doubt_two_sample
from qfr.stats.sums import difference_quantile, sum_distribution

TOO_FINE = "the lattice is too fine for the exact distribution"
_BATCH = 2_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """How to bootstrap.

    Attributes
    ----------
    level : float
        Two-sided nominal level.
    method : Method
        Exact distribution, or Monte Carlo resamples.
    resamples : int
        Number of Monte Carlo resamples (Hu 2026: 20,000).
    """

    level: float = 0.95
    method: Method = Method.EXACT
    resamples: int = 20_000

    def __post_init__(self) -> None:
        check_level(self.level)
        if self.resamples < 1:
            raise ValueError(f"{self.resamples} resamples")

    @property
    def tails(self) -> tuple[float, float]:
        """Lower and upper quantile, such as 0.025 and 0.975."""
        return (1 - self.level) / 2, (1 + self.level) / 2


DEFAULT = Options()


def mean(
    sample: Lattice, *, strata: IntArray | None = None, options: Options = DEFAULT, rng: Generator | None = None
) -> Estimate:
    """Bootstrap the mean of one value per task.

    Parameters
    ----------
    sample : Lattice
        One value per task.
    strata : int array, shape (n_tasks,), optional
        Stratum of each task (its family); tasks are then resampled within strata.
    options : Options
        Level, method, resamples.
    rng : numpy.random.Generator, optional
        Needed for Monte Carlo only.

    Returns
    -------
    Estimate
        ``n == 0``: all None. ``n == 1``: the point alone. A constant sample: ``[v, v]``, degenerate.

    Raises
    ------
    ValueError
        If Monte Carlo is asked for without a generator.
    """
    n = len(sample)
    if n == 0:
        return _without(None, 0, None, options, "no task")
    value = sample.mean
    if n == 1:
        return _without(value, 1, None, options, "one task: no interval")
    groups = _split(sample.numerators, strata)
    scale = sample.denominator * n
    if options.method is Method.EXACT:
        distribution = sum_distribution(groups)
        if distribution is not None:
            low, high = (distribution.quantile(tail) / scale for tail in options.tails)
            return _finished(value, (low, high), (n, None), _Way(options), doubt(groups))
    if options.method is Method.EXACT and rng is None:
        return _without(value, n, None, options, TOO_FINE + ", and no generator was given")
    ends = _ends(_resampled_sums(groups, options.resamples, _needed(rng)), options)
    return _finished(value, (ends[0] / scale, ends[1] / scale), (n, None), _Way.montecarlo(options), doubt(groups))


def paired(
    first: Lattice,
    second: Lattice,
    *,
    strata: IntArray | None = None,
    options: Options = DEFAULT,
    rng: Generator | None = None,
) -> Estimate:
    """Bootstrap the mean of ``first - second`` over the same tasks (matched and full-pipeline targets).

    Parameters and result as `mean`; both samples list the same tasks in the same order.

    Raises
    ------
    TableError
        If the samples differ in length.
    """
    return mean(lattice.difference(first, second), strata=strata, options=options, rng=rng)


def two_sample(
    first: Lattice,
    second: Lattice,
    *,
    strata: tuple[IntArray, IntArray] | None = None,
    options: Options = DEFAULT,
    rng: Generator | None = None,
) -> Estimate:
    """Bootstrap ``mean(first) - mean(second)`` of independent samples (each preset on its own tasks).

    Parameters
    ----------
    first, second : Lattice
        One rate per task; the tasks need not be the same.
    strata : pair of int arrays, optional
        Stratum of each task of each sample.
    options, rng
        As for `mean`.

    Returns
    -------
    Estimate
        An empty sample: all None. A sample of one task: the point alone.
    """
    one, other = lattice.common(first, second)
    sizes = (len(one), len(other))
    if one.mean is None or other.mean is None:
        which = "both samples" if sizes == (0, 0) else "the first sample" if sizes[0] == 0 else "the second sample"
        return _without(None, *sizes, options, f"no task in {which}")
    whole = math.lcm(*sizes)
    scales = (whole // sizes[0], whole // sizes[1])
    scale = whole * one.denominator
    value = (scales[0] * int(one.numerators.sum()) - scales[1] * int(other.numerators.sum())) / scale
    if min(sizes) == 1:
        return _without(value, *sizes, options, "a sample of one task: no interval")
    groups = (
        _split(one.numerators, strata[0] if strata else None),
        _split(other.numerators, strata[1] if strata else None),
    )
    trust = doubt_two_sample(*groups)
    if options.method is Method.EXACT:
        exact = _exact_difference(groups, scales, options)
        if exact is not None:
            return _finished(value, (exact[0] / scale, exact[1] / scale), sizes, _Way(options), trust)
        if rng is None:
            return _without(value, *sizes, options, TOO_FINE + ", and no generator was given")
    generator = _needed(rng)
    sums = [_resampled_sums(group, options.resamples, generator) for group in groups]
    ends = _ends(scales[0] * sums[0] - scales[1] * sums[1], options)
    return _finished(value, (ends[0] / scale, ends[1] / scale), sizes, _Way.montecarlo(options), trust)


def _exact_difference(
    groups: tuple[list[IntArray], list[IntArray]], scales: tuple[int, int], options: Options
) -> tuple[int, int] | None:
    one, other = sum_distribution(groups[0]), sum_distribution(groups[1])
    if one is None or other is None:
        return None
    low, high = (difference_quantile(one, other, scales, tail) for tail in options.tails)
    return low, high


def ratio(
    numerators: FloatArray, denominators: FloatArray, *, rng: Generator, options: Options = DEFAULT
) -> Estimate:
    """Bootstrap ``sum(numerators) / sum(denominators)`` over tasks, such as failed calls over calls.

    Always Monte Carlo: the ratio of two resampled sums does not live on a lattice.

    Parameters
    ----------
    numerators, denominators : arrays, shape (n_tasks,)
        Non-negative, one pair per task.
    rng : numpy.random.Generator
    options : Options
        Level and resamples; the method is ignored.

    Returns
    -------
    Estimate
        Resamples whose denominator is zero are left out; the reason says how many.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    if top.shape != bottom.shape or top.ndim != 1:
        raise TableError(f"numerators of shape {top.shape} against denominators of shape {bottom.shape}")
    n = int(top.size)
    whole = float(bottom.sum())
    if whole == 0:
        return _without(None, n, None, options, "no task" if n == 0 else "the denominator is 0 in every task")
    value = float(top.sum()) / whole
    if n == 1:
        return _without(value, 1, None, options, "one task: no interval")
    drawn = _resampled_pairs(np.stack([top, bottom], axis=1), options.resamples, rng)
    defined = drawn[:, 1] > 0
    ratios = drawn[defined, 0] / drawn[defined, 1]
    lost = options.resamples - ratios.size
    low, high = (float(np.partition(ratios, at)[at]) for at in _positions(options, ratios.size))
    # Tasks are tied when they pull the ratio alike: compare what each adds to it.
    pull = np.round(top / whole - bottom * (value / whole), 12)
    way = _Way(options, Method.MONTECARLO, f"{lost} resamples with an empty denominator left out" if lost else None)
    return _finished(value, (low, high), (n, None), way, doubt([pull]))


@dataclass(frozen=True, slots=True)
class _Way:
    """How an interval came about: the options, the method that was used, and a remark on it."""

    options: Options
    method: Method = Method.EXACT
    remark: str | None = None

    @classmethod
    def montecarlo(cls, options: Options) -> _Way:
        fell_back = options.method is Method.EXACT
        return cls(options, Method.MONTECARLO, f"Monte Carlo: {TOO_FINE}" if fell_back else None)


def _without(value: float | None, n: int, n_second: int | None, options: Options, reason: str) -> Estimate:
    return Estimate(value, None, None, options.level, n, n_second, options.method, None, False, False, reason)


def _finished(
    value: float, ends: tuple[float, float], sizes: tuple[int, int | None], way: _Way, doubtful: str | None
) -> Estimate:
    flat = ends[0] == ends[1]
    if flat:
        doubtful = "degenerate: no variation between tasks" if way.method is Method.EXACT else "degenerate: no variation between resamples"
    reasons = [text for text in (doubtful, way.remark) if text]
    return Estimate(
        value=value,
        low=ends[0],
        high=ends[1],
        level=way.options.level,
        n=sizes[0],
        n_second=sizes[1],
        method=way.method,
        resamples=None if way.method is Method.EXACT else way.options.resamples,
        degenerate=flat,
        reliable=doubtful is None,
        reason="; ".join(reasons) or None,
    )


def _split(numerators: IntArray, strata: IntArray | None) -> list[IntArray]:
    if strata is None:
        return [numerators]
    labels = np.asarray(strata)
    if labels.shape != numerators.shape:
        raise TableError(f"{labels.size} strata for {numerators.size} tasks", hint="give each task its stratum")
    return [numerators[labels == label] for label in np.unique(labels)]


def _resampled_sums(groups: Sequence[IntArray], resamples: int, rng: Generator) -> IntArray:
    """Return sums of resamples drawn within each group, shape (resamples,)."""
    total = np.zeros(resamples, dtype=np.int64)
    for values in groups:
        distinct, counts = np.unique(values, return_counts=True)
        n = values.size
        if n > 15 * distinct.size:
            # How often each distinct value is drawn is multinomial: the same distribution without n draws.
            total += rng.multinomial(n, counts / n, size=resamples) @ distinct
            continue
        rows = max(1, _BATCH // n)
        for begin in range(0, resamples, rows):
            part = total[begin : begin + rows]
            part += values[rng.integers(0, n, size=(part.size, n))].sum(axis=1)
    return total


def _resampled_pairs(pairs: FloatArray, resamples: int, rng: Generator) -> FloatArray:
    n = pairs.shape[0]
    total = np.empty((resamples, 2))
    rows = max(1, _BATCH // n)
    for begin in range(0, resamples, rows):
        end = min(begin + rows, resamples)
        total[begin:end] = pairs[rng.integers(0, n, size=(end - begin, n))].sum(axis=1)
    return total


def _positions(options: Options, draws: int) -> tuple[int, int]:
    lower, upper = options.tails
    return order_statistic(lower, draws), order_statistic(upper, draws)


def _ends(sums: IntArray, options: Options) -> tuple[int, int]:
    low, high = _positions(options, sums.size)
    parted = np.partition(sums, (low, high))
    return int(parted[low]), int(parted[high])


def _needed(rng: Generator | None) -> Generator:
    if rng is None:
        raise ValueError("the Monte Carlo bootstrap needs a numpy.random.Generator")
    return rng
