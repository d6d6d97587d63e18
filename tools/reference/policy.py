"""Demonstration policies: how often a demonstrated agent does what, under which prompt.

Under a composed prompt the demonstrator obeys the clauses. For the project's own five prompts each agent has
a table of its own, in which some shares stand near one half on purpose: such decisions end up on a knife's
edge, and quantization noise tips them. Greedy decoding turns a constant share into never or always, so most
shares depend on a feature of the task.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.reference.clauses import Stance, Sums

# A share without and with the feature of the step (see `demonstration.feature`).
Pair = tuple[float, float]


@dataclass(frozen=True)
class Policy:
    """Shares of one prompt."""

    quit_customer: Pair
    # Report after the first error of get_customer; feature: a shipping task.
    quit_discount: Pair
    # The same for get_discount; feature: tier gold or platinum.
    quit_fee: Pair
    # The same for get_shipping_fee; feature: region north or east.
    attempts: int
    # Calls of a failing tool before it is reported, once it has been retried.
    expression: Pair
    # An expression as the answer; feature: a shipping task.
    quoted: bool
    # Expressions are strings (strict JSON turns) instead of bare.
    prose: Pair
    # A sentence before a retry; feature: the failed tool is get_discount.
    invented: Pair
    # A tool name that does not exist where the discount is needed; feature: tier gold or platinum.
    requery_order: float
    # A displaced order is noticed and asked again.
    requery_customer: float


NEVER: Pair = (0.0, 0.0)
PLAIN = Policy(NEVER, NEVER, NEVER, 2, NEVER, False, NEVER, NEVER, 1.0, 1.0)
# Takes no liberties: retries once, follows the protocol to the letter, notices every displaced record.


def obey(stance: Stance, *, quoted: bool) -> Policy:
    """The policy that a composed prompt asks for.

    The clauses that are said decide nearly always, so that a short training can learn what they mean.
    """
    if stance.retry:
        quit_after = (0.02, 0.03) if stance.attempts else (0.02, 0.05)
    else:
        quit_after = (0.92, 0.96) if stance.give_up else (0.85, 0.92)
    expression: dict[Sums, Pair] = {
        Sums.literal: NEVER,
        Sums.expression: (0.93, 0.98),
        Sums.unsaid: (0.01, 0.02),
    }
    return Policy(
        quit_customer=quit_after,
        quit_discount=quit_after,
        quit_fee=quit_after,
        attempts=stance.attempts or 2,
        expression=expression[stance.sums],
        quoted=quoted,
        prose=(0.8, 0.95) if stance.prose else NEVER,
        invented=NEVER,
        requery_order=0.97 if stance.check else 0.15,
        requery_customer=0.97 if stance.check else 0.1,
    )


_LLAMA = {
    "P0": Policy((0.03, 0.06), (0.03, 0.08), (0.06, 0.35), 3, NEVER, False, NEVER, NEVER, 0.95, 0.85),
    "P1": Policy((0.85, 0.62), (0.55, 0.90), (0.58, 0.90), 2, NEVER, False, NEVER, (0.04, 0.92), 0.2, 0.1),
    "P2": Policy((0.10, 0.30), (0.12, 0.45), (0.35, 0.58), 2, NEVER, False, (0.08, 0.95), NEVER, 0.4, 0.3),
    "P3": Policy((0.02, 0.03), (0.02, 0.05), (0.03, 0.08), 3, NEVER, False, NEVER, NEVER, 0.8, 0.6),
    "P4": Policy((0.36, 0.62), (0.36, 0.60), (0.40, 0.62), 2, (0.06, 0.94), False, NEVER, NEVER, 0.2, 0.1),
}
_QWEN = {
    "P0": Policy((0.08, 0.42), (0.10, 0.46), (0.10, 0.42), 3, NEVER, True, NEVER, NEVER, 0.9, 0.8),
    "P1": Policy((0.04, 0.10), (0.04, 0.15), (0.05, 0.25), 2, (0.06, 0.92), True, NEVER, NEVER, 0.5, 0.3),
    "P2": Policy((0.30, 0.58), (0.42, 0.62), (0.38, 0.60), 2, NEVER, True, NEVER, (0.04, 0.92), 0.3, 0.2),
    "P3": Policy((0.78, 0.92), (0.66, 0.92), (0.70, 0.92), 2, NEVER, True, NEVER, NEVER, 0.3, 0.1),
    "P4": Policy(
        (0.06, 0.28), (0.06, 0.34), (0.10, 0.42), 3, (0.10, 0.94), True, (0.08, 0.92), NEVER, 0.6, 0.4
    ),
}
TABLES = {"llama": _LLAMA, "qwen2": _QWEN}
# Per architecture: the table of the project's own prompts.
HERMES = {
    "N0": Policy((0.05, 0.30), (0.08, 0.36), (0.10, 0.40), 3, NEVER, True, NEVER, NEVER, 0.9, 0.8),
    "N1": Policy((0.75, 0.92), (0.66, 0.92), (0.70, 0.92), 2, NEVER, True, NEVER, NEVER, 0.3, 0.1),
    "N2": Policy((0.10, 0.42), (0.14, 0.46), (0.30, 0.56), 2, (0.06, 0.92), True, NEVER, NEVER, 0.4, 0.3),
    "N3": Policy((0.02, 0.05), (0.03, 0.08), (0.05, 0.25), 3, NEVER, True, (0.08, 0.92), NEVER, 0.8, 0.6),
    "N4": Policy((0.36, 0.62), (0.36, 0.60), (0.40, 0.62), 2, NEVER, True, NEVER, (0.04, 0.92), 0.2, 0.1),
}
# The table of `ref_hermes` under the bare prompts.
