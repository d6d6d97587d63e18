"""What a report may be given besides finished cells: calls, costs, transcripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from qfr.report.content.registration_status import Registrations
from qfr.report.content.transcripts import Transcripts


@dataclass(frozen=True)
class Measured:
    """What a cell's run cost. None where it was not measured."""

    peak_memory_bytes: float | None = None
    # Largest resident size of the engine's process.
    decode_tokens_per_second: float | None = None
    # Generated tokens over the seconds in which they were decoded.


@dataclass(frozen=True, eq=False)
class Material:
    """Further tables and texts by cell_id; whatever is missing is left out of the report."""

    calls: Callable[[str], pd.DataFrame | None] | None = None
    # One row per call of a cell, as the tracking store returns them; None without diagnostics.
    others: Callable[[str], pd.DataFrame | None] | None = None
    # Failed calls of the other side of an imported log: task, trial, user_errors.
    measured: Mapping[str, Measured] = field(default_factory=dict)
    transcripts: Transcripts | None = None
    # Of the episodes that the viewer shows; None = no viewer.
    runs: Mapping[str, str] = field(default_factory=dict)
    # MLflow run of each cell.
    registrations: Registrations = field(default_factory=Registrations)
    # That the cells ran under.
