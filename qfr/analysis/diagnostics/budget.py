"""Success under a shrinking error budget: S(K), K = budget … 0 (Jang 2026), recounted from one log.

S(K) is the mean over tasks of the share of a task's fault episodes that succeed within budget K; with equal
numbers of episodes per task, as in Jang's logs, that is the share of episodes. Two ways of counting are in
use:

- *allow K* (as papers word it): an episode with at most K failed calls goes on. qfr's own budget
- *stop at K* (as tau2-bench codes ``max_errors``): the K-th failed call ends the episode, so ``stop at K``
  equals ``allow K - 1`` and ``stop at 0`` lets nothing succeed

Failed calls are the agent's own; with ``injected`` the failures that the fault caused count as well (an
explicit fault each time it answered; displaced data is no failed call). In the full-pipeline target the
clean pass is recounted under the same budget: what a run under that budget would have certified.

A recount assumes that the agent would have done the same under the tight budget. `rerun` tests it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.keys import flags, integers, require
from qfr.analysis.frames import score_column
from qfr.analysis.targets import Target
from qfr.errors import TableError
from qfr.faults import FAULTS
from qfr.records import Policy
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import BoolArray, IntArray, Lattice

_COLUMNS = ("task", "fault", "errors", "dead_calls", "delivered")


class Counting(StrEnum):
    """When a failed call ends the episode."""

    allow = "allow K"
    stop_at = "stop at K"


@dataclass(frozen=True)
class Rule:
    """How failed calls are counted."""

    counting: Counting = Counting.allow
    injected: bool = False
    # The failures that the fault caused count as well.

    @property
    def text(self) -> str:
        """In words: `allow K, injected failures not counted`."""
        return f"{self.counting}, injected failures {'' if self.injected else 'not '}counted"


@dataclass(frozen=True, eq=False)
class BudgetTable:
    """One cell recounted under every budget and one policy."""

    name: str
    policy: str
    rule: Rule
    budgets: tuple[int, ...]
    # K from the log's own budget down to 0.
    tasks: tuple[str, ...]
    certified: BoolArray
    # The clean pass succeeds within the budget, shape (n_budgets, n_tasks).
    passed: BoolArray
    # The clean pass of the log succeeded, shape (n_tasks,).
    successes: IntArray
    # Episodes that succeed within the budget, shape (n_budgets, n_tasks).
    delivered: IntArray
    # Episodes whose fault fired (all, for a clean pass), shape (n_tasks,).

    def enters(self, target: Target) -> BoolArray:
        """Tasks that enter a target of this cell alone, shape (n_tasks,); the same at every budget."""
        if target is Target.full:
            return np.ones(len(self.tasks), dtype=np.bool_)
        return self.passed & (self.delivered > 0)

    def rates(self, at: int, target: Target) -> Lattice:
        """One rate per task at the budget with index `at`, meaningful for entering tasks.

        Full pipeline: 0 where the clean pass does not succeed within the budget.
        """
        counted = self.delivered > 0
        if target is Target.full:
            counted = counted & self.certified[at]
        tops = np.where(counted, self.successes[at], 0)
        return Lattice.from_counts(tops, np.where(counted, self.delivered, 1))


@dataclass(frozen=True)
class BudgetPoint:
    """S at one budget."""

    budget: int
    success: Estimate


@dataclass(frozen=True)
class BudgetCurve:
    """S(K) of one cell."""

    name: str
    policy: str
    rule: Rule
    target: str
    points: tuple[BudgetPoint, ...]
    # Largest budget first.


#: qfr's own way of counting.
ALLOW = Rule()
EXACT = Options()


def budget_table(
    name: str,
    clean: pd.DataFrame,
    faulted: pd.DataFrame | None,
    *,
    policy: Policy,
    budget: int,
    rule: Rule = ALLOW,
) -> BudgetTable:
    """Recount one cell under every budget from its own down to 0.

    Parameters
    ----------
    name : str
    clean : DataFrame
        Episodes of the clean pass, one per task; without `faulted` any number of episodes per task.
    faulted : DataFrame or None
        Episodes of the fault cell. None: S(K) of the clean episodes themselves.
    policy : Policy
    budget : int
        Largest K: the budget of the run.
    rule : Rule

    Raises
    ------
    TableError
        A column is missing, the budget is negative, the clean pass of a fault cell lists a task twice, or the
        fault cell has a task without a clean episode.
    """
    if budget < 0:
        raise TableError(f"budget {budget} is negative", where=name)
    episodes = clean if faulted is None else faulted
    for frame in (clean, episodes):
        require(frame, (*_COLUMNS, score_column(policy, "success")), f"episodes of {name}")
    tasks = pd.Index(clean["task"].unique())
    if faulted is not None and len(tasks) != len(clean):
        raise TableError("the clean pass holds a task twice", where=name)
    at = tasks.get_indexer(episodes["task"])
    if (at < 0).any():
        foreign = episodes["task"].iloc[int(np.argmin(at))]
        raise TableError(f"task {foreign} has fault episodes but no clean episode", where=name)
    budgets = tuple(range(budget, -1, -1))
    n, ones = len(tasks), np.ones(len(tasks), dtype=np.bool_)
    fired = flags(episodes["delivered"])
    within = _within(episodes, policy, rule, budgets) & fired
    return BudgetTable(
        name=name,
        policy=str(policy),
        rule=rule,
        budgets=budgets,
        tasks=tuple(str(task) for task in tasks),
        certified=np.stack([ones] * len(budgets))
        if faulted is None
        else _within(clean, policy, rule, budgets),
        passed=ones if faulted is None else flags(clean[score_column(policy, "success")]),
        successes=np.stack([np.bincount(at[row], minlength=n) for row in within]).astype(np.int64),
        delivered=np.bincount(at[fired], minlength=n).astype(np.int64),
    )


def budget_curve(
    table: BudgetTable, target: Target, *, options: Options = EXACT, rng: Generator | None = None
) -> BudgetCurve:
    """Return S(K) of one cell with a task-bootstrap interval at each budget.

    Parameters
    ----------
    table : BudgetTable
    target : Target
        ``full`` (all tasks, uncertified ones 0) or ``own`` (tasks that the log's clean pass certified).
    options, rng
        As for `qfr.stats.bootstrap.mean`.
    """
    known(target, (Target.full, Target.own))
    mask = table.enters(target)
    points = tuple(
        BudgetPoint(budget, bootstrap.mean(table.rates(at, target).take(mask), options=options, rng=rng))
        for at, budget in enumerate(table.budgets)
    )
    return BudgetCurve(table.name, table.policy, table.rule, str(target), points)


def known(target: Target, choices: tuple[Target, ...]) -> None:
    """Raise `TableError` unless the target is among the choices."""
    if target not in choices:
        raise TableError(f"S(K) has no target {target}", hint="one of " + ", ".join(choices))


def _within(frame: pd.DataFrame, policy: Policy, rule: Rule, budgets: tuple[int, ...]) -> BoolArray:
    """Whether each episode succeeds within each budget, shape (n_budgets, n_episodes)."""
    failed = frame["errors"].to_numpy(dtype=np.int64)
    if rule.injected:
        # Displaced data are an answer, not a failed call.
        shown = [str(kind) for kind, fault in FAULTS.items() if fault.explicit]
        explicit = frame["fault"].isin(shown).to_numpy(dtype=np.bool_)
        failed = failed + np.where(explicit, integers(frame["dead_calls"], 0), 0)
    allowed = np.array(budgets, dtype=np.int64) - (rule.counting is Counting.stop_at)
    good = flags(frame[score_column(policy, "success")])
    within: BoolArray = good & (failed <= allowed[:, None])
    return within
