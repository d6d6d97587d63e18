"""Monte Carlo resamples of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from qfr.stats.intervals import order_statistic
from qfr.stats.lattice import FloatArray, IntArray

#: Drawn indices held at one time.
BATCH = 2_000_000
#: Beyond this many tasks per distinct value, drawing counts is faster than drawing tasks.
_TASKS_PER_VALUE = 15


def resampled_sums(groups: Sequence[IntArray], resamples: int, rng: Generator) -> IntArray:
    """Return sums of resamples drawn within each group, shape (resamples,)."""
    total = np.zeros(resamples, dtype=np.int64)
    for values in groups:
        n = values.size
        distinct, counts = np.unique(values, return_counts=True)
        if n > _TASKS_PER_VALUE * distinct.size:
            # How often each distinct value is drawn is multinomial: the same distribution without n draws.
            total += rng.multinomial(n, counts / n, size=resamples) @ distinct
            continue
        rows = max(1, BATCH // n)
        for begin in range(0, resamples, rows):
            part = total[begin : begin + rows]
            part += values[rng.integers(0, n, size=(part.size, n))].sum(axis=1)
    return total


def weight_batches(n: int, resamples: int, rng: Generator, items: int = 0) -> Iterator[FloatArray]:
    """Yield how often each of n tasks is drawn, in batches of shape (rows, n) that add up to the resamples.

    One row serves every quantity of these tasks, so that quantities which share tasks vary together. Batches
    are smaller when the caller spreads a row over more items than tasks.
    """
    rows = max(1, BATCH // max(n, items))
    for begin in range(0, resamples, rows):
        count = min(rows, resamples - begin)
        drawn = rng.integers(0, n, size=(count, n)) + n * np.arange(count)[:, None]
        yield np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n).astype(np.float64)


def ends(drawn: IntArray | FloatArray, tail: float) -> tuple[float, float]:
    """Return the quantiles ``tail`` and ``1 - tail`` of the draws, each ``inf{x: F(x) >= q}``."""
    low, high = order_statistic(tail, drawn.size), order_statistic(1 - tail, drawn.size)
    parted = np.partition(drawn, (low, high))
    return parted[low].item(), parted[high].item()
