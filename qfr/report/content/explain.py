"""One row of the table of results, down to its tasks: the values on each side, what is left out, the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qfr.analysis.pairing import tables_in_groups
from qfr.analysis.results import COLUMNS, Kind, Result
from qfr.analysis.targets import Target, TaskTable, samples, shared_tasks
from qfr.analysis.trials import aligned
from qfr.errors import UserError, did_you_mean
from qfr.report.content.build import Report
from qfr.report.content.explain_calls import counted_tasks
from qfr.report.tables.formats import signed
from qfr.report.tables.specs import Entry, Table
from qfr.stats.lattice import BoolArray

#: Kinds whose rows follow from successes per task; the others are counted in the logs, call by call.
_OF_TASKS = frozenset(
    {Kind.contrast, Kind.simultaneous, Kind.rate, Kind.rank, Kind.interaction, Kind.group, Kind.ladder}
)
_PAIRS = (Kind.contrast, Kind.simultaneous)
_UNTOLD = frozenset({"id", "cells", "dropped_a", "dropped_b", "undelivered_a", "undelivered_b"})


@dataclass(frozen=True)
class Explained:
    """What one row is made of."""

    title: str
    columns: Table
    # Every column of the row that says something.
    tasks: Table | None
    # None where the row does not follow from successes per task.
    note: str
    cells: Table
    # The cells behind it, and their MLflow runs.


def explain(report: Report, name: str) -> Explained:
    """Take one row of a report apart.

    Raises
    ------
    UserError
        The report has no row of that id.
    """
    known = {one.id: one for one in report.results}
    if name not in known:
        raise UserError(
            f"this report has no row {name!r}" + did_you_mean(name, known),
            where="--explain",
            hint="an id stands below each number of report.html and in the first column of results.csv; "
            "give the same --sweep, --vary and --filter as for that report",
        )
    row = known[name]
    used = _tables(report, row)
    tasks = _tasks(report, row, used) if used else counted_tasks(report, row)
    return Explained(
        title=_title(row),
        columns=Table("The row.", ("Column", "Value"), tuple(_columns(row)), title="The row"),
        tasks=tasks,
        note="" if tasks else _NOTE,
        cells=_cells(report, row),
    )


_NOTE = (
    "This row is counted in the logs, call by call: episodes.parquet and calls.parquet of these runs have a "
    "line for each episode and turn."
)


def _title(row: Result) -> str:
    sides = f"{row.a} − {row.b}" if row.b else row.a
    names = (row.kind, row.model, row.level if row.level != row.a else None, row.prompt, row.fault, row.scope)
    more = (sides, row.target, row.item, row.family and f"family {row.family}", row.policy)
    return f"{row.id}: " + ", ".join(str(part) for part in (*names, *more) if part)


def _columns(row: Result) -> Iterable[tuple[Entry, ...]]:
    for name in COLUMNS:
        value = getattr(row, name)
        if name not in _UNTOLD and value not in (None, "", ()):
            text = "; ".join(value) if isinstance(value, tuple) else f"{value}"
            yield Entry(name), Entry(text)


def _tables(report: Report, row: Result) -> tuple[TaskTable, ...]:
    """The task tables behind a row, sides first; none for a row that is counted in the logs."""
    if Kind(row.kind) not in _OF_TASKS or row.policy is None:
        return ()
    known = {one.cells[0]: one for one in report.joined.tables if one.policy == row.policy and one.cells}
    found = tuple(known[cell] for cell in row.cells if cell in known)
    if row.kind == Kind.rate and found and row.target == Target.s_star:
        groups = tables_in_groups(report.joined.tables, ("prompt",))
        found += tuple(
            table
            for one in groups
            if found[0] in one.members
            for table in one.members
            if table is not found[0] and table.tasks == found[0].tasks
        )
    # A clean pass comes along with its fault cell and is no side of its own.
    faulted = tuple(one for one in found if one.key.fault != "none")
    return aligned(faulted or found)


def _tasks(report: Report, row: Result, tables: tuple[TaskTable, ...]) -> Table:
    sides, enters = _entering(row, tables)
    target = Target(row.target) if row.target in list(Target) else Target.own
    within = tables[0].within(row.family)
    rows = []
    for at, task in enumerate(tables[0].tasks):
        if not within[at]:
            continue
        values = [_value(one, target, at) if enters[side][at] else None for side, one in enumerate(sides)]
        texts = [Entry(_told(one, target, at, value)) for one, value in zip(sides, values, strict=True)]
        pair = values if row.kind in _PAIRS and len(values) == 2 else ()
        gap = [] if not pair else [Entry(_gap(pair))]
        rows.append((Entry(task), *texts, *gap, Entry(_why_not(row, tables, sides, (enters, at)))))
    names = [*(one.key.name for one in sides)]
    if row.kind in _PAIRS and len(names) == 2:
        names = [f"A: {names[0]}", f"B: {names[1]}", "A − B, points"]
    caption = (
        f"{len(rows)} tasks; a value is successful of delivered fault episodes"
        + (", 0 where the clean pass failed" if target is Target.full else "")
        + "; a dash does not enter."
    )
    return Table(caption, ("Task", *names, "Left out because"), tuple(rows), title="Tasks")


def _entering(row: Result, tables: tuple[TaskTable, ...]) -> tuple[tuple[TaskTable, ...], list[BoolArray]]:
    """The tables whose values count, and which tasks enter on each."""
    target = Target(row.target) if row.target in list(Target) else Target.own
    within = tables[0].within(row.family)
    if row.kind in _PAIRS and len(tables) > 1:
        shared = shared_tasks(tables) if target is Target.s_star else None
        drawn = samples(target, tables[0], tables[1], within, shared)
        return tables[:2], [drawn.enters_a, drawn.enters_b]
    if target in (Target.full, Target.clean):
        return tables, [within] * len(tables)
    if row.kind in (Kind.rate, Kind.ladder):
        everywhere = shared_tasks(tables) if target is Target.s_star else within
        return tables[:1], [tables[0].countable & within & everywhere]
    all_of_them: BoolArray = np.logical_and.reduce([one.countable for one in tables]) & within
    return tables, [all_of_them] * len(tables)


def _value(one: TaskTable, target: Target, at: int) -> float:
    if target is Target.clean and not one.repeated:
        return float(one.certified[at])
    counted = bool(one.countable[at]) or (target is Target.ungated and bool(one.delivered[at]))
    return float(one.successes[at] / one.delivered[at]) if counted else 0.0


def _told(one: TaskTable, target: Target, at: int, value: float | None) -> str:
    if value is None:
        return "–"
    if target is Target.clean and not one.repeated:
        return "passed" if value else "failed"
    if not one.countable[at] and target is not Target.ungated:
        return "0"
    return f"{one.successes[at]}/{one.delivered[at]}"


def _gap(values: Sequence[float | None]) -> str:
    a, b = values
    return "–" if a is None or b is None else signed(100 * (a - b))


def _why_not(
    row: Result,
    tables: tuple[TaskTable, ...],
    sides: tuple[TaskTable, ...],
    place: tuple[list[BoolArray], int],
) -> str:
    """Why a task does not enter, side by side; in the full pipeline, why it counts 0."""
    enters, at = place
    if all(mask[at] for mask in enters) and row.target != Target.full:
        return ""
    parts = [f"{one.key.name}: {reason}" for one in sides if (reason := _lost(one, at))]
    if not parts:
        others = [one.key.name for one in tables if one not in sides and not one.certified[at]]
        parts = [f"{name}: clean pass failed" for name in others]
    return "; ".join(parts)


def _lost(one: TaskTable, at: int) -> str:
    if not one.certified[at]:
        return "clean pass failed"
    if one.key.fault != "none" and not one.delivered[at]:
        return "no fault fired"
    return ""


def _cells(report: Report, row: Result) -> Table:
    names = {facts.cell_id: facts.name for facts in report.facts}
    runs = report.material.runs
    rows = tuple((Entry(names.get(one, "")), Entry(one), Entry(runs.get(one, "–"))) for one in row.cells)
    return Table("The cells behind it.", ("Cell", "Ran as", "MLflow run"), rows, title="Cells")
