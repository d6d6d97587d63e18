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

A recount assumes that the agent would have done the same under the tight budget. `rerun` sets it beside a
real run: with greedy decoding and a prompt that does not mention the budget, both must agree task by task.
Jang finds a gap of 1.3 points at K = 10, 7.5 at K = 5 and 16.7 at K = 2 between two precisions whose scores
look alike. Each K is a contrast of its own, over the same tasks, so the band of `budget_gap` covers all of
them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.log import flags, integers, require
from qfr.analysis.frames import score_column
from qfr.analysis.targets import Target
from qfr.errors import TableError
from qfr.facts import CellFacts
from qfr.faults import FAULTS
from qfr.records import Policy
from qfr.scope import group, scope_of
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray, Lattice
from qfr.stats.multiplicity import simultaneous

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
    clean : DataFrame
        Episodes of the clean pass, one per task; without `faulted` any number of episodes per task.
    faulted : DataFrame or None
        Episodes of the fault cell. None: S(K) of the clean episodes themselves.
    budget : int
        Largest K: the budget of the run.

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


@dataclass(frozen=True)
class GapPoint:
    """The difference of two cells at one budget."""

    budget: int
    first: float | None
    second: float | None
    # Mean rates of the entering tasks.
    gap: Estimate
    # first - second, a fraction; the interval holds for all budgets at once.


@dataclass(frozen=True)
class BudgetGap:
    """S(K) of one cell minus another's, with a simultaneous band."""

    first: str
    second: str
    policy: str
    rule: Rule
    target: str
    critical: float | None
    # Half-width of the band in standard errors; None when nothing varies.
    points: tuple[GapPoint, ...]


def budget_gap(
    first: BudgetTable,
    second: BudgetTable,
    target: Target,
    *,
    rng: Generator,
    level: float = 0.95,
    resamples: int = 5_000,
) -> BudgetGap:
    """Return the difference of two cells at every budget, with a band that holds for all budgets at once.

    Parameters
    ----------
    first, second : BudgetTable
        Recounted by one rule over the same budgets; a negative gap says that the second does better.
    target : Target
        ``full`` (paired over all tasks), ``matched`` (paired over tasks that both logs certified) or ``own``.
    level : float
        Probability that the whole band covers.

    Raises
    ------
    TableError
        If rule, policy or budgets differ, or the full target lists different tasks.
    """
    known(target, (Target.full, Target.matched, Target.own))
    if (first.rule, first.policy, first.budgets) != (second.rule, second.policy, second.budgets):
        raise TableError(
            f"{first.name} and {second.name} were recounted by other rules, policies or budgets",
            hint="build both tables with the same arguments",
        )
    tasks = tuple(dict.fromkeys((*first.tasks, *second.tasks)))
    if target is Target.full and not len(tasks) == len(first.tasks) == len(second.tasks):
        raise TableError(
            f"{first.name} and {second.name} list different tasks", hint="use the matched target"
        )
    own = Target.full if target is Target.full else Target.own
    one, other = _spread(first, own, tasks), _spread(second, own, tasks)
    if target is Target.matched:
        both = np.isfinite(one) & np.isfinite(other)
        one, other = np.where(both, one, np.nan), np.where(both, other, np.nan)
    band = simultaneous(one, other, rng=rng, level=level, resamples=resamples)
    points = tuple(
        GapPoint(budget, _mean(one[at]), _mean(other[at]), band.intervals[at])
        for at, budget in enumerate(first.budgets)
    )
    return BudgetGap(first.name, second.name, first.policy, first.rule, str(target), band.critical, points)


def _spread(table: BudgetTable, target: Target, tasks: tuple[str, ...]) -> FloatArray:
    """Rates by budget and task, shape (n_budgets, len(tasks)); nan where the task does not enter."""
    place = {task: at for at, task in enumerate(tasks)}
    columns = np.array([place[task] for task in table.tasks], dtype=np.int64)
    spread = np.full((len(table.budgets), len(tasks)), np.nan)
    mask = table.enters(target)
    for at in range(len(table.budgets)):
        spread[at, columns[mask]] = table.rates(at, target).values[mask]
    return spread


def _mean(rates: FloatArray) -> float | None:
    inside = rates[np.isfinite(rates)]
    return float(inside.mean()) if inside.size else None


@dataclass(frozen=True)
class Rerun:
    """Full-pipeline success under one budget, recounted from a wider log and really run."""

    name: str
    policy: str
    budget: int
    recount: Estimate
    rerun: Estimate
    difference: Estimate
    # recount - rerun, paired over tasks.
    differing: tuple[str, ...]
    # Tasks whose rates differ.


@dataclass(frozen=True)
class RerunPair:
    """Two cells that differ in nothing but the error budget, as places in the given sequence."""

    wide: int
    tight: int


def rerun(wide: BudgetTable, tight: BudgetTable, *, options: Options = EXACT) -> Rerun:
    """Set the recount of a log at a smaller budget beside the run under that budget.

    Parameters
    ----------
    wide : BudgetTable
        Of the log with the larger budget.
    tight : BudgetTable
        Of the rerun; its largest K is its budget.

    Raises
    ------
    TableError
        Policies, rules or tasks differ, the rule is not the executor's own (*allow K* without injected
        failures), or the wide log does not reach the tight budget.
    """
    budget = tight.budgets[0]
    where = f"{wide.name} and {tight.name}"
    if wide.policy != tight.policy or wide.rule != tight.rule:
        raise TableError("policies or counting rules differ", where=where)
    if wide.rule.counting is not Counting.allow or wide.rule.injected:
        raise TableError(
            f"the executor does not count by the rule {wide.rule.text!r}",
            where=where,
            hint="recount with allow K, injected failures not counted",
        )
    if budget not in wide.budgets:
        raise TableError(f"the log's budget {wide.budgets[0]} is below the rerun's {budget}", where=where)
    if set(wide.tasks) != set(tight.tasks):
        raise TableError("the tasks differ", where=where, hint="rerun the same suite")
    recounted = wide.rates(wide.budgets.index(budget), Target.full)
    place = {task: at for at, task in enumerate(tight.tasks)}
    really = tight.rates(0, Target.full).take(np.array([place[task] for task in wide.tasks], dtype=np.int64))
    apart = _differences(recounted, really)
    return Rerun(
        name=wide.name,
        policy=wide.policy,
        budget=budget,
        recount=bootstrap.mean(recounted, options=options),
        rerun=bootstrap.mean(really, options=options),
        difference=bootstrap.paired(recounted, really, options=options),
        differing=tuple(task for task, differs in zip(wide.tasks, apart, strict=True) if differs),
    )


def rerun_pairs(facts: Sequence[CellFacts]) -> tuple[RerunPair, ...]:
    """Find the cells that differ in nothing but the error budget, the wider one first."""
    groups = group(range(len(facts)), ("suite.error_budget",), of=lambda at: scope_of(facts[at]))
    return tuple(
        RerunPair(wide, tight)
        for one in groups
        for wide in one.members
        for tight in one.members
        if facts[tight].error_budget < facts[wide].error_budget
    )


def _differences(first: Lattice, second: Lattice) -> list[bool]:
    # Cross-multiplied, so that equal fractions over other denominators are equal.
    left, right = first.numerators * second.denominator, second.numerators * first.denominator
    return [bool(differs) for differs in left != right]
