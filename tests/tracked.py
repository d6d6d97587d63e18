"""A clean cell and its ET cell, finished and ready to be logged to a store."""

from __future__ import annotations

from qfr.facts import CellFacts
from qfr.records import Episode
from qfr.tracking.store import Store
from qfr.tracking.writing.writer import FinishedCell, RunHandle, finish_cell, start_cell
from tests.builders import build_cell_episodes, make_facts, make_work, orders20

SHAPES = orders20()[8:12]
BUILT = build_cell_episodes([2, None, 3, 1], SHAPES)
CLEAN, FAULT = make_facts("llama", "Q8_0", "P0", "none"), make_facts("llama", "Q8_0", "P0", "et")


def cell(
    facts: CellFacts, episodes: tuple[Episode, ...], clean: tuple[Episode, ...] = BUILT.clean
) -> FinishedCell:
    """A finished cell of the given episodes."""
    return FinishedCell(
        facts=facts,
        episodes=episodes,
        clean=clean,
        work=make_work(),
        prompt=b"You are \xff an agent.\n",
        suite=b'{"name":"orders20"}',
        config_yaml="mode: run\n",
        timing=b'{"seconds":1.0}\n',
        ep_min_calls=2,
    )


def log_cell(store: Store, finished: FinishedCell, sweep: str | None = None) -> RunHandle:
    """Start and finish one cell."""
    handle = start_cell(store, finished.facts, sweep)
    finish_cell(store, handle, finished)
    return handle


def log_pair(store: Store, sweep: str | None = None) -> tuple[RunHandle, RunHandle]:
    """A clean run and its ET run."""
    clean = log_cell(store, cell(CLEAN, BUILT.clean), sweep)
    return clean, log_cell(store, cell(FAULT, BUILT.faulted), sweep)
