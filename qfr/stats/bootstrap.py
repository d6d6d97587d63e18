"""Percentile task bootstrap of means, paired and two-sample differences, and ratios.

The task is the unit that is resampled, never the fault site (Hu 2026, section 3: 95 % percentile intervals,
20,000 resamples, paired for matched and full-pipeline targets, two-sample for separately screened ones).
The default is the exact bootstrap distribution, the limit of infinitely many resamples;
``Method.MONTECARLO`` follows the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.errors import TableError
from qfr.stats import lattice
from qfr.stats.intervals import Estimate, Method, Options
from qfr.stats.lattice import FloatArray, IntArray, Lattice
from qfr.stats.reliability import doubt, doubt_two_sample, expanded_tail
from qfr.stats.resampling import ends, resampled_sums, weight_batches
from qfr.stats.sums import difference_quantiles, sum_distribution

DEFAULT = Options()
TOO_FINE = "the lattice is too fine for the exact distribution"


def mean(
    sample: Lattice,
    *,
    strata: IntArray | None = None,
    options: Options = DEFAULT,
    rng: Generator | None = None,
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
        Needed for Monte Carlo only. The exact method falls back to it, and says so, where the lattice is too
        fine.

    Returns
    -------
    Estimate
        ``n == 0``: all None. ``n == 1``: the point alone. No variation: ``[v, v]``, degenerate.

    Raises
    ------
    ValueError
        If Monte Carlo is asked for without a generator.
    """
    n = len(sample)
    if n == 0:
        return _without(None, 0, None, options, "no task")
    value = int(sample.numerators.sum()) / (sample.denominator * n)
    if n == 1:
        return _without(value, 1, None, options, "one task: no interval")
    groups = _split(sample.numerators, strata)
    scale = sample.denominator * n
    tail = expanded_tail([groups], options.tail) if options.expanded else options.tail
    trust = doubt(groups, options.expanded)
    if options.method is Method.EXACT:
        distribution = sum_distribution(groups)
        if distribution is not None:
            low, high = distribution.quantile(tail), distribution.quantile(1 - tail)
            return _finished(value, (low / scale, high / scale), (n, None), _Way(options), trust)
        if rng is None:
            return _without(value, n, None, options, f"{TOO_FINE}, and no generator was given")
    drawn = ends(resampled_sums(groups, options.resamples, _needed(rng)), tail)
    return _finished(value, (drawn[0] / scale, drawn[1] / scale), (n, None), _Way.drawn(options), trust)


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
    if 0 in sizes:
        which = "both samples" if sizes == (0, 0) else f"the {'second' if sizes[0] else 'first'} sample"
        return _without(None, *sizes, options, f"no task in {which}")
    whole = math.lcm(*sizes)
    scales = (whole // sizes[0], whole // sizes[1])
    scale = whole * one.denominator
    value = (scales[0] * int(one.numerators.sum()) - scales[1] * int(other.numerators.sum())) / scale
    if 1 in sizes:
        return _without(value, *sizes, options, "a sample of one task: no interval")
    groups = (
        _split(one.numerators, strata[0] if strata else None),
        _split(other.numerators, strata[1] if strata else None),
    )
    tail = expanded_tail(groups, options.tail) if options.expanded else options.tail
    trust = doubt_two_sample(*groups, options.expanded)
    if options.method is Method.EXACT:
        exact = difference_quantiles(*groups, scales, (tail, 1 - tail))
        if exact is not None:
            return _finished(value, (exact[0] / scale, exact[1] / scale), sizes, _Way(options), trust)
        if rng is None:
            return _without(value, *sizes, options, f"{TOO_FINE}, and no generator was given")
    generator = _needed(rng)
    sums = [resampled_sums(group, options.resamples, generator) for group in groups]
    # In floats, whose 53 bits suffice here, because scaled integers of a very fine lattice could overflow.
    drawn = ends(scales[0] * sums[0].astype(np.float64) - scales[1] * sums[1].astype(np.float64), tail)
    return _finished(value, (drawn[0] / scale, drawn[1] / scale), sizes, _Way.drawn(options), trust)


def ratio(
    numerators: FloatArray, denominators: FloatArray, *, rng: Generator, options: Options = DEFAULT
) -> Estimate:
    """Bootstrap ``sum(numerators) / sum(denominators)`` over tasks, such as failed calls over calls.

    Always Monte Carlo: the ratio of two resampled sums does not live on a lattice. With denominators of 1
    it is the mean of real values per task, such as turns or tokens.

    Parameters
    ----------
    numerators, denominators : arrays, shape (n_tasks,)
        One pair per task; denominators are not negative.
    rng : numpy.random.Generator
    options : Options
        Level and resamples; method and expansion are ignored.

    Returns
    -------
    Estimate
        Resamples whose denominator is zero are left out; the reason says how many.

    Raises
    ------
    TableError
        If the shapes differ, or a value is negative in the denominator or not finite.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    if top.shape != bottom.shape or top.ndim != 1:
        raise TableError(f"numerators of shape {top.shape} against denominators of shape {bottom.shape}")
    if not (np.isfinite(top).all() and np.isfinite(bottom).all() and (bottom >= 0).all()):
        raise TableError("a value is not finite, or a denominator is negative")
    n = int(top.size)
    whole = float(bottom.sum())
    if whole == 0:
        return _without(None, n, None, options, "the denominator is 0 in every task" if n else "no task")
    value = float(top.sum()) / whole
    if n == 1:
        return _without(value, 1, None, options, "one task: no interval")
    pairs = np.stack([top, bottom], axis=1)
    drawn = np.concatenate([weights @ pairs for weights in weight_batches(n, options.resamples, rng)])
    drawn = drawn[drawn[:, 1] > 0]
    lost = options.resamples - drawn.shape[0]
    if not drawn.size:
        return _without(value, n, None, options, "no resample with a denominator above 0")
    interval = ends(drawn[:, 0] / drawn[:, 1], options.tail)
    # Tasks are tied when they pull the ratio alike: compare what each adds to it.
    pull = np.round((top - value * bottom) / whole, 12)
    remark = f"{lost} resamples with an empty denominator left out" if lost else None
    return _finished(value, interval, (n, None), _Way(options, Method.MONTECARLO, remark), doubt([pull]))


@dataclass(frozen=True, slots=True)
class _Way:
    """How an interval came about: the options, the method that was used, and a remark on it."""

    options: Options
    method: Method = Method.EXACT
    remark: str | None = None

    @classmethod
    def drawn(cls, options: Options) -> _Way:
        fell_back = options.method is Method.EXACT
        return cls(options, Method.MONTECARLO, f"Monte Carlo: {TOO_FINE}" if fell_back else None)


def _finished(
    value: float, interval: tuple[float, float], sizes: tuple[int, int | None], way: _Way, trust: str | None
) -> Estimate:
    flat = interval[0] == interval[1]
    if flat:
        # Constant values, or so few others that the level does not reach them.
        trust = "degenerate: the resampled value does not vary, so the interval shows no uncertainty"
    return Estimate(
        value=value,
        low=interval[0],
        high=interval[1],
        level=way.options.level,
        n=sizes[0],
        n_second=sizes[1],
        method=way.method,
        resamples=None if way.method is Method.EXACT else way.options.resamples,
        degenerate=flat,
        reliable=trust is None,
        reason="; ".join(text for text in (trust, way.remark) if text) or None,
    )


def _without(value: float | None, n: int, n_second: int | None, options: Options, reason: str) -> Estimate:
    return Estimate(value, None, None, options.level, n, n_second, options.method, None, False, False, reason)


def _split(numerators: IntArray, strata: IntArray | None) -> list[IntArray]:
    if strata is None:
        return [numerators]
    labels = np.asarray(strata)
    if labels.shape != numerators.shape:
        raise TableError(f"{labels.size} strata for {numerators.size} tasks", hint="one stratum per task")
    return [numerators[labels == label] for label in np.unique(labels)]


def _needed(rng: Generator | None) -> Generator:
    if rng is None:
        raise ValueError("the Monte Carlo bootstrap needs a numpy.random.Generator")
    return rng
