"""Opening stores: created once by many processes, refused with one clear sentence when something is wrong."""

from __future__ import annotations

import http.server
import multiprocessing
import os
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from qfr.errors import StoreAway, TrackingError
from qfr.tracking.environment import redact, settle
from qfr.tracking.reading.search import find_finished
from qfr.tracking.store import Store, guard, open_store, peek_store, ui_command
from tests.builders import make_facts


def _open_and_log(job: tuple[str, int]) -> str:
    """In a process of its own: open the one store and log one run with an artifact."""
    root, number = job
    settle()
    opened = open_store(None, Path(root), "shared")
    run = opened.client.create_run(opened.experiment_id, tags={"number": str(number)})
    opened.client.log_text(run.info.run_id, str(number), "number.txt")
    opened.client.set_terminated(run.info.run_id)
    return opened.experiment_id


def test_eight_processes_create_one_store_together(tmp_path: Path) -> None:
    root = str(tmp_path / "mlruns")
    Path(root).mkdir()
    (Path(root) / "mlflow.db").touch()  # An empty file is taken for none.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["qfr.tracking.store"])  # MLflow is imported once, not eight times.
    with context.Pool(8) as pool:
        ids = pool.map(_open_and_log, [(root, number) for number in range(8)], chunksize=1)
    assert len(set(ids)) == 1
    opened = open_store(None, Path(root), "shared")
    runs = opened.client.search_runs([opened.experiment_id])
    assert sorted(run.data.tags["number"] for run in runs) == [str(number) for number in range(8)]
    assert not list(Path(root).glob(".mlflow.db.*"))


def test_the_database_is_in_wal_mode_and_opened_again_as_it_is(store: Store) -> None:
    with sqlite3.connect(store.root / "mlflow.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    again = open_store(None, store.root, store.experiment)
    assert again == store
    assert again.artifact_location == (store.root / "artifacts" / "qfr").as_uri()


def test_a_folder_with_blanks_and_signs_works(make_store: Callable[..., Store]) -> None:
    opened = make_store("my runs? ä#1 %20 'q'", "my exp.1")
    run = opened.client.create_run(opened.experiment_id)
    opened.client.log_text(run.info.run_id, "x", "a/b.txt")
    folder = opened.root / "artifacts" / "my exp.1" / run.info.run_id / "artifacts"
    assert (folder / "a" / "b.txt").read_text() == "x"
    words = shlex.split(ui_command(opened))
    assert words[words.index("--backend-store-uri") + 1] == opened.tracking_uri


def test_the_environment_does_not_steer_the_store(
    monkeypatch: pytest.MonkeyPatch, make_store: Callable[..., Store], tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    opened = make_store()
    assert opened.experiment == "qfr"
    assert not (tmp_path / "elsewhere.db").exists()


def test_settle_fixes_telemetry_and_truncation_and_keeps_the_users_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    settle()
    assert os.environ["MLFLOW_TRUNCATE_LONG_VALUES"] == "false"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"


def test_peek_creates_nothing(tmp_path: Path, store: Store) -> None:
    assert peek_store(None, tmp_path / "none", "qfr") is None
    assert not (tmp_path / "none").exists()
    assert peek_store(None, store.root, "another") is None
    assert store.client.get_experiment_by_name("another") is None
    assert peek_store(None, store.root, "qfr") == store


def _reset(name: str) -> Callable[[Path], None]:
    """What is done to a good database before it is opened."""

    def newer(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")

    def older(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '0584bdc529eb'")

    def junk(path: Path) -> None:
        path.write_bytes(b"no database at all " * 100)

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:40_000])

    def foreign(path: Path) -> None:
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE recipes (name TEXT)")

    def directory(path: Path) -> None:
        path.unlink()
        path.mkdir()

    changes = (newer, older, junk, cut, foreign, directory)
    return next(change for change in changes if change.__name__ == name)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("newer", "newer MLflow"),
        ("older", "mlflow db upgrade"),
        ("junk", "damaged or unreadable"),
        ("cut", "damaged or unreadable"),
        ("foreign", "no MLflow database"),
        ("directory", "a folder stands"),
    ],
)
def test_a_wrong_database_is_refused(migrated_database: Path, tmp_path: Path, what: str, said: str) -> None:
    shutil.copy(migrated_database, tmp_path / "mlflow.db")
    _reset(what)(tmp_path / "mlflow.db")
    for opening in (open_store, peek_store):
        with pytest.raises(TrackingError, match=said) as caught:
            opening(None, tmp_path, "qfr")
        assert "mlflow.db" in str(caught.value)


def test_an_empty_file_is_taken_for_no_database(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    assert peek_store(None, tmp_path, "qfr") is None


def test_a_deleted_experiment_is_said_with_the_way_back(store: Store) -> None:
    store.client.delete_experiment(store.experiment_id)
    for opening in (open_store, peek_store):
        with pytest.raises(TrackingError, match=r"'qfr' was deleted.*\n.*mlflow experiments restore"):
            opening(None, store.root, "qfr")
    store.client.restore_experiment(store.experiment_id)
    assert open_store(None, store.root, "qfr") == store


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TrackingError, match="cannot be written") as caught:
        open_store(None, tmp_path / "file" / "mlruns", "qfr")
    assert "tracking.root" in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///somewhere/mlruns", "gave up its file store"),
        ("./mlruns", "gave up its file store"),
        ("postgers://u:hunter22@h/db", "did you mean 'postgresql'"),
        ("sqlite://", "no database file"),
        ("sqlite:///:memory:", "no database file"),
        ("http://", "malformed"),
        ("http://u:p/hunter22@h", "malformed"),
    ],
)
def test_addresses_that_are_none(tmp_path: Path, uri: str, said: str) -> None:
    with pytest.raises(TrackingError, match=said) as caught:
        open_store(uri, tmp_path, "qfr")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a\nb"])
def test_an_experiment_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrackingError, match=r"tracking\.experiment"):
        open_store(None, tmp_path, name)


@pytest.mark.parametrize(
    "uri", ["http://me:hunter22@127.0.0.1:{}", "postgresql://me:hunter22@127.0.0.1:{}/db"]
)
def test_nobody_at_the_address(tmp_path: Path, uri: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(TrackingError, match="nobody answers") as caught:
            open_store(uri.format(port), tmp_path, "qfr")
    assert "hunter22" not in str(caught.value)
    assert "***@127.0.0.1" in str(caught.value)


def test_a_server_that_went_away_is_told_without_the_clients_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever MLflow's client repeats by itself: one short reason, and no warnings of its libraries."""
    settle()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        client = mlflow.MlflowClient(url)
        with pytest.raises(StoreAway) as caught, guard(url):
            client.get_run("0" * 32)
    assert caught.value.what == "nobody answers ([Errno 111] Connection refused)"
    assert "Retrying" not in caplog.text


class _Teapot(http.server.BaseHTTPRequestHandler):
    """A web server that is no MLflow server."""

    def do_GET(self) -> None:
        self.send_error(404, "no such page")

    def log_message(self, *args: object) -> None:
        """Say nothing on the tests' terminal."""


@pytest.fixture
def other_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Teapot)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://me:hunter22@127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_is_no_mlflow(tmp_path: Path, other_server: str) -> None:
    with pytest.raises(TrackingError, match="404") as caught:
        open_store(other_server, tmp_path, "qfr")
    assert "hunter22" not in str(caught.value)


def test_redact_takes_every_secret_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok-123456")
    text = "at https://me:s%23cret@h/x: bearer tok-123456, password s#cret, plain token https://abc@h"
    said = redact(text, "https://me:s%23cret@h/x")
    assert said == "at https://***@h/x: bearer ***, password ***, plain token https://***@h"
    assert redact("nothing here", "sqlite:////x.db") == "nothing here"


def test_the_ui_command_binds_to_loopback(store: Store) -> None:
    words = shlex.split(ui_command(store))
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[1:3] == ["mlflow", "ui"]


def test_reading_a_store_that_breaks_under_way(store: Store) -> None:
    for file in store.root.glob("mlflow.db*"):
        file.write_bytes(b"overwritten " * 1000)
    with pytest.raises(TrackingError) as caught:
        find_finished(store, [make_facts("m", "Q8_0", "P0", "et").cell_id])
    assert "mlflow.db" in str(caught.value)


def test_importing_the_package_loads_no_mlflow() -> None:
    code = "import sys, qfr, qfr.tracking.environment; print('mlflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert mlflow.__version__


def test_a_server_that_refuses_the_name_says_what_to_start_it_with() -> None:
    """What MLflow 3.17 answers to a Host header that is not among --allowed-hosts."""
    body = "failed with error code 403 != 200. Response body: 'Invalid Host header - possible DNS rebinding'"
    with (
        pytest.raises(TrackingError, match=r"(?s)Invalid Host header.*--allowed-hosts"),
        guard("http://login1:5000"),
    ):
        raise MlflowException(f"API request to endpoint /api {body}", PERMISSION_DENIED)
    with pytest.raises(TrackingError, match="MLFLOW_TRACKING_USERNAME"), guard("http://login1:5000"):
        raise MlflowException("API request to endpoint /api failed: no", PERMISSION_DENIED)
