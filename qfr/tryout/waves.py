"""Waves of tasks, played through the ordinary journals and store: killed and repeated, a try goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qfr.analysis.frames import task_table
from qfr.analysis.targets import TaskTable
from qfr.config import CellConfig
from qfr.errors import MachineryError
from qfr.grid.outcomes import Status
from qfr.play.job import run_job
from qfr.records import Policy
from qfr.scoring import SCORER_VERSION
from qfr.stats.lattice import FloatArray
from qfr.tracking.reading.cells import LoggedCell, load_cell
from qfr.tracking.store import Store, open_store


@dataclass(frozen=True)
class Wave:
    """What one file did on one wave."""

    rates: FloatArray
    # Full pipeline: one value in 0..1 a task, in the suite's order; a fault that never fired is a failure.
    most: FloatArray
    # The same, had every fault that never fired been a success.
    certified: int
    seconds: float
    # Wall time when it was played.
    tokens_per_second: float | None
    memory_bytes: int | None


class Waves:
    """Plays waves of one file, each once.

    Parameters
    ----------
    cell : CellConfig
        The whole cell; a wave is a shard of it.
    count : int
        Waves of the whole suite.
    """

    def __init__(self, cell: CellConfig, count: int) -> None:
        self.cell, self._count = cell, count
        self._played: dict[int, Wave] = {}
        self._store: Store | None = None

    @property
    def played(self) -> tuple[Wave, ...]:
        return tuple(self._played[at] for at in sorted(self._played))

    def wave(self, number: int) -> Wave:
        """The wave of this number, from 1 on: played now, or read where the store holds it.

        Raises
        ------
        MachineryError
            It could not be played; what of it was stays in the journal.
        """
        if number not in self._played:
            shard = f"{number}/{self._count}" if self._count > 1 else None
            self._played[number] = self._play(replace(self.cell, suite=replace(self.cell.suite, shard=shard)))
        return self._played[number]

    def _play(self, cell: CellConfig) -> Wave:
        outcome = run_job(cell)
        runs = []
        for one in outcome.cells:
            if one.status not in (Status.finished, Status.skipped):
                raise MachineryError(
                    f"{one.name}: {one.status}: {one.reason}",
                    hint="the same command goes on where it stopped",
                )
            runs.append(one.run_id)
        clean, fault = (self._load(run_id) for run_id in runs)
        table = task_table(fault.facts, clean.episodes, fault.episodes, Policy.tolerant)
        rates, most = full_bounds(table)
        memory = fault.metrics.get("work.peak_memory_bytes")
        return Wave(
            rates=rates,
            most=most,
            certified=table.n_certified,
            seconds=fault.metrics.get("work.wall_seconds", 0.0),
            tokens_per_second=fault.metrics.get("work.decode_tokens_per_second"),
            memory_bytes=None if memory is None else int(memory),
        )

    def _load(self, run_id: str) -> LoggedCell:
        if self._store is None:
            tracking = self.cell.tracking
            self._store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
        return load_cell(self._store, self._store.client.get_run(run_id), str(SCORER_VERSION))


def full_bounds(table: TaskTable) -> tuple[FloatArray, FloatArray]:
    """Rates of the full pipeline with the faults that never fired as failures, and as successes."""
    runs = np.maximum(table.scheduled, 1)
    counted = table.certified & (table.scheduled > 0)
    missed = table.scheduled - table.delivered
    least = np.where(counted, table.successes / runs, 0.0)
    return least, np.where(counted, (table.successes + missed) / runs, 0.0)
