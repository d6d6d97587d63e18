"""What a grid will come to, as plain records: printed by `mode=plan`, frozen by `mode=register`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qfr.grid.checks import build_world, tasks_of
from qfr.grid.design import declared_commit
from qfr.grid.files import PlannedFile, Presence
from qfr.grid.grid import Grid, GridCell, together
from qfr.records import FaultKind
from qfr.stats.power import Detectable, detectable
from qfr.world.base import sites

# Overrides that stand in columns of their own, or that are no treatment.
_COLUMNS = ("model", "quant", "prompt", "fault")


FINISHED = "FINISHED"


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the plan."""

    cell: GridCell
    episodes: int
    # Episodes of the cell at most: tasks for a clean pass, sites of all tasks for a fault cell.
    extra: str
    # Overrides beyond model, quant, prompt and fault in which cells of this grid differ.
    status: str
    # What the store holds of it: FINISHED, RUNNING, FAILED, KILLED; "" for nothing.


@dataclass(frozen=True)
class Power:
    """Smallest difference that a contrast on this many tasks can detect."""

    tasks: int
    # All certified under both levels, at best.
    detectable: Detectable


@dataclass(frozen=True)
class Plan:
    """A grid, what it costs and what it can show."""

    cells: tuple[PlannedCell, ...]
    files: tuple[PlannedFile, ...]
    # One per (model, preset), in the order of the cells.
    excluded: tuple[str, ...]
    folded: tuple[str, ...]
    jobs: int
    # Walks: one clean pass each, and the fault cells that share it.
    clean_passes: int
    # Distinct clean passes.
    clean_held: int
    # Of these, finished in the store.
    clean_episodes: int
    # Of all distinct clean passes.
    fault_episodes: int
    # Of all fault cells, at most: every task certified.
    task_counts: tuple[int, ...]
    # Numbers of tasks in the grid's suites.
    llama_commit: str
    llama_commit_source: str
    store: str
    # What was looked at for `status`, or why nothing could be.

    @property
    def powers(self) -> tuple[Power, ...]:
        """What a contrast can detect, one per number of tasks."""
        return tuple(Power(n, detectable(n)) for n in self.task_counts)

    @property
    def episodes(self) -> int:
        """All episodes at most."""
        return self.clean_episodes + self.fault_episodes


def make_plan(grid: Grid, held: Mapping[str, str], store: str) -> Plan:
    """Count what a grid will play.

    Parameters
    ----------
    grid : Grid
        Validated.
    held : mapping of str to str
        Status per design_id of what the store holds.
    store : str
        One line about the store.
    """
    commit, source = declared_commit()
    varying = _varying(grid)
    cells = tuple(
        PlannedCell(cell, episodes_of(cell), _extra(cell, varying), held.get(cell.design.design_id, ""))
        for cell in grid.cells
    )
    cleans = {cell.design.clean_design_id: len(tasks_of(cell.config.suite)) for cell in grid.cells}
    sizes = {len(build_world(cell.config.suite).tasks) for cell in grid.cells}
    faults = sum(one.episodes for one in cells if one.cell.config.fault.kind is not FaultKind.none)
    files = {(cell.file.model, cell.file.preset, cell.file.filename): cell.file for cell in grid.cells}
    return Plan(
        cells=cells,
        files=tuple(files.values()),
        excluded=grid.excluded,
        folded=grid.folded,
        jobs=len(grid.walks),
        clean_passes=len(cleans),
        clean_held=sum(held.get(clean) == FINISHED for clean in cleans),
        clean_episodes=sum(cleans.values()),
        fault_episodes=faults,
        task_counts=tuple(sorted(sizes)),
        llama_commit=commit,
        llama_commit_source=source,
        store=store,
    )


def refuse_unusable(plan: Plan) -> None:
    """End a plan as its run would end: with the files that are there and cannot serve.

    Raises
    ------
    UserError
        One message with all of them.
    """
    found = [one.problem for one in plan.files if one.presence is Presence.unusable and one.problem]
    if found:
        raise together(found)


def episodes_of(cell: GridCell) -> int:
    """Episodes that the cell's own run holds at most."""
    tasks = tasks_of(cell.config.suite)
    kind = cell.config.fault.kind
    return len(tasks) if kind is FaultKind.none else sum(len(sites(task, kind)) for task in tasks)


def _pairs(cell: GridCell) -> dict[str, str]:
    split = (text.lstrip("+").partition("=") for text in cell.overrides)
    return {key: value for key, _, value in split if key not in _COLUMNS}


def _varying(grid: Grid) -> tuple[str, ...]:
    values: dict[str, set[str]] = {}
    for cell in grid.cells:
        for key, value in _pairs(cell).items():
            values.setdefault(key, set()).add(value)
    return tuple(key for key, seen in values.items() if len(seen) > 1)


def _extra(cell: GridCell, varying: tuple[str, ...]) -> str:
    pairs = _pairs(cell)
    return " ".join(f"{key}={pairs[key]}" for key in varying if key in pairs)
