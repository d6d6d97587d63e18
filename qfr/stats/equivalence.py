"""Equivalence within a margin, guarded against samples that do not vary.

Two one-sided tests (TOST) by the ``1 - 2 alpha`` bootstrap interval (Jang 2026 uses a margin of 7.5 points).
Without variation the interval is no evidence, so the answer there is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfr.stats.bootstrap import mean
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice

#: Margin of equivalence (Jang 2026): 7.5 points.
DEFAULT_MARGIN = 0.075


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
    equivalent : bool or None
        Whether equivalence is shown; None when it cannot be tested.
    n : int
        Tasks (of the smaller sample).
    method : str
        ``"bootstrap"``.
    degenerate, reliable : bool
        As for `Estimate`.
    reason : str or None
    """

    value: float | None
    low: float | None
    high: float | None
    margin: float
    alpha: float
    equivalent: bool | None
    n: int
    method: str
    degenerate: bool
    reliable: bool
    reason: str | None


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
        equivalent=equivalent,
        n=n,
        method="bootstrap",
        degenerate=estimate.degenerate,
        reliable=estimate.reliable,
        reason=estimate.reason,
    )


def _check(margin: float, alpha: float) -> None:
    if not margin > 0:
        raise ValueError(f"margin {margin} is not positive")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha {alpha} is not between 0 and 0.5")
