"""A cheap look: the reference's own episodes read by another file, turn by turn (teacher forcing).

Decoding is greedy, so an episode in which the candidate chooses every token that the reference wrote is the
candidate's own episode as well, its fault turns included. It need not be played. A turn is read in one batch,
which moves logits a little against token by token; a choice counts as sure where its lead is larger than that
noise, which is measured on the first episodes of each file.

Two things are told apart. *Volume*: how far the distributions are from one another (KL divergence) and how
often the choice flips, by kind of token. *Direction*: between which bounds the candidate's result can lie,
given the episodes that are the same.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from qfr.audit.replay import Finished
from qfr.canonical import canonical, read_json
from qfr.cell import Key, Track, certified, key_of, order
from qfr.engine.base import Followed
from qfr.engine.worker import Follow, FollowingWorker
from qfr.episode import Message, Piece, Scripts
from qfr.play.engine_cache import rules_of
from qfr.records import Episode, FaultKind, Policy, ToolCall, Turn
from qfr.scoring import score
from qfr.stats.lattice import FloatArray
from qfr.world.base import sites

# Tasks whose clean episodes the noise is measured on, and how much larger than the largest change of a lead
# seen there a lead has to be. Leads that are large change more, and do not matter: the smaller ones count.
_NOISE_TASKS, _NOISE_FACTOR, _CLOSEST = 4, 4.0, 0.25


class Place(StrEnum):
    """What a token decides."""

    reaction = "tool after the fault"
    # The tool's name in the turn that first sees the fault: retry, or give up.
    tool = "tool name"
    argument = "argument value"
    other = "all else"


class State(StrEnum):
    """What is known of the candidate's episode."""

    same = "the same"
    close = "too close to call"
    # The candidate's choice leads by less than the noise somewhere, and nothing flipped before.
    flipped = "flips"


@dataclass(frozen=True)
class SeenEpisode:
    """An episode of the reference as the candidate reads it."""

    key: Key
    state: State
    turn: int | None
    # The first turn in which it may part; None where it is the same.


@dataclass(frozen=True)
class Volume:
    """How far two files are from one another at one kind of token. Tokens of shared beginnings count once."""

    place: Place
    tokens: int
    flips: int
    # The candidate's choice is another token.
    kl: float | None
    # Mean KL divergence from the reference, in nats; None where the reference was not read.
    kl_99: float | None
    # Its 99th percentile.
    lead: float
    # Fifth percentile of the lead of the written token, in logits; negative where it flips.


@dataclass(frozen=True)
class Direction:
    """The candidate minus the reference on these tasks, target full, tolerant scoring; fractions."""

    low: float
    # Had it lost all that is open.
    high: float
    # Had it won all that is open.
    reference: float
    # The reference's own rate.


@dataclass(frozen=True)
class Seen:
    """A candidate's look at a reference's episodes."""

    noise: float
    # In logits: a lead below it is too close to call.
    episodes: tuple[SeenEpisode, ...]
    volume: tuple[Volume, ...]
    direction: Direction
    seconds: float
    tokens: int
    # Evaluated by the candidate.

    @property
    def same(self) -> frozenset[Key]:
        """Episodes that need not be played."""
        return frozenset(one.key for one in self.episodes if one.state is State.same)


def look(finished: Finished, candidate: FollowingWorker, reference: FollowingWorker | None = None) -> Seen:
    """Read a finished fault cell's episodes, and those of its clean pass, with another file.

    Parameters
    ----------
    finished : Finished
        The reference's cell.
    candidate : FollowingWorker
    reference : FollowingWorker or None
        The reference's file, for KL divergences.

    Raises
    ------
    MachineryError
        An engine broke, or the files are not of one model.
    """
    candidate.reset_counters()
    started = time.perf_counter()
    noise = _noise(finished, candidate)
    episodes: list[SeenEpisode] = []
    tokens: dict[Place, list[tuple[bool, float, float]]] = defaultdict(list)
    for piece, episode in _pieces(finished):
        mine = _follow(finished, candidate, piece, episode, rows=reference is not None)
        theirs = None if reference is None else _follow(finished, reference, piece, episode, rows=True)
        episodes.append(_state(episode, mine, noise))
        for at, (turn, seen) in enumerate(zip(episode.turns, mine, strict=False)):
            if seen.known:
                continue
            kl = _kl(None if theirs is None else theirs[at], seen)
            for place, flipped, lead, far in zip(
                _places(episode, turn, seen),
                np.not_equal(seen.winners, turn.generation.token_ids),
                seen.leads,
                kl,
                strict=True,
            ):
                tokens[place].append((bool(flipped), lead, float(far)))
    return Seen(
        noise=noise,
        episodes=tuple(episodes),
        volume=tuple(_volume(place, tokens[place]) for place in Place if tokens[place]),
        direction=_direction(finished, {one.key for one in episodes if one.state is State.same}),
        seconds=time.perf_counter() - started,
        tokens=candidate.counters().evaluated,
    )


def _pieces(finished: Finished) -> Iterator[tuple[Piece, Episode]]:
    """The reference's episodes in the order of a walk, with what they play."""
    config, kind = finished.config, finished.config.fault.kind
    clean = {one.task: one for one in finished.clean}
    faults = {key_of(one): one for one in finished.episodes if one.fault is not FaultKind.none}
    track = Track(finished.cell.facts.cell_id, kind, config.suite.gate, {})
    for task in finished.world.tasks:
        if (first := clean.get(task.id)) is None:
            continue
        yield Piece(task, None), first
        tracks = (track,) if kind is not FaultKind.none else ()
        for _, site in order(task, first, tracks):
            if (found := faults.get((task.id, site.index))) is not None:
                yield Piece(task, site), found


def _follow(
    finished: Finished,
    engine: FollowingWorker,
    piece: Piece,
    episode: Episode,
    *,
    rows: bool,
    apart: bool = False,
) -> list[Followed]:
    """Read an episode's turns: the messages are made anew by its world, from the logged turns."""
    config, system = finished.config, finished.prompt.text
    scripts = Scripts(finished.world, system, rules_of(config), lambda: engine.info)
    script = scripts.script(episode.cell_id, episode.fault, piece)
    message: Message = next(script)
    found = []
    for turn in episode.turns:
        if not turn.generation.token_ids:
            break
        opening = (system, str(message.text), message.native) if message.opening else None
        told = "" if message.opening else message.text
        found.append(engine.follow(Follow(opening, told, turn.generation, apart, rows)))
        try:
            message = script.send(turn.generation)
        except StopIteration:
            break
    return found


def _noise(finished: Finished, engine: FollowingWorker) -> float:
    """How sure a lead has to be: from clean episodes that are read in batches and token by token."""
    leads: list[float] = []
    changes: list[float] = []
    clean = [pair for pair in _pieces(finished) if pair[0].site is None]
    for piece, episode in clean[:_NOISE_TASKS]:
        whole, apart = (
            _follow(finished, engine, piece, episode, rows=False, apart=one) for one in (False, True)
        )
        for one, other in zip(whole, apart, strict=True):
            leads += other.leads
            changes += np.abs(np.subtract(one.leads, other.leads)).tolist()
    closest = np.argsort(leads)[: max(1, round(_CLOSEST * len(leads)))]
    return _NOISE_FACTOR * float(np.array(changes)[closest].max())


def _state(episode: Episode, seen: Sequence[Followed], noise: float) -> SeenEpisode:
    for turn, one in zip(episode.turns, seen, strict=False):
        flips = np.not_equal(one.winners, turn.generation.token_ids)
        unsure = np.asarray(one.margins) <= noise
        if not (flips | unsure).any():
            continue
        first = int(np.argmax(flips | unsure))
        state = State.close if unsure[first] else State.flipped
        return SeenEpisode(key_of(episode), state, turn.index)
    return SeenEpisode(key_of(episode), State.same, None)


def _kl(reference: Followed | None, candidate: Followed) -> FloatArray:
    if reference is None or reference.rows is None or candidate.rows is None:
        return np.full(len(candidate.winners), np.nan)
    p, q = reference.rows.astype(np.float64), candidate.rows.astype(np.float64)
    return np.asarray((np.exp(p) * (p - q)).sum(axis=1))


def _volume(place: Place, tokens: Sequence[tuple[bool, float, float]]) -> Volume:
    flips, leads, kl = (np.array(column) for column in zip(*tokens, strict=True))
    known = not np.isnan(kl).any()
    return Volume(
        place=place,
        tokens=len(tokens),
        flips=int(flips.sum()),
        kl=float(kl.mean()) if known else None,
        kl_99=float(np.quantile(kl, 0.99)) if known else None,
        lead=float(np.quantile(leads, 0.05)),
    )


def _places(episode: Episode, turn: Turn, seen: Followed) -> list[Place]:
    """What each token of a turn decides: the spans of tool names and of argument values in its text."""
    text = turn.generation.text
    after = episode.trace is not None and episode.trace.witnessed == turn.index
    spans: list[tuple[int, int, Place]] = []
    at = 0
    for call in (step.call for step in turn.steps if step.call is not None):
        name = Place.reaction if after else Place.tool
        at = max(at, text.find(call.tool, at))
        for word, place in ((call.tool, name), *((one, Place.argument) for one in _values(call))):
            found = text.find(word, at)
            if found >= 0 and word:
                start = len(text[:found].encode())
                spans.append((start, start + len(word.encode()), place))
        at += len(call.tool)
    starts = (0, *seen.ends[:-1])
    return [
        next((place for low, high, place in spans if start < high and end > low), Place.other)
        for start, end in zip(starts, seen.ends, strict=True)
    ]


def _values(call: ToolCall) -> Iterator[str]:
    """The scalars among a call's arguments, as a text spells them."""
    waiting = [read_json(call.arguments)]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            waiting[:0] = value.values()
        elif isinstance(value, list):
            waiting[:0] = value
        else:
            yield value if isinstance(value, str) else canonical(value)


def _direction(finished: Finished, same: set[Key]) -> Direction:
    """Bounds of the candidate's result: what is open may be lost or won."""
    kind, least = finished.config.fault.kind, finished.config.scorer.ep_min_calls
    wins = {
        key_of(one): score(one, Policy.tolerant, ep_min_calls=least).success
        for one in (finished.episodes if kind is not FaultKind.none else finished.clean)
    }
    clean = {one.task: one for one in finished.clean}
    rates = []
    for task in finished.world.tasks:
        keys = [(task.id, site.index) for site in sites(task, kind)] if kind is not FaultKind.none else []
        keys = keys or [(task.id, -1)]
        passed = certified(clean[task.id])
        own = sum(wins.get(key, False) for key in keys) / len(keys) if passed else 0.0
        if (task.id, -1) not in same:
            rates.append((0.0, 1.0, own))
        elif not passed:
            rates.append((0.0, 0.0, own))
        else:
            sure = sum(wins.get(key, False) for key in keys if key in same) / len(keys)
            rates.append((sure, sure + sum(key not in same for key in keys) / len(keys), own))
    low, high, own = (float(np.mean(column)) for column in zip(*rates, strict=True))
    return Direction(low - own, high - own, own)
