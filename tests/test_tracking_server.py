"""The whole round over a real `mlflow server` on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from qfr.errors import TrackingError
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import finished_designs
from qfr.tracking.store import open_store
from qfr.tracking.writing.sweep import PlannedCell, open_sweep
from qfr.tracking.writing.sweep_runs import UsedRun, settle_again
from qfr.tracking.writing.writer import finish_cell, start_cell
from tests.tracked import BUILT, CLEAN, FAULT, cell, log_cell


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
    settle_again(store, store.root, "s-1", [UsedRun(FAULT.design_id, FAULT.cell_id, again.run_id)])
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
