"""Tests of a bounded mean that hold at every look: capital that bets on one side.

Whoever bets against "the mean is at most m" multiplies a capital of 1 by ``1 + λ (x - m)`` at each value x.
If the hypothesis holds, no strategy of bets can be expected to gain, and the capital ever reaches 1/α with a
chance of at most α (Ville's inequality), however often one looks. See Waudby-Smith and Ramdas, *Estimating
means of bounded random variables by betting* (JRSS B 2024, arXiv:2010.09686).

The bets here are fixed shares of the largest bet that cannot go bankrupt, and the capital is the mean over
them. Fixed bets, unlike adaptive ones, stay valid for values that come in blocks of a fixed mix of strata,
looked at after whole blocks: within a block ``∏ (1 + λ (μ_s - m))^{n_s} ≤ (1 + λ (μ - m))^n`` (the mean of
logarithms is at most the logarithm of the mean). The choice of shares is ours.
"""

from __future__ import annotations

import math

import numpy as np

from qfr.stats.lattice import FloatArray

#: Shares of the largest bet. Many, evenly spread: no spread of the values has to be guessed.
SHARES: FloatArray = np.arange(1, 21) / 20


def log_capital(values: FloatArray, mean: float) -> FloatArray:
    """Logarithm of the capital against "the mean is at most `mean`" after each value.

    Parameters
    ----------
    values : float array, shape (n,)
        In 0..1, in the order in which they came.
    mean : float
        In 0..1, both excluded.

    Returns
    -------
    float array, shape (n,)
        Minus infinity once every bet is lost.
    """
    if not 0 < mean < 1:
        raise ValueError(f"a mean of {mean} leaves nothing to bet on")
    bets = SHARES[:, None] / mean
    with np.errstate(divide="ignore"):
        logs = np.log1p(bets * (np.asarray(values, dtype=np.float64)[None, :] - mean))
    # A whole loss ends the largest bet for good; -inf stays -inf.
    grown = np.cumsum(logs, axis=1)
    return np.asarray(np.logaddexp.reduce(grown, axis=0) - math.log(len(SHARES)))


def above(differences: FloatArray, threshold: float) -> FloatArray:
    """Log capital against "the mean difference is at most `threshold`", for differences in -1..1."""
    return log_capital((np.asarray(differences) + 1) / 2, (threshold + 1) / 2)


def below(differences: FloatArray, threshold: float) -> FloatArray:
    """Log capital against "the mean difference is at least `threshold`", for differences in -1..1."""
    return above(-np.asarray(differences, dtype=np.float64), -threshold)


def confidence_interval(differences: FloatArray, alpha: float, *, steps: int = 400) -> tuple[float, float]:
    """Means that both one-sided capitals, at half the level each, leave open after all differences.

    The intervals at all looks together cover the mean with a chance of at least 1 - alpha (a confidence
    sequence).

    Returns
    -------
    tuple of float
        Lower and upper end, in -1..1, to 2 / `steps` outwards.
    """
    grid = np.linspace(-1, 1, steps + 1)[1:-1]
    bar = math.log(2 / alpha)
    if not len(differences):
        return -1.0, 1.0
    low = [one for one in grid if above(differences, float(one))[-1] < bar]
    high = [one for one in grid if below(differences, float(one))[-1] < bar]
    step = 2 / steps
    return (
        -1.0 if not low else max(-1.0, float(low[0]) - step),
        1.0 if not high else min(1.0, float(high[-1]) + step),
    )


def lower_limit(differences: FloatArray, alpha: float) -> float:
    """Largest mean that the capital excludes from below at level alpha; -1 where it excludes none.

    However often one looks while differences come in, the true mean lies above with a chance of 1 - alpha.
    """
    bar = math.log(1 / alpha)
    # The capital falls as the mean rises: each factor is 1 - share + share * x / mean.
    low, high = -1 + 1e-9, 1 - 1e-9
    if not len(differences) or above(differences, low)[-1] < bar:
        return -1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if above(differences, middle)[-1] >= bar else (low, middle)
    return low


def upper_limit(differences: FloatArray, alpha: float) -> float:
    """Smallest mean that the capital excludes from above; 1 where it excludes none."""
    return -lower_limit(-np.asarray(differences, dtype=np.float64), alpha)
