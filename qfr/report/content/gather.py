"""What a report shows besides the finished cells, read from the tracking store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from qfr.analysis.diagnostics.divergence import divergences
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.trials import FOREIGN
from qfr.facts import CellFacts
from qfr.records import Episode, FaultKind
from qfr.report.content.build import Material, Measured
from qfr.report.content.transcripts import Packed, Parting, Transcripts, fitting, pack
from qfr.scope import group, scope_of
from qfr.tracking.reading.cells import LoggedCell, read_calls, read_episodes
from qfr.tracking.reading.reader import Reading
from qfr.tracking.reading.simulations import read_other_errors
from qfr.tracking.store import Store

_FAULTS = [str(kind) for kind in FaultKind]
_Read = tuple[LoggedCell, tuple[Episode, ...]]


def gather(store: Store, reading: Reading, most_episodes: int) -> Material:
    """Read costs and transcripts, and offer the calls one cell at a time.

    Parameters
    ----------
    most_episodes : int
        Transcripts for the viewer; 0 = none.

    Raises
    ------
    TrackingError, LogError
        A log is missing or damaged.
    """
    cells = _every(reading.cells)

    def calls(cell_id: str) -> pd.DataFrame | None:
        return read_calls(store, cells[cell_id]) if cell_id in cells else None

    def others(cell_id: str) -> pd.DataFrame | None:
        cell = cells.get(cell_id)
        return None if cell is None or cell.facts.executor != FOREIGN else read_other_errors(store, cell)

    measured = {cell_id: _measured(cell) for cell_id, cell in cells.items()}
    shown = _transcripts(store, tuple(cells.values()), most_episodes)
    runs = {cell_id: cell.run_id for cell_id, cell in cells.items()}
    return Material(calls, others, measured, shown, runs)


def _every(cells: Iterable[LoggedCell]) -> dict[str, LoggedCell]:
    found: dict[str, LoggedCell] = {}
    for cell in cells:
        for one in (cell.clean, cell):
            if one is not None:
                found.setdefault(one.facts.cell_id, one)
    return found


def _measured(cell: LoggedCell) -> Measured:
    return Measured(
        peak_memory_bytes=cell.metrics.get("work.peak_memory_bytes"),
        decode_tokens_per_second=cell.metrics.get("work.decode_tokens_per_second"),
    )


def _transcripts(store: Store, cells: tuple[LoggedCell, ...], most: int) -> Transcripts | None:
    if most <= 0:
        return None
    tasks, total = _first_tasks(cells, most)
    kept = tasks if total else None
    read = [(cell, read_episodes(store, cell, tasks=kept)) for cell in cells]
    read = [(cell, episodes) for cell, episodes in read if episodes]
    read.sort(key=lambda one: _place(one[0].facts))
    packed, lost = fitting([pack(cell.facts, episodes, cell.ep_min_calls) for cell, episodes in read])
    return Transcripts(packed, _partings(read), _left_out(packed, tasks, total, lost))


def _place(facts: CellFacts) -> tuple[object, ...]:
    """Order of the viewer's cells: the presets of one prompt stand together, the highest first."""
    value = order_key(Axis.quant, facts.quant)[0] if bits(facts.quant) is not None else 0.0
    prompt = order_key(Axis.prompt, facts.prompt)
    return facts.model, prompt, value, facts.executor, facts.trial, _FAULTS.index(facts.fault)


def _first_tasks(cells: tuple[LoggedCell, ...], most: int) -> tuple[frozenset[str], int]:
    """The tasks whose episodes fit, in the order of the suite, and how many episodes are left out."""
    counts: dict[str, int] = defaultdict(int)
    for cell in cells:
        for task, n in cell.episodes["task"].value_counts(sort=False).items():
            counts[str(task)] += int(n)
    chosen: list[str] = []
    used = 0
    for task, n in counts.items():
        if used + n > most and chosen:
            break
        chosen.append(task)
        used += n
    return frozenset(chosen), sum(counts.values()) - used


def _left_out(packed: tuple[Packed, ...], tasks: frozenset[str], total: int, lost: int) -> str:
    parts = []
    if total:
        parts.append(
            f"{total:,} episodes are left out: only the first {len(tasks):,} tasks are shown. "
            "Ask for more with --transcripts N."
        )
    if lost:
        parts.append(f"The transcripts of {lost} of {lost + len(packed)} cells do not fit on the page.")
    return " ".join(parts)


def _partings(read: list[_Read]) -> tuple[Parting, ...]:
    """Where the highest preset and each other one of a model part, cell by cell."""
    ordered = [one for one in read if bits(one[0].facts.quant) is not None]
    settings = group(ordered, ("quant",), of=lambda one: scope_of(one[0].facts))
    found = []
    for setting in settings:
        high, *others = sorted(setting.members, key=lambda one: order_key(Axis.quant, one[0].facts.quant))
        for other in others:
            if other[0].facts.quant != high[0].facts.quant:
                pairs = divergences(high[1], other[1], same_tokenizer=True)
                found.append(Parting.of((high[0].facts, other[0].facts), pairs))
    return tuple(sorted(found, key=lambda one: (one.model, _FAULTS.index(one.fault), one.prompt)))
