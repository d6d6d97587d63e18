"""MLflow goes away while a grid runs: killed, broken, slow, locked, full. Nothing is lost, nothing is twice.

Everything is real: an `mlflow server` that is killed, a database that another process locks, a full disk.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from mlflow.entities import Run, ViewType

from qfr.cli import main as qfr
from qfr.play import job
from qfr.play import waiting as patience
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store
from tests.mlflow_server import MlflowServer, Proxy
from tests.registering import command
from tests.sweep_process import Sweep, holds

pytestmark = pytest.mark.slow

GRID = ("model=scripted", "suite=orders6", "quant=q8_0", "prompt=P0,P4", "fault=et", "report.transcripts=0")
CELLS = {f"scripted q8_0 {prompt} {fault}" for prompt in ("P0", "P4") for fault in ("none", "et")}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder of its own, short pauses, and no outage left over."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(patience, "_LONGEST_PAUSE", 1.0)
    monkeypatch.setattr(patience, "_OUTAGE", patience._Outage())


@pytest.fixture
def proxy(server: MlflowServer) -> Iterator[Proxy]:
    """A way to the server that can be disturbed."""
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> dict[str, bytes]:
    """The logs of the grid when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert command(*GRID, f"tracking.root={folder}", f"hydra.sweep.dir={folder}/multirun") == 0
    return logs(open_store(None, folder, "qfr"))


def logs(store: Store) -> dict[str, bytes]:
    """The log of every finished cell, each of which has one run, by the cell's name."""
    from qfr.journal import log_bytes

    cells = read_cells(store).cells
    assert len({cell.facts.name for cell in cells}) == len(cells)
    return {cell.facts.name: log_bytes(read_episodes(store, cell)) for cell in cells}


def runs_of(store: Store, status: str = "") -> list[Run]:
    """Every run that is not deleted, of a status where one is named."""
    found = store.client.search_runs([store.experiment_id], run_view_type=ViewType.ACTIVE_ONLY)
    return [run for run in found if run.info.status == status or not status]


def check(store: Store, expected: dict[str, bytes]) -> None:
    """Every cell is there, once, with the bytes of the undisturbed grid; nothing else is."""
    assert logs(store) == expected
    kinds = [run.data.tags["qfr.kind"] for run in runs_of(store)]
    assert sorted(kind for kind in kinds if kind != "sweep") == ["cell"] * len(expected)
    sweeps = [run.data.tags["qfr.sweep"] for run in runs_of(store) if run.data.tags["qfr.kind"] == "sweep"]
    assert len(set(sweeps)) == len(sweeps)
    assert not list((store.root / "journal").glob("*/*"))


def when(condition: Callable[[], bool], action: Callable[[], None]) -> threading.Thread:
    """Do something in the background as soon as something is the case."""

    def watch() -> None:
        end = time.monotonic() + 120
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def journaled() -> bool:
    """An episode stands in a journal."""
    return any(Path("mlruns/journal").glob("*/journal.jsonl"))


def use(server: MlflowServer | Proxy, name: str, wait: int) -> tuple[str, ...]:
    """Overrides that log to the server, into an experiment of the test's own."""
    return (*GRID, f"tracking.uri={server.uri}", f"tracking.experiment={name}", f"tracking.patience={wait}")


def store_of(server: MlflowServer | Proxy, name: str) -> Store:
    return open_store(server.uri, Path("mlruns"), name)


# --- a server that dies -------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_stays_away(
    server: MlflowServer,
    expected: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killing = when(journaled, server.kill)
    assert command(*use(server, "gone", 1)) == 1
    killing.join()
    said = capsys.readouterr()
    assert "MLflow is away" in said.err
    assert "Traceback" not in said.err
    assert said.out.count("ran, not yet logged") == len(CELLS)
    assert "qfr sync" in said.out
    # Still away: nothing is lost, and the exit code says that something is left.
    assert qfr(["sync"]) == 1
    assert capsys.readouterr().out.count("still to be logged") == len(CELLS)
    server.start()
    monkeypatch.setattr(job._SHELF, "take", lambda *_: pytest.fail("a model would be loaded"))
    assert qfr(["sync"]) == 0
    said = capsys.readouterr()
    assert "all 4 cells are finished. Its report:  qfr report --sweep s-" in said.out
    store = store_of(server, "gone")
    check(store, expected)
    assert runs_of(store, "RUNNING") == []
    assert {run.info.status for run in runs_of(store)} == {"FINISHED"}
    assert qfr(["sync"]) == 0
    assert "Nothing is waiting" in capsys.readouterr().out


def test_a_server_that_is_killed_and_comes_back(
    server: MlflowServer, expected: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    def restart() -> None:
        server.kill()
        time.sleep(2)
        server.start()

    restarting = when(journaled, restart)
    assert command(*use(server, "back", 600)) == 0
    restarting.join()
    said = capsys.readouterr()
    assert "what was played is safe in the journal; trying again in" in said.err
    assert "MLflow is back" in said.err
    check(store_of(server, "back"), expected)


def test_the_run_command_logs_what_was_left_as_well(
    server: MlflowServer, proxy: Proxy, expected: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    breaking = when(journaled, lambda: setattr(proxy, "broken", True))
    assert command(*use(proxy, "again", 0)) == 1
    breaking.join()
    assert "500 error responses" in capsys.readouterr().err
    proxy.broken = False
    # Straight to the server this time: the address is no part of a cell.
    assert command(*use(server, "again", 0)) == 0
    assert "was played before and is logged now" in capsys.readouterr().err
    check(store_of(server, "again"), expected)


# --- a server that is slow, broken, or loses answers --------------------------------------------------


@pytest.mark.parametrize(
    ("after", "request_path"),
    [
        ("locks/store.lock", "runs/create"),
        ("sweeps", "runs/create"),
        ("sweeps", "runs/log-batch"),
    ],
)
def test_an_answer_that_gets_lost_makes_no_second_run(
    proxy: Proxy,
    expected: dict[str, bytes],
    after: str,
    request_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server did what it was asked, and the connection broke before it could say so."""

    def lose() -> None:
        proxy.lose = request_path

    name = f"{after} {request_path}".replace("/", "-")
    losing = when(lambda: (Path("mlruns") / after).exists(), lose)
    assert command(*use(proxy, name, 60)) == 0, capsys.readouterr().err
    losing.join()
    assert proxy.lost == 1
    check(store_of(proxy, name), expected)


def test_slow_answers_are_waited_for_and_too_slow_ones_count_as_none(
    proxy: Proxy,
    expected: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    # What a user may have set does not make a call hang: each request of a run is tried once.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")
    monkeypatch.setattr(patience, "_SLOW", 0.2)

    def slow() -> None:
        proxy.delay = 3.0

    slowing = when(journaled, slow)
    assert command(*use(proxy, "slow", 2)) == 1
    slowing.join()
    said = capsys.readouterr()
    assert "no answer from MLflow for" in said.err
    assert "ran, not yet logged" in said.out
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    proxy.delay = 0.05
    assert qfr(["sync", "--wait", "60"]) == 0
    # Requests that were given up were carried out all the same, only later.
    check(store_of(proxy, "slow"), expected)


# --- a database that is locked, a disk that is full ---------------------------------------------------


@pytest.fixture
def impatient_database(migrated_database: Path) -> Iterator[Path]:
    """A store in the working folder, whose connections wait for a lock half a second instead of twenty."""

    def shorter(
        connection: object, cursor: object, statement: str, parameters: object, *rest: object
    ) -> tuple[str, object]:
        return statement.replace("busy_timeout = 20000", "busy_timeout = 500"), parameters

    Path("mlruns").mkdir()
    database = Path("mlruns/mlflow.db")
    database.write_bytes(migrated_database.read_bytes())
    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", shorter, retval=True)
    yield database
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", shorter)


class Locker:
    """Another process that locks the database for writing."""

    def __init__(self, database: Path) -> None:
        code = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60); "
            "c.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); input()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"

    def release(self) -> None:
        """End the process, and with it the lock."""
        self._process.communicate(b"\n")


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_database_that_another_process_locks(
    impatient_database: Path,
    expected: dict[str, bytes],
    comes_back: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lockers: list[Locker] = []

    def lock() -> None:
        lockers.append(Locker(impatient_database))
        if comes_back:
            time.sleep(4)
            lockers[0].release()

    locking = when(journaled, lock)
    done = command(*GRID, f"tracking.patience={120 if comes_back else 1}")
    locking.join()
    said = capsys.readouterr()
    assert "database is locked" in said.err
    if comes_back:
        assert done == 0
    else:
        assert done == 1
        assert said.out.count("ran, not yet logged") == len(CELLS)
        lockers[0].release()
        assert qfr(["sync"]) == 0
    check(open_store(None, Path("mlruns"), "qfr"), expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB in memory: mounted by root, else in a user namespace of one's own."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        yield place
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        return
    script = f"mount -t tmpfs -o size=16m tmpfs '{place}' && echo ready && cat"
    keeper = subprocess.Popen(
        ["unshare", "-Urm", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == b"ready\n", "neither mount nor unshare gives a small file system here"
    yield Path(f"/proc/{keeper.pid}/root{place}")
    keeper.communicate()


def fill(place: Path) -> Path:
    """Leave no room on the disk. Returns the file to delete."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


@pytest.mark.parametrize("room_comes", [True, False])
def test_a_disk_that_is_full(
    small_disk: Path,
    migrated_database: Path,
    expected: dict[str, bytes],
    room_comes: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Journal, database and artifacts lie on it. What was played stays; no run is lost or doubled."""
    root = small_disk / "mlruns"
    root.mkdir()
    (root / "mlflow.db").write_bytes(migrated_database.read_bytes())

    def full() -> None:
        ballast = fill(small_disk)
        if room_comes:
            time.sleep(4)
            ballast.unlink()

    filling = when(lambda: any((root / "journal").glob("*/journal.jsonl")), full)
    wait = f"tracking.patience={120 if room_comes else 1}"
    done = command(*GRID, f"tracking.root='{root}'", wait, "hydra.sweep.dir=multirun")
    filling.join()
    said = capsys.readouterr()
    assert "No space left on device" in said.err or "database or disk is full" in said.err
    assert "Traceback" not in said.err
    if not room_comes:
        assert done == 1
        (small_disk / "ballast").unlink()
        assert command(*GRID, f"tracking.root='{root}'", "hydra.sweep.dir=multirun") == 0
    else:
        assert done == 0
    check(open_store(None, root, "qfr"), expected)


# --- interrupted while it waits -----------------------------------------------------------------------


@pytest.mark.parametrize(("number", "reachable"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_signal_ends_a_sweep_that_waits(
    server: MlflowServer, proxy: Proxy, tmp_path: Path, number: signal.Signals, reachable: bool
) -> None:
    """At once, not when the patience ends. What MLflow can still be told, it is told."""
    name = f"signal-{number.name}-{reachable}"
    sweep = Sweep(tmp_path, *use(proxy, name, 3600), "suite.families={base:200}")
    sweep.until(lambda: holds(tmp_path))
    proxy.broken = True
    sweep.until(lambda: "MLflow is away" in sweep.said())
    proxy.broken = not reachable
    sweep.process.send_signal(number)
    assert sweep.end() == 130
    assert "interrupted; the same command goes on" in sweep.said()
    assert "Traceback" not in sweep.said()
    statuses = {run.info.status for run in runs_of(store_of(server, name)) if run.info.status != "FINISHED"}
    assert statuses == {"KILLED" if reachable else "RUNNING"}
