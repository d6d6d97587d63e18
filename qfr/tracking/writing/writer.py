"""Writing runs: one parent run per sweep, one child run per cell, complete only when all of it is there.

A cell's run is found again by its cell_id, so a killed cell goes on in its old run. `qfr.complete` is set
last: whatever stops a process before it leaves a run that is resumed and written over with the same content.
"""

from __future__ import annotations

import gzip
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mlflow.entities import Metric, Run

from qfr.canonical import canonical, sha256_hex
from qfr.config import Traces
from qfr.facts import CellFacts, Work
from qfr.journal import log_bytes, sort_key
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import SCORER_VERSION
from qfr.tracking.environment import redact
from qfr.tracking.reading.facts_io import store_facts
from qfr.tracking.reading.measures import measure
from qfr.tracking.reading.search import carries, is_complete, runs_of_cell
from qfr.tracking.reading.tables import (
    LOOP_FILE,
    call_table,
    episode_table,
    loop_table,
    parquet_bytes,
    score_table,
)
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.batches import log_batches, log_files
from qfr.tracking.writing.descriptions import NOTE_TAG, describe_cell
from qfr.tracking.writing.inputs import log_inputs
from qfr.tracking.writing.owner import source_tags
from qfr.tracking.writing.traces import log_traces

LOG_FILE = "episodes.jsonl.gz"
MANIFEST_FILE = "manifest.json"
# SHA-256 of every artifact that was logged with the cell; its own digest is the tag qfr.manifest_sha256.
_FAILURE_TAG_LIMIT = 2000


@dataclass(frozen=True)
class RunHandle:
    """An MLflow run that a cell is being written to."""

    run_id: str
    cell_id: str
    started: int
    # Milliseconds since 1970.
    resumed: bool
    # The run existed before.
    earlier_status: str
    # MLflow status that a resumed run was found in; empty for a new one.


@dataclass(frozen=True)
class FinishedCell:
    """Everything that is logged of a finished cell."""

    facts: CellFacts
    episodes: tuple[Episode, ...]
    # Of this cell alone: the clean pass (fault=none) or the fault episodes.
    clean: tuple[Episode, ...]
    # The clean pass that the fault episodes belong to; the same episodes for fault=none.
    work: Work | None
    prompt: bytes
    # The prompt file's exact bytes.
    suite: bytes
    # The suite as JSON.
    config_yaml: str
    timing: bytes
    # Content of timing.jsonl.
    ep_min_calls: int
    traces: Traces = Traces.none
    # Which episodes are sent as MLflow traces besides.
    more_files: Mapping[str, bytes] = field(default_factory=dict)
    more_metrics: Mapping[str, float] = field(default_factory=dict)
    # What an imported log says beyond its episodes, by artifact path and by metric.


def start_cell(
    store: Store,
    facts: CellFacts,
    sweep_run_id: str | None,
    *,
    known: Run | None = None,
    more_tags: Mapping[str, str] | None = None,
) -> RunHandle:
    """Take up the cell's unfinished run, or make a new one; status RUNNING, `qfr.complete` = false.

    The caller holds the cell's lock. A finished run of the cell is left alone. A run of kind "claim" holds
    nothing yet, so a reader never meets half of a cell's facts.

    Parameters
    ----------
    known : Run, optional
        The run to take up, where it was found (or made by `create_claim`) already.
    more_tags : mapping, optional
        Further tags, such as whose process it is.
    """
    stored = store_facts(facts)
    tags = {
        **stored.tags,
        "qfr.complete": "false",
        "qfr.pid": str(os.getpid()),
        **source_tags(facts.git_commit),
        NOTE_TAG: describe_cell(store, facts, sweep_run_id),
        **(more_tags or {}),
    }
    if sweep_run_id is not None:
        tags["mlflow.parentRunId"] = sweep_run_id
    old = known or next(
        (
            run
            for run in runs_of_cell(store, facts.cell_id)
            if not is_complete(run) and carries(run, facts.registration)
        ),
        None,
    )
    if old is not None and (earlier := old.data.tags.get("qfr.deviation")):
        # Episodes that deviate stay in a run that goes on as planned.
        tags |= {"qfr.deviation": earlier, "qfr.code_sha256": old.data.tags.get("qfr.code_sha256", "")}
    run = old or create_claim(store, facts, {})
    began = run.data.tags.get("qfr.kind") == "cell"
    with guard(f"{store.shown}, cell {facts.name} ({facts.cell_id})", store.tracking_uri):
        if began or run.info.status != "RUNNING":
            store.client.update_run(run.info.run_id, status="RUNNING", name=facts.name)
        log_files(store, run.info.run_id, stored.files)
        # Params are write-once; settings outside the identity may have changed and stand in config.yaml.
        missing = {key: value for key, value in stored.params.items() if key not in run.data.params}
        log_batches(store, run.info.run_id, params=missing, tags=tags)
    return RunHandle(
        run_id=run.info.run_id,
        cell_id=facts.cell_id,
        started=run.info.start_time,
        resumed=began,
        earlier_status=str(run.info.status) if began else "",
    )


def create_claim(store: Store, facts: CellFacts, tags: Mapping[str, str]) -> Run:
    """A new run that only says which cell it will be; `start_cell` makes the cell's run of it."""
    own = {
        "qfr.kind": "claim",
        "qfr.cell_id": facts.cell_id,
        "qfr.design_id": facts.design_id,
        "qfr.registration": facts.registration,
        "qfr.complete": "false",
        **source_tags(facts.git_commit),
    }
    with guard(f"{store.shown}, cell {facts.name} ({facts.cell_id})", store.tracking_uri):
        return store.client.create_run(store.experiment_id, run_name=facts.name, tags={**own, **tags})


def finish_cell(store: Store, handle: RunHandle, cell: FinishedCell) -> str:
    """Log a finished cell whole; may be repeated after a crash at any point.

    Returns
    -------
    str
        SHA-256 of the log (of the uncompressed `episodes.jsonl`).

    Raises
    ------
    TrackingError
        The store did not take it; the run stays incomplete and the call can be repeated.
    """
    facts = cell.facts
    log = log_bytes(cell.episodes)
    digest = sha256_hex(log)
    tags = {
        "qfr.log_sha256": digest,
        "qfr.log_bytes": str(len(log)),
        "qfr.ep_min_calls": str(cell.ep_min_calls),
    }
    if facts.fault != FaultKind.none:
        tags["qfr.clean_log_sha256"] = sha256_hex(log_bytes(cell.clean))
    measures = measure(cell.episodes, cell.clean, work=cell.work, ep_min_calls=cell.ep_min_calls)
    now = int(time.time() * 1000)
    scalars = [
        Metric(name, value, now, 0) for name, value in {**cell.more_metrics, **measures.scalars}.items()
    ]
    # Points of a series get times that follow from the run, so that a repetition adds no second point.
    series = [
        Metric(name, value, handle.started + step, step)
        for name, values in measures.series.items()
        for step, value in enumerate(values)
        if math.isfinite(value)
    ]
    files = _files(cell, log, digest)
    manifest = canonical({name: sha256_hex(data) for name, data in files.items()}).encode("ascii")
    tags["qfr.manifest_sha256"] = sha256_hex(manifest)
    with guard(f"{store.shown}, cell {facts.name} ({facts.cell_id})", store.tracking_uri):
        log_files(store, handle.run_id, {**files, MANIFEST_FILE: manifest})
        log_inputs(store, handle.run_id, facts)
        if cell.traces is not Traces.none:
            count = log_traces(
                store, handle.run_id, cell.episodes, cell.traces, ep_min_calls=cell.ep_min_calls
            )
            tags["qfr.traces"] = f"{count.stored} of {count.wanted}"
        log_batches(store, handle.run_id, metrics=[*scalars, *series], tags=tags)
        if "qfr.failure" in store.client.get_run(handle.run_id).data.tags:
            store.client.delete_tag(handle.run_id, "qfr.failure")
        store.client.set_terminated(handle.run_id, "FINISHED")
        store.client.set_tag(handle.run_id, "qfr.complete", "true")
    return digest


def fail_cell(store: Store, handle: RunHandle, error_text: str, log_tail: str) -> None:
    """Mark the cell FAILED: a machinery failure, never a zero. The text goes to `failure.txt` whole."""
    text = redact(error_text, store.tracking_uri)
    tag = text if len(text) <= _FAILURE_TAG_LIMIT else f"{text[:_FAILURE_TAG_LIMIT]} … (all in failure.txt)"
    files = {"failure.txt": text.encode("utf-8", "backslashreplace")}
    if log_tail:
        files["engine_log_tail.txt"] = redact(log_tail, store.tracking_uri).encode(
            "utf-8", "backslashreplace"
        )
    with guard(store.shown, store.tracking_uri):
        log_files(store, handle.run_id, files)
        store.client.set_tag(handle.run_id, "qfr.failure", tag)
        store.client.set_terminated(handle.run_id, "FAILED")


def kill_cell(store: Store, handle: RunHandle) -> None:
    """Mark the cell KILLED: interrupted, to be resumed by the same command. A complete run stays FINISHED."""
    with guard(store.shown, store.tracking_uri):
        if not is_complete(store.client.get_run(handle.run_id)):
            store.client.set_terminated(handle.run_id, "KILLED")


def _files(cell: FinishedCell, log: bytes, digest: str) -> dict[str, bytes]:
    note = {"qfr.ep_min_calls": str(cell.ep_min_calls)}
    episodes = sorted(cell.episodes, key=sort_key)
    files = {
        # No time in the header: equal logs are equal files.
        LOG_FILE: gzip.compress(log, compresslevel=6, mtime=0),
        "episodes.parquet": parquet_bytes(episode_table(episodes), log_sha256=digest),
        "calls.parquet": parquet_bytes(call_table(episodes), log_sha256=digest),
        "prompt.md": cell.prompt,
        "suite.json": cell.suite,
        "config.yaml": cell.config_yaml.encode("utf-8"),
        "timing.jsonl": cell.timing,
    }
    for policy in Policy:
        table = score_table(episodes, policy, ep_min_calls=cell.ep_min_calls)
        files[f"scores/{policy}@{SCORER_VERSION}.parquet"] = parquet_bytes(
            table, log_sha256=digest, facts=note
        )
    files[LOOP_FILE] = parquet_bytes(loop_table(episodes), log_sha256=digest)
    return {**cell.more_files, **files}
