"""Logs of other programs: what they become, counted by hand from small files of the real shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qfr.foreign import (
    Excluded,
    FailureKind,
    ForeignRun,
    Options,
    Release,
    Requestor,
    SourceKind,
    read_foreign,
)
from qfr.foreign.conversation import classify
from qfr.foreign.measures import (
    BudgetRule,
    Convention,
    budget_curve,
    channel_rates,
    lengths,
    pass_hat_k,
    recovery,
    success,
    task_counts,
    task_trials,
)
from qfr.journal import log_bytes, read_log
from qfr.records import Ending, Policy
from qfr.scoring import score

FIXTURES = Path(__file__).parent / "fixtures"
RETAIL = FIXTURES / "tau2" / "retail_before.json"
TELECOM = FIXTURES / "tau2" / "telecom_since"
V1 = FIXTURES / "tau1" / "gpt-4o-retail.json"


@pytest.fixture(scope="module")
def retail() -> ForeignRun:
    """Single file, before 1.0.1."""
    return read_foreign(RETAIL)


@pytest.fixture(scope="module")
def telecom() -> ForeignRun:
    """Folder form, after 1.0.1, dual control."""
    return read_foreign(TELECOM)


@pytest.fixture(scope="module")
def v1() -> ForeignRun:
    """tau-bench v1."""
    return read_foreign(V1)


def rates(run: ForeignRun) -> dict[str, tuple[int, int, int]]:
    """Events, calls, simulations with an event, by channel; empty channels left out."""
    return {
        each.channel: (each.events, each.calls, each.episodes_with)
        for each in channel_rates(run)
        if each.events
    }


# --- what a file becomes -----------------------------------------------------------------------------


def test_head_of_a_tau2_file(retail: ForeignRun, telecom: ForeignRun) -> None:
    info = retail.info
    assert (info.kind, info.model, info.agent, info.user_model) == (
        SourceKind.tau2,
        "vendor/model-8b-awq",
        "llm_agent",
        "gpt-4.1",
    )
    assert (info.domain, info.trials, info.max_steps, info.max_errors, info.seed) == (
        "retail",
        2,
        200,
        10,
        300,
    )
    assert telecom.info.source == "telecom_since"
    assert telecom.tasks == ("mobile_1", "roaming_1")


def test_one_turn_per_call_of_the_agent(retail: ForeignRun) -> None:
    first = retail.episodes[0].episode
    # The first message asks for two calls: two turns, its text in the first of them.
    assert [turn.call.tool for turn in first.turns if turn.call] == [
        "get_order_details",
        "get_user_details",
        "cancel_pending_order",
        "cancel_pending_order",
    ]
    assert [turn.generation.text for turn in first.turns] == ["Let me look.", "", "", ""]
    assert [turn.observation.ok for turn in first.turns] == [False, True, False, True]
    assert first.turns[1].observation.text == '{"user_id": "sara_doe_496"}'
    assert first.turns[0].call is not None
    assert first.turns[0].call.arguments == '{"order_id":"W1"}'
    assert [turn.index for turn in first.turns] == [0, 1, 2, 3]
    assert {turn.generation.token_ids for turn in first.turns} == {()}
    assert first.errors == 2


def test_talk_is_kept_apart_and_the_greeting_is_not_the_agents(retail: ForeignRun) -> None:
    found = retail.episodes[0]
    assert [(talk.role, talk.before, talk.text) for talk in found.talk] == [
        (Requestor.user, 0, "I want to cancel order W1."),
        (Requestor.agent, 3, "That order is not pending."),
        (Requestor.user, 3, "Then #W2."),
        (Requestor.agent, 4, "Done."),
        (Requestor.user, 4, "###STOP###"),
    ]
    # Three messages with calls and two without; ten tokens each.
    assert found.agent_messages == 5
    assert found.completion_tokens == 50


def test_user_calls_are_kept_apart(telecom: ForeignRun) -> None:
    found = telecom.episodes[0]
    assert [(call.requestor, call.tool, call.turn) for call in found.calls] == [
        (Requestor.agent, "toggle_airplane_mode", 0),
        (Requestor.agent, "get_customer_by_phone", 1),
        (Requestor.user, "check_status_bar", None),
        (Requestor.user, "check_app_status", None),
    ]
    assert len(found.episode.turns) == 2
    assert (found.errors(), found.errors(Requestor.agent), found.errors(Requestor.user)) == (2, 1, 1)


def test_results_find_their_calls_by_id(telecom: ForeignRun, retail: ForeignRun) -> None:
    # Nested results in another order than the calls, and one id used twice in a conversation.
    roaming = telecom.episodes[2].episode
    assert [turn.observation.text for turn in roaming.turns] == [
        '{"line_id": "L1"}',
        "Roaming enabled successfully",
    ]
    again = retail.episodes[1].episode
    assert [turn.observation.ok for turn in again.turns] == [False, True]


def test_token_limit_is_a_stop_reason(retail: ForeignRun) -> None:
    assert [str(turn.generation.stop) for turn in retail.episodes[1].episode.turns] == [
        "end_of_generation",
        "max_tokens",
    ]


def test_episodes_are_lines_of_a_log(retail: ForeignRun, telecom: ForeignRun, v1: ForeignRun) -> None:
    for run in (retail, telecom, v1):
        episodes = {found.episode for found in run.episodes}
        data = log_bytes(episodes)
        assert set(read_log(data, where="log")) == episodes


@pytest.mark.parametrize("policy", Policy)
def test_scorer_agrees_with_the_reward(policy: Policy) -> None:
    for path in (RETAIL, TELECOM, V1):
        for found in read_foreign(path).episodes:
            assert score(found.episode, policy).success == found.success


def test_folder_and_its_results_file_are_the_same(telecom: ForeignRun) -> None:
    assert read_foreign(TELECOM / "results.json") == telecom


# --- ends, exclusions, bounds ------------------------------------------------------------------------


def test_every_excluded_simulation_is_listed_with_its_reason(retail: ForeignRun, telecom: ForeignRun) -> None:
    assert retail.excluded == (
        Excluded("0", 1, "infrastructure_error", "s-01"),
        Excluded("1", 1, "missing", ""),
    )
    assert telecom.excluded == (Excluded("roaming_1", 1, "unexpected_error", "t-11"),)
    assert [(each.reason, each.count) for each in retail.excluded_by_reason()] == [
        ("infrastructure_error", 1),
        ("missing", 1),
    ]
    assert any("2 of 4 simulations are in no rate" in text for text in retail.warnings)


def test_success_is_bounded_by_the_excluded(retail: ForeignRun) -> None:
    found = success(retail)
    assert (found.successes, found.scored, found.excluded) == (1, 2, 2)
    assert (found.share, found.low, found.high) == (0.5, 0.25, 0.75)


def test_endings(telecom: ForeignRun) -> None:
    assert [found.episode.ending for found in telecom.episodes] == [
        Ending.submitted,
        Ending.out_of_errors,
        Ending.submitted,
    ]
    assert [found.termination_reason for found in telecom.episodes] == [
        "user_stop",
        "too_many_errors",
        "agent_stop",
    ]


def test_pass_hat_k_under_both_conventions(telecom: ForeignRun) -> None:
    # mobile_1: one of two; roaming_1: one of one, its other trial is excluded.
    removed, failed = (pass_hat_k(telecom, 1, each) for each in Convention)
    assert (removed.value, removed.fewest_trials) == (0.75, 1)
    assert (failed.value, failed.fewest_trials) == (0.5, 2)
    assert pass_hat_k(telecom, 2, Convention.failed).value == 0
    short = pass_hat_k(telecom, 2, Convention.removed)
    assert short.value is None
    assert short.reason == "a task has 1 counted trials, fewer than k = 2"


def test_trials_nest_in_tasks(telecom: ForeignRun) -> None:
    assert [(each.task, each.successes, each.trials) for each in task_trials(telecom, Convention.failed)] == [
        ("mobile_1", 1, 2),
        ("roaming_1", 1, 2),
    ]
    tight = task_trials(telecom, Convention.removed, allowed=1)
    assert [(each.successes, each.trials) for each in tight] == [(0, 2), (1, 1)]
    own = task_trials(telecom, Convention.removed, allowed=1, requestor=Requestor.agent)
    assert [each.successes for each in own] == [1, 1]


# --- channels and budgets ----------------------------------------------------------------------------


def test_rates_are_of_the_agents_calls(retail: ForeignRun, telecom: ForeignRun) -> None:
    assert rates(retail) == {
        "arguments": (1, 6, 1),
        "entity": (1, 6, 1),
        "policy": (1, 6, 1),
        "any": (3, 6, 2),
    }
    # The user simulator's two failing calls are in none.
    assert rates(telecom) == {
        "tool_name": (9, 13, 2),
        "policy": (1, 13, 1),
        "role_confusion": (1, 13, 1),
        "any": (10, 13, 2),
    }
    by_task = task_counts(telecom, "tool_name")
    assert [(each.task, each.events, each.calls, each.episodes_with, each.episodes) for each in by_task] == [
        ("mobile_1", 9, 11, 2, 2),
        ("roaming_1", 0, 2, 0, 1),
    ]


def test_channels_of_the_records_agree(telecom: ForeignRun) -> None:
    turns = [turn for found in telecom.episodes for turn in found.episode.turns]
    assert sum(turn.observation.channel == "tool_name" for turn in turns) == 9
    assert len(turns) == 13


def test_role_confusion_needs_a_known_inventory(retail: ForeignRun, telecom: ForeignRun) -> None:
    by_name = {each.channel: each for each in channel_rates(retail)}
    assert by_name["role_confusion"].rate is None
    assert by_name["role_confusion"].note == "not observable: no tool of the user simulator is known"
    assert len(telecom.info.user_tools) == 30
    confused = [call.tool for found in telecom.episodes for call in found.calls if call.role_confusion]
    assert confused == ["toggle_airplane_mode"]


def test_an_inventory_can_be_given() -> None:
    run = read_foreign(TELECOM, Options(user_tools=frozenset({"reset_network"})))
    assert rates(run)["role_confusion"] == (9, 13, 2)


def test_budget_is_counted_both_ways(telecom: ForeignRun) -> None:
    def curve(rule: BudgetRule, requestor: Requestor | None) -> dict[int, int]:
        return {
            point.budget: point.success.successes
            for point in budget_curve(telecom, rule, requestor)
            if point.budget < 4
        }

    # Successes with 2 failing calls (one of them the agent's) and with none.
    assert curve(BudgetRule.stop_at, None) == {3: 2, 2: 1, 1: 1, 0: 0}
    assert curve(BudgetRule.allow, None) == {3: 2, 2: 2, 1: 1, 0: 1}
    assert curve(BudgetRule.stop_at, Requestor.agent) == {3: 2, 2: 2, 1: 1, 0: 0}
    assert curve(BudgetRule.allow, Requestor.agent) == {3: 2, 2: 2, 1: 2, 0: 1}
    whole = budget_curve(telecom, BudgetRule.stop_at)
    assert [point.budget for point in whole] == list(range(10, -1, -1))
    assert whole[0].success == success(telecom)


def test_recovery_and_lengths(telecom: ForeignRun) -> None:
    found = recovery(telecom, within=1)
    # The confused call is followed by a good one; nine of the loop by failures or by nothing.
    assert (found.errors, found.recovered, found.last) == (10, 1, 1)
    assert lengths(telecom).agent_calls == 13 / 3
    assert lengths(telecom).user_calls == 1


# --- releases ----------------------------------------------------------------------------------------


def test_a_file_from_before_the_change_warns(retail: ForeignRun, telecom: ForeignRun) -> None:
    assert retail.info.release is Release.before
    assert "tool-name channel is censored" in retail.warnings[0]
    note = next(each.note for each in channel_rates(retail) if each.channel == "tool_name")
    assert note is not None
    assert note.startswith("censored")
    assert telecom.info.release is Release.since
    assert not any("censored" in text for text in telecom.warnings)


def test_a_release_can_be_told(retail: ForeignRun) -> None:
    told = read_foreign(RETAIL, Options(release=Release.since, model="8b"))
    assert (told.info.release, told.info.release_reason) == (Release.since, "as told")
    assert told.info.model == "8b"
    assert len(told.warnings) == len(retail.warnings) - 1


# --- tau-bench v1 ------------------------------------------------------------------------------------


def test_v1_trajectories(v1: ForeignRun) -> None:
    assert (v1.info.kind, v1.info.model, v1.info.domain) == (SourceKind.tau1, "gpt-4o-retail", "retail")
    assert v1.info.max_errors is None
    assert [
        (found.episode.task, found.episode.trial, found.success, found.termination_reason)
        for found in v1.episodes
    ] == [("0", 0, True, "user_stop"), ("0", 1, False, "agent_stop"), ("1", 1, True, "user_stop")]
    assert v1.excluded == (Excluded("1", 0, "crashed", ""),)
    # One id is used for two calls; the results still stand with their own.
    assert [turn.observation.ok for turn in v1.episodes[0].episode.turns] == [False, True, False]
    assert rates(v1) == {"tool_name": (1, 4, 1), "entity": (1, 4, 1), "any": (2, 4, 1)}


def test_v1_has_no_budget_so_the_curve_starts_where_it_no_longer_binds(v1: ForeignRun) -> None:
    assert [(point.budget, point.success.successes) for point in budget_curve(v1, BudgetRule.stop_at)] == [
        (3, 2),
        (2, 1),
        (1, 1),
        (0, 0),
    ]
    assert budget_curve(v1, BudgetRule.allow)[0].budget == 2


# --- texts of failures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error: Tool 'find_order' not found.", FailureKind.tool_name),
        ("Error: Tool 'a' not found.' not found.", FailureKind.tool_name),
        ("Unknown action find_order", FailureKind.tool_name),
        ("Error: f() missing 2 required positional arguments: 'a' and 'b'", FailureKind.arguments),
        ("Error: T.f() got an unexpected keyword argument 'order'", FailureKind.arguments),
        ("Error: f() got multiple values for argument 'tool_name'", FailureKind.arguments),
        ("Error: 1 validation error for Payment\namount\n  Input should be", FailureKind.arguments),
        ("Error: 'str' object has no attribute 'get'", FailureKind.arguments),
        ("Error: 'premium'", FailureKind.arguments),
        ("Error: Order not found", FailureKind.entity),
        ("Error: user not found", FailureKind.entity),
        ("Error: Customer with ID C9 not found", FailureKind.entity),
        ("Error: Line L9 not found for customer C1001", FailureKind.entity),
        ("Error: Number of 1008292230 not found.", FailureKind.entity),
        ("Error: New item 77 not found or available", FailureKind.entity),
        ("Error: Unknown ID format or type: X1", FailureKind.entity),
        ("Error: Non-pending order cannot be cancelled", FailureKind.policy),
        ("Error: Line must be active to suspend", FailureKind.policy),
        ("Error: Insufficient gift card balance to pay for the order", FailureKind.policy),
        ("Error: Not enough seats on flight HAT001", FailureKind.policy),
        ("Error: A bill is already awaiting payment for this customer", FailureKind.policy),
    ],
)
def test_published_error_texts(text: str, kind: FailureKind) -> None:
    found = classify(text)
    assert (found.kind, found.recognised) == (kind, True)


def test_an_unknown_text_counts_as_policy_and_says_so() -> None:
    found = classify("Error: the moon is in the wrong phase")
    assert (found.kind, found.recognised) == (FailureKind.policy, False)


def test_a_huge_text_is_judged_by_its_front() -> None:
    assert classify("Error: " + "'" * 10_000_000).kind is FailureKind.policy
    assert classify("Error: Order not found" + " " * 10_000_000).kind is FailureKind.entity


def test_trajectories_without_call_ids_pair_in_order(tmp_path: Path) -> None:
    def asks(name: str) -> dict[str, object]:
        return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]}

    talk = [asks("a"), {"role": "tool", "content": "Error: thing not found"}, asks("b")]
    talk += [{"role": "tool", "content": "ok"}, {"role": "user", "content": "###STOP###"}]
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"task_id": 0, "reward": 1.0, "info": {}, "traj": talk, "trial": 0}]))
    (found,) = read_foreign(path, Options()).episodes
    assert [(call.tool, call.failure is not None) for call in found.calls] == [("a", True), ("b", False)]
