"""Targets, pairing, contrasts and their degenerate cases, by hand-computed tables and by properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.analysis import frames
from qfr.analysis.cells import summarize
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.groups import group_contrast, interaction
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import kept_apart, pairs
from qfr.analysis.process import process
from qfr.analysis.results import Contrast
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target, TaskTable, shared_tasks
from qfr.errors import LogError, TableError
from qfr.records import Ending, FaultKind
from qfr.scope import Scope
from tests.builders import Style, build_cell_episodes, orders20, undelivered
from tests.logged import Logged, logged, logged_pair

KEY = CellKey("m", "Q8_0", "P0", "et", "tolerant", "orders20", "certified", 0)


def make_table(
    successes: list[int | None],
    sites: list[int],
    *,
    lost: list[int] | None = None,
    families: tuple[str, ...] | None = None,
    scope: Mapping[str, str] | None = None,
    policy: str = "tolerant",
    **names: str | int,
) -> TaskTable:
    """A cell from successes per task (None = not certified), sites and undelivered faults."""
    certified = np.array([value is not None for value in successes])
    scheduled = np.where(certified, np.array(sites), 0)
    gone = np.array(lost or [0] * len(sites))
    key = replace(KEY, **names)
    return TaskTable(
        key=key,
        policy=policy,
        tasks=tuple(f"t{at}" for at in range(len(sites))),
        families=families or ("",) * len(sites),
        certified=certified,
        successes=np.array([value or 0 for value in successes]),
        delivered=scheduled - gone,
        scheduled=scheduled,
        facts=Scope(scope or {}),
    )


def pick(contrasts: tuple[Contrast, ...], target: Target, family: str | None = None) -> Contrast:
    (found,) = (c for c in contrasts if (c.target, c.family) == (target, family))
    return found


def two(a: TaskTable, b: TaskTable, options: Options | None = None) -> tuple[Contrast, ...]:
    return contrast_table([a, replace(b, key=replace(b.key, quant="Q4_K_M"))], options)


# --- levels -----------------------------------------------------------------------------------------------


def test_levels_sort_from_high_to_low_precision() -> None:
    given = ["4", "Q4_K_M", "F16", "8", "q8_0", "FP8", "INT4-AWQ", "Q2_K", "3.5", "NVFP4", "awq", "NF4"]
    ordered = sorted(given, key=lambda level: order_key(Axis.quant, level))
    assert ordered == [
        *("F16", "q8_0", "8", "FP8", "Q4_K_M", "NVFP4", "awq", "NF4", "4", "INT4-AWQ", "3.5", "Q2_K")
    ]
    # Formats that servers run have their bits too.
    assert (bits("awq"), bits("NVFP4")) == (4.25, 4.5)
    assert bits("mine") is None
    with pytest.raises(TableError, match="cannot be ordered"):
        order_key(Axis.quant, "mine")
    assert order_key(Axis.quant, "mine", ("bf16", "mine")) > order_key(Axis.quant, "bf16", ("bf16", "mine"))
    with pytest.raises(TableError, match="missing from the given order"):
        order_key(Axis.quant, "fp8", ("bf16", "awq"))


def test_prompts_sort_naturally_and_faults_by_definition() -> None:
    assert sorted(["P10", "P2", "P0"], key=lambda p: order_key(Axis.prompt, p)) == ["P0", "P2", "P10"]
    assert sorted(["ep", "it", "et"], key=lambda f: order_key(Axis.fault, f)) == ["et", "it", "ep"]


def test_digits_of_another_script_do_not_break_the_order() -> None:
    assert sorted(["P²", "P1", "P" + "9" * 5000], key=lambda p: order_key(Axis.prompt, p))[0] == "P1"


# --- targets ----------------------------------------------------------------------------------------------


def test_targets_by_hand() -> None:
    a = make_table([2, 1, None, 3], [2, 2, 3, 3])
    b = make_table([1, None, 2, 3], [2, 2, 3, 3])
    found = two(a, b)
    assert pick(found, Target.clean).points == 0.0
    own = pick(found, Target.own)
    assert own.points == pytest.approx(100 * ((1 + 0.5 + 1) / 3 - (0.5 + 2 / 3 + 1) / 3))
    matched = pick(found, Target.matched)
    assert (matched.n_tasks, matched.points) == (2, 25.0)
    assert (matched.dropped_a, matched.dropped_b) == (("t1",), ("t2",))
    full = pick(found, Target.full)
    assert full.points == pytest.approx(100 * ((1 + 0.5 + 1) / 4 - (0.5 + 2 / 3 + 1) / 4))
    assert (full.rate_a, full.n_tasks) == (0.625, 4)
    assert Target.ungated not in {c.target for c in found}


def test_an_undelivered_fault_leaves_the_denominator_and_is_bounded() -> None:
    # Task 0: one of two faults fired and was met. Task 1: none fired. Task 2: all fired, one met.
    a = make_table([1, 0, 1], [2, 2, 2], lost=[1, 2, 0])
    b = make_table([1, 1, 1], [2, 2, 2])
    found = two(a, b)
    own = pick(found, Target.own)
    assert (own.rate_a, own.n_tasks_a, own.n_tasks_b) == (0.75, 2, 3)
    assert (own.dropped_a, own.undelivered_a, own.undelivered_b) == (("t1",), ("t1",), ())
    matched = pick(found, Target.matched)
    assert (matched.n_tasks, matched.points) == (2, 25.0)
    full = pick(found, Target.full)
    assert full.rate_a == pytest.approx((1 + 0 + 0.5) / 3)
    # With the three lost faults as failures A is (1/2 + 0 + 1/2)/3, as successes (1 + 1 + 1/2)/3; B is 1/2.
    for contrast in (own, matched, full):
        assert contrast.undelivered_low_points is not None
        assert contrast.undelivered_low_points == pytest.approx(100 * (1 / 3 - 1 / 2))
        assert contrast.undelivered_high_points == pytest.approx(100 * (2.5 / 3 - 1 / 2))
    assert pick(found, Target.clean).undelivered_low_points is None
    (cell, _) = summarize([a, replace(b, key=replace(b.key, quant="Q4_K_M"))])
    assert (cell.scheduled, cell.undelivered, cell.undelivered_tasks) == (6, 3, ("t1",))
    assert cell.own_bounds is not None
    assert (cell.own_bounds.low, cell.own_bounds.high) == pytest.approx((100 / 3, 250 / 3))


def test_bounds_are_absent_when_every_fault_fired() -> None:
    found = two(make_table([1, 2], [2, 2]), make_table([1, None], [2, 2]))
    assert all(contrast.undelivered_low_points is None for contrast in found)
    full = pick(found, Target.full)
    # B's uncertified task may have any rate: A - B = (1/2 + 1)/2 - (1/2 + x)/2.
    assert (full.ungated_low_points, full.ungated_high_points) == pytest.approx((0.0, 50.0))


def test_ungated_uses_every_task() -> None:
    a = make_table([2, 0], [2, 2], gate="none")
    b = make_table([0, 0], [2, 2], gate="none")
    b = replace(b, certified=np.array([True, False]), successes=np.array([1, 2]))
    found = two(a, b)
    assert pick(found, Target.ungated).points == pytest.approx(100 * (0.5 - 0.75))
    assert pick(found, Target.ungated).n_tasks == 2
    assert pick(found, Target.full).rate_b == 0.25
    assert pick(found, Target.full).ungated_low_points is None


def test_s_star_needs_every_prompt() -> None:
    sites = [2, 2, 2]
    tables = [
        make_table([1, 1, 1], sites),
        make_table([1, 1, 0], sites, quant="Q4_K_M"),
        make_table([1, None, 1], sites, prompt="P1"),
        make_table([1, 1, None], sites, quant="Q4_K_M", prompt="P1"),
        make_table([None, 1, 1], sites, quant="Q3_K_M", prompt="P1"),
    ]
    found = [
        c for c in contrast_table(tables) if c.target == Target.s_star and {c.a, c.b} == {"Q8_0", "Q4_K_M"}
    ]
    assert [(c.prompt, c.n_tasks) for c in found] == [("P0", 1), ("P1", 1)]
    assert found[0].reason == "one task: no interval"
    assert [cell.n_s_star for cell in summarize(tables, families=False)] == [2, 2, 2, 2, 2]
    with pytest.raises(TableError, match="no cells"):
        shared_tasks(())


# --- degenerate cases ---------------------------------------------------------------------------------------


def test_empty_matched_set_is_none_with_a_reason() -> None:
    found = pick(two(make_table([1, None], [2, 2]), make_table([None, 1], [2, 2])), Target.matched)
    assert (found.n_tasks, found.points, found.low, found.high) == (0, None, None, None)
    assert found.reason == "empty matched set"
    assert (found.sign_p, found.signflip_p) == (None, None)


def test_a_level_without_certified_tasks_names_itself() -> None:
    found = two(make_table([1, 2], [2, 2]), make_table([None, None], [2, 2]))
    own = pick(found, Target.own)
    assert own.points is None
    assert own.reason == "no certified task with a delivered fault at Q4_K_M"
    full = pick(found, Target.full)
    assert (full.screening_points, full.only_a_points) == (None, 75.0)


def test_one_task_has_a_point_and_no_interval() -> None:
    found = pick(two(make_table([1, None], [2, 2]), make_table([0, None], [2, 2])), Target.matched)
    assert (found.points, found.low, found.high) == (50.0, None, None)
    assert not found.reliable


def test_zero_variance_is_flagged() -> None:
    found = pick(two(make_table([2] * 10, [2] * 10), make_table([1] * 10, [2] * 10)), Target.matched)
    assert (found.points, found.low, found.high) == (50.0, 50.0, 50.0)
    assert found.degenerate
    assert not found.reliable
    assert found.reason is not None
    assert "degenerate" in found.reason


def test_impossible_tables_are_refused() -> None:
    good = make_table([1, 2], [2, 2])
    with pytest.raises(TableError, match="out of order"):
        replace(good, successes=np.array([1, 3]))
    with pytest.raises(TableError, match="twice"):
        replace(good, tasks=("t", "t"))
    with pytest.raises(TableError, match="for 2 tasks"):
        replace(good, families=("x",))
    with pytest.raises(TableError, match="different tasks"):
        contrast_table([good, replace(good, tasks=("x", "y"), key=replace(KEY, quant="Q4_K_M"))])


# --- pairing ------------------------------------------------------------------------------------------------


def test_all_levels_against_each_other_higher_minus_lower() -> None:
    tables = [make_table([1, 2], [2, 2], quant=q) for q in ("Q3_K_M", "Q8_0", "Q4_K_M")]
    assert [(p.label_a, p.label_b) for p in pairs(tables, Axis.quant)] == [
        ("Q8_0", "Q4_K_M"),
        ("Q8_0", "Q3_K_M"),
        ("Q4_K_M", "Q3_K_M"),
    ]


@pytest.mark.parametrize(
    "key", ["suite.seed", "prompt.sha256", "fault.message", "engine.type_k", "build.llama_commit"]
)
def test_a_difference_beside_the_preset_keeps_cells_apart_and_is_named(key: str) -> None:
    one = make_table([1, 2], [2, 2], scope={key: "aaaa"})
    other = make_table([1, 2], [2, 2], quant="Q4_K_M", scope={key: "bbbb"})
    assert pairs([one, other], Axis.quant) == ()
    (apart,) = kept_apart([one, other], Axis.quant)
    assert (apart.a, apart.b) == ("m q8_0 P0 et", "m q4_k_m P0 et")
    assert f"{key} differs" in apart.reason
    assert ("(aaaa / bbbb)" in apart.reason) == (not key.endswith("sha256"))
    like = make_table([1, 2], [2, 2], quant="Q4_K_M", scope={key: "aaaa"})
    assert kept_apart([one, like], Axis.quant) == ()


def test_a_static_and_an_imatrix_file_of_one_preset_never_pool() -> None:
    high = make_table([1, 2], [2, 2], scope={"file.sha256": "f8"})
    static = make_table([1, 2], [2, 2], quant="Q4_K_M", scope={"file.sha256": "f4"})
    imatrix = make_table(
        [2, 2], [2, 2], quant="Q4_K_M", scope={"file.sha256": "f5", "file.imatrix": "cal.dat"}
    )
    found = pairs([high, static, imatrix], Axis.quant)
    assert [(p.label_a, p.label_b) for p in found] == [
        ("Q8_0", "Q4_K_M [file.imatrix=cal.dat]"),
        ("Q8_0", "Q4_K_M [file.imatrix=unset]"),
    ]
    assert "importance matrix differs" in found[0].remarks[0]
    (apart,) = kept_apart([high, static, imatrix], Axis.quant)
    assert "file.imatrix differs (unset / cal.dat)" in apart.reason
    # With the prompt varied, the file must be the same one.
    by_prompt = [static, make_table([2, 2], [2, 2], quant="Q4_K_M", prompt="P1", scope={"file.sha256": "f5"})]
    assert pairs(by_prompt, Axis.prompt) == ()


def test_two_builds_give_two_contrasts_that_say_which() -> None:
    tables = [
        make_table([1, 2], [2, 2], quant=q, scope={"build.llama_commit": build})
        for build in ("old", "new")
        for q in ("Q8_0", "Q4_K_M")
    ]
    found = [c for c in contrast_table(tables) if c.target == Target.full]
    assert [c.scope for c in found] == ["build.llama_commit=old", "build.llama_commit=new"]
    # Asked for, builds are set against each other too, each named; the others stay as they are.
    asked = [c for c in contrast_table(tables, Options(across_builds=True)) if c.target == Target.full]
    assert asked[:2] == found
    assert [(c.a, c.b, c.scope) for c in asked[2:]] == [
        ("Q8_0 [old]", "Q8_0 [new]", "across builds"),
        ("Q8_0 [old]", "Q4_K_M [new]", "across builds"),
        ("Q8_0 [new]", "Q4_K_M [old]", "across builds"),
        ("Q4_K_M [old]", "Q4_K_M [new]", "across builds"),
    ]
    assert all("build.llama_commit differs" in " ".join(c.remarks) for c in asked[2:])


def test_the_same_cell_twice_is_refused() -> None:
    with pytest.raises(TableError, match="listed twice"):
        pairs([make_table([1], [2]), make_table([2], [2])], Axis.quant)


@pytest.mark.parametrize(
    ("vary", "names"),
    [
        (Axis.prompt, {"prompt": "P1"}),
        (Axis.model, {"model": "n"}),
        (Axis.fault, {"fault": "ep"}),
        (Axis.executor, {"executor": "strict_feedback"}),
    ],
)
def test_every_axis_can_be_varied(vary: Axis, names: dict[str, str]) -> None:
    found = contrast_table(
        [make_table([2, 2], [2, 2]), make_table([1, 1], [2, 2], **names)], Options(vary=vary)
    )
    contrast = pick(found, Target.full)
    assert contrast.points == 50.0
    assert getattr(contrast, vary.value) is None
    assert contrast.b == next(iter(names.values()))


def test_policies_and_trials_never_mix() -> None:
    tables = [make_table([1], [2]), make_table([1], [2], quant="Q4_K_M", trial=1)]
    tables += [make_table([1], [2], quant="Q4_K_M", policy="strict")]
    assert pairs(tables, Axis.quant) == ()


# --- groups -------------------------------------------------------------------------------------------------


def test_groups_of_presets_on_shared_tasks() -> None:
    sites = [2, 2, 2]
    first = [make_table([2, 2, 1], sites), make_table([1, 2, None], sites, quant="Q6_K")]
    second = [make_table([1, 2, 2], sites, quant="Q4_K_M")]
    found = group_contrast(first, second)
    assert found.tasks == ("t0", "t1")
    assert found.points == pytest.approx(100 * ((0.75 - 0.5) + 0) / 2)
    assert (found.sign.favour_first, found.sign.ties) == (1, 1)
    with pytest.raises(TableError, match="without cells"):
        group_contrast(first, [])


def test_difference_of_differences() -> None:
    sites = [2, 2]
    p0 = make_table([2, 2], sites), make_table([1, None], sites, quant="Q4_K_M")
    p4 = make_table([1, 2], sites, prompt="P4"), make_table([2, 2], sites, quant="Q4_K_M", prompt="P4")
    assert interaction(p0, p4).points == pytest.approx(100 * (0.5 - (-0.5)))
    assert interaction(p0, p4, Target.full).points == pytest.approx(100 * ((0.5 + 1) / 2 - (-0.5 + 0) / 2))
    high, low = make_table([2, 2], sites), make_table([0, 0], sites, quant="Q4_K_M")
    turned = make_table([0, 0], sites, prompt="P4"), make_table([2, 2], sites, quant="Q4_K_M", prompt="P4")
    largest = interaction((high, low), turned)
    assert (largest.points, largest.difference.degenerate) == (200.0, True)
    assert largest.bayesian.low is not None
    assert (largest.bayesian.value, largest.bayesian.high) == (2.0, 2.0)
    assert -1 < largest.bayesian.low < 1.5
    with pytest.raises(TableError, match="use matched or full"):
        interaction(p0, p4, Target.own)


# --- logged cells -------------------------------------------------------------------------------------------


TABLE: list[int | None] = [2, 1, 0, None, 2, 2, 2, 2, 2, 2, 3, 3, 1, None, 0, 2, 2, 3, None, None]


def test_a_fault_cell_is_joined_with_its_clean_pass() -> None:
    joined = frames.join(logged_pair("Q8_0", TABLE))
    tolerant, strict = joined.tables
    assert (tolerant.policy, strict.policy) == ("tolerant", "strict")
    assert tolerant.certified.tolist() == [value is not None for value in TABLE]
    assert tolerant.successes.tolist() == [value or 0 for value in TABLE]
    assert tolerant.scheduled.tolist() == [
        0 if value is None else sites for value, sites in zip(TABLE, [2] * 10 + [3] * 10, strict=True)
    ]
    assert strict.successes.tolist() == tolerant.successes.tolist()
    assert tolerant.family_names() == ("base", "shipping")


def test_expressions_count_under_tolerant_scoring_only() -> None:
    tolerant, strict = frames.join(logged_pair("Q8_0", TABLE, Style(expression=True))).tables
    assert tolerant.successes.sum() == sum(value or 0 for value in TABLE)
    assert strict.successes.sum() == 0
    assert strict.n_certified == tolerant.n_certified


def test_an_undelivered_episode_is_flagged_from_the_log() -> None:
    clean, faulted = logged_pair("Q8_0", TABLE)
    built = build_cell_episodes(TABLE, orders20())
    lost = (undelivered(built.faulted[0], orders20()[0]), *built.faulted[1:])
    table = frames.join([clean, logged(faulted.facts, lost)]).tables[0]
    assert (table.scheduled[0], table.delivered[0]) == (2, 1)
    assert table.undelivered_tasks == ()


def test_a_clean_pass_may_come_with_its_fault_cell() -> None:
    clean, faulted = logged_pair("Q8_0", TABLE)
    alone = frames.join([replace(faulted, clean=clean)])
    assert alone.orphans == ()
    assert alone.tables[0].n_certified == sum(value is not None for value in TABLE)


def test_orphans_doubles_and_clean_passes_alone() -> None:
    clean, faulted = logged_pair("Q8_0", TABLE)
    assert frames.join([faulted]).orphans == ("m q8_0 P0 et",)
    assert frames.join([clean, faulted, faulted]).doubled == ("m q8_0 P0 et",)
    other_clean, _ = logged_pair("Q4_K_M", [None, *TABLE[1:]])
    alone = frames.join([clean, other_clean])
    found = contrast_table(alone.tables)
    assert {c.target for c in found} == {Target.clean}
    assert pick(tuple(c for c in found if c.policy == "tolerant"), Target.clean).points == 5.0


def test_a_clean_pass_of_other_tasks_is_refused() -> None:
    clean, faulted = logged_pair("Q8_0", TABLE)
    with pytest.raises(LogError, match="no clean episode"):
        frames.join([Logged(clean.facts, clean.episodes.iloc[1:]), faulted])
    twice = pd.concat([clean.episodes, clean.episodes.iloc[:1]])
    with pytest.raises(LogError, match="a task twice"):
        frames.join([Logged(clean.facts, twice), faulted])


def test_process_counts() -> None:
    clean, faulted = logged_pair(
        "Q8_0", TABLE, Style(bad_call=True, prose=True, fail_by=Ending.reported_failure)
    )
    counted = process(faulted)
    assert counted.episodes == sum(c.count for c in counted.endings) == len(faulted.episodes)
    assert {c.name: c.count for c in counted.channels}["tool_name"] == counted.errors == counted.episodes
    assert {c.name: c.count for c in counted.faults}["scheduled"] == counted.episodes
    assert counted.turns_not_strict == counted.episodes
    assert [answers.successes for answers in counted.answers] == [sum(v or 0 for v in TABLE), 0]
    assert process(clean).faults == ()


def test_permanent_faults_have_reports_and_inventions() -> None:
    _, faulted = logged_pair("Q8_0", TABLE, fault=FaultKind.ep)
    (answers, _) = process(faulted).answers
    assert (
        answers.successes == answers.reported_after == answers.reported == sum(value or 0 for value in TABLE)
    )
    assert answers.invented == len(faulted.episodes) - answers.reported


# --- properties ---------------------------------------------------------------------------------------------


@st.composite
def cells(draw: st.DrawFn) -> tuple[TaskTable, TaskTable]:
    n = draw(st.integers(1, 12))
    sites = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    made = []
    for quant in ("Q8_0", "Q4_K_M"):
        successes = [draw(st.none() | st.integers(0, most)) for most in sites]
        lost = [
            0 if good is None else draw(st.integers(0, most - good))
            for good, most in zip(successes, sites, strict=True)
        ]
        made.append(make_table(successes, sites, lost=lost, quant=quant))
    return made[0], made[1]


@settings(max_examples=150, deadline=None)
@given(cells())
def test_swapping_the_levels_turns_every_sign(given_cells: tuple[TaskTable, TaskTable]) -> None:
    a, b = given_cells
    forward = contrast_table([a, b])
    backward = contrast_table(
        [replace(a, key=replace(a.key, quant="Q4_K_M")), replace(b, key=replace(b.key, quant="Q8_0"))]
    )
    for one, other in zip(forward, backward, strict=True):
        assert (one.points is None) == (other.points is None)
        if one.points is not None and other.points is not None:
            assert one.points == pytest.approx(-other.points, abs=1e-9)
            assert (one.favour_a, one.sign_p) == (other.favour_b, other.sign_p)
        assert one.degenerate == other.degenerate


@settings(max_examples=150, deadline=None)
@given(cells())
def test_points_lie_within_their_bounds_and_splits_add_up(given_cells: tuple[TaskTable, TaskTable]) -> None:
    for contrast in contrast_table(given_cells):
        if contrast.points is None:
            assert contrast.reason
            assert contrast.low is contrast.high is None
            continue
        assert -100 <= contrast.points <= 100
        if contrast.low is not None and contrast.high is not None:
            assert contrast.low <= contrast.high
            assert contrast.degenerate == (contrast.low == contrast.high)
        one, two, three = contrast.shared_points, contrast.only_a_points, contrast.only_b_points
        if one is not None:
            assert one + two + three == pytest.approx(contrast.points, abs=1e-6)
            if contrast.screening_points is not None:
                steps = contrast.screening_points + contrast.own_rates_points
                assert steps == pytest.approx(contrast.points, abs=1e-6)
        if contrast.target == Target.full and contrast.undelivered_low_points is not None:
            low, high = contrast.undelivered_low_points, contrast.undelivered_high_points
            assert low - 1e-6 <= contrast.points <= high + 1e-6


def test_streams_are_independent_of_order_and_differ_by_name() -> None:
    one, again, other = (stream(1, names).integers(0, 2**62) for names in (["a"], ["a"], ["b"]))
    assert one == again
    assert one != other
    assert one != stream(2, ["a"]).integers(0, 2**62)
