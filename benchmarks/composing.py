"""Cells as `run.py` would compose them, for the ways that are not `run.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir

from benchmarks.job import Cell, Job
from qfr.config import CellConfig
from qfr.engine.files.gguf import ModelFile
from qfr.engine.files.resolve import resolve
from qfr.front.compose import to_cell
from qfr.grid.checks import build_world
from qfr.places import conf_folder, prompt_path
from qfr.play.engine_cache import context_need
from qfr.prompts import load_prompt


def compose_cell(overrides: Sequence[str]) -> CellConfig:
    """One cell."""
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return to_cell(compose("config", overrides=[*overrides, "fault=et"]))


def model_file(cell: CellConfig) -> ModelFile:
    """Its GGUF, derived once."""
    return resolve(cell.model, cell.quant, Path(cell.tracking.root) / "models")


def make_job(common: Sequence[str], quants: Sequence[str], prompts: Sequence[str]) -> Job:
    """A grid as a job."""
    cells, need = list[Cell](), 0
    for quant in quants:
        for prompt in prompts:
            config = compose_cell([*common, f"quant={quant}", f"prompt={prompt}"])
            text = load_prompt(prompt_path(config.prompt.file), config.prompt.sha256).text
            need = max(need, config.engine.n_ctx or context_need(config, build_world(config.suite), text))
            path = str(model_file(config).path)
            cells.append(Cell(config.quant.preset, config.prompt.name, text, path))
    return Job(
        cells=tuple(cells),
        families=config.suite.families,
        suite_seed=config.suite.seed,
        grid=config.suite.grid,
        executor=str(config.executor.kind),
        step_budget=config.suite.step_budget,
        error_budget=config.suite.error_budget,
        max_tokens=config.executor.max_tokens,
        fault_code=config.fault.code,
        fault_message=config.fault.message,
        n_ctx=need,
        n_batch=config.engine.n_batch,
        n_threads=config.engine.n_threads,
        flash_attn=config.engine.flash_attn,
    )
