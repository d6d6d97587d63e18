"""Exact tests: sign test without ties, sign-flip (randomization) test, Fisher's exact test.

Every result carries the number of untied tasks and the smallest p that they could have given, so that nobody
reads "not significant" where significance was out of reach.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import bdtr

from qfr.stats.lattice import IntArray, Lattice
from qfr.stats.sums import complex_power, window_reach

#: p values below this are given as this, never as 0.
SMALLEST_P = 1e-300
#: A test that cannot reach this level says so in its reason.
CONVENTIONAL_LEVEL = 0.05
#: Additions beyond which the sign-flip test leaves dynamic programming for the FFT.
_DIRECT_WORK = 400_000_000
#: Largest sum of absolute numerators that the sign-flip test holds.
_LARGEST_TOTAL = 2**24


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A two-sided exact test of "no difference" over paired tasks.

    Attributes
    ----------
    p : float or None
        Two-sided p value; None without tasks, or when the lattice is too fine.
    n : int
        Tasks.
    favour_first, favour_second, ties : int
        Tasks where the first is better, where the second is better, where both are equal.
    n_effective : int
        Untied tasks; only these carry evidence.
    smallest_p : float or None
        The smallest p that these untied tasks could have given, whatever their signs.
    degenerate : bool
        All tasks are tied: ``p = 1`` by definition, not by evidence.
    reason : str or None
    """

    p: float | None
    n: int
    favour_first: int
    favour_second: int
    ties: int
    n_effective: int
    smallest_p: float | None
    degenerate: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class FisherResult:
    """Fisher's exact test of two pooled groups of episodes.

    Attributes
    ----------
    p : float or None
        Two-sided p value; None without any episode.
    odds_ratio : float or None
        Sample odds ratio; None where it is undefined or infinite, with the reason.
    n_first, n_second : int
        Episodes per group.
    degenerate : bool
        A margin of the table is zero: ``p = 1`` whatever happened.
    reason : str or None
    warning : str
        Episodes of one task are not independent, so p is too small; to be printed with it.
    """

    p: float | None
    odds_ratio: float | None
    n_first: int
    n_second: int
    degenerate: bool
    reason: str | None
    warning: str


EPISODES_DEPEND = (
    "episodes of one task are not independent: Fisher's p understates chance; prefer the task-level test"
)


def sign_test(differences: Lattice) -> PairedTest:
    """Two-sided sign test without ties (Hu 2026, section 3) of paired differences, first minus second."""
    signs = np.sign(differences.numerators)
    return sign_test_counts(int((signs > 0).sum()), int((signs < 0).sum()), int((signs == 0).sum()))


def sign_test_counts(favour_first: int, favour_second: int, ties: int) -> PairedTest:
    """Two-sided sign test without ties, from counts of tasks.

    Raises
    ------
    ValueError
        If a count is negative.
    """
    if min(favour_first, favour_second, ties) < 0:
        raise ValueError(f"negative count among {favour_first}, {favour_second}, {ties}")
    untied = favour_first + favour_second
    # Twice the smaller tail of a fair binomial; at a draw the doubled tail passes 1.
    p = min(1.0, 2 * float(bdtr(min(favour_first, favour_second), untied, 0.5))) if untied else 1.0
    return _result(p, (favour_first, favour_second, ties))


def sign_flip_test(differences: Lattice) -> PairedTest:
    """Two-sided randomization test of the sum of paired differences under independent sign flips.

    p is the share of the ``2 ** n_untied`` sign patterns whose sum is at least as far from zero as the
    observed one: dynamic programming over the attainable sums, exact on the lattice.
    """
    signed = differences.numerators[differences.numerators != 0]
    positive = int((signed > 0).sum())
    counts = (positive, int(signed.size) - positive, len(differences) - int(signed.size))
    if not signed.size:
        return _result(1.0, counts)
    step = int(np.gcd.reduce(signed))
    sizes = np.sort(np.abs(signed) // step)
    observed = abs(int(signed.sum()) // step)
    if observed == 0:
        return _result(1.0, counts)
    # A pattern's sum is total - 2 * flipped, so sums >= observed have flipped <= limit.
    total = int(sizes.sum())
    limit = (total - observed) // 2
    if total > _LARGEST_TOTAL:
        untested = "the lattice is too fine for the exact sign-flip test"
        return replace(_result(1.0, counts), p=None, reason=untested)
    direct = sizes.size * limit <= _DIRECT_WORK
    tail = _flipped_at_most(sizes, limit) if direct else _flipped_at_most_fft(sizes, limit)
    return _result(min(1.0, 2 * tail), counts)


def _flipped_at_most(sizes: IntArray, limit: int) -> float:
    """Return P(sum of the flipped sizes <= limit) by dynamic programming, each size flipped with chance 1/2.

    Only the sums up to the limit are kept. All terms are positive, so the relative error stays tiny even
    far in the tail; counts are exact up to 2**53.
    """
    ways = np.zeros(limit + 1)
    ways[0] = 1.0
    reach = 0
    halvings = 0
    for done, size in enumerate(sizes.tolist(), start=1):
        if size > limit:
            # Sizes are sorted: this one and all later ones cannot be among the flipped.
            halvings += sizes.size - done + 1
            break
        reach = min(limit, reach + size)
        ways[size : reach + 1] += ways[: reach + 1 - size]
        halvings += 1
        if halvings == 900:
            ways *= 2.0**-900
            halvings = 0
    return max(SMALLEST_P, math.ldexp(float(ways.sum()), -halvings))


def _flipped_at_most_fft(sizes: IntArray, limit: int) -> float:
    """The same by FFT, tilted so that the limit is the mean: the tail then keeps its relative precision.

    Only a window around the limit is transformed; Bernstein's inequality bounds what wraps into it.
    """
    groups = sorted(Counter(sizes.tolist()).items())
    tilt = _tilt(groups, limit)
    chances = [1 / (1 + math.exp(min(700.0, tilt * value))) for value, _ in groups]
    variance = sum(
        count * value * value * chance * (1 - chance)
        for (value, count), chance in zip(groups, chances, strict=True)
    )
    reach = window_reach(variance, groups[-1][0])
    size = fft.next_fast_len(min(int(sizes.sum()) + 1, 2 * reach + 1), real=True)
    turns = np.arange(size // 2 + 1, dtype=np.int64)
    product = np.ones(turns.size, dtype=np.complex128)
    logarithm = 0.0
    for (value, count), chance in zip(groups, chances, strict=True):
        # The phase is reduced in integers: value * turn may be far larger than one turn.
        phase = np.exp((-2j * np.pi / size) * ((value * turns) % size))
        product *= complex_power(1 - chance + chance * phase, count)
        logarithm += count * (math.log1p(math.exp(-tilt * value)) - math.log(2))
    tilted = fft.irfft(product, size)
    below = np.arange(min(limit, reach) + 1)
    total = float((tilted[(limit - below) % size] * np.exp(-tilt * below)).sum())
    exponent = math.log(total) + logarithm + tilt * limit if total > 0 else -math.inf
    return math.exp(exponent) if exponent > math.log(SMALLEST_P) else SMALLEST_P


def _tilt(groups: list[tuple[int, int]], limit: int) -> float:
    """Return the tilt under which the mean of the flipped sum is the limit."""

    def excess(tilt: float) -> float:
        return (
            sum(count * value / (1 + math.exp(min(700.0, tilt * value))) for value, count in groups) - limit
        )

    # The limit is below half of the total, so the tilt is positive; at 700 next to nothing is flipped.
    return float(brentq(excess, 0.0, 700.0)) if limit > 0 and excess(700.0) < 0 < excess(0.0) else 0.0


def fisher(successes_first: int, n_first: int, successes_second: int, n_second: int) -> FisherResult:
    """Fisher's exact test, two-sided, of success counts in two pooled groups of episodes.

    Raises
    ------
    ValueError
        If a success count exceeds its group or is negative.
    """
    if not (0 <= successes_first <= n_first and 0 <= successes_second <= n_second):
        raise ValueError(f"{successes_first} of {n_first} and {successes_second} of {n_second}")
    if n_first + n_second == 0:
        return FisherResult(None, None, 0, 0, False, "no episodes", EPISODES_DEPEND)
    failed_first, failed_second = n_first - successes_first, n_second - successes_second
    empty = {
        "a group has no episodes": min(n_first, n_second),
        "every episode failed": successes_first + successes_second,
        "every episode succeeded": failed_first + failed_second,
    }
    if 0 in empty.values():
        why = next(text for text, margin in empty.items() if margin == 0)
        reason = f"degenerate: {why}; odds ratio undefined"
        return FisherResult(1.0, None, n_first, n_second, True, reason, EPISODES_DEPEND)
    # scipy.stats takes most of a second to load, and most callers need no table.
    from scipy.stats import fisher_exact

    table = np.array([[successes_first, failed_first], [successes_second, failed_second]])
    p = max(SMALLEST_P, float(fisher_exact(table).pvalue))
    down = failed_first * successes_second
    odds = successes_first * failed_second / down if down else None
    remark = None if down else "odds ratio infinite: an empty cell"
    return FisherResult(p, odds, n_first, n_second, False, remark, EPISODES_DEPEND)


def _result(p: float, counts: tuple[int, int, int]) -> PairedTest:
    first, second, ties = counts
    n, untied = sum(counts), first + second
    if n == 0:
        return PairedTest(None, 0, 0, 0, 0, 0, None, False, "no task")
    if untied == 0:
        return PairedTest(1.0, n, 0, 0, ties, 0, 1.0, True, "degenerate: all tasks tied")
    # Both tests are at their smallest when all untied tasks point one way: two of 2**untied sign patterns.
    smallest = max(SMALLEST_P, 2.0 ** max(1 - untied, -1000))
    reason = None
    if smallest > CONVENTIONAL_LEVEL:
        reason = f"{untied} untied tasks cannot give p below {smallest:.3g}"
    return PairedTest(max(p, SMALLEST_P), n, first, second, ties, untied, smallest, False, reason)
