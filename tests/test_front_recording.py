"""Between a walk and MLflow: what is played while nobody answers, and what is left to others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from qfr.cell import key_of
from qfr.cli import main as qfr
from qfr.errors import MachineryError, StoreAway
from qfr.front.models import compose_cell
from qfr.journal import Journal
from qfr.play import waiting as patience
from qfr.play.cell_run import PlannedRun, journal_folder
from qfr.play.recording import CellLost, Recording, finished_file
from qfr.play.sharing import walk_lock
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import runs_of_cell
from qfr.tracking.store import Store
from qfr.tracking.writing.claims import Claimant, take_cell
from qfr.tracking.writing.outbox import Address, read_parcel, waiting, write_parcel
from qfr.tracking.writing.owner import this_process
from qfr.tracking.writing.writer import start_cell
from tests.mlflow_server import free_port
from tests.tracked import BUILT, CLEAN, FAULT, cell, log_cell

SWEEP = "s-20260101-000000-abcdef"
PASSES = tuple(dataclasses.replace(episode, cell_id=CLEAN.cell_id) for episode in BUILT.clean)
FAULTED = tuple(dataclasses.replace(episode, cell_id=FAULT.cell_id) for episode in BUILT.faulted)


@pytest.fixture(autouse=True)
def _no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_OUTAGE", patience._Outage())


def runs() -> list[PlannedRun]:
    """A clean pass and its fault cell."""
    config = compose_cell("model=scripted", "quant=q8_0", "fault=et")
    return [PlannedRun(config, dataclasses.replace(facts, sweep=SWEEP)) for facts in (CLEAN, FAULT)]


def recording(root: Path, lines: list[str], uri: str | None = None, **more: Any) -> Recording:
    plain = compose_cell("model=scripted", f"tracking.root={root}", "tracking.patience=0").tracking
    return Recording(dataclasses.replace(plain, uri=uri, **more), "d-clean", lines.append)


@pytest.fixture
def nobody() -> str:
    """An address where nobody answers."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("known", "skipped", "played"),
    [
        ([], set(), ["none", "et"]),
        ([CLEAN.cell_id, FAULT.cell_id], {CLEAN.cell_id, FAULT.cell_id}, []),
        # The clean pass cannot be read while MLflow is away: it is played again.
        ([CLEAN.cell_id], set(), ["none", "et"]),
        ([FAULT.cell_id], {FAULT.cell_id}, ["none"]),
    ],
)
def test_while_mlflow_is_away_what_was_finished_before_is_not_played(
    tmp_path: Path, nobody: str, known: list[str], skipped: set[str], played: list[str]
) -> None:
    note = finished_file(tmp_path, SWEEP)
    note.parent.mkdir()
    note.write_text(json.dumps(known))
    lines: list[str] = []
    entered = recording(tmp_path, lines, nobody).enter(runs())
    assert set(entered.finished) == skipped
    assert [one.run.facts.fault for one in entered.cells] == played
    assert entered.clean is None
    assert "its cells are played now and logged later" in lines[-1]


def test_what_is_played_while_mlflow_is_away_lies_whole_on_disk(tmp_path: Path, nobody: str) -> None:
    lines: list[str] = []
    desk = recording(tmp_path, lines, nobody)
    clean, fault = desk.enter(runs()).cells
    for one, episodes, facts in ((clean, PASSES, CLEAN), (fault, FAULTED, FAULT)):
        for episode in episodes:
            desk.keep(one, episode, {"seconds": 1.0})
        assert set(one.done) == {key_of(episode) for episode in episodes}
        with pytest.raises(StoreAway, match="nobody answers"):
            desk.finish(one, cell(facts, episodes))
    parcels = [read_parcel(folder) for folder in waiting(tmp_path)]
    assert [parcel.cell.episodes for parcel in parcels] == [PASSES, FAULTED]
    assert {parcel.address.uri for parcel in parcels} == {nobody}
    # Opened again they are not played on: they wait to be logged.
    again = recording(tmp_path, lines, nobody).enter(runs())
    assert all(one.parcel is not None for one in again.cells)
    assert lines[-2:] == [f"{facts.name}: was played before and is logged now" for facts in (CLEAN, FAULT)]


def test_a_password_is_not_kept_on_disk(
    tmp_path: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = recording(tmp_path, [], nobody.replace("//", "//me:hunter22@"))
    (clean, _) = desk.enter(runs()).cells
    for episode in PASSES:
        desk.keep(clean, episode, {"seconds": 1.0})
    with pytest.raises(StoreAway) as caught:
        desk.finish(clean, cell(CLEAN, PASSES))
    assert "hunter22" not in str(caught.value)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"hunter22" in path.read_bytes()]
    # So it has to be given again.
    assert qfr(["sync", "--root", str(tmp_path)]) == 1
    assert "the address was kept without its password" in capsys.readouterr().out
    assert qfr(["sync", "--root", str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_leftovers_of_a_finished_cell_go_and_another_log_stays(store: Store) -> None:
    planned = runs()
    log_cell(store, cell(CLEAN, PASSES))
    log_cell(store, cell(FAULT, FAULTED))
    half = Journal(journal_folder(store.root, planned[0].facts))
    half.append(PASSES[0], {"seconds": 1.0})
    other = dataclasses.replace(FAULTED[0], answer="0")
    desk = recording(store.root, [])
    whole = Journal(journal_folder(store.root, planned[1].facts))
    whole.append(other, {"seconds": 1.0})
    write_parcel(whole.path.parent, cell(FAULT, (other,)), Address(None, "qfr", "d-clean", 600))
    entered = desk.enter(planned)
    assert set(entered.finished) == {CLEAN.cell_id, FAULT.cell_id}
    assert not half.path.parent.exists()
    assert whole.path.exists()


def test_a_cell_that_another_process_has_is_left_and_nothing_of_the_walk_is_kept(store: Store) -> None:
    me = this_process(store.root)
    far = dataclasses.replace(me, host="gpu-1", machine="another", domain="other")
    # The clean cell is free, its fault cell is played elsewhere: the walk waits as a whole.
    start_cell(store, FAULT, None, more_tags=far.tags)
    entered = recording(store.root, []).enter(runs())
    assert entered.held.startswith(f"process {me.pid} on gpu-1, last sign of life")
    assert entered.cells == ()
    assert runs_of_cell(store, CLEAN.cell_id) == []
    assert len(read_cells(store).unfinished) == 1


def test_playing_stops_when_the_cell_was_taken_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = recording(store.root, [], stale_after=5)
    cells = desk.enter(runs()).cells
    with desk.alive(cells):
        desk.keep(cells[0], PASSES[0], {"seconds": 1.0})
        assert desk._beating is not None
        desk._beating.lost = "process 1 on gpu-1"
        with pytest.raises(CellLost, match="process 1 on gpu-1 took it over"):
            desk.keep(cells[0], PASSES[1], {"seconds": 1.0})
    assert issubclass(CellLost, MachineryError)
    assert len(cells[0].journal.episodes()) == 1


def test_an_interrupted_walk_is_killed_and_a_complete_run_is_not(store: Store) -> None:
    desk = recording(store.root, [])
    clean, fault = desk.enter(runs()).cells
    for episode in PASSES:
        desk.keep(clean, episode, {"seconds": 1.0})
    desk.finish(clean, cell(CLEAN, PASSES))
    # As if the interruption had come before this process noted that the run is complete.
    clean.logged = False
    desk.kill((clean, fault))
    (clean_run,), (fault_run,) = (runs_of_cell(store, facts.cell_id) for facts in (CLEAN, FAULT))
    assert (clean_run.info.status, fault_run.info.status) == ("FINISHED", "KILLED")
    # It goes on in the same run.
    who = Claimant(this_process(store.root), 600)
    got = take_cell(store, FAULT, None, who)
    assert store.client.get_run(fault_run.info.run_id).info.status == "RUNNING"
    assert getattr(got, "note", None) == ""


def test_one_process_at_a_time_holds_a_walk(tmp_path: Path) -> None:
    with walk_lock(tmp_path, "d-1") as holder:
        assert holder == ""
        with walk_lock(tmp_path, "d-1") as second:
            assert second.startswith(f"process {this_process(tmp_path).pid} on ")
        with walk_lock(tmp_path, "d-2") as other:
            assert other == ""
    with walk_lock(tmp_path, "d-1") as again:
        assert again == ""
