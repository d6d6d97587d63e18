"""qfr's walks without Hydra and MLflow: the tree, the worker process, the journal.

Run by `compare.py`: ``python -m benchmarks.walks JOB OUT OVERRIDE…``. What `run.py` takes beyond this is the
price of composing, logging and reporting; what this takes beyond the floor is the price of choosing tokens,
parsing, digests, the pipe between the processes, and the journal.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.composing import compose_cell, model_file
from benchmarks.job import Cell, Job, Measured, Outcome, outcome, read_job, write_measured
from benchmarks.processes import cpu_of
from qfr.cell import Track, walk
from qfr.config import Gate
from qfr.engine.worker import WorkerEngine
from qfr.episode import Episodes
from qfr.journal import Journal
from qfr.records import Episode, FaultKind
from qfr.world.base import World


def play_walk(job: Job, cell: Cell, engine: WorkerEngine, world: World) -> list[Outcome]:
    """One walk, journaled."""
    played: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))

        def record(_track: Track, episode: Episode, seconds: float) -> None:
            journal.append(episode, {"task": episode.task, "seconds": seconds})
            played.append(outcome(cell, episode))

        clean = Track("", FaultKind.none, Gate.certified, {})
        faults = (Track("", FaultKind.et, Gate.certified, {}),)
        walk(Episodes(engine, world, cell.system, job.rules()), clean, faults, record)
    return played


def main(job_path: str, out: str, overrides: Sequence[str]) -> None:
    """Play a job."""
    job = read_job(Path(job_path))
    world, played = job.world(), list[Outcome]()
    seconds = busy = engine_seconds = 0.0
    evaluated = generated = 0
    for preset in job.presets:
        config = compose_cell([*overrides, f"quant={preset.lower()}"])
        engine = WorkerEngine(model_file(config), config.engine, job.n_ctx)
        started, before = time.perf_counter(), time.process_time() + cpu_of(engine.pid)
        for cell in job.of(preset):
            played += play_walk(job, cell, engine, world)
        seconds += time.perf_counter() - started
        busy += time.process_time() + cpu_of(engine.pid) - before
        counters = engine.counters()
        engine_seconds += counters.prefill_seconds + counters.decode_seconds
        evaluated, generated = evaluated + counters.evaluated, generated + counters.generated
        engine.close()
    measured = Measured(0.0, 0.0, seconds, busy, engine_seconds, evaluated, generated, 0, tuple(played))
    write_measured(measured, Path(out))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
