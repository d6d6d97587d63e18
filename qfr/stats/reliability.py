"""When the nominal level of a percentile bootstrap interval is known to fail, and how to widen it.

Few tasks, or tasks that nearly all share one value, make the bootstrap distribution too narrow: real coverage
of a nominal 95 % interval is then below 95 %, at worst near 40 %. The rules come from the simulation in
``benchmarks/coverage.py``; its table stands in ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, stdtrit

from qfr.stats.lattice import FloatArray, IntArray

#: Below this many tasks even the expanded interval loses its level.
FEWEST_TASKS = 9
#: Below this many tasks the plain percentile interval covers 90 to 93 % where it should cover 95.
FEWEST_TASKS_PLAIN = 20
#: With a larger share of tasks on one and the same value the level fails ...
LARGEST_TIED_SHARE = 0.8
#: ... unless this many tasks have another value.
ENOUGH_UNTIED = 30
#: From this many tasks on an array operation counts faster than a dictionary.
_MANY = 50


def doubt(groups: Sequence[IntArray | FloatArray], expanded: bool = False) -> str | None:
    """Return why the interval of a mean (or of a mean paired difference) is unreliable, else None.

    Parameters
    ----------
    groups : sequence of arrays
        The values per task, one array per stratum.
    expanded : bool
        Whether the interval is an expanded one.
    """
    n = sum(values.size for values in groups)
    if n < FEWEST_TASKS:
        return f"unreliable: {n} tasks, fewer than {FEWEST_TASKS}; coverage is far below nominal"
    tied = _commonest(groups)
    if tied > LARGEST_TIED_SHARE * n and n - tied < ENOUGH_UNTIED:
        return f"unreliable: {tied} of {n} tasks share one value; coverage is far below nominal"
    if len(groups) > 1 and min(values.size for values in groups) < 2:
        return "unreliable: a stratum of one task shows no spread"
    if n < FEWEST_TASKS_PLAIN and not expanded:
        short = f"{n} tasks, fewer than {FEWEST_TASKS_PLAIN}"
        return f"unreliable: {short}; coverage is a few points below nominal"
    return None


def _commonest(groups: Sequence[IntArray | FloatArray]) -> int:
    """How many tasks have the commonest value."""
    first = groups[0]
    if len(groups) == 1 and first.size > _MANY and first.dtype.kind == "i":
        low, high = int(first.min()), int(first.max())
        if high - low < first.size:
            return int(np.bincount(first - low).max())
    counts: Counter[float] = Counter()
    for values in groups:
        counts.update(values.tolist())
    return max(counts.values())


def doubt_two_sample(
    first: Sequence[IntArray], second: Sequence[IntArray], expanded: bool = False
) -> str | None:
    """Return why the interval of a difference of two independent means is unreliable, else None."""
    found = (("first", doubt(first, expanded)), ("second", doubt(second, expanded)))
    named = [f"{side} sample: {text.removeprefix('unreliable: ')}" for side, text in found if text]
    return "unreliable: " + "; ".join(named) if named else None


def expanded_tail(samples: Sequence[Sequence[IntArray]], tail: float) -> float:
    """Return the smaller tail probability that makes a percentile interval as wide as a t interval.

    The bootstrap variance divides by n where n - 1 is unbiased, and its quantiles are near-normal where t
    is due. Hesterberg (2015, The American Statistician 69:371, "expanded percentile interval") corrects
    both by taking the quantiles at ``Phi(-sqrt(n / (n - 1)) t)``. With strata or two samples the variance
    ratio and the degrees of freedom (Welch-Satterthwaite) are those of the whole estimate.

    Parameters
    ----------
    samples : sequence of samples, each a sequence of int64 arrays
        The values per task by sample and stratum, over one denominator.
    tail : float
        Nominal tail probability, such as 0.025.
    """
    plain = unbiased = spread = 0.0
    for groups in samples:
        n = sum(values.size for values in groups)
        for values in groups:
            m = values.size
            if m < 2:
                continue
            part = m * float(values.var(ddof=1)) / n**2
            unbiased += part
            plain += part * (m - 1) / m
            spread += part * part / (m - 1)
    if spread == 0:
        return tail
    t = float(stdtrit(unbiased * unbiased / spread, tail))
    return float(ndtr(t * math.sqrt(unbiased / plain)))
