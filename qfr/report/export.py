"""The report as files: CSV, Parquet, JSON, Markdown and one HTML page."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfr.analysis.results import VERSION
from qfr.errors import UserError
from qfr.report.content.build import Report
from qfr.report.files import provenance_frame, result_frame, result_record, run_frame
from qfr.report.markdown import render_markdown
from qfr.report.notices import notices
from qfr.report.page import render_page
from qfr.report.words import answers, overview, varies

#: Spreadsheets run a cell that begins with one of these as a formula.
_FORMULA = re.compile(r"^[=+\-@\t\r]")


@dataclass(frozen=True)
class ReportFiles:
    """Where the files of a report lie."""

    page: Path
    results_csv: Path
    results_parquet: Path
    results_json: Path
    provenance_csv: Path
    markdown: Path
    runs_csv: Path | None = None
    # MLflow run of each cell; None where no store is at hand.

    def by_name(self) -> dict[str, Path]:
        """Return file name to path."""
        given = (getattr(self, name) for name in self.__dataclass_fields__)
        return {path.name: path for path in given if path is not None}


def write_report(report: Report, out_dir: str | Path) -> ReportFiles:
    """Write all files of a report into a folder, which is made if need be; older ones are replaced.

    Raises
    ------
    UserError
        If the folder cannot be written.
    """
    folder = Path(out_dir)
    files = ReportFiles(
        page=folder / "report.html",
        results_csv=folder / "results.csv",
        results_parquet=folder / "results.parquet",
        results_json=folder / "results.json",
        provenance_csv=folder / "provenance.csv",
        markdown=folder / "report.md",
        runs_csv=folder / "runs.csv" if report.material.runs else None,
    )
    results = result_frame(report.results)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_csv(results, files.results_csv)
        results.to_parquet(files.results_parquet, index=False)
        files.results_json.write_text(report_json(report), encoding="utf-8")
        _write_csv(provenance_frame(report), files.provenance_csv)
        if files.runs_csv is not None:
            _write_csv(run_frame(report), files.runs_csv)
        files.page.write_text(render_page(report), encoding="utf-8")
        files.markdown.write_text(render_markdown(report), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"the report cannot be written: {error.strerror}",
            where=str(folder),
            hint="choose another folder with --out",
        ) from error
    return files


def report_json(report: Report) -> str:
    """Return answers, warnings and every row of results as one JSON object; columns as in results.csv."""
    data = {
        "version": VERSION,
        "title": report.options.title,
        "command": report.options.command,
        "answers": [
            {
                "title": one.title,
                "lines": [[line.text, line.detail] for line in one.lines],
                "flags": list(one.flags),
            }
            for one in answers(report)
        ],
        "varies": varies(report),
        "overview": list(overview(report)),
        "warnings": [
            {"title": one.title, "text": one.text, "items": list(one.items)} for one in notices(report)
        ],
        "registrations": [
            {
                "id": one.frozen.id,
                "title": one.frozen.record.title,
                "label": str(one.frozen.record.label),
                "registered": one.frozen.record.registered,
                "summary": one.summary,
                "missing_cells": list(one.missing),
                "cells_run_otherwise": list(one.otherwise),
                "cells_elsewhere": list(one.elsewhere),
                "missing_contrasts": [dataclasses.asdict(absent) for absent in one.absent],
            }
            for one in report.followed
        ],
        "results": [result_record(one) for one in report.results],
    }
    return json.dumps(data, indent=1, allow_nan=False)


def spreadsheet_safe(text: str) -> str:
    """Return text that no spreadsheet runs as a formula: such text gets an apostrophe in front."""
    return f"'{text}" if _FORMULA.match(text) else text


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    safe = frame.copy()
    for name in safe.columns:
        if pd.api.types.is_string_dtype(safe[name].dtype):
            safe[name] = safe[name].map(spreadsheet_safe, na_action="ignore")
    safe.to_csv(path, index=False, lineterminator="\n")
