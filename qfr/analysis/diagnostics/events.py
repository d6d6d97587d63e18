"""What can go wrong in an episode, counted per episode: error channels and harmful behaviours.

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

from qfr.analysis.diagnostics.keys import flags, integers, require
from qfr.analysis.diagnostics.log import Log
from qfr.faults import FAULTS, Fault, Reply
from qfr.records import Channel, Ending
from qfr.stats.lattice import BoolArray, IntArray


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
    log : Log
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
