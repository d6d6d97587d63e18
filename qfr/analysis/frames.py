"""From logged cells to task tables: a fault cell joined with its clean pass, under each scoring policy.

An episode frame has one row per episode, as `qfr.tracking` reads it: the columns of the episode table, then
the score fields, those that depend on the policy once per policy (`score_column`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from qfr.analysis import trials
from qfr.analysis.targets import CellKey, TaskTable
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.records import FaultKind, Policy
from qfr.scope import Scope, group, labels, scope_of, varying

# A section of a page holds the presets, prompts and faults of each model under one setting.
_IN_ONE_SECTION = frozenset({"model", "quant", "prompt", "fault"})


def contexts(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """Return what tells each cell's setting from the others, by cell_id; empty where all ran under one.

    Presets, prompts and faults of a model under one setting stand together, so they carry the same text.
    """
    given = tuple({one.cell_id: one for one in facts}.values())
    sections: dict[tuple[str, ...], dict[Scope, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in group(given, _IN_ONE_SECTION, of=_with_gate):
        for cell in one.members:
            sections[cell.model, cell.suite, cell.executor][one.fixed].append(cell.cell_id)
    found: dict[str, str] = {}
    for (_, _, executor), settings in sections.items():
        logs = executor == trials.FOREIGN
        texts = _of_logs(tuple(settings)) if logs else labels(tuple(settings))
        for cells, text in zip(settings.values(), texts, strict=True):
            found |= dict.fromkeys(cells, text)
    return found


def _of_logs(settings: tuple[Scope, ...]) -> tuple[str, ...]:
    """Labels of imported logs: one key where one tells them all apart, the program before its budgets."""
    keys = sorted((key for key, _ in varying(settings)), key=lambda key: key.startswith("suite."))
    for key in keys:
        if len({one.get(key) for one in settings}) == len(settings):
            return tuple(f"{key}={one.told(key)}" for one in settings)
    return labels(settings)


def told_apart(facts: Iterable[CellFacts]) -> Mapping[str, str]:
    """As `contexts`, and for cells that still share all names also their own prompt, fault text and file."""
    given = tuple({one.cell_id: one for one in facts}.values())
    shared = contexts(given)
    found = {}
    names = [(one.model, one.quant, one.prompt, one.fault, one.executor, one.suite) for one in given]
    twins = {name: [one for one, mine in zip(given, names, strict=True) if mine == name] for name in names}
    for members in twins.values():
        texts = labels([scope_of(one) for one in members])
        for one, text in zip(members, texts, strict=True):
            told = shared[one.cell_id].split(", ") if shared[one.cell_id] else []
            told += [part for part in text.split(", ") if part and part not in told]
            found[one.cell_id] = ", ".join(told)
    return found


def _with_gate(facts: CellFacts) -> Scope:
    """A clean pass has no gate; it stands with the fault cells that follow it."""
    return Scope({"suite.gate": facts.gate} | dict(scope_of(facts)))


#: Score fields that depend on the policy; the others are the same under both.
POLICY_FIELDS = ("success", "right_answer", "reason", "reported_after")


class Cell(Protocol):
    """A finished cell as the tracking store returns it."""

    @property
    def facts(self) -> CellFacts:
        """What the run says about itself."""

    @property
    def episodes(self) -> pd.DataFrame:
        """One row per episode, both policies' scores included."""

    @property
    def clean(self) -> Cell | None:
        """The clean pass that fault episodes belong to; None for a clean pass."""


@dataclass(frozen=True)
class Joined:
    """Task tables of the cells that could be joined, and what could not."""

    tables: tuple[TaskTable, ...]
    # In the order of the cells, tolerant before strict.
    orphans: tuple[str, ...]
    # Names of fault cells whose clean pass is missing.
    doubled: tuple[str, ...]
    # Names of cells that were handed in more than once; the first counts.


def score_column(policy: Policy, field: str) -> str:
    """Return the column of an episode frame that holds a score field under a policy."""
    return f"{policy.value}_{field}" if field in POLICY_FIELDS else field


def join(cells: Iterable[Cell]) -> Joined:
    """Join every fault cell with its clean pass and build its task tables, one per policy.

    A clean pass that no fault cell belongs to gives tables of its own (fault ``none``), so that its certified
    tasks can still be contrasted.

    Raises
    ------
    LogError
        If a fault cell holds episodes of tasks that its clean pass does not.
    """
    known: dict[str, Cell] = {}
    doubled = []
    for cell in cells:
        if cell.facts.cell_id in known:
            doubled.append(cell.facts.name)
        else:
            known[cell.facts.cell_id] = cell
    told = contexts(facts for cell in known.values() for facts in _facts(cell))
    faulted = [cell for cell in known.values() if cell.facts.fault != FaultKind.none]
    used = {cell.facts.clean_id for cell in faulted}
    tables: list[TaskTable] = []
    orphans = []
    for cell in known.values():
        if cell.facts.fault == FaultKind.none:
            if cell.facts.cell_id not in used:
                name = told[cell.facts.cell_id]
                tables += [task_table(cell.facts, cell.episodes, None, policy, name) for policy in Policy]
        elif (clean := cell.clean or known.get(cell.facts.clean_id)) is None:
            orphans.append(cell.facts.name)
        else:
            parts, name = (clean.episodes, cell.episodes), told[cell.facts.cell_id]
            tables += [task_table(cell.facts, *parts, policy, name) for policy in Policy]
    return Joined(tuple(tables), tuple(orphans), tuple(doubled))


def task_table(
    facts: CellFacts,
    clean: pd.DataFrame,
    faulted: pd.DataFrame | None,
    policy: Policy,
    context: str = "",
) -> TaskTable:
    """Build the task table of one cell under one policy.

    Parameters
    ----------
    facts : CellFacts
        Of the fault cell (or of the clean pass alone).
    clean, faulted : DataFrame
        Episodes of the clean pass, one per task, and of the fault cell; None for a clean pass alone.
        An imported log has several per task (see `qfr.analysis.trials`).
    context : str
        What tells the cell from others of the same names.

    Raises
    ------
    LogError
        If the clean pass lists a task twice, or the fault cell another task.
    """
    if facts.executor == trials.FOREIGN:
        success = clean[score_column(policy, "success")].to_numpy(dtype=np.bool_)
        return trials.trial_table(facts, cell_key(facts, context), policy.value, clean, success)
    tasks = pd.Index(clean["task"])
    if not tasks.is_unique:
        raise LogError("the clean pass holds a task twice", where=facts.name)
    n = len(tasks)
    successes = delivered = scheduled = np.zeros(n, dtype=np.int64)
    if faulted is not None and len(faulted):
        at = tasks.get_indexer(faulted["task"])
        if (at < 0).any():
            foreign = faulted["task"].iloc[int(np.argmin(at))]
            raise LogError(
                f"task {foreign} has fault episodes but no clean episode",
                where=facts.name,
                hint="the clean run belongs to another suite; run the cell again",
            )
        fired = faulted[score_column(policy, "delivered")].to_numpy(dtype=np.bool_)
        good = faulted[score_column(policy, "success")].to_numpy(dtype=np.bool_) & fired
        scheduled = np.bincount(at, minlength=n).astype(np.int64)
        delivered = np.bincount(at[fired], minlength=n).astype(np.int64)
        successes = np.bincount(at[good], minlength=n).astype(np.int64)
    return TaskTable(
        key=cell_key(facts, context),
        policy=policy.value,
        tasks=tuple(str(task) for task in tasks),
        families=tuple(str(family) for family in clean["family"]),
        certified=clean[score_column(policy, "success")].to_numpy(dtype=np.bool_),
        successes=successes,
        delivered=delivered,
        scheduled=scheduled,
        facts=scope_of(facts),
        cells=tuple(dict.fromkeys((facts.cell_id, facts.clean_id))),
    )


def _facts(cell: Cell) -> tuple[CellFacts, ...]:
    return (cell.facts,) if cell.clean is None else (cell.facts, cell.clean.facts)


def cell_key(facts: CellFacts, context: str = "") -> CellKey:
    """Return a cell's names along every axis, and what tells it from a cell of the same names."""
    return CellKey(
        model=facts.model,
        quant=facts.quant,
        prompt=facts.prompt,
        fault=facts.fault,
        executor=facts.executor,
        suite=facts.suite,
        gate=facts.gate,
        trial=facts.trial,
        context=context,
    )
