"""Runs written to a real MLflow store: complete, or resumable and never doubled."""

from __future__ import annotations

import dataclasses
import getpass
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from qfr.canonical import sha256_hex
from qfr.config import Traces
from qfr.errors import TrackingError
from qfr.journal import log_bytes
from qfr.records import Policy
from qfr.tracking.reading.cells import read_calls, read_episodes, read_finished
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import find_finished, finished_designs
from qfr.tracking.reading.tables import call_table, episode_table, score_table, to_frame
from qfr.tracking.store import Store
from qfr.tracking.writing import writer
from qfr.tracking.writing.sweep import open_sweep
from qfr.tracking.writing.writer import fail_cell, finish_cell, kill_cell, start_cell
from tests.tracked import BUILT, CLEAN, FAULT, cell, log_cell, log_pair


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
        "scores/loops@1.parquet",
        "prompt.md",
        "suite.json",
        "manifest.json",
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


def test_what_a_person_filters_by_is_a_param_and_bookkeeping_a_tag(store: Store) -> None:
    config = json.dumps(
        {"engine": {"kind": "scripted"}, "sweep": "s-1", "walk": ["et"], "tracking": {"root": "x"}}
    )
    handle = start_cell(
        store,
        dataclasses.replace(FAULT, config=config),
        open_sweep(store, "s-1", name="demo", tags={}, planned=[]),
    )
    run = store.client.get_run(handle.run_id)
    assert run.data.params["engine"] == run.data.params["config.engine.kind"] == "scripted"
    assert not [
        name
        for name in run.data.params
        if name.startswith(("config.sweep", "config.walk", "config.tracking"))
    ]
    tags = run.data.tags
    assert (tags["qfr.config.sweep"], tags["qfr.config.walk"], tags["qfr.config.tracking.root"]) == (
        "s-1",
        '["et"]',
        "x",
    )
    assert (tags["mlflow.user"], tags["mlflow.source.type"]) == (getpass.getuser(), "LOCAL")
    assert "**llama** at **Q8_0**" in tags["mlflow.note.content"]
    assert f"/runs/{tags['mlflow.parentRunId']})" in tags["mlflow.note.content"]
