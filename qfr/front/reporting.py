"""From MLflow to contrasts on the terminal and a page on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from qfr.analysis.contrasts import Options, contrast_table
from qfr.analysis.frames import join
from qfr.analysis.levels import Axis
from qfr.config import CellConfig, Policy
from qfr.tracking.reader import read_cells
from qfr.tracking.store import Store


@dataclass(frozen=True)
class ReportRequest:
    """What is reported and how."""

    sweep: str | None
    policy: Policy
    vary: Axis
    resamples: int
    seed: int
    out: Path

    @classmethod
    def of(cls, cell: CellConfig, sweep: str) -> ReportRequest:
        """As the configuration of a sweep's cells says."""
        report = cell.report
        out = Path(report.out) if report.out else Path(cell.tracking.root) / "reports" / sweep
        return cls(sweep, cell.scorer.policy, Axis(report.vary), report.resamples, report.seed, out)


def report_sweep(store: Store, request: ReportRequest, out: Console) -> None:
    reading = read_cells(store, sweep=request.sweep)
    joined = join(reading.cells)
    for c in contrast_table(joined.tables, Options(vary=request.vary)):
        out.print(c.model, c.prompt, c.a, c.b, c.target, c.policy, c.points, c.low, c.high, c.reason)
