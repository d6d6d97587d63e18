"""How an imported run went: success with bounds, pass^k, a shrinking error budget; channels, recovery,
length.

Rates are of the agent's calls; the user simulator's are in none. Trials nest in tasks, so intervals come from
resampling tasks; `task_trials` and `task_counts` give the counts for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb

from qfr.foreign.common import FailureKind, ForeignEpisode, ForeignRun, Release, Requestor, SourceKind


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
    k : int
        Trials that must all succeed, at least 1.

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


ANY = "any"
ROLE_CONFUSION = "role_confusion"
# A part of tool_name: the agent called a tool of the user's.
FORMAT = FailureKind.form.value
# A turn that could not be read as a call. The tau formats keep such a message, which is no call and not in
# `any`; the neutral format lists it as a failed call.
CHANNELS = (
    *(kind.value for kind in FailureKind if kind is not FailureKind.form), ROLE_CONFUSION, ANY, FORMAT,
)  # fmt: skip
_DROPPED = "not observable: the program keeps no call that it could not read"


@dataclass(frozen=True)
class TaskCounts:
    """Calls of one task that failed in one channel."""

    task: str
    events: int
    calls: int
    # The agent's calls.
    episodes_with: int
    # Simulations with at least one event.
    episodes: int


@dataclass(frozen=True)
class ChannelRate:
    """How often the agent's calls failed in one channel, over all scored simulations."""

    channel: str
    # A `FailureKind`, `role_confusion` (a part of tool_name), `any` or `format`.
    events: int | None
    # None where the log cannot show them.
    calls: int
    rate: float | None
    # Events per call of the agent, 0..1; loops dominate it. None without a call.
    episodes_with: int | None
    episodes: int
    share: float | None
    # Of simulations with at least one event; None without a simulation.
    note: str | None
    # Why there is no rate, or why it is not the whole truth.


@dataclass(frozen=True)
class Recovery:
    """What follows a failing call of the agent."""

    within: int
    # The agent's next calls that are looked at.
    errors: int
    recovered: int
    # Failing calls with a good call among those.
    last: int
    # Failing calls that the simulation ended with; they count as not recovered.
    share: float | None


@dataclass(frozen=True)
class Lengths:
    """How long simulations are, means over the scored ones; None without one."""

    episodes: int
    agent_calls: float | None
    agent_messages: float | None
    user_calls: float | None
    tokens: float | None
    # Written by the agent; None unless the log counts them in every simulation.


def task_counts(run: ForeignRun, channel: str) -> tuple[TaskCounts, ...]:
    """Return one channel's failing calls per task with a scored simulation, in the order of the log.

    Raises
    ------
    ValueError
        If the channel is none of `CHANNELS`.
    """
    if channel not in CHANNELS:
        raise ValueError(f"{channel!r} is no channel; known are {', '.join(CHANNELS)}")
    rows: dict[str, list[tuple[int, int]]] = {}
    for found in run.episodes:
        row = (_events(found, channel), found.asked(Requestor.agent))
        rows.setdefault(found.episode.task, []).append(row)
    return tuple(
        TaskCounts(
            task=task,
            events=sum(events for events, _ in row),
            calls=sum(calls for _, calls in row),
            episodes_with=sum(events > 0 for events, _ in row),
            episodes=len(row),
        )
        for task, row in rows.items()
    )


def channel_rates(run: ForeignRun) -> tuple[ChannelRate, ...]:
    """Return the error rate of every channel of `CHANNELS`.

    What the log cannot show has neither count nor rate, and the note says why.
    """
    return tuple(_rate(run, channel) for channel in CHANNELS)


def recovery(run: ForeignRun, within: int = 3) -> Recovery:
    """Return how often a good call follows a failing one among the agent's next `within` calls."""
    errors = recovered = last = 0
    for found in run.episodes:
        good = [
            call.answered and call.failure is None
            for call in found.calls
            if call.requestor is Requestor.agent
        ]
        for call in found.calls:
            if call.turn is None or call.failure is None:
                continue
            following = good[call.turn + 1 : call.turn + 1 + within]
            errors += 1
            recovered += any(following)
            last += not following
    return Recovery(within, errors, recovered, last, recovered / errors if errors else None)


def lengths(run: ForeignRun) -> Lengths:
    """Return mean lengths of the scored simulations."""
    n = len(run.episodes)
    tokens = [found.completion_tokens for found in run.episodes if found.completion_tokens is not None]

    def mean(total: int) -> float | None:
        return total / n if n else None

    return Lengths(
        episodes=n,
        agent_calls=mean(sum(found.asked(Requestor.agent) for found in run.episodes)),
        agent_messages=mean(sum(found.agent_messages for found in run.episodes)),
        user_calls=mean(sum(found.asked(Requestor.user) for found in run.episodes)),
        tokens=mean(sum(tokens)) if len(tokens) == n else None,
    )


def _events(found: ForeignEpisode, channel: str) -> int:
    if channel == ANY:
        return found.errors(Requestor.agent)
    if channel == FORMAT:
        return found.left_in_text + found.failures(FailureKind.form)
    return found.role_confusions if channel == ROLE_CONFUSION else found.failures(FailureKind(channel))


def _rate(run: ForeignRun, channel: str) -> ChannelRate:
    counts = task_counts(run, channel)
    events, calls = sum(each.events for each in counts), sum(each.calls for each in counts)
    within, episodes = sum(each.episodes_with for each in counts), sum(each.episodes for each in counts)
    if hidden := _hidden(run, channel, calls):
        return ChannelRate(channel, None, calls, None, None, episodes, None, hidden)
    return ChannelRate(
        channel=channel,
        events=events,
        calls=calls,
        # A call in the text is no call of the log: it has no rate.
        rate=events / calls if calls and not (channel == FORMAT and _as_messages(run)) else None,
        episodes_with=within,
        episodes=episodes,
        share=within / episodes if episodes else None,
        note=_note(run, channel),
    )


def _hidden(run: ForeignRun, channel: str, calls: int) -> str:
    """Why the log cannot show a channel; empty where it can."""
    if channel == FORMAT:
        return _DROPPED if FORMAT in run.unseen else run.blind if not _as_messages(run) else ""
    if run.blind or not calls:
        return run.blind or "not observable: the agent asked for no call"
    if channel == ROLE_CONFUSION and not run.info.user_tools:
        return "not observable: no tool of the user simulator is known"
    return ""


def _note(run: ForeignRun, channel: str) -> str | None:
    said = []
    if channel == FailureKind.tool_name and run.info.release in (Release.before, Release.unknown):
        said.append(f"censored: simulations with invented names may be missing ({run.info.release})")
    if channel == FailureKind.policy and (odd := unrecognised(run)):
        said.append(f"{odd} of them only because their text fits no known form")
    if channel == FORMAT and _as_messages(run):
        said.append("messages that hold a call as text, which was not run")
    elif run.left_in_text:
        said.append("a lower bound: calls left in the text are not among them")
    return "; ".join(said) or None


def _as_messages(run: ForeignRun) -> bool:
    """Whether turns that are no call are messages of the log, not calls."""
    return run.info.kind is not SourceKind.neutral


def unrecognised(run: ForeignRun) -> int:
    """Number of the agent's failing calls that count as policy only because their text fits no known form."""
    return sum(
        call.requestor is Requestor.agent and call.failure is not None and not call.recognised
        for found in run.episodes
        for call in found.calls
    )
