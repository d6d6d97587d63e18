"""Several sweeps of one grid side by side: one process plays a walk, the others go on and come back to it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock

from qfr.config import CellConfig, TrackingConfig
from qfr.errors import StoreAway, TrackingError
from qfr.grid.outcomes import JobOutcome, Status
from qfr.play.waiting import Patience
from qfr.tracking.store import open_store
from qfr.tracking.writing.claims import Claimant, who_plays
from qfr.tracking.writing.owner import Owner, this_process

_LONGEST_LOOK = 5.0
# Seconds between two looks at walks that others play.


@dataclass(frozen=True)
class Job:
    """A walk as a launcher takes it."""

    name: str
    cell: CellConfig
    # As the job plays it, with walk and sweep.
    overrides: Sequence[str]
    # By which a launcher's worker composes it.
    designs: frozenset[str]
    # Of its cells, the clean pass included.
    clean_design: str


# Runs jobs; returns what they returned.
Launch = Callable[[Sequence[Job]], Sequence[object]]


@contextlib.contextmanager
def walk_lock(root: Path, clean_design: str) -> Iterator[str]:
    """Hold the lock of a walk under a root. It goes with the process, however that ends.

    Yields
    ------
    str
        Who holds it; empty when it is ours now.

    Raises
    ------
    TrackingError
        The folder of locks cannot be written.
    """
    folder = root / "locks"
    note = folder / f"walk-{clean_design}.json"
    lock = filelock.FileLock(folder / f"walk-{clean_design}.lock", timeout=0)
    holder = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        holder = _holder(note)
    except OSError as error:
        raise TrackingError(
            f"the lock of the walk cannot be taken ({error.strerror or error})",
            where=str(folder),
            hint="is the disk full? Nothing played is lost; the same command goes on",
        ) from None
    if holder:
        yield holder
        return
    try:
        _sign(note, this_process(root))
        yield ""
    finally:
        lock.release()


def _sign(note: Path, me: Owner) -> None:
    # For the words of others only; the lock itself decides.
    with contextlib.suppress(OSError):
        note.write_text(
            json.dumps({"pid": me.pid, "host": me.host, "since": time.strftime("%Y-%m-%d %H:%M:%S")})
        )


def _holder(note: Path) -> str:
    try:
        said = json.loads(note.read_bytes())
        return f"process {said['pid']} on {said['host']} plays it, since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process plays it"


def run_jobs(
    jobs: Sequence[Job],
    launch: Launch,
    tracking: TrackingConfig,
    under: str | None,
    say: Callable[[str], None],
) -> list[object]:
    """Launch all jobs; those whose walks other processes play are launched again once these are through.

    Parameters
    ----------
    jobs : sequence of Job
    launch : callable
    tracking : TrackingConfig
    under : str or None
        Of the registration that the sweep runs under, as `who_plays`.
    say : callable
        Takes a line for the user.

    Returns
    -------
    list
        What the jobs returned, the last time that they were launched.
    """
    pending = {job.designs: job for job in jobs}
    results: list[object] = []
    while pending:
        held: dict[frozenset[str], str] = {}
        for one in launch(list(pending.values())):
            left = _left_alone(one)
            if left is not None and left[0] in pending:
                held[left[0]] = left[1]
            else:
                results.append(one)
        others = {designs: job for designs, job in pending.items() if designs in held}
        pending = {}
        if others:
            free = _Others(others, tracking, under, say).wait(held)
            # Those that are still played elsewhere are looked at again with the next round.
            pending = {job.designs: job for job in free}
            pending |= {designs: job for designs, job in others.items() if designs not in pending}
    return results


def _left_alone(outcome: object) -> tuple[frozenset[str], str] | None:
    """(designs, who plays them) of a job that left its walk to another process."""
    if not isinstance(outcome, JobOutcome):
        return None
    held = [cell for cell in outcome.cells if cell.status is Status.elsewhere]
    return (frozenset(cell.design_id for cell in outcome.cells), held[0].reason) if held else None


class _Others:
    """Waits for walks that other processes play."""

    def __init__(
        self,
        jobs: Mapping[frozenset[str], Job],
        tracking: TrackingConfig,
        under: str | None,
        say: Callable[[str], None],
    ) -> None:
        self._jobs, self._tracking, self._under, self._say = dict(jobs), tracking, under, say
        self._root = Path(tracking.root).expanduser().absolute()
        self._who = Claimant(this_process(self._root), tracking.stale_after)
        self._patience = Patience(tracking.patience, say)

    def wait(self, held: Mapping[frozenset[str], str]) -> list[Job]:
        """Wait until one of the walks is free, or finished; return those that are."""
        count = f"{len(held)} walk{'' if len(held) == 1 else 's'}"
        self._say(f"waiting for {count} that others play (Ctrl-C ends this sweep, not theirs):")
        for designs, who in held.items():
            self._say(f"  {self._jobs[designs].name}: {who}")
        while True:
            time.sleep(min(_LONGEST_LOOK, self._who.beat_seconds / 2))
            free = [job for job in self._jobs.values() if not self._played(job)]
            if free:
                return free

    def _played(self, job: Job) -> bool:
        with walk_lock(self._root, job.clean_design) as holder:
            if holder:
                return True
        if self._tracking.uri is None:
            return False
        try:
            what = f"{job.name}: looking who plays it"
            return bool(self._patience.call(what, lambda: self._look(job)))
        except StoreAway:
            return False

    def _look(self, job: Job) -> str:
        tracking = self._tracking
        store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
        return who_plays(store, sorted(job.designs), self._under, self._who)
