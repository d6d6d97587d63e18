"""Whole-grid work on composed cells: exclusions, duplicates, walks, all problems at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from qfr.config import CellConfig
from qfr.errors import ConfigError, UserError
from qfr.front.compose import to_cell
from qfr.grid.grid import Grid, Point, build_grid
from qfr.grid.plan import make_plan
from qfr.places import conf_folder
from qfr.records import FaultKind

GROUPS = {
    "model": ["scripted", "llama", "qwen"],
    "quant": ["q8_0", "q4_k_m", "q3_k_m"],
    "prompt": ["P0", "P1"],
}


@cache
def composed(*overrides: str) -> CellConfig:
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return to_cell(compose("config", overrides=["hydra/sweeper=basic", *overrides]))


def options(group: str) -> Sequence[str]:
    return GROUPS.get(group, [])


def point(
    model: str = "scripted",
    quant: str = "q8_0",
    prompt: str = "P0",
    *,
    kind: FaultKind = FaultKind.et,
    exclude: tuple[Mapping[str, str], ...] = (),
    change: Callable[[CellConfig], CellConfig] = lambda cell: cell,
) -> Point:
    overrides = (f"model={model}", f"quant={quant}", f"prompt={prompt}")
    base = composed(*overrides)

    def build() -> CellConfig:
        return change(dataclasses.replace(base, fault=dataclasses.replace(base.fault, kind=kind)))

    choices = {"model": model, "quant": quant, "prompt": prompt}
    return Point((*overrides, f"fault={kind}"), choices, exclude, build)


def grid_of(*points: Point) -> Grid:
    return build_grid(points, options, files_needed=False)


def test_cells_that_share_a_clean_pass_become_one_walk() -> None:
    kinds = [FaultKind.ep, FaultKind.none, FaultKind.et]
    grid = grid_of(*(point(prompt=name, kind=kind) for name in ("P0", "P1") for kind in kinds))
    assert [walk.kinds for walk in grid.walks] == [(FaultKind.et, FaultKind.ep)] * 2
    assert [len(walk.cells) for walk in grid.walks] == [3, 3]
    assert len({cell.design.clean_design_id for cell in grid.cells}) == 2
    assert grid.cells[1].design.design_id == grid.cells[0].design.clean_design_id


def test_a_grid_of_clean_passes_alone_walks_without_faults() -> None:
    grid = grid_of(point(kind=FaultKind.none))
    assert [walk.kinds for walk in grid.walks] == [()]


def test_another_fault_text_is_another_cell_and_another_walk() -> None:
    def louder(cell: CellConfig) -> CellConfig:
        return dataclasses.replace(cell, fault=dataclasses.replace(cell.fault, message="Nobody answers."))

    grid = grid_of(point(), point(change=louder))
    assert len(grid.cells) == len(grid.walks) == 2
    assert grid.cells[0].design.clean_design_id == grid.cells[1].design.clean_design_id


def test_duplicates_are_folded_and_named() -> None:
    grid = grid_of(point(), point(quant="q4_k_m"), point())
    assert [cell.name for cell in grid.cells] == ["scripted q8_0 P0 et", "scripted q4_k_m P0 et"]
    assert grid.folded == ("model=scripted quant=q8_0 prompt=P0 fault=et",)


def test_the_scorer_is_no_part_of_a_cell() -> None:
    def strict(cell: CellConfig) -> CellConfig:
        return dataclasses.replace(cell, scorer=composed("scorer=strict").scorer)

    assert len(grid_of(point(), point(change=strict)).cells) == 1


def test_excluded_combinations_are_named_and_never_built() -> None:
    def explode(_: CellConfig) -> CellConfig:
        raise AssertionError("an excluded cell was built")

    out = ({"model": "qwen", "quant": "q3_k_m"},)
    grid = grid_of(point(exclude=out), point("qwen", "q3_k_m", exclude=out, change=explode))
    assert [cell.name for cell in grid.cells] == ["scripted q8_0 P0 et"]
    assert grid.excluded == ("model=qwen quant=q3_k_m prompt=P0 fault=et",)


def test_excluding_everything_is_an_error() -> None:
    with pytest.raises(ConfigError, match="every combination is excluded"):
        grid_of(point(exclude=({"model": "scripted"},)))


@pytest.mark.parametrize(
    ("entry", "near"),
    [({"modle": "qwen"}, "did you mean 'model'"), ({"model": "qwem"}, "did you mean 'qwen'")],
)
def test_an_exclusion_that_names_nothing_is_an_error(entry: dict[str, str], near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        grid_of(point(exclude=(entry,)))


def test_all_problems_of_a_grid_come_in_one_message() -> None:
    def negative(cell: CellConfig) -> CellConfig:
        return dataclasses.replace(cell, trial=-1)

    def foreign(cell: CellConfig) -> CellConfig:
        return dataclasses.replace(cell, report=dataclasses.replace(cell.report, vary="quants"))

    with pytest.raises(UserError) as caught:
        grid_of(point(change=negative), point(), point(change=foreign), point("llama", change=negative))
    text = str(caught.value)
    assert text.startswith("2 problems:")
    assert text.count("trial=-1 is too small") == 1
    assert "report.vary: 'quants' is neither an axis nor a key of a cell (did you mean 'quant'?)" in text


def local(tmp_path: Path, folder: str, kind: FaultKind = FaultKind.et) -> Point:
    path = tmp_path / folder / "model.gguf"

    def at(cell: CellConfig) -> CellConfig:
        model = dataclasses.replace(
            cell.model, name="local", path=str(path), files={}, package=None, derive_from=None
        )
        return dataclasses.replace(cell, model=model)

    return point("llama", change=at, kind=kind)


def test_a_missing_file_is_told_in_a_plan_and_stops_a_run(tmp_path: Path) -> None:
    plan = make_plan(grid_of(local(tmp_path, "a")), {}, "none")
    assert [str(file.presence) for file in plan.files] == ["missing"]
    with pytest.raises(UserError, match=r"model\.path=.* does not exist"):
        build_grid([local(tmp_path, "a")], options, files_needed=True)


def test_two_files_never_pass_for_one_cell(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two files pass for one cell"):
        grid_of(local(tmp_path, "a"), local(tmp_path, "b"))


def test_plan_counts_the_published_sites() -> None:
    # Hu 2026, tables 1 and 3: 50 ET, 40 IT, 50 EP sites on twenty tasks, one clean pass for all three.
    kinds = [FaultKind.et, FaultKind.it, FaultKind.ep]
    grid = grid_of(*(point(kind=kind) for kind in kinds))
    held = {grid.cells[0].design.design_id: "FINISHED", grid.cells[0].design.clean_design_id: "FINISHED"}
    plan = make_plan(grid, held, "here")
    assert [one.episodes for one in plan.cells] == [50, 40, 50]
    assert [one.status for one in plan.cells] == ["FINISHED", "", ""]
    assert (plan.clean_passes, plan.clean_held, plan.clean_episodes, plan.fault_episodes) == (1, 1, 20, 140)
    assert plan.episodes == 160
    assert [power.tasks for power in plan.powers] == [20]
