"""A walk's cells and their MLflow runs: taken, kept alive, finished, or left on disk for `qfr sync`."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from qfr.cell import key_of
from qfr.config import TrackingConfig
from qfr.engine.files.digests import Watched
from qfr.errors import MachineryError, StoreAway
from qfr.play.cell_run import OpenCell, PlannedRun, clear_finished, open_cell
from qfr.play.waiting import Patience, briefly
from qfr.records import Episode
from qfr.tracking.address import checked
from qfr.tracking.environment import redact
from qfr.tracking.reading.cells import read_finished
from qfr.tracking.reading.search import FinishedRef, find_finished
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.claims import (
    Claimant,
    Heartbeat,
    Held,
    Taken,
    drop_strays,
    give_back,
    take_cell,
    who_plays,
)
from qfr.tracking.writing.outbox import Address, log_played, write_parcel
from qfr.tracking.writing.owner import this_process
from qfr.tracking.writing.sweep import sweep_run
from qfr.tracking.writing.writer import FinishedCell, RunHandle, fail_cell, finish_cell, kill_cell

T = TypeVar("T")

_AGAIN = 3
# Looks at the store while others finish cells in between.


class CellLost(MachineryError):
    """Another process has taken the cell over while this one gave no sign of life."""


@dataclass(frozen=True)
class Entered:
    """What a walk has to do."""

    finished: dict[str, str] = field(default_factory=dict)
    # Cells that are finished already: cell_id → run id.
    clean: tuple[Episode, ...] | None = None
    # The finished clean pass; None when it is part of the walk.
    cells: tuple[OpenCell, ...] = ()
    held: str = ""
    # The live process that plays the walk, which is then left to it.


class Recording:
    """Between a walk and MLflow. The caller holds the walk's lock under its root.

    Parameters
    ----------
    tracking : TrackingConfig
    clean_design : str
        Of the walk's clean pass; names the lock.
    say : callable
        Takes a line for the user.
    """

    def __init__(self, tracking: TrackingConfig, clean_design: str, say: Callable[[str], None]) -> None:
        self._tracking = tracking
        self.root, uri = checked(tracking.uri, Path(tracking.root), tracking.experiment)
        shown = None if tracking.uri is None else redact(uri, uri)
        self._address = Address(shown, tracking.experiment, clean_design, tracking.stale_after)
        self.say = say
        self._patience = Patience(tracking.patience, say)
        self._who = Claimant(this_process(self.root), tracking.stale_after)
        self._store: Store | None = None
        self._opened: dict[str, OpenCell] = {}
        self._taken: dict[str, RunHandle] = {}
        self._beating: Heartbeat | None = None
        self._watched: Watched | None = None

    def wait_for(self, what: str, action: Callable[[], T]) -> T:
        """Call the store with patience. Raises `StoreAway` when that is spent."""
        return self._patience.call(what, action)

    def held_elsewhere(self, name: str, designs: Sequence[str], registration: str | None) -> str:
        """The live process that plays these designs from another root or machine; empty when none does, or
        when MLflow is away and cannot tell. A database under the root is reached through its locks alone."""
        if self._tracking.uri is None:
            return ""
        try:
            return self.wait_for(
                f"{name}: looking who plays it",
                lambda: who_plays(self._reach(), designs, registration, self._who),
            )
        except StoreAway:
            return ""

    def enter(self, runs: Sequence[PlannedRun]) -> Entered:
        """Take the cells that are to be played.

        With MLflow away for longer than the patience lasts, everything that is not known to be finished is
        played all the same, into the journals.

        Raises
        ------
        TrackingError
            The store refuses for good.
        LogError
            A journal is damaged.
        """
        name = runs[0].facts.name.removesuffix(" none")
        try:
            return self.wait_for(f"{name}: taking its cells", lambda: self._take(self._reach(), runs))
        except StoreAway as error:
            known = self._known_before(runs[0].facts.sweep)
            self.say(f"{name}: MLflow is away ({error.what}); its cells are played now and logged later")
            left = [one for one in runs if one.facts.cell_id not in known]
            if left and left[0] is not runs[0]:
                # The finished clean pass cannot be read: it is played again, with the same bytes.
                left.insert(0, runs[0])
            finished = {one.facts.cell_id: "" for one in runs if one not in left}
            return Entered(finished, None, tuple(map(self._open, left)))

    def _take(self, store: Store, runs: Sequence[PlannedRun]) -> Entered:
        under = runs[0].facts.registration or None
        sweep = sweep_run(store, runs[0].facts.sweep)
        for _ in range(_AGAIN):
            # A registered sweep runs anew: only runs that carry the same registration count as finished.
            found = find_finished(store, [one.facts.cell_id for one in runs], registration=under)
            open_runs = [one for one in runs if one.facts.cell_id not in found]
            cells = [self._open(one) for one in open_runs]
            taken: list[Taken] = []
            held: Held | None = None
            for cell in cells:
                got = take_cell(store, cell.run.facts, sweep, self._who)
                if isinstance(got, Held):
                    held = got
                    break
                taken.append(got)
                cell.handle = self._taken[cell.run.facts.cell_id] = got.handle
            if held is None:
                for planned in runs:
                    if (ref := found.get(planned.facts.cell_id)) is not None:
                        clear_finished(self.root, planned.facts, ref.log_sha256)
                for cell, one in zip(cells, taken, strict=True):
                    if one.note:
                        self.say(f"{cell.run.facts.name}: {one.note}")
                ids = {cell_id: ref.run_id for cell_id, ref in found.items()}
                return Entered(ids, _clean(store, runs, found) if cells else None, tuple(cells))
            for cell, one in zip(cells, taken, strict=False):
                give_back(store, one)
                cell.handle = None
            self._taken.clear()
            if held.who:
                return Entered(held=held.who)
        return Entered(held="processes that finish its cells one after the other")

    def _open(self, one: PlannedRun) -> OpenCell:
        cell_id = one.facts.cell_id

        def read() -> None:
            self._opened[cell_id] = open_cell(self.root, one, self.say)

        if cell_id not in self._opened:
            self._patience.for_room(f"{one.facts.name}: opening its journal", read)
        return self._opened[cell_id]

    @contextlib.contextmanager
    def alive(self, cells: Sequence[OpenCell]) -> Iterator[None]:
        """Give signs of life for the cells' runs while they are played and logged."""
        ids = [cell.handle.run_id for cell in cells if cell.handle is not None]
        if self._store is None or not ids:
            yield
            return
        with Heartbeat(self._store, ids, self._who) as self._beating:
            yield

    def watch(self, model: Path) -> None:
        """From now on keep nothing once somebody has written to this model file."""
        self._watched = Watched.of(model)

    def keep(self, cell: OpenCell, episode: Episode, timing: dict[str, str | int | float]) -> None:
        """Put an episode into the cell's journal; on a full disk, wait for room.

        Raises
        ------
        MachineryError
            There was no room for longer than the patience lasts, another process took the cell over, or the
            model file was changed.
        """
        if self._watched is not None:
            self._watched.check()
        if self._beating is not None and self._beating.lost:
            raise CellLost(
                f"{self._beating.lost} took it over, since this process gave no sign of life for too long",
                hint="the cell is finished there",
            )
        self._patience.for_room(
            f"{cell.run.facts.name}: writing the journal", lambda: cell.journal.append(episode, timing)
        )
        cell.done[key_of(episode)] = episode

    def settle(self, cell: OpenCell) -> None:
        """See that the cell's journal is on disk; on a full disk, wait for room.

        Raises
        ------
        MachineryError
            There was no room for longer than the patience lasts.
        """
        self._patience.for_room(f"{cell.run.facts.name}: writing the journal", cell.journal.settle)

    def finish(self, cell: OpenCell, played: FinishedCell) -> str:
        """Log a played cell. Returns the run's id.

        Raises
        ------
        TrackingError
            MLflow does not take it, for longer than the patience lasts or for good; it stays on disk, whole.
        """
        folder = cell.journal.path.parent
        whole = cell.parcel.cell if cell.parcel is not None else played
        if cell.parcel is None:
            try:
                write_parcel(folder, whole, self._address)
            except OSError as error:
                self.say(f"{cell.run.facts.name}: no copy for qfr sync could be written ({error.strerror})")
        run_id = self.wait_for(
            f"{cell.run.facts.name}: logging to MLflow", lambda: self._log(self._reach(), cell, whole)
        )
        cell.logged = True
        shutil.rmtree(folder)
        return run_id

    def _log(self, store: Store, cell: OpenCell, whole: FinishedCell) -> str:
        if cell.handle is None:
            return log_played(store, whole, self._who)
        finish_cell(store, cell.handle, whole)
        drop_strays(store, cell.handle.cell_id, cell.handle.run_id, self._who)
        return cell.handle.run_id

    def fail(self, cell: OpenCell, error: str) -> None:
        """Mark the cell's run FAILED; a worker's error ends with the last lines of its log.

        Raises `TrackingError` when MLflow does not take it.
        """
        handle = cell.handle
        if handle is not None:
            self.wait_for(
                f"{cell.run.facts.name}: marking it FAILED",
                lambda: fail_cell(self._reach(), handle, error, ""),
            )

    def kill(self, cells: Sequence[OpenCell]) -> None:
        """Mark what was not finished KILLED, if MLflow takes it within seconds."""
        done = {cell.run.facts.cell_id for cell in cells if cell.logged}
        left = [handle for cell_id, handle in self._taken.items() if cell_id not in done]
        store = self._store
        if store is None or not left:
            return

        def mark() -> None:
            for handle in left:
                kill_cell(store, handle)

        if problem := briefly(mark):
            self.say(f"interrupted runs may still say RUNNING: {problem}")

    def _reach(self) -> Store:
        if self._store is None:
            tracking = self._tracking
            self._store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
        return self._store

    def _known_before(self, sweep: str) -> set[str]:
        try:
            return set(json.loads(finished_file(self.root, sweep).read_bytes()))
        except (OSError, ValueError):
            return set()


def finished_file(root: Path, sweep: str) -> Path:
    """Where a sweep notes which cells were finished when it began: what is known while MLflow is away."""
    return root / "sweeps" / f"{sweep or 'none'}.json"


def _clean(
    store: Store, runs: Sequence[PlannedRun], found: dict[str, FinishedRef]
) -> tuple[Episode, ...] | None:
    """The clean pass from the store when it is finished; None when it is part of this walk."""
    ref = found.get(runs[0].facts.cell_id)
    return None if ref is None else read_finished(store, ref)
