"""Checks of one cell that its dataclasses cannot make alone: values that rooms know, and fields that hang
together."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec

from qfr.canonical import canonical
from qfr.config import (
    PRESET_BITS,
    SERVED_BITS,
    CellConfig,
    EngineKind,
    ExecutorKind,
    Mode,
    SuiteConfig,
    Thinking,
)
from qfr.errors import ConfigError, TableError, did_you_mean
from qfr.scope import check_axis
from qfr.shards import one_shard
from qfr.stats.intervals import Method
from qfr.world import finding
from qfr.world.base import PartOfWorld, Suite, Task, World, suite_sha256

# llama.cpp's types of a KV cache.
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def check_cell(cell: CellConfig) -> None:
    """Check values and combinations.

    Raises
    ------
    ConfigError
        Names key, value, choices and what to write instead.
    """
    try:
        check_axis(cell.report.vary, ("memory",))
    except TableError as error:
        raise ConfigError(f"report.vary: {error.what}", hint=error.hint) from None
    _among("report.method", cell.report.method, tuple(map(str, Method)))
    _among("engine.type_k", cell.engine.type_k, CACHE_TYPES)
    _among("engine.type_v", cell.engine.type_v, CACHE_TYPES)
    for key, value, low in (
        ("trial", cell.trial, 0),
        ("engine.main_gpu", cell.engine.main_gpu, 0),
        ("engine.n_gpu_layers", cell.engine.n_gpu_layers, -1),
        ("engine.seed", cell.engine.seed, 0),
        ("report.seed", cell.report.seed, 0),
    ):
        if value < low:
            raise ConfigError(f"{key}={value} is too small", hint=f"use an integer of at least {low}")
    if not cell.tracking.experiment.strip():
        raise ConfigError("tracking.experiment is empty", hint="give the MLflow experiment a name")
    report = cell.report
    if report.family or report.groups or report.against is not None or report.out is not None:
        from qfr.grid.report_checks import check_report

        check_report(report)
    _check_registration(cell)
    _check_engine(cell)
    _check_shard(cell)
    executor = cell.executor
    if executor.thinking is not Thinking.template and executor.kind is not ExecutorKind.native:
        raise ConfigError(
            f"executor.thinking={executor.thinking} is for executor=native",
            hint="the text protocol shows earlier turns as the chat template does",
        )


def _check_registration(cell: CellConfig) -> None:
    """Each key belongs to one mode: a title in a plain run would look registered without being so."""
    wanted, registering = cell.registration, cell.mode is Mode.register
    if registering and wanted.use is not None:
        raise ConfigError(
            "registration.use is for running; mode=register makes a new registration", hint="leave one out"
        )
    if registering and not (wanted.title or "").strip():
        raise ConfigError(
            "registration.title is missing", hint='mode=register needs registration.title="what is asked"'
        )
    if cell.mode is Mode.run and (wanted.title is not None or wanted.hypotheses is not None):
        raise ConfigError(
            "registration.title and registration.hypotheses register a grid, and this command would run it",
            hint="mode=register freezes it; registration.use=r-… runs what was frozen",
        )
    if wanted.deviation is not None and (wanted.use is None or not wanted.deviation.strip()):
        raise ConfigError(
            "registration.deviation says why a run is not what was frozen",
            hint="give the reason, and the registration: registration.use=r-…",
        )


def _check_shard(cell: CellConfig) -> None:
    if cell.suite.shard is None:
        return
    if cell.mode is Mode.register or cell.registration.use is not None:
        raise ConfigError(
            f"suite.shard={cell.suite.shard}: a registered grid is played in whole cells",
            hint="leave suite.shard out; a registration freezes cells, and each is to be there once",
        )
    if cell.engine.streams > 1:
        raise ConfigError(
            f"suite.shard={cell.suite.shard} with engine.streams={cell.engine.streams}: a shard would be "
            "decoded in other batches than the whole cell",
            hint="use engine.streams=1, or play whole cells",
        )


def _check_engine(cell: CellConfig) -> None:
    engine, model = cell.engine, cell.model
    for preset, skill in engine.skill.items():
        if not 0 <= skill <= 1:
            raise ConfigError(
                f"engine.skill.{preset}={skill} is not a probability", hint="use a number from 0 to 1"
            )
    if engine.kind is EngineKind.openai:
        if engine.streams > 1:
            raise ConfigError(
                f"engine.streams={engine.streams}: a server makes its own batches",
                hint="engine.server.concurrency=N plays N tasks at the same time",
            )
        if engine.server.base_url is None:
            raise ConfigError(
                "engine=openai needs the server's address",
                hint="engine.server.base_url=http://host:port/v1 engine.server.model=NAME",
            )
        if engine.streams != 1:
            raise ConfigError(
                f"engine.streams={engine.streams} is for engines in process",
                hint="a server batches as it likes; engine.server.concurrency plays several tasks at a time",
            )
        if find_spec("openai") is None:
            raise ConfigError(
                "engine=openai needs the Python package openai", hint="pip install 'qfr[openai]'"
            )
        return
    if cell.quant.preset in SERVED_BITS and engine.kind is EngineKind.llama_cpp:
        raise ConfigError(
            f"quant.preset={cell.quant.preset} is not a preset of llama.cpp",
            hint="servers run it: engine=openai engine.server.base_url=…; llama.cpp knows "
            + ", ".join(PRESET_BITS),
        )
    if engine.kind is EngineKind.scripted:
        if engine.skill and cell.quant.preset not in engine.skill:
            raise ConfigError(
                f"the scripted engine has no skill for quant.preset={cell.quant.preset}"
                + did_you_mean(cell.quant.preset, engine.skill),
                hint=f"presets with a skill: {', '.join(engine.skill)}; to add one: +engine.skill.PRESET=0.5",
            )
        return
    if model.path is None and model.base is None and not model.files:
        raise ConfigError(
            f"model={model.name} names no GGUF file",
            hint="model.path=FILE (a GGUF of the very preset), or model.base=FILE (an F16 to derive from); "
            "engine=scripted rehearses without a model",
        )


def build_world(suite: SuiteConfig) -> World:
    """Generate (once per process) the tasks of a suite.

    Raises
    ------
    ConfigError
        Unknown family or grid.
    """
    return _built(suite.world, canonical(_asked(suite)))[0]


def tasks_of(suite: SuiteConfig) -> tuple[Task, ...]:
    """The tasks that a cell of this suite plays: all, or its shard's."""
    tasks = build_world(suite).tasks
    shard = one_shard(suite.shard, len(tasks))
    return tasks if shard is None else shard.of(tasks)


def part_of(world: World, suite: SuiteConfig) -> World:
    """The world with the tasks that a cell of this suite plays."""
    tasks = tasks_of(suite)
    return world if len(tasks) == len(world.tasks) else PartOfWorld(world, tasks)


def suite_digest(suite: SuiteConfig) -> str:
    """SHA-256 of everything that the suite's generator makes, in hexadecimal."""
    return _built(suite.world, canonical(_asked(suite)))[1]


def _asked(suite: SuiteConfig) -> dict[str, object]:
    return {name: getattr(suite, name) for name in ("families", "seed", "version", "grid", "options")}


@cache
def _built(name: str, asked: str) -> tuple[World, str]:
    world = finding.build_world(name, Suite(**json.loads(asked)))
    return world, suite_sha256(world)


def _among(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(
            f"{key}={value!r} is not possible{did_you_mean(value, choices)}",
            hint="use one of " + ", ".join(choices),
        )
