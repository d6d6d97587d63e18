"""System prompts composed from clauses, and what each clause asks of the agent.

A prompt is an opening, the tools, a format rule and any of an example, a retry rule, an attempts rule, a
give-up rule, an arithmetic rule, an id check and a known-tools rule, each in one of several wordings and in
one of three layouts. A `Stance` is what the clauses say; a demonstration obeys the stance, so that an agent
can learn what a prompt means and not only which prompt it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from numpy.random import Generator

from qfr.world.tools import COMMON


class Sums(StrEnum):
    """What the prompt says about the form of the answer."""

    literal = "literal"
    expression = "expression"
    unsaid = "unsaid"


@dataclass(frozen=True)
class Stance:
    """What a composed prompt asks for: a combination of clauses, whatever their wording."""

    retry: bool
    # A failing call may be made again.
    attempts: int
    # Calls of a failing tool before it may be given up: 0 = nothing said (only with `retry`).
    give_up: bool
    # report_failure is explained.
    sums: Sums
    example: bool
    # A worked example is shown.
    check: bool
    # The echoed id of a result is to be compared with the one asked for.
    known: bool
    # Only listed tools may be called.
    prose: bool
    # A sentence before the object is allowed.


# Never trained on, in any wording, nor are their twins without the retry clause.
HELD_OUT = (
    Stance(True, 0, True, Sums.literal, example=False, check=True, known=True, prose=False),
    Stance(True, 0, True, Sums.unsaid, example=False, check=False, known=True, prose=False),
    Stance(True, 0, True, Sums.literal, example=True, check=False, known=True, prose=False),
    Stance(True, 0, False, Sums.literal, example=False, check=False, known=False, prose=False),
    Stance(True, 0, True, Sums.expression, example=False, check=False, known=False, prose=True),
)


def without_retry(stance: Stance) -> Stance:
    """The same combination without its retry clause."""
    return replace(stance, retry=False, attempts=0)


def held_out(stance: Stance) -> bool:
    """Whether training must not see this combination."""
    return any(without_retry(stance) == without_retry(one) for one in HELD_OUT)


OPENINGS = (
    "You are an order-management agent. Solve the task by calling tools.",
    "You work in order management and answer questions about orders.",
    "As an assistant for order data, you look things up with tools.",
    "You are an order-management agent.",
    "Order agent.",
    "You help with orders. Use the tools to find the answer.",
    "Answer the question about an order by using the tools.",
    "You are a careful assistant for the order desk.",
)
TOOL_HEADS = (
    "Tools:",
    "You have these tools:",
    "You can call these tools:",
    "Available tools:",
    "The tools are:",
)
STRICT_FORMAT = (
    "Every reply is exactly one JSON object and nothing else: {form}",
    "Reply with one JSON object per turn and no other text, in the form {form}.",
    "In each turn you write a single JSON object, {form}, and the system shows you the tool's result as an"
    " observation.",
    "Reply with exactly one JSON object: {form} Write nothing before or after the object.",
    "One JSON object per turn. Nothing else. Format: {form}",
    "Each turn is one JSON object of the form {form} and no other text.",
)
PROSE_FORMAT = (
    "Write one JSON object per turn: {form} You may write one short sentence before it.",
    "Each turn has one JSON object, {form}. A short sentence before the object is allowed.",
    "Format: {form} You may say in one sentence what you do, then write the object.",
)
FORM = '{"tool": "<name>", "arguments": {"<argument>": <value>}}'
RETRY = (
    "Tools may fail and may be retried.",
    "A tool can have a temporary problem, in which case the call may be repeated.",
    "If a call returns an error, you may make it again.",
    "If a call fails, repeat it.",
    "Errors can be temporary: make the same call again.",
    "When a tool fails, try the same call again.",
    "A failing call may be made again.",
    "Retry failed calls.",
)
ATTEMPTS = (
    "Attempt a failing call at least {more} more before you declare the tool permanently unavailable; only"
    " then call report_failure.",
    "Make a failing call at least {more} more before you give it up.",
    "Give a tool up only after you have repeated the call {more}.",
)
MORE = {2: "once", 3: "twice"}
GIVE_UP = (
    "If the task cannot be completed, call report_failure with the reason.",
    "If you find that the task cannot be done, say so with report_failure rather than guess.",
    "Should the task turn out to be impossible, finish with report_failure and give the reason.",
    "Cannot finish: report_failure.",
    "Call report_failure when a tool is unavailable.",
)
LITERAL = (
    "Compute the result yourself and call submit_answer with a literal number, not an expression.",
    "Submit a literal number, never an expression.",
    "The answer must be a literal number such as 72 or 72.50, not an expression.",
    "Compute. Submit a literal number.",
    "Do the arithmetic and finish with submit_answer; the answer is a literal number.",
)
EXPRESSION = (
    "The answer may be an arithmetic expression.",
    "You may submit an arithmetic expression as the answer.",
    "Submit the answer as a number or as an arithmetic expression.",
)
CHECK = (
    "Check that each result has the id you asked for; if not, make the call again.",
    "Compare the id in a result with the id you asked for. If they differ, call again.",
    "A result with another id than the one you asked for is wrong: ask again.",
)
KNOWN = (
    "Call only the tools listed above.",
    "Use no other tools than these.",
    "There are no other tools.",
)
FILLERS = (
    "Never invent a value that no tool returned.",
    "Use only values from observations and from the task. Do not guess.",
    "Do not guess values.",
    "Make one call per turn, then wait for the observation.",
    "Read each observation. Look up what is missing.",
    "After each call you receive an observation with the result or an error.",
    "Look up what the task needs, one call after the other, and work out the result.",
    "Go step by step: find out what you need, and use only values that you were shown.",
)
DOCS = {
    "get_order": "the order's customer_id and subtotal",
    "get_customer": "the customer's tier and region",
    "get_discount": "the discount percent of a tier",
    "get_shipping_fee": "the shipping fee of a region",
    "submit_answer": "submit the final answer and end the task",
    "report_failure": "report that the task cannot be done and end it",
}
EXAMPLE = """Example:
Task: What is the total for order {order}?
{{"tool": "get_order", "arguments": {{"order_id": "{order}"}}}}
Observation: {{"ok": true, "result": {{"order_id": "{order}", "customer_id": "{customer}", "subtotal": 80}}}}
{{"tool": "get_customer", "arguments": {{"customer_id": "{customer}"}}}}
Observation: {{"ok": true, "result": {{"customer_id": "{customer}", "tier": "silver", "region": "east"}}}}
{{"tool": "get_discount", "arguments": {{"tier": "silver"}}}}
Observation: {{"ok": true, "result": {{"tier": "silver", "percent": 10}}}}
{{"tool": "submit_answer", "arguments": {{"answer": 72}}}}"""


def tool_lines() -> str:
    """The six tools as the project's prompts show them."""
    return "\n".join(f"- {tool.signature}: {DOCS[tool.name]}" for tool in COMMON)


def drop_retry(text: str) -> str:
    """A composed prompt without its retry rule, all else kept (numbered rules are renumbered)."""
    for wording in RETRY:
        if wording not in text:
            continue
        lines = text.split("\n")
        kept = [line for line in lines if re.sub(r"^[0-9]+\. ", "", line) != wording]
        if len(kept) == len(lines):
            return (
                text.replace(f" {wording}", "", 1)
                if f" {wording}" in text
                else text.replace(f"{wording} ", "", 1)
            )
        number = 0
        for i, line in enumerate(kept):
            if re.match(r"[0-9]+\. ", line):
                number += 1
                kept[i] = re.sub(r"^[0-9]+", str(number), line)
        return "\n".join(kept)
    return text


def draw_stance(rng: Generator) -> Stance:
    """A combination that training may see."""
    while True:
        retry = bool(rng.random() < 0.55)
        attempts = int(rng.choice((0, 0, 0, 2, 3))) if retry else 0
        stance = Stance(
            retry=retry,
            attempts=attempts,
            give_up=bool(rng.random() < 0.8),
            sums=(Sums.literal, Sums.literal, Sums.expression, Sums.unsaid)[int(rng.integers(4))],
            example=bool(rng.random() < 0.10),
            check=bool(rng.random() < 0.25),
            known=bool(rng.random() < 0.6),
            prose=bool(rng.random() < 0.25),
        )
        if not held_out(stance):
            return stance


def compose(stance: Stance, rng: Generator) -> str:
    """Write a prompt for a stance: random wordings, order of the rules and layout."""

    def pick(wordings: tuple[str, ...]) -> str:
        return wordings[int(rng.integers(len(wordings)))]

    rules = [pick(PROSE_FORMAT if stance.prose else STRICT_FORMAT).replace("{form}", FORM)]
    later: list[str] = []
    if stance.retry:
        rule = pick(RETRY)
        if stance.attempts:
            rule += " " + pick(ATTEMPTS).replace("{more}", MORE[stance.attempts])
        later.append(rule)
    if stance.give_up:
        later.append(pick(GIVE_UP))
    if stance.sums is not Sums.unsaid:
        later.append(pick(LITERAL if stance.sums is Sums.literal else EXPRESSION))
    if stance.check:
        later.append(pick(CHECK))
    if stance.known:
        later.append(pick(KNOWN))
    later.extend({pick(FILLERS) for _ in range(int(rng.integers(0, 3)))})
    later.sort()
    rules.extend(later[i] for i in rng.permutation(len(later)))
    head = (
        f"{pick(OPENINGS)}\n\n{pick(TOOL_HEADS)}"
        if rng.random() < 0.3
        else f"{pick(OPENINGS)} {pick(TOOL_HEADS)}"
    )
    parts = [f"{head}\n{tool_lines()}"]
    example = EXAMPLE.format(
        order=f"O-000{int(rng.integers(1, 10))}", customer=f"C-000{int(rng.integers(1, 10))}"
    )
    layout = rng.random()
    if layout < 0.34:
        parts.append(" ".join(rules))
    elif layout < 0.67:
        parts.append("\n".join(rules))
    else:
        parts.append("Rules:\n" + "\n".join(f"{i}. {rule}" for i, rule in enumerate(rules, 1)))
    if stance.example:
        parts.insert(int(rng.integers(1, 3)), example)
    text = "\n\n".join(parts)
    return text + "\n" if rng.random() < 0.5 else text
