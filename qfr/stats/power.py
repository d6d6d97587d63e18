"""What a number of tasks can detect, and how many a wanted difference needs.

Paired differences of rates, tested by a two-sided paired t test: its power is a noncentral t probability,
exact for normal differences and close for means of lattice values from about twenty tasks on. The exact
tests of `exact` are a little less powerful when most tasks tie; their results carry the smallest p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import nctdtr, stdtrit

from qfr.stats.lattice import Lattice
from qfr.stats.reliability import doubt

#: Standard deviation of paired differences when none was observed: the middle of what the reconstructed
#: published tables show for the full pipeline (0.24 to 0.53).
ASSUMED_SPREAD = 0.4
#: Search limit for the number of tasks.
MOST_TASKS = 10_000_000


@dataclass(frozen=True, slots=True)
class Detectable:
    """Smallest true mean difference that n tasks detect with the wanted power.

    Attributes
    ----------
    difference : float or None
        A fraction; None when it cannot be computed.
    n : int
        Tasks.
    spread : float
        Standard deviation of the paired differences.
    alpha, power : float
    attainable : bool
        False when the difference would exceed 1: no true difference is detected with that power.
    reason : str or None
    """

    difference: float | None
    n: int
    spread: float
    alpha: float
    power: float
    attainable: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class TasksNeeded:
    """Number of tasks that detects a true mean difference with the wanted power.

    Attributes
    ----------
    n : int or None
        Tasks; None when it cannot be computed or exceeds `MOST_TASKS`.
    difference, spread, alpha, power : float
    reason : str or None
    """

    n: int | None
    difference: float
    spread: float
    alpha: float
    power: float
    reason: str | None


def spread(differences: Lattice) -> float | None:
    """Return the standard deviation (n - 1) of paired differences; None below two tasks."""
    return float(differences.values.std(ddof=1)) if len(differences) > 1 else None


def power_of(n: int, difference: float, spread: float, alpha: float = 0.05) -> float:
    """Return the probability that a two-sided paired t test of n tasks rejects at level alpha.

    Raises
    ------
    ValueError
        If ``n < 2``, the spread is not positive, or alpha is out of range.
    """
    _check(alpha, 0.5)
    if n < 2 or not spread > 0:
        raise ValueError(f"power needs two tasks and a positive spread, not n = {n}, spread = {spread}")
    shift = abs(difference) / spread * math.sqrt(n)
    limit = float(stdtrit(n - 1, 1 - alpha / 2))
    found = 1 - float(nctdtr(n - 1, shift, limit)) + float(nctdtr(n - 1, shift, -limit))
    if not math.isnan(found):
        return found
    # At large shifts scipy.special gives nan; scipy.stats does not, and takes most of a second to load.
    from scipy.stats import nct

    # The second term is the rejection on the wrong side, as an upper tail because the lower one turns nan.
    return float(nct.sf(limit, n - 1, shift)) + float(nct.sf(limit, n - 1, -shift))


def detectable(n: int, spread: float = ASSUMED_SPREAD, alpha: float = 0.05, power: float = 0.8) -> Detectable:
    """Return the smallest true mean difference that n tasks detect.

    Parameters
    ----------
    n : int
        Tasks in the paired comparison.
    spread : float
        Standard deviation of the paired differences, a fraction (see `spread`, `ASSUMED_SPREAD`).
    alpha, power : float

    Raises
    ------
    ValueError
        If alpha or power is not between 0 and 1, or the spread is negative.
    """
    _check(alpha, power)
    if not spread >= 0:
        raise ValueError(f"spread {spread} is negative")
    if n < 2:
        return Detectable(
            None, n, spread, alpha, power, False, "fewer than two tasks: no spread to test against"
        )
    if spread == 0:
        reason = "zero spread: all observed differences are equal, so nothing says what could be detected"
        return Detectable(None, n, spread, alpha, power, False, reason)
    if power <= alpha:
        return Detectable(0.0, n, spread, alpha, power, True, "the wanted power does not exceed alpha")
    # The answer lies near the shift that only the limit would need; scipy.optimize takes longer to load than
    # halving takes.
    low, high = 0.0, spread * (1 + float(stdtrit(n - 1, 1 - alpha / 2))) / math.sqrt(n)
    while power_of(n, high, spread, alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(n, middle, spread, alpha) < power else (low, middle)
    difference = high
    attainable = difference <= 1
    remark = None if attainable else "larger than 100 points: not attainable with these tasks"
    return Detectable(difference, n, spread, alpha, power, attainable, remark)


def detectable_difference(differences: Lattice, alpha: float = 0.05, power: float = 0.8) -> Detectable:
    """Return the smallest true difference that a comparison of these tasks detects: the one for words.

    The spread is the observed one, but at least `ASSUMED_SPREAD`: tasks that happen to agree do not promise
    that a small difference would have been found. So a plan of n tasks and a result of n tasks name the same
    number, or the result a larger one.

    Parameters
    ----------
    differences : Lattice
        One paired difference per task.
    alpha, power : float

    Returns
    -------
    Detectable
        The difference is None, with the reason, where the interval of these tasks is flagged.
    """
    n, observed = len(differences), spread(differences)
    used = max(ASSUMED_SPREAD, observed or 0.0)
    flag = doubt([differences.numerators]) if n else "no task"
    if flag is not None:
        return Detectable(None, n, used, alpha, power, False, flag)
    return detectable(n, used, alpha, power)


def tasks_needed(
    difference: float, spread: float = ASSUMED_SPREAD, alpha: float = 0.05, power: float = 0.8
) -> TasksNeeded:
    """Return the smallest number of tasks that detects a true mean difference.

    Raises
    ------
    ValueError
        If alpha or power is not between 0 and 1, or the spread is negative.
    """
    _check(alpha, power)
    if not spread >= 0:
        raise ValueError(f"spread {spread} is negative")
    wanted = abs(difference)
    if wanted == 0 or spread == 0:
        reason = "no difference to detect" if wanted == 0 else "zero spread: nothing says how tasks vary"
        return TasksNeeded(None, difference, spread, alpha, power, reason)
    high = 2
    while power_of(high, wanted, spread, alpha) < power:
        high *= 2
        if high > MOST_TASKS:
            return TasksNeeded(None, difference, spread, alpha, power, f"more than {MOST_TASKS} tasks")
    low = max(2, high // 2)
    while low < high:
        middle = (low + high) // 2
        if power_of(middle, wanted, spread, alpha) >= power:
            high = middle
        else:
            low = middle + 1
    return TasksNeeded(low, difference, spread, alpha, power, None)


def _check(alpha: float, power: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    if not 0 < power < 1:
        raise ValueError(f"power {power} is not between 0 and 1")
