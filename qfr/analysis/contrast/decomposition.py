"""What a full-pipeline difference is made of, and how far unseen outcomes could move a difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfr.analysis.targets import Target, TaskTable
from qfr.stats.lattice import BoolArray, FloatArray

POINTS = 100.0


@dataclass(frozen=True)
class Decomposition:
    """Two exact splits of the full-pipeline difference A minus B, in points.

    By tasks: ``shared + only_a + only_b`` (certified by both, by A only, by B only, each summed and divided
    by all tasks). By step: ``screening + own_rates`` (how many tasks are certified, and the rates on own sets
    of certified tasks, each at the average of the other factor); None where a side certified nothing. The
    sets differ, so rates on own sets may differ where no shared task recovers differently.
    """

    shared: float
    only_a: float
    only_b: float
    screening: float | None
    own_rates: float | None


@dataclass(frozen=True)
class Bounds:
    """Lowest and highest difference A minus B that unseen outcomes allow, in points."""

    low: float
    high: float


def decompose(a: TaskTable, b: TaskTable, within: BoolArray) -> Decomposition:
    """Split the full-pipeline difference over the tasks of a mask, which must not be empty."""
    n = int(within.sum())
    rates_a, rates_b = _counted_rates(a), _counted_rates(b)
    in_a, in_b = a.certified & within, b.certified & within
    screening = own_rates = None
    if in_a.any() and in_b.any():
        share_a, share_b = in_a.sum() / n, in_b.sum() / n
        mean_a, mean_b = rates_a[in_a].mean(), rates_b[in_b].mean()
        screening = _points(float((share_a - share_b) * (mean_a + mean_b) / 2))
        own_rates = _points(float((mean_a - mean_b) * (share_a + share_b) / 2))
    return Decomposition(
        shared=_points(float((rates_a - rates_b)[in_a & in_b].sum()) / n),
        only_a=_points(float(rates_a[in_a & ~in_b].sum()) / n),
        only_b=_points(-float(rates_b[in_b & ~in_a].sum()) / n),
        screening=screening,
        own_rates=own_rates,
    )


def undelivered_bounds(
    target: Target, a: TaskTable, b: TaskTable, within: BoolArray, shared: BoolArray
) -> Bounds | None:
    """Bound a difference with all undelivered faults as failures or successes, whichever moves it further.

    Returns
    -------
    Bounds or None
        None when every scheduled fault of the entering tasks fired, or when no task enters.
    """
    if target is Target.clean and not (a.repeated and b.repeated):
        return None
    ran_a, ran_b = within & (a.scheduled > 0), within & (b.scheduled > 0)
    if target is not Target.ungated:
        ran_a, ran_b = ran_a & a.certified, ran_b & b.certified
    if target in (Target.clean, Target.matched, Target.ungated, Target.s_star):
        ran_a = ran_b = ran_a & ran_b & (shared if target is Target.s_star else True)
    if not _lost(a)[ran_a].any() and not _lost(b)[ran_b].any():
        return None
    sizes = (int(within.sum()),) * 2 if target is Target.full else (int(ran_a.sum()), int(ran_b.sum()))
    if 0 in sizes:
        return None
    (low_a, high_a), (low_b, high_b) = (
        tuple(float(rates[ran].sum()) / size for rates in _extremes(table))
        for table, ran, size in ((a, ran_a, sizes[0]), (b, ran_b, sizes[1]))
    )
    return Bounds(_points(low_a - high_b), _points(high_a - low_b))


def ungated_bounds(a: TaskTable, b: TaskTable, within: BoolArray) -> Bounds | None:
    """Bound the ungated difference when faults ran on certified tasks only: the others have any rate."""
    n = int(within.sum())
    if n == 0:
        return None
    low_a, high_a = (float(rates[within].sum()) / n for rates in _open_rates(a))
    low_b, high_b = (float(rates[within].sum()) / n for rates in _open_rates(b))
    return Bounds(_points(low_a - high_b), _points(high_a - low_b))


def rate_bounds(table: TaskTable) -> tuple[Bounds, Bounds] | None:
    """Bound a cell's own and full-pipeline rates (in points) over its undelivered faults; None when none."""
    ran = table.certified & (table.scheduled > 0)
    if not _lost(table)[ran].any():
        return None
    low, high = (float(rates[ran].sum()) for rates in _extremes(table))
    n = int(ran.sum())
    return (
        Bounds(_points(low / n), _points(high / n)),
        Bounds(_points(low / table.n_tasks), _points(high / table.n_tasks)),
    )


def _points(fraction: float) -> float:
    # Ten digits hide the rounding of the sums; adding 0.0 turns -0.0 into 0.0.
    return round(POINTS * fraction, 10) + 0.0


def _counted_rates(table: TaskTable) -> FloatArray:
    """Return r where it counts and 0 elsewhere."""
    return np.where(table.countable, table.successes / np.maximum(table.delivered, 1), 0.0)


def _lost(table: TaskTable) -> BoolArray:
    return table.scheduled > table.delivered


def _extremes(table: TaskTable) -> tuple[FloatArray, FloatArray]:
    """Return r with every undelivered fault as a failure, and as a success."""
    whole = np.maximum(table.scheduled, 1)
    return table.successes / whole, (table.successes + table.scheduled - table.delivered) / whole


def _open_rates(table: TaskTable) -> tuple[FloatArray, FloatArray]:
    seen = table.certified & (table.scheduled > 0)
    low, high = _extremes(table)
    return np.where(seen, low, 0.0), np.where(seen, high, 1.0)
