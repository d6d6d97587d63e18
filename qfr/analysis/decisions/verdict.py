"""The verdict on a pair of cells: better, worse, not worse by more than a margin, equivalent, not settled.

Every place that says what a comparison shows says it from here: the page, the terminal, Markdown, JUnit, the
gate (`qfr compare`), `qfr pick` and MLflow. Differences are candidate minus baseline, so a negative one is a
loss. A verdict rests on the one-sided bounds of `decision_bound`, which hold for few tasks and for tasks that
all agree; no bootstrap interval decides.

- *not worse* and *equivalent*: bounds of level 1 - alpha lie within the margin
- *worse by more than the margin*: the upper bound lies beyond it, of level 1 - alpha shared by all
  comparisons of which one suffices to say it, and the exact test agrees
- *points to* better or worse: nothing is settled, but the Bayesian bootstrap interval excludes zero and the
  exact test has p at most that shared alpha; a rare whole loss that the sample missed may still turn it
- *better*, and *worse* by an amount that is not settled: the same bound lies beyond zero, and the exact
  sign-flip test agrees (p at most alpha, two-sided)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from qfr.analysis.contrast.decomposition import POINTS, Bounds, undelivered_bounds
from qfr.analysis.decisions.bound import ALPHA, fewest_tasks, lower_bound, tasks_to_show, upper_bound
from qfr.analysis.targets import Samples, Target, TaskTable, samples
from qfr.stats import bootstrap, lattice, power
from qfr.stats.bayesian import interval
from qfr.stats.betting import lower_limit, upper_limit
from qfr.stats.exact import sign_flip_test
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


class Direction(StrEnum):
    """Which way a difference is shown to point."""

    BETTER = "better"
    WORSE = "worse"
    NEITHER = ""


@dataclass(frozen=True)
class Rule:
    """What is decided and how sure it must be."""

    target: Target = Target.full
    margin: float = 0.05
    # A fraction; a loss up to it is acceptable.
    alpha: float = ALPHA
    # Chance of a wrong "not worse".
    worse_alpha: float = ALPHA
    # Chance of a wrong "worse" or "better": smaller where one of several comparisons suffices to say it.

    sequential: bool = False
    # Bounds that hold however often one asks while tasks are added (paired targets only); wider than those
    # of one look.

    def shared(self, comparisons: int) -> Rule:
        """The same for one of several comparisons, such as the prompts of one pair of presets."""
        return replace(self, worse_alpha=self.alpha / max(1, comparisons))


@dataclass(frozen=True)
class Decision:
    """One comparison. Rates, differences and bounds are fractions; a negative difference is a loss."""

    baseline: str
    candidate: str
    # Names of the cells.
    policy: str
    rule: Rule
    outcome: Outcome
    direction: Direction
    leaning: Direction
    # Where nothing is settled: which way the evidence points.
    equivalent: bool
    # Both bounds lie within the margin.
    reason: str
    # Why, in words.
    p: float | None
    # Two-sided exact sign-flip test of no difference; None where tasks are not paired.
    n_tasks: int
    # Distinct tasks that enter.
    rate_baseline: float | None
    rate_candidate: float | None
    difference: Estimate
    # 95 % bootstrap interval (exact), for the reader.
    equivalence_low: float | None
    equivalence_high: float | None
    # Both one-sided bounds of level 1 - alpha: within the margin, the two are equivalent.
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
    def label(self) -> str:
        """The verdict in a few words: the same wherever it is shown."""
        margin = f"{POINTS * self.rule.margin:g} points"
        if self.outcome is Outcome.WORSE:
            return f"worse by more than {margin}"
        if self.direction is Direction.BETTER:
            return "better"
        if self.direction is Direction.WORSE:
            return f"worse by less than {margin}" if self.outcome is Outcome.NOT_WORSE else "worse"
        if self.equivalent:
            return f"equivalent within {margin}"
        if self.outcome is Outcome.NOT_WORSE:
            return f"not worse by more than {margin}"
        if self.leaning is not Direction.NEITHER:
            return f"not settled (points to {self.leaning})"
        if self.at_floor:
            return "no evidence possible"
        return "not settled" if self.outcome is Outcome.INCONCLUSIVE else str(self.outcome)

    @property
    def at_floor(self) -> bool:
        """Whether the baseline reaches so little that nothing could be worse by more than the margin."""
        rate = self.rate_baseline
        return self.outcome is Outcome.INCONCLUSIVE and rate is not None and rate <= self.rule.margin

    @property
    def plans(self) -> tuple[tuple[str, TasksNeeded], ...]:
        """Numbers of tasks that would settle an inconclusive decision, each with its condition."""
        if self.if_equal is None or self.if_observed is None:
            return ()
        found = []
        # Where more tasks than that were played, what was observed speaks against "no difference".
        if self.if_equal.n is None or self.if_equal.n > self.n_tasks:
            found.append(("if there is no true difference", self.if_equal))
        if self.if_observed.n is not None and self.if_observed.n != self.if_equal.n:
            found.append(("if the observed difference is the true one", self.if_observed))
        return tuple(found)


def decide(baseline: TaskTable, candidate: TaskTable, rule: Rule, remarks: tuple[str, ...] = ()) -> Decision:
    """Decide one comparison of two cells of the same tasks.

    Parameters
    ----------
    baseline, candidate : TaskTable
        Under one policy.
    remarks : tuple of str
        What the reader should know of the pair.

    Raises
    ------
    TableError
        If the tables list different tasks.
    """
    within = np.ones(baseline.n_tasks, dtype=np.bool_)
    drawn = samples(rule.target, baseline, candidate, within)
    limits = undelivered_bounds(rule.target, baseline, candidate, within, within)
    shift = _shift(drawn, limits)
    bounds = _bounds(drawn, rule, (rule.alpha, rule.worse_alpha), shift)
    at_least, at_most = bounds
    differences = lattice.difference(drawn.rates_b, drawn.rates_a) if drawn.paired else None
    even = _bounds(drawn, rule, (rule.alpha, rule.alpha), shift)
    flip = None if differences is None else sign_flip_test(differences).p
    both = _bounds(drawn, rule, (rule.worse_alpha, rule.worse_alpha), shift)
    direction = _direction(both, flip, rule)
    outcome, reason = _outcome(drawn, baseline, rule, bounds, (direction, flip))
    if any(shift) and outcome is not Outcome.NOT_COMPARABLE:
        reason += "; faults that never fired count as it would hurt this verdict most"
    observed = None if differences is None else power.spread(differences)
    needed = _needed(outcome, drawn, rule, observed)
    return Decision(
        baseline=baseline.key.name,
        candidate=candidate.key.name,
        policy=baseline.policy,
        rule=rule,
        outcome=outcome,
        direction=direction if outcome is not Outcome.NOT_COMPARABLE else Direction.NEITHER,
        leaning=_leaning(drawn, flip, rule, shift) if outcome is Outcome.INCONCLUSIVE else Direction.NEITHER,
        equivalent=outcome is Outcome.NOT_WORSE and _within(even, rule.margin),
        reason=reason,
        p=flip,
        n_tasks=int((drawn.enters_a | drawn.enters_b).sum()),
        rate_baseline=drawn.rates_a.mean,
        rate_candidate=drawn.rates_b.mean,
        difference=_estimate(drawn),
        equivalence_low=even[0],
        equivalence_high=even[1],
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


def _bounds(
    drawn: Samples, rule: Rule, alphas: tuple[float, float], shift: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Both one-sided bounds, which hold however the faults that never fired had ended."""
    alpha, upper_alpha = alphas
    low: float | None
    high: float | None
    if drawn.paired:
        differences = lattice.difference(drawn.rates_b, drawn.rates_a)
        if rule.sequential and len(differences):
            low, high = lower_limit(differences.values, alpha), upper_limit(differences.values, upper_alpha)
        else:
            low, high = lower_bound(differences, alpha), upper_bound(differences, upper_alpha)
    else:
        # Two samples: each side takes half of the chance of error.
        half, upper_half = alpha / 2, upper_alpha / 2
        low = _minus(lower_bound(drawn.rates_b, half, 0.0), upper_bound(drawn.rates_a, half))
        high = _minus(upper_bound(drawn.rates_b, upper_half), lower_bound(drawn.rates_a, upper_half, 0.0))
    if low is None or high is None:
        return None, None
    return max(-1.0, low - shift[0]), min(1.0, high + shift[1])


def _direction(bounds: tuple[float | None, float | None], p: float | None, rule: Rule) -> Direction:
    at_least, at_most = bounds
    if at_least is None or at_most is None or (p is not None and p > rule.alpha):
        return Direction.NEITHER
    return Direction.BETTER if at_least > 0 else Direction.WORSE if at_most < 0 else Direction.NEITHER


def _leaning(drawn: Samples, p: float | None, rule: Rule, shift: tuple[float, float]) -> Direction:
    """Which way the Bayesian interval and the exact test point; a rare whole loss may still turn it."""
    if p is None or p > rule.worse_alpha:
        return Direction.NEITHER
    found = interval(lattice.difference(drawn.rates_b, drawn.rates_a), level=1 - rule.alpha)
    if found.low is None or found.high is None:
        return Direction.NEITHER
    if found.low - shift[0] > 0:
        return Direction.BETTER
    return Direction.WORSE if found.high + shift[1] < 0 else Direction.NEITHER


def _within(bounds: tuple[float | None, float | None], margin: float) -> bool:
    at_least, at_most = bounds
    return at_least is not None and at_most is not None and -margin < at_least <= at_most < margin


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _outcome(
    drawn: Samples,
    baseline: TaskTable,
    rule: Rule,
    bounds: tuple[float | None, float | None],
    tested: tuple[Direction, float | None],
) -> tuple[Outcome, str]:
    (at_least, at_most), (direction, p) = bounds, tested
    margin = f"{100 * rule.margin:g} points"
    if baseline.n_certified == 0:
        return Outcome.NOT_COMPARABLE, "the baseline passed no task clean: nothing to compare with"
    if at_least is None or at_most is None or drawn.rates_a.mean is None:
        return Outcome.NOT_COMPARABLE, f"no task enters the target {rule.target}"
    flat = _flat(drawn)
    if at_most < -rule.margin and (p is None or p <= rule.alpha):
        said = f"worse by more than {margin} (at least {-100 * at_most:.1f} points are lost)"
        return Outcome.WORSE, said + flat
    if direction is Direction.BETTER:
        return Outcome.NOT_WORSE, f"better (at least {100 * max(0.0, at_least):.1f} points are gained){flat}"
    if drawn.rates_a.mean <= rule.margin:
        found = f"the baseline itself reaches {100 * drawn.rates_a.mean:.1f} %"
        return Outcome.INCONCLUSIVE, f"{found}: nothing could be worse by more than {margin}"
    if at_least > -rule.margin:
        return (
            Outcome.NOT_WORSE,
            f"not worse by more than {margin} (at most {_loss(at_least)} are lost){flat}",
        )
    said = _inconclusive(drawn, rule, at_least)
    if direction is Direction.WORSE:
        said = f"worse, but by more than {margin} is not shown; {said}"
    elif p is not None and p <= rule.alpha:
        said += f"; the exact sign-flip test gives p = {p:.4f}, and a rare whole loss may still turn it"
    return Outcome.INCONCLUSIVE, said + flat


def _flat(drawn: Samples) -> str:
    """What the exact test says where every task differs by the same."""
    if not drawn.paired:
        return ""
    differences = lattice.difference(drawn.rates_b, drawn.rates_a)
    values = set(differences.numerators.tolist())
    if len(values) > 1 or len(differences) < 2:
        return ""
    value = POINTS * float(differences.values[0])
    if value == 0:
        return f"; none of {len(differences)} tasks differs, which by itself shows no equality"
    p = sign_flip_test(differences).p
    told = "" if p is None else f" (exact p {'< 0.0001' if p < 1e-4 else f'= {p:.4f}'})"
    return f"; every one of {len(differences)} tasks differs by {value:+.0f} points{told}".replace("-", "−")


def _inconclusive(drawn: Samples, rule: Rule, at_least: float) -> str:
    margin = f"{100 * rule.margin:g} points"
    said = f"a loss of up to {-100 * at_least:.1f} points is possible, {100 * rule.margin:g} are allowed"
    n = min(len(drawn.rates_a), len(drawn.rates_b))
    fewest = fewest_tasks(rule.margin, rule.alpha)
    if n < fewest and not rule.sequential:
        said += (
            f"; {n} tasks cannot show 'not worse by {margin}', whatever happens on them: "
            f"even without a single loss it takes {fewest}"
        )
    return said


def _loss(at_least: float) -> str:
    return f"{max(0.0, -100 * at_least):.1f} points"


def _needed(
    outcome: Outcome, drawn: Samples, rule: Rule, spread: float | None
) -> tuple[TasksNeeded | None, TasksNeeded | None]:
    if outcome is not Outcome.INCONCLUSIVE or not drawn.paired or spread is None or rule.sequential:
        return None, None
    first, second = drawn.rates_a.mean, drawn.rates_b.mean
    if first is None or second is None or first <= rule.margin:
        return None, None
    # Few tasks may show too little spread, or none: like the bound, the plan counts one more that lost all.
    cautious = math.hypot(spread, 1 / math.sqrt(len(drawn.rates_a) + 1))
    found = [tasks_to_show(rule.margin, cautious, gap, alpha=rule.alpha) for gap in (0.0, second - first)]
    return found[0], found[1]


def _shift(drawn: Samples, limits: Bounds | None) -> tuple[float, float]:
    """How far the difference could fall and rise, had the faults that never fired ended at their worst."""
    first, second = drawn.rates_a.mean, drawn.rates_b.mean
    if limits is None or first is None or second is None:
        return 0.0, 0.0
    # The limits are of baseline minus candidate, in points.
    return (
        max(0.0, second - first + limits.high / POINTS),
        max(0.0, first - second - limits.low / POINTS),
    )


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
