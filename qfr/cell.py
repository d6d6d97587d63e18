"""A walk: the clean pass over a suite, and fault episodes at every site of the certified tasks.

A walk fills one clean cell and the fault cells that share its clean pass. Episodes are played as a tree,
depth first: a task's fault episodes follow its clean episode, the deepest fork first, so that an engine that
rewinds evaluates every node of the tree once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qfr.config import Gate
from qfr.episode import Episodes
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world.base import Site, Task, World, sites

# (task id, site index or -1 for clean)
Key = tuple[str, int]

# Faults that show the same text first (explicit transient, explicit permanent) stand side by side.
_KINDS = {FaultKind.et: 0, FaultKind.ep: 1, FaultKind.it: 2}


@dataclass(frozen=True)
class Track:
    """One cell that a walk fills."""

    cell_id: str
    kind: FaultKind
    gate: Gate
    # Fault episodes on certified tasks only, or on all (ignored for a clean track).
    done: Mapping[Key, Episode]
    # Episodes that already stand in the cell's journal or log.


Record = Callable[[Track, Episode, float], None]
# Called after each newly played episode with its wall time in seconds.


def key_of(episode: Episode) -> Key:
    """Where an episode belongs in its cell."""
    return (episode.task, -1 if episode.trace is None else episode.trace.site)


def certified(episode: Episode) -> bool:
    """Whether a clean episode certifies its task for fault injection.

    The tolerant policy decides: its set contains the strictly certified one, so both policies can be
    computed from one log (the strict clean screen is recomputed when scoring).
    """
    return score(episode, Policy.tolerant).success


def walk(episodes: Episodes, clean: Track, faults: tuple[Track, ...], record: Record) -> None:
    """Play all episodes that are not done yet.

    Raises
    ------
    MachineryError
        The engine broke; everything recorded so far stays valid.
    """
    for task in episodes.world.tasks:
        first = clean.done.get((task.id, -1))
        if first is None:
            first = _play(episodes, clean, task, None, record)
        passed = certified(first)
        for track, site in order(task, first, faults):
            if (passed or track.gate is Gate.none) and (task.id, site.index) not in track.done:
                _play(episodes, track, task, site, record)


def _play(episodes: Episodes, track: Track, task: Task, site: Site | None, record: Record) -> Episode:
    started = time.perf_counter()
    episode = episodes.play(track.cell_id, task, track.kind, site)
    record(track, episode, time.perf_counter() - started)
    return episode


def order(task: Task, clean: Episode, faults: tuple[Track, ...]) -> list[tuple[Track, Site]]:
    """Fault episodes of a task, deepest fork first.

    An episode forks where the clean episode first makes the site's call; where it never does, nowhere.
    """
    turn_of: dict[tuple[str, str], int] = {}
    for turn in clean.turns:
        if turn.call is not None:
            turn_of.setdefault((turn.call.tool, turn.call.arguments), turn.index)
    never = len(clean.turns)
    chosen = [(track, site) for track in faults for site in sites(task, track.kind)]
    return sorted(
        chosen,
        key=lambda pair: (
            -turn_of.get((pair[1].tool, pair[1].arguments), never),
            pair[1].call,
            _KINDS[pair[0].kind],
        ),
    )


def most_episodes(world: World, kinds: tuple[FaultKind, ...]) -> int:
    """Episodes of a walk if every task is certified."""
    return sum(1 + sum(len(sites(task, kind)) for kind in kinds) for task in world.tasks)
