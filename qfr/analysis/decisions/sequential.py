"""A gate that stops when it knows: the verdict after each wave of tasks, valid at every look.

Two capitals bet against "worse by more than the margin" and against "not worse by more than the margin"
(`qfr.stats.betting`). The first that reaches 1/α settles the comparison; each is wrong with a chance of at
most α, whenever one stops. The order of the tasks and the waves are fixed before the first task is played.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qfr.analysis.decisions.verdict import Outcome
from qfr.stats import betting
from qfr.stats.lattice import FloatArray


@dataclass(frozen=True, eq=False)
class Paired:
    """Tasks that both played, in the order of play. Arrays of shape (n_tasks,)."""

    least: FloatArray
    # Candidate minus baseline, in -1..1, had every fault that never fired ended at its worst for the
    # candidate.
    most: FloatArray
    # At its best; equal where all faults fired.
    baseline: FloatArray
    # Rates of the baseline, in 0..1.

    @classmethod
    def joined(cls, waves: Sequence[Paired]) -> Paired:
        """All waves as one."""
        names = ("least", "most", "baseline")
        return cls(*(np.concatenate([getattr(one, name) for one in waves] or [[]]) for name in names))


@dataclass(frozen=True)
class Look:
    """What is known after a wave. Differences are candidate minus baseline, fractions."""

    tasks: int
    # Played so far.
    estimate: float
    # Mean difference.
    low: float
    high: float
    # Confidence sequence: at all looks together it covers the true difference with 1 - alpha.
    not_worse: float
    # Capital against "worse by more than the margin"; 1/alpha settles it.
    worse: float
    # Capital against "not worse by more than the margin".
    outcome: Outcome
    # NOT_WORSE or WORSE once settled; it stays.


@dataclass(frozen=True)
class Sequential:
    """The rule: a margin (fraction) and the chance of a wrong answer on either side."""

    margin: float
    alpha: float = 0.05

    def looks(self, waves: Sequence[Paired]) -> tuple[Look, ...]:
        """A look after each wave of paired tasks.

        Faults that never fired count as it hurts each verdict most. While the baseline reaches no more than
        the margin, "not worse" is not said: nothing could be worse.
        """
        every = Paired.joined(waves)
        up, down = betting.above(every.least, -self.margin), betting.below(every.most, -self.margin)
        found: list[Look] = []
        outcome, n = Outcome.INCONCLUSIVE, 0
        for wave in waves:
            n += len(wave.least)
            capital = math.exp(min(up[n - 1], 700.0)), math.exp(min(down[n - 1], 700.0))
            if outcome is Outcome.INCONCLUSIVE:
                outcome = self._outcome(*capital, baseline=float(every.baseline[:n].mean()))
            low = betting.confidence_interval(every.least[:n], self.alpha)[0]
            high = betting.confidence_interval(every.most[:n], self.alpha)[1]
            if found:
                low, high = max(low, found[-1].low), min(high, found[-1].high)
            estimate = float((every.least[:n] + every.most[:n]).mean() / 2)
            found.append(Look(n, estimate, low, high, *capital, outcome))
        return tuple(found)

    def _outcome(self, not_worse: float, worse: float, *, baseline: float) -> Outcome:
        if not_worse >= 1 / self.alpha and baseline > self.margin:
            return Outcome.NOT_WORSE
        return Outcome.WORSE if worse >= 1 / self.alpha else Outcome.INCONCLUSIVE


def waves_of(families: Sequence[int], about: int = 30) -> int:
    """How many waves of about so many tasks a suite makes, each with the suite's own mix of families.

    Only whole blocks of one mix keep the test valid (`qfr.stats.betting`), so the number divides every
    family.

    Parameters
    ----------
    families : sequence of int
        Tasks of each family.
    """
    total, common = sum(families), math.gcd(*families)
    fits = [count for count in range(1, common + 1) if common % count == 0]
    return min(fits, key=lambda count: (abs(total / count - about), count))
