"""The test that holds at every look: capital, confidence sequence, waves, and what they come to."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.analysis.decisions.sequential import Paired, Sequential, waves_of
from qfr.analysis.decisions.verdict import Outcome
from qfr.stats.betting import SHARES, above, below, confidence_interval, log_capital, lower_limit, upper_limit
from qfr.stats.lattice import FloatArray


def test_the_capital_is_the_mean_over_fixed_bets() -> None:
    values = np.array([0.2, 0.9, 0.5, 1.0])
    bets = SHARES / 0.4
    by_hand = [
        np.mean([math.prod(1 + b * (x - 0.4) for x in values[: n + 1]) for b in bets]) for n in range(4)
    ]
    assert np.exp(log_capital(values, 0.4)) == pytest.approx(by_hand)


def test_a_whole_loss_ends_the_largest_bet_alone() -> None:
    lost = np.exp(log_capital(np.array([0.0, 0.5]), 0.475))
    assert 0 < lost[0] < 1
    assert math.isfinite(math.log(lost[1]))


@pytest.mark.parametrize(
    ("values", "chances"),
    [
        ((-1.0, 0.0), (0.05, 0.95)),
        ((-1.0, 0.0, 1.0), (0.1, 0.85, 0.05)),
        ((-0.5, 0.5), (0.55, 0.45)),
        ((-1 / 3, 0.0, 1 / 3), (0.2, 0.75, 0.05)),
    ],
)
def test_at_the_margin_no_bet_gains_in_expectation(
    values: tuple[float, ...], chances: tuple[float, ...]
) -> None:
    # Exact: every sequence of five differences with mean -0.05, weighed by its chance.
    assert np.dot(values, chances) == pytest.approx(-0.05)
    for bet in (above, below):
        expected = sum(
            math.prod(chances[at] for at in places)
            * math.exp(bet(np.array([values[at] for at in places]), -0.05)[-1])
            for places in itertools.product(range(len(values)), repeat=5)
        )
        assert expected == pytest.approx(1.0)


def test_blocks_of_a_fixed_mix_of_strata_gain_nothing_either() -> None:
    # One stratum gains 10 points, the other loses 20: the mix is at the margin, and whole blocks come in
    # order.
    gain, loss = {0.0: 0.5, 0.2: 0.5}, {-0.3: 2 / 3, 0.0: 1 / 3}
    expected = sum(
        gain[first] * loss[second] * math.exp(above(np.array([first, second]), -0.05)[-1])
        for first, second in itertools.product(gain, loss)
    )
    assert expected < 1


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40))
@settings(deadline=None, max_examples=50)
def test_both_sides_mirror_each_other(differences: list[float]) -> None:
    given_ = np.array(differences)
    assert above(given_, -0.05) == pytest.approx(below(-given_, 0.05))
    low, high = confidence_interval(given_, 0.05)
    mirrored = confidence_interval(-given_, 0.05)
    assert (low, high) == pytest.approx((-mirrored[1], -mirrored[0]))
    assert low <= given_.mean() + 0.01
    assert given_.mean() - 0.01 <= high


def paired(differences: FloatArray, baseline: float = 0.9) -> Paired:
    """Tasks whose faults all fired."""
    return Paired(differences, differences, np.full(len(differences), baseline))


def test_a_baseline_at_the_floor_shows_nothing() -> None:
    (one,) = Sequential(0.05).looks([paired(np.zeros(200), baseline=0.05)])
    assert one.not_worse > 20
    assert one.outcome is Outcome.INCONCLUSIVE


def test_faults_that_never_fired_count_as_it_hurts_each_verdict() -> None:
    sure, open_ = np.zeros(100), np.concatenate([np.zeros(90), np.full(10, 1.0)])
    (one,) = Sequential(0.05).looks([Paired(sure - open_, sure, np.ones(100))])
    (known,) = Sequential(0.05).looks([paired(sure)])
    (lost,) = Sequential(0.05).looks([paired(sure - open_)])
    assert known.outcome is Outcome.NOT_WORSE
    assert one.outcome is Outcome.INCONCLUSIVE
    assert (one.not_worse, one.low) == (lost.not_worse, lost.low)
    assert (one.worse, one.high) == (known.worse, known.high)


def test_identical_presets_are_settled_after_three_waves() -> None:
    looks = Sequential(0.05).looks([paired(np.zeros(30))] * 4)
    assert [one.outcome for one in looks] == [
        *[Outcome.INCONCLUSIVE] * 2,
        Outcome.NOT_WORSE,
        Outcome.NOT_WORSE,
    ]
    assert [one.tasks for one in looks] == [30, 60, 90, 120]
    # 59 tasks without a loss are what any test needs at least: 0.95^58 > 0.05.
    assert np.flatnonzero(above(np.zeros(200), -0.05) >= math.log(20))[0] + 1 == 86


def test_a_total_loss_is_settled_at_the_first_look_and_stays() -> None:
    looks = Sequential(0.05).looks([paired(-np.ones(10)), paired(np.ones(60))])
    assert looks[0].outcome is Outcome.WORSE
    assert looks[1].outcome is Outcome.WORSE
    assert looks[0].high < 0


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=80))
@settings(deadline=None, max_examples=50)
def test_a_limit_is_where_the_capital_crosses_its_bar(differences: list[float]) -> None:
    values = np.array(differences)
    limit = lower_limit(values, 0.05)
    if limit > -1:
        assert above(values, limit)[-1] >= math.log(20)
        assert above(values, min(limit + 1e-6, 0.999))[-1] < math.log(20)
    assert upper_limit(values, 0.05) == -lower_limit(-values, 0.05)


def test_the_interval_never_widens() -> None:
    rng = np.random.default_rng(5)
    looks = Sequential(0.05).looks(
        [paired(rng.choice([-1.0, 0.0, 1.0], 20, p=[0.1, 0.8, 0.1])) for _ in range(8)]
    )
    for one, after in itertools.pairwise(looks):
        assert one.low <= after.low <= after.high <= one.high


def test_under_continuous_looking_a_false_pass_is_rare() -> None:
    # At the least favourable mean, a look after every task up to 300; 5 % is the bound, 2,000 draws.
    rng, passes, fails = np.random.default_rng(7), 0, 0
    for _ in range(2000):
        drawn = rng.choice([-1.0, 0.0], 300, p=[0.05, 0.95])
        passes += above(drawn, -0.05).max() >= math.log(20)
        fails += below(drawn, -0.05).max() >= math.log(20)
    assert passes / 2000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert fails / 2000 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("families", "count"), [((225, 225), 15), ((10, 10), 1), ((450, 450), 30), ((7, 11), 1), ((60, 30), 3)]
)
def test_waves_keep_the_mix_of_families(families: tuple[int, ...], count: int) -> None:
    assert waves_of(families) == count
    assert all(one % count == 0 for one in families)
