"""Several sweeps of one grid at once: work is shared, nothing is played twice, the dead are replaced."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow.entities import ViewType

from qfr.journal import log_bytes
from qfr.registration.store import find_registrations
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store
from tests.mlflow_server import MlflowServer
from tests.registering import GRID as REGISTERED
from tests.registering import command, make_checkout, register
from tests.sweep_process import Sweep, holds

pytestmark = pytest.mark.slow

BIG = ("model=scripted", "suite.families={base:30,shipping:0}", "quant=q8_0,q4_k_m", "prompt=P0,P4")
SHARED = (*BIG, "fault=et", "report.transcripts=0", "tracking.stale_after=5")


def check_once(store: Store) -> None:
    """Each of the grid's cells is finished and has one run."""
    reading = read_cells(store)
    assert (len(reading.cells), reading.notes, reading.alarms, reading.unfinished) == (8, (), (), ())
    found = store.client.search_runs([store.experiment_id], run_view_type=ViewType.ACTIVE_ONLY)
    counts = Counter(run.data.tags.get("qfr.cell_id", run.data.tags["qfr.kind"]) for run in found)
    sweeps = counts.pop("sweep")
    assert set(counts.values()) == {1}
    assert (len(counts), sweeps) == (8, len([run for run in found if run.data.tags["qfr.kind"] == "sweep"]))


def test_two_sweeps_on_one_database_share_the_work(tmp_path: Path, migrated_database: Path) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").write_bytes(migrated_database.read_bytes())
    both = [Sweep(tmp_path, *SHARED) for _ in range(2)]
    assert [sweep.end() for sweep in both] == [0, 0], both[0].said() + both[1].said()
    played = [sweep.played() for sweep in both]
    assert sorted(played[0] + played[1]) == [
        f"scripted {quant} {prompt}" for quant in ("q4_k_m", "q8_0") for prompt in ("P0", "P4")
    ]
    assert all(played), "one of them did everything"
    check_once(open_store(None, tmp_path / "mlruns", "qfr"))


def test_sweeps_that_share_nothing_but_a_server(server: MlflowServer, tmp_path: Path) -> None:
    """Each has a root of its own, so no lock is common: the server's runs say who plays what. A process that
    is stopped still lives, and its cell is left to it; one that was killed is replaced."""
    grid = (*SHARED, f"tracking.uri={server.uri}", "tracking.experiment=shared")
    first = Sweep(tmp_path / "a", *grid)
    first.until(lambda: holds(tmp_path / "a"))
    first.process.send_signal(signal.SIGSTOP)
    while not holds(tmp_path / "a"):
        # It was through with a walk in this moment: the next one.
        first.process.send_signal(signal.SIGCONT)
        first.until(lambda: holds(tmp_path / "a"))
        first.process.send_signal(signal.SIGSTOP)
    second = Sweep(tmp_path / "b", *grid)
    second.until(lambda: "waiting for" in second.said())
    who = f"process {first.process.pid} on "
    assert re.search(rf"left alone for now: {who}\S+, which runs", second.said())
    assert len(second.played()) == 3
    # Longer than a process of another machine might be silent.
    time.sleep(6)
    assert second.process.poll() is None
    assert len(second.played()) == 3
    first.process.kill()
    first.process.wait()
    assert second.end() == 0, second.said()
    assert re.search(rf"taken over from {who}\S+, which ended", second.said())
    assert len(second.played()) == 4
    store = open_store(server.uri, tmp_path / "b" / "mlruns", "shared")
    check_once(store)
    # The killed one goes on with what it had begun: everything is there, and its old journal goes.
    again = Sweep(tmp_path / "a", *grid)
    assert again.end() == 0, again.said()
    assert "8 cells finished before" in again.said()
    assert re.search(rf"its run still said RUNNING; now KILLED: {who}\S+, which ended", again.said())
    assert not holds(tmp_path / "a")
    check_once(store)


def test_a_registered_grid_runs_against_a_server(
    server: MlflowServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(make_checkout(tmp_path / "checkout"))
    where = (f"tracking.uri={server.uri}", "tracking.experiment=registered")
    name = register(*where)
    store, kept = find_registrations(server.uri, Path("mlruns"))
    assert store is not None
    assert [one.id for one in kept] == [name]
    # From the server's copy alone.
    for path in Path("registrations").iterdir():
        path.unlink()
    assert command(*REGISTERED, *where, f"registration.use={name[:10]}") == 0, capsys.readouterr().err
    capsys.readouterr()
    assert command(*REGISTERED, *where, f"registration.use={name}") == 0
    assert "4 cells finished before" in capsys.readouterr().err
    assert command(*REGISTERED, *where, f"registration.use={name}", "suite.seed=7") == 2
    assert "suite.seed: found 7, frozen" in capsys.readouterr().err
    runs = open_store(server.uri, Path("mlruns"), "registered")
    cells = read_cells(runs, registration=name).cells
    assert len(cells) == 4
    assert all(log_bytes(read_episodes(runs, cell)) for cell in cells)
