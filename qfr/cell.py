"""A walk: the clean pass over a suite, and fault episodes at every site of the certified tasks.

A walk fills one clean cell and the fault cells that share its clean pass. Episodes are played as a tree,
depth first: a task's fault episodes follow its clean episode, the deepest fork first, so that an engine that
rewinds evaluates every node of the tree once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from qfr.config import Gate
from qfr.episode import Episodes, Piece, Together
from qfr.errors import EngineError, WorkerDied
from qfr.faults import FAULTS
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world.base import Site, Task, World, sites

# (task id, site index or -1 for clean)
Key = tuple[str, int]


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
        _walk_task(episodes, task, clean, faults, record)


def walk_at_once(
    players: Sequence[Episodes], clean: Track, faults: tuple[Track, ...], record: Record
) -> None:
    """As `walk`, with several tasks at the same time, one per player: workers, or a server's connections.

    `record` is called by one thread at a time. The first error stops the others after their episode. The task
    of a worker that dies goes back to the others, which play what of it is missing.

    Raises
    ------
    WorkerDied
        The last worker has died.
    """
    dealt = _Dealt(clean, faults, record, deque(players[0].world.tasks))
    living = list(players)
    while dealt.waiting:
        with ThreadPoolExecutor(len(living)) as pool:
            playing = [pool.submit(dealt.play, one) for one in living]
            try:
                wait(playing, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                for one in living:
                    one.engine.close()
                raise
            finally:
                dealt.stop.set()
        dead = [done.result() for done in playing]
        living = [one for one, death in zip(living, dead, strict=True) if death is None]
        if not living:
            raise next(death for death in dead if death is not None)
        dealt.stop.clear()


class _Dealt:
    """Tasks that players take as they come free, and what was recorded of them."""

    def __init__(self, clean: Track, faults: tuple[Track, ...], record: Record, waiting: deque[Task]) -> None:
        self.waiting = waiting
        self.stop = threading.Event()
        self._clean, self._faults, self._record = clean, faults, record
        self._writing = threading.Lock()
        self._new: dict[str, dict[Key, Episode]] = {one.cell_id: {} for one in (clean, *faults)}

    def play(self, episodes: Episodes) -> WorkerDied | None:
        """Play tasks until none is left. Returns how the player died, where it did."""
        while not self.stop.is_set():
            try:
                task = self.waiting.popleft()
            except IndexError:
                return None
            clean, *faults = (
                replace(one, done={**one.done, **self._new[one.cell_id]})
                for one in (self._clean, *self._faults)
            )
            try:
                _walk_task(episodes, task, clean, tuple(faults), self._keep)
            except WorkerDied as death:
                self.waiting.appendleft(task)
                return death
        return None

    def _keep(self, track: Track, episode: Episode, seconds: float) -> None:
        with self._writing:
            self._record(track, episode, seconds)
            self._new[track.cell_id][key_of(episode)] = episode


def _walk_task(
    episodes: Episodes, task: Task, clean: Track, faults: tuple[Track, ...], record: Record
) -> None:
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


def walk_together(
    together: Together, clean: Track, faults: tuple[Track, ...], record: Record, *, exact: bool = True
) -> None:
    """As `walk`, on an engine of several streams: in waves.

    As many tasks as there are streams form a group. A group's waves are its clean episodes, then its fault
    episodes of one kind after the other; no wave mixes cells, so what shares a batch follows from the cell
    alone. A wave is recorded when it is complete; one that was recorded in part is played again whole, and so
    is the clean wave that fault episodes fork from.

    Parameters
    ----------
    exact : bool
        Refuse an episode that is not the recorded one when its wave is played again. False where what is
        recorded comes from another engine configuration.

    Raises
    ------
    MachineryError
        The engine broke, or is not reproducible; everything recorded so far stays valid.
    """
    tasks = together.world.tasks
    for start in range(0, len(tasks), together.streams):
        _walk_group(together, tasks[start : start + together.streams], clean, faults, record, exact)


def _walk_group(
    together: Together,
    group: Sequence[Task],
    clean: Track,
    faults: tuple[Track, ...],
    record: Record,
    exact: bool,
) -> None:
    together.engine.forget()
    pieces, kept = [Piece(task, None) for task in group], False
    if all((task.id, -1) in clean.done for task in group):
        firsts = tuple(clean.done[task.id, -1] for task in group)
    else:
        firsts, kept = _play_wave(together, clean, pieces, record, exact), True
        together.engine.keep()
    for track in faults:
        chosen = [
            Piece(task, site)
            for task, first in zip(group, firsts, strict=True)
            if certified(first) or track.gate is Gate.none
            for _, site in order(task, first, (track,))
        ]
        if all(_key(piece) in track.done for piece in chosen):
            continue
        if not kept and together.engine.info.rewind:
            _play_wave(together, clean, pieces, record, exact)
            together.engine.keep()
            kept = True
        _play_wave(together, track, chosen, record, exact)


def _key(piece: Piece) -> Key:
    return (piece.task.id, -1 if piece.site is None else piece.site.index)


def _play_wave(
    together: Together, track: Track, pieces: Sequence[Piece], record: Record, exact: bool
) -> tuple[Episode, ...]:
    """Play a wave whole, record what is not recorded yet. Each episode counts an equal share of its time."""
    started = time.perf_counter()
    episodes = together.play(track.cell_id, track.kind, pieces)
    seconds = (time.perf_counter() - started) / len(pieces)
    for piece, episode in zip(pieces, episodes, strict=True):
        recorded = track.done.get(_key(piece))
        if recorded is None:
            record(track, episode, seconds)
        elif exact and recorded != episode:
            raise EngineError(
                f"task {piece.task.id} ({track.kind}): its wave, played again, gives another episode than "
                "the recorded one",
                hint="this machine does not compute reproducibly with these settings; engine.streams=1 does",
            )
    return episodes


def order(task: Task, clean: Episode, faults: tuple[Track, ...]) -> list[tuple[Track, Site]]:
    """Fault episodes of a task, deepest fork first.

    An episode forks where the clean episode first makes the site's call; where it never does, nowhere.
    """
    turn_of: dict[tuple[str, str], int] = {}
    for turn in clean.turns:
        for call in (step.call for step in turn.steps if step.call is not None):
            turn_of.setdefault((call.tool, call.arguments), turn.index)
    never = len(clean.turns)
    chosen = [(track, site) for track in faults for site in sites(task, track.kind)]
    return sorted(
        chosen,
        key=lambda pair: (
            -turn_of.get((pair[1].tool, pair[1].arguments), never),
            pair[1].call,
            FAULTS[pair[0].kind].tree,
        ),
    )


def most_episodes(world: World, kinds: tuple[FaultKind, ...]) -> int:
    """Episodes of a walk if every task is certified."""
    return sum(1 + sum(len(sites(task, kind)) for kind in kinds) for task in world.tasks)
