"""Runs written to a real MLflow store and read back: complete or resumable, joined, never mixed."""

from __future__ import annotations

import dataclasses
import gzip
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from qfr.canonical import sha256_hex
from qfr.config import Traces
from qfr.errors import LogError, TrackingError
from qfr.facts import CellFacts
from qfr.journal import log_bytes
from qfr.records import Episode, FaultKind, Policy
from qfr.tracking import writer
from qfr.tracking.cells import read_calls, read_episodes, read_finished
from qfr.tracking.reader import read_cells
from qfr.tracking.search import find_finished, finished_designs, search
from qfr.tracking.store import Store, open_store
from qfr.tracking.sweep import PlannedCell, close_sweep, log_report, open_sweep, read_plan
from qfr.tracking.tables import call_table, episode_table, score_table, to_frame
from qfr.tracking.writer import FinishedCell, RunHandle, fail_cell, finish_cell, kill_cell, start_cell
from tests.builders import Style, build_cell_episodes, make_facts, make_work, orders20

SHAPES = orders20()[8:12]
BUILT = build_cell_episodes([2, None, 3, 1], SHAPES)
CLEAN, FAULT = make_facts("llama", "Q8_0", "P0", "none"), make_facts("llama", "Q8_0", "P0", "et")


def cell(
    facts: CellFacts, episodes: tuple[Episode, ...], clean: tuple[Episode, ...] = BUILT.clean
) -> FinishedCell:
    """A finished cell of the given episodes."""
    return FinishedCell(
        facts=facts,
        episodes=episodes,
        clean=clean,
        work=make_work(),
        prompt=b"You are \xff an agent.\n",
        suite=b'{"name":"orders20"}',
        config_yaml="mode: run\n",
        timing=b'{"seconds":1.0}\n',
        ep_min_calls=2,
    )


def log_cell(store: Store, finished: FinishedCell, sweep: str | None = None) -> RunHandle:
    """Start and finish one cell."""
    handle = start_cell(store, finished.facts, sweep)
    finish_cell(store, handle, finished)
    return handle


def log_pair(store: Store, sweep: str | None = None) -> tuple[RunHandle, RunHandle]:
    """A clean run and its ET run."""
    clean = log_cell(store, cell(CLEAN, BUILT.clean), sweep)
    return clean, log_cell(store, cell(FAULT, BUILT.faulted), sweep)


# --- one cell there and back ----------------------------------------------------------------------------


def test_a_cell_there_and_back(store: Store) -> None:
    sweep = open_sweep(store, "s-1", name="demo", tags={"command": "run.py"}, planned=[])
    clean, fault = log_pair(store, sweep)
    reading = read_cells(store)
    assert [c.facts for c in reading.cells] == [FAULT, CLEAN]
    assert (reading.unfinished, reading.missing, reading.alarms, reading.notes) == ((), (), (), ())
    read = reading.cells[0]
    assert (read.run_id, read.status, read.complete, read.failure) == (fault.run_id, "FINISHED", True, "")
    assert read.log_sha256 == sha256_hex(log_bytes(BUILT.faulted))
    assert read.clean is not None
    assert (read.clean.run_id, read.clean.log_sha256) == (clean.run_id, read.clean_log_sha256)
    assert read.metrics["tolerant.own"] == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert read.metrics["tolerant.full"] == pytest.approx((1 + 1 + 1 / 3) / 4)
    expected = to_frame(episode_table(BUILT.faulted))
    pd.testing.assert_frame_equal(read.episodes[list(expected.columns)], expected)
    for policy in Policy:
        scores = to_frame(score_table(BUILT.faulted, policy, ep_min_calls=2))
        for column in ("success", "right_answer", "reason", "reported_after"):
            assert list(read.episodes[f"{policy}_{column}"]) == list(scores[column])
    assert read_episodes(store, read) == BUILT.faulted
    assert read_finished(store, find_finished(store, [CLEAN.cell_id])[CLEAN.cell_id]) == BUILT.clean
    pd.testing.assert_frame_equal(read_calls(store, read), to_frame(call_table(BUILT.faulted)))


def test_what_stands_in_mlflow(store: Store) -> None:
    sweep = open_sweep(store, "s-1", name="demo", tags={}, planned=[])
    _, fault = log_pair(store, sweep)
    run = store.client.get_run(fault.run_id)
    assert run.info.run_name == "llama q8_0 P0 et"
    assert run.info.status == "FINISHED"
    assert run.data.params["quant"] == "Q8_0"
    tags = run.data.tags
    assert (tags["mlflow.parentRunId"], tags["qfr.complete"], tags["qfr.cell_id"]) == (
        sweep,
        "true",
        FAULT.cell_id,
    )
    assert tags["qfr.llama_commit"] == FAULT.llama_commit
    folder = Path(store.client.download_artifacts(fault.run_id, ""))
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "episodes.jsonl.gz",
        "episodes.parquet",
        "calls.parquet",
        "scores/tolerant@1.parquet",
        "scores/strict@1.parquet",
        "prompt.md",
        "suite.json",
        "config.yaml",
        "timing.jsonl",
    }
    assert (folder / "prompt.md").read_bytes() == b"You are \xff an agent.\n"
    assert gzip.decompress((folder / "episodes.jsonl.gz").read_bytes()) == log_bytes(BUILT.faulted)
    points = store.client.get_metric_history(fault.run_id, "episode.tolerant_success")
    assert [(p.step, p.value) for p in sorted(points, key=lambda p: p.step)] == list(
        enumerate([1.0, 1, 1, 1, 1, 1, 0, 0])
    )
    assert run.inputs.dataset_inputs[0].dataset.name == "orders20"
    models = store.client.search_logged_models([store.experiment_id])
    assert [(m.name, m.tags["qfr.model_sha256"]) for m in models] == [("llama-Q8_0", FAULT.model_sha256)]


def test_a_log_does_not_depend_on_the_order_of_playing(store: Store) -> None:
    first = log_cell(store, cell(CLEAN, BUILT.clean))
    second = log_cell(store, cell(CLEAN, tuple(reversed(BUILT.clean))))
    files = [
        Path(store.client.download_artifacts(handle.run_id, name)).read_bytes()
        for handle in (first, second)
        for name in ("episodes.jsonl.gz", "episodes.parquet", "scores/strict@1.parquet")
    ]
    assert files[:3] == files[3:]


# --- killed, failed, repeated ---------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill at one moment."""


@pytest.mark.parametrize("moment", ["log_files", "log_inputs", "log_batches", "set_terminated", "set_tag"])
def test_a_crash_while_logging_gives_one_complete_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    log_cell(store, cell(CLEAN, BUILT.clean))
    finished = cell(FAULT, BUILT.faulted)
    handle = start_cell(store, FAULT, None)

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(store.client if moment.startswith("set_") else writer, moment, die)
        with pytest.raises(Killed):
            finish_cell(store, handle, finished)
    assert find_finished(store, [FAULT.cell_id]) == {}
    assert [c.run_id for c in read_cells(store).unfinished] == [handle.run_id]
    again = start_cell(store, FAULT, None)
    assert (again.run_id, again.resumed) == (handle.run_id, True)
    finish_cell(store, again, finished)
    finish_cell(store, again, finished)
    reading = read_cells(store)
    assert [c.run_id for c in reading.cells] == [handle.run_id, reading.cells[1].run_id]
    assert reading.unfinished == ()
    assert len(store.client.get_metric_history(handle.run_id, "episode.turns")) == len(BUILT.faulted)
    assert len(store.client.get_run(handle.run_id).inputs.dataset_inputs) == 1


def test_a_failed_cell_is_no_zero_and_is_resumed(store: Store) -> None:
    log_cell(store, cell(CLEAN, BUILT.clean))
    handle = start_cell(store, FAULT, None)
    error = "the engine's process ended " + "x" * 5000
    fail_cell(store, handle, error, "ggml_abort\n")
    reading = read_cells(store)
    assert [c.facts.fault for c in reading.cells] == ["none"]
    (failed,) = reading.unfinished
    assert (failed.status, failed.complete, len(failed.episodes), failed.metrics) == ("FAILED", False, 0, {})
    assert failed.failure.startswith("the engine's process ended")
    assert "all in failure.txt" in failed.failure
    assert Path(store.client.download_artifacts(handle.run_id, "failure.txt")).read_text() == error
    assert finished_designs(store, [FAULT.design_id]) == {FAULT.design_id: "FAILED"}
    # Settings outside the identity may differ when the cell goes on; params are write-once and stay.
    changed = dataclasses.replace(
        FAULT, sweep="s-2", host="another", config='{"engine":{"n_batch":1024},"new":1}'
    )
    again = start_cell(store, changed, None)
    assert (again.run_id, again.resumed, again.earlier_status) == (handle.run_id, True, "FAILED")
    finish_cell(store, again, cell(changed, BUILT.faulted))
    (read,) = [c for c in read_cells(store).cells if c.facts.fault == "et"]
    assert (read.facts, read.failure, read.status) == (changed, "", "FINISHED")
    assert store.client.get_run(read.run_id).data.params["config.new"] == "1"


def test_a_killed_cell_is_killed_until_it_goes_on(store: Store) -> None:
    handle = start_cell(store, CLEAN, None)
    assert finished_designs(store, [CLEAN.design_id]) == {CLEAN.design_id: "RUNNING"}
    kill_cell(store, handle)
    assert finished_designs(store, [CLEAN.design_id, "d-unknown"]) == {CLEAN.design_id: "KILLED"}
    finish_cell(store, start_cell(store, CLEAN, None), cell(CLEAN, BUILT.clean))
    assert finished_designs(store, [CLEAN.design_id]) == {CLEAN.design_id: "FINISHED"}
    assert finished_designs(None, [CLEAN.design_id]) == {}


def test_secrets_do_not_reach_a_failure_tag(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter22")
    handle = start_cell(store, CLEAN, None)
    fail_cell(store, handle, "no answer from https://me:pw@host (hunter22)", "tail hunter22")
    assert read_cells(store).unfinished[0].failure == "no answer from https://***@host (***)"
    assert (
        Path(store.client.download_artifacts(handle.run_id, "engine_log_tail.txt")).read_text() == "tail ***"
    )


def test_a_full_disk_is_said_and_the_cell_can_be_logged_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = start_cell(store, CLEAN, None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store.client, "log_artifacts", full)
        with pytest.raises(TrackingError, match="No space left") as caught:
            finish_cell(store, handle, cell(CLEAN, BUILT.clean))
    assert CLEAN.cell_id in str(caught.value)
    finish_cell(store, handle, cell(CLEAN, BUILT.clean))
    assert list(find_finished(store, [CLEAN.cell_id])) == [CLEAN.cell_id]


# --- joining, duplicates, damage ------------------------------------------------------------------------


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


# --- sweeps ---------------------------------------------------------------------------------------------


def test_a_sweep_is_opened_once_and_keeps_its_plan(store: Store) -> None:
    planned = [PlannedCell(FAULT.design_id, FAULT.name), PlannedCell("d-lost", "llama q4_k_m P0 et")]
    first = open_sweep(store, "s-1", name="demo", tags={"command": "x"}, planned=planned)
    assert open_sweep(store, "s-1", name="again", tags={}, planned=[]) == first
    assert read_plan(store, "s-1") == tuple(planned)
    assert store.client.get_run(first).data.tags["qfr.command"] == "x"
    with pytest.raises(TrackingError, match=r"did you mean 's-1'"):
        read_plan(store, "s-2")


def test_a_sweeps_cells_are_those_it_planned_whoever_ran_them(store: Store) -> None:
    log_pair(store)
    other = dataclasses.replace(FAULT, cell_id="c-other", design_id="d-other", prompt="P1")
    start_cell(store, other, None)
    planned = [PlannedCell(FAULT.design_id, FAULT.name), PlannedCell("d-other", other.name)]
    run_id = open_sweep(store, "s-2", name="second", tags={}, planned=planned)
    reading = read_cells(store, sweep="s-2")
    assert [c.facts.cell_id for c in reading.cells] == [FAULT.cell_id]
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
    log_report(store, run_id, {"page.html": tmp_path / "page.html"}, metrics)
    assert store.client.get_run(run_id).data.metrics == {"own/llama P0/Q8_0 - Q4_K_M _points_": -17.5}
    assert Path(store.client.download_artifacts(run_id, "report/page.html")).read_text() == "<html>"


def test_more_runs_than_one_page_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qfr.tracking.search.PAGE", 7)
    for number in range(23):
        store.client.create_run(
            store.experiment_id, tags={"qfr.kind": "cell", "qfr.design_id": f"d-{number}"}
        )
    assert len({run.info.run_id for run in search(store, "tags.`qfr.kind` = 'cell'")}) == 23
    few, many = ([f"d-{number}" for number in range(start, 60)] for start in (21, 2))
    assert sorted(finished_designs(store, few)) == ["d-21", "d-22"]
    assert len(finished_designs(store, many)) == 21


# --- over HTTP ------------------------------------------------------------------------------------------


@pytest.fixture
def server(migrated_database: Path, tmp_path: Path) -> Iterator[str]:
    """A real `mlflow server` on loopback that takes the artifacts over HTTP."""
    shutil.copy(migrated_database, tmp_path / "server.db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--workers", "1"]
    command += ["--artifacts-destination", str(tmp_path / "served")]
    environment = os.environ | {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait_for(f"{address}/health", process, tmp_path / "server.log")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(log.read_text())


def test_everything_over_a_real_server(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = open_store(server, tmp_path / "local", "qfr")
    assert store.artifact_location.startswith("mlflow-artifacts:")
    planned = [PlannedCell(FAULT.design_id, FAULT.name)]
    sweep = open_sweep(store, "s-1", name="demo", tags={}, planned=planned)
    clean = log_cell(store, cell(CLEAN, BUILT.clean), sweep)
    interrupted = start_cell(store, FAULT, sweep)
    again = start_cell(store, FAULT, sweep)
    assert again.run_id == interrupted.run_id
    finish_cell(store, again, cell(FAULT, BUILT.faulted))
    finish_cell(store, again, cell(FAULT, BUILT.faulted))
    reading = read_cells(store, sweep="s-1")
    (read,) = reading.cells
    assert read.facts == FAULT
    assert read.clean is not None
    assert read.clean.run_id == clean.run_id
    assert read_episodes(store, read) == BUILT.faulted
    assert finished_designs(store, [FAULT.design_id]) == {FAULT.design_id: "FINISHED"}
    shutil.rmtree(tmp_path / "served")
    with pytest.raises(TrackingError, match=r"artifact episodes\.parquet is missing"):
        read_cells(store)


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


# --- traces ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")  # MLflow, of its own code
@pytest.mark.parametrize(("which", "wanted"), [(Traces.all, 8), (Traces.failures, 2)])
def test_traces_are_written_counted_and_not_doubled(store: Store, which: Traces, wanted: int) -> None:
    finished = dataclasses.replace(cell(FAULT, BUILT.faulted), traces=which)
    handle = log_cell(store, finished)
    finish_cell(store, handle, finished)
    found = store.client.search_traces(locations=[store.experiment_id], run_id=handle.run_id)
    assert len(found) == wanted
    assert store.client.get_run(handle.run_id).data.tags["qfr.traces"] == f"{wanted} of {wanted}"
    trace = next(t for t in found if t.info.tags["qfr.episode"] == "shipping-01 et site 2")
    spans = {(span.name, str(span.span_type)) for span in trace.data.spans}
    assert {("turn 0", "LLM"), ("get_order", "TOOL"), ("shipping-01 et site 2", "AGENT")} <= spans
