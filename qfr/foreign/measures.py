"""How often an imported run succeeds: with bounds, as pass^k, and under a shrinking error budget.

Trials nest in tasks, so intervals come from resampling tasks; `task_trials` gives the counts for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb

from qfr.foreign.common import ForeignRun, Requestor


class Convention(StrEnum):
    """What becomes of excluded simulations when success is counted."""

    removed = "removed"
    # As the metrics of tau2-bench do: they leave the denominator, and a task without any left drops out.
    failed = "failed"
    # They count as failures: a lower bound.


class BudgetRule(StrEnum):
    """When an error budget of K ends a run."""

    stop_at = "stop_at"
    # At the K-th failing call, as the code of tau2-bench does: budget 10 tolerates 9.
    allow = "allow"
    # At the call after the K-th, as papers word it: at most K failing calls.


@dataclass(frozen=True)
class Bounded:
    """A share of simulations and what the excluded ones could make of it."""

    successes: int
    scored: int
    excluded: int
    share: float | None
    # 0..1 among the scored ones; None when there is none.
    low: float
    # With every excluded simulation a failure.
    high: float
    # With every excluded simulation a success.


@dataclass(frozen=True)
class TaskTrials:
    """Successes of one task."""

    task: str
    successes: int
    trials: int
    # Counted simulations; 0 where all were removed.


@dataclass(frozen=True)
class PassHatK:
    """pass^k: the chance that k trials of a task all succeed, C(c, k) / C(n, k), mean over tasks."""

    k: int
    convention: Convention
    value: float | None
    n_tasks: int
    # Tasks in the mean.
    dropped_tasks: int
    # Tasks without any counted trial.
    fewest_trials: int
    # Of a task in the mean; with one trial a single simulation decides a task.
    reason: str | None
    # Why there is no value.


@dataclass(frozen=True)
class BudgetPoint:
    """Success under one error budget, recounted from runs that were made under a larger one."""

    budget: int
    success: Bounded


def success(run: ForeignRun) -> Bounded:
    """Return the share of simulations that succeeded, bounded by the excluded ones."""
    return _bounded(run, sum(found.success for found in run.episodes))


def task_trials(
    run: ForeignRun,
    convention: Convention,
    *,
    allowed: int | None = None,
    requestor: Requestor | None = None,
) -> tuple[TaskTrials, ...]:
    """Return successes and trials of every task, in the order of the log.

    Parameters
    ----------
    run : ForeignRun
    convention : Convention
    allowed : int, optional
        Count a success only with at most so many failing calls (`BudgetRule.stop_at` of K allows K - 1).
    requestor : Requestor, optional
        Whose failing calls `allowed` bounds; None counts both sides together.
    """
    wins = dict.fromkeys(run.tasks, 0)
    trials = dict.fromkeys(run.tasks, 0)
    for found in run.episodes:
        within = allowed is None or found.errors(requestor) <= allowed
        wins[found.episode.task] += found.success and within
        trials[found.episode.task] += 1
    if convention is Convention.failed:
        for gone in run.excluded:
            trials[gone.task] += 1
    return tuple(TaskTrials(task, wins[task], trials[task]) for task in run.tasks)


def pass_hat_k(run: ForeignRun, k: int, convention: Convention) -> PassHatK:
    """Return pass^k under one convention; print both, since removal can rest a task on one survivor.

    Parameters
    ----------
    run : ForeignRun
    k : int
        Trials that must all succeed, at least 1.
    convention : Convention

    Raises
    ------
    ValueError
        If k is less than 1.
    """
    if k < 1:
        raise ValueError(f"pass^{k}: k is at least 1")
    counted = task_trials(run, convention)
    within = [each for each in counted if each.trials]
    fewest = min((each.trials for each in within), default=0)
    value, reason = None, None
    if fewest < k:
        reason = (
            f"a task has {fewest} counted trials, fewer than k = {k}" if within else "no simulation counts"
        )
    else:
        value = pass_hat_of(counted, k)
    return PassHatK(k, convention, value, len(within), len(counted) - len(within), fewest, reason)


def pass_hat_of(counted: Sequence[TaskTrials], k: int) -> float | None:
    """Return pass^k of counted tasks; None where none is counted or one has fewer than k trials."""
    within = [each for each in counted if each.trials]
    if not within or min(each.trials for each in within) < k:
        return None
    return sum(comb(each.successes, k) / comb(each.trials, k) for each in within) / len(within)


def budget_curve(
    run: ForeignRun, rule: BudgetRule, requestor: Requestor | None = None
) -> tuple[BudgetPoint, ...]:
    """Return success under budgets from the run's own down to 0.

    A recount, not a rerun: an agent that knows a tighter budget might act otherwise.

    Parameters
    ----------
    run : ForeignRun
    rule : BudgetRule
    requestor : Requestor, optional
        Whose failing calls count; None counts both sides together, as tau2-bench does.
    """
    errors = [found.errors(requestor) for found in run.episodes]
    top = run.info.max_errors
    if top is None:
        top = max(errors, default=0) + (rule is BudgetRule.stop_at)
    points = []
    for budget in range(top, -1, -1):
        largest = budget - (rule is BudgetRule.stop_at)
        held = sum(
            found.success and count <= largest for found, count in zip(run.episodes, errors, strict=True)
        )
        points.append(BudgetPoint(budget, _bounded(run, held)))
    return tuple(points)


def _bounded(run: ForeignRun, successes: int) -> Bounded:
    scored, gone = len(run.episodes), len(run.excluded)
    # A run holds at least one simulation, scored or excluded.
    return Bounded(
        successes=successes,
        scored=scored,
        excluded=gone,
        share=successes / scored if scored else None,
        low=successes / (scored + gone),
        high=(successes + gone) / (scored + gone),
    )
