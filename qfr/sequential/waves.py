"""One wave of tasks of one arm: played through the ordinary grid, or read back where it is finished."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.analysis.frames import task_table
from qfr.analysis.targets import TaskTable
from qfr.canonical import digest
from qfr.config import CellConfig, FileConfig, QuantConfig
from qfr.errors import MachineryError
from qfr.front.sweep import left_running, register_sweep
from qfr.grid.design import design_of
from qfr.grid.grid import Grid, Point, build_grid
from qfr.grid.outcomes import Status
from qfr.identity import clean_of
from qfr.play.job import run_job
from qfr.records import Policy
from qfr.scoring import SCORER_VERSION
from qfr.sequential.files import Arm
from qfr.tracking.reading.cells import LoggedCell, load_cell
from qfr.tracking.reading.search import candidates
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.claims import Claimant, Heartbeat
from qfr.tracking.writing.sweep import close_sweep, kill_sweep
from qfr.tracking.writing.sweep_runs import UsedRun, settle_runs

#: Tasks of a wave: nothing can be shown of five points before the third.
WAVE = 30


@dataclass(frozen=True)
class Wave:
    """One arm on one wave of tasks."""

    table: TaskTable
    tokens_per_second: float | None
    memory_bytes: int | None
    # Peak resident size of the engine's process.
    seconds: float
    # That it took to play.


def waves_of(families: Mapping[str, int]) -> int:
    """Return into how many waves a suite is dealt: each holds the families in the suite's own proportions."""
    counts = [count for count in families.values() if count]
    shared, most = math.gcd(*counts), max(1, sum(counts) // WAVE)
    return max(count for count in range(1, shared + 1) if shared % count == 0 and count <= most)


def cell_of(base: CellConfig, family: str, arm: Arm, wave: int, waves: int, sweep: str) -> CellConfig:
    """Return the cell that plays a wave (from 1 on) of an arm: everything but the file is the base's."""
    file = FileConfig(arm.path.name, arm.sha256, arm.bytes)
    model = dataclasses.replace(
        base.model,
        name=family,
        path=None,
        base=None,
        package=None,
        repo_id=None,
        derive_from=None,
        folder=str(arm.path.parent.absolute()),
        files={arm.preset: file},
    )
    return dataclasses.replace(
        base,
        model=model,
        quant=QuantConfig(arm.preset, None),
        suite=dataclasses.replace(base.suite, shard=f"{wave}/{waves}" if waves > 1 else None),
        walk=[base.fault.kind],
        sweep=sweep,
    )


class Player:
    """Plays waves under one sweep of MLflow. Repeated, it finds what it played before.

    Parameters
    ----------
    base : CellConfig
        Prompt, suite, fault, executor, engine and tracking of all arms.
    family : str
    arms : sequence of Arm
    say : callable
        Takes a line for the user.
    """

    def __init__(
        self, base: CellConfig, family: str, arms: Sequence[Arm], say: Callable[[str], None]
    ) -> None:
        self._base, self._family, self._say = base, family, say
        self.waves = waves_of(base.suite.families)
        first = [cell_of(base, family, arm, 1, self.waves, "") for arm in arms]
        designs = [design_of(cell).design_id for cell in first]
        self.sweep = f"s-try-{digest(designs)[:12]}"
        self._grid = _grid([dataclasses.replace(cell, sweep=self.sweep) for cell in first])
        self._used: list[UsedRun] = []
        self._store: Store
        self._run: str
        self._who: Claimant

    @property
    def store(self) -> Store:
        """Where runs are kept, once `open` was called."""
        return self._store

    @property
    def run_id(self) -> str:
        """MLflow's id of the sweep's run."""
        return self._run

    def open(self) -> None:
        """Create the store and the sweep's run, or find them."""
        self._store, self._run, self._who = register_sweep(self._grid, self.sweep, f"try {self._family}")

    def close(self, *, killed: bool = False) -> None:
        """List the runs that were used and end the sweep's run."""
        settle_runs(self._store, self.sweep, self._used)
        if killed:
            kill_sweep(self._store, self._run)
        else:
            close_sweep(self._store, self._run, ok=True)

    def wave(self, arm: Arm, number: int) -> Wave:
        """Return an arm's results on a wave, played now or before.

        Raises
        ------
        MachineryError
            It cannot be played.
        """
        cell = cell_of(self._base, self._family, arm, number, self.waves, self.sweep)
        found = self._held(cell)
        if found is None:
            grid = _grid([cell])
            left_running(self._store, grid, self._who)
            with Heartbeat(self._store, [self._run], self._who):
                outcome = run_job(cell)
            found = self._held(cell)
            if found is None:
                bad = next(
                    one for one in outcome.cells if one.status not in (Status.finished, Status.skipped)
                )
                raise MachineryError(bad.reason or str(bad.status), where=str(arm.path))
        fault, clean = found
        for one in found:
            self._used.append(UsedRun(one.facts.design_id, one.facts.cell_id, one.run_id))
        memory = fault.metrics.get("work.peak_memory_bytes")
        return Wave(
            table=task_table(fault.facts, clean.episodes, fault.episodes, Policy.tolerant),
            tokens_per_second=fault.metrics.get("work.decode_tokens_per_second"),
            memory_bytes=None if memory is None else int(memory),
            seconds=fault.metrics.get("work.wall_seconds", fault.seconds or 0.0),
        )

    def _held(self, cell: CellConfig) -> tuple[LoggedCell, LoggedCell] | None:
        """The finished fault cell and the clean pass that it belongs to; None where one is missing."""
        fault = self._newest(design_of(cell).design_id)
        clean = self._newest(design_of(clean_of(cell)).design_id)
        if fault is None or clean is None or fault.clean_log_sha256 != clean.log_sha256:
            return None
        return fault, clean

    def _newest(self, design: str) -> LoggedCell | None:
        for run in candidates(self._store, "qfr.design_id", {design}, finished=True):
            return load_cell(self._store, run, str(SCORER_VERSION))
        return None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Put the figures of a look on the sweep's run."""
        with guard(self._store.shown, self._store.tracking_uri):
            for name, value in metrics.items():
                self._store.client.log_metric(self._run, name, value, step=step)


def _grid(cells: Sequence[CellConfig]) -> Grid:
    """A checked grid of cells that are composed already."""

    def point(cell: CellConfig) -> Point:
        return Point((), {}, (), lambda: cell)

    return build_grid([point(cell) for cell in cells], lambda _: (), files_needed=True)


def cache_of(base: CellConfig) -> Path:
    """Where digests are remembered: as the engine does."""
    return Path(base.tracking.root).expanduser().absolute() / "models"
