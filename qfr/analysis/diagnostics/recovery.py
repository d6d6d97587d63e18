"""What follows an error, and what it costs (Jang 2026 finds 55 % recovery at either precision).

An *error* is a failed call: by the agent's own fault (per channel), or because an explicit fault was
injected (``injected_et`` and so on). It is *recovered within w turns* when one of the next w calls
is valid: answered with a result, and no report of failure. After an error of the agent's own a well-formed
call that meets the injected fault is valid too. An error on the last turn has nothing after it and counts
as not recovered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.random import Generator

from qfr.analysis.diagnostics.channels import Behaviour
from qfr.analysis.diagnostics.log import Log
from qfr.analysis.diagnostics.resampled import DEFAULT, Sums, ratios
from qfr.faults import FAULTS
from qfr.records import Channel
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import BoolArray, FloatArray, IntArray


class Next(StrEnum):
    """What the turn after an error is."""

    identical = "identical call"
    changed = "same tool, other arguments"
    other_tool = "another tool"
    readable = "a call after an unreadable turn"
    unreadable = "an unreadable turn"
    answered = "an answer"
    gave_up = "a report of failure"
    nothing = "nothing: the episode ended"


@dataclass(frozen=True)
class NextCount:
    """How often one kind of turn follows."""

    kind: Next
    count: int


@dataclass(frozen=True)
class Within:
    """Share of errors that are recovered within a number of turns."""

    turns: int
    share: Estimate


@dataclass(frozen=True)
class Recovery:
    """What follows the errors of one source."""

    source: str
    # A channel, any_error (all channels), or injected_ and a kind of fault that shows an error.
    errors: int
    recovered: int
    # Ever, within the episode.
    within: tuple[Within, ...]
    # Tasks resampled.
    turns: Estimate
    # Turns from an error to the first valid call, of recovered errors (1 = the next turn).
    tokens_out: Estimate
    # Tokens generated in these turns.
    following: tuple[NextCount, ...]
    # The turn after the error, every kind of `Next`.


def recovery(
    log: Log, *, rng: Generator, windows: tuple[int, ...] = (1, 3), options: Options = DEFAULT
) -> tuple[Recovery, ...]:
    """Return what follows the errors of each source.

    Parameters
    ----------
    log : Log
        With ``tokens_out`` of the calls.
    windows : tuple of int
        Numbers of turns w.
    options : Options
        Level and resamples.

    Returns
    -------
    tuple of Recovery
        any_error, each channel, then the explicit faults; without errors the estimates are None.
    """
    follows = _following(log)
    spent = np.concatenate([[0.0], np.cumsum(log.numbers("tokens_out"))])
    sources = [(str(Behaviour.any_error), log.erred), *((str(c), log.in_channel(str(c))) for c in Channel)]
    valid_own = _next_valid(log, (log.ok | log.injected) & ~log.reports)
    valid = _next_valid(log, log.ok & ~log.reports)
    found = [(name, mask, valid_own) for name, mask in sources]
    fault = log.episodes["fault"].to_numpy(dtype=object)[log.episode_of]
    for kind in (kind for kind, one in FAULTS.items() if one.explicit and (fault == str(kind)).any()):
        found.append((f"injected_{kind}", log.injected & ~log.ok & (fault == str(kind)), valid))
    rows = [np.flatnonzero(mask) for _, mask, _ in found]
    tables = [_sums(log, at, ahead, spent, windows) for at, (_, _, ahead) in zip(rows, found, strict=True)]
    whole = Sums(
        np.concatenate([table.tops for table in tables], axis=1),
        np.concatenate([table.bottoms for table in tables], axis=1),
    )
    estimates = ratios(whole, rng=rng, options=options)
    width = len(windows) + 2
    return tuple(
        _result(name, follows[at], ahead[at], (windows, estimates[width * k : width * (k + 1)]))
        for k, (at, (name, _, ahead)) in enumerate(zip(rows, found, strict=True))
    )


def _result(
    source: str, follows: IntArray, ahead: IntArray, way: tuple[tuple[int, ...], tuple[Estimate, ...]]
) -> Recovery:
    windows, estimates = way
    kinds = np.bincount(follows, minlength=len(Next))
    return Recovery(
        source=source,
        errors=int(ahead.size),
        recovered=int((ahead >= 0).sum()),
        within=tuple(Within(w, one) for w, one in zip(windows, estimates, strict=False)),
        turns=estimates[-2],
        tokens_out=estimates[-1],
        following=tuple(NextCount(kind, int(kinds[at])) for at, kind in enumerate(Next)),
    )


def _sums(log: Log, rows: IntArray, ahead: IntArray, spent: FloatArray, windows: tuple[int, ...]) -> Sums:
    """Per task: errors recovered within each window over errors, then turns and tokens over recoveries."""
    target = ahead[rows]
    reached = target >= 0
    distance = np.where(reached, target - rows, 0)

    def by_task(values: BoolArray | FloatArray | IntArray) -> FloatArray:
        per_episode = np.bincount(log.episode_of[rows], weights=values, minlength=log.n_episodes)
        return log.over_episodes(per_episode)

    errors, recoveries = by_task(np.ones(rows.size)), by_task(reached)
    tops = [by_task(reached & (distance <= window)) for window in windows]
    tops.append(by_task(distance))
    # From the turn after the error up to and with the valid one.
    tops.append(by_task(np.where(reached, spent[target + 1] - spent[rows + 1], 0.0)))
    bottoms = [errors] * len(windows) + [recoveries] * 2
    return Sums(np.stack(tops, axis=1), np.stack(bottoms, axis=1))


def _next_valid(log: Log, valid: BoolArray) -> IntArray:
    """Row of the first valid call after each call within its episode, -1 where there is none."""
    n = log.n_calls
    place = np.where(valid, np.arange(n, dtype=np.int64), n)
    after = np.append(np.minimum.accumulate(place[::-1])[::-1][1:], n) if n else place
    bounded = np.minimum(after, n - 1)
    inside = (after < n) & (log.episode_of[bounded] == log.episode_of) if n else valid
    return np.where(inside, after, -1)


def _following(log: Log) -> IntArray:
    """Index into `Next` of what comes after each call, shape (n_calls,)."""
    kinds = list(Next)
    tool = log.calls["tool"].to_numpy(dtype=object)
    arguments = log.calls["arguments"].to_numpy(dtype=object)
    named, following = log.calls["tool"].notna().to_numpy(dtype=np.bool_), np.roll(tool, -1)
    same_tool = tool == following
    same = same_tool & (arguments == np.roll(arguments, -1))
    choices = [
        (log.last, Next.nothing),
        (np.roll(log.reports, -1), Next.gave_up),
        (np.roll(log.submits, -1), Next.answered),
        (~np.roll(named, -1), Next.unreadable),
        (~named, Next.readable),
        (same, Next.identical),
        (same_tool, Next.changed),
    ]
    found = np.select([mask for mask, _ in choices], [kinds.index(kind) for _, kind in choices], -1)
    return np.where(found < 0, kinds.index(Next.other_tool), found)
