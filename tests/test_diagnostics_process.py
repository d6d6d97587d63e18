"""Recovery after errors, margins, losses, the risk screen and trajectory length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from qfr.analysis.diagnostics.length import length_changes, lengths
from qfr.analysis.diagnostics.log import Log
from qfr.analysis.diagnostics.margins import foretold, losses, turn_margins, wrong_turns
from qfr.analysis.diagnostics.recovery import Next, Recovery, recovery
from qfr.analysis.diagnostics.screen import COMBINED, Predictor, screen
from qfr.errors import TableError
from qfr.records import Channel, FaultKind, Policy
from qfr.stats.intervals import Options
from tests.diagnosed import REPORT, RIGHT, WRONG, Made, bad, episode, good, hit, log_of

FEW = Options(resamples=200)
ET, IT, EP = FaultKind.et, FaultKind.it, FaultKind.ep
ENTITY, FORM = bad(Channel.entity), bad(Channel.form)
TOLERANT = Policy.tolerant


# --- recovery --------------------------------------------------------------------------------------------


def recovered(log: Log, source: str, windows: tuple[int, ...] = (1, 2, 3)) -> Recovery:
    found = recovery(log, rng=default_rng(0), windows=windows, options=FEW)
    return next(one for one in found if one.source == source)


def nexts(one: Recovery) -> dict[Next, int]:
    return {count.kind: count.count for count in one.following if count.count}


def test_recovery_by_hand() -> None:
    log = log_of(
        "q",
        [
            # Two errors in a row, then valid: distances 2 and 1; tokens read 11 + 12 and 12, written 1 each.
            episode("a", [ENTITY, ENTITY, good(), RIGHT]),
            # Recovered by submitting.
            episode("a", [good(), ENTITY, RIGHT], trial=1),
            # Giving up and running out are no recovery.
            episode("b", [ENTITY, REPORT]),
            episode("b", [good(), ENTITY], trial=1),
        ],
    )
    one = recovered(log, "any_error")
    assert (one.errors, one.recovered) == (5, 3)
    assert [within.share.value for within in one.within] == pytest.approx([2 / 5, 3 / 5, 3 / 5])
    assert one.turns.value == pytest.approx((2 + 1 + 1) / 3)
    assert one.tokens_out.value == pytest.approx((2 + 1 + 1) / 3)
    assert nexts(one) == {
        Next.identical: 1,
        Next.changed: 1,
        Next.answered: 1,
        Next.gave_up: 1,
        Next.nothing: 1,
    }
    same = recovered(log, "entity")
    assert (same.errors, same.recovered, same.within[0].share.value) == (5, 3, one.within[0].share.value)
    none = recovered(log, "tool_name")
    assert (none.errors, none.turns.value) == (0, None)
    sources = {one.source for one in recovery(log, rng=default_rng(0), windows=(1,), options=FEW)}
    assert not any(source.startswith("injected") for source in sources), "only kinds that were run"


def test_the_turn_after_an_error_is_named() -> None:
    log = log_of(
        "q",
        [
            episode("a", [ENTITY, good("find", "x"), FORM, FORM, good(), ENTITY, FORM, RIGHT]),
            episode("b", [hit(value="x"), good(value="x"), RIGHT], ET),
            episode("b", [hit(value="x"), good(value="y"), RIGHT], ET, site=1),
            episode("b", [hit(), hit(), REPORT], EP),
            episode("b", [hit(ok=True), RIGHT], IT),
        ],
    )
    assert nexts(recovered(log, "entity")) == {Next.other_tool: 1, Next.unreadable: 1}
    assert nexts(recovered(log, "format")) == {Next.unreadable: 1, Next.readable: 1, Next.answered: 1}
    et = recovered(log, "injected_et")
    assert (et.errors, et.recovered) == (2, 2)
    assert nexts(et) == {Next.identical: 1, Next.changed: 1}
    ep = recovered(log, "injected_ep")
    assert (ep.errors, ep.recovered) == (2, 0)
    assert nexts(ep) == {Next.identical: 1, Next.gave_up: 1}


def test_a_good_call_that_meets_the_fault_recovers_from_an_own_error_but_not_from_the_fault() -> None:
    log = log_of("q", [episode("a", [ENTITY, hit(), good(), RIGHT], ET)])
    assert recovered(log, "entity").within[0].share.value == 1.0
    assert recovered(log, "injected_et").turns.value == 1.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from([ENTITY, FORM, good()]), max_size=7), min_size=1, max_size=4))
def test_recovery_agrees_with_a_plain_walk(episodes: list[list[Made]]) -> None:
    log = log_of("q", [episode(f"t{at}", [*calls, RIGHT]) for at, calls in enumerate(episodes)])
    one = recovered(log, "any_error", (2,))
    distances = []
    for calls in episodes:
        whole = [*calls, RIGHT]
        for at, call in enumerate(whole):
            if call.channel is not None:
                distances.append(next(k for k in range(1, 9) if whole[at + k].ok))
    assert one.errors == one.recovered == len(distances)
    if distances:
        assert one.within[0].share.value == pytest.approx(np.mean([d <= 2 for d in distances]))
        assert one.turns.value == pytest.approx(np.mean(distances))
    assert sum(count.count for count in one.following) == len(distances)


# --- margins ---------------------------------------------------------------------------------------------


def narrow(call: Made, *margins: float) -> Made:
    return replace(call, margins=margins)


def test_right_and_wrong_turns() -> None:
    log = log_of(
        "q",
        [
            episode("a", [good(), ENTITY, RIGHT]),
            episode("b", [hit(), WRONG], ET),
            episode("c", [good(), REPORT]),
            episode("d", [hit(), hit(), REPORT], EP),
            episode("e", [good(), good()]),
        ],
    )
    assert wrong_turns(log, TOLERANT).astype(int).tolist() == [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]


def test_turn_margins_by_hand() -> None:
    log = log_of(
        "q",
        [
            episode("a", [narrow(good(), 3.0, 0.2, 9.0), narrow(ENTITY, 0.1, 5.0), narrow(RIGHT, 7.0)]),
            episode("b", [narrow(good(), 20.0), narrow(ENTITY, 0.5), narrow(RIGHT)]),
        ],
    )
    found = turn_margins(log, TOLERANT, rng=default_rng(0), options=FEW)
    assert (found.right.n, found.wrong.n, found.without) == (3, 2, 1)
    assert found.right.quantiles[2] == 7.0
    assert found.wrong.quantiles[2] == pytest.approx(0.3)
    # Pairs (wrong, right): .1 is below .2, 7, 20; .5 below 7, 20 only: 5 of 6.
    assert found.area.estimate.value == pytest.approx(5 / 6)
    empty = turn_margins(
        log_of("q", [episode("a", [narrow(RIGHT)])]), TOLERANT, rng=default_rng(0), options=FEW
    )
    assert (empty.right.n, empty.right.quantiles, empty.area.estimate.value) == (0, (), None)


def test_losses_by_hand() -> None:
    reference = log_of(
        "ref",
        [
            *(episode(task, [RIGHT]) for task in "abcd"),
            episode("a", [hit(), good(), RIGHT], ET),
            episode("a", [hit(), WRONG], ET, site=1),
            episode("b", [hit(), good(), RIGHT], ET),
            episode("c", [hit(), good(), RIGHT], ET),
            # Not delivered: no success of recovery.
            episode("d", [good(), RIGHT], ET),
        ],
    )
    other = log_of(
        "low",
        [
            episode("a", [RIGHT]),
            episode("b", [WRONG]),
            episode("c", [RIGHT]),
            episode("a", [hit(), WRONG], ET),
            # Delivered in the reference only.
            episode("c", [good(), RIGHT], ET),
        ],
    )
    found = losses(reference, other, TOLERANT)
    # Compared: clean a, b, c; a's fault (lost); b's fault, never run since b failed clean (lost).
    assert found.rows.tolist() == [0, 1, 2, 4, 6]
    assert found.lost.tolist() == [False, True, False, True, True]
    assert (found.uncertified, found.incomparable) == (1, 2)
    tasks, lost = found.by_task(reference)
    assert [reference.tasks[at] for at in tasks] == ["a", "b", "c"]
    assert lost.tolist() == [True, True, False]
    nothing = losses(reference, reference, TOLERANT)
    assert not nothing.lost.any()
    with pytest.raises(TableError, match="no column tolerant_success"):
        losses(
            replace(reference, episodes=reference.episodes.drop(columns="tolerant_success")), other, TOLERANT
        )


def pair_of_cells(margins: Sequence[float], lost: Sequence[bool]) -> tuple[Log, Log]:
    """The reference succeeds at every task with the given margin; the other loses the marked ones."""
    reference = [
        episode(f"t{at:02}", [narrow(good(), 9.0, one), narrow(RIGHT, 12.0)])
        for at, one in enumerate(margins)
    ]
    other = [episode(f"t{at:02}", [good(), WRONG if gone else RIGHT]) for at, gone in enumerate(lost)]
    return log_of("ref", reference), log_of("low", other)


def test_narrow_margins_foretell_losses() -> None:
    reference, other = pair_of_cells([0.1, 0.2, 0.3, 4.0, 0.25, 6.0], [True, True, False, False, True, False])
    found = foretold(reference, other, TOLERANT, rng=default_rng(0), options=FEW)
    # All nine pairs are in order.
    assert found.by_task.estimate.value == 1.0
    assert (found.by_task.positives, found.by_task.negatives) == (3, 3)
    assert found.by_episode.estimate.value == 1.0
    reversed_ = foretold(
        *pair_of_cells([4.0, 5.0, 0.1], [True, False, False]), TOLERANT, rng=default_rng(0), options=FEW
    )
    assert reversed_.by_task.estimate.value == pytest.approx(0.5)
    none = foretold(reference, reference, TOLERANT, rng=default_rng(0), options=FEW)
    assert (none.by_task.estimate.value, none.by_task.estimate.reason) == (None, "no positive item")


def test_logs_without_margins_say_so() -> None:
    reference, other = pair_of_cells([1.0, 2.0], [True, False])
    bare = replace(reference, calls=reference.calls.assign(min_margin=np.nan))
    found = foretold(bare, other, TOLERANT, rng=default_rng(0), options=FEW)
    assert (found.by_task.estimate.value, found.without) == (None, 2)
    (risk, *_) = screen(bare, policy=TOLERANT, rng=default_rng(0), options=FEW).risks
    assert risk.predictors[0] == Predictor("smallest_margin", None)


# --- screen ----------------------------------------------------------------------------------------------


def test_the_screen_ranks_by_the_reference_alone_and_is_tested_where_it_can_be() -> None:
    rng = default_rng(4)
    margins = rng.permutation(np.linspace(0.05, 8.0, 40))
    lost = (margins < 4.5) != (rng.random(40) < 0.1)
    reference, other = pair_of_cells(margins.tolist(), lost.tolist())
    alone = screen(reference, policy=TOLERANT, rng=default_rng(0), options=FEW)
    assert alone.tests == ()
    order = [one.task for one in alone.risks]
    assert order == [reference.tasks[at] for at in np.argsort(margins)]
    assert alone.risks[0].risk > alone.risks[-1].risk
    tested = screen(reference, [other], policy=TOLERANT, rng=default_rng(0), options=Options(resamples=1_000))
    assert [one.task for one in tested.risks] == order
    by_name = {one.predictor: one for one in tested.tests}
    assert by_name["smallest_margin"].beats_chance
    assert by_name[COMBINED].beats_chance
    # A predictor that is the same for every task tells nothing, and says so.
    turns = by_name["turns"]
    assert (turns.area.estimate.value, turns.beats_chance, turns.area.estimate.degenerate) == (
        0.5,
        None,
        True,
    )
    # Two ways agree.
    same = foretold(reference, other, TOLERANT, rng=default_rng(0), options=FEW)
    assert same.by_task.estimate.value == by_name["smallest_margin"].area.estimate.value


def test_the_screen_s_intervals_hold_for_all_predictors_at_once() -> None:
    reference, other = pair_of_cells([1.0, 2.0, 3.0, 4.0], [True, False, True, False])
    found = screen(reference, [other], policy=TOLERANT, rng=default_rng(0), options=FEW)
    (level,) = {one.area.estimate.level for one in found.tests}
    # Smallest and mean margin, and the combined risk; all else is the same for these tasks.
    assert level == pytest.approx(1 - 0.05 / 3)
    assert found.rates[0].event == "tool_name"


def test_a_flagged_interval_is_no_yes() -> None:
    """Two losing tasks rank first by luck often enough; the interval above one half is flagged."""
    margins = [0.1, 0.2, *np.linspace(1.0, 8.0, 38).tolist()]
    reference, other = pair_of_cells(margins, [True, True] + [False] * 38)
    found = screen(reference, [other], policy=TOLERANT, rng=default_rng(0), options=FEW)
    for one in found.tests:
        assert one.beats_chance is None
        assert one.area.estimate.reason


def test_tails_have_enough_resamples() -> None:
    margins = default_rng(4).permutation(np.linspace(0.05, 8.0, 40)).tolist()
    reference, other = pair_of_cells(margins, [margin < 4 or margin > 7.5 for margin in margins])
    found = screen(reference, [other], policy=TOLERANT, rng=default_rng(0), options=FEW)
    varying = [one.area.estimate for one in found.tests if not one.area.estimate.degenerate]
    assert varying
    for one in varying:
        assert one.resamples is not None
        assert one.resamples * (1 - one.level) / 2 >= 20 - 1e-6


# --- length ----------------------------------------------------------------------------------------------


def test_lengths_by_hand() -> None:
    log = log_of(
        "q",
        [
            episode("a", [good(), RIGHT]),
            episode("a", [good(), good(), good(), RIGHT], trial=1),
            episode("b", [good(), good(), WRONG]),
        ],
    )
    found = {
        (one.measure, one.outcome): one
        for one in lengths(log.episodes, TOLERANT, rng=default_rng(0), options=FEW)
    }
    assert found["turns", "all"].mean.value == pytest.approx(3.0)
    assert found["turns", "succeeded"].mean.value == pytest.approx(3.0)
    assert (found["turns", "failed"].episodes, found["turns", "failed"].quantiles[2]) == (1, 3.0)
    # Tokens read: 10 + 11, 10 + 11 + 12 + 13, 10 + 11 + 12.
    assert found["tokens_in", "all"].mean.value == pytest.approx((21 + 46 + 33) / 3)
    only = lengths(log.episodes.iloc[:2], TOLERANT, rng=default_rng(0), options=FEW)
    failed = next(one for one in only if one.outcome == "failed")
    assert (failed.mean.value, failed.quantiles) == (None, ())


def test_length_changes_over_shared_episodes() -> None:
    reference = log_of("ref", [episode(task, [good(), RIGHT]) for task in "abc"]).episodes
    other = log_of("low", [episode(task, [good(), good(), good(), RIGHT]) for task in "cbx"]).episodes
    turns = length_changes(reference, other, rng=default_rng(0), options=FEW)[0]
    assert (turns.measure, turns.episodes, turns.reference, turns.other) == ("turns", 2, 2.0, 4.0)
    assert (turns.ratio.value, turns.difference.value) == (2.0, 2.0)
    apart = length_changes(reference.iloc[:1], other, rng=default_rng(0), options=FEW)[0]
    assert (apart.episodes, apart.reference, apart.ratio.value) == (0, None, None)
