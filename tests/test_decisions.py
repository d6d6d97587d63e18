"""Bounds that hold for few and uniform tasks, decisions, matching, picking, and the files of a gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from benchmarks.decisions import (
    LADDERS,
    LEVELS,
    MARGIN,
    SUPPORTS,
    Ladder,
    draw,
    populations,
    presets,
    worst_cases,
)
from qfr.analysis.decisions.bound import (
    chance_below,
    fewest_tasks,
    lower_bound,
    margin_shown,
    tasks_to_show,
    upper_bound,
)
from qfr.analysis.decisions.cells import Incomparable, match, of_preset, tables_of
from qfr.analysis.decisions.files import Gate, answer, points, size, tasks_told, to_junit, to_markdown
from qfr.analysis.decisions.pick import Missing, Preset, Standing, pick
from qfr.analysis.decisions.verdict import Outcome, Rule, decide
from qfr.analysis.targets import CellKey, Target, TaskTable
from qfr.records import Policy
from qfr.scope import Scope
from qfr.stats.lattice import Lattice
from tests.logged import logged_pair

sixths = st.lists(st.integers(-6, 6), min_size=1, max_size=40)


def whole(values: list[int], over: int = 6) -> Lattice:
    return Lattice(np.array(values, dtype=np.int64), over)


def table(
    quant: str, rates: Sequence[int | None], sites: int = 2, *, delivered: int | None = None, **key: str
) -> TaskTable:
    """One cell from successes per task; None = failed its clean pass."""
    certified = np.array([rate is not None for rate in rates])
    ran = np.where(certified, sites, 0).astype(np.int64)
    names = {"model": "m", "prompt": "P0", "fault": "et", "executor": "tolerant", "suite": "s"} | key
    return TaskTable(
        key=CellKey(quant=quant, gate="certified", trial=0, **names),
        policy="tolerant",
        tasks=tuple(f"t{at}" for at in range(len(rates))),
        families=("base",) * len(rates),
        certified=certified,
        successes=np.array([rate or 0 for rate in rates], dtype=np.int64),
        delivered=ran if delivered is None else np.minimum(ran, delivered),
        scheduled=ran,
    )


# ------------------------------------------------------------------ the bound


def test_by_hand() -> None:
    # One task: two weights, uniform, so the quantile lies alpha of the way from -1 to the value.
    for value in (-6, -3, 0, 4, 6):
        assert lower_bound(whole([value])) == pytest.approx(-1 + 0.05 * (value / 6 + 1))
    # n equal tasks: the imagined one's weight is Beta(1, n), so the bound is -(1 - alpha ** (1 / n)).
    assert lower_bound(whole([0] * 20)) == pytest.approx(-(1 - 0.05 ** (1 / 20)))
    assert lower_bound(whole([-6] * 9)) == -1.0
    assert upper_bound(whole([6] * 9)) == 1.0
    assert lower_bound(whole([3] * 9, 6), worst=0.0) == pytest.approx(0.5 * 0.05 ** (1 / 9))
    assert lower_bound(whole([])) is None
    assert upper_bound(whole([])) is None


def clopper_pearson(sample: Lattice) -> float:
    """The mean if every losing task lost the whole point, at the upper bound of the losing share."""
    lost, n = int((sample.numerators < 0).sum()), len(sample)
    return -float(binomtest(lost, n).proportion_ci(0.9, method="exact").high)


@given(st.integers(1, 300), st.data())
@settings(max_examples=40, deadline=None)
def test_all_or_nothing_is_clopper_pearson(n: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, n))
    sample = whole([-1] * lost + [0] * (n - lost), 1)
    assert lower_bound(sample) == pytest.approx(clopper_pearson(sample), abs=1e-7)


@given(sixths)
@settings(max_examples=60, deadline=None)
def test_bound_lies_between_the_coarse_bound_and_the_mean(values: list[int]) -> None:
    sample = whole(values)
    found, coarse = lower_bound(sample), clopper_pearson(sample)
    assert found is not None
    assert coarse - 1e-7 <= found <= float(sample.values.mean()) + 1e-9
    strict = lower_bound(sample, 0.01)
    assert strict is not None
    assert strict <= found
    mirrored = upper_bound(whole([-value for value in values]))
    assert mirrored == pytest.approx(-found)
    # The p value crosses alpha at the bound.
    if -0.999 < found < 0.999:
        assert chance_below(sample, found) == pytest.approx(0.05, abs=1e-6)


@given(st.lists(st.integers(-5, 6), min_size=2, max_size=6, unique=True), st.integers(-59, 59))
@settings(max_examples=80, deadline=None)
def test_chance_equals_its_closed_form_for_distinct_values(values: list[int], at: int) -> None:
    # P(sum a_j E_j > 0) = sum over a_j > 0 of the product of a_j / (a_j - a_k), exactly, in fractions.
    threshold = Fraction(2 * at + 1, 120)
    offsets = [Fraction(value, 6) - threshold for value in (-6, *values)]
    above = sum(
        (math.prod((a / (a - b) for b in offsets if b != a), start=Fraction(1)) for a in offsets if a > 0),
        start=Fraction(0),
    )
    assert chance_below(whole(values), float(threshold)) == pytest.approx(float(1 - above), abs=1e-9)


def test_chance_equals_drawn_weights() -> None:
    rng = np.random.default_rng(5)
    for n in (3, 30, 200):
        values = rng.choice([-6, -3, -2, 0, 0, 0, 2, 3, 6], n)
        drawn = rng.dirichlet(np.ones(n + 1), 40_000) @ np.concatenate([[-1.0], values / 6])
        found = chance_below(Lattice(values, 6), -0.05)
        assert found == pytest.approx(float((drawn <= -0.05).mean()), abs=0.012)


def test_with_many_varied_tasks_it_is_a_t_bound() -> None:
    values = np.random.default_rng(2).integers(-3, 4, size=5_000)
    found, at = lower_bound(Lattice(values, 6)), float(values.mean()) / 6
    student = ttest_1samp(values / 6, 0).confidence_interval(0.9).low
    assert found == pytest.approx(student, abs=0.05 * (at - student))


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"alpha 0\.7"):
        lower_bound(whole([0]), 0.7)
    with pytest.raises(ValueError, match="below 0"):
        lower_bound(whole([-1]), worst=0.0)
    with pytest.raises(ValueError, match="margin 0"):
        fewest_tasks(0)
    with pytest.raises(ValueError, match="no task"):
        chance_below(whole([]), -0.05)
    with pytest.raises(ValueError, match="spread -1"):
        tasks_to_show(0.05, -1)


@pytest.mark.parametrize("support", SUPPORTS)
def test_false_passes_stay_below_alpha_whatever_the_population(support: tuple[int, int, int]) -> None:
    # Every sample of so many tasks, weighed: no simulation. Populations are worse by just the margin.
    assert sum(1 for _ in populations(support)) >= 2
    for n in (9, 25):
        assert worst_cases(n, support, ("gate",))["gate"].rate <= 0.05


def test_the_bootstrap_alone_would_pass_rare_losses() -> None:
    found = worst_cases(20, (-6, 0, 1), ("gate", "bootstrap"))
    assert found["bootstrap"].rate > 0.3
    assert found["gate"].rate < 0.05


# ------------------------------------------------------------------ planning


def shown(sample: Lattice, margin: float = 0.05) -> bool:
    found = lower_bound(sample)
    assert found is not None
    return found > -margin


def test_planned_tasks() -> None:
    assert fewest_tasks(0.05) == 59
    assert fewest_tasks(1.0) == 1
    assert shown(whole([0] * 59))
    assert not shown(whole([0] * 58))
    numbers = [tasks_to_show(0.05, spread).n or 0 for spread in (0.0, 0.1, 0.2, 0.4)]
    assert numbers == sorted(numbers)
    assert numbers[0] >= 59
    # A normal approximation, with the imagined task's share of the margin on top.
    assert numbers[-1] == pytest.approx((1.645 + 0.842) ** 2 * 0.16 / 0.05**2, rel=0.15)
    assert tasks_to_show(0.05, 0.4, 0.2).n == numbers[-1]
    hopeless = tasks_to_show(0.05, 0.4, -0.05)
    assert hopeless.n is None
    assert "not within the margin" in str(hopeless.reason)
    assert "more than" in str(tasks_to_show(1e-4, 0.5).reason)


@pytest.mark.parametrize("moved", [0.05, 0.3])
def test_a_planned_suite_has_the_power_it_was_planned_for(moved: float) -> None:
    needed = tasks_to_show(0.1, math.sqrt(moved)).n
    assert needed is not None
    rng = np.random.default_rng(3)
    masses = [moved / 2, 1 - moved, moved / 2]
    hits = sum(shown(Lattice(rng.choice([-1, 0, 1], needed, p=masses), 1), 0.1) for _ in range(300))
    assert 0.7 < hits / 300 < 0.95


@given(st.integers(2, 3_000), st.floats(0, 0.6))
@settings(max_examples=40, deadline=None)
def test_margin_and_tasks_are_each_others_inverse(n: int, spread: float) -> None:
    found = margin_shown(n, spread)
    assert found.margin is not None
    assert found.floor is not None
    assert found.floor <= found.margin
    assume(found.margin < 0.9)
    back = tasks_to_show(found.margin + 1e-6, spread).n
    assert back is not None
    # Both widen the spread a little at n; where the floor rules, fewer tasks do.
    assert back <= n + 1
    if found.margin > 1.01 * found.floor:
        assert back >= 0.99 * n - 1


def test_margin_edges() -> None:
    assert margin_shown(0).margin is None
    assert margin_shown(1).margin == 1.0
    assert margin_shown(20).floor == pytest.approx(0.1391, abs=1e-4)


# ------------------------------------------------------------------ decisions


def test_equal_presets_need_fifty_nine_tasks() -> None:
    few = decide(table("Q8_0", [2] * 58), table("Q4_K_M", [2] * 58), Rule())
    assert few.outcome is Outcome.INCONCLUSIVE
    assert "58 tasks cannot show 'not worse by 5 points'" in few.reason
    assert "it takes 59" in few.reason
    assert few.difference.degenerate
    assert few.if_equal is not None
    assert few.if_equal.n is not None
    assert few.if_equal.n > 59
    assert "tasks if there is no true difference" in tasks_told(few)
    enough = decide(table("Q8_0", [2] * 59), table("Q4_K_M", [2] * 59), Rule())
    assert enough.outcome is Outcome.NOT_WORSE
    assert enough.if_equal is None
    assert tasks_told(enough) == ""


def test_worse_is_shown_and_more_tasks_would_not_help() -> None:
    found = decide(table("Q8_0", [2] * 30), table("Q3_K_M", [2] * 15 + [None] * 15), Rule())
    assert found.outcome is Outcome.WORSE
    assert found.at_most is not None
    assert found.at_most < -0.05
    assert (found.better, found.worse) == (0, 15)
    assert found.rate_candidate == 0.5
    assert found.difference.value == -0.5
    # A stricter level for one of many comparisons may take the claim back.
    lenient = decide(table("Q8_0", [2] * 30), table("Q3_K_M", [2] * 25 + [None] * 5), Rule())
    strict = decide(table("Q8_0", [2] * 30), table("Q3_K_M", [2] * 25 + [None] * 5), Rule(worse_alpha=0.001))
    assert lenient.at_most is not None
    assert strict.at_most is not None
    assert strict.at_most > lenient.at_most
    assert strict.at_least == lenient.at_least


def test_a_loss_beyond_the_margin_is_no_question_of_tasks() -> None:
    found = decide(table("Q8_0", [2] * 20), table("Q4_K_M", [2] * 17 + [0] * 3), Rule())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.if_observed is not None
    assert found.if_observed.n is None
    # More tasks would not show "not worse" then, and could show "worse": no number is named.
    assert "no number of tasks" not in tasks_told(found)
    assert "if there is no true difference" in tasks_told(found)


def test_tasks_that_were_already_played_are_not_asked_for() -> None:
    found = decide(table("Q8_0", [2] * 400), table("Q4_K_M", [2] * 385 + [0] * 15), Rule())
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.if_equal is not None
    assert found.if_equal.n is not None
    assert found.if_equal.n <= 400
    ((case, needed),) = found.plans
    assert "observed" in case
    assert needed.n is not None
    assert needed.n > 400


def test_what_cannot_be_decided_says_why() -> None:
    nothing = decide(table("Q8_0", [None] * 80), table("Q4_K_M", [2] * 80), Rule())
    assert nothing.outcome is Outcome.NOT_COMPARABLE
    assert "passed no task clean" in nothing.reason
    apart = decide(table("Q8_0", [2, None] * 40), table("Q4_K_M", [None, 2] * 40), Rule(Target.matched))
    assert apart.outcome is Outcome.NOT_COMPARABLE
    assert apart.at_least is None
    # A baseline that recovers hardly anything cannot be undercut by five points: no evidence for anybody.
    weak = decide(table("Q8_0", [0] * 99 + [2]), table("Q4_K_M", [0] * 100), Rule())
    assert weak.outcome is Outcome.INCONCLUSIVE
    assert "nothing could be worse" in weak.reason
    assert weak.if_equal is None


def test_targets() -> None:
    a, b = table("Q8_0", [2] * 150), table("Q4_K_M", [2] * 140 + [None] * 10)
    assert decide(a, b, Rule(Target.clean)).difference.value == pytest.approx(-1 / 15)
    matched = decide(a, b, Rule(Target.matched))
    assert (matched.outcome, matched.n_tasks) == (Outcome.NOT_WORSE, 140)
    assert "leaves out tasks that failed" in matched.remarks[0]
    own = decide(a, b, Rule(Target.own))
    assert own.outcome is Outcome.NOT_WORSE
    assert (own.better, own.spread) == (None, None)
    # Two samples share the chance of error: each side at half of it.
    assert own.at_least == pytest.approx(0.025 ** (1 / 140) - 1)
    assert decide(a, b, Rule(Target.full)).outcome is Outcome.INCONCLUSIVE


def test_faults_that_never_fired_cannot_make_a_pass() -> None:
    a = table("Q8_0", [2] * 100)
    passed = decide(a, table("Q4_K_M", [2] * 100), Rule())
    assert passed.outcome is Outcome.NOT_WORSE
    found = decide(a, table("Q4_K_M", [1] * 100, delivered=1), Rule())
    assert found.difference.value == 0
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "never fired" in found.reason
    assert "-50.0 and +0.0" in found.remarks[0]


# ------------------------------------------------------------------ which cells


def test_cells_behind_names() -> None:
    cells = [*logged_pair("Q8_0", [2] * 20), *logged_pair("Q4_K_M", [2] * 20)]
    assert {cell.facts.quant for cell in of_preset(cells, "q4_K_m")} == {"Q4_K_M"}
    assert len(tables_of(cells, Policy.tolerant, Target.clean)) == 2
    joined = [replace(cell, clean=cells[0]) for cell in cells[1:2]]
    (faulted,) = tables_of(joined, Policy.strict, Target.full)
    assert (faulted.key.fault, faulted.policy, faulted.n_certified) == ("et", "strict", 20)
    (clean,) = tables_of([*joined, cells[0]], Policy.tolerant, Target.clean)
    assert clean.key.fault == "none"


def test_pairs_agree_in_everything_but_the_preset() -> None:
    a = [table("Q8_0", [2] * 4, prompt=prompt) for prompt in ("P0", "P1")]
    b = [table("Q4_K_M", [2] * 4, prompt=prompt) for prompt in ("P1", "P0")]
    found = match(a, b)
    assert [(pair.baseline.key.prompt, pair.candidate.key.prompt) for pair in found.pairs] == [
        ("P1", "P1"),
        ("P0", "P0"),
    ]
    assert found.apart == ()
    (missing,) = match(a, b[1:]).apart
    assert (missing.baseline, missing.candidate) == ("m q8_0 P1 et", "")
    (other,) = match(a[:1], b[:1]).apart[:1]
    assert other.reason == "prompt.name differs (P0 / P1)"
    allowed = match(a[:1], b[:1], frozenset({"prompt"}))
    assert allowed.pairs[0].remarks == ("prompt.name differs (P0 / P1), as allowed",)
    assert "no finished cell" in match([], b).apart[0].reason


def marked(one: TaskTable, more: dict[str, str]) -> TaskTable:
    return replace(one, facts=Scope({**one.facts, **more}))


def test_what_keeps_two_cells_apart_is_named() -> None:
    a, b = table("Q8_0", [2] * 4), table("Q4_K_M", [2] * 4)
    build = marked(b, {"build.llama_commit": "0c1e570", "suite.seed": "7"})
    (apart,) = match([a], [build]).apart
    assert apart.reason == "suite.seed differs (unset / 7); build.llama_commit differs (unset / 0c1e570)"
    only = marked(b, {"build.llama_commit": "0c1e570", "file.imatrix": "wiki", "file.sha256": "f"})
    assert not match([a], [only]).pairs
    (pair,) = match([a], [only], frozenset({"build"})).pairs
    assert pair.remarks[0] == "build.llama_commit differs (unset / 0c1e570), as allowed"
    assert "importance matrix" in pair.remarks[1]
    shorter = table("Q4_K_M", [2] * 3)
    assert "different tasks" in match([a], [shorter]).apart[0].reason
    assert "same cell" in match([a], [a]).apart[0].reason
    two = match([a, table("Q6_K", [2] * 4)], [b]).apart[0]
    assert "several presets (q6_k, q8_0)" in two.reason
    files = [a, marked(a, {"file.sha256": "other"})]
    assert "2 files of this preset" in match(files, [b]).apart[0].reason
    # Two sweeps of the same presets, say of two builds, are compared preset by preset.
    old = [table(quant, [2] * 4, suite="s") for quant in ("Q8_0", "Q4_K_M")]
    new = [marked(one, {"build.llama_commit": "new"}) for one in old]
    pairs = match(old, new, frozenset({"build"})).pairs
    assert [(pair.baseline.key.quant, pair.candidate.key.quant) for pair in pairs] == [
        ("Q8_0", "Q8_0"),
        ("Q4_K_M", "Q4_K_M"),
    ]


# ------------------------------------------------------------------ pick


def preset(name: str, gigabytes: float, rates: Sequence[int | None], seconds: float | None = 36.0) -> Preset:
    return Preset(name, int(gigabytes * 1e9), None, 12.5, seconds, table(name.upper(), rates))


def test_the_smallest_shown_is_named() -> None:
    reference = preset("f16", 16, [2] * 100)
    others = [
        preset("q4_k_m", 4.9, [2] * 99 + [1]),
        preset("q8_0", 8.5, [2] * 100),
        preset("q6_k", 6.6, [2] * 100),
        preset("q3_k_m", 4.0, [2] * 50 + [0] * 50),
        preset("q2_k", 3.2, [2] * 100),
        replace(preset("q4_0", 4.7, [2] * 100), table=table("Q4_0", [2] * 100, prompt="P1")),
    ]
    found = pick(reference, others, Rule(), 7e9)
    assert [(step.preset.name, step.standing) for step in found.steps] == [
        ("f16", Standing.REFERENCE),
        ("q8_0", Standing.TOO_LARGE),
        ("q6_k", Standing.SHOWN),
        ("q4_k_m", Standing.SHOWN),
        ("q4_0", Standing.NOT_COMPARABLE),
        ("q3_k_m", Standing.STOPPED),
        ("q2_k", Standing.NOT_TESTED),
    ]
    assert found.chosen is not None
    assert found.chosen.preset.name == "q4_k_m"
    # It is worse, not undecided: more tasks are not missing.
    assert found.missing is None
    said = " ".join(answer(found, 7))
    assert "q4_k_m: 4.90 GB, memory not measured, 12.5 tokens/s." in said
    assert "The sequence stops at q3_k_m: worse by more than 5 points" in said


def test_twenty_tasks_name_nothing_and_say_what_is_missing() -> None:
    found = pick(preset("f16", 16, [2] * 20), [preset("q8_0", 8.5, [2] * 20)], Rule(), 10e9)
    assert found.chosen is None
    assert found.missing is not None
    said = "\n".join(answer(found, 10))
    assert "No preset can be named yet" in said
    assert "20 tasks cannot show 'not worse by 5 points'" in said
    n = found.missing.plans[0][1].n
    assert n is not None
    assert f"{n:,} tasks, about {n * 72 / 3600:.1f} hours" in said
    unknown = replace(preset("q8_0", 8.5, [2] * 20), seconds_per_task=None)
    assert "speed not measured" in "\n".join(
        answer(pick(preset("f16", 16, [2] * 20), [unknown], Rule(), 10e9), 10)
    )


def test_a_reference_that_fits_stays_where_nothing_smaller_is_shown() -> None:
    reference = preset("q8_0", 5.0, [2] * 20)
    found = pick(reference, [preset("q4_k_m", 3.0, [2] * 20), preset("f16", 5.5, [2] * 20)], Rule(), 6e9)
    assert found.chosen is found.steps[0]
    assert "the reference itself fits (5.00 GB)" in answer(found, 6)[0]
    assert found.steps[1].reason == "not smaller than the reference"
    alone = pick(reference, [], Rule(), 6e9)
    assert "No other preset" in answer(alone, 6)[1]
    nothing = pick(reference, [], Rule(), 1e9)
    assert nothing.chosen is None
    # Without known sizes the nominal bits order the presets.
    blind = pick(
        preset("f16", 0, [2] * 80), [preset("q4_0", 0, [2] * 80), preset("q8_0", 0, [2] * 80)], Rule(), 1e9
    )
    assert [step.preset.name for step in blind.steps] == ["f16", "q8_0", "q4_0"]
    assert blind.chosen is blind.steps[2]
    assert size(0) == "unknown size"


def test_hours() -> None:
    needed = tasks_to_show(0.05, 0.4)
    assert needed.n is not None
    assert Missing((("", needed),), 10.0).hours(needed) == pytest.approx(needed.n / 360)
    assert Missing((("", needed),), None).hours(needed) is None


@pytest.mark.parametrize("ladder", LADDERS[:4], ids=lambda ladder: ladder.name)
def test_a_preset_worse_by_the_margin_is_seldom_named(ladder: Ladder) -> None:
    truth = dict(zip(LEVELS, ladder.differences, strict=True))
    rng = np.random.default_rng(11)
    repeats, wrong = 60, 0
    for _ in range(repeats):
        reference, *others = presets(draw(ladder, 80, rng))
        found = pick(reference, others, Rule(margin=MARGIN), 4e9).chosen
        wrong += found is not None and truth[found.preset.name] <= -MARGIN
    # At 5 % more than 9 of 60 would come up once in a thousand times.
    assert wrong <= 9


# ------------------------------------------------------------------ files


def gate(*, hostile: str = "") -> Gate:
    worse = decide(table("Q8_0", [2] * 30), table("Q3_K_M", [2] * 15 + [None] * 15), Rule())
    fine = decide(table("Q8_0", [2] * 80), table("Q6_K", [2] * 80), Rule())
    open_ = decide(table("Q8_0", [2] * 8), table("Q4_K_M", [2] * 8), Rule())
    bad = Incomparable("", f"x{hostile}", f"prompt differs{hostile}")
    return Gate(f"gate{hostile}", (fine, worse, open_), (bad,), (f"note{hostile}",))


def test_the_worst_outcome_counts() -> None:
    all_four = gate()
    assert all_four.outcome is Outcome.WORSE
    fine, _, open_ = all_four.decisions
    assert Gate("", (fine, open_), all_four.apart).outcome is Outcome.NOT_COMPARABLE
    assert Gate("", (fine, open_), ()).outcome is Outcome.INCONCLUSIVE
    assert Gate("", (fine,), ()).outcome is Outcome.NOT_WORSE
    assert Gate("", (), ()).outcome is Outcome.NOT_COMPARABLE


def test_junit_is_well_formed_whatever_stands_in_it() -> None:
    hostile = "<b>&\"'\x00\x1b[31m\ud800\ufffe]]>"
    root = ElementTree.fromstring(to_junit(gate(hostile=hostile)).encode("utf-8"))
    assert root.tag == "testsuites"
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "1")
    cases = suite.findall("testcase")
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"],
        ["failure"],
        ["failure"],
        ["error"],
    ]
    assert [case[0].get("type") for case in cases[1:]] == ["worse", "inconclusive", "not comparable"]
    assert "<b>&\"'" in (suite.get("name") or "")
    empty = ElementTree.fromstring(to_junit(Gate("nothing", (), ())).encode("utf-8"))
    assert empty.get("errors") == "1"


def test_markdown_escapes_and_keeps_its_columns() -> None:
    text = to_markdown(gate(hostile=" | <script> `x`\n# no"))
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert {line.replace("\\|", "").count("|") for line in rows} == {11}
    assert text.startswith("### gate \\| \\<script\\>")
    assert "worse" in text.splitlines()[0]


def test_points() -> None:
    assert [points(value) for value in (None, 0.0, -0.0421, 0.0421, -0.0001)] == [
        "–",
        "0.0",
        "−4.2",
        "+4.2",
        "0.0",
    ]
