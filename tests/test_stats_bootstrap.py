"""The bootstrap room: lattices, exact distributions, intervals, against published and independent numbers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.errors import TableError
from qfr.stats import bootstrap, lattice
from qfr.stats.bootstrap import mean, paired, ratio, two_sample
from qfr.stats.intervals import Estimate, Method, Options, order_statistic, wilson
from qfr.stats.lattice import Lattice
from qfr.stats.reliability import doubt, expanded_tail
from qfr.stats.sums import SumDistribution, difference_quantile, difference_quantiles, sum_distribution

GOLDEN = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())
SITES = np.array(GOLDEN["sites"])
FAMILY = np.repeat([0, 1], 10)
CELLS = sorted(GOLDEN["expected"])
MONTECARLO = Options(method=Method.MONTECARLO)
numbers = st.lists(st.integers(-6, 6), min_size=2, max_size=7)


def golden_pair(cell: str) -> tuple[Lattice, Lattice, np.ndarray, np.ndarray]:
    """Return both sides over all twenty tasks (failed clean passes count 0) and both clean sets."""
    model, prompt = cell.split("/")
    sides, clean = [], []
    for level in (8, 4):
        row = GOLDEN["tables"][f"{model}/{level}/{prompt}"]
        clean.append(np.array([value is not None for value in row]))
        sides.append(Lattice.from_counts([value or 0 for value in row], SITES))
    return sides[0], sides[1], clean[0], clean[1]


def golden_estimate(
    cell: str, target: str, options: Options, rng: np.random.Generator | None = None
) -> Estimate:
    first, second, clean_first, clean_second = golden_pair(cell)
    if target == "own":
        return two_sample(first.take(clean_first), second.take(clean_second), options=options, rng=rng)
    chosen = clean_first & clean_second if target == "matched" else np.ones(20, dtype=bool)
    return paired(first.take(chosen), second.take(chosen), options=options, rng=rng)


def in_points(estimate: Estimate) -> list[float]:
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return [100 * estimate.value, 100 * estimate.low, 100 * estimate.high]


def whole(*values: int, over: int = 1) -> Lattice:
    return Lattice(np.array(values, dtype=np.int64), over)


# ------------------------------------------------------------------ published and reconstructed numbers


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("target", ["own", "matched", "full"])
def test_exact_interval_is_the_reference(cell: str, target: str) -> None:
    expected = GOLDEN["expected"][cell]
    estimate = golden_estimate(cell, target, Options())
    assert in_points(estimate) == pytest.approx(
        [expected[target], *expected[f"{target}_ci"]["exact"]], abs=1e-4
    )
    assert estimate.method is Method.EXACT
    assert estimate.resamples is None


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("target", ["own", "matched", "full"])
def test_montecarlo_ends_lie_in_the_reference_range(cell: str, target: str) -> None:
    expected = GOLDEN["expected"][cell]
    estimate = golden_estimate(cell, target, MONTECARLO, np.random.default_rng(20260))
    sizes = (estimate.n, estimate.n_second or estimate.n)
    step = 100 / (6 * math.lcm(*sizes)) + 1e-4
    value, *ends = in_points(estimate)
    assert value == pytest.approx(expected[target], abs=1e-4)
    for end, (lowest, highest) in zip(ends, expected[f"{target}_ci"]["mc20000_range"], strict=True):
        assert lowest - step <= end <= highest + step
    assert (estimate.method, estimate.resamples) == (Method.MONTECARLO, 20_000)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("family", ["base", "shipping"])
def test_family_estimates(cell: str, family: str) -> None:
    expected = GOLDEN["expected"][cell]["families"][family]
    first, second, clean_first, clean_second = golden_pair(cell)
    inside = ["base", "shipping"].index(family) == FAMILY
    assert int((clean_first & inside).sum()) == expected["clean8"]
    assert int((clean_second & inside).sum()) == expected["clean4"]
    for target, chosen in (("full", inside), ("matched", inside & clean_first & clean_second)):
        value = lattice.difference(first.take(chosen), second.take(chosen)).mean
        assert (None if value is None else 100 * value) == pytest.approx(expected[target], abs=1e-4)


@pytest.mark.parametrize(("level", "case"), GOLDEN["direct_checks"]["appendix_C_lattice"].items())
def test_appendix_points_sit_on_the_sixths_lattice(level: str, case: dict[str, object]) -> None:
    sixths, n = int(str(case["sum_sixths"])), int(str(case["n"]))
    spread = np.zeros(n, dtype=np.int64)
    spread[: abs(sixths) // 6] = 6 * np.sign(sixths)
    spread[abs(sixths) // 6] = np.sign(sixths) * (abs(sixths) % 6)
    printed = {"8bit": -3.9, "4bit": -19.2, "3bit": 56.0}[level]
    assert 100 * (Lattice(spread, 6).mean or 0.0) == pytest.approx(printed, abs=0.05)


def test_wilson_matches_every_reference_interval() -> None:
    for case in GOLDEN["direct_checks"]["wilson"].values():
        interval = wilson(case["k"], case["n"])
        assert interval.value == pytest.approx(case["rate"], abs=1e-6)
        assert [interval.low, interval.high] == pytest.approx(case["wilson95"], abs=1e-6)
    for cell in CELLS:
        expected = GOLDEN["expected"][cell]
        for level in "84":
            interval = wilson(*expected[f"episodes{level}"])
            assert [interval.low, interval.high] == pytest.approx(expected[f"wilson{level}"], abs=1e-6)


def test_wilson_edges() -> None:
    nothing = wilson(0, 0)
    assert (nothing.value, nothing.low, nothing.high, nothing.n) == (None, None, None, 0)
    assert nothing.reason == "no trials"
    assert (wilson(0, 32).low, wilson(32, 32).high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="5 successes in 4 trials"):
        wilson(5, 4)
    with pytest.raises(ValueError, match="level"):
        wilson(1, 4, level=1.0)


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.5, 0.99))
def test_wilson_inverts_the_score_test(successes: int, extra: int, level: float) -> None:
    trials = successes + extra
    interval = wilson(successes, trials, level)
    assert interval.low is not None
    assert interval.high is not None
    rate = successes / trials
    assert interval.low <= rate <= interval.high
    # At an end the rate lies exactly z standard errors away, the error taken at that end.
    from scipy.special import ndtri

    z = ndtri(0.5 + level / 2)
    end = interval.high
    assert abs(rate - end) == pytest.approx(z * math.sqrt(end * (1 - end) / trials), abs=1e-9)


# ------------------------------------------------------------------ exact distributions, two ways


def integer_power(values: list[int]) -> dict[int, int]:
    """Count all len(values)**len(values) resamples by their sum, in Python integers."""
    counts = {0: 1}
    for _ in values:
        grown: dict[int, int] = {}
        for total, ways in counts.items():
            for value in values:
                grown[total + value] = grown.get(total + value, 0) + ways
        counts = grown
    return counts


def integer_quantile(counts: dict[int, int], probability: Fraction) -> int:
    everything, running = sum(counts.values()), 0
    for total in sorted(counts):
        running += counts[total]
        if Fraction(running, everything) >= probability:
            return total
    raise AssertionError("probability above 1")


@given(numbers, st.sampled_from([Fraction(1, 40), Fraction(1, 20), Fraction(1, 4), Fraction(1, 2)]))
def test_mean_interval_equals_full_enumeration(values: list[int], tail: Fraction) -> None:
    counts: dict[int, int] = {}
    for resample in product(values, repeat=len(values)) if len(values) <= 5 else ():
        counts[sum(resample)] = counts.get(sum(resample), 0) + 1
    convolved = integer_power(values)
    if counts:
        assert counts == convolved
    if tail == Fraction(1, 2):
        return
    estimate = mean(whole(*values, over=6), options=Options(level=float(1 - 2 * tail)))
    scale = 6 * len(values)
    assert estimate.low == integer_quantile(convolved, tail) / scale
    assert estimate.high == integer_quantile(convolved, 1 - tail) / scale


@given(numbers, numbers)
@settings(max_examples=50)
def test_two_sample_interval_equals_full_enumeration(first: list[int], second: list[int]) -> None:
    one, other = integer_power(first), integer_power(second)
    counts: dict[int, int] = {}
    for (a, ways_a), (b, ways_b) in product(one.items(), other.items()):
        key = a * len(second) - b * len(first)
        counts[key] = counts.get(key, 0) + ways_a * ways_b
    estimate = two_sample(whole(*first, over=6), whole(*second, over=6))
    scale = 6 * len(first) * len(second)
    assert estimate.low == pytest.approx(integer_quantile(counts, Fraction(1, 40)) / scale, abs=1e-12)
    assert estimate.high == pytest.approx(integer_quantile(counts, Fraction(39, 40)) / scale, abs=1e-12)


@given(numbers, numbers)
@settings(max_examples=50)
def test_stratified_interval_equals_full_enumeration(first: list[int], second: list[int]) -> None:
    counts: dict[int, int] = {}
    for (a, ways_a), (b, ways_b) in product(integer_power(first).items(), integer_power(second).items()):
        counts[a + b] = counts.get(a + b, 0) + ways_a * ways_b
    strata = np.repeat([7, 3], [len(first), len(second)])
    estimate = mean(whole(*first, *second, over=6), strata=strata)
    scale = 6 * strata.size
    assert estimate.low == integer_quantile(counts, Fraction(1, 40)) / scale
    assert estimate.high == integer_quantile(counts, Fraction(39, 40)) / scale


def test_a_tie_of_f_and_q_is_settled_exactly() -> None:
    # Two tasks, 0 and 1: F(0) = 1/4 exactly, so at level 1/2 the lower end is 0 and the upper one 1/2.
    estimate = mean(whole(0, 1), options=Options(level=0.5))
    assert (estimate.low, estimate.high) == (0.0, 0.5)


def packed_integers(values: np.ndarray) -> list[int]:
    """Count resamples by sum through one big integer power: an independent exact route for any size."""
    shifted = (values - values.min()).tolist()
    n = len(shifted)
    width = (n * (n.bit_length() + 1) + 8) // 8
    polynomial = sum(1 << (8 * width * value) for value in shifted)
    packed = (polynomial**n).to_bytes(width * (n * max(shifted) + 2), "little")
    return [int.from_bytes(packed[at : at + width], "little") for at in range(0, len(packed) - width, width)]


@pytest.mark.parametrize(("n", "top"), [(60, 12), (250, 12), (400, 3), (40, 420)])
def test_the_fft_agrees_with_integers(n: int, top: int) -> None:
    values = np.random.default_rng(n).integers(-top // 2, top // 2 + 1, size=n)
    values[: n // 2] = 0
    distribution = sum_distribution([values])
    assert distribution is not None
    step = int(np.gcd.reduce(values - values.min()))
    assert distribution.step == step
    counts = packed_integers((values - values.min()) // step)
    begin = (distribution.start - n * int(values.min())) // step
    total = n**n
    exact = [
        counts[begin + at] / total if begin + at < len(counts) else 0.0
        for at in range(distribution.probabilities.size)
    ]
    assert np.abs(distribution.probabilities - exact).max() < 1e-14
    # The same as a distribution function, with all that lies outside the listed sums.
    below = sum(counts[:begin]) / total
    cumulative = np.array(
        [float(Fraction(part, total)) for part in np.cumsum(np.array(counts, dtype=object))]
    )
    listed = cumulative[begin : begin + distribution.cumulative.size]
    assert np.abs(distribution.cumulative[: listed.size] - listed).max() < 1e-13
    assert below < 1e-16


@pytest.mark.parametrize("skew", [0.5, 0.05, 0.001])
def test_ten_thousand_tasks_agree_with_extended_precision(skew: float) -> None:
    rng = np.random.default_rng(3)
    values = rng.choice([-6, -3, -2, 0, 2, 3, 6], p=[skew / 6] * 3 + [1 - skew] + [skew / 6] * 3, size=10_000)
    distribution = sum_distribution([values])
    assert distribution is not None
    # Powers by squaring in long doubles over a window, an independent route without any transform.
    base = np.bincount(values + 6, minlength=13).astype(np.longdouble) / values.size
    power, first = np.ones(1, dtype=np.longdouble), 0
    for bit in bin(values.size)[2:]:
        power, first = np.convolve(power, power), 2 * first
        if bit == "1":
            power, first = np.convolve(power, base), first
        keep = np.flatnonzero(power > 1e-24)
        power, first = power[keep[0] : keep[-1] + 1], first + int(keep[0])
    start = first - 6 * values.size
    cumulative = dict(zip(range(start, start + power.size), power.cumsum(), strict=True))
    for at in range(0, distribution.cumulative.size, 97):
        total = distribution.start + distribution.step * at
        if total in cumulative:
            assert float(cumulative[total]) == pytest.approx(distribution.cumulative[at], abs=1e-12)
    for tail in (0.005, 0.025, 0.5, 0.975, 0.995):
        reached = next(total for total, mass in cumulative.items() if mass >= tail)
        assert distribution.quantile(tail) == reached


def test_bisection_equals_the_joint_lattice() -> None:
    rng = np.random.default_rng(11)
    first, second = rng.integers(0, 7, 15), rng.integers(0, 7, 13)
    one, other = sum_distribution([first]), sum_distribution([second])
    assert isinstance(one, SumDistribution)
    assert isinstance(other, SumDistribution)
    left = 13 * (one.start + one.step * np.arange(one.probabilities.size))
    right = 15 * (other.start + other.step * np.arange(other.probabilities.size))
    sums = np.subtract.outer(left, right).ravel()
    mass = np.multiply.outer(one.probabilities, other.probabilities).ravel()
    order = np.argsort(sums, kind="stable")
    cumulative = mass[order].cumsum()
    for tail in (0.001, 0.025, 0.3, 0.5, 0.975, 0.999):
        expected = sums[order][np.searchsorted(cumulative, tail - 1e-12)]
        assert difference_quantile(one, other, (13, 15), tail) == expected
        assert difference_quantiles([first], [second], (13, 15), (tail, tail)) == (expected, expected)


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=40), st.integers(1, 5))
def test_interval_ignores_order_and_scale(values: list[int], factor: int) -> None:
    estimate = mean(whole(*values, over=6))
    scaled = mean(whole(*(factor * value for value in sorted(values)), over=6 * factor))
    same = (scaled.low, scaled.high, scaled.value)
    assert same == pytest.approx((estimate.low, estimate.high, estimate.value))


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=40), st.integers(-6, 6))
def test_interval_moves_with_the_values_and_mirrors_in_two_samples(values: list[int], shift: int) -> None:
    estimate = mean(whole(*values, over=6))
    moved = mean(whole(*(value + shift for value in values), over=6))
    assert (moved.low, moved.high) == pytest.approx(
        ((estimate.low or 0) + shift / 6, (estimate.high or 0) + shift / 6), abs=1e-12
    )
    # Against a constant sample the two-sample interval is the one-sample interval, shifted.
    constant = two_sample(whole(*values, over=6), whole(shift, shift, over=6))
    assert constant.low == pytest.approx((estimate.low or 0) - shift / 6, abs=1e-12)
    assert constant.high == pytest.approx((estimate.high or 0) - shift / 6, abs=1e-12)


def test_montecarlo_converges_to_the_exact_ends_in_both_ways_of_drawing() -> None:
    rng = np.random.default_rng(5)
    for n in (30, 600):
        values = whole(*rng.integers(-6, 7, n).tolist(), over=6)
        exact, drawn = mean(values), mean(values, options=MONTECARLO, rng=rng)
        assert exact.low is not None
        assert exact.high is not None
        width = exact.high - exact.low
        assert drawn.low == pytest.approx(exact.low, abs=0.03 * width)
        assert drawn.high == pytest.approx(exact.high, abs=0.03 * width)


def test_montecarlo_repeats_with_its_seed_and_needs_a_generator() -> None:
    values = whole(0, 1, 2, 3, 4, 5, over=6)
    runs = [mean(values, options=MONTECARLO, rng=np.random.default_rng(1)) for _ in range(2)]
    assert runs[0] == runs[1]
    with pytest.raises(ValueError, match="Generator"):
        mean(values, options=MONTECARLO)


def test_scipy_gives_the_same_montecarlo_interval() -> None:
    from scipy.stats import bootstrap as scipy_bootstrap

    values = np.array([0, 0, 0, 2, 3, 6, 6, 1, -2, 4]) / 6
    reference = scipy_bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    )
    estimate = mean(whole(0, 0, 0, 2, 3, 6, 6, 1, -2, 4, over=6))
    # Within two lattice steps: scipy interpolates between order statistics, and both carry seed noise.
    assert estimate.low == pytest.approx(reference.confidence_interval.low, abs=2 / 60)
    assert estimate.high == pytest.approx(reference.confidence_interval.high, abs=2 / 60)


def test_order_statistic_is_the_smallest_x_with_enough_mass() -> None:
    assert order_statistic(0.025, 20_000) == 499
    assert order_statistic(0.975, 20_000) == 19_499
    assert order_statistic((1 - 0.9) / 2, 20) == 0
    assert order_statistic(0.0501, 20) == 1
    draws = np.arange(1, 8)
    for q in (0.01, 1 / 7, 0.3, 0.5, 0.99):
        reached = [x for x in draws if np.mean(draws <= x) >= q - 1e-12]
        assert draws[order_statistic(q, 7)] == reached[0]


# ------------------------------------------------------------------ degenerate, doubtful, impossible


def test_edge_cases_of_the_mean() -> None:
    empty = mean(whole())
    assert (empty.value, empty.low, empty.high, empty.n, empty.reason) == (None, None, None, 0, "no task")
    single = mean(whole(3, over=6))
    assert (single.value, single.low, single.high, single.n) == (0.5, None, None, 1)
    assert single.reason == "one task: no interval"
    for options, rng in ((Options(), None), (MONTECARLO, np.random.default_rng(0))):
        flat = mean(whole(*[3] * 25, over=6), options=options, rng=rng)
        assert (flat.value, flat.low, flat.high) == (0.5, 0.5, 0.5)
        assert flat.degenerate
        assert not flat.reliable
        assert "degenerate" in str(flat.reason)


def test_edge_cases_of_two_samples() -> None:
    some, one, none = whole(0, 3, 6, over=6), whole(6, over=6), whole()
    assert two_sample(none, some).reason == "no task in the first sample"
    assert two_sample(some, none).reason == "no task in the second sample"
    assert two_sample(none, none).value is None
    point = two_sample(some, one)
    assert (point.value, point.low, point.n, point.n_second) == (-0.5, None, 3, 1)
    flat = two_sample(whole(*[6] * 9, over=6), whole(*[3] * 12, over=6))
    assert (flat.value, flat.low, flat.high, flat.degenerate) == (0.5, 0.5, 0.5, True)


@pytest.mark.parametrize(
    ("values", "expanded", "part"),
    [
        ([0, 1] * 4, False, "8 tasks, fewer than 9"),
        ([0, 1] * 4, True, "8 tasks, fewer than 9"),
        ([0] * 17 + [1] * 3, False, "17 of 20 tasks share one value"),
        ([5] * 85 + [1] * 15, True, "85 of 100 tasks share one value"),
        ([0, 1] * 7, False, "14 tasks, fewer than 20"),
        ([0, 1] * 7, True, None),
        ([0, 1] * 10, False, None),
        ([0] * 16 + [1] * 4, False, None),
        ([0] * 470 + [1] * 30, False, None),
        ([0] * 471 + [1] * 29, False, "471 of 500"),
    ],
)
def test_doubtful_intervals_are_flagged(values: list[int], expanded: bool, part: str | None) -> None:
    estimate = mean(whole(*values), options=Options(expanded=expanded))
    assert estimate.reliable == (part is None)
    assert (estimate.reason is None) if part is None else (part in str(estimate.reason))
    assert not estimate.degenerate


def test_a_doubtful_sample_is_named() -> None:
    spread, tied = whole(*[0, 1] * 10), whole(*[1] * 19, 0)
    assert two_sample(spread, spread).reliable
    assert str(two_sample(spread, tied).reason).startswith("unreliable: second sample: 19 of 20")
    assert str(two_sample(tied, spread).reason).startswith("unreliable: first sample: 19 of 20")
    lonely = mean(whole(*[0, 1] * 10), strata=np.array([0] * 19 + [1]))
    assert "stratum of one task" in str(lonely.reason)


@pytest.mark.parametrize(
    ("n", "expanded", "flagged"), [(9, False, 1), (9, True, 0), (20, False, 0), (50, False, 0)]
)
def test_an_unflagged_interval_keeps_its_level(n: int, expanded: bool, flagged: int) -> None:
    rng = np.random.default_rng(n)
    # Differences of two presets at rates .8 and .5 over three sites.
    values = rng.binomial(3, 0.8, size=(3000, n)) - rng.binomial(3, 0.5, size=(3000, n))
    estimates = [mean(Lattice(row, 3), options=Options(expanded=expanded)) for row in values]
    covered = np.mean([(e.low or 0) - 1e-12 <= 0.3 <= (e.high or 0) + 1e-12 for e in estimates])
    assert np.mean([not e.reliable for e in estimates]) == pytest.approx(flagged, abs=0.01)
    if flagged:
        assert covered < 0.93
    else:
        assert 0.92 < covered < 0.975


def test_expansion_equals_t_for_one_sample_and_vanishes_for_many() -> None:
    from scipy.special import ndtr, stdtrit

    values = np.array([0, 1, 2, 4, 4, 5, 0, 6, 3])
    by_hand = ndtr(stdtrit(8, 0.025) * math.sqrt(9 / 8))
    assert expanded_tail([[values]], 0.025) == pytest.approx(float(by_hand), rel=1e-12)
    assert expanded_tail([[np.tile(values, 2000)]], 0.025) == pytest.approx(0.025, abs=1e-4)
    assert expanded_tail([[np.full(9, 2)]], 0.025) == 0.025
    plain, wide = mean(whole(*values)), mean(whole(*values), options=Options(expanded=True))
    assert wide.low is not None
    assert plain.low is not None
    assert wide.low < plain.low
    both = two_sample(whole(*values), whole(*values), options=Options(expanded=True))
    narrow = two_sample(whole(*values), whole(*values))
    assert (both.high or 0) > (narrow.high or 0)


def test_stratifying_removes_the_spread_between_families() -> None:
    values, families = whole(*[6] * 10, *[0] * 10, over=6), np.repeat([0, 1], 10)
    within = paired(values, whole(*[0] * 20, over=6), strata=families)
    assert (within.low, within.high, within.degenerate) == (0.5, 0.5, True)
    across = paired(values, whole(*[0] * 20, over=6))
    assert not across.degenerate
    with pytest.raises(TableError, match="2 strata for 20 tasks"):
        mean(values, strata=np.array([0, 1]))


def test_a_lattice_too_fine_falls_back_and_says_so() -> None:
    rng = np.random.default_rng(1)
    fine = Lattice(rng.integers(0, 2**38, size=25), 2**38 + 1)
    without = mean(fine)
    assert without.low is None
    assert "too fine" in str(without.reason)
    drawn = mean(fine, rng=rng)
    assert (drawn.method, drawn.resamples) == (Method.MONTECARLO, 20_000)
    assert str(drawn.reason).startswith("Monte Carlo: the lattice is too fine")
    assert drawn.reliable
    assert two_sample(fine, fine).low is None
    apart = two_sample(fine, fine, rng=rng)
    assert (apart.low or 0) < 0 < (apart.high or 0)
    assert apart.method is Method.MONTECARLO


def test_unequal_sizes_without_common_factor_stay_exact() -> None:
    rng = np.random.default_rng(4)
    first = Lattice(rng.integers(0, 7, size=1009), 6)
    second = Lattice(rng.integers(0, 7, size=997), 6)
    estimate = two_sample(first, second)
    assert estimate.method is Method.EXACT
    assert estimate.value is not None
    assert estimate.high is not None
    error = math.sqrt(first.values.var() / 1009 + second.values.var() / 997)
    assert estimate.high == pytest.approx(estimate.value + 1.96 * error, abs=0.02 * error)


# ------------------------------------------------------------------ ratios


def test_ratio_of_sums() -> None:
    rng = np.random.default_rng(9)
    calls = rng.integers(3, 9, size=40).astype(float)
    failed = np.floor(calls * rng.random(40))
    estimate = ratio(failed, calls, rng=rng)
    assert estimate.value == pytest.approx(failed.sum() / calls.sum())
    # The delta method is an independent route to the width.
    pull = (failed - (estimate.value or 0) * calls) / calls.sum()
    assert ((estimate.high or 0) - (estimate.low or 0)) / 2 == pytest.approx(
        1.96 * math.sqrt((pull**2).sum()), rel=0.1
    )
    assert estimate.reliable
    constant = ratio(2 * calls, 4 * calls, rng=rng)
    assert (constant.value, constant.degenerate) == (0.5, True)


def test_ratio_edges() -> None:
    rng = np.random.default_rng(0)
    none = np.zeros(0)
    assert ratio(none, none, rng=rng).reason == "no task"
    assert ratio(np.zeros(3), np.zeros(3), rng=rng).reason == "the denominator is 0 in every task"
    assert ratio(np.ones(1), np.full(1, 4.0), rng=rng).value == 0.25
    rare = ratio(np.array([1.0, 0, 0, 0]), np.array([2.0, 0, 0, 0]), rng=rng)
    assert "empty denominator left out" in str(rare.reason)
    with pytest.raises(TableError, match="shape"):
        ratio(np.ones(2), np.ones(3), rng=rng)
    with pytest.raises(TableError, match="negative"):
        ratio(np.ones(2), np.array([1.0, -1.0]), rng=rng)


# ------------------------------------------------------------------ lattices


def test_counts_share_one_denominator() -> None:
    rates = Lattice.from_counts([1, 2, 3], [2, 3, 3])
    assert rates.denominator == 6
    assert rates.numerators.tolist() == [3, 4, 6]
    assert rates.mean == pytest.approx(13 / 18)
    assert Lattice.from_counts([], []).mean is None
    assert lattice.difference(rates, Lattice.from_counts([1, 1, 1], [4, 4, 4])).denominator == 12


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.integers(1, 7)).filter(lambda pair: pair[0] <= pair[1]), min_size=1
    )
)
def test_counts_and_fractions_agree(pairs: list[tuple[int, int]]) -> None:
    counted = Lattice.from_counts([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert counted.values.tolist() == [a / b for a, b in pairs]
    assert counted.mean == float(sum(Fraction(a, b) for a, b in pairs) / len(pairs))


@pytest.mark.parametrize(
    ("successes", "sites", "message"),
    [
        ([1, 2], [2], "2 success counts but 1 site counts"),
        ([3], [2], "more successes than sites"),
        ([-1], [2], "negative count"),
        ([0], [0], "no site"),
        ([0.5], [2], "must be integers"),
        ([[1]], [[2]], "one-dimensional"),
        ([1] * 13, [2**3, 3**3, 5**3, 7**3, 11**2, 13**2, 17, 19, 23, 29, 31, 37, 41], "too large for exact"),
    ],
)
def test_bad_counts_are_refused(successes: list[int], sites: list[int], message: str) -> None:
    with pytest.raises(TableError, match=message):
        Lattice.from_counts(successes, sites)


def test_bad_pairs_are_refused() -> None:
    with pytest.raises(TableError, match="2 tasks against 3"):
        lattice.difference(whole(1, 2), whole(1, 2, 3))
    with pytest.raises(ValueError, match="no multiple"):
        whole(1, over=6).rebased(9)
    with pytest.raises(TableError, match="too large"):
        lattice.common(whole(1, over=2**30), whole(1, over=2**30 - 1))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="level"):
        Options(level=0)
    with pytest.raises(ValueError, match="0 resamples"):
        Options(resamples=0)
    assert doubt([np.arange(20)]) is None
    assert bootstrap.DEFAULT.method is Method.EXACT
