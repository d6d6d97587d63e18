"""What the closing report is asked for is checked with the grid, not after its last cell."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from qfr.config import CellConfig
from qfr.errors import ConfigError
from qfr.front.compose import to_cell
from qfr.grid.checks import check_cell
from qfr.grid.report_checks import check_declared
from qfr.places import conf_folder


def grid(*overrides: str, presets: tuple[str, ...] = ("q8_0", "q4_k_m")) -> list[CellConfig]:
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return [
            to_cell(
                compose(
                    "config",
                    overrides=[
                        "hydra/sweeper=basic",
                        "model=scripted",
                        f"quant={preset}",
                        f"prompt={prompt}",
                        *overrides,
                    ],
                )
            )
            for preset in presets
            for prompt in ("P0", "P4")
        ]


def check(cells: list[CellConfig]) -> None:
    for cell in cells:
        check_cell(cell)
    check_declared(cells)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("report.family=[{tarket: full}]", ("'tarket'", "'target'")),
        ("report.family=[{target: ful}]", ("'ful'", "'full'")),
        ("report.family=[{policy: lax}]", ("'lax'", "tolerant, strict")),
        ("report.family=[{a: q8_0, b: q4_km}]", ("q4_km", "'Q4_K_M'")),
        ("report.family=[{a: q4_k_m}]", ("no contrast", "Q8_0, Q4_K_M")),
        ("report.family=[{quant: q8_0}]", ("selects by quant", "{a: Q8_0}")),
        ("report.family=[{prompt: 'P0,P5'}]", ("p5", "P0, P4")),
        ("report.family=[{model: scriptd}]", ("scriptd", "'scripted'")),
        ("report.groups='high=q8_0;low=q4_k'", ("Q4_K'", "'Q4_K_S'")),
        ("report.groups='high=q8_0;low=q3_k_m'", ("Q3_K_M is not in this grid", "Q8_0, Q4_K_M")),
        ("report.groups='high=q8_0'", ("one group", "NAME=PRESET")),
        ("report.groups=high", ("cannot be read", "NAME=PRESET")),
        ("report.against=hu2025", ("'hu2025'", "'hu2026'")),
        ("report.margin=0", ("report.margin", "in points")),
    ],
)
def test_a_mistake_in_the_report_is_found_before_a_model_loads(override: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(grid(override))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "report.family=[{a: q8_0, b: q4_k_m, target: full, policy: tolerant, prompt: 'P0,P4'}]",
        "report.family=[{b: Q4_K_M}, {fault: et}]",
        "report.groups='high=q8_0;low=q4_k_m'",
        "report.against=hu2026",
    ],
)
def test_what_the_grid_holds_is_accepted(override: str) -> None:
    check(grid(override))


def test_a_family_is_read_along_the_varied_axis() -> None:
    check(grid("report.vary=prompt", "report.family=[{a: P0, b: P4, quant: q8_0}]"))
    with pytest.raises(ConfigError, match="a is the higher level"):
        check(grid("report.vary=prompt", "report.family=[{a: P4, b: P0}]"))


def test_a_grid_without_contrasts_has_no_family_to_check() -> None:
    check(grid("report.family=[{a: q8_0, b: q4_k_m}]", presets=("q8_0",)))


def test_part_of_a_registered_grid_keeps_the_frozen_family() -> None:
    declared = grid("report.family=[{a: q8_0, b: q3_k_m}]")
    with pytest.raises(ConfigError, match="not in this grid"):
        check_declared(declared)
    under = dataclasses.replace(declared[0].registration, use="r-0123456789abcdef")
    check_declared([dataclasses.replace(cell, registration=under) for cell in declared])


def test_a_report_folder_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        check(grid(f"report.out={tmp_path}/file/report"))
    check(grid(f"report.out={tmp_path}/new/report"))
