"""A cell before it is played: its journal, and what of it was played before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qfr.canonical import sha256_hex
from qfr.cell import Key, key_of
from qfr.config import CellConfig
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.journal import Journal, log_bytes
from qfr.records import Episode
from qfr.shards import whole_id
from qfr.tracking.writing.outbox import CELL_FILE, Parcel, read_parcel
from qfr.tracking.writing.writer import RunHandle


@dataclass(frozen=True)
class PlannedRun:
    """A cell of the walk."""

    config: CellConfig
    facts: CellFacts


@dataclass
class OpenCell:
    """A cell that is being filled."""

    run: PlannedRun
    journal: Journal
    done: dict[Key, Episode]
    handle: RunHandle | None
    # Its MLflow run; None when MLflow was away as it began.
    parcel: Parcel | None
    # It was played to its end before and is not logged yet.
    logged: bool = False


def journal_folder(root: Path, facts: CellFacts) -> Path:
    """Where a cell's journal lies under a store's root; a registered sweep has its own."""
    return root / "journal" / "@".join(part for part in (facts.cell_id, facts.registration) if part)


def clear_finished(root: Path, facts: CellFacts, log_sha256: str) -> None:
    """Remove what a killed process left on disk of a cell that is finished: here just before, or elsewhere.

    A whole one with another log stays, so that `qfr sync` logs it too and the alarm is raised.
    """
    folder = journal_folder(root, facts)
    if not folder.exists():
        return
    if (folder / CELL_FILE).exists():
        try:
            if sha256_hex(log_bytes(read_parcel(folder).cell.episodes)) != log_sha256:
                return
        except LogError:
            pass  # Damaged, and not needed any more.
    shutil.rmtree(folder)


def open_cell(root: Path, one: PlannedRun, say: Callable[[str], None]) -> OpenCell:
    """Read a cell's journal under a store's root; one that was played to its end comes with its parcel.

    Raises
    ------
    LogError
        The journal is damaged, or another cell's.
    """
    name = one.facts.name
    journal = Journal(journal_folder(root, one.facts))
    episodes = journal.episodes()
    for episode in episodes:
        if episode.cell_id != whole_id(one.facts.cell_id):
            raise LogError(
                f"holds an episode of cell {episode.cell_id}",
                where=str(journal.path),
                hint="this file was moved or edited; delete its folder to play the cell anew",
            )
    if journal.torn_bytes:
        say(f"{name}: cut off a torn last line of {journal.torn_bytes} bytes in the journal")
    parcel = _parcel(journal.path.parent, name, say)
    if parcel is not None:
        say(f"{name}: was played before and is logged now")
    elif episodes:
        say(f"{name}: resumes after {len(episodes)} episodes")
    return OpenCell(one, journal, {key_of(episode): episode for episode in episodes}, None, parcel)


def _parcel(folder: Path, name: str, say: Callable[[str], None]) -> Parcel | None:
    if not (folder / CELL_FILE).exists():
        return None
    try:
        return read_parcel(folder)
    except LogError as error:
        say(f"{name}: goes on from its journal: {error}")
        (folder / CELL_FILE).unlink()
        return None
