"""Generates the tasks of the orders world: texts, private records, gold paths and gold answers.

Each task has its own records: four customers (one per tier) with one order each, a discount table and a fee
table. The gold path uses one or two of the orders; the others are what a displaced record is taken from.
Values are drawn so that every gold answer is exact in cents, without any rule of rounding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import gcd

from numpy.random import Generator

from qfr.canonical import Json, canonical
from qfr.errors import MachineryError
from qfr.world.base import GoldCall, Task
from qfr.world.tools import COMMON, DISTRACTORS, KEY

TIERS = ("bronze", "silver", "gold", "platinum")
REGIONS = ("north", "south", "east", "west")
FAMILIES = ("base", "shipping", "two_order", "distractor")
GRIDS = ("cents", "round")
ORDERS_PER_TASK = len(TIERS)

Record = dict[str, Json]
Tables = dict[str, dict[str, Record]]
# tool -> argument -> record.


@dataclass(frozen=True)
class Request:
    """What a task's text asks for."""

    orders: tuple[str, ...]
    shipping: bool


@dataclass(frozen=True)
class Made:
    """A generated task with the records behind it."""

    task: Task
    tables: Tables
    decoys: Mapping[str, tuple[str, ...]]
    # Per tool, arguments of records that the gold path does not use, in the order of trial (IT).


def read_request(text: str) -> Request:
    """Read a task's text back: the solver and the demonstrator know nothing else of a task."""
    first = text.split("?", 1)[0]
    return Request(tuple(re.findall(r"\bO-[0-9]+", first)), "shipping included" in first)


def make_task(
    family: str, task_id: str, grid: str, numbers: tuple[tuple[int, int], ...], rng: Generator
) -> Made:
    """Generate one task.

    Parameters
    ----------
    family, task_id, grid : str
        One of `FAMILIES`, the task's id, one of `GRIDS`.
    numbers : tuple of (int, int)
        Order and customer number for each of the `ORDERS_PER_TASK` orders.
    rng : numpy.random.Generator
        Source of the values.
    """
    tiers = [TIERS[i] for i in rng.permutation(len(TIERS))]
    regions = [REGIONS[i] for i in rng.permutation(len(REGIONS))]
    percents = dict(zip(tiers, _percents(grid, rng), strict=True))
    fees = dict(zip(regions, _fees(grid, rng), strict=True))
    orders: dict[str, Record] = {}
    customers: dict[str, Record] = {}
    for (order_number, customer_number), tier in zip(numbers, tiers, strict=True):
        order_id, customer_id = f"O-{order_number}", f"C-{customer_number}"
        region = regions[int(rng.integers(len(regions)))]
        orders[order_id] = {
            "order_id": order_id,
            "customer_id": customer_id,
            "subtotal": _subtotal(grid, percents[tier], rng),
        }
        customers[customer_id] = {"customer_id": customer_id, "tier": tier, "region": region}
    tables: Tables = {
        "get_order": orders,
        "get_customer": customers,
        "get_discount": {t: {"tier": t, "percent": Decimal(percents[t])} for t in TIERS},
        "get_shipping_fee": {r: {"region": r, "fee": fees[r]} for r in REGIONS},
    }
    wanted = 2 if family == "two_order" else 1
    extra = _add_distractors(tables, rng) if family == "distractor" else ()
    task = Task(
        id=task_id,
        family=family,
        text=_text(family, list(orders)[:wanted], extra),
        tools=tuple(tool.name for tool in COMMON) + extra,
        gold_calls=_gold_calls(family, tables, list(orders)[:wanted]),
        answer=_answer(family, tables, list(orders)[:wanted]),
    )
    decoys = {"get_order": tuple(orders)[wanted:], "get_customer": tuple(customers)[wanted:]}
    return Made(task, tables, decoys)


def _percents(grid: str, rng: Generator) -> list[int]:
    """Four distinct percents, one per tier."""
    choices = (5, 10, 20, 25) if grid == "round" else (4, 5, 6, 8, 10, 12, 15, 18, 20, 25)
    return [choices[i] for i in rng.permutation(len(choices))[: len(TIERS)]]


def _fees(grid: str, rng: Generator) -> list[Decimal]:
    """A fee per region; `round` has two fees, `cents` four distinct ones from 2.50 to 19.95."""
    if grid == "round":
        return [Decimal((5, 10)[i % 2]) for i in rng.permutation(len(REGIONS))]
    return [_cents(250 + 5 * int(i)) for i in rng.choice(350, size=len(REGIONS), replace=False)]


def _subtotal(grid: str, percent: int, rng: Generator) -> Decimal:
    """A subtotal of which `percent` percent is a whole number of cents (of units for `round`)."""
    if grid == "round":
        return Decimal(20 * int(rng.integers(2, 21)))
    step = 100 // gcd(100, percent)
    return _cents(int(rng.integers(2_000, 50_000)) // step * step)


def _cents(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def _add_distractors(tables: Tables, rng: Generator) -> tuple[str, ...]:
    """Give the task three of the distractor tools, with records for whatever they may be asked."""
    chosen = tuple(DISTRACTORS[i].name for i in sorted(rng.permutation(len(DISTRACTORS))[:3]))
    fields = {
        "get_promotion": ("percent", TIERS),
        "get_tax_rate": ("percent", REGIONS),
        "get_store_credit": ("credit", tuple(tables["get_customer"])),
        "get_loyalty_points": ("points", tuple(tables["get_customer"])),
    }
    for name in chosen:
        field, arguments = fields[name]
        tables[name] = {
            value: {KEY[name]: value, field: Decimal(5 * int(rng.integers(1, 7)))} for value in arguments
        }
    return chosen


def _text(family: str, orders: list[str], extra: tuple[str, ...]) -> str:
    if family == "two_order":
        return (
            f"What is the combined total for orders {orders[0]} and {orders[1]}? For each order, take the"
            " discount percent of its customer's tier off its subtotal, then add the two results."
            " There is no shipping fee."
        )
    if family == "shipping":
        return (
            f"What is the total for order {orders[0]}, shipping included? Take the discount percent of the"
            " customer's tier off the subtotal, then add the shipping fee of the customer's region"
            " (no discount on the fee)."
        )
    text = (
        f"What is the total for order {orders[0]}? Take the discount percent of the customer's tier off the"
        " subtotal. There is no shipping fee."
    )
    shown = [f"- {tool.signature}: {tool.doc}" for tool in DISTRACTORS if tool.name in extra]
    if not shown:
        return text
    return "\n".join([f"{text} Nothing else is added or taken off.", "These tools exist as well:", *shown])


def _gold_calls(family: str, tables: Tables, orders: list[str]) -> tuple[GoldCall, ...]:
    """The lookups that the answer needs, order by order."""
    calls: list[GoldCall] = []
    for order_id in orders:
        first = len(calls)
        customer_id = str(tables["get_order"][order_id]["customer_id"])
        customer = tables["get_customer"][customer_id]
        calls.append(_call("get_order", order_id, ()))
        calls.append(_call("get_customer", customer_id, (first,)))
        calls.append(_call("get_discount", str(customer["tier"]), (first + 1,)))
        if family == "shipping":
            calls.append(_call("get_shipping_fee", str(customer["region"]), (first + 1,)))
    return tuple(calls)


def _call(tool: str, value: str, sources: tuple[int, ...]) -> GoldCall:
    return GoldCall(tool, canonical({KEY[tool]: value}), sources)


def _answer(family: str, tables: Tables, orders: list[str]) -> Decimal:
    """The gold answer in whole cents, straight from the tables."""
    cents = 0
    for order_id in orders:
        order = tables["get_order"][order_id]
        customer = tables["get_customer"][str(order["customer_id"])]
        subtotal = _as_cents(order["subtotal"])
        percent = int(str(tables["get_discount"][str(customer["tier"])]["percent"]))
        discount, rest = divmod(subtotal * percent, 100)
        if rest:
            raise MachineryError(f"{order_id}: the discount is no whole number of cents")
        cents += subtotal - discount
        if family == "shipping":
            cents += _as_cents(tables["get_shipping_fee"][str(customer["region"])]["fee"])
    return _cents(cents)


def _as_cents(amount: Json) -> int:
    return int(Decimal(str(amount)).scaleb(2))
