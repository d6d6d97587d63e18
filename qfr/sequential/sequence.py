"""Which arm is tested when, and when that stops.

Arms are tested from the largest file to the smallest, each with the whole chance of error, until one is not
shown to be not worse than the reference: a fixed sequence, whose order the file sizes set before any result
is seen. So the chance that the named file is truly worse by more than the margin stays at 5 % at most,
however often one looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qfr.analysis.decisions.sequential import Differences, Look, differences, look, narrowed
from qfr.analysis.decisions.verdict import Outcome, Rule
from qfr.errors import MachineryError
from qfr.sequential.files import Arm, Family
from qfr.sequential.waves import Wave


class Waves(Protocol):
    """What plays one wave of one arm."""

    waves: int

    def wave(self, arm: Arm, number: int) -> Wave: ...


@dataclass(frozen=True)
class Tried:
    """One arm and what is known of it."""

    arm: Arm
    looks: tuple[Look, ...]
    played: tuple[Wave, ...]
    problem: str
    # Why it could not be played; empty if it could.

    @property
    def outcome(self) -> Outcome:
        """What was shown."""
        return self.looks[-1].outcome if self.looks else Outcome.NOT_COMPARABLE


@dataclass(frozen=True)
class Answer:
    """What a family of files came to."""

    family: Family
    rule: Rule
    reference: Tried
    tried: tuple[Tried, ...]
    # In the order of the test.
    chosen: Arm | None
    # The named file; None where none can be named.
    skipped: tuple[Arm, ...]
    # Behind the stop, or larger than allowed.
    seconds: float
    # That playing took, here and before.
    stopped: str
    # Why the sequence stopped, in words; empty where all were shown.
    tasks: int
    # Of the suite: the cap.


def run_sequence(
    family: Family,
    waves: Waves,
    rule: Rule,
    max_bytes: float,
    hours: float,
    tell: Callable[[Arm, Look, int], None],
) -> Answer:
    """Test a family's files against its largest.

    Parameters
    ----------
    max_bytes : float
        Largest file that may be named.
    hours : float
        No new wave is begun after that time.
    tell : callable
        Takes each look as it is made, and the number of its wave.
    """
    return _Sequence(family, waves, rule, hours, tell).run(max_bytes)


class _Sequence:
    """The state of one family's test."""

    def __init__(
        self,
        family: Family,
        waves: Waves,
        rule: Rule,
        hours: float,
        tell: Callable[[Arm, Look, int], None],
    ) -> None:
        self._family, self._waves, self._rule, self._tell = family, waves, rule, tell
        self._until = time.monotonic() + 3600 * hours
        self._reference: list[Wave] = []
        self._stopped = ""

    def run(self, max_bytes: float) -> Answer:
        """Go through the arms."""
        reference = self._family.reference
        rest = [arm for arm in self._family.arms[1:] if arm.bytes <= max_bytes]
        chosen = reference if reference.bytes <= max_bytes else None
        tried: list[Tried] = []
        problem = ""
        try:
            self._baseline(1)
        except MachineryError as error:
            problem, rest = error.what, []
            self._stopped, chosen = f"the reference {reference.label} cannot be played: {problem}", None
        for arm in rest:
            found = self._test(arm)
            tried.append(found)
            if found.problem:
                # A file that cannot be played gives no result that the order could depend on.
                continue
            if found.outcome is not Outcome.NOT_WORSE:
                break
            if chosen is None or arm.bytes < chosen.bytes:
                chosen = arm
        names = {one.arm.path for one in tried}
        return Answer(
            family=self._family,
            rule=self._rule,
            reference=Tried(reference, (), tuple(self._reference), problem),
            tried=tuple(tried),
            chosen=chosen,
            skipped=tuple(arm for arm in self._family.arms[1:] if arm.path not in names),
            seconds=sum(one.seconds for one in (*self._reference, *(w for t in tried for w in t.played))),
            stopped=self._stopped,
            tasks=self._reference[0].table.n_tasks * self._waves.waves if self._reference else 0,
        )

    def _baseline(self, number: int) -> Wave:
        while len(self._reference) < number:
            self._reference.append(self._waves.wave(self._family.reference, len(self._reference) + 1))
        return self._reference[number - 1]

    def _test(self, arm: Arm) -> Tried:
        """Play waves until it is decided, the tasks are used up or the time is."""
        played: list[Wave] = []
        parts: list[Differences] = []
        found: list[Look] = []
        for number in range(1, self._waves.waves + 1):
            if time.monotonic() > self._until:
                self._stopped = f"{arm.label}: the time is up"
                break
            try:
                base = self._baseline(number)
                played.append(self._waves.wave(arm, number))
            except MachineryError as error:
                return Tried(arm, tuple(found), tuple(played), error.what)
            parts.append(differences(base.table, played[-1].table))
            one = narrowed(look(_joined(parts), self._rule), found)
            found.append(one)
            self._tell(arm, one, number)
            if one.outcome is not Outcome.INCONCLUSIVE:
                break
            if not any(bool(wave.table.certified.any()) for wave in self._reference) and number > 1:
                self._stopped = f"the reference {self._family.reference.label} passes no task"
                break
        outcome = found[-1].outcome if found else Outcome.NOT_COMPARABLE
        if outcome is Outcome.WORSE:
            self._stopped = f"{arm.label} is worse"
        elif outcome is Outcome.INCONCLUSIVE and not self._stopped:
            self._stopped = f"{arm.label}: all tasks are used up"
        return Tried(arm, tuple(found), tuple(played), "")


def _joined(parts: Sequence[Differences]) -> Differences:
    return Differences(
        np.concatenate([one.low for one in parts]),
        np.concatenate([one.high for one in parts]),
        np.concatenate([one.baseline for one in parts]),
    )
