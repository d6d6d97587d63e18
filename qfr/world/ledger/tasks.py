"""Draws suites of the ledger world, and verifies them with a solver that reads only texts and records.

Families: `pay` (one invoice in full; the state alone decides), `split` (half from each of two accounts, then
a balance), `refund` (a percent of a payment by the customer's plan; the state alone decides). A task follows
from seed, family and index, so suites of one seed nest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
from numpy.random import Generator

from qfr.canonical import Json
from qfr.errors import ConfigError, MachineryError, did_you_mean
from qfr.faults import Where
from qfr.world.authoring import arguments_of
from qfr.world.base import (
    Found,
    State,
    Suite,
    Task,
    check_families,
    check_options,
    check_version,
    sites_where,
)
from qfr.world.ledger.tools import NAME, Drawn, Goal, LedgerWorld, Records

FAMILIES = ("pay", "split", "refund")
GRIDS = ("cents", "round")
PLANS = ("basic", "plus", "pro", "team")
VERSION = 1
_IDS = 9_000
# Ids have four digits; the invoices that a family's tasks ask for are all different.


def of_suite(suite: Suite) -> LedgerWorld:
    """Draw and verify a suite.

    Raises
    ------
    ConfigError
        Unknown version, option, family or grid, a negative seed or count, no task, or too many.
    """
    check_version(suite, (VERSION,))
    check_options(suite, ())
    check_families(suite, FAMILIES, NAME)
    if suite.grid not in GRIDS:
        raise ConfigError(
            f"{suite.grid!r} is no grid" + did_you_mean(suite.grid, GRIDS),
            where="suite.grid",
            hint="one of " + ", ".join(GRIDS),
        )
    if suite.seed < 0:
        raise ConfigError(f"{suite.seed} is negative", where="suite.seed", hint="use 0 or more")
    empty, drawn = LedgerWorld(suite, ()), list[Drawn]()
    # The empty world makes tasks and gold calls: it knows the tools.
    for place, family in enumerate(FAMILIES):
        count = suite.families.get(family, 0)
        if count > _IDS:
            raise ConfigError(
                f"{family}: {count:,} tasks, of which there are {_IDS:,} at most", where="suite.families"
            )
        numbers = np.random.default_rng([suite.seed, place]).permutation(_IDS)[:count] + 1_000
        for index, number in enumerate(numbers.tolist()):
            rng = np.random.default_rng([suite.seed, place, index])
            drawn.append(_draw(empty, f"{family}-{index:04d}", suite.grid, number, rng))
    world = LedgerWorld(suite, tuple(drawn))
    verify(world)
    return world


def _draw(world: LedgerWorld, task_id: str, grid: str, number: int, rng: Generator) -> Drawn:
    """One task: four customers, one per plan, with an account and an invoice each, and one more account."""
    family = task_id.partition("-")[0]
    others = 1_000 + rng.permutation(_IDS)
    invoices = [f"I-{number}", *(f"I-{one}" for one in others[others != number][:3].tolist())]
    customers = [f"C-{one}" for one in (1_000 + rng.permutation(_IDS)[:4]).tolist()]
    accounts = [f"A-{one}" for one in (1_000 + rng.permutation(_IDS)[:5]).tolist()]
    plans = [PLANS[one] for one in rng.permutation(len(PLANS))]
    percents = rng.choice((10, 20, 25, 40, 50), len(PLANS), replace=False).tolist()
    amounts = _amounts(grid, len(invoices), rng)
    rows = list(zip(invoices, customers, accounts, plans, amounts, strict=False))
    payments: list[Mapping[str, Json]] = []
    if family == "refund":
        payments = [
            {
                "payment_id": f"P-{invoice.removeprefix('I-')}-{place + 1}",
                "invoice_id": invoice,
                "account_id": account,
                "amount": amount,
            }
            for place, (invoice, _, account, _, amount) in enumerate(rows)
        ]
    records = Records(
        customers={c: {"customer_id": c, "account_id": a, "plan": p} for _, c, a, p, _ in rows},
        invoices={i: {"invoice_id": i, "customer_id": c, "amount": m} for i, c, _, _, m in rows},
        rules={p: {"plan": p, "percent": Decimal(q)} for p, q in zip(plans, percents, strict=True)},
        # Enough for whatever is booked twice.
        balances={one: Decimal(int(rng.integers(100, 200)) * 100) for one in accounts},
        payments=tuple(payments),
        decoys={
            "get_invoice": invoices[1],
            "get_customer": customers[1],
            "list_payments": invoices[1],
            "get_refund_rule": plans[1],
        },
    )
    task, goal = _FAMILIES[family](world, task_id, records, accounts[-1])
    return Drawn(task, records, goal)


def _amounts(grid: str, count: int, rng: Generator) -> list[Decimal]:
    """Different amounts. Halves and percents of them are whole numbers of cents (of units: `round`)."""
    units = [Decimal(20 * one) for one in rng.choice(np.arange(2, 40), count, replace=False).tolist()]
    if grid == "round":
        return units
    fifths = rng.integers(1, 100, count).tolist()
    return [unit + Decimal(20 * one).scaleb(-2) for unit, one in zip(units, fifths, strict=True)]


def _plain(amount: Decimal) -> Decimal:
    """Without needless zeros: 12.5000 is 12.50, 80.00 is 80."""
    return amount.quantize(Decimal(1) if amount == amount.to_integral_value() else Decimal("0.01"))


def _pay(world: LedgerWorld, task_id: str, records: Records, _: str) -> tuple[Task, Goal]:
    invoice, customer, amount = _asked(records)
    account = str(customer["account_id"])
    text = f"Pay invoice {invoice['invoice_id']} in full from the account of its customer. Then finish."
    calls = (
        world.gold("get_invoice", invoice_id=invoice["invoice_id"]),
        world.gold("get_customer", 0, customer_id=customer["customer_id"]),
        world.gold("pay_invoice", 0, 1, invoice_id=invoice["invoice_id"], account_id=account, amount=amount),
    )
    return world.task(task_id, text, calls), Goal({f"{invoice['invoice_id']} {account}": amount}, {})


def _split(world: LedgerWorld, task_id: str, records: Records, second: str) -> tuple[Task, Goal]:
    invoice, customer, amount = _asked(records)
    first, half, asked = str(customer["account_id"]), _plain(amount / 2), invoice["invoice_id"]
    text = (
        f"Pay half of invoice {asked} from the account of its customer and the other half from account"
        f" {second}. Then submit the balance that is left on the account of the customer."
    )
    calls = (
        world.gold("get_invoice", invoice_id=asked),
        world.gold("get_customer", 0, customer_id=customer["customer_id"]),
        world.gold("pay_invoice", 0, 1, invoice_id=asked, account_id=first, amount=half),
        world.gold("pay_invoice", 0, invoice_id=asked, account_id=second, amount=half),
        world.gold("get_account", 1, account_id=first),
    )
    answer = records.balances[first] - half
    return world.task(task_id, text, calls, answer), Goal(
        {f"{asked} {first}": half, f"{asked} {second}": half}, {}
    )


def _refund(world: LedgerWorld, task_id: str, records: Records, _: str) -> tuple[Task, Goal]:
    invoice, customer, amount = _asked(records)
    payment, plan = str(records.payments[0]["payment_id"]), customer["plan"]
    percent = records.rules[str(plan)]["percent"]
    assert isinstance(percent, Decimal)
    refund = _plain(amount * percent / 100)
    text = (
        f"Invoice {invoice['invoice_id']} has one payment. Refund the percent of it that the plan of the"
        " invoice's customer refunds. Then finish."
    )
    calls = (
        world.gold("get_invoice", invoice_id=invoice["invoice_id"]),
        world.gold("list_payments", invoice_id=invoice["invoice_id"]),
        world.gold("get_customer", 0, customer_id=customer["customer_id"]),
        world.gold("get_refund_rule", 2, plan=plan),
        world.gold("refund_payment", 1, 3, payment_id=payment, amount=refund, key="once"),
    )
    return world.task(task_id, text, calls), Goal({}, {payment: refund})


_FAMILIES: Mapping[str, Callable[[LedgerWorld, str, Records, str], tuple[Task, Goal]]] = {
    "pay": _pay,
    "split": _split,
    "refund": _refund,
}


def _asked(records: Records) -> tuple[Mapping[str, Json], Mapping[str, Json], Decimal]:
    """The first invoice, its customer, its amount."""
    invoice = next(iter(records.invoices.values()))
    amount = invoice["amount"]
    assert isinstance(amount, Decimal)
    return invoice, records.customers[str(invoice["customer_id"])], amount


def verify(world: LedgerWorld) -> None:
    """Solve every task independently: the solver's calls are the gold calls, and their end is right.

    Raises
    ------
    MachineryError
        The generator is wrong; no user input can cause it.
    """
    for task in world.tasks:
        solver = _Solver(world, task)
        answer = solver.solve()
        verdict = world.check(task, solver.state, answer)
        gold = [(call.tool, arguments_of(call.arguments)) for call in task.gold_calls]
        if not verdict.right or answer != task.answer or solver.calls != gold:
            raise MachineryError(f"{task.id}: solver and generator do not agree ({verdict.reason})")
        for site in sites_where(task, Where.used):
            true = world.call(task, world.start(task), site.tool, arguments_of(site.arguments))[1]
            if true == Found(world.displaced(task, site)):
                raise MachineryError(f"{task.id}: nothing displaces {site.tool} {site.arguments}")


class _Solver:
    """Reads a task's text and calls tools, like an agent."""

    def __init__(self, world: LedgerWorld, task: Task) -> None:
        self._world, self._task = world, task
        self.state: State = world.start(task)
        self.calls: list[tuple[str, dict[str, Json]]] = []

    def solve(self) -> Json:
        text = self._task.text
        (asked,) = re.findall(r"I-[0-9]+", text)
        invoice = self._ask("get_invoice", invoice_id=asked)
        if text.startswith("Invoice"):
            (payment,) = _list(self._ask("list_payments", invoice_id=asked)["payments"])
            payer = self._ask("get_customer", customer_id=invoice["customer_id"])
            percent = _decimal(self._ask("get_refund_rule", plan=payer["plan"])["percent"])
            refund = _plain(_decimal(payment["amount"]) * percent / 100)
            self._ask("refund_payment", payment_id=payment["payment_id"], amount=refund, key="once")
            return None
        customer, amount = self._ask("get_customer", customer_id=invoice["customer_id"]), invoice["amount"]
        account = customer["account_id"]
        if text.startswith("Pay invoice"):
            self._ask("pay_invoice", invoice_id=asked, account_id=account, amount=amount)
            return None
        for one in (account, *re.findall(r"A-[0-9]+", text)):
            self._ask("pay_invoice", invoice_id=asked, account_id=one, amount=_plain(_decimal(amount) / 2))
        return self._ask("get_account", account_id=account)["balance"]

    def _ask(self, tool: str, **arguments: Json) -> Mapping[str, Json]:
        self.calls.append((tool, arguments))
        self.state, found = self._world.call(self._task, self.state, tool, arguments)
        assert isinstance(found, Found), found
        return found.record


def _list(value: Json) -> list[dict[str, Json]]:
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]


def _decimal(value: Json) -> Decimal:
    assert isinstance(value, Decimal)
    return value
