"""From MLflow to contrasts on the terminal, a page on disk and metrics on the sweep's run."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import qfr
from qfr.analysis.contrast.family import Selector, selector
from qfr.analysis.contrast.groups import NamedGroup, parse_groups
from qfr.analysis.published import Published, published
from qfr.closing.registrations import registrations_of
from qfr.closing.unchanged import SETTINGS_TAG, report_folder
from qfr.config import CellConfig
from qfr.errors import TrackingError
from qfr.grid.show import console
from qfr.records import Policy
from qfr.report.console import print_answer, print_report
from qfr.report.content.build import Report, ReportOptions, build_report, gaps_of
from qfr.report.content.gather import gather
from qfr.report.export import ReportFiles, artifacts, metrics, write_report
from qfr.report.figures.images import write_images
from qfr.report.page import page_of
from qfr.scoring import SCORER_VERSION
from qfr.stats.intervals import Method
from qfr.tracking.environment import redact
from qfr.tracking.reading.reader import Reading, read_cells
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep import find_sweep, log_report


@dataclass(frozen=True)
class ReportRequest:
    """What is reported and how."""

    sweep: str | None
    # Only the cells that this sweep planned; None = all cells of the experiments.
    experiments: tuple[str, ...]
    # Names; empty = the store's own.
    condition: str
    # Further MLflow filter.
    score_version: str
    # Which logged scores are read.
    policy: Policy
    vary: str
    # An axis, a single key, or memory.
    method: Method
    resamples: int
    seed: int
    out: Path
    command: str
    # The command that makes this report again.
    margin: float
    # Of equivalence, in points.
    transcripts: int
    # Episodes whose transcripts go on the page, at most.
    family: tuple[Selector, ...] = ()
    # The declared family of contrasts.
    groups: tuple[NamedGroup, ...] = ()
    against: Published | None = None
    markdown: bool = False
    # Print Markdown instead of tables.
    images: str | None = None
    # Also write every figure as an image of this form; None = none.
    across_builds: bool = False
    # Also contrast cells of different llama.cpp builds.

    stuck_after: int = 3
    # One call with one answer so often in a row is stuck.
    details: bool = True
    # Print tables, contrasts and warnings; else the answer alone.
    own: bool = True
    # As the sweep's own settings say: then it is the sweep's report, and stands on its MLflow run.

    @classmethod
    def of(cls, cell: CellConfig, sweep: str) -> ReportRequest:
        """As the configuration of a sweep's cells says."""
        report, tracking = cell.report, cell.tracking
        words = ["qfr", "report", "--sweep", sweep]
        for flag, value, usual in (
            ("--uri", tracking.uri, None),
            ("--root", tracking.root, "mlruns"),
            ("--experiment", tracking.experiment, "qfr"),
            ("--policy", str(cell.scorer.policy), "tolerant"),
            ("--vary", report.vary, "quant"),
            ("--method", report.method, "exact"),
            ("--resamples", str(report.resamples), "20000"),
            ("--seed", str(report.seed), "20260101"),
            ("--margin", f"{report.margin:g}", "5"),
            ("--transcripts", str(report.transcripts), "8000"),
            ("--stuck-after", str(cell.scorer.stuck_after), "3"),
            ("--groups", report.groups, ""),
            ("--against", report.against, None),
        ):
            words += [flag, value] if value is not None and value != usual else []
        for given in report.family:
            words += ["--family", ";".join(f"{name}={values}" for name, values in given.items())]
        return cls(
            sweep=sweep,
            details=report.details,
            experiments=(),
            condition="",
            score_version=str(SCORER_VERSION),
            policy=cell.scorer.policy,
            vary=report.vary,
            method=Method(report.method),
            resamples=report.resamples,
            seed=report.seed,
            out=report_folder(cell, sweep),
            command=redact(shlex.join(words)),
            margin=report.margin,
            transcripts=report.transcripts,
            family=tuple(selector(given) for given in report.family),
            groups=parse_groups(report.groups),
            against=published(report.against) if report.against else None,
            stuck_after=cell.scorer.stuck_after,
        )


def kept_settings(store: Store, sweep: str) -> dict[str, object]:
    """Return the settings that a sweep's report was made with; nothing for a sweep that does not say them.

    The names are those of `ReportRequest`.
    """
    text = find_sweep(store, sweep).data.tags.get(SETTINGS_TAG, "")
    if not text:
        return {}
    raw: dict[str, Any] = json.loads(text)
    return raw | {
        "policy": Policy(raw["policy"]),
        "method": Method(raw["method"]),
        "family": tuple(selector(one) for one in raw["family"]),
        "groups": parse_groups(raw["groups"]),
        "against": published(raw["against"]) if raw["against"] else None,
    }


def make_report(store: Store, request: ReportRequest) -> tuple[Report, Reading]:
    """Read the cells back and compute everything.

    Raises
    ------
    TrackingError
        There is nothing to report, or the store cannot be read.
    """
    reading = read_cells(
        store,
        experiments=request.experiments,
        condition=request.condition,
        sweep=request.sweep,
        score_version=request.score_version,
    )
    if not reading.cells:
        raise TrackingError(
            "no finished cell to report",
            where=store.shown,
            hint="; ".join(reading.notes)
            or "run a grid first (python run.py …), or look at --experiment, --filter and --sweep",
        )
    options = ReportOptions(
        vary=request.vary,
        policy=request.policy,
        method=request.method,
        resamples=request.resamples,
        seed=request.seed,
        command=request.command,
        made=f"qfr {qfr.__version__}, {time.strftime('%Y-%m-%d %H:%M')}",
        margin=request.margin,
        family=request.family,
        groups=request.groups,
        against=request.against,
        across_builds=request.across_builds,
        stuck_after=request.stuck_after,
        ep_min_calls=max(cell.ep_min_calls for cell in reading.cells) or 2,
    )
    material = replace(
        gather(store, reading, request.transcripts),
        registrations=registrations_of(store, reading, request.sweep),
    )
    return build_report(reading.cells, options, gaps_of(reading), material), reading


def report_sweep(store: Store, request: ReportRequest, out: Console) -> ReportFiles:
    """Print the report and write its files; the sweep's own report stands on its MLflow run too."""
    report, _ = make_report(store, request)
    # What is piped on must hold the Markdown alone.
    notes = console(stderr=True) if request.markdown else out
    files = write_report(report, request.out)
    if request.markdown:
        out.print(files.markdown.read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    elif request.details:
        print_report(report, out)
    else:
        print_answer(report, out, f"{request.command}  (or report.details=true)")
    if request.images is not None:
        written = write_images(page_of(report), request.out / "images", request.images)
        notes.print(f"{len(written)} images: {request.out / 'images'}", markup=False, soft_wrap=True)
    if request.sweep is not None and request.own and not store.read_only:
        run_id = find_sweep(store, request.sweep).info.run_id
        log_report(store, run_id, files.by_name(), metrics(report), artifacts(report))
    notes.print(f"\nReport: {files.page.resolve()}", markup=False, soft_wrap=True)
    return files
