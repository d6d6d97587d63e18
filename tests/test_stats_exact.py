"""Exact tests: against published p values, brute force over all sign patterns, and scipy."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfr.stats import exact
from qfr.stats.exact import fisher, sign_flip_test, sign_test, sign_test_counts
from qfr.stats.lattice import Lattice, difference

GOLDEN = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text())
CELLS = sorted(GOLDEN["expected"])


def golden_difference(cell: str, target: str) -> Lattice:
    model, prompt = cell.split("/")
    rows = [GOLDEN["tables"][f"{model}/{level}/{prompt}"] for level in (8, 4)]
    sides = [Lattice.from_counts([value or 0 for value in row], GOLDEN["sites"]) for row in rows]
    both = np.array([None not in pair for pair in zip(*rows, strict=True)])
    whole = difference(*sides)
    return whole.take(both) if target == "matched" else whole


def whole(*values: int) -> Lattice:
    return Lattice(np.array(values, dtype=np.int64), 6)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("target", ["matched", "full"])
def test_reference_p_values(cell: str, target: str) -> None:
    expected = GOLDEN["expected"][cell]
    differences = golden_difference(cell, target)
    sign, flip = sign_test(differences), sign_flip_test(differences)
    wanted = expected[f"sign_{target}"]
    assert (sign.favour_first, sign.favour_second, sign.ties) == (
        wanted["favour8"],
        wanted["favour4"],
        wanted["ties"],
    )
    assert sign.p == pytest.approx(wanted["p"], rel=1e-12)
    assert flip.p == pytest.approx(expected[f"signflip_p_{target}"], rel=1e-12)
    assert flip.n_effective == sign.n_effective == wanted["favour8"] + wanted["favour4"]


@pytest.mark.parametrize(("counts", "case"), GOLDEN["direct_checks"]["sign_test"].items())
def test_published_sign_tests(counts: str, case: list[object]) -> None:
    first, second, ties = map(int, counts.split("-"))
    result = sign_test_counts(first, second, ties)
    assert result.p == case[0]
    assert result.n == first + second + ties
    assert result.n_effective == first + second


def test_a_draw_has_p_one_and_is_no_degenerate_case() -> None:
    assert sign_test_counts(6, 1, 0).p == 0.125
    draw = sign_test_counts(3, 3, 2)
    assert (draw.p, draw.degenerate) == (1.0, False)


def test_all_tied_is_degenerate_and_empty_is_none() -> None:
    for test in (sign_test, sign_flip_test):
        tied, empty = test(whole(0, 0, 0)), test(whole())
        assert (tied.p, tied.n, tied.n_effective, tied.degenerate) == (1.0, 3, 0, True)
        assert tied.reason == "degenerate: all tasks tied"
        assert (empty.p, empty.n, empty.smallest_p, empty.reason) == (None, 0, None, "no task")
    with pytest.raises(ValueError, match="negative count"):
        sign_test_counts(1, -1, 0)


def test_smallest_p_says_when_significance_is_out_of_reach() -> None:
    five, six = sign_test_counts(5, 0, 6), sign_test_counts(6, 0, 5)
    assert (five.smallest_p, six.smallest_p) == (0.0625, 0.03125)
    assert five.reason == "5 untied tasks cannot give p below 0.0625"
    assert six.reason is None


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=10))
def test_sign_flip_equals_all_patterns(values: list[int]) -> None:
    result = sign_flip_test(whole(*values))
    untied = [value for value in values if value]
    observed = abs(sum(untied))
    patterns = list(product([1, -1], repeat=len(untied)))
    hits = sum(abs(sum(s * v for s, v in zip(signs, untied, strict=True))) >= observed for signs in patterns)
    assert result.p == pytest.approx(hits / len(patterns), rel=1e-12)
    assert result.smallest_p is not None
    assert result.p is not None
    assert result.smallest_p <= result.p * (1 + 1e-12)


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 5))
def test_equal_sizes_make_both_tests_one(first: int, second: int, ties: int) -> None:
    values = whole(*[3] * first, *[-3] * second, *[0] * ties)
    assert sign_flip_test(values).p == pytest.approx(sign_test(values).p, rel=1e-9)


@given(st.lists(st.integers(-30, 30), min_size=1, max_size=60))
def test_dynamic_programming_and_fft_agree(values: list[int]) -> None:
    sizes = np.sort(np.abs(np.array([value for value in values if value], dtype=np.int64)))
    total, observed = int(sizes.sum()), abs(sum(values))
    if observed == 0 or total == observed:
        return
    limit = (total - observed) // 2
    direct, fast = exact._flipped_at_most(sizes, limit), exact._flipped_at_most_fft(sizes, limit)
    assert fast == pytest.approx(direct, rel=1e-9)


def test_far_tails_keep_their_digits() -> None:
    # 400 tasks all one way: two of 2**400 patterns.
    assert sign_flip_test(whole(*[2] * 400)).p == pytest.approx(2.0**-399, rel=1e-12)
    one_off = sign_flip_test(whole(*[2] * 399, -2))
    assert one_off.p == pytest.approx(401 * 2.0**-399, rel=1e-12)
    rng = np.random.default_rng(0)
    values = rng.choice([-6, -3, 2, 3, 6], p=[0.1, 0.1, 0.2, 0.3, 0.3], size=2000)
    sizes, observed = np.sort(np.abs(values)), abs(int(values.sum()))
    limit = (int(sizes.sum()) - observed) // 2
    direct = exact._flipped_at_most(sizes, limit)
    assert 1e-290 < direct < 1e-100
    assert exact._flipped_at_most_fft(sizes, limit) == pytest.approx(direct, rel=1e-6)


def test_p_is_never_zero() -> None:
    many = whole(*[1] * 5000)
    assert sign_flip_test(many).p is not None
    assert 0 < (sign_flip_test(many).p or 0) <= 1e-299
    assert 0 < (sign_test(many).p or 0) <= 1e-299
    assert sign_test(many).smallest_p == exact.SMALLEST_P


def test_ten_thousand_tasks_follow_the_normal_limit() -> None:
    rng = np.random.default_rng(1)
    values = rng.choice([-6, -3, -2, 0, 2, 3, 6], size=10_000)
    z = abs(values.sum()) / math.sqrt((values**2).sum())
    result = sign_flip_test(Lattice(values, 6))
    assert result.p == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.02)


def test_a_lattice_too_fine_gives_no_p() -> None:
    result = sign_flip_test(Lattice(np.array([2**30, 2**29 + 1, -5], dtype=np.int64), 2**31))
    assert result.p is None
    assert "too fine" in str(result.reason)
    assert (result.favour_first, result.favour_second) == (2, 1)


def test_fisher_reproduces_the_published_pooling() -> None:
    case = GOLDEN["direct_checks"]["fisher"]
    (a, b), (c, d) = case["table"]
    result = fisher(a, a + b, c, c + d)
    assert result.p == pytest.approx(case["p"], rel=1e-9)
    assert result.odds_ratio == case["sample_odds_ratio"]
    assert "not independent" in result.warning
    assert not result.degenerate


@pytest.mark.parametrize(
    ("counts", "part"),
    [
        ((0, 5, 0, 7), "every episode failed"),
        ((5, 5, 7, 7), "every episode succeeded"),
        ((0, 0, 3, 7), "a group has no episodes"),
    ],
)
def test_fisher_with_a_zero_margin(counts: tuple[int, int, int, int], part: str) -> None:
    result = fisher(*counts)
    assert (result.p, result.odds_ratio, result.degenerate) == (1.0, None, True)
    assert part in str(result.reason)


def test_fisher_edges() -> None:
    assert fisher(0, 0, 0, 0).p is None
    apart = fisher(5, 5, 0, 7)
    assert apart.odds_ratio is None
    assert apart.reason == "odds ratio infinite: an empty cell"
    assert apart.p == pytest.approx(1 / math.comb(12, 5))
    with pytest.raises(ValueError, match="6 of 5"):
        fisher(6, 5, 0, 1)
