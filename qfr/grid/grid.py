"""Whole-grid work on composed cells: excluding, validating, folding duplicates, grouping into walks.

Pure: what Hydra composed comes in as `Point`s, nothing is launched here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qfr.config import CellConfig
from qfr.errors import ConfigError, UserError, did_you_mean
from qfr.grid.checks import check_cell
from qfr.grid.design import Design, design_of
from qfr.grid.files import PlannedFile, planned_file, require_imatrix, require_native
from qfr.grid.prompt_notes import check_prompt_fits
from qfr.records import FaultKind
from qfr.shards import read_shards

_KINDS = tuple(FaultKind)
# Overrides that say nothing about a cell.
_SAME_FOR_ALL = ("mode=", "experiment=", "exclude=", "tracking", "report", "registration", "hydra", "~")


@dataclass(frozen=True)
class Point:
    """One point of the Cartesian product, composed but not validated."""

    overrides: tuple[str, ...]
    # As a job would get them.
    choices: Mapping[str, str]
    # Chosen name per group.
    exclude: tuple[Mapping[str, str], ...]
    # Combinations that the configuration leaves out.
    build: Callable[[], CellConfig]
    # The validated cell; raises UserError.


@dataclass(frozen=True)
class GridCell:
    """A valid cell of the grid."""

    config: CellConfig
    overrides: tuple[str, ...]
    design: Design
    file: PlannedFile

    @property
    def name(self) -> str:
        """`llama q8_0 P0 et`."""
        return name_of(self.config)


@dataclass(frozen=True)
class Walk:
    """Cells that share a clean pass: one job."""

    cells: tuple[GridCell, ...]
    kinds: tuple[FaultKind, ...]
    # Fault kinds in canonical order, `none` left out.


@dataclass(frozen=True)
class Grid:
    """The grid that will run."""

    cells: tuple[GridCell, ...]
    walks: tuple[Walk, ...]
    excluded: tuple[str, ...]
    # Overrides of the points left out.
    folded: tuple[str, ...]
    # Overrides of points that are cells already in the grid.


def build_grid(
    points: Sequence[Point], choices_of: Callable[[str], Sequence[str]], *, files_needed: bool
) -> Grid:
    """Validate a whole grid before anything loads.

    Parameters
    ----------
    points : sequence of Point
        In the order of the jobs.
    choices_of : callable
        Names of a configuration group's choices (empty for no group).
    files_needed : bool
        Whether a missing model file is an error (it is before a run, not in a plan).

    Raises
    ------
    UserError
        One message with all distinct problems of the grid.
    """
    kept, excluded = _exclude(points, choices_of)
    if not kept:
        raise ConfigError("the grid is empty: every combination is excluded", hint="look at `exclude`")
    cells: list[GridCell] = []
    problems: dict[str, UserError] = {}
    for point in kept:
        try:
            cells += _grid_cells(point, files_needed)
        except UserError as error:
            problems.setdefault(str(error), error)
    if problems:
        raise together(list(problems.values()))
    unique, folded = _fold(cells)
    report = cells[0].config.report
    if report.family or report.groups:
        from qfr.grid.report_checks import check_declared

        check_declared([cell.config for cell in unique])
    return Grid(tuple(unique), tuple(_walks(unique)), tuple(excluded), tuple(folded))


def shown(overrides: Iterable[str]) -> str:
    """Overrides of a point as they are named in notes (what is the same for all jobs left out)."""
    return " ".join(text.lstrip("+") for text in overrides if not text.startswith(_SAME_FOR_ALL))


def _grid_cells(point: Point, files_needed: bool) -> list[GridCell]:
    """The cell, or its shards, each a job of its own."""
    cell = point.build()
    check_cell(cell)
    shards = read_shards(cell.suite.shard, sum(cell.suite.families.values()))
    if len(shards) <= 1:
        return [_grid_cell(cell, point.overrides, files_needed)]
    others = tuple(text for text in point.overrides if not text.lstrip("+").startswith("suite.shard="))
    return [
        _grid_cell(
            dataclasses.replace(cell, suite=dataclasses.replace(cell.suite, shard=str(shard))),
            (*others, f"suite.shard={shard}"),
            files_needed,
        )
        for shard in shards
    ]


def _grid_cell(cell: CellConfig, overrides: tuple[str, ...], files_needed: bool) -> GridCell:
    check_prompt_fits(cell)
    design = design_of(cell)
    file = planned_file(cell)
    if files_needed:
        require_imatrix(cell)
        if file.problem is not None:
            raise file.problem
    require_native(cell, file)
    return GridCell(cell, overrides, design, file)


def _exclude(
    points: Sequence[Point], choices_of: Callable[[str], Sequence[str]]
) -> tuple[list[Point], list[str]]:
    seen = {pair for point in points for entry in point.exclude for pair in entry.items()}
    for group, choice in sorted(seen):
        names = choices_of(group)
        if not names or choice not in names:
            known = names or sorted(points[0].choices)
            raise ConfigError(
                f"exclude names {group}={choice}, which is not a choice of a group"
                + did_you_mean(choice if names else group, known),
                where="exclude",
                hint=("choices: " if names else "groups: ") + ", ".join(known),
            )
    kept: list[Point] = []
    excluded: list[str] = []
    for point in points:
        if any(_matches(point.choices, entry) for entry in point.exclude):
            excluded.append(shown(point.overrides))
        else:
            kept.append(point)
    return kept, excluded


def _matches(choices: Mapping[str, str], entry: Mapping[str, str]) -> bool:
    return bool(entry) and all(choices.get(group) == choice for group, choice in entry.items())


def together(problems: Sequence[UserError]) -> UserError:
    """Several distinct problems as one error."""
    if len(problems) == 1:
        return problems[0]
    lines = [str(problem).replace("\n", "\n    ") for problem in problems[:8]]
    more = f"\n  … and {len(problems) - 8} more" if len(problems) > 8 else ""
    return ConfigError(f"{len(problems)} problems:\n  - " + "\n  - ".join(lines) + more)


def _fold(cells: Sequence[GridCell]) -> tuple[list[GridCell], list[str]]:
    kept: dict[str, GridCell] = {}
    folded: list[str] = []
    for cell in cells:
        first = kept.setdefault(cell.design.design_id, cell)
        if first is cell:
            continue
        if first.file.place != cell.file.place:
            raise ConfigError(
                f"two files pass for one cell ({cell.name}): {first.file.place} and {cell.file.place}",
                where="model",
                hint="a design knows names and digests, not folders: give each file its own model.name, "
                "in a model YAML or in one command each",
            )
        folded.append(shown(cell.overrides))
    return list(kept.values()), folded


def _walks(cells: Sequence[GridCell]) -> list[Walk]:
    """Group cells that share a clean pass, in the order of their first cell.

    A job's cells differ in the kind of fault alone: where texts or numbers of a fault differ, they walk apart
    (and share the clean run all the same).
    """
    groups: dict[tuple[object, ...], list[GridCell]] = {}
    for cell in cells:
        fault = dataclasses.astuple(dataclasses.replace(cell.config.fault, kind=FaultKind.none))
        key = (cell.design.clean_design_id, cell.config.suite.gate, *fault)
        groups.setdefault(key, []).append(cell)
    walks: list[Walk] = []
    for members in groups.values():
        kinds = {cell.config.fault.kind for cell in members} - {FaultKind.none}
        walks.append(Walk(tuple(members), tuple(kind for kind in _KINDS if kind in kinds)))
    return walks


def name_of(cell: CellConfig) -> str:
    """`llama q8_0 P0 et`; of a shard `llama q8_0 P0 3/8 et`."""
    part = f" {cell.suite.shard}" if cell.suite.shard is not None else ""
    return f"{cell.model.name} {cell.quant.preset.lower()} {cell.prompt.name}{part} {cell.fault.kind}"


def with_sweep(cell: CellConfig, sweep: str) -> CellConfig:
    """The cell as a job of this sweep sees it."""
    return dataclasses.replace(cell, sweep=sweep)
