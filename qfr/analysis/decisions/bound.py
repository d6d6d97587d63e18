"""A confidence bound of a mean difference that holds for few tasks, rare losses and no spread at all.

A task can lose or gain one whole point and no more. The bound adds one imagined task with the worst value to
the sample and draws random weights for all of them (uniform over the simplex); its value is the alpha
quantile of the weighted mean (Gaffke 2005; Learned-Miller and Thomas 2019, arXiv:1905.06208). Where each task
loses all or nothing it is the bound of Clopper and Pearson; with many varied tasks it is as tight as a t
bound. That it holds for every distribution is a conjecture without a known exception; docs/decisions.md shows
how it does on differences like ours, beside the bootstrap and t bounds, which fail where losses are rare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from qfr.stats.dirichlet import chance_at_most, quantile, with_imagined
from qfr.stats.lattice import Lattice
from qfr.stats.power import ASSUMED_SPREAD, MOST_TASKS, TasksNeeded, detectable, power_of

#: Level of each one-sided statement.
ALPHA = 0.05
#: Lowest and highest difference that a task can have.
WORST, BEST = -1.0, 1.0


@dataclass(frozen=True, slots=True)
class MarginShown:
    """Smallest margin within which n tasks show two presets that do not differ.

    Attributes
    ----------
    margin : float or None
        A fraction; None without tasks.
    floor : float or None
        The margin that n tasks show when none of them loses anything; no sample shows less.
    """

    margin: float | None
    floor: float | None


def lower_bound(sample: Lattice, alpha: float = ALPHA, worst: float = WORST) -> float | None:
    """Return a lower confidence bound of the mean, one-sided, of level ``1 - alpha``.

    Parameters
    ----------
    sample : Lattice
        One value per task, none below `worst`.
    alpha : float
        Between 0 and 0.5.
    worst : float
        Smallest value that a task can have: -1 for differences, 0 for rates.

    Returns
    -------
    float or None
        A fraction; None without tasks.

    Raises
    ------
    ValueError
        If alpha is out of range or a value lies below `worst`.
    """
    _check(alpha)
    if not len(sample):
        return None
    return quantile(*with_imagined(sample, {worst: 1.0}), alpha)


def upper_bound(sample: Lattice, alpha: float = ALPHA, best: float = BEST) -> float | None:
    """Return an upper confidence bound of the mean, one-sided; as `lower_bound`, mirrored."""
    found = lower_bound(Lattice(-sample.numerators, sample.denominator), alpha, -best)
    return None if found is None else -found


def chance_below(differences: Lattice, threshold: float) -> float:
    """Return the one-sided p value of "the mean difference is at most the threshold".

    It is at most alpha exactly where `lower_bound` is at least the threshold.

    Raises
    ------
    ValueError
        If there is no task.
    """
    if not len(differences):
        raise ValueError("no task")
    return chance_at_most(*with_imagined(differences, {WORST: 1.0}), threshold)


def fewest_tasks(margin: float, alpha: float = ALPHA) -> int:
    """Return how many tasks are needed when not one of them loses anything: 59 for five points at 5 %.

    Raises
    ------
    ValueError
        If alpha is out of range or the margin is not positive.
    """
    _check(alpha)
    _check_margin(margin)
    # Nothing is lost beyond a whole point, so that margin takes one task.
    return 1 if margin >= 1 else max(1, math.ceil(math.log(alpha) / math.log1p(-margin) - 1e-9))


def tasks_to_show(
    margin: float, spread: float = ASSUMED_SPREAD, difference: float = 0.0, *, alpha: float = ALPHA,
    power: float = 0.8,
) -> TasksNeeded:  # fmt: skip
    """Return how many tasks show "not worse by more than the margin" with the wanted power.

    Parameters
    ----------
    margin : float
        Positive, a fraction.
    spread : float
        Standard deviation of the paired differences (candidate minus baseline).
    difference : float
        True mean difference; negative = the candidate is worse.

    Returns
    -------
    TasksNeeded
        n is None where the difference is not within the margin, or more than `MOST_TASKS` are needed.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    _check(alpha)
    _check_margin(margin)
    if not spread >= 0 or not 0 < power < 1:
        raise ValueError(f"spread {spread} is negative, or power {power} is not between 0 and 1")
    room = margin + min(0.0, difference)
    if room <= 0:
        reason = "the difference itself is not within the margin: more tasks cannot show that it is"
        return TasksNeeded(None, difference, spread, alpha, power, reason)

    def enough(n: int) -> bool:
        # The imagined worst task takes 1 / (n + 1) off the mean and adds to the spread.
        left = room - 1 / (n + 1)
        return left > 0 and power_of(n, left, math.hypot(spread, 1 / math.sqrt(n)), 2 * alpha) >= power

    low = high = max(2, fewest_tasks(margin, alpha))
    while not enough(high):
        low, high = high + 1, 2 * high
        if high > MOST_TASKS:
            return TasksNeeded(None, difference, spread, alpha, power, f"more than {MOST_TASKS:,} tasks")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return TasksNeeded(low, difference, spread, alpha, power, None)


def margin_shown(
    n: int, spread: float = ASSUMED_SPREAD, alpha: float = ALPHA, power: float = 0.8
) -> MarginShown:
    """Return the smallest margin that n tasks show, where there is no true difference.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    _check(alpha)
    if n < 1:
        return MarginShown(None, None)
    floor = -math.expm1(math.log(alpha) / n)
    if n < 2:
        return MarginShown(1.0, floor)
    reach = detectable(n, math.hypot(spread, 1 / math.sqrt(n)), 2 * alpha, power).difference
    assert reach is not None
    return MarginShown(min(1.0, max(floor, reach + 1 / (n + 1))), floor)


def _check(alpha: float) -> None:
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha {alpha} is not between 0 and 0.5")


def _check_margin(margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"margin {margin} is not positive")
