"""A run as plain values: taken out of one store, put into another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlflow.entities import Metric, Run

from qfr.facts import CellFacts
from qfr.tracking.reading.artifacts import all_artifacts, read_artifact
from qfr.tracking.reading.search import candidates, carries, is_complete, runs_of_cell, search
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.batches import log_batches, log_files
from qfr.tracking.writing.inputs import log_inputs
from qfr.tracking.writing.sweep import find_sweep

PARENT_TAG = "mlflow.parentRunId"
IMPORTING_TAG, IMPORTED_TAG = "qfr.importing", "qfr.imported"
# Of a run that is being put in, and of one that is in whole: where it came from.


@dataclass(frozen=True)
class Point:
    """One value of a metric."""

    key: str
    value: float
    time: int
    # Milliseconds since 1970.
    step: int


@dataclass(frozen=True)
class PlainRun:
    """What MLflow holds of a run, its artifacts apart."""

    name: str
    status: str
    # MLflow's.
    started: int
    # Milliseconds since 1970.
    ended: int | None
    # None while it runs.
    params: Mapping[str, str]
    tags: Mapping[str, str]
    points: tuple[Point, ...]
    # Every value of every metric in the order of logging, undefined ones left out.


@dataclass(frozen=True, eq=False)
class TakenRun:
    """A run of a store with its artifacts in reach."""

    run_id: str
    plain: PlainRun
    artifacts: tuple[str, ...]
    # Paths of all of them, in folders too, sorted.
    read: Callable[[str], bytes]
    # Content of one; raises TrackingError when it is missing.

    @property
    def where(self) -> str:
        """Names the run in errors."""
        return f"run {self.run_id} ({self.plain.name})"


@dataclass(frozen=True)
class HeldRun:
    """What a store holds of a cell already."""

    run_id: str
    complete: bool
    importing: str
    # Origin of a run that an interrupted `put_run` left behind; empty otherwise.
    log_sha256: str


def take_sweep(store: Store, sweep: str) -> TakenRun:
    """A sweep's own run. Raises TrackingError when there is none."""
    return _take(store, find_sweep(store, sweep))


def take_cells(store: Store, designs: set[str], registration: str | None) -> list[TakenRun]:
    """Every run of the cells of these designs that carries a registration (None = any), oldest first."""
    runs = [
        run
        for run in candidates(store, "qfr.design_id", designs, finished=False)
        if run.data.tags.get("qfr.kind") == "cell" and carries(run, registration)
    ]
    return [_take(store, run) for run in sorted(runs, key=lambda run: (run.info.start_time, run.info.run_id))]


def held(store: Store, cell_id: str, registration: str) -> list[HeldRun]:
    """What a store holds of a cell under a registration ("" = under none), oldest first."""
    runs = [run for run in runs_of_cell(store, cell_id) if carries(run, registration)]
    return [_held(run) for run in reversed(runs)]


def held_sweep(store: Store, sweep: str) -> HeldRun | None:
    """The sweep's run in a store, if there is one."""
    return next(
        (
            _held(run)
            for run in search(store, f"tags.`qfr.sweep` = '{sweep}'")
            if run.data.tags.get("qfr.kind") == "sweep"
        ),
        None,
    )


def _held(run: Run) -> HeldRun:
    tags = run.data.tags
    return HeldRun(
        run.info.run_id, is_complete(run), tags.get(IMPORTING_TAG, ""), tags.get("qfr.log_sha256", "")
    )


def _take(store: Store, run: Run) -> TakenRun:
    run_id, uri = run.info.run_id, run.info.artifact_uri
    with guard(store.shown, store.tracking_uri):
        # MLflow's pages show metrics in the order of logging: keep it.
        points = [
            Point(found.key, found.value, found.timestamp, found.step)
            for key in run.data.metrics
            for found in sorted(store.client.get_metric_history(run_id, key), key=_order)
            if math.isfinite(found.value)
        ]
        artifacts = all_artifacts(store, run_id, uri)
    plain = PlainRun(
        name=run.info.run_name,
        status=run.info.status,
        started=run.info.start_time,
        ended=run.info.end_time,
        params=dict(run.data.params),
        tags=dict(run.data.tags),
        points=tuple(points),
    )
    return TakenRun(run_id, plain, artifacts, lambda name: read_artifact(store, run_id, uri, name))


def _order(point: Metric) -> tuple[int, int, float]:
    return point.step, point.timestamp, point.value


def put_run(
    store: Store,
    run: PlainRun,
    files: Mapping[str, bytes],
    *,
    origin: str,
    facts: CellFacts | None = None,
    into: str | None = None,
) -> str:
    """Make a run with its own times, or go on filling one that was left half made; its MLflow id.

    Parameters
    ----------
    files : mapping
        Artifact path → content.
    origin : str
        Names the run where it came from.
    facts : CellFacts, optional
        Of a finished cell: linked to its model file and its suite.
    into : str, optional
        Run to go on with; one that is half made.

    Raises
    ------
    TrackingError
        The store did not take it. The run then carries IMPORTING_TAG and counts as incomplete.
    """
    complete = run.tags.get("qfr.complete")
    tags = {**run.tags, IMPORTING_TAG: origin} | ({"qfr.complete": "false"} if complete else {})
    with guard(f"{store.shown}, {run.name}", store.tracking_uri):
        if into is None:
            made = store.client.create_run(store.experiment_id, run.started, tags=tags, run_name=run.name)
            into = str(made.info.run_id)
        else:
            log_batches(store, into, tags=tags)
        metrics = [Metric(one.key, one.value, one.time, one.step) for one in run.points]
        log_batches(store, into, params=run.params, metrics=metrics)
        log_files(store, into, files)
        if facts is not None:
            log_inputs(store, into, facts)
        # What was running when it was taken runs nowhere now.
        status = "KILLED" if run.status in ("RUNNING", "SCHEDULED") else run.status
        store.client.set_terminated(into, status, run.ended if run.ended is not None else run.started)
        log_batches(store, into, tags={IMPORTED_TAG: origin})
        store.client.delete_tag(into, IMPORTING_TAG)
        if complete:
            # Last, as everywhere: whatever stops us before leaves a run that does not count.
            store.client.set_tag(into, "qfr.complete", complete)
    return into
