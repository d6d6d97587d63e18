"""What jobs say about their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """What became of a cell in a job."""

    finished = "finished"
    skipped = "skipped"
    # A finished run stood in the store already.
    failed = "failed"
    # The machinery broke; the run is FAILED and the same command goes on from the journal.
    not_logged = "ran, not yet logged"
    # MLflow did not take it; it is whole on disk, and `qfr sync` or the same command logs it.
    elsewhere = "played elsewhere"
    # Another live process plays it; the sweep comes back to it.


@dataclass(frozen=True)
class CellOutcome:
    """What became of one cell."""

    name: str
    design_id: str
    cell_id: str
    # Empty when the engine never loaded.
    status: Status
    reason: str
    # Why it failed, "" otherwise.
    run_id: str


@dataclass(frozen=True)
class JobOutcome:
    """What became of a walk's cells, the clean pass first."""

    cells: tuple[CellOutcome, ...]
    spent: Mapping[str, float] = field(default_factory=dict)
    # Wall seconds by what they were spent on (`spent.py`).
