"""When the nominal level of a percentile bootstrap interval is known to fail.

Few tasks, or tasks that nearly all share one value, make the bootstrap distribution too narrow: real coverage of a
nominal 95 % interval is then far below 95 %. The rules and the simulation behind them stand in
``docs/statistics.md`` (``benchmarks/coverage.py`` makes the table).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qfr.stats.lattice import FloatArray, IntArray

#: Fewer tasks than this: the interval is too short.
FEWEST_TASKS = 9
#: A larger share of tasks with one and the same value: the interval is too short.
LARGEST_TIED_SHARE = 0.8


def doubt(groups: Sequence[IntArray | FloatArray]) -> str | None:
    """Return why the interval of a mean (or of a mean paired difference) is unreliable, else None.

    Parameters
    ----------
    groups : sequence of arrays
        The values per task, one array per stratum.
    """
    counts: Counter[float] = Counter()
    for values in groups:
        counts.update(values.tolist())
    n = counts.total()
    if n < FEWEST_TASKS:
        return f"unreliable: {n} tasks, fewer than {FEWEST_TASKS}"
    tied = max(counts.values())
    if tied > LARGEST_TIED_SHARE * n:
        return f"unreliable: {tied} of {n} tasks share one value"
    return None


def doubt_two_sample(first: Sequence[IntArray], second: Sequence[IntArray]) -> str | None:
    """Return why the interval of a difference of two independent means is unreliable, else None."""
    one, other = doubt(first), doubt(second)
    if one is None and other is None:
        return None
    named = [f"{side} sample {text.removeprefix('unreliable: ')}" for side, text in (("first", one), ("second", other)) if text]
    return "unreliable: " + "; ".join(named)
