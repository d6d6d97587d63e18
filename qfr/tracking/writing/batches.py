"""Sending many values and files of one run in few requests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag

from qfr.tracking.store import Store

# MLflow's own limits of one request.
_BATCH_METRICS = 1000
_BATCH_OTHERS = 100


def log_files(store: Store, run_id: str, files: Mapping[str, bytes]) -> None:
    """Log files by their artifact path; the caller guards."""
    if not files:
        return
    with tempfile.TemporaryDirectory(prefix="qfr-") as folder:
        for name, data in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        store.client.log_artifacts(run_id, folder)


def log_batches(
    store: Store,
    run_id: str,
    *,
    metrics: Sequence[Metric] = (),
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Log any number of metrics, params and tags in as few requests as MLflow allows; the caller guards."""
    some_params = [Param(key, value) for key, value in (params or {}).items()]
    some_tags = [RunTag(key, value) for key, value in (tags or {}).items()]
    for start in range(0, len(some_params), _BATCH_OTHERS):
        store.client.log_batch(run_id, params=some_params[start : start + _BATCH_OTHERS])
    for start in range(0, len(some_tags), _BATCH_OTHERS):
        store.client.log_batch(run_id, tags=some_tags[start : start + _BATCH_OTHERS])
    for start in range(0, len(metrics), _BATCH_METRICS):
        store.client.log_batch(run_id, metrics=metrics[start : start + _BATCH_METRICS])
