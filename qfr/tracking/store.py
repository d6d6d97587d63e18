"""Opening a store: an MLflow database or server, an experiment in it, and where its artifacts lie.

The default is SQLite under `root`. Database and experiment are created once, under a file lock, because
processes that create one database together break it.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import filelock
import sqlalchemy.exc
from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.exceptions import MlflowException

from qfr.errors import StoreAway, TrackingError
from qfr.tracking import address, database, moved
from qfr.tracking.environment import redact, settle
from qfr.tracking.outage import may_pass

_LOCK_SECONDS = 300.0
_UI_PORT = 5000


@dataclass(frozen=True)
class Store:
    """An open experiment of an MLflow store."""

    tracking_uri: str = field(repr=False)
    # May hold a password: never print it, print `shown`.
    shown: str
    # The same without user and password.
    experiment: str
    experiment_id: str
    root: Path
    # Absolute folder of locks (and of database and artifacts, when they are local).
    artifact_location: str
    # URI below which new runs put their artifacts.
    is_sqlite: bool
    client: MlflowClient = field(repr=False, compare=False)
    read_only: bool = False
    # Nothing can be logged: the database may not be written, and `tracking_uri` is a copy of it.

    @property
    def is_http(self) -> bool:
        """A server stands between us and the database."""
        return address.is_http(self.tracking_uri)


def open_store(uri: str | None, root: Path, experiment: str) -> Store:
    """Open the store and its experiment, creating both when missing.

    Parameters
    ----------
    uri : str or None
        `sqlite:///…`, `http(s)://…` of an MLflow server, or another database URI of MLflow.
        None = `sqlite:///<root>/mlflow.db`. `MLFLOW_TRACKING_URI` is not looked at.
    root : Path
        Local folder for locks and, unless a server stores them, artifacts under `artifacts/<experiment>`.
    experiment : str
        Name of the MLflow experiment.

    Raises
    ------
    TrackingError
        The root is not writable, the server does not answer, the database is damaged or of another MLflow,
        or the experiment was deleted.
    """
    settle()
    _quiet()
    root, uri = address.checked(uri, root, experiment)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(root, error) from None
    address.probe(uri)
    with hold_lock(root, "store"):
        if uri.startswith("sqlite:"):
            database.prepare(uri, root / "artifacts")
            _follow(uri, root)
        with guard(redact(uri, uri), uri):
            client = MlflowClient(uri)
            found = client.get_experiment_by_name(experiment)
            if found is None:
                found = _create(client, experiment, address.artifact_location(uri, root, experiment))
    return _store(uri, root, client, found)


def _create(client: MlflowClient, experiment: str, location: str | None) -> Experiment:
    # Without the tag the UI asks the user for the kind of the experiment.
    tags = {"mlflow.experimentKind": "custom_model_development"}
    try:
        return client.get_experiment(client.create_experiment(experiment, location, tags))
    except MlflowException as error:
        # A process with another root, which our lock does not know, was quicker at the same server.
        found = client.get_experiment_by_name(experiment)
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
            raise
        return found


def peek_store(uri: str | None, root: Path, experiment: str) -> Store | None:
    """Open the store only if it is there already; creates nothing. None when there is no such experiment.

    One that may not be written is read through a copy of its database.

    Raises
    ------
    TrackingError
        As `open_store`.
    """
    settle()
    _quiet()
    root, uri = address.checked(uri, root, experiment)
    if uri.startswith("sqlite:"):
        if not database.exists(uri):
            return None
        if not database.writable(uri):
            return _read_only(uri, root, experiment)
        database.check(uri)
        if moved.stands_elsewhere(database.path_of(uri), root):
            with hold_lock(root, "store"):
                _follow(uri, root)
    address.probe(uri)
    with guard(redact(uri, uri), uri):
        client = MlflowClient(uri)
        found = client.get_experiment_by_name(experiment)
    return None if found is None else _store(uri, root, client, found)


def _read_only(uri: str, root: Path, experiment: str) -> Store | None:
    copy = database.snapshot(uri)
    moved.follow(database.path_of(copy), root, copy=False, stands=database.path_of(uri).parent)
    with guard(uri, uri):
        client = MlflowClient(copy)
        found = client.get_experiment_by_name(experiment)
    if found is None:
        return None
    return replace(_store(copy, root, client, found), shown=uri, read_only=True)


def _follow(uri: str, root: Path) -> None:
    """Let a moved or copied store's locations follow its root, and say so. The caller holds its lock."""
    path = database.path_of(uri)
    if moved.stands_elsewhere(path, root) and (line := moved.follow(path, root, copy=True)):
        print(line, file=sys.stderr)


def ui_command(store: Store) -> str:
    """The one shell command that shows the store in a browser, bound to loopback.

    For a server it is the address to open. No password is shown.
    """
    if store.is_http:
        return ui_page(store)
    # Without the variable the server starts job workers that nothing here needs (0.7 GB of memory).
    return (
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui "
        f"--backend-store-uri {shlex.quote(store.shown)} --host 127.0.0.1 --port {_UI_PORT}"
    )


def ui_page(store: Store) -> str:
    """Address of the table of runs: of the server, or where `ui_command` serves it. No password is shown.

    MLflow's own way from its start page to an experiment leads to pages about traces, without any run.
    """
    server = store.shown.rstrip("/") if store.is_http else f"http://127.0.0.1:{_UI_PORT}"
    return f"{server}/#/experiments/{store.experiment_id}/runs?workflowType=machine_learning"


@contextmanager
def hold_lock(root: Path, name: str) -> Iterator[None]:
    """Hold the file lock `name` of a store's root.

    Raises
    ------
    TrackingError
        The folder is not writable, or another process holds the lock for minutes.
    """
    folder = root / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / f"{name}.lock", timeout=_LOCK_SECONDS)
        lock.acquire()
    except filelock.Timeout:
        raise TrackingError(
            f"another process has held the lock for {_LOCK_SECONDS:.0f} s",
            where=str(folder / f"{name}.lock"),
            hint="wait for the other qfr process, or end it if it hangs",
        ) from None
    except OSError as error:
        raise _unwritable(root, error) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def guard(where: str, uri: str = "") -> Iterator[None]:
    """Turn what MLflow, its database and its files raise into a `TrackingError` without secrets, and into
    `StoreAway` when waiting may help."""
    try:
        yield
    except MlflowException as error:
        kind = StoreAway if may_pass(error) else TrackingError
        raise kind(_first_line(str(error), uri), where=where, hint=_hint(error)) from None
    except (sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        kind = StoreAway if may_pass(error) else TrackingError
        raise kind(_first_line(str(error), uri), where=where) from None
    except ModuleNotFoundError as error:
        raise TrackingError(
            f"this kind of store needs the Python package {error.name!r}",
            where=where,
            hint=f"pip install {error.name}",
        ) from None


# What MLflow's client says around the system's own words when a server does not answer.
_REFUSED = re.compile(r"API request to \S+ failed with exception .*(\[Errno \d+\] [^\"')]+)")


def _first_line(text: str, uri: str) -> str:
    line = text.strip().partition("\n")[0]
    if refused := _REFUSED.match(line):
        return f"nobody answers ({refused[1]})"
    return redact(line if len(line) <= 500 else f"{line[:500]} …", uri)


def _hint(error: MlflowException) -> str | None:
    if error.error_code == "TEMPORARILY_UNAVAILABLE":
        return "is the disk full or the database locked by another program? Nothing played is lost: run again"
    if "Invalid Host header" in str(error):
        return (
            "start the server with the name and port of tracking.uri among those that it answers to: "
            "mlflow server … --allowed-hosts 'HOST:PORT,localhost:*'"
        )
    if error.error_code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return "give the server's user and password in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    if "API request" in str(error):
        return "is the MLflow server still up? Nothing played is lost: run the same command again"
    return None


def _store(uri: str, root: Path, client: MlflowClient, found: Experiment) -> Store:
    shown = redact(uri, uri)
    if found.lifecycle_stage != "active":
        raise TrackingError(
            f"the experiment {found.name!r} was deleted (MLflow keeps deleted ones until they are purged)",
            where=shown,
            hint=f"restore it: mlflow experiments restore --experiment-id {found.experiment_id}"
            " (with MLFLOW_TRACKING_URI set to the store), or choose another tracking.experiment",
        )
    return Store(
        tracking_uri=uri,
        shown=shown,
        experiment=found.name,
        experiment_id=found.experiment_id,
        root=root,
        artifact_location=found.artifact_location,
        is_sqlite=uri.startswith("sqlite:"),
        client=client,
    )


def _quiet() -> None:
    # MLflow prints each database error with its traceback before raising it; we say it once, in words.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _unwritable(root: Path, error: OSError) -> TrackingError:
    return TrackingError(
        f"the folder of the store cannot be written ({error.strerror or error})",
        where=str(root),
        hint="choose another tracking.root, or mend its permissions",
    )
