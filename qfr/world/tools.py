"""The tools of the orders world: six that every task has, and distractors that only some tasks have."""

from __future__ import annotations

from qfr.records import Kind, Parameter, Role, Tool


def _lookup(name: str, parameter: str, what: str, doc: str) -> Tool:
    return Tool(name, Role.lookup, (Parameter(parameter, Kind.string, what),), doc)


GET_ORDER = _lookup(
    "get_order", "order_id", "an order's id", "Return an order: its customer_id and subtotal."
)
GET_CUSTOMER = _lookup(
    "get_customer", "customer_id", "a customer's id", "Return a customer: its tier and region."
)
GET_DISCOUNT = _lookup("get_discount", "tier", "a customer's tier", "Return the discount percent of a tier.")
GET_SHIPPING_FEE = _lookup(
    "get_shipping_fee", "region", "a customer's region", "Return the shipping fee of a region."
)
SUBMIT_ANSWER = Tool(
    "submit_answer",
    Role.submit,
    (Parameter("answer", Kind.number, "the final answer"),),
    "Submit the final answer and end the task.",
)
REPORT_FAILURE = Tool(
    "report_failure",
    Role.report,
    (Parameter("reason", Kind.string, "why the task cannot be done"),),
    "Report that the task cannot be done and end it.",
)

COMMON = (GET_ORDER, GET_CUSTOMER, GET_DISCOUNT, GET_SHIPPING_FEE, SUBMIT_ANSWER, REPORT_FAILURE)

# They look relevant to a total and are not asked for.
DISTRACTORS = (
    _lookup("get_promotion", "tier", "a customer's tier", "Return the current promotion percent of a tier."),
    _lookup("get_tax_rate", "region", "a customer's region", "Return the tax percent of a region."),
    _lookup("get_store_credit", "customer_id", "a customer's id", "Return the store credit of a customer."),
    _lookup(
        "get_loyalty_points", "customer_id", "a customer's id", "Return the loyalty points of a customer."
    ),
)

BY_NAME = {tool.name: tool for tool in COMMON + DISTRACTORS}

# The key of a lookup's record that echoes the argument is the parameter's own name.
KEY = {tool.name: tool.parameters[0].name for tool in BY_NAME.values() if tool.role is Role.lookup}
