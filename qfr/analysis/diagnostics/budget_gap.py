"""The gap between two cells under a shrinking error budget, as a curve with a simultaneous band.

Jang 2026 finds a gap of 1.3 points at K = 10, 7.5 at K = 5 and 16.7 at K = 2 between two precisions whose
scores look alike. Each K is a contrast of its own, over the same tasks, so the band covers all of them at
once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from qfr.analysis.diagnostics.budget import BudgetTable, Rule, known
from qfr.analysis.targets import Target
from qfr.errors import TableError
from qfr.stats.intervals import Estimate
from qfr.stats.lattice import FloatArray
from qfr.stats.multiplicity import simultaneous


@dataclass(frozen=True)
class GapPoint:
    """The difference of two cells at one budget."""

    budget: int
    first: float | None
    second: float | None
    # Mean rates of the entering tasks.
    gap: Estimate
    # first - second, a fraction; the interval holds for all budgets at once.


@dataclass(frozen=True)
class BudgetGap:
    """S(K) of one cell minus another's, with a simultaneous band."""

    first: str
    second: str
    policy: str
    rule: Rule
    target: str
    critical: float | None
    # Half-width of the band in standard errors; None when nothing varies.
    points: tuple[GapPoint, ...]


def budget_gap(
    first: BudgetTable,
    second: BudgetTable,
    target: Target,
    *,
    rng: Generator,
    level: float = 0.95,
    resamples: int = 5_000,
) -> BudgetGap:
    """Return the difference of two cells at every budget, with a band that holds for all budgets at once.

    Parameters
    ----------
    first, second : BudgetTable
        Recounted by one rule over the same budgets; a negative gap says that the second does better.
    target : Target
        ``full`` (paired over all tasks), ``matched`` (paired over tasks that both logs certified) or ``own``.
    rng : numpy.random.Generator
    level : float
        Probability that the whole band covers.
    resamples : int

    Raises
    ------
    TableError
        If rule, policy or budgets differ, or the full target lists different tasks.
    """
    known(target, (Target.full, Target.matched, Target.own))
    if (first.rule, first.policy, first.budgets) != (second.rule, second.policy, second.budgets):
        raise TableError(
            f"{first.name} and {second.name} were recounted by other rules, policies or budgets",
            hint="build both tables with the same arguments",
        )
    tasks = tuple(dict.fromkeys((*first.tasks, *second.tasks)))
    if target is Target.full and not len(tasks) == len(first.tasks) == len(second.tasks):
        raise TableError(
            f"{first.name} and {second.name} list different tasks", hint="use the matched target"
        )
    own = Target.full if target is Target.full else Target.own
    one, other = _spread(first, own, tasks), _spread(second, own, tasks)
    if target is Target.matched:
        both = np.isfinite(one) & np.isfinite(other)
        one, other = np.where(both, one, np.nan), np.where(both, other, np.nan)
    band = simultaneous(one, other, rng=rng, level=level, resamples=resamples)
    points = tuple(
        GapPoint(budget, _mean(one[at]), _mean(other[at]), band.intervals[at])
        for at, budget in enumerate(first.budgets)
    )
    return BudgetGap(first.name, second.name, first.policy, first.rule, str(target), band.critical, points)


def _spread(table: BudgetTable, target: Target, tasks: tuple[str, ...]) -> FloatArray:
    """Rates by budget and task, shape (n_budgets, len(tasks)); nan where the task does not enter."""
    place = {task: at for at, task in enumerate(tasks)}
    columns = np.array([place[task] for task in table.tasks], dtype=np.int64)
    spread = np.full((len(table.budgets), len(tasks)), np.nan)
    mask = table.enters(target)
    for at in range(len(table.budgets)):
        spread[at, columns[mask]] = table.rates(at, target).values[mask]
    return spread


def _mean(rates: FloatArray) -> float | None:
    inside = rates[np.isfinite(rates)]
    return float(inside.mean()) if inside.size else None
