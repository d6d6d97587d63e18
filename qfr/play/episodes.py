"""How a cell's episodes are played: one after the other, several tasks at a time, or in lockstep."""

from __future__ import annotations

from collections.abc import Callable

from qfr.cell import Record, Track, walk, walk_at_once, walk_together
from qfr.config import CellConfig
from qfr.engine.base import Engine, StreamEngine
from qfr.episode import Episodes, Together
from qfr.errors import EngineError
from qfr.play.engine_cache import players, rules_of
from qfr.world.base import World

# Plays the episodes of a clean track and of fault tracks that are not done yet.
Walk = Callable[[Track, tuple[Track, ...], Record], None]


def walker(engine: Engine, cell: CellConfig, world: World, system: str, *, exact: bool = True) -> Walk:
    """The walk that a cell's settings ask for.

    Parameters
    ----------
    engine : Engine
        Loaded for the cell.
    cell : CellConfig
    world : World
    system : str
        The prompt's exact text.
    exact : bool
        Streams: refuse an episode that is not the recorded one when its wave is played again.
    """
    rules, streams = rules_of(cell), cell.engine.streams
    if streams > 1:
        if not isinstance(engine, StreamEngine):
            raise EngineError(f"an engine of one stream cannot play {streams}")
        together = Together(engine, streams, world, system, rules)
        return lambda clean, faults, record: walk_together(together, clean, faults, record, exact=exact)
    playing = [Episodes(one, world, system, rules) for one in players(engine, cell, len(world.tasks))]
    if len(playing) > 1:
        return lambda clean, faults, record: walk_at_once(playing, clean, faults, record)
    return lambda clean, faults, record: walk(playing[0], clean, faults, record)
