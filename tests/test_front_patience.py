"""Waiting for a store that is away: in words, within bounds, and interruptible."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable

import pytest

from qfr.errors import MachineryError, StoreAway, TrackingError
from qfr.play import waiting as patience
from qfr.play.waiting import Patience, briefly


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds, and no outage left over from another test."""
    monkeypatch.setattr(patience, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(patience, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(patience, "_GRACE", 0.1)
    monkeypatch.setattr(patience, "_OUTAGE", patience._Outage())


def failing(times: int, error: Exception) -> tuple[Callable[[], str], list[int]]:
    """An action that fails so often before it succeeds, and its calls."""
    calls: list[int] = []

    def action() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return action, calls


def test_a_store_that_comes_back_is_waited_for_in_words() -> None:
    lines: list[str] = []
    action, calls = failing(4, StoreAway("nobody answers", where="http://h"))
    assert Patience(60, lines.append).call("llama q8_0 P0: logging to MLflow", action) == "done"
    assert len(calls) == 5
    # The first failure is not worth a word: a kept connection is closed by the server now and then.
    assert len(lines) == 4
    for line in lines[:3]:
        assert re.fullmatch(
            r"llama q8_0 P0: logging to MLflow: MLflow is away \(nobody answers\); what was played is safe "
            r"in the journal; trying again in [\d.]+ s, for \d+ s at most",
            line,
        )
    assert lines[3] == "llama q8_0 P0: logging to MLflow: MLflow is back"


def test_patience_is_spent_once_in_an_outage() -> None:
    """The second cell does not wait anew; after the store came back a new outage is waited for again."""
    lines: list[str] = []
    waiting = Patience(0.2, lines.append)
    away, calls = failing(10**6, StoreAway("away"))
    with pytest.raises(StoreAway):
        waiting.call("one", away)
    assert len(calls) > 2
    tried = len(calls)
    with pytest.raises(StoreAway):
        Patience(0.2, lines.append).call("two", away)
    assert len(calls) == tried + 1
    assert waiting.call("three", lambda: "back") == "back"
    with pytest.raises(StoreAway):
        waiting.call("four", away)
    assert len(calls) > tried + 2


def test_what_will_not_pass_is_not_waited_for() -> None:
    lines: list[str] = []
    action, calls = failing(1, TrackingError("the experiment was deleted"))
    with pytest.raises(TrackingError, match="deleted"):
        Patience(60, lines.append).call("x", action)
    assert (len(calls), lines) == (1, [])


def test_no_patience_is_one_try() -> None:
    action, calls = failing(1, StoreAway("away"))
    with pytest.raises(StoreAway):
        Patience(0, print).call("x", action)
    assert len(calls) == 1


def test_a_call_that_hangs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_SLOW", 0.05)
    lines: list[str] = []
    release = threading.Event()

    def said(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            release.set()

    Patience(60, said).call("llama: logging", release.wait)
    assert len(lines) >= 2
    assert all(re.fullmatch(r"llama: logging: no answer from MLflow for [\d.]+ s", line) for line in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("waiting", [True, False])
def test_a_signal_ends_the_waiting(number: signal.Signals, waiting: bool) -> None:
    """In a pause between two tries, and in a call that hangs."""
    before = signal.signal(number, signal.default_int_handler)
    hung, release = threading.Event(), threading.Event()

    def hang() -> bool:
        hung.set()
        return release.wait()

    away, _ = failing(10**6, StoreAway("away"))
    stop = threading.Timer(0.2, lambda: os.kill(os.getpid(), number))
    stop.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            Patience(3600, lambda line: None).call("x", away if waiting else hang)
    finally:
        signal.signal(number, before)
        release.set()
    assert hung.is_set() != waiting
    # A call that hung does not stand in the way of the next one.
    assert Patience(0, print).call("y", lambda: 1) == 1


def test_marking_at_the_end_takes_seconds_at_most() -> None:
    release = threading.Event()
    assert briefly(lambda: None) == ""
    assert briefly(lambda: (release.wait(), None)[1], 0.05) == "no answer from MLflow for 0 s"
    release.set()

    def away() -> None:
        raise StoreAway("nobody answers", where="http://h")

    assert briefly(away) == "http://h: nobody answers"


def test_a_full_disk_is_waited_for_and_another_trouble_is_not() -> None:
    lines: list[str] = []
    written: list[int] = []

    def write() -> None:
        written.append(1)
        if len(written) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    Patience(60, lines.append).for_room("llama: writing the journal", write)
    assert len(lines) == 2
    assert lines[0].startswith("llama: writing the journal: No space left on device; nothing is lost")

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineryError, match="No space left on device") as caught:
        Patience(0.1, lines.append).for_room("llama: writing the journal", full)
    assert "make room" in str(caught.value)

    def denied() -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    started = time.monotonic()
    with pytest.raises(MachineryError, match="Permission denied"):
        Patience(3600, lines.append).for_room("x", denied)
    assert time.monotonic() - started < 3600
