"""The run of a try: its looks as series of metrics, its record and drawing as artifacts."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlflow.entities import Metric

from qfr.tracking.reading.search import search
from qfr.tracking.store import Store, guard, hold_lock
from qfr.tracking.writing.batches import log_batches, log_files


@dataclass(frozen=True)
class LookPoint:
    """One look, as it is logged."""

    series: str
    # Of the file that is compared: "Q4_K_M (imatrix)".
    tasks: int
    # Played so far; the step of the metrics.
    values: Mapping[str, float]
    # estimate, low, high, evidence.


def open_try(store: Store, key: str, *, name: str, tags: Mapping[str, str]) -> str:
    """The run of a try; the same one each time that the same question is asked of the same files.

    Returns
    -------
    str
        MLflow's run id.
    """
    with hold_lock(store.root, f"try-{key}"):
        for run in search(store, f"tags.`qfr.kind` = 'try' AND tags.`qfr.try` = '{key}'"):
            return str(run.info.run_id)
        with guard(store.shown, store.tracking_uri):
            made = store.client.create_run(
                store.experiment_id, run_name=name, tags={"qfr.kind": "try", "qfr.try": key, **tags}
            )
    return str(made.info.run_id)


def log_looks(store: Store, run_id: str, looks: Sequence[LookPoint]) -> None:
    """Log the looks that the run does not hold yet: one series of metrics for each value of each file."""
    now = int(time.time() * 1000)
    with guard(store.shown, store.tracking_uri):
        held = store.client.get_run(run_id).data.metrics
        points = [
            Metric(f"{_name(one.series)}.{name}", value, now, one.tasks)
            for one in looks
            if one.tasks > held.get(f"{_name(one.series)}.tasks", 0)
            for name, value in {"tasks": float(one.tasks), **one.values}.items()
        ]
        log_batches(store, run_id, metrics=points)


def close_try(store: Store, run_id: str, tags: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    """Put the answer and the record of all looks on the run, and end it."""
    with guard(store.shown, store.tracking_uri):
        log_batches(store, run_id, tags=tags)
        log_files(store, run_id, files)
        store.client.set_terminated(run_id, "FINISHED")


def _name(series: str) -> str:
    """As MLflow takes it."""
    return re.sub(r"[^\w.:/ -]", "_", series, flags=re.ASCII)
