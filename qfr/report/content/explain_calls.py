"""A row that is counted in the logs, down to its tasks: what each cell's calls gave, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from qfr.analysis.diagnostics.log import KEYS
from qfr.analysis.results import Kind, Result
from qfr.analysis.targets import TaskTable
from qfr.records import Channel
from qfr.report.content.build import Report
from qfr.report.tables.specs import Entry, Table

#: Kinds that compare two cells over the episodes that both played.
_SHARED = (Kind.amplification, Kind.novelty, Kind.divergence)
# Numbers of each task.
_Counts = dict[str, tuple[int, ...]]
_CHANNELS = frozenset(map(str, Channel))


def counted_tasks(report: Report, row: Result) -> Table | None:
    """What a counted row rests on, task by task; None where the calls of its cells are not at hand."""
    given = report.material.calls
    names = {one.cell_id: one.name for one in report.facts}
    calls = {cell: found for cell in row.cells if given is not None and (found := given(cell)) is not None}
    if not calls:
        return None
    shared = _shared(list(calls.values())) if row.kind in _SHARED else None
    channel = row.item if row.item in _CHANNELS else ""
    told = {cell: _per_task(found, channel, shared) for cell, found in calls.items()}
    tasks = dict.fromkeys(task for one in calls.values() for task in one["task"])
    policy = row.policy or report.options.policy.value
    tables = [one for one in report.joined.tables if one.policy == policy]
    solved = {one.cells[0]: (one, False) for one in tables if one.cells}
    passed = {one.cells[1]: (one, True) for one in tables if len(one.cells) > 1} | solved
    head = ["Task", "Cell", "Successes", "Episodes", "Calls", "Failed calls", "Left out because"]
    if channel:
        head.insert(-1, f"Failed as {channel.replace('_', ' ')}")
    rows = tuple(
        (Entry(str(task)), Entry(names.get(cell, cell)), Entry(_success(passed.get(cell), str(task))), *rest)
        for task in tasks
        for cell, one in told.items()
        for rest in (_counts(one, task, "no episode of it" if shared is None else "not played by both"),)
    )
    caption = (
        f"{len(tasks)} tasks; episodes with a call, calls, and failed calls of the agent's own; successes of "
        f"delivered episodes, {policy} scoring"
        + ("; only episodes that both sides played are counted." if shared is not None else ".")
    )
    return Table(caption, tuple(head), rows, headers=2, title="Tasks")


def _counts(one: _Counts, task: str, why: str) -> tuple[Entry, ...]:
    width = len(next(iter(one.values()), ()))
    found = one.get(task)
    if found is None:
        return (*(Entry("–") for _ in range(width)), Entry(why))
    return (*(Entry(str(value)) for value in found), Entry(""))


def _success(found: tuple[TaskTable, bool] | None, task: str) -> str:
    """Successful of delivered episodes; of the clean pass of a fault cell, whether it certified the task."""
    table, clean = found if found is not None else (None, False)
    if table is None or task not in table.tasks:
        return "–"
    at = table.tasks.index(task)
    if clean:
        return "passed" if table.certified[at] else "failed"
    return f"{table.successes[at]}/{table.delivered[at]}"


def _shared(calls: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Episodes that every cell holds which holds any of their fault."""
    keys = [one[list(KEYS)].drop_duplicates() for one in calls]
    counts = pd.concat(keys).groupby(list(KEYS), dropna=False).size().reset_index(name="cells")
    faults = pd.concat([one["fault"].drop_duplicates() for one in keys]).value_counts()
    return counts[counts["cells"] == counts["fault"].map(faults)]


def _per_task(calls: pd.DataFrame, channel: str, shared: pd.DataFrame | None) -> _Counts:
    """Episodes, calls, failed calls and those of a channel, by task."""
    if shared is not None:
        calls = calls.merge(shared[list(KEYS)], on=list(KEYS), how="inner")
    frame = calls.assign(failed=calls["channel"].notna(), hit=calls["channel"].eq(channel).fillna(False))
    grouped = frame.groupby("task", sort=False)
    episodes = frame.drop_duplicates(list(KEYS)).groupby("task", sort=False).size()
    counts = {"episodes": episodes, "calls": grouped.size(), "failed": grouped["failed"].sum()}
    table = pd.DataFrame(counts | ({"hit": grouped["hit"].sum()} if channel else {}))
    return {str(task): tuple(map(int, values)) for task, *values in table.itertuples()}
