"""A recount beside a real rerun under the tight budget: the decisive test that Jang 2026 leaves open.

With greedy decoding and a prompt that does not mention the budget, both must agree task by task; where they
differ, the agent behaved otherwise, or the runs are not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qfr.analysis.diagnostics.budget import EXACT, BudgetTable, Counting
from qfr.analysis.targets import Target
from qfr.errors import TableError
from qfr.facts import CellFacts
from qfr.scope import group, scope_of
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice


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
    options : Options

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
