"""The exact distribution of a resampled sum on a lattice.

Drawing n of n integers with replacement and adding them up gives a sum whose distribution is the n-fold
convolution of the values' own distribution. Strata are drawn separately, so their sums convolve too. Small
convolutions are direct, in which case every term is positive and the relative error stays near 1e-15. Large
ones go through the FFT over a window around the mean outside which less than 1e-17 of the mass lies
(Bernstein's inequality), whatever wraps around included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft

from qfr.stats.lattice import FloatArray, IntArray

ComplexArray = npt.NDArray[np.complex128]

#: Below this many support points direct convolution is faster than the FFT.
DIRECT_POINTS = 400
#: Up to this many points the distribution of a difference of two sums is built as a whole.
JOINT_POINTS = 4_000
#: A distribution with more points than this is not built.
LARGEST_POINTS = 2**23
#: Scaled sums stay below this, within 64 bits.
LARGEST_SUM = 2**62
#: Values of F closer to q than this count as equal: the rounding of F itself is smaller.
SLACK = 1e-12
_OUTSIDE = 1e-17


@dataclass(frozen=True, slots=True, eq=False)
class SumDistribution:
    """Probabilities of the sums ``start + step * i``.

    Attributes
    ----------
    start, step : int
        Smallest sum listed and the distance between neighbours.
    cumulative : float64 array, shape (n_points,)
        ``F`` at each listed sum; the last entry is 1 up to rounding.
    probabilities : float64 array, shape (n_points,)
    """

    start: int
    step: int
    cumulative: FloatArray
    probabilities: FloatArray

    @property
    def largest(self) -> int:
        """Largest absolute sum listed."""
        return max(abs(self.start), abs(self.start + self.step * (self.cumulative.size - 1)))

    def quantile(self, probability: float) -> int:
        """Return ``inf{x: F(x) >= probability}``."""
        at = int(self.cumulative.searchsorted(probability - SLACK))
        return self.start + self.step * min(at, self.cumulative.size - 1)


def sum_distribution(strata: Sequence[IntArray]) -> SumDistribution | None:
    """Return the distribution of the bootstrap sum over all strata.

    Parameters
    ----------
    strata : sequence of int64 arrays, each of shape (n_tasks_in_stratum,)
        Non-empty; each is resampled with replacement to its own size, independently of the others.

    Returns
    -------
    SumDistribution or None
        None when the lattice has too many points to be held.
    """
    lows = [int(values.min()) for values in strata]
    shifted = [values - low for values, low in zip(strata, lows, strict=True)]
    start = sum(low * values.size for low, values in zip(lows, strata, strict=True))
    step = math.gcd(*(int(np.gcd.reduce(values)) for values in shifted))
    if step == 0:
        one = np.ones(1)
        return SumDistribution(start, 1, one, one)
    if step > 1:
        shifted = [values // step for values in shifted]
    if max(int(values.max()) for values in shifted) > LARGEST_POINTS:
        return None
    sizes = [values.size for values in shifted]
    masses: list[FloatArray] = [np.bincount(values) / values.size for values in shifted]
    points = 1 + sum((mass.size - 1) * n for mass, n in zip(masses, sizes, strict=True))
    if points <= DIRECT_POINTS:
        probabilities, first = _direct(masses, sizes), 0
    else:
        window = _window(masses, sizes, points)
        if window is None:
            return None
        probabilities, first = _by_fft(masses, sizes, window), window[0]
    return SumDistribution(start + first * step, step, probabilities.cumsum(), probabilities)


def _direct(masses: Sequence[FloatArray], sizes: Sequence[int]) -> FloatArray:
    """Convolve by repeated squaring, on probabilities so that nothing overflows."""
    total: FloatArray | None = None
    for power, left in zip(masses, sizes, strict=True):
        while True:
            if left & 1:
                total = power if total is None else np.convolve(total, power)
            left >>= 1
            if not left:
                break
            power = np.convolve(power, power)
    return np.ones(1) if total is None else total


def _window(masses: Sequence[FloatArray], sizes: Sequence[int], points: int) -> tuple[int, int] | None:
    """Return (first index, length) of the part of the support that holds all but a negligible mass."""
    centre = variance = 0.0
    for mass, n in zip(masses, sizes, strict=True):
        values = np.arange(mass.size)
        mean = float(mass @ values)
        centre += n * mean
        variance += n * float(mass @ (values - mean) ** 2)
    span = max(mass.size for mass in masses) - 1
    reach = window_reach(variance, span)
    first = max(0, math.floor(centre - reach))
    last = min(points - 1, math.ceil(centre + reach))
    length = max(last - first + 1, span + 1)
    return (first, length) if length <= LARGEST_POINTS else None


def window_reach(variance: float, span: float) -> int:
    """Return how far a sum of terms, each within a span, strays from its mean with chance 1e-17."""
    logarithm = math.log(2 / _OUTSIDE)
    linear = logarithm * span / 3
    return math.ceil(linear + math.sqrt(linear * linear + 2 * logarithm * variance))


def _by_fft(masses: Sequence[FloatArray], sizes: Sequence[int], window: tuple[int, int]) -> FloatArray:
    """Return the probabilities of the sums in the window (first index, length).

    Each stratum is centred first: where its transform is large its phase is then small, and the power
    keeps its digits.
    """
    first, length = window
    size = fft.next_fast_len(length, real=True)
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    centre = 0
    for mass, n in zip(masses, sizes, strict=True):
        middle = round(float(mass @ np.arange(mass.size)))
        base = np.zeros(size)
        base[: mass.size - middle] = mass[middle:]
        base[size - middle :] = mass[:middle]
        product *= complex_power(fft.rfft(base), n)
        centre += middle * n
    wrapped: FloatArray = fft.irfft(product, size)
    turn = (first - centre) % size
    # Rounding leaves values near -1e-18 where the mass is negligible.
    probabilities: FloatArray = np.maximum(np.concatenate([wrapped[turn:], wrapped[:turn]])[:length], 0.0)
    return probabilities


def complex_power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Raise to a positive integer power by squaring: far faster than complex ``**``, and as precise."""
    result: ComplexArray | None = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            break
        base = base * base
    return base if result is None else result


def difference_quantiles(
    first: Sequence[IntArray], second: Sequence[IntArray], scales: tuple[int, int], tails: tuple[float, float]
) -> tuple[int, int] | None:
    """Return two quantiles of ``scales[0] * A - scales[1] * B`` for independent resampled sums A and B.

    Parameters
    ----------
    first, second : sequences of int64 arrays
        The strata of either sample.
    scales : pair of int
        Positive; they bring both means to one denominator.
    tails : pair of float
        Probabilities.

    Returns
    -------
    pair of int, or None
        None when the lattice has too many points to be held.
    """
    points = sum(
        scale * (int(values.max()) - int(values.min())) * values.size
        for scale, strata in zip(scales, (first, second), strict=True)
        for values in strata
    )
    if points <= JOINT_POINTS or scales == (1, 1):
        joint = sum_distribution(
            [scales[0] * values for values in first] + [-scales[1] * values for values in second]
        )
        return None if joint is None else (joint.quantile(tails[0]), joint.quantile(tails[1]))
    one, other = sum_distribution(first), sum_distribution(second)
    if one is None or other is None or scales[0] * one.largest + scales[1] * other.largest > LARGEST_SUM:
        return None
    return difference_quantile(one, other, scales, tails[0]), difference_quantile(
        one, other, scales, tails[1]
    )


def difference_quantile(
    first: SumDistribution, second: SumDistribution, scales: tuple[int, int], probability: float
) -> int:
    """Return a quantile of ``scales[0] * A - scales[1] * B`` for independent sums A and B.

    The joint lattice can be huge when the sample sizes share no factor, so it is never built: F is
    evaluated at one point at a time and the quantile found by bisection over the integers.
    """
    left = scales[0] * (first.start + first.step * np.arange(first.cumulative.size, dtype=np.int64))
    stride = scales[1] * second.step
    base = scales[1] * second.start
    top = second.cumulative.size
    # survival[j] = P(B has index >= j), summed from the far end so that small tails keep their digits.
    survival = np.append(second.probabilities[::-1].cumsum()[::-1], 0.0)
    low = int(left[0]) - (base + stride * (top - 1))
    high = int(left[-1]) - base
    target = probability - SLACK
    # The sum of a window's probabilities is 1 up to rounding, so F(high) reaches every target below 1.
    while low < high:
        middle = (low + high) // 2
        at = -((middle + base - left) // stride)
        reached = float(first.probabilities @ survival[np.minimum(np.maximum(at, 0), top)])
        if reached >= target:
            high = middle
        else:
            low = middle + 1
    return low
