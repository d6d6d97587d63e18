"""Model against model at equal size of their files: who is paired, and that it is a plain contrast."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.equal_memory import equal_memory
from qfr.analysis.levels import Axis
from qfr.analysis.tablefile import parse_table
from qfr.analysis.targets import TaskTable
from qfr.cli import main
from qfr.errors import TableError
from qfr.report.content.build import build_report
from qfr.report.export import write_report
from qfr.report.page import page_of
from qfr.scope import Scope
from tests.logged import logged_pair
from tests.test_report import changed

SITES = [2, 2, 3]
TABLES = {
    "L/Q8_0/P0": [2, 2, 3],
    "L/Q4_K_M/P0": [2, 1, None],
    "L/Q3_K_M/P0": [1, 0, 0],
    "W/Q8_0/P0": [2, 2, 2],
    "W/Q5_K_M/P0": [1, 2, 3],
    "W/Q4_K_M/P0": [2, None, 0],
}
SIZES = {"L/Q8_0": 85, "L/Q4_K_M": 49, "L/Q3_K_M": 40, "W/Q8_0": 81, "W/Q5_K_M": 54, "W/Q4_K_M": 46.8}


def text(**changes: object) -> str:
    return json.dumps({"sites": SITES, "tables": TABLES, "file_bytes": SIZES, **changes})


def tables(**changes: object) -> tuple[TaskTable, ...]:
    return parse_table(text(**changes)).tables


def test_each_preset_meets_the_nearest_file_of_the_other_model() -> None:
    found = parse_table(text())
    contrasts = equal_memory(found.tables, found.sizes)
    pairs = dict.fromkeys((c.a, c.b) for c in contrasts)
    # 40 has nothing within a tenth; 54 is nearer to 49 than to 85, yet more than a tenth larger.
    assert list(pairs) == [("L Q8_0", "W Q8_0"), ("L Q4_K_M", "W Q4_K_M")]
    assert {(c.model, c.quant, c.vary) for c in contrasts} == {(None, None, "memory")}
    assert contrasts[-1].remarks == ("files of 0.0 MB and 0.0 MB",)
    wide = equal_memory(found.tables, found.sizes, tolerance=0.2)
    assert ("L Q4_K_M", "W Q5_K_M") in {(c.a, c.b) for c in wide}
    assert ("L Q3_K_M", "W Q4_K_M") in {(c.a, c.b) for c in wide}
    assert equal_memory(found.tables, {}) == ()


def test_at_one_size_it_is_the_contrast_of_the_models() -> None:
    same = {(model, quant, ""): size for model in "LW" for quant, size in (("Q8_0", 8.0), ("Q4_K_M", 5.0))}
    given = tuple(t for t in tables() if t.key.quant in ("Q8_0", "Q4_K_M"))
    by_size = equal_memory(given, same, tolerance=0.0)
    by_name = contrast_table(given, Options(vary=Axis.model))
    assert [(c.target, c.points, c.low, c.high, c.n_tasks) for c in by_size] == [
        (c.target, c.points, c.low, c.high, c.n_tasks) for c in by_name
    ]


def test_hand_computed_full_pipeline() -> None:
    found = parse_table(text())
    (one,) = (
        c
        for c in equal_memory(found.tables, found.sizes)
        if (c.a, c.target, c.family) == ("L Q4_K_M", "full", None)
    )
    # L: 1, 1/2, 0; W: 1, 0, 0.
    assert one.points == pytest.approx(100 * 0.5 / 3)


def test_what_differs_in_more_than_the_model_is_no_pair() -> None:
    given = tables()
    apart = tuple(
        replace(t, facts=Scope({**t.facts, "build.llama_commit": "other"})) if t.key.model == "W" else t
        for t in given
    )
    assert equal_memory(apart, parse_table(text()).sizes) == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"file_bytes": {"L/Q8": 1}}, "no model and level"),
        ({"file_bytes": {"L/Q8_0": 0}}, "no size in bytes"),
        ({"file_bytes": {"L/Q8_0": True}}, "no size in bytes"),
        ({"file_bytes": [1]}, "must be an object"),
    ],
)
def test_wrong_sizes_are_told(changes: dict[str, object], told: str) -> None:
    with pytest.raises(TableError, match=told):
        parse_table(text(**changes))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "table.json"
    path.write_text(text())
    assert main(["contrast", str(path), "--vary", "memory", "--target", "full", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["contrasts"]
    assert [(row["a"], row["b"], row["vary"], row["model"]) for row in rows] == [
        ("L Q8_0", "W Q8_0", "memory", None),
        ("L Q4_K_M", "W Q4_K_M", "memory", None),
    ]
    path.write_text(json.dumps({"sites": SITES, "tables": TABLES}))
    assert main(["contrast", str(path), "--vary", "memory"]) == 2
    assert "file_bytes" in capsys.readouterr().err


def test_the_report_has_it_where_two_models_were_run(tmp_path: Path) -> None:
    cells = [
        changed(cell, model_bytes=size)
        for model, quant, size in (
            ("L", "Q8_0", 8_500),
            ("L", "Q4_K_M", 4_900),
            ("W", "Q8_0", 8_100),
            ("W", "Q4_K_M", 4_000),
        )
        for cell in logged_pair(quant, [2] * 10 + [1] * 10, model=model)
    ]
    report = build_report(cells)
    assert {(c.a, c.b) for c in report.at_equal_memory} == {("L Q8_0", "W Q8_0")}
    (section,) = page_of(report).memory
    assert section.contrasts.rows[0][1].text == "L Q8_0 − W Q8_0"
    frame = pd.read_csv(write_report(report, tmp_path).results_csv)
    memory = frame[frame["vary"] == "memory"]
    assert set(memory["standing"]) == {"exploratory"}
    assert memory["model"].isna().all()
    # Their tests are adjusted among themselves: the other contrasts' family does not change.
    assert page_of(build_report(cells[:4])).memory == ()
