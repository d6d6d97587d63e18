"""The report as files: CSV, Parquet, JSON, Markdown and one HTML page."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfr.errors import UserError
from qfr.report.build import Report
from qfr.report.markdown import render_markdown
from qfr.report.notices import notices
from qfr.report.page import render_page
from qfr.report.tables import cell_frame, contrast_frame, process_frame, provenance_frame
from qfr.report.tidy import diagnostics_frame, further_frame
from qfr.report.words import answers, overview

#: Spreadsheets run a cell that begins with one of these as a formula.
_FORMULA = re.compile(r"^[=+\-@\t\r]")
_Plain = None | bool | int | float | str


@dataclass(frozen=True)
class ReportFiles:
    """Where the files of a report lie."""

    page: Path
    contrasts_csv: Path
    contrasts_parquet: Path
    contrasts_json: Path
    cells_csv: Path
    process_csv: Path
    provenance_csv: Path
    markdown: Path
    diagnostics_csv: Path
    further_csv: Path

    def by_name(self) -> dict[str, Path]:
        """Return file name to path."""
        return {path.name: path for path in (getattr(self, name) for name in self.__dataclass_fields__)}


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
        contrasts_csv=folder / "contrasts.csv",
        contrasts_parquet=folder / "contrasts.parquet",
        contrasts_json=folder / "contrasts.json",
        cells_csv=folder / "cells.csv",
        process_csv=folder / "process.csv",
        provenance_csv=folder / "provenance.csv",
        markdown=folder / "report.md",
        diagnostics_csv=folder / "diagnostics.csv",
        further_csv=folder / "further.csv",
    )
    contrasts = contrast_frame(report)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_csv(contrasts, files.contrasts_csv)
        contrasts.to_parquet(files.contrasts_parquet, index=False)
        files.contrasts_json.write_text(report_json(report), encoding="utf-8")
        _write_csv(cell_frame(report), files.cells_csv)
        _write_csv(process_frame(report), files.process_csv)
        _write_csv(provenance_frame(report), files.provenance_csv)
        _write_csv(diagnostics_frame(report), files.diagnostics_csv)
        _write_csv(further_frame(report), files.further_csv)
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
    """Return contrasts, cells, answers and warnings as one JSON object; column names as in the CSV files."""
    data = {
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
        "contrasts": _records(contrast_frame(report)),
        "cells": _records(cell_frame(report)),
        "further": _records(further_frame(report)),
        "diagnostics": _records(diagnostics_frame(report)),
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


def _records(frame: pd.DataFrame) -> list[dict[str, _Plain]]:
    # Column by column: pandas turns extension types into plain Python values there.
    columns = {
        str(name): [
            None if gone else value
            for value, gone in zip(frame[name].tolist(), frame[name].isna(), strict=True)
        ]
        for name in frame.columns
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
