"""Which runs belong to a sweep: those that it made, and those that it found finished and used.

A run that the sweep made carries its id. The runs that it used are listed in `runs.json` of the sweep's own
run, written when the sweep is closed. Neither a later run of the same cells nor an older run of another build
or file belongs to it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlflow.entities import Run

from qfr.canonical import canonical
from qfr.errors import TrackingError
from qfr.tracking.reading.artifacts import list_artifacts, read_artifact
from qfr.tracking.reading.search import candidates, carries, is_complete, search
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.batches import log_files
from qfr.tracking.writing.sweep import LISTS_TAG, PlannedCell, find_sweep, read_plan

RUNS_FILE = "runs.json"


@dataclass(frozen=True)
class UsedRun:
    """A finished run that a sweep made or used."""

    design_id: str
    cell_id: str
    run_id: str
    # Empty while it is not known: MLflow was away as the sweep looked.
    log_sha256: str = ""
    registration: str = ""


@dataclass(frozen=True)
class SweepRuns:
    """What belongs to a sweep."""

    sweep: str
    plan: tuple[PlannedCell, ...]
    registration: str | None
    # None = it ran under none, and may have used runs of any.
    listed: tuple[UsedRun, ...] | None
    # None: the sweep was never closed, or was run before sweeps listed their runs.
    by_design: bool
    # Run before sweeps listed their runs: every finished run of its designs counts.

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one sentence each."""
        if self.listed is not None or self.by_design:
            return ()
        return (
            f"Sweep {self.sweep} was interrupted or still runs: only the runs that it made are read, not"
            " those that it found finished.",
        )

    def of(self, runs: Iterable[Run]) -> list[Run]:
        """Those of the store's runs that belong to the sweep, in the order that they come in."""
        runs = list(runs)
        if self.by_design:
            designs = {cell.design_id for cell in self.plan}
            return [
                run
                for run in runs
                if run.data.tags.get("qfr.design_id") in designs and carries(run, self.registration)
            ]
        used = {_found(one, runs) for one in self.listed or ()}
        cells = {one.cell_id for one in self.listed or ()}
        return [
            run
            for run in runs
            if run.info.run_id in used
            or (self._made(run) and not (is_complete(run) and run.data.tags.get("qfr.cell_id") in cells))
        ]

    def missing(self, finished: Iterable[str]) -> tuple[PlannedCell, ...]:
        """Planned cells whose design is not among the finished ones."""
        done = set(finished)
        return tuple(cell for cell in self.plan if cell.design_id not in done)

    def _made(self, run: Run) -> bool:
        return run.data.tags.get("qfr.sweep") == self.sweep


def _found(one: UsedRun, runs: Sequence[Run]) -> str:
    """The run's id in this store: its own, or in a store that it was imported into the oldest equal run's."""
    if any(run.info.run_id == one.run_id for run in runs):
        return one.run_id
    equal = [
        run
        for run in runs
        if is_complete(run)
        and run.data.tags.get("qfr.cell_id") == one.cell_id
        and run.data.tags.get("qfr.log_sha256") == one.log_sha256
        and carries(run, one.registration)
    ]
    return str(equal[-1].info.run_id) if equal else ""


def runs_of_sweep(store: Store, sweep: str) -> SweepRuns:
    """What belongs to a sweep.

    Raises
    ------
    TrackingError
        No such sweep, or its plan or list of runs is gone or damaged.
    """
    run = find_sweep(store, sweep)
    listed: tuple[UsedRun, ...] | None = None
    if RUNS_FILE in list_artifacts(store, run.info.run_id, ""):
        data = read_artifact(store, run.info.run_id, run.info.artifact_uri, RUNS_FILE)
        listed = _read(data, where=f"{RUNS_FILE} of sweep {sweep}")
    return SweepRuns(
        sweep,
        read_plan(store, sweep),
        run.data.tags.get("qfr.registration"),
        listed,
        by_design=listed is None and run.data.tags.get(LISTS_TAG) != "true",
    )


def settle_runs(store: Store, sweep: str, said: Sequence[UsedRun]) -> dict[str, UsedRun]:
    """Find the runs that a sweep made or used, list them on its own run, and return them by design.

    Parameters
    ----------
    said : sequence of UsedRun
        What its jobs finished or found finished. Those that MLflow does not hold are left out; complete runs
        that carry the sweep's id are added, for a job may have been lost after it had logged them.
    """
    run = find_sweep(store, sweep)
    under = run.data.tags.get("qfr.registration")
    made = search(store, f"tags.`qfr.sweep` = '{sweep}' AND tags.`qfr.complete` = 'true'")
    held = {one.info.run_id: one for one in made if one.data.tags.get("qfr.kind") == "cell"}
    own = set(held)
    wanted = {one.cell_id: one for one in said}
    found: dict[str, UsedRun] = {}
    for one in candidates(store, "qfr.cell_id", set(wanted) - {""}, finished=True):
        asked = wanted[one.data.tags["qfr.cell_id"]]
        if one.info.run_id == asked.run_id or (not asked.run_id and carries(one, under)):
            held.setdefault(one.info.run_id, one)
    for run_id, one in held.items():
        entry = _entry(one)
        if entry.design_id not in found or run_id not in own:
            found[entry.design_id] = entry
    data = canonical([dataclasses.asdict(found[design]) for design in sorted(found)]).encode("ascii")
    with guard(store.shown, store.tracking_uri):
        log_files(store, run.info.run_id, {RUNS_FILE: data})
    return found


def settle_again(store: Store, root: Path, sweep: str, logged: Sequence[UsedRun]) -> dict[str, UsedRun]:
    """As `settle_runs`, for runs that were logged after the sweep: those that it listed, or noted, stay."""
    before = runs_of_sweep(store, sweep).listed
    return settle_runs(store, sweep, [*(noted(root, sweep) if before is None else before), *logged])


def note(root: Path, sweep: str, said: Sequence[UsedRun]) -> None:
    """Keep on disk what the jobs said, for `qfr sync`: MLflow is away."""
    path = _note(root, sweep)
    with suppress(OSError):
        # On a full disk it is lost, and sync says that the sweep's command has to be run again.
        path.parent.mkdir(exist_ok=True)
        path.write_text(canonical([dataclasses.asdict(one) for one in said]))


def noted(root: Path, sweep: str) -> tuple[UsedRun, ...]:
    """What `note` kept; nothing where there is none."""
    path = _note(root, sweep)
    return _read(path.read_bytes(), where=str(path)) if path.exists() else ()


def _note(root: Path, sweep: str) -> Path:
    return root / "sweeps" / f"{sweep}.runs.json"


def _entry(run: Run) -> UsedRun:
    tags: Mapping[str, str] = run.data.tags
    return UsedRun(
        tags.get("qfr.design_id", ""),
        tags["qfr.cell_id"],
        run.info.run_id,
        tags.get("qfr.log_sha256", ""),
        tags.get("qfr.registration", ""),
    )


def _read(data: bytes, where: str) -> tuple[UsedRun, ...]:
    names = [field.name for field in dataclasses.fields(UsedRun)]
    try:
        return tuple(UsedRun(**{name: str(raw[name]) for name in names}) for raw in json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise TrackingError(f"the list of a sweep's runs is damaged ({error})", where=where) from None
