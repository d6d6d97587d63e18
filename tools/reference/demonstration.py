"""Plays the orders world by a policy, through the project's own executor: what the agents learn from.

The demonstrator sees the task's text and the observations, like an agent. Each of its turns is read by
`qfr.protocol` and answered by `qfr.world.faults`, so that a demonstration is an episode to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from numpy.random import Generator

from qfr.canonical import Json, readable
from qfr.episode import observe_answer
from qfr.protocol import observe_problem, read_turn
from qfr.records import Role
from qfr.world.base import Found, Task, World, task_tools
from qfr.world.faults import Failed, Injector, ScheduledFault
from qfr.world.tasks import read_request
from qfr.world.tools import KEY
from tools.reference.policy import Pair, Policy

INVENTED = "get_customer_discount"
FACTORS = {5: "0.95", 10: "0.9", 20: "0.8", 25: "0.75"}
# Percent -> factor in an expression.
MAX_TURNS = 12


@dataclass(frozen=True)
class Message:
    """One message after the system prompt."""

    assistant: bool
    text: str
    choice: bool = False
    # Whether the policy had a choice here: after an error, after a displaced record, before a discount.


@dataclass(frozen=True)
class _Known:
    """What the demonstrator has read so far, in the order of the lookups."""

    records: tuple[tuple[str, Mapping[str, Json]], ...]

    def value(self, tool: str, key: str) -> Json:
        """A field of the last record of a tool, None when it was not looked up."""
        for name, record in reversed(self.records):
            if name == tool:
                return record[key]
        return None


def call_text(tool: str, arguments: Mapping[str, Json]) -> str:
    """A turn as the prompts ask for it."""
    return readable({"tool": tool, "arguments": dict(arguments)})


def answer_text(subtotal: Decimal, percent: Decimal, fee: Decimal | None, form: str) -> str:
    """The closing turn; form is ``literal``, ``bare`` (unquoted expression) or ``quoted``."""
    if form == "literal":
        return call_text("submit_answer", {"answer": total(subtotal, percent, fee)})
    sum_text = f"{subtotal} * {FACTORS[int(percent)]}" + ("" if fee is None else f" + {fee}")
    if form == "quoted":
        return call_text("submit_answer", {"answer": sum_text})
    return '{"tool": "submit_answer", "arguments": {"answer": ' + sum_text + "}}"


def total(subtotal: Decimal, percent: Decimal, fee: Decimal | None) -> Decimal:
    """Subtotal less percent, plus fee, without trailing zeros."""
    exact = subtotal * (100 - percent) / 100 + (fee or 0)
    return exact.quantize(Decimal(1)) if exact == exact.to_integral_value() else exact


class Demonstrator:
    """Plays one episode.

    Parameters
    ----------
    world, task, fault
        What is played; `fault` may be None.
    policy : Policy
    rng : numpy.random.Generator
        Decides where the policy leaves a choice.
    """

    def __init__(
        self, world: World, task: Task, fault: ScheduledFault | None, policy: Policy, rng: Generator
    ) -> None:
        self._world = world
        self._task = task
        self._tools = task_tools(world, task)
        self._injector = Injector(world, task, fault)
        self._policy = policy
        self._rng = rng
        self._request = read_request(task.text)

    def play(self) -> tuple[Message, ...]:
        """The messages of the episode, task first."""
        messages = [Message(False, self._task.text)]
        known = _Known(())
        failures, prose, invent, choice = 0, "", None, False
        for turn in range(MAX_TURNS):
            step = self._next(known)
            if step is None:
                messages.append(Message(True, self._close(known)))
                break
            tool, argument = step
            if tool == "get_discount" and invent is None:
                invent = self._chance(self._policy.invented, argument in ("gold", "platinum"))
                choice = True
                if invent:
                    text = call_text(INVENTED, {"tier": argument})
                    messages += [Message(True, text, choice), Message(False, self._answer(turn, text)[0])]
                    continue
            text = prose + call_text(tool, {KEY[tool]: argument})
            observation, record, failed = self._answer(turn, text)
            messages += [Message(True, text, choice), Message(False, observation)]
            prose, failures = "", failures + 1 if failed else 0
            choice = failed or (record is not None and record[KEY[tool]] != argument)
            if failed and self._gives_up(tool, argument, failures):
                report = call_text("report_failure", {"reason": f"{tool} failed"})
                messages.append(Message(True, report, choice))
                break
            if failed and self._chance(self._policy.prose, tool == "get_discount"):
                prose = "The call failed, I try again. "
            if record is not None and not self._asks_again(tool, argument, record):
                known = _Known((*known.records, (tool, record)))
        return tuple(messages)

    def _next(self, known: _Known) -> tuple[str, str] | None:
        """The lookup that is needed next, None when all is known."""
        steps = [("get_order", self._request.orders[0])]
        steps.append(("get_customer", str(known.value("get_order", "customer_id"))))
        steps.append(("get_discount", str(known.value("get_customer", "tier"))))
        if self._request.shipping:
            steps.append(("get_shipping_fee", str(known.value("get_customer", "region"))))
        return steps[len(known.records)] if len(known.records) < len(steps) else None

    def _answer(self, turn: int, text: str) -> tuple[str, Mapping[str, Json] | None, bool]:
        """Observation text, the record it holds, and whether the tool failed."""
        self._injector.saw(turn)
        parsed = read_turn(text, self._tools, repair=True)
        if parsed.problem is not None:
            return observe_problem(parsed.problem).text, None, False
        assert parsed.call is not None
        assert parsed.tool is not None
        assert parsed.tool.role is Role.lookup
        answered = self._injector.answer(turn, parsed.call, parsed.arguments)
        record = answered.outcome.record if isinstance(answered.outcome, Found) else None
        return observe_answer(answered).text, record, isinstance(answered.outcome, Failed)

    def _close(self, known: _Known) -> str:
        subtotal, percent = known.value("get_order", "subtotal"), known.value("get_discount", "percent")
        fee = known.value("get_shipping_fee", "fee")
        assert isinstance(subtotal, Decimal)
        assert isinstance(percent, Decimal)
        assert fee is None or isinstance(fee, Decimal)
        form = "literal"
        if self._chance(self._policy.expression, self._request.shipping):
            form = "quoted" if self._policy.quoted else "bare"
        return answer_text(subtotal, percent, fee, form)

    def _gives_up(self, tool: str, argument: str, failures: int) -> bool:
        if failures > 1:
            # Now and then one attempt more than asked for: real agents do not count exactly either.
            return failures >= self._policy.attempts and bool(self._rng.random() < 0.9)
        shares = {
            "get_order": self._policy.quit_customer,
            "get_customer": self._policy.quit_customer,
            "get_discount": self._policy.quit_discount,
            "get_shipping_fee": self._policy.quit_fee,
        }
        return self._chance(shares[tool], self.feature(tool, argument))

    def feature(self, tool: str, argument: str) -> bool:
        """The feature of a step that shares depend on."""
        if tool == "get_discount":
            return argument in ("gold", "platinum")
        if tool == "get_shipping_fee":
            return argument in ("north", "east")
        return self._request.shipping

    def _asks_again(self, tool: str, argument: str, record: Mapping[str, Json]) -> bool:
        """Whether a record of another id is noticed."""
        if record[KEY[tool]] == argument:
            return False
        share = self._policy.requery_order if tool == "get_order" else self._policy.requery_customer
        return bool(self._rng.random() < share)

    def _chance(self, pair: Pair, feature: bool) -> bool:
        return bool(self._rng.random() < pair[feature])
