"""The intervals beside the published one: joint for own, stratified where the design fixes the families."""

from __future__ import annotations

import numpy as np
import pytest

from qfr.analysis.contrast.contrasts import bayesian, stratified
from qfr.analysis.targets import CellKey, Samples, Target, TaskTable, samples
from qfr.stats import bootstrap
from qfr.stats.bayesian import Way, interval
from qfr.stats.intervals import Options
from qfr.stats.lattice import Lattice

FAMILIES = ("base",) * 5 + ("shipping",) * 5


def cell(quant: str, successes: list[int], certified: list[int] | None = None) -> TaskTable:
    passed = np.array(certified if certified is not None else [1] * 10, dtype=np.bool_)
    ran = np.where(passed, 2, 0)
    return TaskTable(
        key=CellKey("m", quant, "P0", "et", "tolerant", "s", "certified", 0),
        policy="tolerant",
        tasks=tuple(f"t{at}" for at in range(10)),
        families=FAMILIES,
        certified=passed,
        successes=np.where(passed, successes, 0),
        delivered=ran,
        scheduled=ran,
    )


HIGH = cell("q8_0", [2, 2, 1, 2, 2, 0, 1, 0, 0, 1])
LOW = cell("q4_k_m", [2, 1, 1, 2, 0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1, 0, 0, 1])


def drawn(target: Target, a: TaskTable = HIGH, b: TaskTable = LOW) -> Samples:
    return samples(target, a, b, a.within(None))


def test_own_is_joint_and_paired_targets_are_exact() -> None:
    found = bayesian(drawn(Target.own), np.random.default_rng(0))
    assert (found.method, found.n, found.n_second) == (Way.JOINT, 10, 8)
    assert found.value == pytest.approx(11 / 20 - 7 / 16)
    full = bayesian(drawn(Target.full), np.random.default_rng(0))
    assert full == interval(Lattice(np.array([0, 1, 0, 0, 2, 0, 1, 0, 0, 0]), 2))


def test_own_with_equal_sets_agrees_with_matched() -> None:
    other = cell("q4_k_m", [2, 1, 1, 2, 0, 0, 0, 0, 0, 1])
    own = bayesian(drawn(Target.own, HIGH, other), np.random.default_rng(0))
    matched = bayesian(drawn(Target.matched, HIGH, other), np.random.default_rng(0))
    assert own.value == pytest.approx(matched.value)
    assert (own.low, own.high) == pytest.approx((matched.low, matched.high), abs=0.01)
    # The two-sample interval of the paper ignores that the tasks are the same.
    paper = bootstrap.two_sample(*(getattr(drawn(Target.own, HIGH, other), f"rates_{side}") for side in "ab"))
    assert own.low is not None
    assert own.high is not None
    assert paper.low is not None
    assert paper.high is not None
    assert paper.high - paper.low > 1.2 * (own.high - own.low)


def test_own_without_a_certified_task() -> None:
    found = bayesian(drawn(Target.own, HIGH, cell("q2_k", [0] * 10, [0] * 10)), np.random.default_rng(0))
    assert (found.value, found.low, found.reason) == (None, None, "no task in the second set")


def test_families_that_differ_make_the_stratified_interval_narrower() -> None:
    a, b = cell("q8_0", [2, 2, 2, 2, 1, 0, 0, 0, 0, 1]), cell("q4_k_m", [0] * 10)
    one = drawn(Target.full, a, b)
    found = stratified(one, FAMILIES, Options())
    plain = bootstrap.paired(one.rates_a, one.rates_b)
    assert found is not None
    assert found.value == plain.value == 0.5
    assert found.low is not None
    assert found.high is not None
    assert plain.low is not None
    assert plain.high is not None
    assert found.high - found.low < 0.7 * (plain.high - plain.low)


def test_only_where_the_design_fixes_the_counts() -> None:
    assert stratified(drawn(Target.matched), FAMILIES, Options()) is None, "which tasks match is chance"
    assert stratified(drawn(Target.own), FAMILIES, Options()) is None
    assert stratified(drawn(Target.full), ("base",) * 10, Options()) is None
    assert stratified(drawn(Target.full), ("",) * 10, Options()) is None
    assert stratified(drawn(Target.full), FAMILIES, Options()) is not None
