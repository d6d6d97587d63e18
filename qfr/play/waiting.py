"""Waiting for a store that is away: calls are repeated with growing pauses, in words, and end on Ctrl-C."""

from __future__ import annotations

import atexit
import errno
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import TypeVar

from qfr.errors import MachineryError, StoreAway, TrackingError
from qfr.tracking.environment import one_try
from qfr.tracking.writing.owner import span

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0

# Seconds; each pause is twice the one before.
_SLOW = 15.0
# Seconds without an answer after which the user is told that a call still lasts.
_GRACE = 3.0
# Seconds that an interrupted call is given to end by itself.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What a disk says that is full for us.


@dataclass
class _Outage:
    """Since when the store of this process is away."""

    since: float | None = None
    # Seconds of the own clock; None = it answers.


# One for the process: a store that is away is waited for once, not by each cell anew.
_OUTAGE = _Outage()


class Patience:
    """Calls a store, and waits when it is away.

    Parameters
    ----------
    seconds : float
        How long one outage is waited for, all calls of this process together.
    say : callable
        Takes a line for the user.
    """

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self._seconds = seconds
        self.say = say

    def call(self, what: str, action: Callable[[], T]) -> T:
        """The action's result, as soon as the store gives one. The action can be repeated without harm.

        Parameters
        ----------
        what : str
            Names it for the user: `llama q8_0 P0 et: logging to MLflow`.
        action : callable

        Raises
        ------
        StoreAway
            The store was away for longer than the patience lasts.
        """
        pause, told = _FIRST_PAUSE, False
        while True:
            try:
                result = self._in_thread(what, action)
            except StoreAway as error:
                now = time.monotonic()
                if _OUTAGE.since is None:
                    _OUTAGE.since = now
                left = self._seconds - (now - _OUTAGE.since)
                if left <= 0:
                    raise
                if pause > _FIRST_PAUSE:
                    # The first failure may be a connection that the server closed while nobody used it.
                    self.say(
                        f"{what}: MLflow is away ({_short(error)}); what was played is safe in the journal; "
                        f"trying again in {min(pause, left):.0f} s, for {span(left)} at most"
                    )
                    told = True
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if told:
                    self.say(f"{what}: MLflow is back")
                _OUTAGE.since = None
                return result

    def for_room(self, what: str, action: Callable[[], None]) -> None:
        """Write to the local disk; while it is full, wait.

        Raises
        ------
        MachineryError
            The disk does not take it, for longer than the patience lasts or for good.
        """
        pause, end = _FIRST_PAUSE, time.monotonic() + self._seconds
        while True:
            try:
                return action()
            except OSError as error:
                left = end - time.monotonic()
                if error.errno not in _FULL or left <= 0:
                    raise MachineryError(
                        f"the disk does not take it ({error.strerror or error})",
                        where=what,
                        hint="make room; the same command goes on after the last episode",
                    ) from None
                self.say(
                    f"{what}: {error.strerror}; nothing is lost; trying again in {min(pause, left):.0f} s, "
                    f"for {span(left)} at most"
                )
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _in_thread(self, what: str, action: Callable[[], T]) -> T:
        """Run the action where it cannot hold up Ctrl-C: SQLite waits for a lock without listening."""
        started = time.monotonic()
        with _THREAD.running(action) as answer:
            while True:
                try:
                    return answer.get(_SLOW)
                except multiprocessing.TimeoutError:
                    self.say(f"{what}: no answer from MLflow for {span(time.monotonic() - started)}")
                except KeyboardInterrupt:
                    answer.wait(_GRACE)
                    raise


class _Thread:
    """One daemon thread for calls to the store; a thread that hangs in a call is left to itself."""

    def __init__(self) -> None:
        self._pool: ThreadPool | None = None

    @contextmanager
    def running(self, action: Callable[[], T]) -> Iterator[AsyncResult[T]]:
        """Start an action with one try per request; the answer's `get` raises what it raised."""

        def work() -> T:
            with one_try():
                return action()

        pool, self._pool = self._pool or _new_pool(), None
        answer = pool.apply_async(work)
        try:
            yield answer
        finally:
            if answer.ready() and self._pool is None:
                self._pool = pool
            else:
                pool.terminate()


def _new_pool() -> ThreadPool:
    pool = ThreadPool(1)
    # Else Python warns at its end that it still runs.
    atexit.register(pool.terminate)
    return pool


_THREAD = _Thread()


def briefly(action: Callable[[], None], seconds: float = _GRACE) -> str:
    """Run an action for a few seconds at most, as when a process is about to end.

    Returns
    -------
    str
        Why it did not succeed: the store's error, or that there was no answer; empty when it did.
    """
    with _THREAD.running(action) as answer:
        try:
            answer.get(seconds)
        except multiprocessing.TimeoutError:
            return f"no answer from MLflow for {seconds:.0f} s"
        except TrackingError as error:
            return str(error)
    return ""


def _short(error: StoreAway) -> str:
    text = error.what.partition("\n")[0]
    return text if len(text) <= 160 else f"{text[:160]} …"
