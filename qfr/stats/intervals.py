"""Named results, Wilson intervals, the quantile rule, and when a bootstrap interval can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Method(StrEnum):
    """How a bootstrap distribution is obtained."""

    EXACT = "exact"
    MONTECARLO = "montecarlo"


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
    expanded : bool
        Widen the quantiles for small samples (see `reliability.expanded_tail`). The published intervals
        are plain percentile intervals, so this is off unless asked for.
    """

    level: float = 0.95
    method: Method = Method.EXACT
    resamples: int = 20_000
    expanded: bool = False

    def __post_init__(self) -> None:
        check_level(self.level)
        if self.resamples < 1:
            raise ValueError(f"{self.resamples} resamples")

    @property
    def tail(self) -> float:
        """Nominal probability below the lower end, such as 0.025."""
        return (1 - self.level) / 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """A point estimate with its bootstrap interval.

    Attributes
    ----------
    value : float or None
        Point estimate, a fraction (or a ratio); None when there is nothing to estimate from.
    low, high : float or None
        Ends of the interval; None when there is none.
    level : float
        Nominal level, such as 0.95.
    n : int
        Tasks (of the first sample, when there are two).
    n_second : int or None
        Tasks of the second of two independent samples.
    method : Method
        How the interval was computed.
    resamples : int or None
        Monte Carlo resamples; None for the exact distribution.
    degenerate : bool
        The bootstrap distribution is a single point, so ``low == high`` says nothing about uncertainty.
    reliable : bool
        False where the nominal level is known to fail, or where there is no interval.
    reason : str or None
        Why something is None, degenerate, unreliable, or computed by another method than asked.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    n_second: int | None
    method: Method
    resamples: int | None
    degenerate: bool
    reliable: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a rate that counts independent trials.

    Attributes
    ----------
    value, low, high : float or None
        Rate and ends, fractions in 0..1; None without trials.
    level : float
        Nominal level.
    n : int
        Trials.
    degenerate : bool
        Always False: the Wilson interval has a width even at 0 and 1.
    reason : str or None
        Why the ends are None.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    degenerate: bool
    reason: str | None


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of a rate (Hu 2026 gives it for episode-level rates).

    Parameters
    ----------
    successes, trials : int
        ``0 <= successes <= trials``.
    level : float
        Two-sided level in (0, 1).

    Raises
    ------
    ValueError
        If the counts or the level are out of range.
    """
    check_level(level)
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return Interval(None, None, None, level, 0, False, "no trials")
    # scipy.stats takes most of a second to load.
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high), level, trials, False, None)


def check_level(level: float) -> None:
    """Raise `ValueError` unless the level lies strictly between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")


def order_statistic(probability: float, draws: int) -> int:
    """Return the index into sorted draws that ``inf{x: F(x) >= q}`` selects.

    With 20,000 draws and q = 0.025 that is the 500th smallest, index 499. The slack undoes the rounding of q.
    """
    return max(0, math.ceil(probability * draws - 1e-6) - 1)
