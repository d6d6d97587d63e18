"""The table of results as a data frame: one row per number, columns and order as `Result` has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from types import NoneType
from typing import get_args, get_type_hints

import pandas as pd

from qfr.analysis.results import COLUMNS, Kind, Plain, Result
from qfr.analysis.targets import Target
from qfr.facts import CellFacts
from qfr.faults import USUAL
from qfr.report.content.build import Report
from qfr.report.text import spelled

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
