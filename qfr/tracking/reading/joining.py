"""Shards of a cell joined into the cell that they are parts of; a cell with a part missing is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from qfr.canonical import digest
from qfr.shards import Shard, shard_of, whole_id
from qfr.tracking.reading.cells import LoggedCell

_MEAN_OF_PARTS = ("work.prefill_tokens_per_second", "work.decode_tokens_per_second")
_LARGEST_OF_PARTS = ("work.peak_memory_bytes", "work.device_memory_bytes")


@dataclass(frozen=True)
class Joining:
    """What became of the shards among some cells."""

    cells: tuple[LoggedCell, ...]
    # Whole cells as they came, and those that were joined.
    notes: tuple[str, ...]
    # Which cells were refused, naming the missing parts, and which parts were not needed.


def join_shards(cells: Sequence[LoggedCell]) -> Joining:
    """Join complete sets of shards; leave whole cells as they are.

    A cell that was run whole as well counts as that. Of several divisions (3 and 8 shards) the one with the
    fewest parts counts; all give the same episodes.
    """
    whole = {cell.facts.cell_id for cell in cells if shard_of(cell.facts.cell_id) is None}
    parts: dict[str, dict[int, dict[int, LoggedCell]]] = defaultdict(lambda: defaultdict(dict))
    for cell in cells:
        shard = shard_of(cell.facts.cell_id)
        if shard is not None:
            parts[whole_id(cell.facts.cell_id)][shard.count][shard.index] = cell
    kept = [cell for cell in cells if cell.facts.cell_id in whole]
    notes: list[str] = []
    for cell_id, divisions in parts.items():
        name = _name(next(iter(next(iter(divisions.values())).values())))
        complete = [count for count, held in sorted(divisions.items()) if len(held) == count]
        if cell_id in whole:
            notes.append(f"{name}: was run whole and in shards; the whole run is read.")
        elif complete:
            held = divisions[complete[0]]
            kept.append(joined([held[index] for index in sorted(held)]))
        else:
            notes += [_refusal(name, count, held) for count, held in sorted(divisions.items())]
    return Joining(tuple(kept), tuple(notes))


def joined(parts: Sequence[LoggedCell]) -> LoggedCell:
    """One cell of all its shards, in the order of the whole cell's log."""
    first = parts[0]
    facts = first.facts
    cleans = [part.clean for part in parts if part.clean is not None]
    ends = [part.seconds for part in parts]
    return replace(
        first,
        facts=replace(
            facts,
            cell_id=whole_id(facts.cell_id),
            design_id=whole_id(facts.design_id),
            clean_id=whole_id(facts.clean_id),
        ),
        started=min(part.started for part in parts),
        seconds=None if None in ends else sum(end for end in ends if end is not None),
        log_sha256=digest([part.log_sha256 for part in parts]),
        clean_log_sha256=digest([part.clean_log_sha256 for part in parts]) if cleans else "",
        metrics=_metrics(parts),
        episodes=in_log_order(pd.concat([part.episodes for part in parts], ignore_index=True)),
        clean=joined(cleans) if cleans else None,
        parts=tuple(parts),
    )


def in_log_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of one cell in the order of a log: task, site (a clean episode first), trial, and turn if any."""
    keys = [name for name in ("task", "site", "trial", "turn") if name in frame.columns]
    return frame.sort_values(keys, kind="stable", na_position="first", ignore_index=True)


def _metrics(parts: Sequence[LoggedCell]) -> dict[str, float]:
    """Of the whole cell, as far as they follow from the parts' own."""
    found: dict[str, float] = {}
    for name in (*_LARGEST_OF_PARTS, *_MEAN_OF_PARTS):
        values = [part.metrics[name] for part in parts if name in part.metrics]
        if values:
            found[name] = max(values) if name in _LARGEST_OF_PARTS else sum(values) / len(values)
    return found


def _refusal(name: str, count: int, held: dict[int, LoggedCell]) -> str:
    missing = [str(Shard(index, count)) for index in range(1, count + 1) if index not in held]
    words = "shard" if len(missing) == 1 else "shards"
    return (
        f"{name}: {words} {', '.join(missing)} of the cell {'is' if len(missing) == 1 else 'are'} missing, "
        f"{len(held)} of {count} are there; the cell is left out until all are. suite.shard={missing[0]} "
        "plays one."
    )


def _name(cell: LoggedCell) -> str:
    return replace(cell.facts, cell_id=whole_id(cell.facts.cell_id)).name
