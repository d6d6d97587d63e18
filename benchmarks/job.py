"""The same episodes for every way of playing them: what is played, what came of it.

Needs nothing but the standard library and qfr's own rooms without an engine, so that it can be imported in
another virtual environment (Inspect AI's).
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qfr.cell import certified
from qfr.config import ExecutorKind
from qfr.engine.base import Engine, EngineInfo
from qfr.episode import Episodes, Rules
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world import orders
from qfr.world.base import Site, Task, World, sites


@dataclass(frozen=True)
class Cell:
    """A clean pass and the transient faults that follow it, for one preset and prompt."""

    preset: str
    prompt: str
    # Name of the system prompt.
    system: str
    # Its text.
    path: str
    # The GGUF.


@dataclass(frozen=True)
class Job:
    """A grid for one agent."""

    cells: tuple[Cell, ...]
    # Ordered by preset.
    families: dict[str, int]
    suite_seed: int
    grid: str
    executor: str
    step_budget: int
    error_budget: int
    max_tokens: int
    fault_code: str
    fault_message: str
    n_ctx: int
    n_batch: int
    n_threads: int
    flash_attn: bool

    @property
    def presets(self) -> tuple[str, ...]:
        """Each preset once, in order."""
        return tuple(dict.fromkeys(cell.preset for cell in self.cells))

    def of(self, preset: str) -> tuple[Cell, ...]:
        """The cells of a preset."""
        return tuple(cell for cell in self.cells if cell.preset == preset)

    def world(self) -> World:
        """The suite."""
        return orders.build(self.families, self.suite_seed, self.grid)

    def rules(self) -> Rules:
        """How episodes are played."""
        return Rules(
            executor=ExecutorKind(self.executor),
            step_budget=self.step_budget,
            error_budget=self.error_budget,
            max_tokens=self.max_tokens,
            fault_code=self.fault_code,
            fault_message=self.fault_message,
            trial=0,
        )


@dataclass(frozen=True)
class Outcome:
    """An episode that was played."""

    preset: str
    prompt: str
    task: str
    site: int
    # -1 = the clean episode.
    ending: str
    answer: str
    tolerant: bool
    strict: bool

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Which episode it is."""
        return (self.preset, self.prompt, self.task, self.site)


@dataclass(frozen=True)
class Measured:
    """One way, one round."""

    command_seconds: float
    # Of the whole command: imports, loading, closing tables and all.
    cpu_seconds: float
    # User and system time of all its processes.
    episode_seconds: float
    # From the first episode to the last, per model file, loading left out.
    episode_cpu: float | None
    # Processor time of the same stretch, all processes together; None where the way does not tell.
    engine_seconds: float | None
    # In `llama_decode`; None where the way does not tell.
    evaluated: int | None
    # Tokens that went through the model.
    generated: int
    # Tokens that it wrote.
    peak_bytes: int
    # Resident memory of all its processes together, at most.
    outcomes: tuple[Outcome, ...]


def outcome(cell: Cell, episode: Episode) -> Outcome:
    """An episode's result."""
    tolerant, strict = (score(episode, policy).success for policy in (Policy.tolerant, Policy.strict))
    site = -1 if episode.trace is None else episode.trace.site
    return Outcome(
        cell.preset,
        cell.prompt,
        episode.task,
        site,
        str(episode.ending),
        str(episode.answer),
        tolerant,
        strict,
    )


def play_cell(job: Job, cell: Cell, engine: Engine, world: World) -> list[Outcome]:
    """The clean pass over all tasks, then every site of the certified ones, in the order of the suite."""
    episodes = Episodes(engine, world, cell.system, job.rules())
    clean = [episodes.play("", task, FaultKind.none, None) for task in world.tasks]
    played = [outcome(cell, episode) for episode in clean]
    for task, first in zip(world.tasks, clean, strict=True):
        if certified(first):
            for site in sites(task, FaultKind.et):
                played.append(outcome(cell, episodes.play("", task, FaultKind.et, site)))
    return played


def faults_of(world: World, passed: set[str]) -> list[tuple[Task, Site]]:
    """Every site of the certified tasks."""
    return [(task, site) for task in world.tasks if task.id in passed for site in sites(task, FaultKind.et)]


def play_job(job: Job, open_engine: Callable[[str], Engine]) -> tuple[list[Outcome], float, float]:
    """All cells, one engine per preset; wall and processor seconds of the episodes, loading left out."""
    world, played, seconds, busy = job.world(), list[Outcome](), 0.0, 0.0
    for preset in job.presets:
        engine = open_engine(job.of(preset)[0].path)
        started, before = time.perf_counter(), time.process_time()
        for cell in job.of(preset):
            played += play_cell(job, cell, engine, world)
        seconds += time.perf_counter() - started
        busy += time.process_time() - before
        engine.close()
    return played, seconds, busy


def write_job(job: Job, path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps(dataclasses.asdict(job)), encoding="utf-8")


def read_job(path: Path) -> Job:
    """What `write_job` wrote."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return Job(**{**plain, "cells": tuple(Cell(**cell) for cell in plain["cells"])})


def write_measured(measured: Measured, path: Path) -> None:
    """As JSON."""
    path.write_text(json.dumps(dataclasses.asdict(measured)), encoding="utf-8")


def read_measured(path: Path) -> Measured:
    """What `write_measured` wrote."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return Measured(**{**plain, "outcomes": tuple(Outcome(**one) for one in plain["outcomes"])})


def untold(kind: str) -> EngineInfo:
    """Provenance of a way of playing that does not say what answers: no thoughts, no length."""
    return EngineInfo(
        kind=kind,
        library_version="",
        llama_commit="",
        llama_commit_source="none",
        library_sha256="",
        system_info="",
        device="",
        offloaded_layers=0,
        n_ctx=0,
        model_sha256="",
        model_bytes=0,
        n_params=0,
        tensor_types=(),
        metadata=(),
        template_sha256="",
        system_role="own",
        rewind=False,
    )
