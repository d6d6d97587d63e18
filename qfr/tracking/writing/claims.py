"""Taking a cell: one live process at a time plays it, whatever machine and whatever root it works from.

Processes that share a root are kept apart by its file locks. Others meet only in MLflow, which has no locks:
they mark the cell's run as asked for, look who else did, and the lowest key goes on (Lamport's bakery).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from mlflow.entities import Run

from qfr.errors import TrackingError
from qfr.facts import CellFacts
from qfr.tracking.reading.search import carries, is_complete, runs_of_cell, search
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.owner import BEATS, HEARTBEAT, Owner, Verdict, beat, owner_of, verdict
from qfr.tracking.writing.writer import RunHandle, create_claim, start_cell

_ASKING = "qfr.asking."
_LOOKS, _PAUSE = 40, 0.25
# While others ask too: looks at most, and seconds between two.


@dataclass(frozen=True)
class Taken:
    """A cell that this process plays."""

    handle: RunHandle
    note: str
    # From whom it was taken over and why; empty where nobody had it.


@dataclass(frozen=True)
class Held:
    """A cell that another live process plays, or has finished meanwhile."""

    who: str
    # `process 4711 on gpu-1, last sign of life 8 s ago`; empty when it is finished.


@dataclass(frozen=True)
class Claimant:
    """Who takes cells and how it judges others."""

    me: Owner
    stale_after: float
    # Seconds without a sign of life after which a process of another machine counts as dead.

    def judge(self, run: Run, *, locked: bool) -> Verdict:
        """Judge the process of a run."""
        started = run.info.start_time / 1000
        return verdict(
            run.info.run_id, run.data.tags, started, self.me, stale_after=self.stale_after, locked=locked
        )

    @property
    def beat_seconds(self) -> float:
        """Seconds between two signs of life."""
        return self.stale_after / BEATS


def take_cell(store: Store, facts: CellFacts, sweep_run_id: str | None, who: Claimant) -> Taken | Held:
    """Take a cell for this process, which holds the lock of the cell's walk under its own root.

    Raises
    ------
    TrackingError
        The store does not answer. The call may be repeated; it finds what it half did.
    """
    runs = _unfinished(store, facts)
    if runs is None:
        return Held("")
    if (held := _holder(runs, who)) is not None:
        return held
    mark = json.dumps({"owner": who.me.tags, "at": time.time()})
    if runs:
        chosen = runs[0]
        with guard(store.shown, store.tracking_uri):
            store.client.set_tag(chosen.info.run_id, _ASKING + who.me.key, mark)
    else:
        chosen = create_claim(store, facts, {**who.me.tags, _ASKING + who.me.key: mark})
    rival = _settle(store, facts, chosen, who)
    if rival is not None:
        # A run that was made for the mark stays: another may ask on it by now. Who has the cell drops it.
        with guard(store.shown, store.tracking_uri):
            store.client.delete_tag(chosen.info.run_id, _ASKING + who.me.key)
        return rival
    note = _note(chosen, who)
    handle = start_cell(store, facts, sweep_run_id, known=chosen, more_tags=who.me.tags)
    with guard(store.shown, store.tracking_uri):
        store.client.delete_tag(handle.run_id, _ASKING + who.me.key)
    return Taken(handle, note)


def _unfinished(store: Store, facts: CellFacts) -> list[Run] | None:
    """Runs of the cell under its registration that are not complete, newest first; None when one is."""
    runs = [run for run in runs_of_cell(store, facts.cell_id) if carries(run, facts.registration)]
    return None if any(map(is_complete, runs)) else runs


def _holder(runs: Iterable[Run], who: Claimant) -> Held | None:
    for run in runs:
        tags = run.data.tags
        if run.info.status != "RUNNING" or tags.get("qfr.kind") == "claim" or owner_of(tags) is None:
            continue
        said = who.judge(run, locked=True)
        if said.alive:
            return Held(f"{said.who}, {said.why}")
    return None


def _settle(store: Store, facts: CellFacts, chosen: Run, who: Claimant) -> Held | None:
    """Wait until nobody else asks for the cell; the other one, when it is to have it.

    The lowest key goes on. A process with a higher key that looked before our mark stood has the cell
    already and shows as its holder soon; one that looked later sees our mark and withdraws.
    """
    for _ in range(_LOOKS):
        runs = _unfinished(store, facts)
        if runs is None:
            return Held("")
        others = [run for run in runs if run.info.run_id != chosen.info.run_id]
        if (held := _holder(runs, who)) is not None:
            return held
        askers = _askers(runs, who)
        lower = [text for key, text in askers if key < who.me.key]
        if lower:
            return Held(lower[0])
        if not askers:
            _drop_strays(store, others, who)
            return None
        time.sleep(_PAUSE)
    return Held("a process that has asked for it and neither takes it nor ends")


def _askers(runs: Iterable[Run], who: Claimant) -> list[tuple[str, str]]:
    """(key, description) of the other live processes that ask for the cell."""
    found: list[tuple[str, str]] = []
    for run in runs:
        for tag, text in run.data.tags.items():
            key = tag.removeprefix(_ASKING)
            if key == tag or key == who.me.key:
                continue
            try:
                mark = json.loads(text)
                tags, at = dict(mark["owner"]), float(mark["at"])
            except (ValueError, TypeError, KeyError):
                continue
            said = verdict(run.info.run_id + key, tags, at, who.me, stale_after=who.stale_after, locked=True)
            if said.alive:
                found.append((key, f"{said.who}, {said.why}"))
    return found


def _drop_strays(store: Store, runs: Sequence[Run], who: Claimant) -> None:
    """Delete runs that never held anything: a claim whose answer got lost, or whose process died asking."""
    for run in runs:
        if run.data.tags.get("qfr.kind") == "claim" and not _askers([run], who):
            with guard(store.shown, store.tracking_uri):
                store.client.delete_run(run.info.run_id)


def drop_strays(store: Store, cell_id: str, run_id: str, who: Claimant) -> None:
    """Delete what a slow server made of a repeated request: other runs of a cell that only claim it."""
    _drop_strays(store, [run for run in runs_of_cell(store, cell_id) if run.info.run_id != run_id], who)


def give_back(store: Store, taken: Taken) -> None:
    """Let go of a cell that was taken and not played."""
    with guard(store.shown, store.tracking_uri):
        if taken.handle.resumed:
            store.client.set_terminated(taken.handle.run_id, "KILLED")
        else:
            store.client.delete_run(taken.handle.run_id)


def _note(run: Run, who: Claimant) -> str:
    if run.info.status != "RUNNING" or run.data.tags.get("qfr.kind") == "claim":
        return ""
    said = who.judge(run, locked=True)
    return "" if said.own else f"taken over from {said.who}, {said.why}"


def who_plays(store: Store, design_ids: Sequence[str], registration: str | None, who: Claimant) -> str:
    """The live process that plays one of these designs; empty when none does.

    `registration` is an id or its beginning, "" for runs under none, None for any run.
    """
    for design in design_ids:
        for run in search(store, f"tags.`qfr.design_id` = '{design}' AND attributes.status = 'RUNNING'"):
            under = run.data.tags.get("qfr.registration", "")
            if registration is not None and not (
                under.startswith(registration) if registration else not under
            ):
                continue
            said = who.judge(run, locked=True)
            if said.alive:
                return f"{said.who}, {said.why}"
    return ""


def reap(store: Store, who: Claimant, keep: set[str]) -> list[str]:
    """Mark runs of dead processes KILLED, those of the designs in `keep` apart: their walks take them over.

    Returns
    -------
    list of str
        What was done or left alone, a line each.
    """
    lines: list[str] = []
    for run in search(store, "attributes.status = 'RUNNING'"):
        tags = run.data.tags
        if tags.get("qfr.kind") not in ("cell", "claim", "sweep") or owner_of(tags) is None:
            continue
        said = who.judge(run, locked=False)
        name = run.info.run_name or run.info.run_id
        if said.own or tags.get("qfr.design_id") in keep:
            continue
        if said.alive:
            lines.append(f"{name}: left alone: {said.who}, {said.why}")
            continue
        lines.append(f"{name}: its run still said RUNNING; now KILLED: {said.who}, {said.why}")
        with guard(store.shown, store.tracking_uri):
            store.client.set_terminated(run.info.run_id, "KILLED")
    return lines


class Heartbeat:
    """Gives a sign of life for runs from a thread of its own, as long as it is open.

    `lost` names who took a run over while this process was silent for too long; it must stop playing then.
    """

    def __init__(self, store: Store, run_ids: Sequence[str], who: Claimant) -> None:
        self._store, self._run_ids, self._who = store, tuple(run_ids), who
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self.lost = ""

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A beat that hangs in a slow server must not hold up anything; the thread ends with its call.
        self._end.set()

    def _beat(self) -> None:
        while not self._end.wait(self._who.beat_seconds):
            for run_id in self._run_ids:
                try:
                    self._once(run_id)
                except TrackingError:
                    break  # The store is away. Whoever logs to it says so; the next beat comes in its time.

    def _once(self, run_id: str) -> None:
        with guard(self._store.shown, self._store.tracking_uri):
            owner = owner_of(self._store.client.get_run(run_id).data.tags)
            if owner is not None and owner != self._who.me:
                self.lost = owner.shown
            elif not self._end.is_set():
                self._store.client.set_tag(run_id, HEARTBEAT, beat())
