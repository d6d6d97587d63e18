"""Equivalence and non-inferiority within a margin, guarded against samples that do not vary.

Two one-sided tests (TOST), by t and by the ``1 - 2 alpha`` bootstrap interval (Jang 2026 uses a margin of 7.5
points). A paired t statistic divides by the standard error: with zero variance it would report p = 0,
which is no evidence, so the answer there is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import betaincinv, stdtr, stdtrit

from qfr.stats.bootstrap import mean
from qfr.stats.exact import SMALLEST_P
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice
from qfr.stats.reliability import doubt

#: Margin of equivalence (Jang 2026): 7.5 points.
DEFAULT_MARGIN = 0.075


class Verdict(StrEnum):
    """What an interval says about being worse by more than a margin."""

    NOT_WORSE = "not worse"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    NOT_ESTIMABLE = "not estimable"


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Result of two one-sided tests.

    Attributes
    ----------
    value : float or None
        Mean difference, a fraction.
    low, high : float or None
        The ``1 - 2 alpha`` interval that decides.
    margin : float
        Equivalence means the difference lies strictly within ``-margin..margin``.
    alpha : float
        Level of each one-sided test.
    p : float or None
        Larger of the two one-sided p values (t method only).
    equivalent : bool or None
        Whether equivalence is shown; None when it cannot be tested.
    n : int
        Tasks (of the smaller sample).
    method : str
        ``"t"`` or ``"bootstrap"``.
    degenerate, reliable : bool
        As for `Estimate`.
    reason : str or None
    """

    value: float | None
    low: float | None
    high: float | None
    margin: float
    alpha: float
    p: float | None
    equivalent: bool | None
    n: int
    method: str
    degenerate: bool
    reliable: bool
    reason: str | None


def tost_t(differences: Lattice, margin: float = DEFAULT_MARGIN, alpha: float = 0.05) -> Equivalence:
    """Two one-sided paired t tests.

    Parameters
    ----------
    differences : Lattice
        One paired difference per task.
    margin : float
        Positive, a fraction.
    alpha : float
        Level of each test, below 0.5.

    Raises
    ------
    ValueError
        If the margin or alpha is out of range.
    """
    _check(margin, alpha)
    n = len(differences)
    value = differences.mean
    if value is None or n == 1:
        reason = "no task" if n == 0 else "one task: no spread to test against"
        return Equivalence(value, None, None, margin, alpha, None, None, n, "t", False, False, reason)
    if len(set(differences.numerators.tolist())) == 1:
        reason = "degenerate: zero variance, the t statistic is undefined"
        return Equivalence(value, value, value, margin, alpha, None, None, n, "t", True, False, reason)
    error = float(differences.values.std(ddof=1)) / math.sqrt(n)
    above = float(stdtr(n - 1, -(value + margin) / error))
    below = float(stdtr(n - 1, (value - margin) / error))
    p = max(above, below, SMALLEST_P)
    reach = float(stdtrit(n - 1, 1 - alpha)) * error
    # The t interval corrects for a small n itself, like the expanded bootstrap interval.
    trust = doubt([differences.numerators], expanded=True)
    interval = (value - reach, value + reach)
    return Equivalence(value, *interval, margin, alpha, p, p < alpha, n, "t", False, trust is None, trust)


def tost_bootstrap(
    differences: Lattice, margin: float = DEFAULT_MARGIN, alpha: float = 0.05, *, expanded: bool = False
) -> Equivalence:
    """Two one-sided tests by the exact bootstrap interval of level ``1 - 2 alpha`` of paired differences.

    Raises
    ------
    ValueError
        If the margin or alpha is out of range.
    """
    _check(margin, alpha)
    return tost_interval(mean(differences, options=Options(level=1 - 2 * alpha, expanded=expanded)), margin)


def tost_interval(estimate: Estimate, margin: float = DEFAULT_MARGIN) -> Equivalence:
    """Two one-sided tests by any interval, two-sample ones included; alpha is half of what its level leaves.

    Raises
    ------
    ValueError
        If the margin is not positive.
    """
    alpha = round((1 - estimate.level) / 2, 12)
    _check(margin, alpha)
    low, high = estimate.low, estimate.high
    equivalent: bool | None = None
    if low is not None and high is not None and not estimate.degenerate:
        equivalent = -margin < low and high < margin
    n = estimate.n if estimate.n_second is None else min(estimate.n, estimate.n_second)
    return Equivalence(
        value=estimate.value,
        low=low,
        high=high,
        margin=margin,
        alpha=alpha,
        p=None,
        equivalent=equivalent,
        n=n,
        method="bootstrap",
        degenerate=estimate.degenerate,
        reliable=estimate.reliable,
        reason=estimate.reason,
    )


def not_worse(estimate: Estimate, margin: float) -> Verdict:
    """Say whether a difference (candidate minus baseline) is shown to be no worse than ``-margin``.

    A degenerate interval shows nothing; see `lowest_mean` for a bound that holds there too.

    Raises
    ------
    ValueError
        If the margin is not positive.
    """
    _check(margin, 0.05)
    if estimate.low is None or estimate.high is None or estimate.degenerate:
        return Verdict.NOT_ESTIMABLE
    if estimate.low > -margin:
        return Verdict.NOT_WORSE
    return Verdict.WORSE if estimate.high < -margin else Verdict.INCONCLUSIVE


def lowest_mean(differences: Lattice, alpha: float = 0.05) -> float | None:
    """Return a lower confidence bound of the mean difference that holds for every n and every spread.

    A task can lose at most the whole point, and the share of tasks that lose anything is at most its
    Clopper-Pearson upper bound: so the mean is at least minus that bound. Coarse when many tasks lose, but
    valid where a bootstrap interval is degenerate: no loss in 20 tasks leaves -0.139, in 500 tasks -0.006.

    Returns
    -------
    float or None
        A fraction of level ``1 - alpha``, one-sided; None without tasks.
    """
    _check(1.0, alpha)
    n = len(differences)
    if n == 0:
        return None
    lost = int((differences.numerators < 0).sum())
    return -1.0 if lost == n else -float(betaincinv(lost + 1, n - lost, 1 - alpha))


def _check(margin: float, alpha: float) -> None:
    if not margin > 0:
        raise ValueError(f"margin {margin} is not positive")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha {alpha} is not between 0 and 0.5")
