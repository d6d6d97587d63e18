"""A test that may be looked at after every task: "not worse by more than the margin" and "worse".

Each task gives one paired difference between −1 and 1 (candidate minus baseline). Against the hypothesis "the
mean is at most −margin" one bets on every task: a stake λ multiplies the capital by 1 + λ (difference +
margin), which is never negative and does not grow on average while the hypothesis holds. So the chance that
the capital *ever* reaches 1/α is at most α (Ville's inequality), whenever and however often one looks.
"Worse" bets the other way. The capital here is the mean over equally spaced stakes, which needs no tuning and
does not depend on the order of the tasks (Waudby-Smith and Ramdas 2024, arXiv:2010.09686).

Waves hold the families in the suite's own proportions. At the end of a wave the test is valid for such a
stratified sample too: for a fixed stake the product of the families' factors is at most that of their mean
(geometric and arithmetic mean).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from qfr.analysis.decisions.verdict import Outcome, Rule
from qfr.analysis.targets import TaskTable
from qfr.errors import TableError

Floats = npt.NDArray[np.float64]

_STAKES: Final = (np.arange(64) + 0.5) / 64
# Shares of the largest stake that cannot lose everything.
_MEANS: Final = np.linspace(-1, 1, 401)
# Means that the confidence sequence is looked up on: steps of half a point.
_LARGEST: Final = 600.0
# Logarithm of a capital that is large enough for any decision and still a number.


@dataclass(frozen=True)
class Differences:
    """Candidate minus baseline per task, in the order of play. Shape (n,), fractions between −1 and 1."""

    low: Floats
    # Had every fault that never fired ended at its worst for the candidate.
    high: Floats
    # At its best; equal to `low` where all faults fired.
    baseline: Floats
    # Rates of the baseline.


@dataclass(frozen=True)
class Look:
    """What is known after a number of tasks."""

    n: int
    estimate: float
    # Mean difference.
    low: float
    high: float
    # 95 % confidence sequence: it holds at all looks together.
    not_worse: float
    worse: float
    # Capitals of the two bets; 1/α decides.
    outcome: Outcome


def differences(baseline: TaskTable, candidate: TaskTable) -> Differences:
    """Return the paired differences of the target *full*: a task that failed its clean pass counts 0.

    Raises
    ------
    TableError
        The tables list different tasks.
    """
    if baseline.tasks != candidate.tasks:
        raise TableError(f"{baseline.key.name} and {candidate.key.name} list different tasks")
    (low_a, high_a), (low_b, high_b) = _rates(baseline), _rates(candidate)
    return Differences(low_b - high_a, high_b - low_a, low_a)


def _rates(table: TaskTable) -> tuple[Floats, Floats]:
    """Rate of each task with faults that never fired as failures, and as successes."""
    runs = np.maximum(table.scheduled, 1)
    counted = table.certified & (table.scheduled > 0)
    missed = table.scheduled - table.delivered
    low = np.where(counted, table.successes / runs, 0.0)
    return low, np.where(counted, (table.successes + missed) / runs, 0.0)


def log_factors(values: Floats, mean: float, sign: int) -> Floats:
    """Logarithms by which each value multiplies each stake's capital. Shape (len(values), stakes).

    Parameters
    ----------
    values : floats between −1 and 1
    mean : float
        The hypothesis: the mean is at most this (sign 1) or at least this (sign −1).
    sign : 1 or −1
    """
    room = 1 + sign * mean
    if room <= 0:
        return np.zeros((len(values), len(_STAKES)))
    return np.log1p(np.outer(sign * (values - mean), _STAKES / room))


def capital(values: Floats, mean: float, sign: int) -> float:
    """Return the capital of the bet after all values; 1 before the first."""
    distinct, counts = np.unique(values, return_counts=True)
    logs = counts @ log_factors(distinct, mean, sign)
    return float(np.exp(min(_LARGEST, np.logaddexp.reduce(logs) - np.log(len(_STAKES)))))


def look(drawn: Differences, rule: Rule) -> Look:
    """Return what is known after these tasks.

    A baseline that reaches no more than the margin shows nothing: nothing could be worse.
    """
    not_worse, worse = capital(drawn.low, -rule.margin, 1), capital(drawn.high, -rule.margin, -1)
    outcome = Outcome.INCONCLUSIVE
    if worse >= 1 / rule.worse_alpha:
        outcome = Outcome.WORSE
    elif not_worse >= 1 / rule.alpha and float(drawn.baseline.mean()) > rule.margin:
        outcome = Outcome.NOT_WORSE
    half = 2 / rule.alpha
    above = [mean for mean in _MEANS if capital(drawn.low, mean, 1) >= half]
    below = [mean for mean in _MEANS if capital(drawn.high, mean, -1) >= half]
    return Look(
        n=len(drawn.low),
        estimate=float((drawn.low + drawn.high).mean() / 2),
        low=float(max(above, default=-1.0)),
        high=float(min(below, default=1.0)),
        not_worse=not_worse,
        worse=worse,
        outcome=outcome,
    )


def looks(drawn: Differences, ends: Iterable[int], rule: Rule) -> tuple[Look, ...]:
    """Return the looks after each of these numbers of tasks, up to the first that decides."""
    found: list[Look] = []
    for end in ends:
        part = Differences(drawn.low[:end], drawn.high[:end], drawn.baseline[:end])
        found.append(narrowed(look(part, rule), found))
        if found[-1].outcome is not Outcome.INCONCLUSIVE:
            break
    return tuple(found)


def narrowed(one: Look, before: Sequence[Look]) -> Look:
    """Return a look whose interval is the intersection of its own with that of the look before."""
    if not before:
        return one
    return replace(one, low=max(one.low, before[-1].low), high=min(one.high, before[-1].high))
