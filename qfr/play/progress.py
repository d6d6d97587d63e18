"""What a user sees while cells are played: a bar on a terminal, a line at least every minute elsewhere."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Seconds between two lines where the output is no terminal.
_EVERY = 60.0
# How many walks the sweep has, for the jobs that inherit its environment.
_WALKS = "QFR_WALKS"
# Which of them this job is, from 0: the launcher counts them.
_NUMBER = "QFR_WALK"


def announce(walks: int) -> None:
    """Tell the jobs of this sweep how many there are."""
    os.environ[_WALKS] = str(walks)


def announce_job(number: int) -> None:
    """Tell what is played in this process which of the sweep's jobs it is, from 0."""
    os.environ[_NUMBER] = str(number)


def place() -> str:
    """`walk 3 of 25`, inside a job whose sweep has announced several; else empty."""
    walks, job = os.environ.get(_WALKS, ""), os.environ.get(_NUMBER, "")
    if not walks.isdigit() or int(walks) < 2 or not job.isdigit():
        return ""
    number = int(job) + 1
    # A walk that others played first is launched again, under a number of its own.
    return f"walk {number} of {walks}" if number <= int(walks) else ""


class WalkProgress:
    """Progress of one walk, in episodes. The total shrinks when a task fails its clean pass.

    Parameters
    ----------
    console : Console
        Standard error, so that results on standard output stay clean.
    title : str
        `llama q8_0 P0`.
    total : int
        Episodes at most.
    done : int
        Episodes that stand in the journal already.
    every : float
        Seconds between two lines where the output is no terminal, also while an episode goes on.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        total: int,
        done: int,
        every: float = _EVERY,
    ) -> None:
        self._console, self._every = console, every
        self._title = f"{title} ({where})" if (where := place()) else title
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=total, completed=done, note="")
        self._total, self._done, self._before = total, done, done
        self._note = ""
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._speaker = threading.Thread(target=self._speak, daemon=True, name="progress")

    def __enter__(self) -> WalkProgress:
        self._bar.start()
        if not self._console.is_terminal:
            self._speaker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self._ended.set()
        if self._speaker.is_alive():
            self._speaker.join()

    def advance(self, note: str, dropped: int) -> None:
        """One more episode is played; `dropped` ones will never be, since their task was not certified."""
        self._total -= dropped
        self._done += 1
        self._note = note
        self._bar.update(self._task, advance=1, total=self._total, note=note)

    def _speak(self) -> None:
        while not self._ended.wait(self._every):
            self._console.print(self._line(), markup=False, soft_wrap=True)

    def _line(self) -> str:
        elapsed, played = time.monotonic() - self._started, self._done - self._before
        parts = [f"{self._title}: {self._done:,} of at most {self._total:,} episodes"]
        parts += [self._note] if self._note else []
        parts.append(f"{span(elapsed)} so far")
        if played:
            left = max(self._total - self._done, 0) * elapsed / played
            parts.append(f"at most about {span(left)} to go")
        return ", ".join(parts)


def span(seconds: float) -> str:
    """A duration for a person: `40 s`, `12 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
