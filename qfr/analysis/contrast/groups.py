"""Contrasts of more than two cells: named groups of presets, and differences of differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qfr.analysis.contrast.decomposition import POINTS
from qfr.analysis.streams import stream
from qfr.analysis.targets import Target, TaskTable, full_rates, recovery, shared_tasks
from qfr.errors import TableError
from qfr.stats import bootstrap, intervals, lattice
from qfr.stats.bayesian import BayesianInterval, interval
from qfr.stats.exact import FisherResult, PairedTest, fisher, sign_flip_test, sign_test
from qfr.stats.intervals import Estimate
from qfr.stats.lattice import Lattice


@dataclass(frozen=True)
class GroupContrast:
    """Mean of one group of cells minus mean of another over the same tasks."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    # Names of the cells.
    tasks: tuple[str, ...]
    # Tasks that enter.
    difference: Estimate
    # Fractions; None with the reason where not estimable.
    bayesian: BayesianInterval
    # The interval that words rest on, in fractions.
    sign: PairedTest
    signflip: PairedTest

    @property
    def points(self) -> float | None:
        """The difference in points."""
        return None if self.difference.value is None else POINTS * self.difference.value


def group_contrast(
    first: Sequence[TaskTable],
    second: Sequence[TaskTable],
    options: intervals.Options = bootstrap.DEFAULT,
    seed: int = 0,
) -> GroupContrast:
    """Contrast two groups of presets on the tasks that every member of both certified (Hu 2026, appendix A).

    The value of a task is its mean r over the group's members. Raises `TableError` if a group is empty or the
    cells list different tasks.
    """
    if not first or not second:
        raise TableError("a group without cells")
    members = (*first, *second)
    mask = np.logical_and.reduce([table.countable for table in members]) & shared_tasks(members)
    difference = lattice.difference(
        mean_of([recovery(table, mask) for table in first]),
        mean_of([recovery(table, mask) for table in second]),
    )
    return _result((first, second), mask, (difference, 1.0), (options, seed))


def interaction(
    upper: tuple[TaskTable, TaskTable],
    lower: tuple[TaskTable, TaskTable],
    target: Target = Target.matched,
    options: intervals.Options = bootstrap.DEFAULT,
    seed: int = 0,
) -> GroupContrast:
    """Difference of differences ``(upper[0] - upper[1]) - (lower[0] - lower[1])``, such as prompt by preset.

    Parameters
    ----------
    upper, lower : pairs of TaskTable
        For example Q8_0 and Q4_K_M under P0, and the same under P4.
    target : Target
        ``matched``: tasks certified by all four cells; ``full``: all tasks, uncertified ones count 0.

    Raises
    ------
    TableError
        If the target is another one, or the cells list different tasks.
    """
    members = (*upper, *lower)
    mask = shared_tasks(members)
    if target is Target.matched:
        mask = mask & np.logical_and.reduce([table.countable for table in members])
        values = [recovery(table, mask) for table in members]
    elif target is Target.full:
        mask = np.ones_like(mask)
        values = [full_rates(table, mask) for table in members]
    else:
        raise TableError(f"no difference of differences for the target {target}", hint="use matched or full")
    difference = lattice.difference(
        lattice.difference(values[0], values[1]), lattice.difference(values[2], values[3])
    )
    groups = ((upper[0], lower[1]), (upper[1], lower[0]))
    return _result(groups, mask, (difference, 2.0), (options, seed))


def pooled_test(first: Sequence[TaskTable], second: Sequence[TaskTable]) -> FisherResult:
    """Fisher's exact test of the pooled fault episodes of two groups, each cell on its own certified tasks.

    Hu 2026 (appendix A) pools so; the result carries the warning that episodes of one task are dependent.
    """
    counts = [
        (
            sum(int(table.successes[table.countable].sum()) for table in group),
            sum(int(table.delivered[table.countable].sum()) for table in group),
        )
        for group in (first, second)
    ]
    return fisher(*counts[0], *counts[1])


def mean_of(samples: Sequence[Lattice]) -> Lattice:
    """Return the mean of several samples task by task; all list the same tasks."""
    total = samples[0]
    for sample in samples[1:]:
        one, other = lattice.common(total, sample)
        total = Lattice(one.numerators + other.numerators, one.denominator)
    return Lattice(total.numerators, total.denominator * len(samples))


def _result(
    groups: tuple[Sequence[TaskTable], Sequence[TaskTable]],
    mask: lattice.BoolArray,
    limited: tuple[Lattice, float],
    drawing: tuple[intervals.Options, int],
) -> GroupContrast:
    """Estimate and test differences; `limited` holds them and the largest that a task can have."""
    names = tuple(tuple(table.key.name for table in group) for group in groups)
    tables = groups[0]
    (difference, limit), (options, seed) = limited, drawing
    rng = stream(seed, ["group", *names[0], "-", *names[1], tables[0].policy])
    return GroupContrast(
        first=names[0],
        second=names[1],
        tasks=tuple(tables[0].tasks[at] for at in np.flatnonzero(mask)),
        difference=bootstrap.mean(difference, options=options, rng=rng),
        bayesian=interval(difference, -limit, limit, options.level),
        sign=sign_test(difference),
        signflip=sign_flip_test(difference),
    )
