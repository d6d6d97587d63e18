"""Success under a shrinking error budget: recounts by hand, rules, gaps, and a recount beside a rerun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from qfr.analysis.diagnostics.budget import (
    ALLOW,
    BudgetTable,
    Counting,
    RerunPair,
    Rule,
    budget_curve,
    budget_gap,
    budget_table,
    rerun,
    rerun_pairs,
)
from qfr.analysis.targets import Target
from qfr.errors import TableError
from qfr.records import Channel, Ending, Episode, FaultKind, Policy
from tests.builders import make_facts
from tests.diagnosed import RIGHT, WRONG, bad, episode, good, hit, log_of

ET, IT, EP = FaultKind.et, FaultKind.it, FaultKind.ep
ERROR = bad(Channel.entity)
STOP = Rule(Counting.stop_at)


def frame(episodes: Sequence[Episode]) -> pd.DataFrame:
    return log_of("q", episodes).episodes


def recount(
    clean: Sequence[Episode], faulted: Sequence[Episode] | None, rule: Rule = ALLOW, budget: int = 3
) -> BudgetTable:
    return budget_table(
        "q",
        frame(clean),
        None if faulted is None else frame(faulted),
        policy=Policy.tolerant,
        budget=budget,
        rule=rule,
    )


def values(table: BudgetTable, target: Target = Target.full) -> list[float | None]:
    return [point.success.value for point in budget_curve(table, target).points]


def test_both_rules_by_hand() -> None:
    """Four trials of one task with 0, 1, 2 errors and a wrong answer."""
    made = [
        episode("a", [*[ERROR] * errors, answer], trial=trial)
        for trial, (errors, answer) in enumerate([(0, RIGHT), (1, RIGHT), (2, RIGHT), (0, WRONG)])
    ]
    table = recount(made, None)
    assert table.budgets == (3, 2, 1, 0)
    assert values(table) == [0.75, 0.75, 0.5, 0.25]
    assert values(recount(made, None, STOP)) == [0.75, 0.5, 0.25, 0.0]
    assert Rule().text == "allow K, injected failures not counted"
    assert Rule(Counting.stop_at, True).text == "stop at K, injected failures counted"


def test_the_injected_fault_counts_only_when_asked_and_only_where_it_fails() -> None:
    clean = [episode("a", [good(), RIGHT])]
    dead = [hit(), hit(), good("report_failure", "dead")]
    faulted = [
        episode("a", [hit(), good(), RIGHT], ET),
        episode("a", [hit(ok=True), good(), RIGHT], IT),
        episode("a", dead, EP),
    ]
    assert values(recount(clean, faulted)) == [1.0] * 4
    # Explicit transient: one failed call; displaced data: none; the dead tool: two.
    assert values(recount(clean, faulted, Rule(injected=True))) == [
        1.0,
        1.0,
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    ]


def test_full_pipeline_recounts_the_clean_pass_too() -> None:
    clean = [
        episode("a", [good(), RIGHT]),
        episode("b", [ERROR, ERROR, RIGHT]),
        episode("c", [WRONG]),
        episode("d", [good(), RIGHT]),
    ]
    faulted = [
        episode("a", [hit(), good(), RIGHT], ET),
        episode("a", [ERROR, hit(), good(), RIGHT], ET, site=1),
        episode("b", [hit(), good(), RIGHT], ET),
        # Never delivered: no rate, 0 in full.
        episode("d", [good(), RIGHT], ET),
    ]
    table = recount(clean, faulted, budget=2)
    assert values(table) == [0.5, 0.25, 0.125]
    # Own: tasks that the log's clean pass certified and that met a fault.
    assert values(table, Target.own) == [1.0, 1.0, 0.75]
    assert budget_curve(table, Target.own).points[0].success.n == 2


def test_what_cannot_be_recounted_is_refused() -> None:
    clean, faulted = [episode("a", [RIGHT])], [episode("b", [hit(), RIGHT], ET)]
    with pytest.raises(TableError, match="negative"):
        recount(clean, None, budget=-1)
    with pytest.raises(TableError, match="no clean episode"):
        recount(clean, faulted)
    with pytest.raises(TableError, match="twice"):
        recount([*clean, episode("a", [RIGHT], trial=1)], [episode("a", [hit(), RIGHT], ET)])
    with pytest.raises(TableError, match="no column delivered"):
        budget_table("q", frame(clean).drop(columns="delivered"), None, policy=Policy.tolerant, budget=1)
    table = recount(clean, None)
    with pytest.raises(TableError, match="no target s_star"):
        budget_curve(table, Target.s_star)


TRIALS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.lists(TRIALS, min_size=1, max_size=6), st.booleans())
def test_curves_never_rise_and_the_rules_are_one_apart(
    tasks: list[list[tuple[int, bool]]], own: bool
) -> None:
    made = [
        episode(f"t{at}", [*[ERROR] * errors, RIGHT if right else WRONG], trial=trial)
        for at, trials in enumerate(tasks)
        for trial, (errors, right) in enumerate(trials)
    ]
    target = Target.own if own else Target.full
    allow = values(recount(made, None, budget=5), target)
    stop = values(recount(made, None, STOP, budget=5), target)
    assert allow == sorted(allow, reverse=True)
    assert stop[:-1] == allow[1:]
    assert stop[-1] == 0.0
    # The largest budget is the log's own: the plain mean of task rates.
    expected = np.mean([np.mean([right for _, right in trials]) for trials in tasks])
    assert allow[0] == pytest.approx(expected)


# --- gap -------------------------------------------------------------------------------------------------


def cell(errors: Sequence[int | None]) -> BudgetTable:
    """One task per entry that succeeds with so many errors; None = it fails."""
    made = [
        episode(f"t{at}", [*[ERROR] * (count or 0), WRONG if count is None else RIGHT])
        for at, count in enumerate(errors)
    ]
    return recount(made, None, budget=3)


def test_a_flat_score_hides_a_gap_that_a_tight_budget_shows() -> None:
    first, second = cell([0] * 30), cell([0, 1, 2] * 10)
    found = budget_gap(first, second, Target.full, rng=default_rng(0), resamples=2_000)
    assert [point.gap.value for point in found.points] == pytest.approx([0, 0, 1 / 3, 2 / 3])
    assert [(p.first, p.second) for p in found.points] == [
        (1.0, 1.0),
        (1.0, 1.0),
        (1.0, pytest.approx(2 / 3)),
        (1.0, pytest.approx(1 / 3)),
    ]
    assert [point.gap.degenerate for point in found.points] == [True, True, False, False]
    flipped = budget_gap(second, first, Target.full, rng=default_rng(0), resamples=2_000)
    assert [p.gap.value for p in flipped.points] == pytest.approx([-(p.gap.value or 0) for p in found.points])


def test_the_band_is_wider_than_each_interval_alone() -> None:
    rng = default_rng(7)
    first, second = cell(rng.integers(0, 4, 60).tolist()), cell(rng.integers(0, 4, 60).tolist())
    found = budget_gap(first, second, Target.full, rng=default_rng(0), resamples=4_000)
    assert found.critical is not None
    # One contrast alone needs about 1.96 standard errors.
    assert found.critical > 2.05
    for point in found.points[1:]:
        assert point.gap.low is not None
        assert point.gap.high is not None
        assert point.gap.value is not None
        assert point.gap.low < point.gap.value < point.gap.high


def test_matched_and_own_gaps_use_their_own_tasks() -> None:
    def fault_cell(passed: str, good_at: str) -> BudgetTable:
        clean = [episode(task, [RIGHT if task in passed else WRONG]) for task in "abc"]
        faulted = [episode(t, [hit(), good(), RIGHT if t in good_at else WRONG], ET) for t in passed]
        return recount(clean, faulted, budget=0)

    first, second = fault_cell("ab", "a"), fault_cell("bc", "bc")
    one = {
        target: budget_gap(first, second, target, rng=default_rng(0), resamples=200).points[0]
        for target in (Target.full, Target.matched, Target.own)
    }
    assert one[Target.full].gap.value == pytest.approx(1 / 3 - 2 / 3)
    assert one[Target.matched].gap.value == pytest.approx(0 - 1)
    assert one[Target.matched].gap.n == 1
    assert one[Target.own].gap.value == pytest.approx(1 / 2 - 1)
    assert (one[Target.own].gap.n, one[Target.own].gap.n_second) == (2, 2)


def test_gaps_of_unlike_recounts_are_refused() -> None:
    table = cell([0, 1])
    with pytest.raises(TableError, match="other rules"):
        budget_gap(table, recount([episode("t0", [RIGHT])], None, STOP), Target.full, rng=default_rng(0))
    with pytest.raises(TableError, match="different tasks"):
        budget_gap(table, cell([0]), Target.full, rng=default_rng(0))
    shared = budget_gap(table, cell([1]), Target.matched, rng=default_rng(0), resamples=50)
    assert [point.gap.n for point in shared.points] == [1] * 4


# --- rerun -----------------------------------------------------------------------------------------------


def stopped(made: Episode, budget: int) -> Episode:
    """What the executor would have logged of the same episode under a smaller budget."""
    seen = 0
    for at, turn in enumerate(made.turns):
        seen += turn.observation.channel is not None
        if seen > budget:
            return replace(
                made, turns=made.turns[: at + 1], errors=seen, ending=Ending.out_of_errors, answer=None
            )
    return made


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8), st.integers(0, 3))
def test_the_recount_equals_a_rerun_of_the_same_behaviour(tasks: list[tuple[int, int]], budget: int) -> None:
    clean = [episode(f"t{at}", [*[ERROR] * one, RIGHT]) for at, (one, _) in enumerate(tasks)]
    faulted = [
        episode(f"t{at}", [*[ERROR] * two, hit(), good(), RIGHT], ET) for at, (_, two) in enumerate(tasks)
    ]
    tight_clean = [stopped(one, budget) for one in clean]
    certified = {one.task for one in tight_clean if one.ending is Ending.submitted}
    tight_faulted = [stopped(one, budget) for one in faulted if one.task in certified]
    wide = recount(clean, faulted, budget=4)
    tight = recount(tight_clean, tight_faulted, budget=budget)
    found = rerun(wide, tight)
    assert found.budget == budget
    assert found.differing == ()
    assert found.recount.value == found.rerun.value
    assert found.difference.value == 0


def test_a_rerun_that_behaves_otherwise_is_named() -> None:
    wide = recount([episode(task, [ERROR, RIGHT]) for task in "abc"], None)
    tight = recount(
        [episode("b", [RIGHT]), episode("a", [WRONG]), episode("c", [ERROR, RIGHT])], None, budget=1
    )
    found = rerun(wide, tight)
    assert found.differing == ("a",)
    assert (found.recount.value, found.rerun.value) == (1.0, pytest.approx(2 / 3))
    assert found.difference.value == pytest.approx(1 / 3)


def test_a_rerun_that_cannot_be_compared_is_refused() -> None:
    wide = recount([episode("a", [RIGHT])], None)
    with pytest.raises(TableError, match="does not count by the rule"):
        rerun(recount([episode("a", [RIGHT])], None, STOP), recount([episode("a", [RIGHT])], None, STOP, 1))
    with pytest.raises(TableError, match="below the rerun's"):
        rerun(wide, recount([episode("a", [RIGHT])], None, budget=9))
    with pytest.raises(TableError, match="tasks differ"):
        rerun(wide, recount([episode("b", [RIGHT])], None, budget=1))
    with pytest.raises(TableError, match="policies or counting"):
        rerun(wide, recount([episode("a", [RIGHT])], None, STOP, 1))


def test_reruns_are_found_among_cells() -> None:
    facts = make_facts("m", "Q8_0", "P0", "et")
    tight = replace(facts, error_budget=2, executor_sha256="other", cell_id="c-2")
    other_prompt = replace(tight, prompt="P1", prompt_sha256="x")
    assert rerun_pairs([tight, facts, other_prompt]) == (RerunPair(1, 0),)
    assert rerun_pairs([facts, replace(tight, step_budget=5)]) == ()
