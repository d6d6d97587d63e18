"""The floor: the unique tokens of the tree at the speed of `llama_decode`, and nothing else.

Run by `compare.py`: ``python -m benchmarks.floor JOB OUT [--turns-at-once] OVERRIDE…``. The grid is played
once to learn which tokens are evaluated after which prefix; then those calls alone are made again and timed,
segments as one batch, turns token by token, in the order of the walk. Nothing is chosen, parsed, digested or
logged. With `--turns-at-once` a turn is one batch too: what drafting would come to if every draft were right
and free.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.composing import compose_cell, model_file
from benchmarks.job import Cell, Job, Measured, Outcome, outcome, read_job, write_measured
from qfr.cell import Track, walk
from qfr.config import EngineConfig, Gate
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.model import LoadedModel
from qfr.episode import Episodes
from qfr.records import Episode, FaultKind
from qfr.world.base import World


@dataclass(frozen=True)
class Call:
    """One `llama_decode` and where it starts."""

    position: int
    tokens: tuple[int, ...]


class Recorder:
    """Notes every call that an engine makes of its model."""

    def __init__(self, model: LoadedModel) -> None:
        self.calls: list[Call] = []
        decode = model.decode

        def recording(tokens: Sequence[int]) -> NDArray[np.float32]:
            self.calls.append(Call(model.length(), tuple(tokens)))
            return decode(tokens)

        # The instance's own attribute hides the method.
        model.__dict__["decode"] = recording


def play_cell(job: Job, cell: Cell, engine: LlamaEngine, world: World) -> list[Outcome]:
    """A walk: its episodes' results."""
    played: list[Outcome] = []

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        played.append(outcome(cell, episode))

    clean = Track("", FaultKind.none, Gate.certified, {})
    faults = (Track("", FaultKind.et, Gate.certified, {}),)
    walk(Episodes(engine, world, cell.system, job.rules()), clean, faults, record)
    return played


def play(job: Job, preset: str, file: ModelFile, config: EngineConfig) -> tuple[list[Call], list[Outcome]]:
    """The walks of one preset, played in this process."""
    engine = LlamaEngine(file, config, job.n_ctx, LlamaLog())
    recorder, world = Recorder(engine._model), job.world()
    played = [one for cell in job.of(preset) for one in play_cell(job, cell, engine, world)]
    counters = engine.counters()
    if not counters.evaluated == counters.tree == sum(len(call.tokens) for call in recorder.calls):
        raise SystemExit(f"{counters.evaluated} tokens were evaluated, the tree has {counters.tree}")
    engine.close()
    return recorder.calls, played


def at_once(calls: Sequence[Call]) -> list[Call]:
    """The calls with each turn as one: single tokens that follow each other are put together."""
    joined: list[Call] = []
    turn = False
    for call in calls:
        single = len(call.tokens) == 1
        if turn and single and call.position == joined[-1].position + len(joined[-1].tokens):
            joined[-1] = Call(joined[-1].position, joined[-1].tokens + call.tokens)
        else:
            joined.append(call)
        turn = single
    return joined


def replay(calls: Sequence[Call], file: ModelFile, config: EngineConfig, n_ctx: int) -> tuple[float, float]:
    """Wall and processor seconds of the calls alone."""
    model = LoadedModel(file.path, config, n_ctx, LlamaLog())
    model.decode(calls[0].tokens)
    model.clear()
    started, before, length = time.perf_counter(), time.process_time(), 0
    for call in calls:
        if call.position != length:
            model.rewind(call.position)
        model.decode(call.tokens)
        length = call.position + len(call.tokens)
    seconds, busy = time.perf_counter() - started, time.process_time() - before
    model.close()
    return seconds, busy


def main(job_path: str, out: str, overrides: Sequence[str], *, turns_at_once: bool) -> None:
    """Measure a job's floor."""
    job = read_job(Path(job_path))
    seconds, busy, evaluated, generated = 0.0, 0.0, 0, 0
    outcomes: list[Outcome] = []
    for preset in job.presets:
        cell = compose_cell([*overrides, f"quant={preset.lower()}"])
        file = model_file(cell)
        calls, played = play(job, preset, file, cell.engine)
        outcomes += played
        wall, cpu = replay(at_once(calls) if turns_at_once else calls, file, cell.engine, job.n_ctx)
        seconds, busy = seconds + wall, busy + cpu
        evaluated += sum(len(call.tokens) for call in calls)
        generated += sum(len(call.tokens) == 1 for call in calls)
    whole = Measured(seconds, busy, seconds, busy, seconds, evaluated, generated, 0, tuple(outcomes))
    write_measured(whole, Path(out))


if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.argv[2],
        [word for word in sys.argv[3:] if word != "--turns-at-once"],
        turns_at_once="--turns-at-once" in sys.argv,
    )
