"""The sequential test: its error under continuous looking, its interval, its words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from qfr.analysis.decisions.sequential import Differences, capital, differences, log_factors, look, looks
from qfr.analysis.decisions.verdict import Outcome, Rule
from qfr.analysis.targets import CellKey, TaskTable
from qfr.errors import TableError

RULE = Rule(margin=0.05)


def drawn(values: list[float], baseline: float = 0.9) -> Differences:
    """Differences with every fault delivered."""
    array = np.array(values)
    return Differences(array, array, np.full(len(array), baseline))


def table(certified: list[int], successes: list[int], delivered: list[int], scheduled: int = 2) -> TaskTable:
    """A cell of a few tasks."""
    n = len(certified)
    return TaskTable(
        key=CellKey("m", "q", "P0", "et", "tolerant", "s", "certified", 0),
        policy="tolerant",
        tasks=tuple(f"t{at}" for at in range(n)),
        families=("",) * n,
        certified=np.array(certified, dtype=np.bool_),
        successes=np.array(successes),
        delivered=np.array(delivered),
        scheduled=np.array(certified) * scheduled,
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("mean", [-0.9, -0.05, 0.0, 0.3])
def test_no_value_costs_more_than_the_capital_and_none_gains_on_average(sign: int, mean: float) -> None:
    ends = np.array([-1.0, 1.0])
    factors = np.exp(log_factors(ends, mean, sign))
    chances = np.array([1 - mean, 1 + mean]) / 2
    assert (factors > 0).all()
    np.testing.assert_allclose(chances @ factors, 1.0)


def test_identical_presets_end_where_the_simulation_says() -> None:
    ends = range(1, 901)
    found = looks(drawn([0.0] * 900), ends, RULE)
    assert found[-1].outcome is Outcome.NOT_WORSE
    assert found[-1].n == 88
    assert all(one.outcome is Outcome.INCONCLUSIVE for one in found[:-1])


def test_continuous_looking_passes_a_candidate_worse_by_the_margin_in_at_most_five_per_cent() -> None:
    rng, passed, wrong = np.random.default_rng(3), 0, 0
    values = np.array([-1.0, 0.0, 1.0])
    for _ in range(600):
        at = rng.choice(3, 600, p=[0.15, 0.75, 0.10])
        for sign in (1, -1):
            logs = np.cumsum(log_factors(values, -0.05, sign)[at], axis=0)
            reached = bool((np.exp(logs).mean(axis=1) >= 20).any())
            passed += reached and sign == 1
            wrong += reached and sign == -1
    # Five per cent of 600 and three standard errors.
    assert 0 < passed <= 46
    assert 0 < wrong <= 46


def test_the_order_of_the_tasks_does_not_matter() -> None:
    values = np.array([-1.0, 0, 0.5, 0, 0, 1, -0.5])
    assert capital(values, -0.05, 1) == pytest.approx(capital(values[::-1], -0.05, 1))


def test_the_interval_narrows_and_holds_the_estimate() -> None:
    rng = np.random.default_rng(5)
    values = rng.choice([-1.0, 0.0, 1.0], 400, p=[0.12, 0.82, 0.06]).tolist()
    found = looks(drawn(values), (30, 60, 120, 240, 400), Rule(margin=0.07))
    assert len(found) > 2
    for before, after in itertools.pairwise(found):
        assert before.low <= after.low <= after.estimate <= after.high <= before.high


def test_a_total_loss_is_worse_soon_and_a_baseline_at_the_floor_shows_nothing() -> None:
    assert looks(drawn([-1.0] * 60), range(1, 61), RULE)[-1].n < 10
    floor = look(drawn([0.0] * 400, baseline=0.04), RULE)
    assert floor.not_worse > 20
    assert floor.outcome is Outcome.INCONCLUSIVE


def test_a_fault_that_never_fired_counts_as_it_hurts_most() -> None:
    base = table([1, 1, 0], [2, 1, 0], [2, 1, 0])
    other = table([1, 1, 1], [2, 2, 1], [2, 2, 2])
    found = differences(base, other)
    assert found.low.tolist() == [0.0, 0.0, 0.5]
    assert found.high.tolist() == [0.0, 0.5, 0.5]


def test_other_tasks_are_refused() -> None:
    with pytest.raises(TableError, match="list different tasks"):
        differences(table([1], [1], [1]), table([1, 1], [1, 1], [1, 1]))
