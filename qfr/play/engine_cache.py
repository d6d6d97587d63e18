"""Opening engines: a loaded model is kept while the next cells use the same file and settings."""

from __future__ import annotations

import hashlib
from pathlib import Path

from qfr.config import CellConfig, EngineKind, ExecutorKind
from qfr.engine.base import Engine
from qfr.engine.files.gguf import ModelFile
from qfr.engine.files.resolve import resolve
from qfr.engine.files.vram import process_bytes
from qfr.engine.native.turn import schemas
from qfr.engine.pool import WorkerPool, on_gpu, workers_for
from qfr.engine.sampling import Sampling
from qfr.engine.scripted import Policy, ScriptedEngine, ScriptedStreams
from qfr.engine.worker import WorkerEngine
from qfr.episode import Rules
from qfr.grid.show import console
from qfr.play.exactness import assure
from qfr.play.gpus import take_gpu
from qfr.world.base import Habits, World, task_tools

# Allowances for the context that a suite needs, in tokens and bytes. Tokenizers need about one token per
# three bytes of such texts at most; digits and ids can take one token per byte.
_PROMPT_STEP, _BYTES_PER_TOKEN = 1024, 2.0
_OBSERVATION_TOKENS = 128
# Templates indent the schemas, or explain how calls are written.
_TEMPLATE_SHARE = 1.5
_ROUND = 256


def context_need(cell: CellConfig, world: World, system: str) -> int:
    """Context length that an episode of the suite needs at most, in tokens, rounded up.

    The prompt counts in steps of 1,024 tokens, so that prompts of similar length share one loaded model.
    """
    prompt = -(-len(system.encode("utf-8", "replace")) // int(_PROMPT_STEP * _BYTES_PER_TOKEN)) * _PROMPT_STEP
    task = max(len(task.text.encode()) for task in world.tasks) / _BYTES_PER_TOKEN
    turns = cell.suite.step_budget * (cell.executor.max_tokens + _OBSERVATION_TOKENS)
    return -(-int(prompt + task + turns + _tools(cell, world)) // _ROUND) * _ROUND


def _tools(cell: CellConfig, world: World) -> float:
    """Tokens of the tools as a native template shows them, at most."""
    if cell.executor.kind is not ExecutorKind.native:
        return 0.0
    most = max(len(schemas(task_tools(world, task)).encode()) for task in world.tasks)
    return _TEMPLATE_SHARE * most / _BYTES_PER_TOKEN


def _say(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)


class Shelf:
    """Holds the engines used last: one, or as many as it is told to keep."""

    def __init__(self) -> None:
        self._most = 1
        self._held: dict[tuple[object, ...], Engine] = {}
        # The one used last comes last.

    def take(self, cell: CellConfig, world: World, system: str) -> tuple[Engine, ModelFile | None]:
        """The engine for a cell: the one that stands here, or a new one (the old one is closed first).

        Raises
        ------
        ModelFileError, MachineryError
        """
        if cell.engine.kind is EngineKind.scripted:
            self.clear()
            policy, streams = scripted_policy(cell, world), cell.engine.streams
            return ScriptedStreams(policy, streams) if streams > 1 else ScriptedEngine(policy), None
        if cell.engine.kind is EngineKind.openai:
            sampling = Sampling.of(cell.engine, "")
            key: tuple[object, ...] = (repr(cell.engine.server), cell.engine.seed, sampling)
            if key not in self._held:
                from qfr.engine.openai.engine import OpenAIEngine

                self._drop(self._most - 1)
                self._held[key] = OpenAIEngine(cell.engine.server, cell.engine.seed, sampling=sampling)
            return self._use(key), None
        take_gpu(cell.engine.gpus, _say)
        model = resolve(cell.model, cell.quant, Path(cell.tracking.root) / "models")
        n_ctx = cell.engine.n_ctx or context_need(cell, world, system)
        key = (model.path, model.sha256, repr(cell.engine), n_ctx)
        known = self._held.get(key)
        if isinstance(known, WorkerPool) and not known.whole:
            self._held.pop(key).close()
        if key not in self._held:
            self._drop(self._most - 1)
            self._held[key] = loaded = WorkerPool(model, cell.engine, n_ctx)
            assure(loaded, cell.engine, Path(cell.tracking.root), _say)
            for note in loaded.info.notes():
                _say(f"{cell.model.name}: chat template: {note}")
        return self._use(key), model

    def keep(self, most: int) -> None:
        """Keep so many from now on, at least one."""
        self._most = most
        self._drop(most)

    def clear(self) -> None:
        """Close all engines. A dead or interrupted one is only forgotten."""
        held, self._held = self._held, {}
        for engine in held.values():
            engine.close()

    def _use(self, key: tuple[object, ...]) -> Engine:
        engine = self._held[key] = self._held.pop(key)
        return engine

    def _drop(self, most: int) -> None:
        """Close those that were not used for longest, until so many are left."""
        while len(self._held) > most:
            self._held.pop(next(iter(self._held))).close()


def players(engine: Engine, cell: CellConfig, tasks: int) -> list[Engine]:
    """Engines that can play so many tasks: a server's as many as the cell asks for, a pool's workers.

    Further workers are loaded here, where there is something to play.
    """
    if cell.engine.kind is EngineKind.openai:
        from qfr.engine.openai.engine import OpenAIEngine

        assert isinstance(engine, OpenAIEngine)
        return [engine.another() for _ in range(cell.engine.server.concurrency)]
    if not isinstance(engine, WorkerPool):
        return [engine]
    if cell.engine.workers or not on_gpu(engine.info):
        engine.grow(workers_for(cell.engine, tasks), _say)
    return list(engine.members)


def repeated(engine: Engine, cell: CellConfig, world: World, system: str) -> str:
    """What a repeated episode of a served model showed; empty for engines in process."""
    if cell.engine.kind is not EngineKind.openai:
        return ""
    from qfr.engine.openai.engine import OpenAIEngine
    from qfr.play.repeats import repeat_of

    assert isinstance(engine, OpenAIEngine)
    server = cell.engine.server
    return repeat_of(engine, server.concurrency, world, system, rules_of(cell), server.base_url)


def rules_of(cell: CellConfig) -> Rules:
    """What the cell's episodes are played by."""
    return Rules(
        executor=cell.executor.kind,
        step_budget=cell.suite.step_budget,
        error_budget=cell.suite.error_budget,
        max_tokens=cell.executor.max_tokens,
        fault_code=cell.fault.code,
        fault_message=cell.fault.message,
        trial=cell.trial,
        fault_times=cell.fault.times,
        fault_retry_after=cell.fault.retry_after,
        thinking=cell.executor.thinking,
    )


def peak_memory(engine: Engine | None) -> int | None:
    """Largest resident size of the engine's process in bytes, None where there is none."""
    return engine.peak_memory_bytes() if isinstance(engine, WorkerEngine) else None


def device_memory(engine: Engine | None) -> int | None:
    """GPU memory of the engine's process in bytes, None where it holds none or the driver does not tell."""
    if not isinstance(engine, WorkerEngine) or not engine.info.offloaded_layers:
        return None
    return process_bytes(engine.pid)


def scripted_policy(cell: CellConfig, world: World) -> Policy:
    """The world's scripted agent, which retries a failing call as often as its preset's skill says.

    Whether it retries depends on the prompt, the preset and the task alone, so cells are reproducible.
    """
    skill = cell.engine.skill.get(cell.quant.preset, 1.0)
    tasks = {task.text: task for task in reversed(world.tasks)}

    def policy(system: str, task: str, transcript: tuple[tuple[str, str], ...]) -> str:
        seed = hashlib.sha256(f"{system}\0{task}\0{cell.trial}".encode("utf-8", "replace")).digest()
        draw = int.from_bytes(seed[:8], "big") / 2**64
        return world.next_turn(tasks[task], transcript, Habits(attempts=3 if draw < skill else 1))

    return policy
