"""A played cell that MLflow did not take: whole on disk, logged later, never twice."""

from __future__ import annotations

import dataclasses
import errno
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy.exc
from mlflow.exceptions import MlflowException, RestException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE

from qfr.cell import key_of
from qfr.config import Traces
from qfr.errors import LogError, StoreAway, TrackingError
from qfr.journal import Journal
from qfr.tracking.outage import may_pass
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import runs_of_cell
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.claims import Claimant
from qfr.tracking.writing.outbox import (
    CELL_FILE,
    Address,
    log_played,
    read_parcel,
    unfinished,
    waiting,
    write_parcel,
)
from qfr.tracking.writing.owner import this_process
from qfr.tracking.writing.sweep import open_sweep
from qfr.tracking.writing.writer import FinishedCell, create_claim, start_cell
from tests.tracked import BUILT, CLEAN, FAULT, cell, log_cell

ADDRESS = Address(uri=None, experiment="qfr", clean_design="d-clean", stale_after=600)


def played(root: Path, finished: FinishedCell) -> Path:
    """The folder of a cell that was played and not logged."""
    journal = Journal(root / "journal" / finished.facts.cell_id)
    for number, episode in enumerate(finished.episodes):
        journal.append(episode, {"seconds": 1.0, "number": number})
    whole = dataclasses.replace(finished, timing=journal.timing_path.read_bytes())
    write_parcel(journal.path.parent, whole, ADDRESS)
    return journal.path.parent


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A fault cell and its clean pass."""
    return played(tmp_path, cell(FAULT, BUILT.faulted)), played(tmp_path, cell(CLEAN, BUILT.clean))


def test_a_parcel_there_and_back(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    fault, clean = folders
    # Clean passes are logged first.
    assert waiting(tmp_path) == [clean, fault]
    assert unfinished(tmp_path) == []
    for folder, expected in ((fault, cell(FAULT, BUILT.faulted)), (clean, cell(CLEAN, BUILT.clean))):
        parcel = read_parcel(folder)
        timing = (folder / "timing.jsonl").read_bytes()
        assert parcel.cell == dataclasses.replace(expected, timing=timing)
        assert parcel.address == ADDRESS
    # Without the file that is written last it is a cell to be played on.
    (fault / CELL_FILE).unlink()
    assert (waiting(tmp_path), unfinished(tmp_path)) == ([clean], [fault])


@pytest.mark.parametrize(
    "name", ["journal.jsonl", "clean.jsonl", "prompt.md", "suite.json", "config.yaml", CELL_FILE]
)
def test_a_changed_byte_or_a_missing_file_is_found(folders: tuple[Path, Path], name: str) -> None:
    path = folders[0] / name
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :])
    with pytest.raises(LogError) as caught:
        read_parcel(folders[0])
    assert str(folders[0]) in str(caught.value)
    path.unlink()
    with pytest.raises(LogError):
        read_parcel(folders[0])


def test_a_parcel_of_another_version_is_refused(folders: tuple[Path, Path]) -> None:
    path = folders[0] / CELL_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(LogError, match="version 99"):
        read_parcel(folders[0])


def test_what_was_played_is_logged_later_as_it_would_have_been(
    store: Store, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    who = Claimant(this_process(store.root), 600)
    sweep = open_sweep(store, FAULT.sweep, name="demo", tags={}, planned=[])
    ids = [log_played(store, read_parcel(folder).cell, who) for folder in waiting(tmp_path)]
    # Repeated, as after a crash before the folder went: nothing is added.
    assert [log_played(store, read_parcel(folder).cell, who) for folder in waiting(tmp_path)] == ids
    reading = read_cells(store)
    assert (reading.alarms, reading.notes, reading.unfinished) == ((), (), ())
    later = {one.facts.fault: one for one in reading.cells}
    assert {one.run_id for one in later.values()} == set(ids)
    assert read_episodes(store, later["et"]) == BUILT.faulted
    assert store.client.get_run(ids[0]).data.tags["mlflow.parentRunId"] == sweep
    for fault, facts, episodes in (("none", CLEAN, BUILT.clean), ("et", FAULT, BUILT.faulted)):
        one = later[fault]
        direct = log_cell(store, cell(facts, episodes))
        tags = store.client.get_run(direct.run_id).data.tags
        assert one.log_sha256 == tags["qfr.log_sha256"]
        assert one.metrics == store.client.get_run(direct.run_id).data.metrics
        uri = store.client.get_run(direct.run_id).info.artifact_uri
        name = "scores/strict@1.parquet"
        assert read_artifact(store, one.run_id, one.artifact_uri, name) == read_artifact(
            store, direct.run_id, uri, name
        )


@pytest.mark.parametrize("half", ["claim", "started"])
def test_a_run_half_made_before_the_server_died_is_completed(
    store: Store, folders: tuple[Path, Path], half: str
) -> None:
    who = Claimant(this_process(store.root), 600)
    dead = dataclasses.replace(who.me, started=who.me.started - 1, domain="gone")
    if half == "claim":
        begun = create_claim(store, CLEAN, dead.tags).info.run_id
    else:
        begun = start_cell(store, CLEAN, None, more_tags=dead.tags).run_id
    assert log_played(store, read_parcel(folders[1]).cell, who) == begun
    assert [run.info.run_id for run in runs_of_cell(store, CLEAN.cell_id)] == [begun]


def test_a_cell_that_another_process_has_is_left_to_it(store: Store, folders: tuple[Path, Path]) -> None:
    who = Claimant(this_process(store.root), 600)
    far = dataclasses.replace(who.me, host="gpu-1", machine="another", domain="other")
    start_cell(store, CLEAN, None, more_tags=far.tags)
    with pytest.raises(StoreAway, match=r"another process has this cell: process \d+ on gpu-1"):
        log_played(store, read_parcel(folders[1]).cell, who)


def test_another_log_of_a_finished_cell_is_kept_and_raises_the_alarm(
    store: Store, folders: tuple[Path, Path]
) -> None:
    who = Claimant(this_process(store.root), 600)
    log_cell(store, cell(CLEAN, tuple(dataclasses.replace(e, answer="0") for e in BUILT.clean)))
    run_id = log_played(store, read_parcel(folders[1]).cell, who)
    (alarm,) = read_cells(store).alarms
    assert run_id in [run for run, _ in alarm.runs]
    assert len(runs_of_cell(store, CLEAN.cell_id)) == 2
    log_played(store, read_parcel(folders[1]).cell, who)
    assert len(runs_of_cell(store, CLEAN.cell_id)) == 2


def test_traces_of_a_parcel_are_asked_for_as_the_run_asked(tmp_path: Path) -> None:
    folder = played(
        tmp_path, dataclasses.replace(cell(CLEAN, BUILT.clean), traces=Traces.failures, work=None)
    )
    parcel = read_parcel(folder)
    assert (parcel.cell.traces, parcel.cell.work) == (Traces.failures, None)


def test_an_append_that_fails_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """Its second file does not take a line: the first is as before, so that the call can be repeated."""
    journal = Journal(tmp_path / "cell")
    journal.append(BUILT.clean[0], {"seconds": 1.0})
    before = journal.path.read_bytes()
    journal.timing_path.unlink()
    journal.timing_path.mkdir()
    with pytest.raises(IsADirectoryError):
        journal.append(BUILT.clean[1], {"seconds": 1.0})
    assert journal.path.read_bytes() == before
    journal.timing_path.rmdir()
    journal.append(BUILT.clean[1], {"seconds": 1.0})
    assert [key_of(episode) for episode in journal.episodes()] == [key_of(e) for e in BUILT.clean[:2]]


def _answer(code: str) -> MlflowException:
    """A server's answer that says no."""
    build: Callable[[dict[str, str]], MlflowException] = RestException
    return build({"error_code": code, "message": "no"})


def _operational(text: str) -> sqlalchemy.exc.OperationalError:
    return sqlalchemy.exc.OperationalError("INSERT", {}, sqlite3.OperationalError(text))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (MlflowException("API request to http://h failed with exception …"), True),
        (MlflowException("API request to endpoint /x failed with error code 500 != 200."), True),
        (_answer("INTERNAL_ERROR"), True),
        (_answer("TEMPORARILY_UNAVAILABLE"), True),
        (_answer("INVALID_PARAMETER_VALUE"), False),
        (_answer("RESOURCE_DOES_NOT_EXIST"), False),
        (MlflowException("a bug of the client", error_code=INTERNAL_ERROR), False),
        (MlflowException("bad", error_code=BAD_REQUEST), False),
        (MlflowException("database is locked", error_code=TEMPORARILY_UNAVAILABLE), True),
        (MlflowException("attempt to write a readonly database", error_code=TEMPORARILY_UNAVAILABLE), False),
        (_operational("database is locked"), True),
        (_operational("database or disk is full"), True),
        (_operational("no such table: runs"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ConnectionResetError("reset"), True),
        (TimeoutError("slow"), True),
        (FileNotFoundError(errno.ENOENT, "no such file"), False),
        (PermissionError(errno.EACCES, "denied"), False),
    ],
)
def test_what_may_pass_and_what_will_not(error: Exception, passes: bool) -> None:
    assert may_pass(error) == passes
    if isinstance(error, MlflowException | sqlalchemy.exc.SQLAlchemyError | OSError):
        with pytest.raises(TrackingError) as caught, guard("here"):
            raise error
        assert isinstance(caught.value, StoreAway) == passes
