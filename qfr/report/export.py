"""The report as files: CSV, Parquet, JSON, Markdown and one HTML page."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import pandas as pd

from qfr.analysis.results import COLUMNS, VERSION, Kind, Plain, Result
from qfr.analysis.targets import Target
from qfr.errors import UserError
from qfr.facts import CellFacts
from qfr.faults import USUAL
from qfr.report.content.build import Report
from qfr.report.markdown import render_markdown
from qfr.report.notices import notices
from qfr.report.page import render_page
from qfr.report.tables.formats import spelled
from qfr.report.words import answers, overview, varies

#: Where the table stands on a sweep's MLflow run.
ARTIFACT = "qfr/results"
_MOST_PRESETS, _MOST_CONTRASTS = 8, 4
# Headline metrics of a sweep's run: 20 at most.
_FACTS = tuple(name for name in CellFacts.__dataclass_fields__ if name != "config")
_DTYPES: Mapping[type, str] = {int: "Int64", float: "float64", bool: "boolean"}
_LISTS = {name for name, kind in get_type_hints(Result).items() if kind == tuple[str, ...]}
_Record = dict[str, bool | int | float | str | list[str] | None]


def result_frame(rows: Iterable[Result]) -> pd.DataFrame:
    """Return the table. Lists of names become one text; a gap changes no column's type."""
    columns = {name: [_cell(name, getattr(one, name)) for one in rows] for name in COLUMNS}
    return pd.DataFrame({name: pd.Series(columns[name], dtype=_dtype(name)) for name in COLUMNS})


def result_record(row: Result, names: Iterable[str] = COLUMNS) -> _Record:
    """Return a row as JSON holds it: lists stay lists."""
    found: _Record = {}
    for name in names:
        value: Plain = getattr(row, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def provenance_frame(report: Report) -> pd.DataFrame:
    """Return one row per cell: ids, digests, build, settings, code."""
    rows = [{name: _text(getattr(facts, name)) for name in _FACTS} for facts in report.facts]
    frame = pd.DataFrame(rows, columns=list(_FACTS))
    return frame.astype({name: _kind(frame[name]) for name in frame.columns})


def run_frame(report: Report) -> pd.DataFrame:
    """Return the MLflow run of each cell, for the `cells` of the table of results."""
    runs = report.material.runs
    rows = [(f.cell_id, runs[f.cell_id], f.name) for f in report.facts if f.cell_id in runs]
    return pd.DataFrame(rows, columns=["cell_id", "run_id", "cell"], dtype="string")


def artifacts(report: Report) -> dict[str, bytes]:
    """Return the table as a sweep's MLflow run holds it: Parquet, and JSON that its page shows as a table."""
    frame = result_frame(report.results)
    parquet = BytesIO()
    frame.to_parquet(parquet, index=False)
    plain = frame.astype(object).where(frame.notna(), None)
    data = {"columns": list(COLUMNS), "data": plain.to_numpy().tolist()}
    text = json.dumps(data, allow_nan=False)
    return {f"{ARTIFACT}.parquet": parquet.getvalue(), f"{ARTIFACT}.json": text.encode("ascii")}


def metrics(report: Report) -> dict[str, float]:
    """Return the headline numbers by name, 20 at most; `artifacts` holds every one.

    Such as ``full/tolerant/llama Q8_0 rate`` and ``full/tolerant/llama P0 Q8_0-Q4_K_M points``.
    """
    policy = report.options.policy.value
    mine = [one for one in report.results if one.policy == policy and one.family is None]
    found: dict[str, float] = {}
    ranks = [one for one in mine if one.kind == Kind.rank and one.verdict is None and one.value is not None]
    for one in ranks[:_MOST_PRESETS]:
        found[f"{_name(one, one.model, one.a)} rate"] = one.value or 0.0
    contrasts = [one for one in mine if one.kind == Kind.contrast and one.points is not None]
    whole = [one for one in contrasts if one.target in (Target.full, Target.clean)]
    for one in whole[:_MOST_CONTRASTS]:
        name = _name(one, one.model, one.level, one.prompt, f"{one.a}-{one.b}")
        ends = ("points", one.points), ("low", one.low), ("high", one.high)
        found |= {f"{name} {column}": value for column, value in ends if value is not None}
    return found


def _name(one: Result, *names: str | None) -> str:
    fixed = " ".join(name for name in (*names, one.fault if one.fault != USUAL else None) if name)
    return f"{one.target}/{one.policy}/{fixed}" + (f" ({one.scope})" if one.scope else "")


def _cell(name: str, value: Plain) -> bool | int | float | str | None:
    if isinstance(value, tuple):
        return spelled(("; " if name == "remarks" else " ").join(value))
    return _text(value)


def _text(value: bool | int | float | str | None) -> bool | int | float | str | None:
    """Lone surrogates, which neither Arrow nor UTF-8 can hold, are spelled out."""
    return spelled(value) if isinstance(value, str) else value


def _dtype(name: str) -> str:
    if name in _LISTS:
        return "string"
    hint = get_type_hints(Result)[name]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    return _DTYPES.get(kinds[0], "string")


def _kind(column: pd.Series) -> str:
    kinds = {type(value) for value in column.dropna()}
    return _DTYPES.get(kinds.pop(), "string") if len(kinds) == 1 else "string"


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
