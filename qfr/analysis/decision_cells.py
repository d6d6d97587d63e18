"""Which cells stand behind a name, and which of them may be decided on together.

A baseline and a candidate are compared where everything but the preset agrees: model, prompt bytes, suite,
fault, executor, chat template, llama.cpp build, device and settings, schema. What keeps two cells apart is
named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from qfr.analysis.frames import Cell, task_table
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import differences
from qfr.analysis.targets import CellKey, Target, TaskTable, Treatment
from qfr.records import FaultKind, Policy

#: Differences that a user may allow; each is then a remark.
ALLOWABLE = ("build", "engine", "template", "schema", "model", "prompt", "executor", "fault")
_NAMES = tuple(field.name for field in fields(CellKey) if field.name != Axis.quant)
_TREATMENTS = frozenset(field.name for field in fields(Treatment))
# A preset is its file.
_ALWAYS = frozenset({"model_file", "imatrix"})


class Finished(Cell, Protocol):
    """A finished cell as the tracking store returns it."""

    @property
    def run_id(self) -> str:
        """MLflow's run id."""


AnyCell = TypeVar("AnyCell", bound=Cell)
AnyFinished = TypeVar("AnyFinished", bound=Finished)


@dataclass(frozen=True, eq=False)
class Comparable:
    """Two cells that may be compared."""

    baseline: TaskTable
    candidate: TaskTable
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Incomparable:
    """Cells that a user asked to compare, and why that is not possible."""

    baseline: str
    # Names of the cells; empty where there is none.
    candidate: str
    reason: str


@dataclass(frozen=True)
class Matches:
    """What can and what cannot be compared."""

    pairs: tuple[Comparable, ...]
    apart: tuple[Incomparable, ...]


def of_preset(cells: Iterable[AnyCell], preset: str) -> tuple[AnyCell, ...]:
    """Return the cells of one preset, however its name is spelt."""
    return tuple(cell for cell in cells if cell.facts.quant.casefold() == preset.casefold())


def of_run(cells: Iterable[AnyFinished], run_id: str) -> tuple[AnyFinished, ...]:
    """Return the cell of one MLflow run, named by its id or the beginning of it, or by its cell id."""
    return tuple(cell for cell in cells if cell.run_id.startswith(run_id) or cell.facts.cell_id == run_id)


def tables_of(cells: Iterable[Cell], policy: Policy, target: Target) -> tuple[TaskTable, ...]:
    """Return the task tables that a target is computed from: of clean passes, or of fault cells.

    Raises
    ------
    LogError
        If a fault cell does not belong to its clean pass.
    """
    given = tuple(cells)
    if target is Target.clean:
        passes = {}
        for cell in given:
            one = cell if cell.facts.fault == FaultKind.none else cell.clean
            if one is not None:
                passes[one.facts.cell_id] = one
        return tuple(task_table(one.facts, one.episodes, None, policy) for one in passes.values())
    return tuple(
        task_table(cell.facts, cell.clean.episodes, cell.episodes, policy)
        for cell in given
        if cell.facts.fault != FaultKind.none and cell.clean is not None
    )


def match(
    baseline: Sequence[TaskTable], candidate: Sequence[TaskTable], allowed: frozenset[str] = frozenset()
) -> Matches:
    """Find the baseline cell of every candidate cell.

    Parameters
    ----------
    baseline, candidate : sequences of TaskTable
        Under one policy.
    allowed : set of str
        Differences, among `ALLOWABLE`, that keep nothing apart.
    """
    names = tuple(name for name in _NAMES if name not in allowed)
    free = _ALWAYS | (allowed & _TREATMENTS)
    free |= {"template"} if "model" in allowed else frozenset()
    pairs: list[Comparable] = []
    apart: list[Incomparable] = []
    for table in candidate:
        others = [other for other in baseline if _same(other, table, names)]
        if not others:
            apart.append(_without_partner(table, baseline, names))
            continue
        fitting = [other for other in others if not differences(other.treatment, table.treatment, free)]
        fitting = _of_preset_if_several(fitting, table)
        if len(fitting) == 1 and fitting[0].tasks == table.tasks and not _is_same_cell(fitting[0], table):
            pairs.append(Comparable(fitting[0], table, _remarks(fitting[0], table, allowed)))
        else:
            apart.append(_why_not(table, fitting, others, free))
    for other in baseline:
        if not any(_same(other, table, names) for table in candidate):
            apart.append(Incomparable(other.key.name, "", "the candidate has no finished cell like it"))
    return Matches(tuple(pairs), tuple(apart))


def _same(a: TaskTable, b: TaskTable, names: tuple[str, ...]) -> bool:
    return all(getattr(a.key, name) == getattr(b.key, name) for name in names)


def _is_same_cell(a: TaskTable, b: TaskTable) -> bool:
    return a.key == b.key and a.treatment == b.treatment


def _of_preset_if_several(fitting: list[TaskTable], table: TaskTable) -> list[TaskTable]:
    """Two sweeps of the same presets are compared preset by preset."""
    if len(fitting) < 2:
        return fitting
    return [other for other in fitting if other.key.quant == table.key.quant] or fitting


def _without_partner(table: TaskTable, baseline: Sequence[TaskTable], names: tuple[str, ...]) -> Incomparable:
    if not baseline:
        return Incomparable("", table.key.name, "the baseline has no finished cell")

    def differing(other: TaskTable) -> list[str]:
        return [name for name in names if getattr(other.key, name) != getattr(table.key, name)]

    nearest = min(baseline, key=lambda other: len(differing(other)))
    said = "; ".join(
        f"{name} differs ({getattr(nearest.key, name)} / {getattr(table.key, name)})"
        for name in differing(nearest)
    )
    return Incomparable(nearest.key.name, table.key.name, said)


def _why_not(
    table: TaskTable, fitting: list[TaskTable], others: list[TaskTable], free: frozenset[str]
) -> Incomparable:
    if len(fitting) == 1 and fitting[0].tasks == table.tasks:
        return Incomparable(fitting[0].key.name, table.key.name, "baseline and candidate are the same cell")
    if len(fitting) > 1:
        quants = {other.key.quant for other in fitting}
        if len(quants) > 1:
            reason = f"the baseline holds several presets ({', '.join(sorted(quants)).lower()}): name one"
        else:
            reason = f"the baseline holds {len(fitting)} files of this preset: name the run"
        return Incomparable(fitting[0].key.name, table.key.name, reason)
    nearest = _of_preset_if_several(others, table)[0]
    reason = differences(nearest.treatment, table.treatment, free) or "the two list different tasks"
    return Incomparable(nearest.key.name, table.key.name, reason)


def _remarks(a: TaskTable, b: TaskTable, allowed: frozenset[str]) -> tuple[str, ...]:
    found = [
        f"{name} differs ({getattr(a.key, name)} / {getattr(b.key, name)}), as allowed"
        for name in _NAMES
        if name in allowed and getattr(a.key, name) != getattr(b.key, name)
    ]
    let = differences(a.treatment, b.treatment, _TREATMENTS - (allowed & _TREATMENTS))
    if let:
        found.append(f"{let}, as allowed")
    if a.treatment.imatrix != b.treatment.imatrix:
        found.append("the importance matrix differs: the files are compared, not the presets alone")
    return tuple(found)
