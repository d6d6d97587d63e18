"""Task bootstrap of many ratios of sums with one draw of task weights.

`qfr.stats.bootstrap.ratio` draws for one ratio; a page of diagnostics needs hundreds over the same tasks.
Here one matrix of weights serves them all, so quantities of the same tasks vary together. Jang 2026 takes
5,000 task-level resamples, which is the default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from qfr.errors import TableError
from qfr.stats.intervals import Estimate, Method, Options
from qfr.stats.lattice import BoolArray, FloatArray
from qfr.stats.reliability import doubt
from qfr.stats.resampling import ends, weight_batches

DEFAULT = Options(method=Method.MONTECARLO, resamples=5_000)
#: Values drawn at most where a quantity needs one per item and resample (an area over thousands of turns) ...
LARGEST_DRAW = 5_000_000
#: ... but never fewer resamples than this.
FEWEST_RESAMPLES = 200


@dataclass(frozen=True, eq=False)
class Sums:
    """What is added up over tasks before it is divided; arrays of shape (n_tasks, n_quantities)."""

    tops: FloatArray
    bottoms: FloatArray

    def __post_init__(self) -> None:
        if self.tops.ndim != 2 or self.tops.shape != self.bottoms.shape:
            raise TableError(f"numerators of shape {self.tops.shape}, denominators {self.bottoms.shape}")
        if not np.isfinite(self.tops).all() or not np.isfinite(self.bottoms).all():
            raise TableError("a value is not finite")
        if (self.bottoms < 0).any():
            raise TableError("a denominator is negative")


def missing(n: int, options: Options, reason: str, value: float | None = None) -> Estimate:
    """Return an estimate without an interval (and without a value, unless one is given)."""
    return Estimate(value, None, None, options.level, n, None, Method.MONTECARLO, None, False, False, reason)


def affordable(options: Options, items: int) -> Options:
    """Return the options with as many resamples as the items allow; the estimate says how many were taken."""
    limit = max(FEWEST_RESAMPLES, LARGEST_DRAW // max(1, items))
    return replace(options, resamples=min(options.resamples, limit))


def ratios(sums: Sums, *, rng: Generator, options: Options = DEFAULT) -> tuple[Estimate, ...]:
    """Bootstrap ``sum(tops) / sum(bottoms)`` of every quantity over tasks, percentile intervals.

    Quantity for quantity the result of `qfr.stats.bootstrap.ratio`; the method in the options is ignored.
    """
    n, width = sums.tops.shape
    drawn = _drawn(np.concatenate([sums.tops, sums.bottoms], axis=1), rng, options)
    wholes = sums.bottoms.sum(axis=0)
    found = []
    for at in range(width):
        if wholes[at] == 0:
            why = "the denominator is 0 in every task" if n else "no task"
            found.append(missing(n, options, why))
            continue
        value = float(sums.tops[:, at].sum()) / float(wholes[at])
        pull = (sums.tops[:, at] - value * sums.bottoms[:, at]) / wholes[at]
        filled = drawn[:, width + at] > 0
        found.append(_finished(value, _quotient(drawn[:, at], drawn[:, width + at], filled), pull, options))
    return tuple(found)


def relatives(
    first: Sums, second: Sums, *, rng: Generator, options: Options = DEFAULT
) -> tuple[Estimate, ...]:
    """Bootstrap the ratio of two ratios, ``(tops/bottoms of first) / (tops/bottoms of second)``, paired.

    Row by row the two hold the same tasks; a task that one side does not have counts with zeros there.

    Returns
    -------
    tuple of Estimate
        One per quantity; None where the second ratio is 0 or a denominator is. An end is None where it is
        unbounded: where the reference event is so rare that too many resamples have none of it.
    """
    if first.tops.shape != second.tops.shape:
        raise TableError(f"sums of shape {first.tops.shape} against {second.tops.shape}")
    n, width = first.tops.shape
    parts = (first.tops, first.bottoms, second.tops, second.bottoms)
    drawn = _drawn(np.concatenate(parts, axis=1), rng, options)
    found = []
    for at in range(width):
        top, bottom, low_top, low_bottom = (float(part[:, at].sum()) for part in parts)
        if bottom == 0 or low_bottom == 0:
            found.append(missing(n, options, "the denominator is 0 in every task" if n else "no task"))
            continue
        if low_top == 0:
            found.append(missing(n, options, "the reference is 0"))
            continue
        value = (top / bottom) / (low_top / low_bottom)
        # Each task's share in the logarithm of the ratio, times the ratio so that it stays defined at 0.
        pull = (first.tops[:, at] - (top / bottom) * first.bottoms[:, at]) / bottom / (low_top / low_bottom)
        pull -= value * (second.tops[:, at] / low_top - second.bottoms[:, at] / low_bottom)
        columns = [drawn[:, at + width * part] for part in range(4)]
        # A resample without a reference event has an unbounded ratio; without any event at all it has none.
        filled = (columns[1] > 0) & (columns[3] > 0) & ((columns[0] > 0) | (columns[2] > 0))
        values = _quotient(columns[0] * columns[3], columns[1] * columns[2], filled)
        found.append(_bounded(_finished(value, values, pull, options), values))
    return tuple(found)


def _drawn(table: FloatArray, rng: Generator, options: Options) -> FloatArray:
    """Return the sums of every resample, shape (resamples, n_columns)."""
    n = table.shape[0]
    if n < 2:
        return np.zeros((0, table.shape[1]))
    batches = weight_batches(n, options.resamples, rng)
    return np.concatenate([weights @ table for weights in batches])


def _quotient(tops: FloatArray, bottoms: FloatArray, filled: BoolArray) -> FloatArray:
    some = bottoms[filled] > 0
    values: FloatArray = np.divide(tops[filled], bottoms[filled], out=np.full(some.shape, np.inf), where=some)
    return values


def _bounded(one: Estimate, drawn: FloatArray) -> Estimate:
    """Say so where an end is unbounded, and leave it out."""
    if one.high is None or math.isfinite(one.high):
        return one
    share = float(np.mean(np.isinf(drawn)))
    why = f"no upper end: {share:.0%} of the resamples have no event of the reference"
    low = one.low if one.low is not None and math.isfinite(one.low) else None
    return replace(one, low=low, high=None, degenerate=False, reliable=False, reason=why)


def _finished(value: float, drawn: FloatArray, pull: FloatArray, options: Options) -> Estimate:
    n = int(pull.size)
    if n == 1:
        return missing(n, options, "one task: no interval", value)
    if not drawn.size:
        return missing(n, options, "no resample with a denominator above 0", value)
    low, high = ends(drawn, options.tail)
    lost = options.resamples - drawn.size
    flat = low == high
    trust = doubt([np.round(pull, 12)])
    if flat:
        trust = "degenerate: the resampled value does not vary, so the interval shows no uncertainty"
    remark = f"{lost} resamples with an empty denominator left out" if lost else None
    reason = "; ".join(text for text in (trust, remark) if text) or None
    counts = (options.level, n, None, Method.MONTECARLO, options.resamples)
    return Estimate(value, low, high, *counts, flat, trust is None, reason)
