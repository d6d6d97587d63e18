"""The distribution of a weighted mean whose weights are drawn from a Dirichlet distribution, by one integral.

Weights of the Bayesian bootstrap (Rubin 1981) are gamma variables over their sum: a task counts 1, an
imagined task what it is given, fractions included. The chance that the weighted mean stays below a threshold
is the chance that a sum of gamma variables, scaled by ``value - threshold``, is not positive: an integral of
Imhof's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from qfr.stats.lattice import FloatArray, Lattice

# The integrand is below e**-_NEGLIGIBLE where the integration ends.
_NEGLIGIBLE = 32.0
_FARTHEST = 45.0
_ENDS = np.exp(np.arange(1.0, _FARTHEST))


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
    # Cells at a floor or ceiling ask for the same few quantiles again and again.
    return _quantile(tuple(values.tolist()), tuple(counts.tolist()), probability)


@lru_cache(maxsize=8192)
def _quantile(values: tuple[float, ...], counts: tuple[float, ...], probability: float) -> float:
    low, high = values[0], values[-1]
    if low == high:
        return low
    points, weights = np.array(values), np.array(counts)
    # The chance grows from 0 at the lowest value to 1 at the highest.
    return float(brentq(lambda at: chance_at_most(points, weights, at) - probability, low, high, xtol=1e-10))


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
    # The size grows with u, so the first place where it is negligible ends the integral.
    sizes = _log_size(scaled, counts, _ENDS)
    end = min(float(np.searchsorted(sizes, _NEGLIGIBLE)) + 1.0, _FARTHEST)
    # The finer the more tasks: the integrand turns and falls within 1 / sqrt(n).
    step = min(0.05, 0.25 / math.sqrt(float(counts.sum())))
    s = np.arange(-3.6, end, step)
    inverse = np.exp(-s)
    u = np.exp(s - inverse)
    scale = np.outer(scaled, u)
    angle = counts @ np.arctan(scale)
    size = 0.5 * (counts @ np.log1p(scale**2))
    terms = np.sin(angle) * np.exp(-size) * (1 + inverse)
    return min(1.0, max(0.0, 0.5 - step * float(terms.sum()) / math.pi))


def _log_size(scaled: FloatArray, counts: FloatArray, u: FloatArray) -> FloatArray:
    size: FloatArray = 0.5 * (counts @ np.log1p(np.outer(scaled, u) ** 2))
    return size
