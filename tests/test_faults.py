"""Faults that behave, and a demonstrator that meets them through the real protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import pytest

from qfr.canonical import Json, read_json
from qfr.protocol import observe_fault, observe_problem, observe_record, read_answer, read_turn
from qfr.records import FaultKind, FaultTrace, Role, ToolCall
from qfr.world import orders
from qfr.world.base import Found, NotFound, Task, sites, task_tools
from qfr.world.demonstrate import AnswerStyle, Habits, next_turn
from qfr.world.faults import Answered, Failed, Injector, ScheduledFault
from qfr.world.tasks import read_request

ORDERS20 = orders.build({"base": 10, "shipping": 10}, 2026, "cents")
ORDERS20_REF = orders.build({"base": 10, "shipping": 10}, 2026, "round")
ORDERS40 = orders.build({"base": 10, "shipping": 10, "two_order": 10, "distractor": 10}, 2026, "cents")


def arguments_of(text: str) -> dict[str, Json]:
    value = read_json(text)
    assert isinstance(value, dict)
    return value


def schedule(task: Task, kind: FaultKind, index: int) -> ScheduledFault:
    return ScheduledFault(kind, sites(task, kind)[index], "service_unavailable", "No answer.")


def ask(injector: Injector, turn: int, tool: str, text: str) -> Answered:
    injector.saw(turn)
    return injector.answer(turn, ToolCall(tool, text), arguments_of(text))


def trace_of(injector: Injector) -> FaultTrace:
    trace = injector.trace()
    assert trace is not None
    return trace


TASK = next(task for task in ORDERS20.tasks if task.family == "shipping")
OTHER_TIER = '{"tier":"none"}'


def test_transient_fault_fires_once() -> None:
    fault = schedule(TASK, FaultKind.et, 1)
    assert fault.site.tool == "get_discount"
    injector = Injector(ORDERS20, TASK, fault)
    start = FaultTrace(1, "get_discount", fault.site.arguments, None, None, None, None, 0)
    assert trace_of(injector) == start
    gold = TASK.gold_calls[0]
    assert not ask(injector, 0, gold.tool, gold.arguments).injected
    assert isinstance(ask(injector, 1, "get_discount", OTHER_TIER).outcome, NotFound)
    assert trace_of(injector) == start
    first = ask(injector, 2, "get_discount", fault.site.arguments)
    assert first == Answered(Failed("service_unavailable", "No answer."), injected=True)
    assert trace_of(injector) == replace(start, fired=2, dead_calls=1)
    assert not ask(injector, 3, "get_discount", OTHER_TIER).injected
    assert trace_of(injector) == replace(start, fired=2, witnessed=3, dead_calls=1)
    again = ask(injector, 4, "get_discount", fault.site.arguments)
    assert isinstance(again.outcome, Found)
    assert not again.injected
    ask(injector, 5, "get_discount", fault.site.arguments)
    assert trace_of(injector) == replace(start, fired=2, witnessed=3, retried=4, recovered=4, dead_calls=1)


def test_permanent_fault_kills_the_tool_from_the_site_on() -> None:
    fault = schedule(TASK, FaultKind.ep, 1)
    injector = Injector(ORDERS20, TASK, fault)
    assert isinstance(ask(injector, 0, "get_discount", OTHER_TIER).outcome, NotFound)
    for turn, text in ((1, fault.site.arguments), (2, OTHER_TIER), (3, fault.site.arguments)):
        answered = ask(injector, turn, "get_discount", text)
        assert answered == Answered(Failed("service_unavailable", "No answer."), injected=True)
    gold = TASK.gold_calls[0]
    assert isinstance(ask(injector, 4, gold.tool, gold.arguments).outcome, Found)
    trace = trace_of(injector)
    assert (trace.fired, trace.witnessed, trace.retried, trace.recovered) == (1, 2, 3, None)
    assert trace.dead_calls == 3


def test_displaced_record_comes_once() -> None:
    fault = schedule(TASK, FaultKind.it, 0)
    injector = Injector(ORDERS20, TASK, fault)
    first = ask(injector, 0, fault.site.tool, fault.site.arguments)
    assert first == Answered(Found(ORDERS20.displaced(TASK, fault.site)), injected=True)
    again = ask(injector, 1, fault.site.tool, fault.site.arguments)
    assert isinstance(again.outcome, Found)
    assert again.outcome.record["order_id"] == arguments_of(fault.site.arguments)["order_id"]
    trace = trace_of(injector)
    assert (trace.fired, trace.witnessed, trace.retried, trace.recovered) == (0, 1, 1, 1)
    assert trace.dead_calls == 1


def test_no_fault_no_trace() -> None:
    injector = Injector(ORDERS20, TASK, None)
    gold = TASK.gold_calls[0]
    assert not ask(injector, 0, gold.tool, gold.arguments).injected
    assert injector.trace() is None


# The demonstrator, through the real protocol and the real faults.


@dataclass(frozen=True)
class Played:
    tool: str
    answer: Fraction | None
    literal: bool
    turns: int
    trace: FaultTrace | None


def play(
    world: orders.OrdersWorld, task: Task, habits: Habits, fault: ScheduledFault | None = None
) -> Played:
    injector = Injector(world, task, fault)
    transcript: list[tuple[str, str]] = []
    for turn in range(30):
        text = next_turn(task.text, transcript, habits)
        injector.saw(turn)
        parsed = read_turn(text, task_tools(world, task), repair=True)
        if parsed.problem is not None:
            transcript.append((text, observe_problem(parsed.problem).text))
            continue
        assert parsed.tool is not None
        assert parsed.call is not None
        if parsed.tool.role is not Role.lookup:
            answer = read_answer(parsed.submitted or "null")
            return Played(parsed.tool.name, answer.value, answer.literal, turn + 1, injector.trace())
        answered = injector.answer(turn, parsed.call, parsed.arguments)
        if isinstance(answered.outcome, Failed):
            observation = observe_fault(answered.outcome.code, answered.outcome.message)
        else:
            assert isinstance(answered.outcome, Found)
            observation = observe_record(answered.outcome.record, injected=answered.injected)
        transcript.append((text, observation.text))
    raise AssertionError("the demonstrator did not end")


WORLDS = pytest.mark.parametrize("world", [ORDERS40, ORDERS20_REF], ids=["cents", "round"])


@WORLDS
@pytest.mark.parametrize("style", list(AnswerStyle))
def test_demonstrator_solves_every_task_on_the_gold_path(
    world: orders.OrdersWorld, style: AnswerStyle
) -> None:
    for task in world.tasks:
        played = play(world, task, Habits(answer=style))
        assert (played.tool, played.answer) == ("submit_answer", Fraction(task.answer))
        assert played.literal is (style is AnswerStyle.literal)
        assert played.turns == len(task.gold_calls) + 1


@WORLDS
def test_demonstrator_meets_every_fault(world: orders.OrdersWorld) -> None:
    for task in world.tasks:
        gold = Fraction(task.answer)
        for site in sites(task, FaultKind.et):
            fault = schedule(task, FaultKind.et, site.index)
            played = play(world, task, Habits(prose="Once more.\n"), fault)
            assert (played.answer, played.turns) == (gold, len(task.gold_calls) + 2)
            assert played.trace is not None
            assert (played.trace.recovered, played.trace.dead_calls) == (site.call + 1, 1)
            assert play(world, task, Habits(attempts=1), fault).tool == "report_failure"
        for site in sites(task, FaultKind.ep):
            played = play(world, task, Habits(attempts=4), schedule(task, FaultKind.ep, site.index))
            assert played.tool == "report_failure"
            assert played.trace is not None
            assert played.trace.dead_calls == 4
        for site in sites(task, FaultKind.it):
            fault = schedule(task, FaultKind.it, site.index)
            assert play(world, task, Habits(checks_ids=True), fault).answer == gold
            assert play(world, task, Habits(), fault).answer not in (gold, None)


def test_demonstrator_knows_no_records() -> None:
    """The same transcript gives the same turn, whatever the world holds."""
    task = TASK
    first = next_turn(task.text, [], Habits())
    asked = read_request(task.text).orders[0]
    assert first == f'{{"tool": "get_order", "arguments": {{"order_id": "{asked}"}}}}'
    told = observe_record({"order_id": "O-1", "customer_id": "C-42", "subtotal": Decimal(10)}, injected=False)
    assert next_turn(task.text, [(first, told.text)], Habits()) == (
        '{"tool": "get_customer", "arguments": {"customer_id": "C-42"}}'
    )
