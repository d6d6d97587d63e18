"""One job: a walk over a clean pass and its fault cells, journaled, logged to MLflow, resumable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from qfr.config import CellConfig
from qfr.errors import MachineryError, ModelFileError, QfrError, TrackingError
from qfr.front.checks import build_world
from qfr.front.design import design_of
from qfr.front.engines import Shelf
from qfr.front.facts import gather
from qfr.front.outcomes import CellOutcome, JobOutcome, Status
from qfr.front.registered import marks
from qfr.front.show import console
from qfr.front.walking import PlannedRun, Walking
from qfr.identity import clean_of
from qfr.records import FaultKind
from qfr.tracking.store import open_store

# The engine that the jobs of this process share, so that one loaded model serves all its prompts.
_SHELF = Shelf()


def run_job(cell: CellConfig) -> JobOutcome:
    """Play a walk: the clean pass of `cell` and the fault kinds in `cell.walk` (its own kind when empty).

    Machinery errors come back as outcomes, so that a grid goes on; only an interruption is raised.
    """
    kinds = tuple(cell.walk) or ((cell.fault.kind,) if cell.fault.kind is not FaultKind.none else ())
    configs = [clean_of(cell)]
    configs += [dataclasses.replace(cell, fault=dataclasses.replace(cell.fault, kind=kind)) for kind in kinds]
    world = build_world(cell.suite)
    prompt = design_of(cell).prompt
    try:
        under = marks(cell, configs)
        engine, model = _SHELF.take(cell, world, prompt.text)
        store = open_store(cell.tracking.uri, Path(cell.tracking.root), cell.tracking.experiment)
        facts = [gather(one, design_of(one), engine.info, model) for one in configs]
        runs = [
            PlannedRun(one, dataclasses.replace(of_it, **dataclasses.asdict(how)))
            for one, of_it, how in zip(configs, facts, under, strict=True)
        ]
        with _alone(store.root, runs[0].facts.cell_id, runs[0].facts.name):
            outcomes = Walking(store, world, prompt, runs).run(engine)
    except (MachineryError, ModelFileError, TrackingError) as error:
        _SHELF.clear()
        return JobOutcome(_failed(configs, error))
    except KeyboardInterrupt:
        # The engine may be in the middle of an answer: it cannot be used again.
        _SHELF.clear()
        raise
    if any(one.status is Status.failed for one in outcomes):
        # A dead or broken engine serves no other cell.
        _SHELF.clear()
    return JobOutcome(outcomes)


def _failed(configs: Sequence[CellConfig], error: QfrError) -> tuple[CellOutcome, ...]:
    def name(one: CellConfig) -> str:
        return f"{one.model.name} {one.quant.preset.lower()} {one.prompt.name} {one.fault.kind}"

    return tuple(
        CellOutcome(name(one), design_of(one).design_id, "", Status.failed, str(error), "") for one in configs
    )


@contextmanager
def _alone(root: Path, clean_id: str, name: str) -> Iterator[None]:
    """Hold the walk's lock; wait, and say so, while another process plays the same walk."""
    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / f"walk-{clean_id}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        console(stderr=True).print(f"{name}: another process plays this cell; waiting for it", markup=False)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
