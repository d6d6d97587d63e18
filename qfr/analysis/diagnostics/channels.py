"""Error rates per channel and behaviour, and their amplification against a reference preset (Jang 2026).

The rate per call is occurrences over the agent's calls; the rate per episode is the share of episodes with at
least one, which a loop of failing calls does not dominate. Amplification names three different figures that
reports of such logs mix up: the ratio of counts, the ratio of rates, and the difference of rates (pooled over
calls, or as a mean over tasks).

Channels follow Jang 2026; an injected fault is not the agent's error and never counts. The behaviours are
ours:

- *premature give-up*: failure was reported although the task could be done (no fault, or a fault that
  passes), although the fault had not fired, or after fewer calls of the dead tool than the scorer asks for
- *repeated call*: a call identical to an earlier one of the episode whose answer already stood there. It
  does not count when that answer came from the fault (a retry is right then), nor, in an episode with
  displaced data, as the first repetition after the fault fired (asking upstream again is right there)
- *invented answer*: a number was submitted although the dead tool made its value unknowable; only episodes in
  which a tool died can have it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.random import Generator

from qfr.analysis.diagnostics.log import Log, flags, integers, require
from qfr.analysis.diagnostics.resampled import DEFAULT, Sums, missing, ratios, relatives
from qfr.faults import FAULTS, Fault, Reply
from qfr.records import Channel, Ending
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray


class Behaviour(StrEnum):
    """Events besides the error channels."""

    any_error = "any_error"
    # A failed call of any channel.
    premature_give_up = "premature_give_up"
    repeated_call = "repeated_call"
    invented_answer = "invented_answer"


#: Every event, channels first.
EVENTS: tuple[str, ...] = (*(str(channel) for channel in Channel), *(str(one) for one in Behaviour))


@dataclass(frozen=True, eq=False)
class Events:
    """Occurrences of one event."""

    name: str
    counts: IntArray
    # Occurrences in each episode, shape (n_episodes,).
    possible: BoolArray
    # Whether the episode could have it, shape (n_episodes,).
    reason: str | None
    # Why no episode could.


def events(log: Log, *, ep_min_calls: int = 2) -> tuple[Events, ...]:
    """Count every event of `EVENTS` in every episode.

    Parameters
    ----------
    ep_min_calls : int
        Calls of the dead tool before a report is in time; as the scorer's.

    Raises
    ------
    TableError
        If a column is missing.
    """
    everywhere = np.ones(log.n_episodes, dtype=np.bool_)
    none = None if log.n_episodes else "no episode"
    found = [
        Events(name, _per_episode(log, log.in_channel(name)), everywhere, none) for name in map(str, Channel)
    ]
    found += [
        Events(Behaviour.any_error, _per_episode(log, log.erred), everywhere, none),
        Events(Behaviour.premature_give_up, premature(log, ep_min_calls).astype(np.int64), everywhere, none),
        Events(Behaviour.repeated_call, _per_episode(log, repeated(log)), everywhere, none),
        _invented(log),
    ]
    return tuple(found)


def premature(log: Log, ep_min_calls: int = 2) -> BoolArray:
    """Whether the episode ended with a premature report of failure, shape (n_episodes,)."""
    frame = log.episodes
    require(frame, ("fired", "dead_calls"), f"episodes of {log.name}")
    reported = (frame["ending"] == str(Ending.reported_failure)).to_numpy(dtype=np.bool_)
    in_time = tool_died(log) & (integers(frame["dead_calls"], 0) >= ep_min_calls)
    return reported & ~in_time


def tool_died(log: Log) -> BoolArray:
    """Whether a permanent fault fired in the episode, shape (n_episodes,)."""
    dead = _of_kinds(log, lambda fault: fault.lasting)
    return dead & (integers(log.episodes["fired"]) >= 0)


def _of_kinds(log: Log, wanted: Callable[[Fault], bool]) -> BoolArray:
    """Whether the episode's kind of fault is one of those wanted, shape (n_episodes,)."""
    kinds = [str(kind) for kind, fault in FAULTS.items() if wanted(fault)]
    return log.episodes["fault"].isin(kinds).to_numpy(dtype=np.bool_)


def repeated(log: Log) -> BoolArray:
    """Whether the call needlessly repeats an earlier one, shape (n_calls,)."""
    before = previous_identical(log)
    again = before >= 0
    require(log.episodes, ("fired",), f"episodes of {log.name}")
    fired = integers(log.episodes["fired"])[log.episode_of]
    displaced = _of_kinds(log, lambda fault: fault.reply is Reply.other_record)[log.episode_of]
    turn = log.calls["turn"].to_numpy(dtype=np.int64)
    excused = log.injected[before] | (displaced & (fired >= 0) & (turn[before] <= fired) & (turn > fired))
    return again & ~excused


def previous_identical(log: Log) -> IntArray:
    """Row of the latest earlier call of the episode with the same tool and arguments, -1 where there is none.

    A turn from which no call could be read is identical to nothing.
    """
    tool, _ = pd.factorize(log.calls["tool"].to_numpy(dtype=object))
    arguments, distinct = pd.factorize(log.calls["arguments"].to_numpy(dtype=object))
    call, _ = pd.factorize(tool.astype(np.int64) * (len(distinct) + 1) + arguments)
    readable = (tool >= 0) & (arguments >= 0)
    before = np.full(log.n_calls, -1, dtype=np.int64)
    order = np.lexsort((call, log.episode_of))
    same = (np.diff(call[order]) == 0) & (np.diff(log.episode_of[order]) == 0)
    before[order[1:][same]] = order[:-1][same]
    return np.where(readable, before, -1)


def _per_episode(log: Log, mask: BoolArray) -> IntArray:
    return log.over_calls(mask).astype(np.int64)


def _invented(log: Log) -> Events:
    zeros = np.zeros(log.n_episodes, dtype=np.int64)
    if "invented" not in log.episodes.columns:
        nowhere = np.zeros(log.n_episodes, dtype=np.bool_)
        return Events(Behaviour.invented_answer, zeros, nowhere, "the table holds no scores")
    died = tool_died(log)
    counts = (flags(log.episodes["invented"]) & died).astype(np.int64)
    why = None if died.any() else "no episode in which a tool died"
    return Events(Behaviour.invented_answer, counts, died, why)


@dataclass(frozen=True)
class ChannelRate:
    """How often one event happened in one log."""

    event: str
    # A channel or a behaviour (`events.EVENTS`).
    count: int
    # Occurrences.
    calls: int
    # Calls of the episodes that could have it.
    episodes_with: int
    # Episodes with at least one.
    episodes: int
    # Episodes that could have it.
    per_call: Estimate
    # count / calls, tasks resampled.
    per_episode: Estimate
    # episodes_with / episodes, tasks resampled.
    note: str = ""
    # What limits the number; of imported logs.


class Verdict(StrEnum):
    """What an amplification is."""

    ratio = "ratio"
    new_channel = "new channel"
    # The reference has none.
    neither = "neither"
    # Neither has one.
    not_possible = "not possible"
    # No episode of one side could have it.


@dataclass(frozen=True)
class Amplification:
    """One event in another log against a reference log."""

    event: str
    verdict: Verdict
    reference_count: int
    other_count: int
    reference_calls: int
    other_calls: int
    # Calls of the episodes that could have it.
    count_ratio: Estimate
    # other_count / reference_count: occurrences, whatever the number of calls.
    rate_ratio: Estimate
    # The same of the rates per call.
    rate_difference: float | None
    # Rate per call of the other minus the reference's, pooled over calls; a fraction.
    task_difference: Estimate
    # The mean over tasks of the difference of the tasks' own rates; tasks with calls on both sides.


def channel_rates(
    log: Log, *, rng: Generator, options: Options = DEFAULT, ep_min_calls: int = 2
) -> tuple[ChannelRate, ...]:
    """Return the rate of every event, per call and per episode.

    Parameters
    ----------
    options : Options
        Level and resamples; the method is always Monte Carlo.
    ep_min_calls : int
        As the scorer's.

    Returns
    -------
    tuple of ChannelRate
        In the order of `events.EVENTS`. Where no episode could have an event the rates are None and say why.
    """
    tally = _tally(log, log.tasks, ep_min_calls)
    having = np.concatenate([tally.counts, tally.having], axis=1)
    possible = np.concatenate([tally.calls, tally.episodes], axis=1)
    estimates = ratios(Sums(having, possible), rng=rng, options=options)
    rates = []
    for at, (name, reason) in enumerate(zip(EVENTS, tally.reasons, strict=True)):
        pair = estimates[at], estimates[at + len(EVENTS)]
        if reason is not None:
            pair = missing(0, options, reason), missing(0, options, reason)
        rates.append(
            ChannelRate(
                event=name,
                count=int(tally.counts[:, at].sum()),
                calls=int(tally.calls[:, at].sum()),
                episodes_with=int(tally.having[:, at].sum()),
                episodes=int(tally.episodes[:, at].sum()),
                per_call=pair[0],
                per_episode=pair[1],
            )
        )
    return tuple(rates)


def amplifications(
    reference: Log, other: Log, *, rng: Generator, options: Options = DEFAULT, ep_min_calls: int = 2
) -> tuple[Amplification, ...]:
    """Set the events of another log against those of a reference log, task by task.

    Counts compare like with like only over the same episodes: hand in `log.shared` logs where fault episodes
    ran on each preset's own certified tasks.

    Parameters
    ----------
    reference, other : Log
        Tasks of either are resampled together.
    rng, options, ep_min_calls
        As for `channel_rates`.

    Returns
    -------
    tuple of Amplification
        In the order of `events.EVENTS`. A reference count of 0 has no ratio: the verdict is *new channel*, or
        *neither* when the other has none as well.
    """
    tasks = tuple(dict.fromkeys((*reference.tasks, *other.tasks)))
    low, high = (_tally(log, tasks, ep_min_calls) for log in (reference, other))
    ones = np.ones_like(low.counts)
    counted = relatives(Sums(high.counts, ones), Sums(low.counts, ones), rng=rng, options=options)
    rated = relatives(Sums(high.counts, high.calls), Sums(low.counts, low.calls), rng=rng, options=options)
    both = (low.calls > 0) & (high.calls > 0)
    change = high.counts / np.where(both, high.calls, 1) - low.counts / np.where(both, low.calls, 1)
    weights = both.astype(np.float64)
    shifted = ratios(Sums(np.where(both, change, 0.0), weights), rng=rng, options=options)
    return tuple(
        _amplification((low, high), at, (counted[at], rated[at], shifted[at]), options)
        for at in range(len(EVENTS))
    )


@dataclass(frozen=True, eq=False)
class _Tally:
    """Sums over each task's episodes; arrays of shape (n_tasks, n_events)."""

    counts: FloatArray
    # Occurrences.
    calls: FloatArray
    # Calls of the episodes that could have it.
    having: FloatArray
    # Episodes with at least one.
    episodes: FloatArray
    # Episodes that could have it.
    reasons: tuple[str | None, ...]
    # Per event, why no episode could have it.


def _tally(log: Log, tasks: tuple[str, ...], ep_min_calls: int) -> _Tally:
    found = events(log, ep_min_calls=ep_min_calls)
    place = {task: at for at, task in enumerate(tasks)}
    rows = np.array([place[task] for task in log.tasks], dtype=np.int64)
    turns = log.episodes["turns"].to_numpy(dtype=np.int64)

    def summed(values: list[BoolArray | IntArray]) -> FloatArray:
        table = np.zeros((len(tasks), len(values)))
        table[rows] = np.stack([log.over_episodes(one) for one in values], axis=1)
        return table

    return _Tally(
        counts=summed([one.counts for one in found]),
        calls=summed([turns * one.possible for one in found]),
        having=summed([one.counts > 0 for one in found]),
        episodes=summed([one.possible for one in found]),
        reasons=tuple(one.reason for one in found),
    )


def _amplification(
    sides: tuple[_Tally, _Tally], at: int, estimates: tuple[Estimate, Estimate, Estimate], options: Options
) -> Amplification:
    counts = [int(side.counts[:, at].sum()) for side in sides]
    calls = [int(side.calls[:, at].sum()) for side in sides]
    count_ratio, rate_ratio, task_difference = estimates
    verdict, reason = _verdict(sides, at, counts)
    if reason is not None:
        count_ratio = missing(count_ratio.n, options, reason)
        rate_ratio = missing(rate_ratio.n, options, reason)
    if verdict is Verdict.not_possible and reason is not None:
        task_difference = missing(0, options, reason)
    return Amplification(
        event=EVENTS[at],
        verdict=verdict,
        reference_count=counts[0],
        other_count=counts[1],
        reference_calls=calls[0],
        other_calls=calls[1],
        count_ratio=count_ratio,
        rate_ratio=rate_ratio,
        rate_difference=counts[1] / calls[1] - counts[0] / calls[0] if all(calls) else None,
        task_difference=task_difference,
    )


def _verdict(sides: tuple[_Tally, _Tally], at: int, counts: list[int]) -> tuple[Verdict, str | None]:
    """Return what the amplification is, and why it has no ratio."""
    for side, name in zip(sides, ("reference", "other"), strict=True):
        if side.reasons[at] is not None:
            return Verdict.not_possible, f"{name}: {side.reasons[at]}"
    if counts[0]:
        return Verdict.ratio, None
    if counts[1]:
        return Verdict.new_channel, f"new channel: the reference has none, the other {counts[1]}"
    return Verdict.neither, "neither has one"
