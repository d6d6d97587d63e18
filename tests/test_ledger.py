"""The ledger world: suites, what its tools do, and that nothing a model writes can break it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfr.canonical import Json, canonical, read_json
from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules
from qfr.errors import ConfigError
from qfr.journal import log_bytes
from qfr.protocol import read_turn
from qfr.records import Channel, Ending, Episode, FaultKind, Policy, Role
from qfr.scoring import score
from qfr.world import ledger, orders
from qfr.world.authoring import arguments_of
from qfr.world.base import (
    Found,
    NotFound,
    Refused,
    State,
    Suite,
    Task,
    Transcript,
    World,
    suite_json,
    task_tools,
)
from qfr.world.finding import build_world

WORLD = ledger.of_suite(Suite({"pay": 4, "split": 4, "refund": 4}))
WORLDS: dict[str, World] = {
    "ledger": WORLD,
    "orders": orders.build({"base": 2, "distractor": 2}, 2026, "cents"),
}
RULES = Rules(ExecutorKind.tolerant, 12, 10, 400, "down", "It is down.", 0)


def task_of(family: str) -> Task:
    return next(task for task in WORLD.tasks if task.family == family)


def after_gold(task: Task) -> State:
    state = WORLD.start(task)
    for call in task.gold_calls:
        state, outcome = WORLD.call(task, state, call.tool, arguments_of(call.arguments))
        assert isinstance(outcome, Found)
    return state


def test_suites_of_one_seed_nest_and_any_size_is_easy() -> None:
    large = ledger.of_suite(Suite({"pay": 700, "split": 700, "refund": 600}))
    by_id = {task.id: task for task in large.tasks}
    assert len({task.text for task in large.tasks}) == 2000
    for task in WORLD.tasks:
        assert by_id[task.id] == task
        assert WORLD.content(task) == large.content(task)
    assert suite_json(ledger.of_suite(Suite({"pay": 1}, 7))) != suite_json(
        ledger.of_suite(Suite({"pay": 1}, 8))
    )


@pytest.mark.parametrize("grid", ledger.tasks.GRIDS)
def test_amounts_are_exact(grid: str) -> None:
    world = ledger.of_suite(Suite({"pay": 30, "split": 30, "refund": 30}, grid=grid))
    for task in world.tasks:
        for call in task.gold_calls:
            amount = arguments_of(call.arguments).get("amount")
            if isinstance(amount, Decimal):
                assert amount > 0
                assert amount == amount.quantize(Decimal(1) if grid == "round" else Decimal("0.01"))


@pytest.mark.parametrize(
    ("suite", "told"),
    [
        (Suite({"pya": 1}), "did you mean 'pay'"),
        (Suite({"pay": 1}, seed=-1), "negative"),
        (Suite({"pay": 0}), "no tasks"),
        (Suite({"pay": 1}, version=9), "version 1"),
        (Suite({"pay": 1}, grid="rund"), "did you mean 'round'"),
        (Suite({"pay": 1}, options={"currency": "EUR"}), "no option 'currency'"),
        (Suite({"pay": 9_001}), "9,000 at most"),
    ],
)
def test_a_suite_that_cannot_be_is_refused(suite: Suite, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ledger.of_suite(suite)


def test_a_payment_is_made_at_each_call_and_a_keyed_refund_once() -> None:
    task = task_of("pay")
    pay = arguments_of(task.gold_calls[-1].arguments)
    once = after_gold(task)
    assert WORLD.check(task, once, None).right
    twice, outcome = WORLD.call(task, once, "pay_invoice", pay)
    assert isinstance(outcome, Found)
    assert not WORLD.check(task, twice, None).right
    task = task_of("refund")
    refund = arguments_of(task.gold_calls[-1].arguments)
    once = after_gold(task)
    same, outcome = WORLD.call(task, once, "refund_payment", refund)
    assert same is once
    assert isinstance(outcome, Found)
    other, outcome = WORLD.call(task, once, "refund_payment", refund | {"key": "another"})
    assert isinstance(outcome, Found)
    assert not WORLD.check(task, other, None).right
    _, outcome = WORLD.call(task, once, "refund_payment", refund | {"amount": Decimal(1)})
    assert isinstance(outcome, Refused)


def test_an_amount_is_right_however_it_is_made_up() -> None:
    task = task_of("pay")
    pay = arguments_of(task.gold_calls[-1].arguments)
    whole = pay["amount"]
    assert isinstance(whole, Decimal)
    state = WORLD.start(task)
    for part in (Decimal(1), whole - 1):
        state, _ = WORLD.call(task, state, "pay_invoice", pay | {"amount": part})
    assert WORLD.check(task, state, None).right


@pytest.mark.parametrize("amount", ["0", "-1", "0.001", "1e30", "999999999"])
def test_an_amount_that_cannot_be_is_refused(amount: str) -> None:
    task = task_of("pay")
    pay = arguments_of(task.gold_calls[-1].arguments) | {"amount": Decimal(amount)}
    state = WORLD.start(task)
    same, outcome = WORLD.call(task, state, "pay_invoice", pay)
    assert same is state
    assert isinstance(outcome, Refused)


def play(turns: list[str], task: Task) -> Episode:
    waiting = iter(turns)
    player = Episodes(ScriptedEngine(lambda *_: next(waiting)), WORLD, "system", RULES)
    return player.play("c", task, FaultKind.none, None)


def test_a_refused_call_is_an_error_of_the_agent_with_a_channel() -> None:
    task = task_of("pay")
    pay = arguments_of(task.gold_calls[-1].arguments) | {"amount": Decimal(-5)}
    episode = play(
        [canonical({"tool": "pay_invoice", "arguments": pay}), '{"tool": "finish", "arguments": {}}'], task
    )
    assert episode.turns[0].observation.channel is Channel.policy
    assert '"error": "refused"' in episode.turns[0].observation.text
    assert (episode.errors, episode.ending, episode.answer) == (1, Ending.submitted, "null")


def test_who_never_ends_the_task_is_not_right_and_the_state_is_not_asked_for_an_answer() -> None:
    task = task_of("split")
    calls = [canonical({"tool": c.tool, "arguments": read_json(c.arguments)}) for c in task.gold_calls]
    answer = canonical({"tool": "submit_answer", "arguments": {"answer": task.answer}})
    assert score(play([*calls, answer], task), Policy.strict).success
    wrong = canonical({"tool": "submit_answer", "arguments": {"answer": Decimal(1)}})
    assert score(play([*calls, wrong], task), Policy.tolerant).reason == "wrong_answer"
    without = score(play([*calls, '{"tool": "finish", "arguments": {}}'], task), Policy.tolerant)
    assert not without.success
    assert not score(play([*calls, *calls[:1] * 20], task), Policy.tolerant).success
    expression = canonical({"tool": "submit_answer", "arguments": {"answer": f"{task.answer} * 1"}})
    judged = {policy: score(play([*calls, expression], task), policy).success for policy in Policy}
    assert judged == {Policy.tolerant: True, Policy.strict: False}


def test_forks_orders_and_fresh_episodes_leave_the_same_bytes() -> None:
    """State digests included: a state is a value, so it does not matter what was played before."""
    world = build_world("ledger", Suite({"pay": 2, "split": 2, "refund": 2}))
    tasks = {task.text: task for task in world.tasks}
    kinds = tuple(kind for kind in FaultKind if kind is not FaultKind.none)

    def policy(_system: str, task: str, transcript: Transcript) -> str:
        return world.next_turn(tasks[task], transcript, ledger_habits)

    def played(order: tuple[FaultKind, ...], fresh: bool) -> dict[str, bytes]:
        logs: dict[str, list[Episode]] = {}
        for group in [(kind,) for kind in order] if fresh else [order]:
            engine = ScriptedEngine(policy)
            walk(
                Episodes(engine, world, "system", RULES),
                Track("none", FaultKind.none, Gate.certified, {}),
                tuple(Track(kind, kind, Gate.certified, {}) for kind in group),
                lambda track, episode, seconds: logs.setdefault(track.kind, []).append(episode),
            )
        return {
            kind: log_bytes({one.task + str(one.trace): one for one in logs[kind]}.values()) for kind in logs
        }

    from qfr.world.base import Habits

    ledger_habits = Habits()
    first = played(kinds, fresh=False)
    assert first == played(tuple(reversed(kinds)), fresh=False) == played(kinds, fresh=True)
    assert set(first) == set(FaultKind)


# --- whatever a model writes ------------------------------------------------------------------------------

NAMES = sorted(
    {tool.name for world in WORLDS.values() for task in world.tasks for tool in task_tools(world, task)}
)
KEYS = sorted(
    {
        p.name
        for world in WORLDS.values()
        for t in world.tasks
        for tool in task_tools(world, t)
        for p in tool.parameters
    }
)
IDS = [
    str(value)
    for world in WORLDS.values()
    for task in world.tasks
    for call in task.gold_calls
    for value in arguments_of(call.arguments).values()
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(IDS)
    | st.text(max_size=8)
    | st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: Decimal(format(d, "f")[:300]))
    | st.integers().map(Decimal),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(NAMES) | st.text(max_size=10),
        st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@given(turns=TURNS, world=st.sampled_from(sorted(WORLDS)), number=st.integers(0, 100))
def test_no_call_breaks_a_world_or_changes_the_state_it_was_given(
    turns: list[tuple[str, dict[str, Json]]], world: str, number: int
) -> None:
    chosen = WORLDS[world]
    task = chosen.tasks[number % len(chosen.tasks)]
    tools = task_tools(chosen, task)
    state = chosen.start(task)
    for name, arguments in turns:
        text = canonical({"tool": name, "arguments": arguments})
        parsed = read_turn(text, tools, repair=True)
        if parsed.tool is None or parsed.tool.role not in (Role.lookup, Role.write):
            continue
        before = canonical(state)
        after, outcome = chosen.call(task, state, name, parsed.arguments)
        again, same = chosen.call(task, state, name, parsed.arguments)
        assert canonical(state) == before, "the state that it was given is as it was"
        assert (canonical(after), outcome) == (canonical(again), same), "one state, one call, one answer"
        assert isinstance(outcome, Found | NotFound | Refused)
        if parsed.tool.role is Role.lookup or not isinstance(outcome, Found):
            assert after is state
        canonical(outcome.record if isinstance(outcome, Found) else outcome.message)
        state = after
