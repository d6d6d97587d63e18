"""The distribution of a weighted mean whose weights are drawn from a Dirichlet distribution, by one integral.

Weights of the Bayesian bootstrap (Rubin 1981) are gamma variables over their sum: a task counts 1, an
imagined task what it is given, fractions included. The chance that the weighted mean stays below a threshold
is the chance that a sum of gamma variables, scaled by ``value - threshold``, is not positive: an integral of
Imhof's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.optimize import brentq

from qfr.stats.lattice import FloatArray, Lattice

# The integrand is below e**-_NEGLIGIBLE where the integration ends.
_NEGLIGIBLE = 32.0
_FARTHEST = 45.0


def with_imagined(sample: Lattice, imagined: Mapping[float, float]) -> tuple[FloatArray, FloatArray]:
    """Return the distinct values in order, and how often each occurs, imagined tasks included.

    Parameters
    ----------
    sample : Lattice
        One value per task.
    imagined : mapping of float to float
        Value of an imagined task, and how much of a task it counts. The values are the limits of a task: an
        observed one must not lie beyond the lowest, nor beyond the highest where there are several.

    Raises
    ------
    ValueError
        If a value lies beyond a limit.
    """
    values, counts = np.unique(sample.numerators, return_counts=True)
    weights = dict(zip((values / np.float64(sample.denominator)).tolist(), counts.tolist(), strict=True))
    lowest, highest = min(imagined), max(imagined)
    for value in weights:
        if value < lowest or value > highest > lowest:
            side = "below" if value < lowest else "above"
            raise ValueError(f"a value of {value} lies {side} {lowest if value < lowest else highest}")
    for value, weight in imagined.items():
        weights[value] = weights.get(value, 0.0) + weight
    places = sorted(weights)
    return np.array(places), np.array([weights[place] for place in places], dtype=np.float64)


def quantile(values: FloatArray, counts: FloatArray, probability: float) -> float:
    """Return the value that the weighted mean stays below with this probability.

    Parameters
    ----------
    values, counts : arrays, shape (n_values,)
        Distinct values in order, and their counts (positive, fractions allowed).
    probability : float
        Between 0 and 1, exclusive.
    """
    low, high = float(values[0]), float(values[-1])
    if low == high:
        return low
    # The chance grows from 0 at the lowest value to 1 at the highest.
    return float(brentq(lambda at: chance_at_most(values, counts, at) - probability, low, high, xtol=1e-10))


def chance_at_most(values: FloatArray, counts: FloatArray, threshold: float) -> float:
    """Return P(weighted mean <= threshold).

    After the substitution ``u = exp(s - exp(-s))`` the trapezoid rule converges exponentially.
    """
    offsets = values - threshold
    if offsets[-1] <= 0:
        return 1.0
    if offsets[0] >= 0:
        return 0.0
    scaled = offsets / math.sqrt(float(counts @ offsets**2))
    end = 1.0
    while end < _FARTHEST and _log_size(scaled, counts, np.exp(np.array([end])))[0] < _NEGLIGIBLE:
        end += 1.0
    # The finer the more tasks: the integrand turns and falls within 1 / sqrt(n).
    step = min(0.05, 0.25 / math.sqrt(float(counts.sum())))
    s = np.arange(-3.6, end, step)
    u = np.exp(s - np.exp(-s))
    angle = np.zeros_like(u)
    for offset, count in zip(scaled, counts, strict=True):
        angle += count * np.arctan(offset * u)
    terms = np.sin(angle) * np.exp(-_log_size(scaled, counts, u)) * (1 + np.exp(-s))
    return min(1.0, max(0.0, 0.5 - step * float(terms.sum()) / math.pi))


def _log_size(scaled: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
    size = np.zeros_like(u)
    for offset, count in zip(scaled, counts, strict=True):
        size += 0.5 * count * np.log1p((offset * u) ** 2)
    return size
