"""Bayesian bootstrap with half an imagined task at each end: the interval that words rest on.

The percentile bootstrap draws only what was seen: tasks that all tie give [0, 0], and a rare loss that the
sample missed does not exist. Here the weights of the tasks are random (Rubin 1981), and half an imagined task
stands at the lowest and half at the highest value that a task can have, the prior of Jeffreys in a sample
of zeros and ones. The interval is never a single point. docs/statistics.md shows how often it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.random import Generator

from qfr.errors import TableError
from qfr.stats.dirichlet import quantile, with_imagined
from qfr.stats.intervals import check_level
from qfr.stats.lattice import BoolArray, FloatArray, Lattice
from qfr.stats.resampling import BATCH, ends

#: What each of the two imagined tasks counts.
IMAGINED = 0.5


class Way(StrEnum):
    """How an interval came about."""

    ONE_SAMPLE = "bayesian"
    # One value per task: rates, or differences of the same tasks. Deterministic.
    JOINT = "bayesian_joint"
    # Two sets that share tasks, one weight per task. Seeded draws.


@dataclass(frozen=True, slots=True)
class BayesianInterval:
    """A value with its interval.

    Attributes
    ----------
    value : float or None
        What was observed, a fraction; None without tasks. The interval always holds it.
    low, high : float or None
        Ends; None without tasks. Never equal.
    level : float
    n : int
        Tasks (of the first set, when there are two).
    n_second : int or None
        Tasks of the second set.
    method : Way
    reason : str or None
        Why there is no interval.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    n_second: int | None
    method: Way
    reason: str | None


def interval(
    sample: Lattice, lowest: float = -1.0, highest: float = 1.0, level: float = 0.95
) -> BayesianInterval:
    """Return the interval of a mean of one value per task.

    Parameters
    ----------
    sample : Lattice
        One value per task: differences of the same tasks, or rates.
    lowest, highest : float
        Smallest and largest value that a task can have: -1 and 1 for differences, 0 and 1 for rates.
    level : float

    Raises
    ------
    ValueError
        If the level is not between 0 and 1, the limits are not in order, or a value lies beyond them.
    """
    check_level(level)
    if not lowest < highest:
        raise ValueError(f"the limits {lowest} and {highest} are not in order")
    n = len(sample)
    if n == 0:
        return BayesianInterval(None, None, None, level, 0, None, Way.ONE_SAMPLE, "no task")
    values, counts = with_imagined(sample, {lowest: IMAGINED, highest: IMAGINED})
    tail = (1 - level) / 2
    found = (quantile(values, counts, tail), quantile(values, counts, 1 - tail))
    return _holding(sample.mean, found, level, (n, None), Way.ONE_SAMPLE)


def joint(
    rates: tuple[FloatArray, FloatArray],
    members: tuple[BoolArray, BoolArray],
    *,
    rng: Generator,
    level: float = 0.95,
    draws: int = 20_000,
) -> BayesianInterval:
    """Return the interval of a difference of means over two sets of the same suite (*own*).

    One weight is drawn for each task of the suite, and both means are computed again with it, so what the
    sets share moves both; sets without common tasks move independently but for the imagined tasks. Weights
    are positive: no draw leaves a side without a task. The imagined tasks belong to both sets, one with rates
    0 and 1, one with 1 and 0. Where both sets are the same this is `interval` of the differences.

    Parameters
    ----------
    rates : pair of float arrays, shape (n_tasks,)
        Rate of each task of the suite on either side, 0..1; ignored where the task is not in that side's set.
    members : pair of bool arrays, shape (n_tasks,)
        The tasks of each side's set.
    rng : numpy.random.Generator
    level : float
    draws : int

    Raises
    ------
    TableError
        If shapes differ, or a rate of a member is not between 0 and 1.
    """
    check_level(level)
    sides, masses = _checked(rates, members)
    sizes = (int(masses[0].sum()), int(masses[1].sum()))
    if 0 in sizes:
        which = "both sets" if sizes == (0, 0) else f"the {'second' if sizes[0] else 'first'} set"
        return BayesianInterval(None, None, None, level, *sizes, Way.JOINT, f"no task in {which}")
    drawn = np.concatenate(
        [_joint_draw(sides, masses, rows, rng) for rows in _batches(masses[0].size, draws)]
    )
    value = float(sides[0].sum()) / sizes[0] - float(sides[1].sum()) / sizes[1]
    return _holding(value, ends(drawn, (1 - level) / 2), level, sizes, Way.JOINT)


def _batches(tasks: int, draws: int) -> list[int]:
    rows = max(1, BATCH // max(1, tasks))
    return [min(rows, draws - begin) for begin in range(0, draws, rows)]


def _joint_draw(
    sides: tuple[FloatArray, FloatArray], masses: tuple[FloatArray, FloatArray], rows: int, rng: Generator
) -> FloatArray:
    """Return differences of weighted means, one per row of weights."""
    weights = rng.standard_exponential((rows, masses[0].size))
    imagined = rng.standard_gamma(IMAGINED, (rows, 2))
    both = imagined.sum(axis=1)
    first = (weights @ sides[0] + imagined[:, 0]) / (weights @ masses[0] + both)
    second = (weights @ sides[1] + imagined[:, 1]) / (weights @ masses[1] + both)
    difference: FloatArray = first - second
    return difference


def _checked(
    rates: tuple[FloatArray, FloatArray], members: tuple[BoolArray, BoolArray]
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return rates with 0 outside each set, and the sets as numbers."""
    shape = np.shape(rates[0])
    if len(shape) != 1 or any(np.shape(one) != shape for one in (*rates, *members)):
        raise TableError(
            "rates and sets of different tasks", hint="give each task of the suite once on each side"
        )
    sides = []
    for side, inside in zip(rates, members, strict=True):
        kept = np.where(inside, side, 0.0)
        if not bool(((kept >= 0) & (kept <= 1)).all()):
            raise TableError("a rate is not between 0 and 1")
        sides.append(kept)
    first, second = (np.asarray(inside, dtype=np.float64) for inside in members)
    return (sides[0], sides[1]), (first, second)


def _holding(
    value: float | None,
    found: tuple[float, float],
    level: float,
    sizes: tuple[int, int | None],
    way: Way,
) -> BayesianInterval:
    """Widen to what was observed: tasks that all stand at one limit pull both ends off it by a hair."""
    assert value is not None
    low, high = min(found[0], value), max(found[1], value)
    return BayesianInterval(value, low, high, level, *sizes, way, None)
