"""Joining the tables, error rates, amplification and novelty: hand-computed cases and two ways that agree."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from qfr.analysis.diagnostics.channels import (
    EVENTS,
    Verdict,
    amplifications,
    channel_rates,
    events,
    previous_identical,
    repeated,
)
from qfr.analysis.diagnostics.log import Log, codes, find, make_log, pool, shared
from qfr.analysis.diagnostics.novelty import Signature, novelty
from qfr.analysis.diagnostics.resampled import DEFAULT, Sums, ratios, relatives
from qfr.errors import TableError
from qfr.records import Channel, Episode, FaultKind
from qfr.stats import bootstrap
from qfr.stats.intervals import Options
from tests.diagnosed import REPORT, RIGHT, WRONG, Made, bad, episode, good, hit, log_of

FEW = Options(resamples=200)
ET, IT, EP = FaultKind.et, FaultKind.it, FaultKind.ep


def counts(log: Log, event: str) -> list[int]:
    return next(one for one in events(log) if one.name == event).counts.tolist()


# --- joining ---------------------------------------------------------------------------------------------


def test_tables_join_in_any_order_of_rows() -> None:
    made = [episode("a", [good(), RIGHT]), episode("b", [good(), bad(Channel.entity), WRONG])]
    log = log_of("q", made)
    again = make_log("q", log.episodes.iloc[::-1], log.calls.sample(frac=1, random_state=1))
    assert again.tasks == ("b", "a")
    assert again.episode_of.tolist() == [0, 0, 0, 1, 1]
    assert again.calls["turn"].tolist() == [0, 1, 2, 0, 1]
    assert counts(log, "entity") == [0, 1]
    assert counts(again, "entity") == [1, 0]


def test_foreign_and_doubled_rows_are_refused() -> None:
    one, other = log_of("q", [episode("a", [good(), RIGHT])]), log_of("q", [episode("b", [good(), RIGHT])])
    with pytest.raises(TableError, match="not listed"):
        make_log("q", one.episodes, pd.concat([one.calls, other.calls]))
    with pytest.raises(TableError, match="has 2 turns but 0 calls"):
        make_log("q", pd.concat([one.episodes, other.episodes]), one.calls)
    with pytest.raises(TableError, match="listed twice"):
        pool("q", [one, one])
    with pytest.raises(TableError, match="no column channel"):
        make_log("q", one.episodes, one.calls.drop(columns="channel"))
    with pytest.raises(TableError, match="no log"):
        pool("q", [])


def test_sites_and_missing_sites_are_told_apart() -> None:
    frame = log_of(
        "q",
        [episode("a", [good(), RIGHT]), episode("a", [hit(), RIGHT], ET), episode("a", [RIGHT], ET, site=1)],
    ).episodes
    (code,) = codes(frame)
    assert len(set(code.tolist())) == 3
    one, other = codes(frame.iloc[[2, 0]], frame)
    assert find(one, other).tolist() == [2, 0]
    assert find(np.array([7]), np.array([], dtype=np.int64)).tolist() == [-1]


def test_shared_keeps_the_same_episodes_in_one_order() -> None:
    a = log_of("a", [episode(task, [good(), RIGHT]) for task in "xyz"])
    b = log_of("b", [episode(task, [good(), good(value="2"), RIGHT]) for task in "zxw"])
    first, second = shared(a, b)
    assert first.tasks == second.tasks == ("x", "z")
    assert (first.n_calls, second.n_calls) == (4, 6)


# --- events ----------------------------------------------------------------------------------------------


def test_each_event_is_counted_where_it_belongs() -> None:
    log = log_of(
        "q",
        [
            episode("a", [bad(Channel.tool_name, "fetch"), bad(Channel.arguments), bad(Channel.form), RIGHT]),
            episode("b", [hit(), REPORT], ET),
            episode("b", [hit(), REPORT], EP),
            episode("b", [hit(), hit(), REPORT], EP, site=1),
            episode("b", [hit(), WRONG], EP, site=2),
            episode("c", [good(), REPORT], EP),
        ],
    )
    assert counts(log, "tool_name") == [1, 0, 0, 0, 0, 0]
    assert counts(log, "any_error") == [3, 0, 0, 0, 0, 0]
    # After a fault that passes; too early; in time; not at all; before the fault fired.
    assert counts(log, "premature_give_up") == [0, 1, 1, 0, 0, 1]
    invented = next(one for one in events(log) if one.name == "invented_answer")
    assert invented.counts.tolist() == [0, 0, 0, 0, 1, 0]
    assert invented.possible.tolist() == [False, False, True, True, True, False]
    rate = next(
        r for r in channel_rates(log, rng=default_rng(1), options=FEW) if r.event == "invented_answer"
    )
    assert (rate.count, rate.calls, rate.episodes_with, rate.episodes) == (1, 7, 1, 3)
    assert rate.per_episode.value == pytest.approx(1 / 3)


def test_a_retry_is_no_needless_repetition() -> None:
    log = log_of(
        "q",
        [
            # Failed by the fault, asked again: right. Once more: needless.
            episode("a", [hit(), good(), good(), RIGHT], ET),
            # A dead tool: asking it again is right.
            episode("a", [hit(), hit(), hit(), REPORT], EP),
            # Displaced: asking upstream again is right once, twice is not.
            episode(
                "a", [good(value="up"), hit(ok=True), good(value="up"), good(value="up"), good(), RIGHT], IT
            ),
            # Before the fault fired a repetition is needless in any episode.
            episode("a", [good(value="up"), good(value="up"), hit(ok=True), WRONG], IT, site=1),
            # The agent's own error, repeated word for word; unreadable turns repeat nothing.
            episode(
                "a", [bad(Channel.entity), bad(Channel.entity), bad(Channel.form), bad(Channel.form), RIGHT]
            ),
        ],
    )
    found = [repeated(log)[log.episode_of == at].astype(int).tolist() for at in range(5)]
    assert found == [
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 0, 0, 0],
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from("xyz"), min_size=1, max_size=6), min_size=1, max_size=5))
def test_previous_identical_call_is_the_latest_one_of_the_episode(values: list[list[str]]) -> None:
    log = log_of("q", [episode(f"t{at}", [good(value=v) for v in one]) for at, one in enumerate(values)])
    expected, start = [], 0
    for one in values:
        for at, value in enumerate(one):
            before = [k for k in range(at) if one[k] == value]
            expected.append(start + before[-1] if before else -1)
        start += len(one)
    assert previous_identical(log).tolist() == expected


def test_rates_by_hand_and_degenerate_ones() -> None:
    log = log_of(
        "q",
        [
            episode("a", [bad(Channel.entity), bad(Channel.entity), good(), RIGHT]),
            episode("a", [good(), RIGHT], trial=1),
            episode("b", [good(), good(value="2"), WRONG]),
        ],
    )
    rates = {one.event: one for one in channel_rates(log, rng=default_rng(0), options=FEW)}
    assert tuple(rates) == EVENTS
    entity = rates["entity"]
    assert (entity.count, entity.calls, entity.episodes_with, entity.episodes) == (2, 9, 1, 3)
    assert entity.per_call.value == pytest.approx(2 / 9)
    assert entity.per_episode.value == pytest.approx(1 / 3)
    # Resamples of two tasks: only b (0), one of each (2/9), only a (2/6).
    assert (entity.per_call.low, entity.per_call.high) == (0.0, pytest.approx(1 / 3))
    assert rates["tool_name"].per_call.value == 0.0
    assert rates["tool_name"].per_call.degenerate
    assert rates["invented_answer"].per_call.value is None
    assert rates["invented_answer"].per_call.reason == "no episode in which a tool died"


# --- resampling ------------------------------------------------------------------------------------------

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(PAIRS)
def test_one_ratio_equals_the_library_s(pairs: list[tuple[int, int]]) -> None:
    tops, bottoms = (np.array([pair[k] for pair in pairs], dtype=np.float64) for k in (0, 1))
    (ours,) = ratios(Sums(tops[:, None], bottoms[:, None]), rng=default_rng(3), options=FEW)
    theirs = bootstrap.ratio(tops, bottoms, rng=default_rng(3), options=FEW)
    if theirs.value is None:
        assert ours.value is None
        return
    assert ours.value == pytest.approx(theirs.value)
    assert (ours.reliable, ours.degenerate, ours.reason) == (
        theirs.reliable,
        theirs.degenerate,
        theirs.reason,
    )
    assert (ours.low, ours.high) == (pytest.approx(theirs.low), pytest.approx(theirs.high))


def test_ratio_of_ratios_by_hand() -> None:
    high = Sums(np.array([[3.0], [1.0]]), np.array([[4.0], [4.0]]))
    low = Sums(np.array([[1.0], [1.0]]), np.array([[4.0], [6.0]]))
    (one,) = relatives(high, low, rng=default_rng(0), options=Options(resamples=2_000))
    assert one.value == pytest.approx((4 / 8) / (2 / 10))
    # Only the first task: (3/4)/(1/4); only the second: (1/4)/(1/6).
    assert (one.low, one.high) == (pytest.approx(1.5), pytest.approx(3.0))
    (same,) = relatives(low, low, rng=default_rng(0), options=FEW)
    assert (same.value, same.low, same.high, same.degenerate) == (1.0, 1.0, 1.0, True)
    nothing = Sums(np.zeros((2, 1)), np.ones((2, 1)))
    (none,) = relatives(high, nothing, rng=default_rng(0), options=FEW)
    assert (none.value, none.reason) == (None, "the reference is 0")


def test_a_rare_reference_leaves_the_ratio_without_an_upper_end() -> None:
    """One of twelve tasks has the reference's only event: a third of the resamples miss it."""
    reference = np.zeros((12, 1))
    reference[0] = 1
    (one,) = relatives(
        Sums(np.ones((12, 1)), np.ones((12, 1))), Sums(reference, np.ones((12, 1))), rng=default_rng(0)
    )
    assert one.value == pytest.approx(12.0)
    assert one.low is not None
    assert one.low < 12
    assert (one.high, one.reliable) == (None, False)
    missed = int((one.reason or "").split("%")[0].split()[-1])
    # (11/12) ** 12 = 0.352
    assert abs(missed - 35) <= 2


def test_malformed_sums_are_refused() -> None:
    with pytest.raises(TableError, match="shape"):
        Sums(np.zeros((2, 1)), np.zeros((3, 1)))
    with pytest.raises(TableError, match="not finite"):
        Sums(np.array([[np.nan]]), np.ones((1, 1)))
    with pytest.raises(TableError, match="negative"):
        Sums(np.zeros((1, 1)), -np.ones((1, 1)))
    with pytest.raises(TableError, match="against"):
        relatives(
            Sums(np.zeros((1, 1)), np.ones((1, 1))),
            Sums(np.zeros((2, 1)), np.ones((2, 1))),
            rng=default_rng(0),
        )


def test_one_draw_serves_correlated_quantities() -> None:
    rng = default_rng(5)
    tops = rng.integers(0, 5, size=(40, 1)).astype(np.float64)
    both = Sums(np.concatenate([tops, 2 * tops], axis=1), np.ones((40, 2)))
    one, two = ratios(both, rng=default_rng(1), options=DEFAULT)
    assert one.low is not None
    assert one.high is not None
    assert (two.low, two.high) == (pytest.approx(2 * one.low), pytest.approx(2 * one.high))


# --- amplification ---------------------------------------------------------------------------------------


def test_amplification_names_counts_and_rates_apart() -> None:
    """Twice the errors in more calls: the count ratio is 2, the rate ratio 1.5."""
    names = [f"t{at}" for at in range(10)]
    low = log_of("low", [episode(t, [bad(Channel.entity), good(), RIGHT]) for t in names])
    high = log_of(
        "high",
        [episode(t, [bad(Channel.entity), bad(Channel.entity, value="y"), good(), RIGHT]) for t in names],
    )
    found = {one.event: one for one in amplifications(low, high, rng=default_rng(0), options=FEW)}
    entity = found["entity"]
    assert entity.verdict is Verdict.ratio
    assert (entity.reference_count, entity.other_count) == (10, 20)
    assert (entity.reference_calls, entity.other_calls) == (30, 40)
    assert entity.count_ratio.value == pytest.approx(2.0)
    assert entity.rate_ratio.value == pytest.approx(1.5)
    assert entity.rate_difference == pytest.approx(2 / 4 - 1 / 3)
    assert entity.task_difference.value == pytest.approx(2 / 4 - 1 / 3)
    assert found["arguments"].verdict is Verdict.neither
    assert (found["arguments"].rate_ratio.value, found["arguments"].rate_ratio.reason) == (
        None,
        "neither has one",
    )
    assert found["arguments"].task_difference.value == 0.0
    assert found["arguments"].task_difference.degenerate
    assert found["invented_answer"].verdict is Verdict.not_possible
    assert found["invented_answer"].task_difference.value is None


def test_pooled_and_task_differences_differ_with_unequal_tasks() -> None:
    low = log_of("low", [episode("a", [good(), RIGHT]), episode("b", [good()] * 7 + [RIGHT])])
    high = log_of("high", [episode("a", [bad(Channel.entity), RIGHT]), episode("b", [good()] * 7 + [RIGHT])])
    (entity,) = (o for o in amplifications(low, high, rng=default_rng(0), options=FEW) if o.event == "entity")
    assert entity.verdict is Verdict.new_channel
    assert entity.count_ratio.value is None
    assert "new channel" in (entity.count_ratio.reason or "")
    assert entity.rate_difference == pytest.approx(1 / 10)
    assert entity.task_difference.value == pytest.approx((1 / 2 + 0) / 2)


def test_a_log_is_not_amplified_against_itself() -> None:
    log = log_of(
        "q", [episode(f"t{k}", [bad(Channel.entity)] * (k % 3) + [good(), RIGHT]) for k in range(12)]
    )
    for one in amplifications(log, log, rng=default_rng(0), options=FEW):
        if one.verdict is Verdict.ratio:
            assert (one.count_ratio.value, one.rate_ratio.value) == (1.0, 1.0)
            assert one.rate_ratio.degenerate


# --- novelty ---------------------------------------------------------------------------------------------


def failing(task: str, *calls: Made) -> Episode:
    return episode(task, [*calls, RIGHT])


def test_novelty_by_hand() -> None:
    fetch, grab, pull = (bad(Channel.tool_name, name) for name in ("fetch", "grab", "pull"))
    reference = log_of("ref", [failing("a", fetch, fetch, fetch, grab), failing("b", bad(Channel.form))])
    other = log_of("low", [failing("a", fetch, fetch, pull), failing("b", pull, grab, bad(Channel.form))])
    found = novelty(reference, other, rng=default_rng(0), options=FEW)
    assert (found.reference_events, found.other_events) == (5, 6)
    assert (found.reference_signatures, found.other_signatures, found.shared_signatures) == (3, 4, 3)
    # Once per episode: fetch, grab and unreadable of the reference, each in one task alone; fetch, pull and
    # pull, grab, unreadable of the other.
    assert (found.novel_signatures, found.novel_occurrences, found.other_occurrences) == (1, 2, 5)
    assert found.novel_share.value == pytest.approx(2 / 5)
    assert (found.singletons, found.expected_share) == (3, 1.0)
    # fetch 3/2, grab 1/1, unreadable 1/1, pull 0/2: ranks 4, 2.5, 2.5, 1 against 3.5, 1.5, 1.5, 3.5.
    one, two = np.array([4, 2.5, 2.5, 1]), np.array([3.5, 1.5, 1.5, 3.5])
    assert found.correlation.value == pytest.approx(np.corrcoef(one, two)[0, 1])
    assert found.correlation_shared.value == pytest.approx(1.0)
    assert found.counts[0].signature == Signature("tool_name", "fetch", "")
    assert found.counts[0].signature.text == "tool_name fetch()"
    only = novelty(reference, other, rng=default_rng(0), options=FEW, channel=Channel.form)
    assert (only.channel, only.other_events, only.novel_occurrences) == ("format", 1, 0)
    assert only.correlation.value is None
    assert only.counts[0].signature.text == "format unreadable"


def test_signatures_hold_keys_and_no_values() -> None:
    reference = log_of("ref", [failing("a", bad(Channel.entity, value="1"), bad(Channel.entity, value="2"))])
    found = novelty(reference, reference, rng=default_rng(0), options=FEW)
    assert [one.signature for one in found.counts] == [Signature("entity", "get", "k")]
    assert (found.counts[0].reference, found.expected_share, found.novel_share.value) == (2, 1.0, 0.0)


def test_a_reference_without_errors_expects_nothing() -> None:
    clean, dirty = log_of("ref", [failing("a")]), log_of("low", [failing("a", bad(Channel.entity))])
    found = novelty(clean, dirty, rng=default_rng(0), options=FEW)
    assert (found.expected_share, found.reason) == (None, "the reference has no failed call")
    assert found.novel_share.value == 1.0
    nothing = novelty(dirty, clean, rng=default_rng(0), options=FEW)
    assert nothing.novel_share.value is None


def test_damaged_arguments_are_named() -> None:
    log = log_of("ref", [failing("a", bad(Channel.entity))])
    calls = log.calls.assign(arguments=log.calls["arguments"].where(log.calls["channel"].isna(), "{oops"))
    broken = make_log("ref", log.episodes, calls)
    with pytest.raises(TableError, match="oops"):
        novelty(broken, log, rng=default_rng(0), options=FEW)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from("uvwx"), max_size=4), min_size=2, max_size=6))
def test_what_is_expected_is_what_leaving_one_task_out_shows(names: list[list[str]]) -> None:
    """The share of occurrences that would be novel against all the other tasks; loops change nothing."""
    log = log_of(
        "ref", [failing(f"t{k}", *(bad(Channel.tool_name, n) for n in one)) for k, one in enumerate(names)]
    )
    found = novelty(log, log, rng=default_rng(0), options=FEW)
    occurrences = [(name, at) for at, one in enumerate(names) for name in set(one)]
    if not occurrences:
        assert found.expected_share is None
        return
    novel = sum(
        all(name not in one for other, one in enumerate(names) if other != at) for name, at in occurrences
    )
    assert found.expected_share == pytest.approx(novel / len(occurrences))
    assert found.novel_occurrences == 0


def test_a_task_whose_episodes_share_a_failure_counts_as_one_task() -> None:
    """A slip that a task's episodes repeat is still the slip of one task."""
    fetch, grab = bad(Channel.tool_name, "fetch"), bad(Channel.tool_name, "grab")
    one = log_of("ref", [failing("a", fetch), failing("b", grab), failing("c", grab)])
    again = [episode("a", [fetch, RIGHT], trial=trial) for trial in range(3)]
    several = log_of("ref", [*again, failing("b", grab), failing("c", grab)])
    assert novelty(one, one, rng=default_rng(0), options=FEW).expected_share == pytest.approx(1 / 3)
    found = novelty(several, several, rng=default_rng(0), options=FEW)
    assert found.expected_share == pytest.approx(3 / 5), "what leaving a task out shows"
    assert found.singletons == 1
