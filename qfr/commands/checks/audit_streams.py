"""`qfr audit --streams`: how many episodes come out otherwise when more of them share a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.audit.replay import NOT_PLAYED, Comparison, finished_run, rerun
from qfr.config import EngineConfig
from qfr.play.engine_cache import Shelf
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.store import Store


@dataclass(frozen=True)
class Counted:
    """One cell, played with another number of streams."""

    name: str
    logged_streams: int
    comparison: Comparison | None
    # None when it could not be played.
    problem: str
    # Why not.


def count_streams(store: Store, cells: Sequence[LoggedCell], shelf: Shelf, streams: int, out: Console) -> int:
    """Play cells with another number of streams and count what differs from their logs.

    Returns
    -------
    int
        The exit code: 0 counted, 2 a cell could not be played. A difference is no error: streams are part of
        a cell's identity, and what they change is what is asked.
    """
    done = [_count(store, cell, shelf, streams) for cell in cells]
    table = Table(title=f"Played with {_many(streams)}", title_justify="left", title_style="bold")
    for name in ("cell", "logged with", "episodes", "other logits", "other text", "other score", ""):
        left = name in ("cell", "logged with", "")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for one in done:
        found = one.comparison
        counts: tuple[str, ...] = ("", "", "", "")
        if found is not None:
            counts = (str(found.episodes), *(str(len(x)) for x in (found.bytes, found.texts, found.scores)))
        table.add_row(escape(one.name), _many(one.logged_streams), *counts, "" if found else "not played")
    out.print(table)
    for one in done:
        if one.problem:
            out.print(f"{one.name}: {one.problem}", markup=False, soft_wrap=True)
    found_all = [one.comparison for one in done if one.comparison is not None]
    total, texts, scores = (
        sum(count(one) for one in found_all)
        for count in (lambda c: c.episodes, lambda c: len(c.texts), lambda c: len(c.scores))
    )
    out.print(
        f"Of {total} episodes {texts} have another text and {scores} another score with {_many(streams)}.",
        style="bold",
    )
    return 0 if len(found_all) == len(done) else 2


def _count(store: Store, cell: LoggedCell, shelf: Shelf, streams: int) -> Counted:
    name, logged = cell.facts.name, cell.facts.streams
    try:
        finished = finished_run(store, cell)

        def change(config: EngineConfig) -> EngineConfig:
            return dataclasses.replace(config, streams=streams)

        return Counted(name, logged, rerun(finished, shelf, change=change).comparison, "")
    except NOT_PLAYED as error:
        shelf.clear()
        return Counted(name, logged, None, str(error))


def _many(streams: int) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}"
