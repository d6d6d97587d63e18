"""Configuration groups that are no part of a cell: where runs are logged, reported and registered.

As in `qfr.config`, no class carries a default.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfr.choices import Traces, aside, check_at_least
from qfr.errors import ConfigError


@dataclass
class TrackingConfig:
    """Where runs are logged. Not part of a cell."""

    uri: str | None = aside()
    # null = SQLite under `root`.
    root: str = aside()
    # Folder of the store, the journals and derived files.
    experiment: str = aside()
    traces: Traces = aside()
    patience: int = aside()
    # Seconds that an outage of the store is waited for; then cells end as "ran, not yet logged".
    stale_after: int = aside()
    # Seconds without a sign of life after which an unfinished cell of another machine is taken over.

    def __post_init__(self) -> None:
        check_at_least("tracking.patience", self.patience, 0)
        check_at_least("tracking.stale_after", self.stale_after, 5)


@dataclass
class ReportConfig:
    """The report written at the end of a sweep. Not part of a cell."""

    resamples: int = aside()
    seed: int = aside()
    vary: str = aside()
    # Axis whose levels are contrasted.
    method: str = aside()
    # Of the bootstrap: exact (no resampling noise, no seed) or montecarlo (the paper's).
    out: str | None = aside()
    margin: float = aside()
    # Of equivalence, in points.
    transcripts: int = aside()
    # Episodes whose transcripts go on the page, at most; 0 = none.
    details: bool = aside()
    # Print tables, contrasts and warnings at the end of a sweep; else the answer alone.
    family: list[dict[str, str]] = aside()
    # The declared family of contrasts: one selector per entry, field to values; empty = not declared.
    groups: str = aside()
    # Named groups of presets, "high=q8_0,q6_k;low=q4_k_m,q3_k_m"; empty = none.
    against: str | None = aside()
    # Published results to set the report beside: hu2026.

    def __post_init__(self) -> None:
        check_at_least("report.resamples", self.resamples, 100)
        check_at_least("report.transcripts", self.transcripts, 0)
        if not 0 < self.margin <= 100:
            raise ConfigError(f"report.margin is {self.margin}", hint="it is in points, above 0, up to 100")


@dataclass
class RegistrationConfig:
    """Freezing a grid before it runs, and running what was frozen. Not part of a cell."""

    title: str | None = aside()
    # mode=register: what the registration is called.
    hypotheses: str | None = aside()
    # mode=register: file with the hypotheses, frozen word for word.
    allow_dirty: bool = aside()
    # mode=register: accept code that is not committed; the difference is frozen too.
    use: str | None = aside()
    # Run under a registration: r-<digest prefix>, or its JSON file.
    deviation: str | None = aside()
    # With `use`: why something differs from what was frozen; stored with the runs and shown.
