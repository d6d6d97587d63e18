"""The Bayesian bootstrap with imagined tasks: against draws, against beta distributions, at the edges."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from benchmarks.coverage import GRID_VALUES, grid, grid_coverages, grid_weights
from qfr.errors import TableError
from qfr.stats.bayesian import Way, interval, joint
from qfr.stats.dirichlet import chance_at_most, quantile
from qfr.stats.lattice import Lattice

SIXTHS = st.lists(st.integers(-6, 6), min_size=1, max_size=40)


def sixths(values: list[int]) -> Lattice:
    return Lattice(np.array(values, dtype=np.int64), 6)


def ends_of(sample: Lattice, lowest: float = -1.0, level: float = 0.95) -> tuple[float, float]:
    found = interval(sample, lowest, level=level)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@pytest.mark.parametrize(
    "values",
    [
        [0] * 14 + [3, 3, 6, 6, -2, -2],
        [6, -6, 1],
        [0] * 20,
        [1] * 8 + [-6],
        [3],
        [6, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6] * 3,
    ],
)
def test_a_million_draws_of_weights_give_the_same_ends(values: list[int]) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_gamma([*[1.0] * len(values), 0.5, 0.5], (1_000_000, len(values) + 2))
    drawn = weights @ np.array([*(np.array(values) / 6), -1.0, 1.0]) / weights.sum(axis=1)
    for level in (0.9, 0.95):
        tails = [(1 - level) / 2, (1 + level) / 2]
        found = ends_of(sixths(values), level=level)
        assert [np.mean(drawn <= end) for end in found] == pytest.approx(tails, abs=1e-3)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (1, 1), (0, 20), (7, 20), (449, 450), (19, 20)])
def test_zeros_and_ones_give_the_interval_of_jeffreys(hits: int, n: int) -> None:
    sample = Lattice(np.array([1] * hits + [0] * (n - hits)), 1)
    law = beta(hits + 0.5, n - hits + 0.5)
    low, high = min(law.ppf(0.025), hits / n), max(law.ppf(0.975), hits / n)
    assert ends_of(sample, lowest=0.0) == pytest.approx((low, high), abs=1e-8)


@settings(deadline=None, max_examples=60)
@given(SIXTHS)
def test_never_a_point_symmetric_and_around_what_was_observed(values: list[int]) -> None:
    low, high = ends_of(sixths(values))
    mean = sum(values) / 6 / len(values)
    assert -1 <= low <= mean <= high <= 1
    assert high - low > 1e-3
    assert ends_of(sixths([-value for value in values])) == pytest.approx((-high, -low), abs=1e-8)
    assert ends_of(Lattice(np.array(values) * 5, 30)) == pytest.approx((low, high), abs=1e-8)
    wider = ends_of(sixths(values), level=0.99)
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9


def test_tasks_that_all_tie_and_a_single_task() -> None:
    low, high = ends_of(sixths([0] * 20))
    assert low == pytest.approx(-high, abs=1e-9)
    assert 0.05 < high < 0.12
    one = interval(sixths([0]))
    assert (one.value, one.n, one.method, one.reason) == (0.0, 1, Way.ONE_SAMPLE, None)
    none = interval(sixths([]))
    assert (none.value, none.low, none.high, none.reason) == (None, None, None, "no task")


def test_what_cannot_be_a_task_is_refused() -> None:
    with pytest.raises(ValueError, match="below 0"):
        interval(sixths([-1]), lowest=0.0)
    with pytest.raises(ValueError, match="above 1"):
        interval(sixths([7]))
    with pytest.raises(ValueError, match="not in order"):
        interval(sixths([0]), 1.0, 1.0)
    with pytest.raises(ValueError, match="level"):
        interval(sixths([0]), level=95)


def test_fractional_counts() -> None:
    values, counts = np.array([0.0, 1.0]), np.array([0.25, 3.5])
    for probability in (0.001, 0.2, 0.9):
        found = quantile(values, counts, probability)
        assert found == pytest.approx(beta(3.5, 0.25).ppf(probability), abs=1e-7)
        assert chance_at_most(values, counts, found) == pytest.approx(probability, abs=1e-8)


def test_joint_over_equal_sets_is_the_interval_of_the_differences() -> None:
    first, second = np.array([1.0, 0.5, 0.0, 1.0, 1.0, 0.5]), np.array([1.0, 0.0, 0.5, 1.0, 0.5, 0.5])
    inside = np.array([True, True, True, True, True, False])
    found = joint((first, second), (inside, inside), rng=np.random.default_rng(1), draws=200_000)
    want = interval(Lattice(np.array([0, 1, -1, 0, 1]), 2))
    assert (found.value, found.n, found.n_second, found.method) == (
        pytest.approx(want.value),
        5,
        5,
        Way.JOINT,
    )
    assert (found.low, found.high) == pytest.approx((want.low, want.high), abs=0.01)


def test_joint_is_narrower_where_shared_tasks_move_both_sides_and_wide_without_them() -> None:
    rates = np.array([0.0, 1.0] * 10)
    everywhere = np.ones(20, dtype=np.bool_)
    shared = joint((rates, rates), (everywhere, everywhere), rng=np.random.default_rng(1))
    left, right = np.arange(20) < 10, np.arange(20) >= 10
    apart = joint((rates, rates), (left, right), rng=np.random.default_rng(1))
    assert shared.low is not None
    assert shared.high is not None
    assert apart.low is not None
    assert apart.high is not None
    assert 0 < 3 * (shared.high - shared.low) < apart.high - apart.low
    again = joint((rates, rates), (left, right), rng=np.random.default_rng(1))
    assert again == apart


def test_joint_without_a_task_on_a_side_and_with_bad_rates() -> None:
    none, all_of_them = np.zeros(3, dtype=np.bool_), np.ones(3, dtype=np.bool_)
    rates = np.array([0.5, 0.5, 1.0])
    rng = np.random.default_rng(1)
    found = joint((rates, rates), (all_of_them, none), rng=rng)
    assert (found.value, found.low, found.reason) == (None, None, "no task in the second set")
    assert joint((rates, rates), (none, none), rng=rng).reason == "no task in both sets"
    assert joint(
        (np.array([np.nan, 0.5, 1.0]), rates), (~none & [False, True, True], none | True), rng=rng
    ).value
    with pytest.raises(TableError, match="not between 0 and 1"):
        joint((np.array([np.nan, 0.5, 1.0]), rates), (all_of_them, all_of_them), rng=rng)
    with pytest.raises(TableError, match="different tasks"):
        joint((rates, rates[:2]), (all_of_them, all_of_them), rng=rng)


# ------------------------------------------------------------------ coverage, exactly


def test_rare_whole_losses_and_small_gains() -> None:
    """Every sample of nine tasks, weighed: a percentile interval does not know what was not seen."""
    found = grid_coverages((-6, 0, 1), 9)
    chances = grid()
    at = int(np.flatnonzero((chances == [0.05, 0.0, 0.95]).all(axis=1))[0])
    assert found["percentile"][at] < 0.5
    assert found["expanded"][at] < 0.5
    assert found["bayesian"][at] > 0.93
    assert found["bayesian"].min() > 0.85
    assert np.mean(found["bayesian"] >= 0.93) > 0.9


def test_the_grid_counts_every_population_once() -> None:
    whole_grid = {
        tuple(sorted((value, round(chance, 6)) for value, chance in zip(support, row, strict=True) if chance))
        for support in combinations(GRID_VALUES, 3)
        for row in grid()
    }
    assert grid_weights().sum() == pytest.approx(len(whole_grid))
