"""The parent run of a sweep: what was planned, how it ended, its report."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlflow.entities import Metric, Run

from qfr.canonical import canonical
from qfr.errors import TrackingError, did_you_mean
from qfr.tracking.reading.artifacts import list_artifacts, read_artifact
from qfr.tracking.reading.search import search
from qfr.tracking.store import Store, guard, hold_lock
from qfr.tracking.writing.batches import log_batches, log_files
from qfr.tracking.writing.descriptions import NOTE_TAG, with_report

PLAN_FILE = "plan.json"
LISTS_TAG = "qfr.lists_runs"
# Of a sweep that lists its runs when it is closed (`sweep_runs.py`); earlier ones did not.


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a sweep's grid."""

    design_id: str
    name: str
    # As `CellFacts.name`.


def open_sweep(
    store: Store,
    sweep_id: str,
    *,
    name: str,
    tags: Mapping[str, str],
    planned: Sequence[PlannedCell],
    params: Mapping[str, str] | None = None,
) -> str:
    """The sweep's parent run; the same run for every process and every repetition of the sweep.

    Parameters
    ----------
    sweep_id : str
        `s-…`, kept in the tag `qfr.sweep`.
    name : str
        The run's name.
    tags : mapping
        Further tags (`qfr.` is put before names that lack it).
    planned : sequence of PlannedCell
        The grid, stored as `plan.json`. Which runs belong to the sweep is said in `sweep_runs.py`.
    params : mapping, optional
        What the grid spans, for MLflow's own tables.

    Returns
    -------
    str
        MLflow's run id.
    """
    condition = f"tags.`qfr.kind` = 'sweep' AND tags.`qfr.sweep` = '{sweep_id}'"
    plan = canonical([dataclasses.asdict(cell) for cell in planned]).encode("ascii")
    with hold_lock(store.root, f"sweep-{sweep_id}"):
        for run in search(store, condition):
            run_id = str(run.info.run_id)
            if PLAN_FILE not in list_artifacts(store, run_id, ""):
                # The server died, or its answer got lost, after it had made the run.
                with guard(store.shown, store.tracking_uri):
                    log_files(store, run_id, {PLAN_FILE: plan})
            return run_id
        all_tags = {
            "qfr.kind": "sweep",
            "qfr.sweep": sweep_id,
            LISTS_TAG: "true",
        }
        all_tags |= {key if "." in key else f"qfr.{key}": value for key, value in tags.items()}
        with guard(store.shown, store.tracking_uri):
            run = store.client.create_run(store.experiment_id, run_name=name, tags=all_tags)
            log_files(store, run.info.run_id, {PLAN_FILE: plan})
            log_batches(store, run.info.run_id, params=params)
    return str(run.info.run_id)


def close_sweep(store: Store, sweep_run_id: str, *, ok: bool) -> None:
    """End the sweep's run: FINISHED, or FAILED when a cell failed."""
    with guard(store.shown, store.tracking_uri):
        store.client.set_terminated(sweep_run_id, "FINISHED" if ok else "FAILED")


def tag_sweep(store: Store, sweep_run_id: str, tags: Mapping[str, str]) -> None:
    """Put tags on the sweep's run."""
    with guard(store.shown, store.tracking_uri):
        log_batches(store, sweep_run_id, tags=tags)


def link_report(store: Store, sweep_run_id: str, reported_on: str, sweep: str) -> None:
    """Let a sweep's description end in a link to its report, on its own run or on an earlier sweep's."""
    with guard(store.shown, store.tracking_uri):
        note = store.client.get_run(sweep_run_id).data.tags.get(NOTE_TAG, "")
        log_batches(store, sweep_run_id, tags={NOTE_TAG: with_report(store, note, reported_on, sweep)})


def kill_sweep(store: Store, sweep_run_id: str) -> None:
    """Mark the sweep's run KILLED: interrupted."""
    with guard(store.shown, store.tracking_uri):
        store.client.set_terminated(sweep_run_id, "KILLED")


def find_sweep(store: Store, sweep_id: str) -> Run:
    """The sweep's parent run.

    Raises
    ------
    TrackingError
        The experiment holds no such sweep.
    """
    runs = {run.data.tags.get("qfr.sweep", ""): run for run in search(store, "tags.`qfr.kind` = 'sweep'")}
    if sweep_id not in runs:
        known = ", ".join(list(runs)[:5])
        raise TrackingError(
            f"no sweep {sweep_id!r} in experiment {store.experiment!r}" + did_you_mean(sweep_id, runs),
            where=store.shown,
            hint=f"the newest are {known}" if known else "nothing was run in this experiment yet",
        )
    return runs[sweep_id]


def sweep_run(store: Store, sweep_id: str) -> str | None:
    """MLflow's id of the sweep's parent run; None where there is none."""
    if not sweep_id:
        return None
    for run in search(store, f"tags.`qfr.kind` = 'sweep' AND tags.`qfr.sweep` = '{sweep_id}'"):
        return str(run.info.run_id)
    return None


def read_plan(store: Store, sweep_id: str) -> tuple[PlannedCell, ...]:
    """The grid as it was planned when the sweep began.

    Raises
    ------
    TrackingError
        No such sweep, or its plan is gone or damaged.
    """
    run = find_sweep(store, sweep_id)
    data = read_artifact(store, run.info.run_id, run.info.artifact_uri, PLAN_FILE)
    try:
        return tuple(PlannedCell(str(raw["design_id"]), str(raw["name"])) for raw in json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise TrackingError(f"{PLAN_FILE} is damaged ({error})", where=f"sweep {sweep_id}") from None


def log_report(
    store: Store,
    sweep_run_id: str,
    files: Mapping[str, Path],
    metrics: Mapping[str, float],
    tables: Mapping[str, bytes],
) -> None:
    """Put a report on the sweep's run: headline metrics, the table of results, the files under `report/`.

    Parameters
    ----------
    files : mapping
        Name below `report/` → file.
    metrics : mapping
        Undefined values (NaN, infinite) are left out; characters that MLflow refuses become `_`.
    tables : mapping
        Path of an artifact → its bytes; JSON ones, as `mlflow.log_table` writes them, are shown as tables.
    """
    now = int(time.time() * 1000)
    points = [
        Metric(re.sub(r"[^\w.:/ -]", "_", name, flags=re.ASCII), value, now, 0)
        for name, value in metrics.items()
        if math.isfinite(value)
    ]
    with guard(store.shown, store.tracking_uri):
        log_files(store, sweep_run_id, {f"report/{name}": path.read_bytes() for name, path in files.items()})
        log_files(store, sweep_run_id, tables)
        log_batches(store, sweep_run_id, metrics=points)
        shown = [{"path": path, "type": "table"} for path in tables if path.endswith(".json")]
        store.client.set_tag(sweep_run_id, "mlflow.loggedArtifacts", json.dumps(shown))
