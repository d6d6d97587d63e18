"""What a sweep's report depends on: where nothing of it changed, the report that stands is not made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import qfr
from qfr.canonical import canonical
from qfr.config import CellConfig
from qfr.scoring import SCORER_VERSION
from qfr.tracking.reading.search import search
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep_runs import UsedRun

#: Where a sweep's run keeps the settings of its report.
SETTINGS_TAG = "qfr.report"
#: Where it keeps the digest of what its report was made from.
KEY_TAG = "qfr.report_key"


@dataclass(frozen=True)
class StandingReport:
    """The report of an earlier sweep."""

    sweep: str
    run_id: str
    # Of the sweep's own run in MLflow.
    page: Path


def report_settings(cell: CellConfig) -> str:
    """The settings of a sweep's report as canonical JSON, to be kept with the sweep."""
    report = cell.report
    return canonical(
        {
            "policy": str(cell.scorer.policy),
            "vary": report.vary,
            "method": report.method,
            "resamples": report.resamples,
            "seed": report.seed,
            "margin": float(report.margin),
            "transcripts": report.transcripts,
            "family": [dict(one) for one in report.family],
            "groups": report.groups,
            "against": report.against,
            "stuck_after": cell.scorer.stuck_after,
        }
    )


def report_folder(cell: CellConfig, sweep: str) -> Path:
    """Where the sweep's report is written."""
    return Path(cell.report.out) if cell.report.out else Path(cell.tracking.root) / "reports" / sweep


def report_key(cell: CellConfig, planned: Iterable[str], used: Iterable[UsedRun]) -> str:
    """Digest of what a report is made from: its settings and place, the planned designs, the runs and their
    logs, this version."""
    runs = sorted((one.design_id, one.run_id, one.log_sha256) for one in used)
    made = {
        "qfr": qfr.__version__,
        "scorer": [str(SCORER_VERSION), str(cell.scorer.ep_min_calls)],
        "settings": report_settings(cell),
        "out": cell.report.out or "",
        "planned": sorted(planned),
        "runs": [list(run) for run in runs],
    }
    return hashlib.sha256(canonical(made).encode("ascii")).hexdigest()


def standing_report(
    store: Store, cell: CellConfig, planned: Iterable[str], used: Iterable[UsedRun]
) -> StandingReport | None:
    """The newest report of an earlier sweep that this one's would repeat, if its page is still there.

    None too where a run stands under a registration: what a report says of that can change without any run.
    """
    runs = list(used)
    if cell.registration.use is not None or any(one.registration for one in runs):
        return None
    key = report_key(cell, planned, runs)
    found = search(store, f"tags.`qfr.kind` = 'sweep' AND tags.`{KEY_TAG}` = '{key}'")
    for run in found:
        sweep = run.data.tags["qfr.sweep"]
        page = report_folder(cell, sweep).expanduser().absolute() / "report.html"
        if page.exists():
            return StandingReport(sweep, run.info.run_id, page)
    return None
