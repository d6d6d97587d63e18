"""Which cells stand behind a name, and which of them may be decided on together.

A baseline and a candidate are compared where everything but the preset agrees: model, prompt bytes, suite,
fault, executor, chat template, llama.cpp build, device and settings, schema. What keeps two cells apart is
named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from qfr.analysis.frames import Cell, task_table
from qfr.analysis.pairing import variant_names
from qfr.analysis.targets import Target, TaskTable
from qfr.records import FaultKind, Policy
from qfr.scope import differ
from qfr.scope import told as told_difference

#: Differences that a user may allow, and the axes or keys that they free; each is then a remark. Any single
#: key can be allowed too.
ALLOWABLE: Mapping[str, tuple[str, ...]] = {
    "build": ("build",),
    "engine": ("engine.*", "device.*", "measured.*"),
    "template": ("template.*",),
    "schema": ("version.*",),
    "model": ("model",),
    "prompt": ("prompt",),
    "executor": ("executor", "suite.step_budget", "suite.error_budget"),
    "fault": ("fault",),
}


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
        Differences, among `ALLOWABLE` or single keys, that keep nothing apart.
    """
    free = frozenset({"quant"}.union(*(ALLOWABLE.get(name, (name,)) for name in allowed)))
    pairs: list[Comparable] = []
    apart: list[Incomparable] = []
    matched: set[int] = set()
    for table in candidate:
        fitting = [other for other in baseline if not differ(other.scope, table.scope, free)]
        fitting = _of_preset_if_several([other for other in fitting if other.tasks == table.tasks], table)
        if len(fitting) == 1 and fitting[0].scope != table.scope:
            pairs.append(Comparable(fitting[0], table, _remarks(fitting[0], table)))
        else:
            apart.append(_why_not(table, fitting, baseline, free))
        matched |= {id(other) for other in (fitting or _nearest(table, baseline, free))}
    for other in baseline:
        if id(other) not in matched:
            apart.append(Incomparable(other.key.name, "", "the candidate has no finished cell like it"))
    return Matches(tuple(pairs), tuple(apart))


def _nearest(table: TaskTable, baseline: Sequence[TaskTable], free: frozenset[str]) -> list[TaskTable]:
    """The baseline cell that differs in the fewest keys; none where there is no baseline."""
    return sorted(baseline, key=lambda other: len(differ(other.scope, table.scope, free)))[:1]


def _of_preset_if_several(fitting: list[TaskTable], table: TaskTable) -> list[TaskTable]:
    """Two sweeps of the same presets are compared preset by preset."""
    if len(fitting) < 2:
        return fitting
    return [other for other in fitting if other.key.quant == table.key.quant] or fitting


def _why_not(
    table: TaskTable, fitting: list[TaskTable], baseline: Sequence[TaskTable], free: frozenset[str]
) -> Incomparable:
    if not baseline:
        return Incomparable("", table.key.name, "the baseline has no finished cell")
    if len(fitting) == 1:
        return Incomparable(fitting[0].key.name, table.key.name, "baseline and candidate are the same cell")
    if fitting:
        quants = {other.key.quant for other in fitting}
        if len(quants) > 1:
            reason = f"the baseline holds several presets ({', '.join(sorted(quants)).lower()}): name one"
        else:
            told = "; ".join(sorted(set(variant_names(fitting, "quant"))))
            reason = f"the baseline holds {len(fitting)} files of this preset ({told}): name the run"
        return Incomparable(fitting[0].key.name, table.key.name, reason)
    nearest = _nearest(table, baseline, free)[0]
    reason = told_difference(nearest.scope, table.scope, free) or "the two list different tasks"
    return Incomparable(nearest.key.name, table.key.name, reason)


def _remarks(a: TaskTable, b: TaskTable) -> tuple[str, ...]:
    found = []
    # What the preset alone does not explain was allowed.
    if let := told_difference(a.scope, b.scope, ("quant",)):
        found.append(f"{let}, as allowed")
    if a.scope.get("file.imatrix") != b.scope.get("file.imatrix"):
        found.append("the importance matrix differs: the files are compared, not the presets alone")
    return tuple(found)
