"""What the request to repair failed calls does, and its harm: pairs of cells with and without it.

A pair differs in the executor alone (`qfr.scope`): `repair` against `tolerant`. On tasks that only the cell
without it passed it did harm, also in the clean pass, where nothing was injected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qfr.analysis.levels import Axis
from qfr.analysis.pairing import cells_of, tables_in_groups
from qfr.analysis.process import Process
from qfr.analysis.targets import CellKey, TaskTable
from qfr.choices import ExecutorKind
from qfr.records import FaultKind
from qfr.stats.lattice import BoolArray


@dataclass(frozen=True)
class Changed:
    """Tasks on which two cells differ."""

    tasks: int
    # All that were compared.
    won: int
    # Better with the request.
    lost: int
    # Worse with it.


@dataclass(frozen=True)
class Cost:
    """Means per episode without and with the request; None where there is no episode."""

    without: float | None
    with_it: float | None


@dataclass(frozen=True)
class Repair:
    """A pair of cells under one policy."""

    key: CellKey
    # Executor is empty.
    policy: str
    faulted: Changed
    # Tasks by their successes over the same faults: those that both cells certified.
    clean: Changed
    # Tasks by their clean pass.
    turns: Cost
    tokens: Cost
    # Generated, of fault episodes.
    clean_turns: Cost
    # Of clean episodes.
    cells: tuple[str, ...]
    # cell_ids of both, clean passes included.


def repairs(tables: Iterable[TaskTable], processes: Sequence[Process]) -> tuple[Repair, ...]:
    """Pair every cell with the request with the one that differs in the executor alone."""
    by_cell = {one.cell_id: one for one in processes}
    found = []
    usable = [table for table in tables if table.key.fault != FaultKind.none]
    for group in tables_in_groups(usable, (Axis.executor,)):
        members = {table.key.executor: table for table in group.members}
        with_it, without = members.get(ExecutorKind.repair), members.get(ExecutorKind.tolerant)
        if with_it is not None and without is not None and with_it.tasks == without.tasks:
            found.append(_repair(with_it, without, by_cell))
    return tuple(found)


def _repair(with_it: TaskTable, without: TaskTable, by_cell: dict[str, Process]) -> Repair:
    both = with_it.certified & without.certified
    more, less = with_it.successes > without.successes, with_it.successes < without.successes
    only, missing = with_it.certified & ~without.certified, without.certified & ~with_it.certified
    pair = [[by_cell.get(cell) for cell in table.cells] for table in (without, with_it)]
    faulted = [cells[0] if cells else None for cells in pair]
    clean = [cells[1] if len(cells) > 1 else None for cells in pair]
    return Repair(
        key=without.key,
        policy=without.policy,
        faulted=_changed(both, more & both, less & both),
        clean=_changed(np.ones_like(both), only, missing),
        turns=Cost(*(None if one is None else _mean(one.turns, one) for one in faulted)),
        tokens=Cost(*(None if one is None else _mean(one.tokens_generated, one) for one in faulted)),
        clean_turns=Cost(*(None if one is None else _mean(one.turns, one) for one in clean)),
        cells=cells_of((without, with_it)),
    )


def _changed(tasks: BoolArray, won: BoolArray, lost: BoolArray) -> Changed:
    return Changed(int(tasks.sum()), int(won.sum()), int(lost.sum()))


def _mean(total: int, one: Process) -> float | None:
    return total / one.episodes if one.episodes else None
