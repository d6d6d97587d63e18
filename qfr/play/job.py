"""One job: a walk over a clean pass and its fault cells, journaled, logged to MLflow, resumable."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from qfr.config import CellConfig
from qfr.engine.base import Engine
from qfr.errors import MachineryError, ModelFileError, QfrError, TrackingError
from qfr.grid.checks import build_world, part_of
from qfr.grid.design import design_of
from qfr.grid.grid import name_of
from qfr.grid.outcomes import CellOutcome, JobOutcome, Status
from qfr.grid.show import console
from qfr.identity import clean_of
from qfr.play.cell_group import Walking
from qfr.play.cell_run import PlannedRun
from qfr.play.engine_cache import Shelf, repeated
from qfr.play.recording import Recording
from qfr.play.run_facts import gather
from qfr.play.sharing import walk_lock
from qfr.play.timings import MODELS, SPENT
from qfr.records import FaultKind
from qfr.registration.record_reader import is_id
from qfr.registration.run_under import marks

# What the jobs of this process share, so that one loaded model serves all its prompts.
_SHELF = Shelf()


def run_job(cell: CellConfig) -> JobOutcome:
    """Play a walk: the clean pass of `cell` and the fault kinds in `cell.walk` (its own kind when empty).

    Machinery errors come back as outcomes, so that a grid goes on; only an interruption is raised.
    """
    kinds = tuple(cell.walk) or ((cell.fault.kind,) if cell.fault.kind is not FaultKind.none else ())
    configs = [clean_of(cell)]
    configs += [dataclasses.replace(cell, fault=dataclasses.replace(cell.fault, kind=kind)) for kind in kinds]
    try:
        return JobOutcome(_run(cell, configs), SPENT.take())
    except (MachineryError, ModelFileError, TrackingError) as error:
        _SHELF.clear()
        return JobOutcome(_failed(configs, error), SPENT.take())
    except KeyboardInterrupt:
        # The engine may be in the middle of an answer: it cannot be used again.
        _SHELF.clear()
        raise


def _run(cell: CellConfig, configs: Sequence[CellConfig]) -> tuple[CellOutcome, ...]:
    world, design = build_world(cell.suite), design_of(cell)
    names = [name_of(one) for one in configs]
    designs = [design_of(one).design_id for one in configs]
    recording = Recording(cell.tracking, design.clean_design_id, _say)
    with walk_lock(recording.root, design.clean_design_id) as holder:
        # Before a model loads: it may be hours until the walk is free.
        holder = holder or recording.held_elsewhere(names[0], designs, asked_registration(cell))
        if holder:
            _say(f"{names[0].removesuffix(' none')}: left alone for now: {holder}")
            return tuple(
                CellOutcome(name, id_, "", Status.elsewhere, holder, "")
                for name, id_ in zip(names, designs, strict=True)
            )
        under = recording.wait_for(f"{names[0]}: its registration", lambda: marks(cell, configs))
        with SPENT.on(MODELS):
            engine, model = _SHELF.take(cell, world, design.prompt.text)
        if model is not None:
            recording.watch(model.path)
        repeat = repeated(engine, cell, world, design.prompt.text)
        facts = [gather(one, design_of(one), engine.info, model, repeat) for one in configs]
        runs = [
            PlannedRun(one, dataclasses.replace(of_it, **dataclasses.asdict(how)))
            for one, of_it, how in zip(configs, facts, under, strict=True)
        ]
        outcomes = Walking(recording, part_of(world, cell.suite), design.prompt, runs).run(engine)
    if any(one.status is Status.failed for one in outcomes):
        # A dead or broken engine serves no other cell.
        _SHELF.clear()
    return outcomes


def load_engine(cell: CellConfig) -> Engine:
    """Load what a cell is played with; the next job of the same file and settings finds it loaded.

    Raises
    ------
    ModelFileError, MachineryError
    """
    return _SHELF.take(cell, build_world(cell.suite), design_of(cell).prompt.text)[0]


def keep_engines(most: int) -> None:
    """Keep so many models loaded from now on: files that are played in turns need not be loaded again."""
    _SHELF.keep(most)


def asked_registration(cell: CellConfig) -> str | None:
    """Id, or its beginning, of the registration that the cell runs under; "" for none, None for a file's."""
    use = cell.registration.use or ""
    return use if not use or is_id(use) else None


def _failed(configs: Sequence[CellConfig], error: QfrError) -> tuple[CellOutcome, ...]:
    return tuple(
        CellOutcome(name_of(one), design_of(one).design_id, "", Status.failed, str(error), "")
        for one in configs
    )


def _say(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)
