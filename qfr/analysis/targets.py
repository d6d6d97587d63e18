"""Evaluation targets: which tasks enter, and with which rate (Hu 2026, section 3).

With S(a, p) the tasks that cell (a, p) passed clean and r(a, p, t) the mean success of task t over its fault
sites, the targets are

- *clean*: share of certified tasks, paired over all tasks
- *own*: mean of r over S(a, p), each cell on its own set (two independent samples)
- *matched*: both cells on the intersection of their sets, paired
- *full*: mean over all tasks, where a task that failed its clean pass counts 0, paired
- *S\\**: as matched, on the tasks that both levels passed under every prompt
- *ungated*: mean of r over all tasks, certified or not; only where faults ran on all tasks

A scheduled fault that never fired leaves r's denominator. A task with none delivered leaves own, matched, S*
and ungated, and counts 0 in full. The paper does not treat that case; this is our rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from qfr.errors import TableError
from qfr.scope import NAMES, UNKNOWN, Scope
from qfr.stats.lattice import BoolArray, IntArray, Lattice


class Target(StrEnum):
    """What is estimated."""

    clean = "clean"
    own = "own"
    matched = "matched"
    full = "full"
    s_star = "s_star"
    ungated = "ungated"


@dataclass(frozen=True)
class CellKey:
    """Names of one cell along every axis."""

    model: str
    quant: str
    prompt: str
    fault: str
    executor: str
    suite: str
    gate: str
    trial: int
    context: str = ""
    # What tells it from a cell of the same names, such as ``error budget 2``; mostly empty.

    @property
    def name(self) -> str:
        """The run's name: `llama q8_0 P0 et`, without the parts that are empty; then the context."""
        names = (self.model, self.quant.lower(), self.prompt, self.fault)
        return ", ".join(part for part in (" ".join(name for name in names if name), self.context) if part)

    @property
    def scope(self) -> Scope:
        """What the names alone say, for results that come without a record of their cell."""
        named = {key: getattr(self, name) for name, key in NAMES.items()}
        named |= {"trial": str(self.trial), "context": self.context}
        if self.fault != "none":
            # A clean pass is the same whatever is played after it.
            named["suite.gate"] = self.gate
        return Scope({key: value for key, value in named.items() if value})


@dataclass(frozen=True, eq=False)
class TaskTable:
    """One cell under one scoring policy: one entry per task of the suite, certified or not.

    Arrays have shape (n_tasks,).
    """

    key: CellKey
    policy: str
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    # Family of each task; all empty where unknown.
    certified: BoolArray
    # The clean pass succeeded under this policy.
    successes: IntArray
    # Successful fault episodes.
    delivered: IntArray
    # Fault episodes whose fault fired.
    scheduled: IntArray
    # Fault episodes that were run.
    facts: Scope = UNKNOWN
    # What the cell's run says of itself besides the names; nothing for published tables.
    cells: tuple[str, ...] = ()
    # cell_id of the fault cell and of its clean pass; empty for published tables.

    def __post_init__(self) -> None:
        n = len(self.tasks)
        for name in ("families", "certified", "successes", "delivered", "scheduled"):
            if len(getattr(self, name)) != n:
                raise TableError(f"{len(getattr(self, name))} {name} for {n} tasks", where=self.key.name)
        if len(set(self.tasks)) != n:
            raise TableError("a task is listed twice", where=self.key.name)
        in_order = (
            (self.successes >= 0) & (self.successes <= self.delivered) & (self.delivered <= self.scheduled)
        )
        if not bool(in_order.all()):
            task = self.tasks[int(np.argmin(in_order))]
            raise TableError(
                f"task {task}: successes, delivered and scheduled faults are out of order",
                where=self.key.name,
                hint="0 <= successes <= delivered <= scheduled must hold",
            )

    @cached_property
    def scope(self) -> Scope:
        """Every key that tells the cell from another one (see `qfr.scope`)."""
        names = {key: value for key, value in self.key.scope.items() if key != "context" or not self.facts}
        return Scope({**self.facts, **names})

    @property
    def n_tasks(self) -> int:
        """Tasks of the suite."""
        return len(self.tasks)

    @property
    def n_certified(self) -> int:
        """Tasks that passed the clean pass."""
        return int(self.certified.sum())

    @property
    def countable(self) -> BoolArray:
        """Certified tasks with a delivered fault: those with a rate r."""
        return self.certified & (self.delivered > 0)

    @property
    def repeated(self) -> bool:
        """Whether this is an imported log of several trials per task and without faults (see `trials`)."""
        return self.key.fault == "none" and bool((self.scheduled > 0).any())

    @property
    def undelivered_tasks(self) -> tuple[str, ...]:
        """Certified tasks none of whose scheduled faults fired."""
        return named(self.tasks, self.certified & (self.scheduled > 0) & (self.delivered == 0))

    def family_names(self) -> tuple[str, ...]:
        """Families in the order of their first task; empty where unknown."""
        return tuple(dict.fromkeys(name for name in self.families if name))

    def within(self, family: str | None) -> BoolArray:
        """Mask of a family's tasks; of all tasks for None."""
        if family is None:
            return np.ones(self.n_tasks, dtype=np.bool_)
        return np.array([name == family for name in self.families], dtype=np.bool_)


def named(tasks: tuple[str, ...], mask: BoolArray) -> tuple[str, ...]:
    """Return the names that a mask selects, in order."""
    return tuple(tasks[at] for at in np.flatnonzero(mask))


@dataclass(frozen=True, eq=False)
class Samples:
    """The tasks that enter a contrast and their values."""

    paired: bool
    enters_a: BoolArray
    # Shape (n_tasks,).
    enters_b: BoolArray
    rates_a: Lattice
    # One value per entering task, in order.
    rates_b: Lattice


def recovery(table: TaskTable, mask: BoolArray) -> Lattice:
    """Return r of the tasks in a mask, each with at least one delivered fault."""
    return Lattice.from_counts(table.successes[mask], table.delivered[mask])


def full_rates(table: TaskTable, mask: BoolArray) -> Lattice:
    """Return r of certified tasks and 0 for the others (certify first, then fault)."""
    counted = table.countable
    successes = np.where(counted, table.successes, 0)[mask]
    return Lattice.from_counts(successes, np.where(counted, table.delivered, 1)[mask])


def clean_rates(table: TaskTable, mask: BoolArray) -> Lattice:
    """Return 1 for certified tasks and 0 for the others."""
    return Lattice(table.certified[mask].astype(np.int64), 1)


def same_tasks(a: TaskTable, b: TaskTable) -> bool:
    """Whether both tables list the same tasks in the same order."""
    return a.tasks == b.tasks


def shared_tasks(tables: tuple[TaskTable, ...]) -> BoolArray:
    """Return S*: the mask of tasks that every given cell certified.

    Raises
    ------
    TableError
        If no table is given or the tables list other tasks.
    """
    if not tables:
        raise TableError("S* of no cells")
    for table in tables[1:]:
        if not same_tasks(tables[0], table):
            raise TableError(f"{tables[0].key.name} and {table.key.name} list different tasks")
    mask = tables[0].certified
    for table in tables[1:]:
        mask = mask & table.certified
    return mask


def samples(
    target: Target, a: TaskTable, b: TaskTable, within: BoolArray, shared: BoolArray | None = None
) -> Samples:
    """Return the tasks and values of one target for two cells of the same tasks.

    Parameters
    ----------
    a, b : TaskTable
        Same tasks in the same order.
    within : bool array, shape (n_tasks,)
        Tasks considered at all (a family, or all).
    shared : bool array, shape (n_tasks,), optional
        S*, for that target only.

    Raises
    ------
    TableError
        If the tables list different tasks.
    """
    if not same_tasks(a, b):
        raise TableError(f"{a.key.name} and {b.key.name} list different tasks")
    if target is Target.own:
        first, second = a.countable & within, b.countable & within
        return Samples(False, first, second, recovery(a, first), recovery(b, second))
    if target is Target.clean and (a.repeated or b.repeated):
        both = within & a.countable & b.countable
        return Samples(True, both, both, recovery(a, both), recovery(b, both))
    if target is Target.clean:
        return Samples(True, within, within, clean_rates(a, within), clean_rates(b, within))
    if target is Target.full:
        return Samples(True, within, within, full_rates(a, within), full_rates(b, within))
    if target is Target.ungated:
        both = within & (a.delivered > 0) & (b.delivered > 0)
    else:
        both = within & a.countable & b.countable
        if target is Target.s_star:
            both = both & (shared if shared is not None else np.zeros_like(both))
    return Samples(True, both, both, recovery(a, both), recovery(b, both))
