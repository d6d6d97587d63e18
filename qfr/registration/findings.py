"""What a verification finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from qfr.facts import CellFacts


class Verdict(StrEnum):
    """What a finding means."""

    good = "ok"
    note = "note"
    # Worth knowing; the verification does not fail.
    declared = "declared"
    # Not as it was frozen, with a reason that stands with the run.
    problem = "PROBLEM"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    verdict: Verdict
    subject: str
    # What was looked at: the record, a prompt, a cell and its run.
    text: str


@dataclass(frozen=True)
class RanCell:
    """A run of a cell, read back from its artifacts and computed anew."""

    run_id: str
    facts: CellFacts
    complete: bool
    status: str
    started: int
    # Milliseconds since 1970.
    first_ended: float | None
    # Seconds since 1970 when its first episode ended; None where no time was kept.
    log_sha256: str
    # Of the log that is there; empty when it cannot be read.
    clean_log_sha256: str
    # That the run names; empty for a clean pass.
    prompt: bytes | None
    suite: bytes | None
    # Artifacts; None when they cannot be read.
    played: tuple[tuple[str, int], ...]
    # (task, site or -1) of every episode in the log.
    certified: Mapping[str, tuple[str, ...]]
    # Policy: tasks passed, for a clean pass; else empty.
    successes: Mapping[str, int]
    # Policy: successful episodes.
    findings: tuple[Finding, ...]
    # What is wrong with its artifacts.


@dataclass(frozen=True)
class Against:
    """A planned cell's run beside the earlier runs of the same design outside the registration."""

    name: str
    earlier: int
    # How many there are.
    equal: bool | None
    # All of them agree with the registered run; None when there is none.
    text: str
    # In words.


def good(subject: str, text: str) -> Finding:
    """Something is as it should be."""
    return Finding(Verdict.good, subject, text)


def note(subject: str, text: str) -> Finding:
    """Something a reader should know."""
    return Finding(Verdict.note, subject, text)


def declared(subject: str, text: str) -> Finding:
    """Something is not as it was frozen, and the run says why."""
    return Finding(Verdict.declared, subject, text)


def problem(subject: str, text: str) -> Finding:
    """Something is not as it was frozen, or not there."""
    return Finding(Verdict.problem, subject, text)
