"""How every episode ended, as a map: one row per task and fault site, one column per cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from qfr.analysis.frames import Cell, cell_key, contexts, score_column, told_apart
from qfr.analysis.levels import NOT_STATED, Axis, order_key
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.analysis.trials import FOREIGN
from qfr.facts import CellFacts
from qfr.records import Ending, FaultKind, Policy
from qfr.report.tables.formats import spelled
from qfr.scope import group, scope_of

#: Rows of one map; further tasks are left out, those first on which the cells agree.
MOST_ROWS = 120
MOST_COLUMNS = 40
ENDINGS = {
    "submitted": "submitted an answer",
    "reported_failure": "reported failure",
    "out_of_steps": "ran out of steps",
    "out_of_errors": "ran out of errors",
    "out_of_context": "ran out of context",
    "stopped_talking": "stopped calling tools",
}
#: What the colours of the squares mean, by code.
MEANINGS = (
    "success",
    "wrong answer",
    "gave up",
    "ran out of steps, errors or context",
    "the fault never fired",
    "not run: clean pass failed",
)
_RIGHT, _WRONG, _GAVE_UP, _RAN_OUT, _NEVER, _NOT_RUN = range(6)


@dataclass(frozen=True)
class Map:
    """One map. Codes index `MEANINGS`."""

    title: str
    model: str
    fault: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    codes: tuple[tuple[int, ...], ...]
    hovers: tuple[tuple[str, ...], ...]
    tasks: tuple[str, ...]
    sites: tuple[int, ...]
    # Of each row.
    agents: tuple[str, ...]
    # Preset and prompt of each column, as the viewer names them.
    left_out: int
    # Tasks without a row.


def outcome_maps(cells: Iterable[Cell], tables: Iterable[TaskTable], policy: Policy) -> tuple[Map, ...]:
    """Draw up one map per model, fault and setting.

    Parameters
    ----------
    tables : iterable of TaskTable
        Of the same cells; they say on which tasks cells disagree.
    policy : Policy
        Says what is a success.
    """
    given = tuple(cells)
    told = contexts(cell.facts for cell in given)
    names = told_apart(cell.facts for cell in given)
    played = [cell for cell in given if cell.facts.fault != FaultKind.none and len(cell.episodes)]
    known: dict[str, TaskTable] = {}
    for table in tables:
        if table.policy == policy.value and table.cells:
            known[table.cells[0]] = table
    found = []
    for setting in group(played, ("quant", "prompt"), of=lambda cell: scope_of(cell.facts)):
        members = [cell for cell in setting.members if cell.facts.cell_id in known]
        if members:
            facts = members[0].facts
            key = replace(cell_key(facts, told[facts.cell_id]), quant="", prompt="")
            found.append(_map(key, members, [known[cell.facts.cell_id] for cell in members], (policy, names)))
    return tuple(found)


def _map(
    key: CellKey, members: list[Cell], tables: list[TaskTable], how: tuple[Policy, Mapping[str, str]]
) -> Map:
    policy, contexts_of = how
    members = sorted(members, key=lambda cell: _place(cell))[:MOST_COLUMNS]
    rows, left_out = _rows(members, tables)
    columns = [_outcomes(cell, policy, {task for task, _, _ in rows}) for cell in members]
    missing = (_NOT_RUN, "not run: the clean pass failed")
    squares = [[column.get((task, site), missing) for column in columns] for task, site, _ in rows]
    # The title says what all columns share.
    own = [contexts_of[cell.facts.cell_id].removeprefix(key.context).lstrip(", ") for cell in members]
    names = tuple(
        " ".join(part for part in (cell.facts.quant, cell.facts.prompt, text) if part)
        for cell, text in zip(members, own, strict=True)
    )
    return Map(
        title=" · ".join(
            part for part in (key.model, key.fault, key.executor, key.suite, key.context) if part
        ),
        model=key.model,
        fault=key.fault,
        rows=tuple(spelled(f"{task} · {site} {tool}"[:60]) for task, site, tool in rows),
        columns=names,
        codes=tuple(tuple(code for code, _ in row) for row in squares),
        hovers=tuple(
            tuple(
                spelled(f"{task}, site {site} ({tool})\n{name}: {told}")
                for name, (_, told) in zip(names, row, strict=True)
            )
            for (task, site, tool), row in zip(rows, squares, strict=True)
        ),
        tasks=tuple(spelled(task) for task, _, _ in rows),
        sites=tuple(site for _, site, _ in rows),
        agents=tuple(agent_name(cell.facts, contexts_of[cell.facts.cell_id]) for cell in members),
        left_out=left_out,
    )


def agent_name(facts: CellFacts, context: str = "") -> str:
    """Name model, preset and prompt (and whatever else tells a cell apart) as the viewer does."""
    trial = f"trial {facts.trial}" if facts.trial else ""
    if facts.executor == FOREIGN:
        names = (facts.model, facts.quant if facts.quant != NOT_STATED else "", facts.suite, context)
        return spelled(" ".join(part for part in names if part))
    executor = facts.executor if facts.executor != "tolerant" else ""
    return spelled(
        " ".join(part for part in (facts.model, facts.quant, facts.prompt, executor, trial, context) if part)
    )


def _place(cell: Cell) -> tuple[object, ...]:
    facts = cell.facts
    return order_key(Axis.prompt, facts.prompt), order_key(Axis.quant, facts.quant), facts.cell_id


def _rows(members: list[Cell], tables: list[TaskTable]) -> tuple[list[tuple[str, int, str]], int]:
    """Task, site and tool of each row, and how many tasks are left out."""
    frames = [cell.episodes[["task", "site", "site_tool"]] for cell in members]
    every = pd.concat(frames, ignore_index=True).drop_duplicates(["task", "site"])
    order = {task: at for at, task in enumerate(tables[0].tasks)}
    chosen = set(order)
    if len(every) > MOST_ROWS:
        whole = np.ones(len(order), dtype=np.bool_)
        same = [table for table in tables if table.tasks == tables[0].tasks]
        apart = np.stack([full_rates(table, whole).values for table in same]).std(axis=0)
        each = max(1.0, len(every) / max(1, every["task"].nunique()))
        most = np.argsort(-apart, kind="stable")[: int(MOST_ROWS / each)]
        chosen = {tables[0].tasks[at] for at in most}
    kept = every[every["task"].isin(chosen)]
    found = [
        (str(task), -1 if pd.isna(site) else int(site), "" if pd.isna(tool) else str(tool))
        for task, site, tool in kept.itertuples(index=False)
    ]
    found.sort(key=lambda row: (order.get(row[0], len(order)), row[1]))
    return found, int(every["task"].nunique()) - len({task for task, _, _ in found})


def _outcomes(cell: Cell, policy: Policy, tasks: set[str]) -> dict[tuple[str, int], tuple[int, str]]:
    frame = cell.episodes
    frame = frame[frame["task"].isin(tasks)]
    success, reason = score_column(policy, "success"), score_column(policy, "reason")
    columns = ["task", "site", "ending", "answer", "gold", "turns", "delivered", success, reason]
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for task, site, ending, answer, gold, turns, delivered, good, why in frame[columns].itertuples(
        index=False, name=None
    ):
        given = "" if pd.isna(answer) else f" {str(answer)[:40]} (right: {str(gold)[:40]})"
        told = f"{MEANINGS[_code(ending, bool(good), bool(delivered))]}\n{ENDINGS.get(ending, ending)}{given}"
        told += f"\n{str(why).replace('_', ' ')}, {turns} turns"
        place = (str(task), -1 if pd.isna(site) else int(site))
        found[place] = (_code(ending, bool(good), bool(delivered)), told)
    return found


def _code(ending: str, good: bool, delivered: bool) -> int:
    if not delivered:
        return _NEVER
    if good:
        return _RIGHT
    if ending == Ending.submitted:
        return _WRONG
    return _GAVE_UP if ending == Ending.reported_failure else _RAN_OUT
