"""From episodes through a real MLflow store to the report: the reconstructed tables of Hu 2026.

Episodes are built from the tables' success counts, logged as runs, read back, joined, contrasted and written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from qfr.analysis import frames
from qfr.records import FaultKind
from qfr.report.content.build import Report, ReportOptions, build_report, gaps_of
from qfr.report.export import artifacts, metrics, write_report
from qfr.stats.intervals import Method
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import POLICY_COLUMNS
from qfr.tracking.reading.reader import Reading, read_cells
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep import PlannedCell, find_sweep, log_report, open_sweep
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell
from tests.builders import build_cell_episodes, make_facts, make_work, orders20

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())
EXPECTED: dict[str, dict[str, Any]] = GOLDEN["expected"]
LEVELS = {"8": "Q8_0", "4": "Q4_K_M"}
SWEEP = "s-golden"


def log_golden(store: Store) -> str:
    """Log every table's clean pass and ET episodes; one planned cell is left out."""
    names = [name.split("/") for name in GOLDEN["tables"]]
    planned = [
        PlannedCell(facts.design_id, facts.name)
        for model, level, prompt in [*names, ["Llama", "4", "P1"]]
        for facts in [make_facts(model, LEVELS[level], prompt, "et", sweep=SWEEP)]
    ]
    run_id = open_sweep(store, SWEEP, name="golden", tags={}, planned=planned)
    for (model, level, prompt), table in zip(names, GOLDEN["tables"].values(), strict=True):
        quant = LEVELS[level]
        none, et = (make_facts(model, quant, prompt, fault, sweep=SWEEP) for fault in ("none", "et"))
        built = build_cell_episodes(
            table, orders20(), clean_id=none.cell_id, cell_id=et.cell_id, fault=FaultKind.et
        )
        for facts, episodes in ((none, built.clean), (et, built.faulted)):
            handle = start_cell(store, facts, run_id)
            cell = FinishedCell(facts, episodes, built.clean, make_work(), b"", b"{}", "{}", b"", 2)
            finish_cell(store, handle, cell)
    return run_id


@pytest.fixture
def reading(store: Store) -> Reading:
    log_golden(store)
    return read_cells(store, sweep=SWEEP)


def contrasts(report: Report, folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(write_report(report, folder).results_csv)
    return frame[(frame["policy"] == "tolerant") & (frame["kind"] == "contrast")]


def row(frame: pd.DataFrame, cell: str, target: str, family: str | None = None) -> pd.Series:
    model, prompt = cell.split("/")
    chosen = frame[(frame["model"] == model) & (frame["prompt"] == prompt) & (frame["target"] == target)]
    chosen = chosen[chosen["family"].isna() if family is None else chosen["family"] == family]
    assert len(chosen) == 1
    return chosen.iloc[0]


def test_every_expected_figure_comes_back_through_mlflow(
    reading: Reading, store: Store, tmp_path: Path
) -> None:
    assert [cell.name for cell in reading.missing] == ["Llama q4_k_m P1 et"]
    exact = build_report(reading.cells, ReportOptions(), gaps_of(reading))
    paper = build_report(reading.cells, ReportOptions(method=Method.MONTECARLO, seed=11), gaps_of(reading))
    frame = contrasts(exact, tmp_path / "exact")
    sampled = contrasts(paper, tmp_path / "paper")
    cells = pd.read_csv(tmp_path / "exact" / "results.csv")
    cells = cells[(cells["kind"] == "rate") & (cells["policy"] == "tolerant") & cells["family"].isna()]
    assert frame["n_tasks"].notna().all()
    for cell, want in EXPECTED.items():
        for target in ("own", "matched", "full"):
            found, drawn = row(frame, cell, target), row(sampled, cell, target)
            assert (found["a"], found["b"]) == ("Q8_0", "Q4_K_M")
            assert found["points"] == pytest.approx(want[target], abs=1e-4)
            assert drawn["points"] == pytest.approx(want[target], abs=1e-4)
            ends = want[f"{target}_ci"]
            assert [found["low"], found["high"]] == pytest.approx(ends["exact"], abs=1e-3)
            step = 100 / 6 / max(found["n_tasks_a"], found["n_tasks_b"]) + 1e-3
            for end, (least, most) in zip(("low", "high"), ends["mc20000_range"], strict=True):
                assert least - step <= drawn[end] <= most + step
        assert row(frame, cell, "matched")["n_tasks"] == want["matched_n"]
        for target in ("matched", "full"):
            found, sign = row(frame, cell, target), want[f"sign_{target}"]
            counts = (found["favour_a"], found["favour_b"], found["ties"])
            assert counts == (sign["favour8"], sign["favour4"], sign["ties"])
            assert found["sign_p"] == pytest.approx(sign["p"])
            assert found["signflip_p"] == pytest.approx(want[f"signflip_p_{target}"])
        split = row(frame, cell, "full")
        assert [split["shared_points"], split["only_a_points"], split["only_b_points"]] == pytest.approx(
            list(want["decomposition_points"].values()), abs=1e-4
        )
        for family, stratum in want["families"].items():
            for target in ("full", "matched"):
                found = row(frame, cell, target, family)
                assert (found["certified_a"], found["certified_b"]) == (
                    stratum["clean8"],
                    stratum["clean4"],
                )
                if stratum[target] is None:
                    assert pd.isna(found["points"])
                    assert found["reason"] == "empty matched set"
                else:
                    assert found["points"] == pytest.approx(stratum[target], abs=1e-4)
        check_cells(cells, cell, want)
    check_sweep_run(store, exact, tmp_path / "exact")


def check_cells(cells: pd.DataFrame, cell: str, want: dict[str, Any]) -> None:
    model, prompt = cell.split("/")
    for level, quant in LEVELS.items():
        chosen = cells[(cells["model"] == model) & (cells["prompt"] == prompt) & (cells["level"] == quant)]
        by = {(one["target"], one["item"]): one for _, one in chosen.fillna({"item": ""}).iterrows()}
        episodes, full = by["own", "episodes"], by["full", ""]
        assert [episodes["count_a"], episodes["of_a"]] == want[f"episodes{level}"]
        assert [episodes["low"], episodes["high"]] == pytest.approx(want[f"wilson{level}"], abs=1e-6)
        assert full["value"] == pytest.approx(want[f"full_rate{level}"], abs=1e-6)
        assert full["certified_a"] == want[f"clean{level}"]


def check_sweep_run(store: Store, report: Report, folder: Path) -> None:
    """The sweep's run holds headline metrics and the whole table, so that the tracking UI alone answers."""
    files = {path.name: path for path in folder.iterdir()}
    sweep = find_sweep(store, SWEEP)
    log_report(store, sweep.info.run_id, files, metrics(report), artifacts(report))
    held = find_sweep(store, SWEEP).data.metrics
    assert len(held) <= 20
    assert held["full/tolerant/Llama P0 Q8_0-Q4_K_M points"] == pytest.approx(27.5)
    table = json.loads(read_artifact(store, sweep.info.run_id, sweep.info.artifact_uri, "qfr/results.json"))
    rows = [dict(zip(table["columns"], one, strict=True)) for one in table["data"]]
    (found,) = (
        one
        for one in rows
        if (one["kind"], one["model"], one["prompt"], one["target"], one["policy"], one["family"])
        == ("contrast", "Qwen", "P3", "full", "tolerant", None)
    )
    assert found["high"] == pytest.approx(-15.0)


def test_analysis_and_tracking_agree_on_the_columns_of_a_policy() -> None:
    assert frames.POLICY_FIELDS == POLICY_COLUMNS
