"""One live process at a time plays a cell: who lives, who takes over, and what is left of a race."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from mlflow.entities import Run, ViewType

from qfr.errors import TrackingError
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import runs_of_cell
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing import owner as owners
from qfr.tracking.writing.claims import (
    Claimant,
    Heartbeat,
    Held,
    Taken,
    drop_strays,
    reap,
    take_cell,
    who_plays,
)
from qfr.tracking.writing.owner import HEARTBEAT, Owner, owner_of, start_of, this_process, verdict
from qfr.tracking.writing.sweep import open_sweep
from qfr.tracking.writing.writer import create_claim, finish_cell, start_cell
from tests.tracked import BUILT, CLEAN, FAULT, cell

LIMIT = 600.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that lives until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def another(root: Path, process: subprocess.Popen[bytes], domain: str = "elsewhere") -> Owner:
    """Another process of this machine, with locks of its own."""
    started = start_of(process.pid)
    assert started is not None
    return dataclasses.replace(this_process(root), pid=process.pid, started=started, domain=domain)


def far_away(root: Path, name: str = "gpu-1") -> Owner:
    """A process on another machine."""
    return dataclasses.replace(this_process(root), host=name, machine=f"boot of {name}", domain=name)


def judged(tags: Mapping[str, str], me: Owner, *, locked: bool = True) -> tuple[bool, str]:
    said = verdict("run", tags, time.time(), me, stale_after=LIMIT, locked=locked)
    return said.alive, said.why


# --- who lives ----------------------------------------------------------------------------------------


def test_a_process_of_this_machine_lives_as_long_as_it_lives(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    me, other = this_process(tmp_path), another(tmp_path, sleeper)
    # However old its last sign of life is: it may have been stopped for a while.
    tags = {**other.tags, HEARTBEAT: "1.0"}
    assert judged(tags, me) == (True, "which runs")
    # A later process of the same id is another one.
    reused = {**tags, "qfr.pid_started": str(other.started - 1)}
    assert judged(reused, me) == (False, "which ended")
    sleeper.kill()
    # Not waited for yet, so it is a zombie: ended all the same.
    while start_of(sleeper.pid) is not None:
        time.sleep(0.01)
    assert judged(tags, me) == (False, "which ended")
    sleeper.wait()
    assert judged(tags, me) == (False, "which ended")


def test_under_one_root_the_lock_decides(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    me = this_process(tmp_path)
    neighbour = another(tmp_path, sleeper, domain=me.domain)
    assert judged(neighbour.tags, me, locked=True) == (False, "which let go of it")
    assert judged(neighbour.tags, me, locked=False) == (True, "which runs")
    assert judged(me.tags, me) == (False, "this process")
    # Another root has other locks; the same one the same.
    assert this_process(tmp_path / "other").domain != me.domain
    assert this_process(tmp_path) == me


def test_on_another_machine_the_heartbeat_decides(tmp_path: Path) -> None:
    me, other = this_process(tmp_path), far_away(tmp_path)
    fresh = {**other.tags, HEARTBEAT: f"{time.time() - 30:.3f}"}
    assert judged(fresh, me) == (True, "last sign of life 30 s ago")
    old = {**other.tags, HEARTBEAT: f"{time.time() - 1900:.3f}"}
    assert judged(old, me) == (False, "last sign of life 32 min ago, more than 10 min")
    # The same host name, booted anew or in another container: its process ids mean nothing here.
    assert judged({**old, "qfr.host": me.host, "qfr.pid": "1"}, me)[0] is False
    assert judged({**fresh, "qfr.host": me.host, "qfr.pid": "1"}, me)[0] is True


def test_a_clock_ahead_of_ours_is_found_out_by_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat from the future never grows old by the clock; one that stands still is none."""
    now = [100.0]
    monkeypatch.setattr(owners, "_SEEN", {})
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    me, other = this_process(tmp_path), far_away(tmp_path)
    ahead = {**other.tags, HEARTBEAT: f"{time.time() + 7200:.3f}"}
    assert judged(ahead, me)[0]
    now[0] += LIMIT - 1
    assert judged(ahead, me)[0]
    moved = {**ahead, HEARTBEAT: f"{time.time() + 7300:.3f}"}
    assert judged(moved, me)[0]
    now[0] += LIMIT - 1
    assert judged(moved, me)[0]
    now[0] += 2
    assert not judged(moved, me)[0]


def test_runs_of_before_heartbeats_are_judged_by_their_process(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    me = this_process(tmp_path)
    tags = {"qfr.host": me.host, "qfr.pid": str(sleeper.pid)}
    assert judged(tags, me) == (True, "which runs")
    # The run is older than the process: that is another one of the same id.
    said = verdict("run", tags, time.time() - 1e6, me, stale_after=LIMIT, locked=True)
    assert (said.alive, said.why) == (False, "which ended")
    assert owner_of({"qfr.host": me.host}) is None


# --- taking cells -------------------------------------------------------------------------------------


def taken(store: Store, who: Claimant) -> Taken:
    got = take_cell(store, FAULT, None, who)
    assert isinstance(got, Taken)
    return got


def all_runs(store: Store) -> list[Run]:
    return list(store.client.search_runs([store.experiment_id], run_view_type=ViewType.ACTIVE_ONLY))


def test_a_cell_is_taken_once_and_taken_over_from_the_dead(
    store: Store, sleeper: subprocess.Popen[bytes]
) -> None:
    me = Claimant(this_process(store.root), LIMIT)
    them = Claimant(another(store.root, sleeper), LIMIT)
    theirs = taken(store, them)
    assert (theirs.note, theirs.handle.resumed) == ("", False)
    tags = store.client.get_run(theirs.handle.run_id).data.tags
    assert (tags["qfr.kind"], tags["qfr.pid"]) == ("cell", str(sleeper.pid))
    assert owner_of(tags) == them.me
    assert not [tag for tag in tags if tag.startswith("qfr.asking")]
    held = take_cell(store, FAULT, None, me)
    assert held == Held(f"process {sleeper.pid} on {me.me.host}, which runs")
    assert who_plays(store, [FAULT.design_id], "", me) == held.who
    assert who_plays(store, [FAULT.design_id], "r-1", me) == ""
    # Nothing of the attempt is left.
    assert [run.info.run_id for run in all_runs(store)] == [theirs.handle.run_id]
    assert store.client.get_run(theirs.handle.run_id).data.tags == tags
    sleeper.kill()
    sleeper.wait()
    mine = taken(store, me)
    assert mine.handle.run_id == theirs.handle.run_id
    assert mine.note == f"taken over from process {sleeper.pid} on {me.me.host}, which ended"
    # Again by ourselves, as after a store that was away: no note, no second run.
    assert taken(store, me).note == ""
    finish_cell(store, mine.handle, cell(FAULT, BUILT.faulted))
    assert take_cell(store, FAULT, None, them) == Held("")


def test_a_request_whose_answer_got_lost_leaves_one_run(store: Store) -> None:
    """The server made the run, and nobody here knows its id: it is found by its cell and used."""
    me = Claimant(this_process(store.root), LIMIT)
    lost = create_claim(store, FAULT, {**me.me.tags})
    mine = taken(store, me)
    assert mine.handle.run_id == lost.info.run_id
    assert not mine.handle.resumed
    # A slow server answers the first request after the second.
    late = create_claim(store, FAULT, {**me.me.tags})
    # Readers see no half of a cell.
    assert [c.run_id for c in read_cells(store).unfinished] == [mine.handle.run_id]
    drop_strays(store, FAULT.cell_id, mine.handle.run_id, me)
    assert [run.info.run_id for run in all_runs(store)] == [mine.handle.run_id]
    assert late.info.run_id != mine.handle.run_id


@pytest.mark.parametrize("existing", [False, True])
def test_of_many_that_ask_at_once_one_gets_each_cell(store: Store, existing: bool) -> None:
    """Processes of several machines share nothing but the store."""
    cells = [dataclasses.replace(FAULT, cell_id=f"c-{number}") for number in range(3)]
    if existing:
        # Every cell has a run of a process that is silent for years.
        for facts in cells:
            start_cell(store, facts, None, more_tags={**far_away(store.root).tags, HEARTBEAT: "1.0"})
    got: list[tuple[str, str]] = []
    errors: list[TrackingError] = []
    together = threading.Barrier(4)

    def ask(name: str) -> None:
        mine = open_store(None, store.root, store.experiment)
        who = Claimant(far_away(store.root, name), LIMIT)
        for facts in cells:
            together.wait()
            try:
                if isinstance(take_cell(mine, facts, None, who), Taken):
                    got.append((facts.cell_id, name))
            except TrackingError as error:
                errors.append(error)

    threads = [threading.Thread(target=ask, args=(f"gpu-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(cell_id for cell_id, _ in got) == ["c-0", "c-1", "c-2"]
    for facts in cells:
        winner = next(name for cell_id, name in got if cell_id == facts.cell_id)
        runs = [run for run in runs_of_cell(store, facts.cell_id) if run.data.tags["qfr.kind"] == "cell"]
        assert [run.data.tags["qfr.host"] for run in runs] == [winner]
        drop_strays(store, facts.cell_id, runs[0].info.run_id, Claimant(far_away(store.root, winner), LIMIT))
        assert len(runs_of_cell(store, facts.cell_id)) == 1


def test_a_heartbeat_shows_life_and_notices_a_takeover(store: Store) -> None:
    me = Claimant(this_process(store.root), 1.0)
    mine = taken(store, me)
    before = store.client.get_run(mine.handle.run_id).data.tags[HEARTBEAT]
    with Heartbeat(store, [mine.handle.run_id], me) as beating:
        until(lambda: store.client.get_run(mine.handle.run_id).data.tags[HEARTBEAT] > before)
        assert beating.lost == ""
        # This process was stopped for longer than the limit, and another machine went on.
        start_cell(store, FAULT, None, more_tags=far_away(store.root).tags)
        until(lambda: beating.lost != "")
    assert beating.lost.endswith("on gpu-1")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_runs_of_dead_processes_are_marked_and_living_ones_left_alone(
    store: Store, sleeper: subprocess.Popen[bytes]
) -> None:
    me, other = Claimant(this_process(store.root), LIMIT), another(store.root, sleeper)
    dead = dataclasses.replace(other, started=other.started - 1)
    kept = start_cell(store, FAULT, None, more_tags=dead.tags)
    gone = start_cell(store, CLEAN, None, more_tags=dead.tags)
    old_sweep = open_sweep(store, "s-1", name="demo s-1", tags=dead.tags, planned=[])
    live_sweep = open_sweep(store, "s-2", name="demo s-2", tags=other.tags, planned=[])
    own_sweep = open_sweep(store, "s-3", name="demo s-3", tags=me.me.tags, planned=[])
    lines = sorted(reap(store, me, {FAULT.design_id}))
    who = f"process {sleeper.pid} on {me.me.host}"
    assert lines == [
        f"demo s-1: its run still said RUNNING; now KILLED: {who}, which ended",
        f"demo s-2: left alone: {who}, which runs",
        f"{CLEAN.name}: its run still said RUNNING; now KILLED: {who}, which ended",
    ]

    def status(run_id: str) -> str:
        return str(store.client.get_run(run_id).info.status)

    assert [status(run) for run in (gone.run_id, old_sweep)] == ["KILLED"] * 2
    assert [status(run) for run in (kept.run_id, live_sweep, own_sweep)] == ["RUNNING"] * 3


def test_a_claim_of_a_dead_process_is_used_by_the_next(store: Store) -> None:
    me = Claimant(this_process(store.root), LIMIT)
    claim = create_claim(store, FAULT, dataclasses.replace(me.me, started=me.me.started - 1).tags)
    assert len(reap(store, me, set())) == 1
    assert store.client.get_run(claim.info.run_id).info.status == "KILLED"
    assert taken(store, me).handle.run_id == claim.info.run_id
    assert store.client.get_run(claim.info.run_id).info.status == "RUNNING"
