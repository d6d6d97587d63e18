"""What the tools of the ledger world do.

A task has its own records. What never changes stands in `Records`; the state holds balances, payments and
refunds. `pay_invoice` books whenever it is called, so a repeated call pays twice. `refund_payment` takes a
key of the agent's choice: the same key books once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from qfr.canonical import Json, canonical, quote
from qfr.records import Tool
from qfr.world.authoring import (
    FINISH,
    REPORT,
    SUBMIT,
    BaseWorld,
    Record,
    arguments_of,
    judge_answer,
    lookup,
    write,
)
from qfr.world.base import Found, GoldCall, NotFound, Refused, Site, State, Suite, Task, Verdict

NAME = "ledger"
Totals = Mapping[str, Decimal]


@dataclass(frozen=True)
class Records:
    """What stands in a task's books."""

    customers: Mapping[str, Record]
    # customer_id -> record.
    invoices: Mapping[str, Record]
    # invoice_id -> record.
    rules: Mapping[str, Record]
    # Plan -> record with the percent of a payment that is refunded.
    balances: Totals
    # account_id -> balance at the start.
    payments: tuple[Record, ...]
    # Payments that were made before.
    decoys: Mapping[str, str]
    # Per lookup, the argument whose record displaces the true one.


@dataclass(frozen=True)
class Goal:
    """What a task's final state has to be, computed from the records and not by calls."""

    paid: Totals
    # "invoice_id account_id" -> sum, of payments made in the task.
    refunded: Totals
    # payment_id -> sum.


@dataclass(frozen=True)
class Drawn:
    """A task with its records."""

    task: Task
    records: Records
    goal: Goal


class LedgerWorld(BaseWorld):
    """A suite of ledger tasks. Its state names the task, whose records stand here."""

    name = NAME
    free = ("key",)
    ends: tuple[Tool, ...] = (FINISH, SUBMIT, REPORT)

    def __init__(self, suite: Suite, drawn: tuple[Drawn, ...]) -> None:
        super().__init__(suite, tuple(one.task for one in drawn))
        self._drawn = {one.task.id: one for one in drawn}

    def start(self, task: Task) -> State:
        records = self._drawn[task.id].records
        payments: list[Json] = [dict(one) for one in records.payments]
        return {"task": task.id, "balances": dict(records.balances), "payments": payments, "refunds": []}

    def _records(self, state: Mapping[str, Json]) -> Records:
        return self._drawn[str(state["task"])].records

    @lookup
    def get_invoice(self, state: Mapping[str, Json], invoice_id: str) -> Record | NotFound:
        """Return an invoice: its customer_id and amount."""
        known = self._records(state).invoices
        return known[invoice_id] if invoice_id in known else _none("invoice", invoice_id, "I-1234")

    @lookup
    def get_customer(self, state: Mapping[str, Json], customer_id: str) -> Record | NotFound:
        """Return a customer: its account_id and plan."""
        known = self._records(state).customers
        return known[customer_id] if customer_id in known else _none("customer", customer_id, "C-1234")

    @lookup
    def get_account(self, state: Mapping[str, Json], account_id: str) -> Record | NotFound:
        """Return an account: its balance."""
        balance = _balances(state).get(account_id)
        if balance is None:
            return _none("account", account_id, "A-1234")
        return {"account_id": account_id, "balance": balance}

    @lookup
    def get_refund_rule(self, state: Mapping[str, Json], plan: str) -> Record | NotFound:
        """Return the percent of a payment that a plan refunds."""
        known = self._records(state).rules
        if plan in known:
            return known[plan]
        return NotFound(f"No rule for plan {quote(plan)}; it is one of {', '.join(sorted(known))}.")

    @lookup
    def list_payments(self, state: Mapping[str, Json], invoice_id: str) -> Record | NotFound:
        """Return all payments of an invoice."""
        if invoice_id not in self._records(state).invoices:
            return _none("invoice", invoice_id, "I-1234")
        listed: list[Json] = [
            {name: one[name] for name in ("payment_id", "account_id", "amount")}
            for one in _rows(state, "payments")
            if one["invoice_id"] == invoice_id
        ]
        return {"invoice_id": invoice_id, "payments": listed}

    @lookup
    def list_refunds(self, state: Mapping[str, Json], payment_id: str) -> Record | NotFound:
        """Return all refunds of a payment."""
        if _payment(state, payment_id) is None:
            return _none("payment", payment_id, "P-1234-1")
        rows = [one for one in _rows(state, "refunds") if one["payment_id"] == payment_id]
        listed: list[Json] = [{name: one[name] for name in ("refund_id", "amount")} for one in rows]
        return {"payment_id": payment_id, "refunds": listed}

    @write
    def pay_invoice(
        self, state: Mapping[str, Json], invoice_id: str, account_id: str, amount: Decimal
    ) -> Any:
        """Pay an amount on an invoice from an account. Each call pays."""
        balance = _balances(state).get(account_id)
        if invoice_id not in self._records(state).invoices:
            return _none("invoice", invoice_id, "I-1234")
        if balance is None:
            return _none("account", account_id, "A-1234")
        wrong = _wrong_amount(amount, balance, "the balance of the account")
        if wrong is not None:
            return wrong
        payments = _rows(state, "payments")
        made: dict[str, Json] = {
            "payment_id": f"P-{invoice_id.removeprefix('I-')}-{len(payments) + 1}",
            "invoice_id": invoice_id,
            "account_id": account_id,
            "amount": amount,
        }
        balances: dict[str, Json] = {**_balances(state), account_id: balance - amount}
        return {**state, "balances": balances, "payments": [*payments, made]}, made

    @write
    def refund_payment(self, state: Mapping[str, Json], payment_id: str, amount: Decimal, key: str) -> Any:
        """Refund an amount of a payment to its account. The same key, a text of your choice, refunds once."""
        payment, refunds = _payment(state, payment_id), _rows(state, "refunds")
        if payment is None:
            return _none("payment", payment_id, "P-1234-1")
        before = next((one for one in refunds if one["key"] == key), None)
        if before is not None:
            if (before["payment_id"], before["amount"]) != (payment_id, amount):
                return Refused(f"The key {quote(key)} was used for another refund.")
            return state, {name: before[name] for name in ("refund_id", "payment_id", "amount")}
        done = sum((_number(one["amount"]) for one in refunds if one["payment_id"] == payment_id), Decimal(0))
        wrong = _wrong_amount(amount, _number(payment["amount"]) - done, "what is left of the payment")
        if wrong is not None:
            return wrong
        made: dict[str, Json] = {
            "refund_id": f"R-{payment_id.removeprefix('P-')}-{len(refunds) + 1}",
            "payment_id": payment_id,
            "amount": amount,
        }
        account = str(payment["account_id"])
        balances: dict[str, Json] = {**_balances(state), account: _balances(state)[account] + amount}
        return {**state, "balances": balances, "refunds": [*refunds, {**made, "key": key}]}, made

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        """Compare sums per invoice, account and payment: how they were made up does not matter."""
        assert state is not None
        drawn = self._drawn[task.id]
        rows = _rows(state, "payments")[len(drawn.records.payments) :]
        paid = _sums((f"{one['invoice_id']} {one['account_id']}", one["amount"]) for one in rows)
        refunded = _sums((str(one["payment_id"]), one["amount"]) for one in _rows(state, "refunds"))
        if paid != drawn.goal.paid:
            return Verdict(False, f"payments made: {canonical(paid)}")
        if refunded != drawn.goal.refunded:
            return Verdict(False, f"refunds made: {canonical(refunded)}")
        return judge_answer(task.answer, answer)

    def displaced(self, task: Task, site: Site) -> Record:
        (name,) = arguments_of(site.arguments)
        decoy = self._drawn[task.id].records.decoys[site.tool]
        _, found = self.call(task, self.start(task), site.tool, {name: decoy})
        assert isinstance(found, Found)
        return found.record

    def content(self, task: Task) -> str:
        drawn = self._drawn[task.id]
        return canonical([vars(drawn.records), vars(drawn.goal)])

    def proofs(self, task: Task) -> tuple[GoldCall | None, ...]:
        return tuple(self._proof(call) for call in task.gold_calls)

    def _proof(self, call: GoldCall) -> GoldCall | None:
        if call.tool not in _SHOWN:
            return None
        tool, name = _SHOWN[call.tool]
        return GoldCall(tool, canonical({name: arguments_of(call.arguments)[name]}), ())


# Lookup and argument that show whether a write happened.
_SHOWN = {"pay_invoice": ("list_payments", "invoice_id"), "refund_payment": ("list_refunds", "payment_id")}
_CENT = Decimal("0.01")


def _none(what: str, asked: str, like: str) -> NotFound:
    return NotFound(f"There is no {what} {quote(asked)}; such ids look like {like}.")


def _wrong_amount(amount: Decimal, most: Decimal, what: str) -> Refused | None:
    if amount <= 0:
        return Refused("The amount must be more than 0.")
    if amount > most:
        return Refused(f"The amount is more than {what}, {most}.")
    # At most a few thousand now, so that it can be rounded.
    return None if amount == amount.quantize(_CENT) else Refused("The amount must have two decimals at most.")


def _sums(rows: Iterable[tuple[str, Json]]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for name, amount in rows:
        sums[name] = sums.get(name, Decimal(0)) + _number(amount)
    return sums


def _number(value: Json) -> Decimal:
    assert isinstance(value, Decimal)
    return value


def _balances(state: Mapping[str, Json]) -> dict[str, Decimal]:
    return cast("dict[str, Decimal]", state["balances"])


def _rows(state: Mapping[str, Json], name: str) -> list[dict[str, Json]]:
    return cast("list[dict[str, Json]]", state[name])


def _payment(state: Mapping[str, Json], payment_id: str) -> Record | None:
    return next((one for one in _rows(state, "payments") if one["payment_id"] == payment_id), None)
