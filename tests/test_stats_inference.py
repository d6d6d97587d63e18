"""Multiplicity, equivalence, power and association."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from qfr.errors import TableError
from qfr.stats import equivalence, power
from qfr.stats.association import area_under_curve, spearman
from qfr.stats.bootstrap import mean, two_sample
from qfr.stats.equivalence import tost_bootstrap, tost_interval
from qfr.stats.intervals import Options
from qfr.stats.lattice import Lattice, difference
from qfr.stats.multiplicity import benjamini_hochberg, holm, simultaneous

GOLDEN = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def whole(*values: int, over: int = 6) -> Lattice:
    return Lattice(np.array(values, dtype=np.int64), over)


def rates(level: int, target: str) -> np.ndarray:
    """Return golden rates of all contrasts, (contrasts, tasks); nan (or 0 for full) outside the clean set."""
    outside = 0.0 if target == "full" else math.nan
    return np.array(
        [
            [
                outside if value is None else value / sites
                for value, sites in zip(row, GOLDEN["sites"], strict=True)
            ]
            for row in (
                GOLDEN["tables"][f"{m}/{level}/{p}"] for m, p in (c.split("/") for c in GOLDEN["expected"])
            )
        ]
    )


# ------------------------------------------------------------------ multiplicity


def test_holm_and_benjamini_hochberg_by_hand() -> None:
    given_p = [0.01, 0.04, None, 0.03, 0.005]
    assert holm(given_p).values == pytest.approx((0.03, 0.06, None, 0.06, 0.02))
    assert benjamini_hochberg(given_p).values == pytest.approx((0.02, 0.04, None, 0.04, 0.02))
    assert holm(given_p).family == 4
    assert holm([None]).values == (None,)
    with pytest.raises(ValueError, match=r"1\.5"):
        holm([1.5])


@given(p_values)
def test_benjamini_hochberg_equals_scipy(values: list[float]) -> None:
    from scipy.stats import false_discovery_control

    assert benjamini_hochberg(values).values == pytest.approx(tuple(false_discovery_control(values)))


@given(p_values)
def test_holm_is_the_closed_test_of_bonferroni(values: list[float]) -> None:
    adjusted = holm(values).values
    for at, p in enumerate(values[:6]):
        # Reject only if every subset that holds this hypothesis rejects by Bonferroni.
        others = sorted(values[:at] + values[at + 1 :])
        worst = max((1 + len(others) - k) * min([p, *others[k:]]) for k in range(len(others) + 1))
        assert adjusted[at] == pytest.approx(min(1.0, worst))


def test_simultaneous_intervals_on_the_published_tables() -> None:
    for target in ("matched", "full", "own"):
        first, second = rates(8, target), rates(4, target)
        if target == "matched":
            both = np.isfinite(first) & np.isfinite(second)
            first, second = np.where(both, first, np.nan), np.where(both, second, np.nan)
        result = simultaneous(first, second, rng=np.random.default_rng(1))
        for interval, cell in zip(result.intervals, GOLDEN["expected"], strict=True):
            assert 100 * (interval.value or 0) == pytest.approx(GOLDEN["expected"][cell][target], abs=1e-4)
            if interval.degenerate:
                continue
            assert interval.low is not None
            assert interval.high is not None
            assert interval.value is not None
            half = (interval.high - interval.low) / 2
            assert interval.low + half == pytest.approx(interval.value)
        # Wider than one interval's 1.96 standard errors; four tasks push it past Bonferroni's 2.58.
        assert result.critical is not None
        assert 1.96 < result.critical < 3
        assert result.family == (4 if target == "matched" else 5)


def test_simultaneous_edges() -> None:
    nan = math.nan
    first = np.array([[1, 0, 1, 0.5], [nan, nan, nan, nan], [1, nan, nan, nan], [1, 1, 1, 1]])
    second = np.array([[0, 0, 1, 0.5], [0, 0, 0, 0], [0, nan, nan, nan], [0.5, 0.5, 0.5, 0.5]])
    result = simultaneous(first, second, rng=np.random.default_rng(0), resamples=500)
    moving, empty, single, flat = result.intervals
    assert result.family == 1
    assert (empty.value, empty.low, empty.reason) == (None, None, "no task on one side")
    assert (single.value, single.low) == (1.0, None)
    assert (flat.low, flat.high, flat.degenerate) == (0.5, 0.5, True)
    assert "4 tasks, fewer than 9" in str(moving.reason)
    none = simultaneous(first[1:2], second[1:2], rng=np.random.default_rng(0))
    assert (none.critical, none.family) == (None, 0)
    with pytest.raises(TableError, match="shape"):
        simultaneous(first, second[:2], rng=np.random.default_rng(0))


def test_one_contrast_needs_no_correction_and_copies_cost_nothing() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.random((1, 200)), rng.random((1, 200))
    alone = simultaneous(first, second, rng=np.random.default_rng(5))
    copied = simultaneous(
        np.repeat(first, 4, axis=0), np.repeat(second, 4, axis=0), rng=np.random.default_rng(5)
    )
    assert alone.critical == pytest.approx(1.96, abs=0.05)
    assert copied.critical == pytest.approx(alone.critical)
    independent = simultaneous(rng.random((4, 200)), rng.random((4, 200)), rng=rng)
    # Four independent normal contrasts: the two-sided quantile at 0.95**(1/4).
    assert independent.critical == pytest.approx(2.49, abs=0.06)


@pytest.mark.parametrize("n", [9, 20, 60])
def test_one_contrast_of_few_tasks_is_as_wide_as_the_t_interval(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.normal(0.5, 0.1, (1, n)), rng.normal(0.5, 0.1, (1, n))
    (found,) = simultaneous(first, second, rng=rng).intervals
    student = float(stdtrit(n - 1, 0.975) * (first - second).std(ddof=1) / math.sqrt(n))
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(student, rel=0.06)
    assert found.reliable == (n >= 20)


# ------------------------------------------------------------------ equivalence


def test_zero_variance_shows_nothing() -> None:
    flat = whole(*[0] * 20)
    result = tost_bootstrap(flat)
    assert (result.equivalent, result.degenerate, result.reliable) == (None, True, False)
    assert (result.value, result.low, result.high) == (0.0, 0.0, 0.0)
    assert "degenerate" in str(result.reason)
    for few in (whole(), whole(1)):
        result = tost_bootstrap(few)
        assert (result.equivalent, result.low) == (None, None)


def test_bootstrap_equivalence_reads_the_ninety_percent_interval() -> None:
    close = whole(*[1, -1, 0, 0] * 50, over=12)
    result = tost_bootstrap(close)
    interval = mean(close, options=Options(level=0.9))
    assert (result.low, result.high) == (interval.low, interval.high)
    assert (result.alpha, result.margin, result.method) == (0.05, 0.075, "bootstrap")
    assert equivalence.DEFAULT_MARGIN == 0.075
    assert result.equivalent is True
    assert tost_bootstrap(close, margin=0.005).equivalent is False
    apart = two_sample(close, close, options=Options(level=0.9))
    assert tost_interval(apart).n == 200
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            tost_bootstrap(close, bad)
    with pytest.raises(ValueError, match="alpha"):
        tost_bootstrap(close, alpha=0.5)


# ------------------------------------------------------------------ power


def test_power_equals_a_simulation() -> None:
    rng = np.random.default_rng(8)
    draws = rng.normal(0.25, 0.4, size=(40_000, 20))
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(20))
    rejected = float((np.abs(t) > 2.093024).mean())
    assert power.power_of(20, 0.25, 0.4) == pytest.approx(rejected, abs=0.01)
    assert power.power_of(20, 0.0, 0.4) == pytest.approx(0.05)
    assert power.power_of(10**6, 0.5, 0.4) == 1.0


@given(st.integers(3, 3000), st.floats(0.05, 0.8), st.floats(0.3, 0.95))
def test_detectable_and_needed_invert_each_other(n: int, spread: float, wanted: float) -> None:
    found = power.detectable(n, spread, power=wanted)
    assert found.difference is not None
    assert power.power_of(n, found.difference, spread) == pytest.approx(wanted, abs=1e-6)
    assert found.attainable == (found.difference <= 1)
    needed = power.tasks_needed(found.difference * (1 + 1e-9), spread, power=wanted)
    assert needed.n == n


def test_power_of_the_published_design() -> None:
    model, prompt = "Llama", "P0"
    sides = [
        Lattice.from_counts([v or 0 for v in GOLDEN["tables"][f"{model}/{level}/{prompt}"]], GOLDEN["sites"])
        for level in (8, 4)
    ]
    observed = power.spread(difference(*sides))
    assert observed == pytest.approx(float(np.std(sides[0].values - sides[1].values, ddof=1)))
    assert observed is not None
    found = power.detectable(20, observed)
    # Twenty tasks cannot settle five points.
    assert found.difference is not None
    assert 0.2 < found.difference < 0.3
    needed = power.tasks_needed(0.05, observed)
    assert needed.n is not None
    assert 400 < needed.n < 500


def test_power_edges() -> None:
    assert power.spread(whole(1)) is None
    assert power.detectable(1).difference is None
    flat = power.detectable(20, 0.0)
    assert flat.difference is None
    assert "zero spread" in str(flat.reason)
    unattainable = power.detectable(2)
    assert not unattainable.attainable
    assert "not attainable" in str(unattainable.reason)
    assert power.detectable(20, power=0.04).difference == 0.0
    assert power.tasks_needed(0.0).n is None
    assert power.tasks_needed(0.1, 0.0).n is None
    assert power.tasks_needed(1e-9).reason == "more than 10000000 tasks"
    for bad in ({"alpha": 0.0}, {"power": 1.0}, {"spread": -0.1}):
        with pytest.raises(ValueError, match=r"alpha|power|spread"):
            power.detectable(20, **bad)
    with pytest.raises(ValueError, match="two tasks"):
        power.power_of(1, 0.1, 0.4)


# ------------------------------------------------------------------ association


def test_spearman_by_hand_and_edges() -> None:
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 40, 30])).value == pytest.approx(0.8)
    assert spearman(np.array([1.0, 1, 2]), np.array([3.0, 3, 9])).value == pytest.approx(1.0)
    constant = spearman(np.array([1.0, 2, 3]), np.full(3, 7.0))
    assert (constant.value, constant.reason) == (None, "the second variable is constant")
    assert spearman(np.array([1.0]), np.array([1.0])).reason == "fewer than two pairs"
    with pytest.raises(TableError, match="pair"):
        spearman(np.ones(2), np.ones(3))
    with pytest.raises(TableError, match="nan"):
        spearman(np.array([1.0, math.nan]), np.ones(2))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_area_counts_pairs(items: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in items], dtype=float)
    truth = np.array([outcome for _, outcome in items])
    area = area_under_curve(
        scores, truth, np.arange(truth.size), rng=np.random.default_rng(0), options=Options(resamples=50)
    )
    pairs = [(a > b) + (a == b) / 2 for a in scores[truth] for b in scores[~truth]]
    if pairs:
        assert area.estimate.value == pytest.approx(sum(pairs) / len(pairs))
    else:
        assert area.estimate.value is None
        assert area.estimate.reason in {"no positive item", "no negative item"}
    assert area.positives + area.negatives == truth.size


@pytest.mark.parametrize("values", [[0] * 15 + [6] * 5, [0, 1] * 10, [6, -6] * 10, [3, -6, 1, 0] * 25])
def test_one_detectable_difference_never_below_the_plan(values: list[int]) -> None:
    sample = Lattice(np.array(values), 6)
    found, planned = power.detectable_difference(sample), power.detectable(len(values))
    assert found.difference is not None
    assert planned.difference is not None
    observed = power.spread(sample)
    assert observed is not None
    if observed <= power.ASSUMED_SPREAD:
        assert found == planned
    else:
        assert found.difference > planned.difference


@pytest.mark.parametrize("values", [[], [3], [0] * 20, [0] * 19 + [6], [1, 0] * 5])
def test_a_flagged_comparison_names_no_detectable_difference(values: list[int]) -> None:
    found = power.detectable_difference(Lattice(np.array(values, dtype=np.int64), 6))
    assert (found.difference, found.attainable) == (None, False)
    assert found.reason


def test_area_interval_has_the_width_of_mann_whitney() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=400)
    truth = rng.random(400) < 0.5
    area = area_under_curve(scores, truth, np.arange(400), rng=rng, options=Options(resamples=4000))
    error = math.sqrt((area.positives + area.negatives + 1) / (12 * area.positives * area.negatives))
    assert (area.estimate.high or 0) - (area.estimate.low or 0) == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert area.estimate.reliable
    # The same items in twenty tasks of twenty equal copies carry no more than twenty tasks.
    repeated = area_under_curve(
        np.repeat(scores[:20], 20), np.repeat(truth[:20], 20), np.repeat(np.arange(20), 20), rng=rng
    )
    single = area_under_curve(scores[:20], truth[:20], np.arange(20), rng=rng)
    assert repeated.estimate.value == pytest.approx(single.estimate.value)
    assert repeated.estimate.low == pytest.approx(single.estimate.low, abs=0.05)


def test_area_edges() -> None:
    rng = np.random.default_rng(0)
    infinite = area_under_curve(
        np.array([math.inf, math.inf, 1.0]), np.array([True, False, False]), np.arange(3), rng=rng
    )
    assert infinite.estimate.value == 0.75
    assert "one outcome only left out" in str(infinite.estimate.reason)
    perfect = area_under_curve(np.arange(40.0), np.arange(40) >= 20, np.arange(40), rng=rng)
    assert (perfect.estimate.value, perfect.estimate.degenerate) == (1.0, True)
    lone = area_under_curve(
        np.arange(4.0), np.array([True, False, True, False]), np.zeros(4, dtype=np.int64), rng=rng
    )
    assert lone.estimate.low is None
    assert lone.estimate.value == 0.25
    with pytest.raises(TableError, match="scores"):
        area_under_curve(np.ones(2), np.array([True]), np.arange(2), rng=rng)
    with pytest.raises(TableError, match="nan"):
        area_under_curve(np.array([math.nan]), np.array([True]), np.arange(1), rng=rng)
