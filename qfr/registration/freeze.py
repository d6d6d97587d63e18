"""What a registration freezes of a grid: cells, prompts, suites and model files."""

from __future__ import annotations

from pathlib import Path

from qfr.canonical import sha256_hex
from qfr.config import CellConfig
from qfr.engine.files.digests import verify
from qfr.grid.checks import build_world
from qfr.grid.design import design_of, frozen_design
from qfr.grid.files import Presence
from qfr.grid.grid import Grid, GridCell
from qfr.identity import clean_of
from qfr.places import prompt_path
from qfr.records import FaultKind
from qfr.registration.record import FrozenCell, FrozenFile, FrozenSuite, FrozenText
from qfr.world.base import sites, suite_json


def frozen_cells(grid: Grid) -> tuple[FrozenCell, ...]:
    """The grid's cells and the clean passes that they need, each once, clean passes first."""
    asked = {cell.design.design_id for cell in grid.cells}
    found: dict[str, FrozenCell] = {}
    for cell in grid.cells:
        for config in (clean_of(cell.config), cell.config):
            design = design_of(config)
            if design.design_id not in found:
                found[design.design_id] = _frozen_cell(config, asked=design.design_id in asked)
    return tuple(found.values())


def _frozen_cell(config: CellConfig, *, asked: bool) -> FrozenCell:
    design, kind = design_of(config), config.fault.kind
    tasks = build_world(config.suite).tasks
    name = f"{config.model.name} {config.quant.preset.lower()} {config.prompt.name} {kind}"
    return FrozenCell(
        name=name,
        design_id=design.design_id,
        clean_design_id=design.clean_design_id,
        asked=asked,
        model=config.model.name,
        quant=config.quant.preset,
        prompt=config.prompt.name,
        fault=str(kind),
        suite=config.suite.name,
        executor=str(config.executor.kind),
        gate=str(config.suite.gate),
        trial=config.trial,
        episodes=len(tasks) if kind is FaultKind.none else sum(len(sites(task, kind)) for task in tasks),
        design=frozen_design(config, design),
    )


def frozen_prompts(grid: Grid) -> tuple[FrozenText, ...]:
    """The system prompts, byte for byte."""
    found = {cell.design.prompt.sha256: _frozen_prompt(cell) for cell in grid.cells}
    return tuple(found.values())


def _frozen_prompt(cell: GridCell) -> FrozenText:
    prompt, asked = cell.design.prompt, cell.config.prompt
    file = Path(asked.file).name
    base = sha256_hex(prompt_path(asked.file).read_bytes())
    if base == prompt.sha256:
        return FrozenText(file, prompt.sha256, prompt.text)
    return FrozenText(asked.name, prompt.sha256, prompt.text, file, base)


def frozen_suites(grid: Grid) -> tuple[FrozenSuite, ...]:
    """The suites, byte for byte."""
    found: dict[str, FrozenSuite] = {}
    for cell in grid.cells:
        if cell.design.suite_sha256 not in found:
            world = build_world(cell.config.suite)
            families = tuple(task.family for task in world.tasks)
            found[cell.design.suite_sha256] = FrozenSuite(
                cell.config.suite.name, cell.design.suite_sha256, len(families), families, suite_json(world)
            )
    return tuple(found.values())


def frozen_files(grid: Grid) -> tuple[FrozenFile, ...]:
    """The model files, with the digests of those at hand. Reads a file once; digests are remembered.

    Raises
    ------
    ModelFileError
        A file is not the pinned one.
    """
    found: dict[tuple[str, str, str], FrozenFile] = {}
    for cell in grid.cells:
        file = cell.file
        if file.presence not in (Presence.none, Presence.served):
            found.setdefault((file.model, file.preset, file.filename), _frozen_file(cell))
    return tuple(found.values())


def _frozen_file(cell: GridCell) -> FrozenFile:
    file, model = cell.file, cell.config.model
    present = file.presence is Presence.present
    sha256 = file.sha256
    if present:
        # Once per file: the digest of gigabytes takes a while and is remembered.
        sha256 = verify(Path(file.place), Path(cell.config.tracking.root) / "models", file.sha256)
    own = model.path is not None or model.base is not None
    return FrozenFile(
        model=file.model,
        preset=file.preset,
        filename=file.filename,
        made=file.made,
        sha256=sha256,
        pinned=file.sha256 is not None,
        present=present,
        bytes=file.bytes,
        repo_id=None if own else model.repo_id,
        revision=None if own else model.revision,
    )
