"""Runs read back: joined to their clean runs, never mixed; damage and duplicates are named."""

from __future__ import annotations

import dataclasses
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qfr.canonical import sha256_hex
from qfr.errors import LogError, TrackingError
from qfr.facts import CellFacts
from qfr.journal import log_bytes
from qfr.records import FaultKind
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import finished_designs, search
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.sweep import PlannedCell, close_sweep, log_report, open_sweep, read_plan
from qfr.tracking.writing.sweep_runs import UsedRun, settle_runs
from qfr.tracking.writing.writer import RunHandle, start_cell
from tests.builders import Style, build_cell_episodes, make_facts
from tests.tracked import BUILT, CLEAN, FAULT, SHAPES, cell, log_cell, log_pair


def test_the_clean_run_is_found_whatever_the_filter_says(store: Store) -> None:
    clean, fault = log_pair(store)
    (read,) = read_cells(store, condition="params.fault = 'et'").cells
    assert read.run_id == fault.run_id
    assert read.clean is not None
    assert read.clean.run_id == clean.run_id
    assert len(read.clean.episodes) == len(BUILT.clean)


def test_a_fault_run_of_another_clean_log_is_refused(store: Store) -> None:
    other = build_cell_episodes([2, 2, 3, 1], SHAPES).clean
    log_cell(store, cell(FAULT, BUILT.faulted))
    with pytest.raises(TrackingError, match=f"clean run .cell {CLEAN.cell_id}. is not in the store"):
        read_cells(store)
    wrong = log_cell(store, cell(CLEAN, other, other))
    with pytest.raises(LogError) as caught:
        read_cells(store)
    said = str(caught.value)
    for part in (sha256_hex(log_bytes(BUILT.clean))[:12], sha256_hex(log_bytes(other))[:12], wrong.run_id):
        assert part in said
    right = log_cell(store, cell(CLEAN, BUILT.clean))
    log_cell(store, cell(CLEAN, other, other))
    reading = read_cells(store)
    assert reading.cells[0].clean is not None
    assert reading.cells[0].clean.run_id == right.run_id
    assert [alarm.cell_id for alarm in reading.alarms] == [CLEAN.cell_id]


def test_equal_duplicates_are_a_note_and_different_ones_an_alarm(store: Store) -> None:
    log_pair(store)
    second = log_cell(store, cell(FAULT, BUILT.faulted))
    reading = read_cells(store)
    assert [c.run_id for c in reading.cells if c.facts == FAULT] == [second.run_id]
    assert reading.alarms == ()
    assert reading.notes == (
        f"llama q8_0 P0 et ({FAULT.cell_id}) was run 2 times with equal logs; the newest run is read.",
    )
    other = build_cell_episodes([2, None, 3, 2], SHAPES).faulted
    third = log_cell(store, cell(FAULT, other))
    (alarm,) = read_cells(store).alarms
    assert (alarm.cell_id, alarm.name) == (FAULT.cell_id, "llama q8_0 P0 et")
    assert [run_id for run_id, _ in alarm.runs][:2] == [third.run_id, second.run_id]
    assert len({digest for _, digest in alarm.runs}) == 2


@pytest.mark.parametrize("name", ["episodes.parquet", "scores/strict@1.parquet"])
def test_a_deleted_artifact_names_its_run(store: Store, name: str) -> None:
    _, fault = log_pair(store)
    _artifact(store, fault, name).unlink()
    with pytest.raises(TrackingError, match=f"artifact {name} is missing") as caught:
        read_cells(store)
    assert fault.run_id in str(caught.value)


def test_a_changed_log_and_a_cut_log_are_found(store: Store) -> None:
    _, fault = log_pair(store)
    read = read_cells(store).cells[0]
    path = _artifact(store, fault, "episodes.jsonl.gz")
    whole = path.read_bytes()
    path.write_bytes(gzip.compress(log_bytes(BUILT.faulted[1:])))
    with pytest.raises(LogError, match="changed after the run"):
        read_episodes(store, read)
    for damage in (whole[: len(whole) // 2], b"not gzip", whole[:-9] + b"\x00" + whole[-8:]):
        path.write_bytes(damage)
        with pytest.raises(LogError) as caught:
            read_episodes(store, read)
        assert fault.run_id in str(caught.value)
    path.unlink()
    with pytest.raises(TrackingError, match="is missing"):
        read_episodes(store, read)


def test_an_exchanged_table_is_found(store: Store) -> None:
    clean, fault = log_pair(store)
    shutil.copy(_artifact(store, clean, "episodes.parquet"), _artifact(store, fault, "episodes.parquet"))
    with pytest.raises(LogError, match="follows from log"):
        read_cells(store)


def test_a_moved_store_is_still_read(store: Store, tmp_path: Path) -> None:
    log_pair(store)
    shutil.move(store.root, tmp_path / "moved")
    read = read_cells(open_store(None, tmp_path / "moved", store.experiment)).cells[0]
    assert read.facts == FAULT
    assert len(read.episodes) == len(BUILT.faulted)


def test_a_malformed_filter_and_an_unknown_experiment(store: Store) -> None:
    with pytest.raises(TrackingError, match="filter"):
        read_cells(store, condition="params.fault == et")
    with pytest.raises(TrackingError, match="did you mean 'qfr'"):
        read_cells(store, experiments=["qfrr"])


def test_two_experiments_are_read_together(make_store: Callable[..., Store]) -> None:
    log_pair(make_store(experiment="one"))
    other = dataclasses.replace(CLEAN, cell_id="c-other", design_id="d-other", model="qwen")
    two = make_store(experiment="two")
    log_cell(two, cell(other, BUILT.clean))
    reading = read_cells(two, experiments=["one", "two"])
    assert [c.facts.model for c in reading.cells] == ["llama", "llama", "qwen"]
    assert reading.cells[0].clean is not None


def _artifact(store: Store, handle: RunHandle, name: str) -> Path:
    return store.root / "artifacts" / store.experiment / handle.run_id / "artifacts" / name


def test_faults_of_every_kind_share_one_clean_run(store: Store) -> None:
    clean = log_cell(store, cell(CLEAN, BUILT.clean))
    for kind in (FaultKind.et, FaultKind.it, FaultKind.ep):
        built = build_cell_episodes([2, None, 2, 1], SHAPES, fault=kind, style=Style(bad_call=True))
        log_cell(store, cell(make_facts("llama", "Q8_0", "P0", kind.value), built.faulted))
    cells = [c for c in read_cells(store).cells if c.facts.fault != "none"]
    assert [c.facts.fault for c in cells] == ["ep", "et", "it"]
    assert {c.clean.run_id for c in cells if c.clean is not None} == {clean.run_id}
    assert cells[0].metrics["tolerant.reported_after"] == 2 + 2 + 1
    assert cells[2].metrics["tolerant.requeried"] == 2 + 2 + 1


def test_a_sweep_is_opened_once_and_keeps_its_plan(store: Store) -> None:
    planned = [PlannedCell(FAULT.design_id, FAULT.name), PlannedCell("d-lost", "llama q4_k_m P0 et")]
    first = open_sweep(store, "s-1", name="demo", tags={"command": "x"}, planned=planned)
    assert open_sweep(store, "s-1", name="again", tags={}, planned=[]) == first
    assert read_plan(store, "s-1") == tuple(planned)
    assert store.client.get_run(first).data.tags["qfr.command"] == "x"
    with pytest.raises(TrackingError, match=r"did you mean 's-1'"):
        read_plan(store, "s-2")


def _used(handle: RunHandle, facts: CellFacts) -> UsedRun:
    return UsedRun(facts.design_id, facts.cell_id, handle.run_id)


def test_a_sweeps_runs_are_those_it_made_or_used(store: Store) -> None:
    clean, fault = log_pair(store)
    other = dataclasses.replace(FAULT, cell_id="c-other", design_id="d-other", prompt="P1", sweep="s-2")
    start_cell(store, other, None)
    planned = [PlannedCell(FAULT.design_id, FAULT.name), PlannedCell("d-other", other.name)]
    run_id = open_sweep(store, "s-2", name="second", tags={}, planned=planned)
    unclosed = read_cells(store, sweep="s-2")
    assert unclosed.cells == ()
    assert "only the runs that it made" in unclosed.notes[0]
    settle_runs(store, "s-2", [_used(clean, CLEAN), _used(fault, FAULT)])
    log_cell(store, cell(dataclasses.replace(FAULT, registration="r-later"), BUILT.faulted))
    log_cell(store, cell(dataclasses.replace(FAULT, cell_id="c-older-build"), BUILT.faulted))
    reading = read_cells(store, sweep="s-2")
    assert [c.run_id for c in reading.cells if c.facts.fault != "none"] == [fault.run_id]
    assert reading.notes == ()
    assert [c.facts.cell_id for c in reading.unfinished] == ["c-other"]
    assert reading.missing == (planned[1],)
    close_sweep(store, run_id, ok=False)
    assert store.client.get_run(run_id).info.status == "FAILED"
    close_sweep(store, run_id, ok=True)
    assert store.client.get_run(run_id).info.status == "FINISHED"


def test_a_report_is_metrics_and_files_on_the_sweeps_run(store: Store, tmp_path: Path) -> None:
    run_id = open_sweep(store, "s-1", name="demo", tags={}, planned=[])
    (tmp_path / "page.html").write_text("<html>")
    metrics = {"own/llama P0/Q8_0 - Q4_K_M (points)": -17.5, "undefined": float("nan"), "low": float("-inf")}
    log_report(store, run_id, {"page.html": tmp_path / "page.html"}, metrics, {"qfr/t.json": b"[]"})
    assert store.client.get_run(run_id).data.metrics == {"own/llama P0/Q8_0 - Q4_K_M _points_": -17.5}
    assert Path(store.client.download_artifacts(run_id, "report/page.html")).read_text() == "<html>"
    assert Path(store.client.download_artifacts(run_id, "qfr/t.json")).read_text() == "[]"


def test_more_runs_than_one_page_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qfr.tracking.reading.search.PAGE", 7)
    for number in range(23):
        store.client.create_run(
            store.experiment_id, tags={"qfr.kind": "cell", "qfr.design_id": f"d-{number}"}
        )
    assert len({run.info.run_id for run in search(store, "tags.`qfr.kind` = 'cell'")}) == 23
    few, many = ([f"d-{number}" for number in range(start, 60)] for start in (21, 2))
    assert sorted(finished_designs(store, few)) == ["d-21", "d-22"]
    assert len(finished_designs(store, many)) == 21
