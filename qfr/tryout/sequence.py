"""The files of one model in a fixed sequence, from large to small, each against the largest.

A smaller file is tried only when the one before it was shown to be not worse by more than the margin, so the
chance that a file is named that is truly worse by more stays at alpha over the whole answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from qfr.analysis.decisions.sequential import Look, Paired, Sequential
from qfr.analysis.decisions.verdict import Outcome
from qfr.errors import MachineryError, ModelFileError
from qfr.tryout.files import Arm, Family
from qfr.tryout.waves import Waves


@dataclass
class Tried:
    """One file against the reference."""

    arm: Arm
    looks: tuple[Look, ...] = ()
    failure: str = ""
    # Why it could not be played.

    @property
    def outcome(self) -> Outcome:
        return self.looks[-1].outcome if self.looks else Outcome.INCONCLUSIVE


@dataclass
class Answer:
    """What was found for one model."""

    family: Family
    limit: float | None
    # Largest file that will do, in 10^9 bytes; None = any.
    rule: Sequential
    tried: list[Tried] = field(default_factory=list)
    stopped: str = ""
    # Why it ended before all was known; empty where it did not.

    @property
    def reference(self) -> Arm:
        return self.family.arms[0]

    @property
    def named(self) -> Arm | None:
        """The smallest file that was shown, or the reference where it fits; None where neither is."""
        shown = [one.arm for one in self.tried if one.outcome is Outcome.NOT_WORSE]
        if shown:
            return shown[-1]
        fits = self.limit is None or self.reference.gigabytes <= self.limit
        return self.reference if fits and not self.stopped else None


class _ReferenceBroke(MachineryError):
    """No file can be compared any more."""


def run(
    family: Family,
    waves: Callable[[Arm], Waves],
    count: int,
    rule: Sequential,
    limit: float | None,
    *,
    look: Callable[[Tried], None],
    time_is_up: Callable[[], bool],
) -> Answer:
    """Try the files that fit, from the largest to the smallest.

    Parameters
    ----------
    family : Family
    waves : callable
        Opens the waves of a file.
    count : int
        Waves of the suite.
    rule : Sequential
    limit : float or None
        Largest file that will do, in 10^9 bytes.
    look : callable
        Told of each look.
    time_is_up : callable
        Asked before each wave.
    """
    answer = Answer(family, limit, rule)
    reference = waves(family.arms[0])
    candidates = [one for one in family.arms[1:] if limit is None or one.gigabytes <= limit]
    for arm in candidates:
        tried = Tried(arm)
        answer.tried.append(tried)
        try:
            done = _settle(tried, reference, waves(arm), count, rule, look, time_is_up)
        except _ReferenceBroke as error:
            answer.stopped = f"{answer.reference.label}, the reference, could not be played: {error.what}"
            return answer
        except (MachineryError, ModelFileError) as error:
            # That it cannot be loaded says nothing of results: the sequence goes on with the next file.
            tried.failure = error.what
            continue
        if at_floor(reference, rule):
            answer.stopped = f"{answer.reference.label} itself reaches no more than the margin"
            return answer
        if not done:
            answer.stopped = "the time is up"
            return answer
        if tried.outcome is not Outcome.NOT_WORSE:
            return answer
    return answer


def _settle(
    tried: Tried,
    reference: Waves,
    candidate: Waves,
    count: int,
    rule: Sequential,
    look: Callable[[Tried], None],
    time_is_up: Callable[[], bool],
) -> bool:
    """Play waves until one side is shown or the suite is used up; False when the time was up before."""
    played: list[Paired] = []
    for number in range(1, count + 1):
        if time_is_up():
            return False
        try:
            a = reference.wave(number)
        except (MachineryError, ModelFileError) as error:
            raise _ReferenceBroke(error.what) from error
        b = candidate.wave(number)
        played.append(Paired(b.rates - a.most, b.most - a.rates, a.rates))
        tried.looks = rule.looks(played)
        look(tried)
        if tried.outcome is not Outcome.INCONCLUSIVE or (number > 1 and at_floor(reference, rule)):
            return True
    return True


def at_floor(reference: Waves, rule: Sequential) -> bool:
    """Whether the reference reaches so little that nothing could be worse by more than the margin."""
    rates = [float(rate) for one in reference.played for rate in one.rates]
    return bool(rates) and statistics.fmean(rates) <= rule.margin
