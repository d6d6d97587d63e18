"""Plays the orders world from what an agent sees: the task's text and the transcript, never the records.

Used by the scripted engine and for the demonstrations that reference agents learn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from qfr.canonical import Json, read_json, readable
from qfr.world.base import AnswerStyle as AnswerStyle
from qfr.world.base import Habits as Habits
from qfr.world.player import read_observation, turns_to_wait
from qfr.world.tasks import Request, read_request
from qfr.world.tools import KEY


@dataclass(frozen=True)
class _Seen:
    """What the transcript says of one lookup."""

    record: dict[str, Json] | None
    # The last accepted record.
    failures: int
    # Failed calls so far, in a row.
    wait: int = 0
    # Turns to leave the tool alone before the next call.


def next_turn(task_text: str, transcript: Sequence[tuple[str, str]], habits: Habits) -> str:
    """The next assistant turn.

    Parameters
    ----------
    task_text : str
        The user message of the task.
    transcript : sequence of (str, str)
        Assistant text and observation of each turn so far.
    habits : Habits
        How to behave.

    Returns
    -------
    str
        A turn: JSON text, after `habits.prose` where the turn repeats a call.
    """
    request = read_request(task_text)
    seen = _seen(transcript, habits)
    terms: list[tuple[Decimal, Decimal, Decimal]] = []
    for order_id in request.orders:
        term = _term(order_id, request, seen, habits)
        if isinstance(term, str):
            return term
        terms.append(term)
    return _submit(terms, request, habits)


def call_text(tool: str, value: str) -> str:
    """A lookup as a turn."""
    return readable({"tool": tool, "arguments": {KEY[tool]: value}})


def _term(
    order_id: str, request: Request, seen: dict[str, _Seen], habits: Habits
) -> tuple[Decimal, Decimal, Decimal] | str:
    """Subtotal, percent and fee of an order, or the turn that finds out more."""
    subtotal, fee = Decimal(0), Decimal(0)
    tool, value = "get_order", order_id
    customer: dict[str, Json] = {}
    while True:
        record = _record(tool, value, seen, habits)
        if isinstance(record, str):
            return record
        if tool == "get_order":
            subtotal = _decimal(record["subtotal"])
            tool, value = "get_customer", str(record["customer_id"])
        elif tool == "get_customer":
            customer = record
            tool, value = "get_discount", str(record["tier"])
        elif tool == "get_discount":
            percent = _decimal(record["percent"])
            if not request.shipping:
                return subtotal, percent, fee
            tool, value = "get_shipping_fee", str(customer["region"])
        else:
            return subtotal, percent, _decimal(record["fee"])


def _record(tool: str, value: str, seen: dict[str, _Seen], habits: Habits) -> dict[str, Json] | str:
    """A lookup's record, or the turn that asks for it or gives up."""
    turn = call_text(tool, value)
    known = seen.get(turn)
    if known is None:
        return turn
    if known.record is not None:
        return known.record
    if known.failures >= habits.attempts:
        return readable({"tool": "report_failure", "arguments": {"reason": f"{tool} is unavailable"}})
    if known.wait:
        # Any other lookup passes the time.
        return next(text for text, other in seen.items() if other.record is not None)
    return habits.prose + turn


def _seen(transcript: Sequence[tuple[str, str]], habits: Habits) -> dict[str, _Seen]:
    """What each call so far brought, by the call's text."""
    seen: dict[str, _Seen] = {}
    for place, (text, observation) in enumerate(transcript):
        turn = text.removeprefix(habits.prose)
        before = seen.get(turn, _Seen(None, 0))
        record = _result(observation)
        if record is not None and not (habits.checks_ids and _foreign(turn, record)):
            seen[turn] = _Seen(record, 0)
        else:
            wait = turns_to_wait(transcript, place)
            seen[turn] = _Seen(before.record, before.failures + 1, wait)
    return seen


def _result(observation: str) -> dict[str, Json] | None:
    """The record in an observation, None when it tells of an error."""
    result = read_observation(observation).get("result")
    return result if isinstance(result, dict) else None


def _foreign(turn: str, record: dict[str, Json]) -> bool:
    """The record echoes another id than the one that was asked for."""
    call = read_json(turn)
    asked = call.get("arguments") if isinstance(call, dict) else None
    return isinstance(asked, dict) and any(record.get(key) != value for key, value in asked.items())


def _submit(terms: list[tuple[Decimal, Decimal, Decimal]], request: Request, habits: Habits) -> str:
    total = sum((s * (100 - p) / 100 + fee for s, p, fee in terms), Decimal(0))
    if habits.answer is AnswerStyle.literal:
        return readable({"tool": "submit_answer", "arguments": {"answer": Decimal(_plain(total))}})
    fees = request.shipping
    parts = [
        f"{_plain(s)} * {_plain((100 - p) / 100)}" + (f" + {_plain(fee)}" if fees else "")
        for s, p, fee in terms
    ]
    text = " + ".join(parts)
    if habits.answer is AnswerStyle.quoted:
        return readable({"tool": "submit_answer", "arguments": {"answer": text}})
    return f'{{"tool": "submit_answer", "arguments": {{"answer": {text}}}}}'


def _plain(number: Decimal) -> str:
    """Digits without an exponent and without trailing zeros."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimal(value: Json) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(0)
