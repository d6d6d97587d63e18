"""A local store that was moved or copied: the locations in its database follow the folder that it stands in.

MLflow keeps absolute artifact locations. Without this a moved store would write to its old place, and a copy
into the original.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from qfr.errors import StoreAway

_ARTIFACTS = "artifacts"
# Where MLflow keeps locations: table, key, column, condition.
_PLACES = (
    ("runs", "run_uuid", "artifact_uri", "TRUE"),
    ("logged_models", "model_id", "artifact_location", "TRUE"),
    ("trace_tags", "request_id", "value", "key = 'mlflow.artifactLocation'"),
)


@dataclass(frozen=True)
class _Move:
    """An experiment whose artifacts are said to lie elsewhere."""

    experiment_id: int
    old: Path
    new: Path
    # Folder of its artifacts, as the database says and under the root that it stands in.


@dataclass
class _Done:
    """What was done, for one line."""

    runs: int = 0
    copied: int = 0
    left: int = 0


def stands_elsewhere(path: Path, root: Path) -> bool:
    """The database names artifact folders of this store that are not under its root."""
    with closing(_open(path)) as connection:
        return bool(_moves(connection, path.parent, root))


def follow(path: Path, root: Path, *, copy: bool, stands: Path | None = None) -> str:
    """Let all locations of a store follow its root. The caller holds the store's lock.

    Parameters
    ----------
    path : Path
        The SQLite database.
    root : Path
        Where the store stands now: its artifacts are under `artifacts/`.
    copy : bool
        Copy files that are in the old place only. Where they are not copied, they are read there.
    stands : Path or None
        Folder of the database, where `path` is a copy of it made for reading.

    Returns
    -------
    str
        What was done, in one line; empty when there was nothing to do.

    Raises
    ------
    StoreAway
        Another program holds the database.
    """
    done = _Done()
    try:
        with closing(_open(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been quicker.
            moves = _moves(connection, stands or path.parent, root)
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            for place in _PLACES:
                if place[0] in tables:
                    _rewrite(connection, place, moves, copy=copy, done=done)
            connection.executemany(
                "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
                [("file://" + quote(str(move.new)), move.experiment_id) for move in moves],
            )
            connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise StoreAway(
            f"its artifact locations could not be changed ({error})",
            where=str(path),
            hint="another program may hold the database; run the same command again",
        ) from None
    told = [move for move in moves if move.experiment_id != 0]
    return _line(told[0].old.parent.parent, root, done) if told else ""


def _rewrite(
    connection: sqlite3.Connection,
    place: tuple[str, str, str, str],
    moves: list[_Move],
    *,
    copy: bool,
    done: _Done,
) -> None:
    table, key, column, condition = place
    rows = connection.execute(f"SELECT {key}, {column} FROM {table} WHERE {condition}").fetchall()
    for row, location in rows:
        found = _renamed(location, moves)
        if found is None:
            continue
        done.runs += table == "runs"
        if _brought(*found, copy=copy, done=done):
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {condition}",
                (_location(found[1], like=location), row),
            )


def _line(old: Path, root: Path, done: _Done) -> str:
    line = f"the store stood at {old} and stands at {root} now: {done.runs} runs are read and written here"
    if done.copied:
        line += f"; files of {done.copied} were copied from the old place"
    if done.left:
        line += f"; files of {done.left} are in the old place only, and are read there"
    return line


def _open(path: Path) -> sqlite3.Connection:
    # Transactions are our own.
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=20, isolation_level=None)


def _moves(connection: sqlite3.Connection, folder: Path, root: Path) -> list[_Move]:
    """Experiments of this store whose locations are under another root.

    A folder is one of ours where it is called after the experiment, under `artifacts/` of a root. Where the
    database stands in the root, both were moved. Where it stands apart (an own `tracking.uri`), only what is
    there under this root has moved: two roots may share a database.
    """
    rows = connection.execute("SELECT experiment_id, name, artifact_location FROM experiments").fetchall()
    inside = _same(folder, root)
    default = next((_root_of(where, "0") for number, _, where in rows if number == 0), None)
    found: list[_Move] = []
    for number, name, where in rows:
        old = _path(where)
        own = _root_of(where, "0" if number == 0 else name)
        if old is None or own is None:
            # Renamed in MLflow, or put elsewhere by hand.
            if old is None or default is None or not old.is_relative_to(default / _ARTIFACTS):
                continue
            own = default
        new = root / _ARTIFACTS / old.relative_to(own / _ARTIFACTS)
        if _same(own, root) or _same(old, new):
            continue
        sure = inside and (own == default or not old.is_dir())
        if sure or new.is_dir():
            found.append(_Move(number, old, new))
    return found


def _root_of(location: str, name: str) -> Path | None:
    """The root of a store whose experiment has its artifacts there; None where it is not of that form."""
    path = _path(location)
    if path is None or path.name != name or path.parent.name != _ARTIFACTS:
        return None
    return path.parent.parent


def _renamed(location: str, moves: list[_Move]) -> tuple[Path, Path] | None:
    path = _path(location)
    if path is None:
        return None
    for move in moves:
        if path.is_relative_to(move.old):
            return path, move.new / path.relative_to(move.old)
    return None


def _brought(old: Path, new: Path, *, copy: bool, done: _Done) -> bool:
    """See that the files are in the new place. False: they are in the old one only, and stay there."""
    if new.is_dir() or not old.is_dir():
        return True
    if copy:
        draft = new.with_name(f".{new.name}.{os.getpid()}.new")
        try:
            shutil.copytree(old, draft)
            draft.rename(new)
            done.copied += 1
            return True
        except OSError:
            # A full disk, or files that may not be read: nothing is lost, they are read where they are.
            shutil.rmtree(draft, ignore_errors=True)
    done.left += 1
    return False


def _path(location: str | None) -> Path | None:
    """The local folder behind a location; None where it is none."""
    if not location:
        return None
    if location.startswith("/"):
        return Path(location)
    parts = urlsplit(location)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if local else None


def _location(path: Path, *, like: str) -> str:
    return str(path) if like.startswith("/") else "file://" + quote(str(path))


def _same(one: Path, other: Path) -> bool:
    """The same folder, by whatever path."""
    if one == other:
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False
