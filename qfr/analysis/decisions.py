"""Is a candidate not worse than a baseline by more than a margin: one decision for one pair of cells.

Differences are candidate minus baseline, so a negative one is a loss. A decision rests on the one-sided
bounds of `decision_bound`, which hold for few tasks and for tasks that all agree; the bootstrap interval
stands beside them, and never decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from qfr.analysis.decision_bound import ALPHA, fewest_tasks, lower_bound, tasks_to_show, upper_bound
from qfr.analysis.decomposition import POINTS, Bounds, undelivered_bounds
from qfr.analysis.targets import Samples, Target, TaskTable, samples
from qfr.stats import bootstrap, lattice, power
from qfr.stats.intervals import Estimate
from qfr.stats.power import TasksNeeded

#: Targets that a decision can rest on; S* needs every prompt of a grid and is left to the report.
TARGETS = (Target.full, Target.matched, Target.own, Target.clean, Target.ungated)


class Outcome(StrEnum):
    """What was shown."""

    NOT_WORSE = "not worse"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Rule:
    """What is decided and how sure it must be."""

    target: Target = Target.full
    margin: float = 0.05
    # A fraction; a loss up to it is acceptable.
    alpha: float = ALPHA
    # Chance of a wrong "not worse".
    worse_alpha: float = ALPHA
    # Chance of a wrong "worse": smaller where one of several comparisons suffices to say it.


@dataclass(frozen=True)
class Decision:
    """One comparison. Rates, differences and bounds are fractions; a negative difference is a loss."""

    baseline: str
    candidate: str
    # Names of the cells.
    policy: str
    rule: Rule
    outcome: Outcome
    reason: str
    # Why, in words.
    n_tasks: int
    # Distinct tasks that enter.
    certified_baseline: int
    certified_candidate: int
    rate_baseline: float | None
    rate_candidate: float | None
    difference: Estimate
    # 95 % bootstrap interval (exact), for the reader.
    at_least: float | None
    # Lower bound of the difference, one-sided, of level 1 - alpha: decides "not worse".
    at_most: float | None
    # Upper bound, one-sided, of level 1 - worse_alpha: decides "worse".
    better: int | None
    worse: int | None
    # Tasks on which the candidate is better, and worse; None where tasks are not paired.
    spread: float | None
    # Standard deviation of the paired differences.
    if_equal: TasksNeeded | None
    # Tasks that would show it if there is no true difference; for an inconclusive paired decision. Planned
    # with the observed spread, widened by one imagined task that lost everything.
    if_observed: TasksNeeded | None
    # The same if the observed difference is the true one.
    remarks: tuple[str, ...]

    @property
    def plans(self) -> tuple[tuple[str, TasksNeeded], ...]:
        """Numbers of tasks that would settle an inconclusive decision, each with its condition."""
        if self.if_equal is None or self.if_observed is None:
            return ()
        found = []
        # Where more tasks than that were played, what was observed speaks against "no difference".
        if self.if_equal.n is None or self.if_equal.n > self.n_tasks:
            found.append(("if there is no true difference", self.if_equal))
        if self.if_observed.n != self.if_equal.n:
            found.append(("if the observed difference is the true one", self.if_observed))
        return tuple(found)


def decide(baseline: TaskTable, candidate: TaskTable, rule: Rule, remarks: tuple[str, ...] = ()) -> Decision:
    """Decide one comparison of two cells of the same tasks.

    Parameters
    ----------
    baseline, candidate : TaskTable
        Under one policy.
    rule : Rule
    remarks : tuple of str
        What the reader should know of the pair.

    Raises
    ------
    TableError
        If the tables list different tasks.
    """
    within = np.ones(baseline.n_tasks, dtype=np.bool_)
    drawn = samples(rule.target, baseline, candidate, within)
    at_least, at_most = _bounds(drawn, rule)
    differences = lattice.difference(drawn.rates_b, drawn.rates_a) if drawn.paired else None
    limits = undelivered_bounds(rule.target, baseline, candidate, within, within)
    outcome, reason = _outcome(drawn, baseline, rule, (at_least, at_most))
    if outcome is Outcome.NOT_WORSE and limits is not None and drawn.rates_a.mean is not None:
        outcome, reason = _with_undelivered(drawn, rule, at_least, limits, reason)
    observed = None if differences is None else power.spread(differences)
    needed = _needed(outcome, drawn, rule, observed)
    return Decision(
        baseline=baseline.key.name,
        candidate=candidate.key.name,
        policy=baseline.policy,
        rule=rule,
        outcome=outcome,
        reason=reason,
        n_tasks=int((drawn.enters_a | drawn.enters_b).sum()),
        certified_baseline=baseline.n_certified,
        certified_candidate=candidate.n_certified,
        rate_baseline=drawn.rates_a.mean,
        rate_candidate=drawn.rates_b.mean,
        difference=_estimate(drawn),
        at_least=at_least,
        at_most=at_most,
        better=None if differences is None else int((differences.numerators > 0).sum()),
        worse=None if differences is None else int((differences.numerators < 0).sum()),
        spread=observed,
        if_equal=needed[0],
        if_observed=needed[1],
        remarks=(*remarks, *_remarks(rule, limits)),
    )


def _estimate(drawn: Samples) -> Estimate:
    ask = bootstrap.paired if drawn.paired else bootstrap.two_sample
    return ask(drawn.rates_b, drawn.rates_a)


def _bounds(drawn: Samples, rule: Rule) -> tuple[float | None, float | None]:
    if drawn.paired:
        differences = lattice.difference(drawn.rates_b, drawn.rates_a)
        return lower_bound(differences, rule.alpha), upper_bound(differences, rule.worse_alpha)
    # Two samples: each side takes half of the chance of error.
    half, worse_half = rule.alpha / 2, rule.worse_alpha / 2
    return (
        _minus(lower_bound(drawn.rates_b, half, 0.0), upper_bound(drawn.rates_a, half)),
        _minus(upper_bound(drawn.rates_b, worse_half), lower_bound(drawn.rates_a, worse_half, 0.0)),
    )


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _outcome(
    drawn: Samples, baseline: TaskTable, rule: Rule, bounds: tuple[float | None, float | None]
) -> tuple[Outcome, str]:
    at_least, at_most = bounds
    margin = f"{100 * rule.margin:g} points"
    if baseline.n_certified == 0:
        return Outcome.NOT_COMPARABLE, "the baseline passed no task clean: nothing to compare with"
    if at_least is None or at_most is None or drawn.rates_a.mean is None:
        return Outcome.NOT_COMPARABLE, f"no task enters the target {rule.target}"
    if at_most < -rule.margin:
        return Outcome.WORSE, f"worse by more than {margin} (at least {-100 * at_most:.1f} points are lost)"
    if drawn.rates_a.mean <= rule.margin:
        found = f"the baseline itself reaches {100 * drawn.rates_a.mean:.1f} %"
        return Outcome.INCONCLUSIVE, f"{found}: nothing could be worse by more than {margin}"
    if at_least > -rule.margin:
        return Outcome.NOT_WORSE, f"not worse by more than {margin} (at most {_loss(at_least)} are lost)"
    return Outcome.INCONCLUSIVE, _inconclusive(drawn, rule, at_least)


def _inconclusive(drawn: Samples, rule: Rule, at_least: float) -> str:
    said = f"a loss of up to {-100 * at_least:.1f} points is possible, {100 * rule.margin:g} are allowed"
    n = min(len(drawn.rates_a), len(drawn.rates_b))
    fewest = fewest_tasks(rule.margin, rule.alpha)
    if n < fewest:
        said += (
            f"; {n} tasks cannot settle {100 * rule.margin:g} points, whatever happens on them: "
            f"even without a single loss it takes {fewest}"
        )
    return said


def _loss(at_least: float) -> str:
    return f"{max(0.0, -100 * at_least):.1f} points"


def _needed(
    outcome: Outcome, drawn: Samples, rule: Rule, spread: float | None
) -> tuple[TasksNeeded | None, TasksNeeded | None]:
    if outcome is not Outcome.INCONCLUSIVE or not drawn.paired or spread is None:
        return None, None
    first, second = drawn.rates_a.mean, drawn.rates_b.mean
    if first is None or second is None or first <= rule.margin:
        return None, None
    # Few tasks may show too little spread, or none: like the bound, the plan counts one more that lost all.
    cautious = math.hypot(spread, 1 / math.sqrt(len(drawn.rates_a) + 1))
    found = [tasks_to_show(rule.margin, cautious, gap, alpha=rule.alpha) for gap in (0.0, second - first)]
    return found[0], found[1]


def _with_undelivered(
    drawn: Samples, rule: Rule, at_least: float | None, limits: Bounds, reason: str
) -> tuple[Outcome, str]:
    """Keep "not worse" only where it holds however the faults that never fired had ended."""
    first, second = drawn.rates_a.mean, drawn.rates_b.mean
    assert first is not None
    assert second is not None
    assert at_least is not None
    # The limits are of baseline minus candidate, in points.
    lowest = at_least - max(0.0, second - first + limits.high / POINTS)
    if lowest > -rule.margin:
        return Outcome.NOT_WORSE, reason
    said = f"a loss of up to {_loss(lowest)} is possible, had the faults that never fired ended badly"
    return Outcome.INCONCLUSIVE, said


def _remarks(rule: Rule, limits: Bounds | None) -> tuple[str, ...]:
    found = []
    if rule.target in (Target.own, Target.matched):
        found.append(
            f"the target {rule.target} leaves out tasks that failed their clean pass; full counts them"
        )
    if limits is not None:
        found.append(
            "faults that never fired: counted as failures or successes the difference lies between "
            f"{0.0 - limits.high:+.1f} and {0.0 - limits.low:+.1f} points"
        )
    return tuple(found)
