"""The SQLite database of a local store: created whole or not at all, checked before MLflow touches it."""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import mlflow
import sqlalchemy.exc
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from qfr.errors import TrackingError

_PREFIX = "sqlite:///"


def uri_of(path: Path) -> str:
    """MLflow's URI of a database file; of all characters only `%` and `?` mean something else in it."""
    return _PREFIX + str(path.absolute()).replace("%", "%25").replace("?", "%3F")


def path_of(uri: str) -> Path:
    """The file behind a `sqlite:///` URI.

    Raises
    ------
    TrackingError
        It names no file (an in-memory database would be lost).
    """
    text = unquote(uri.removeprefix(_PREFIX))
    if not uri.startswith(_PREFIX) or not text or text.startswith(":memory:"):
        raise TrackingError(f"{uri!r} names no database file", hint="sqlite:////absolute/path/mlflow.db")
    return Path(text).absolute()


def exists(uri: str) -> bool:
    """The database file is there and not empty.

    Raises
    ------
    TrackingError
        Its folder cannot be looked into.
    """
    path = path_of(uri)
    try:
        return path.exists() and path.stat().st_size > 0
    except OSError as error:
        raise TrackingError(
            f"the folder of the database cannot be read ({error.strerror or error})",
            where=str(path.parent),
            hint="mend its permissions, or choose another tracking.root (--root)",
        ) from None


def prepare(uri: str, artifacts: Path) -> None:
    """Create the database when it is missing, else check it. The caller holds the store's lock.

    It is built under another name and renamed, so a kill in the middle leaves no half database.

    Raises
    ------
    TrackingError
        As `check`, or the folder is not writable.
    """
    path = path_of(uri)
    if exists(uri):
        check(uri)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*.new*"):
            left.unlink()  # Of a process that was killed here; the lock says that none is at work.
        build: Callable[[str, str], SqlAlchemyStore] = SqlAlchemyStore
        store = build(uri_of(draft), artifacts.as_uri())
        store.engine.dispose()
        with closing(sqlite3.connect(draft)) as connection:
            # Readers and one writer side by side; about 40 % less wall time.
            connection.execute("PRAGMA journal_mode=WAL")
        draft.replace(path)
    except (OSError, sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, MlflowException) as error:
        draft.unlink(missing_ok=True)
        raise TrackingError(
            f"the database cannot be created ({str(error).partition(chr(10))[0]})",
            where=str(path),
            hint="is the disk full, or the folder read-only? Choose another tracking.root",
        ) from None


def writable(uri: str) -> bool:
    """This user may change the database: SQLite writes beside it too."""
    path = path_of(uri)
    return os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def snapshot(uri: str) -> str:
    """A copy of a database that may not be written, with what stands in its write-ahead log; its URI.

    SQLite cannot open such a log where it may not write, and MLflow writes as it opens a database. The copy
    goes with the process.

    Raises
    ------
    TrackingError
        The database cannot be read, or is not one of MLflow.
    """
    path = path_of(uri)
    folder = Path(tempfile.mkdtemp(prefix="qfr-store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "mlflow.db"
    try:
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=20)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error:
            copy.unlink(missing_ok=True)
            for tail in ("", "-wal"):
                if (file := path.with_name(path.name + tail)).exists():
                    shutil.copyfile(file, folder / f"mlflow.db{tail}")
    except OSError as error:
        raise TrackingError(
            f"the database cannot be read ({error.strerror or error})",
            where=str(path),
            hint="mend its permissions, or choose another tracking.root (--root)",
        ) from None
    check(uri_of(copy), where=path)
    return uri_of(copy)


def check(uri: str, where: Path | None = None) -> None:
    """See that the file is an MLflow database of this MLflow's schema; errors name it, or `where`.

    Raises
    ------
    TrackingError
        It is damaged, foreign, read-only, or of a newer or older MLflow.
    """
    path = path_of(uri)
    if path.is_dir():
        raise TrackingError(
            "a folder stands where the database belongs", where=str(where or path), hint="rename it"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise TrackingError(
            "this user may not read and write the database",
            where=str(where or path),
            hint="mend its permissions, or choose another tracking.root (--root)",
        )
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=20)) as connection:
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            }
            rows = (
                connection.execute("SELECT version_num FROM alembic_version").fetchall()
                if "alembic_version" in tables
                else []
            )
    except sqlite3.Error as error:
        raise TrackingError(
            f"the database is damaged or unreadable ({error})",
            where=str(where or path),
            hint="restore a backup, or move it away and run again (played episodes are in the journals)",
        ) from None
    if not rows or "experiments" not in tables:
        raise TrackingError(
            "this SQLite file is no MLflow database",
            where=str(where or path),
            hint="choose another tracking.uri or root",
        )
    _check_revision(str(rows[0][0]), where or path)


def _check_revision(revision: str, path: Path) -> None:
    folder = Path(mlflow.__file__).parent / "store" / "db_migrations" / "versions"
    known = {file.name.partition("_")[0] for file in folder.glob("*_*.py")}
    if revision not in known:
        raise TrackingError(
            f"the database is of a newer MLflow (schema {revision}; this is MLflow {mlflow.__version__})",
            where=str(path),
            hint="install that MLflow version here, or choose another tracking.root",
        )
    # An older schema is told by MLflow itself when it opens the store, with the command that upgrades it.
