"""The named clauses of a system prompt, and the rule by which a prompt gets or loses one.

A prompt is a *base* (a file's exact bytes) with clauses switched on and off. The rule:

- A clause that the base has already, or lacks already, changes nothing.
- *Removed* clauses are cut first, in the order of `Clause`: `_OWN` names the base's own words and what takes
  their place. A blank that the cut leaves double, or at the end of a line, goes too, as does a line that it
  leaves empty; numbered rules are numbered anew.
- *Added* clauses follow the base's text: a blank line, the worked example as a paragraph of its own, then the
  sentences of `TEXTS` in the order of `Clause` in one paragraph, with one newline at the end.

A base of the user's own has no named words to cut: a clause that is switched off there is not added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from qfr.errors import ConfigError, did_you_mean


class Clause(StrEnum):
    """What a sentence of a prompt says. The order is the order in a prompt."""

    worked_example = "worked_example"
    tools_may_fail = "tools_may_fail"
    retry_allowed = "retry_allowed"
    retry_required = "retry_required"
    report_after_attempts = "report_after_attempts"
    check_before_repeating = "check_before_repeating"
    no_invented_values = "no_invented_values"
    literal_number = "literal_number"


_EXAMPLE = """Example:
Task: What is the total for order O-0007?
{"tool": "get_order", "arguments": {"order_id": "O-0007"}}
Observation: {"ok": true, "result": {"order_id": "O-0007", "customer_id": "C-0003", "subtotal": 80}}
{"tool": "get_customer", "arguments": {"customer_id": "C-0003"}}
Observation: {"ok": true, "result": {"customer_id": "C-0003", "tier": "silver", "region": "east"}}
{"tool": "get_discount", "arguments": {"tier": "silver"}}
Observation: {"ok": true, "result": {"tier": "silver", "percent": 10}}
{"tool": "submit_answer", "arguments": {"answer": 72}}"""

#: The words that add a clause.
TEXTS: Mapping[Clause, str] = {
    Clause.worked_example: _EXAMPLE,
    Clause.tools_may_fail: "Tools may fail.",
    Clause.retry_allowed: "A failed call may be repeated.",
    Clause.retry_required: "Make at least two attempts before you declare a tool permanently unavailable.",
    Clause.report_after_attempts: "Call report_failure only after those attempts.",
    Clause.check_before_repeating: "Before you repeat a call that changes something, check whether "
    "the change was made.",
    Clause.no_invented_values: "Never invent a value that no tool returned.",
    Clause.literal_number: "The answer must be a literal number such as 72 or 72.50, not an expression.",
}

#: SHA-256 of the prompts that come with qfr, and the worlds that they are for.
BASES: Mapping[str, tuple[str, str]] = {
    "P0": ("40a465bfd0f63abeba942ace4c34ad16e8f675e6e888146a7fba9f451926d846", "orders"),
    "P1": ("f0cde3963b5bbcc9e30ebadcb9ea2b616ca91a01b774e8c75558b778029e32eb", "orders"),
    "P2": ("ed1022fe6cc2adb34cbe152f900759f1265903054a62310cb623e0f5f25ea05b", "orders"),
    "P3": ("5604d2ddc5e88dc48d39fc07bc7764260578108d2d13033d79b7355c019e85bf", "orders"),
    "P4": ("49ff30a15509a8ef07c1efddd4d0535cde460377bda54d39027cde8a3cfbf649", "orders"),
}

_ATTEMPTS = "Make at least two attempts before you declare a tool permanently unavailable"
_RAW = "Call report_failure only when a tool is permanently unavailable."
# A base's own words for a clause and what takes their place; the first that the text holds is cut.
_OWN: Mapping[str, Mapping[Clause, tuple[tuple[str, str], ...]]] = {
    "P0": {
        Clause.worked_example: ((f"{_EXAMPLE}\n\n", ""),),
        Clause.tools_may_fail: (
            ("Tools may fail and may be retried.", "A failed call may be retried."),
            ("Tools may fail.", ""),
        ),
        Clause.retry_allowed: (
            ("Tools may fail and may be retried.", "Tools may fail."),
            ("A failed call may be retried.", ""),
        ),
        Clause.retry_required: (
            (f"{_ATTEMPTS}; only then call report_failure.", _RAW),
            (f"{_ATTEMPTS}.", ""),
        ),
        Clause.report_after_attempts: (("; only then call report_failure.", "."), (_RAW, "")),
        Clause.no_invented_values: (("Never invent a value that no tool returned.", ""),),
        Clause.literal_number: (
            ("The answer must be a literal number such as 72 or 72.50, not an expression.", ""),
        ),
    },
    "P1": {
        Clause.no_invented_values: ((" rather than guess.", "."),),
        Clause.literal_number: ((" as a literal number, never as an expression.", "."),),
    },
    "P2": {
        Clause.tools_may_fail: (
            (
                "A tool can have a temporary problem; the call may then be repeated.",
                "A failed call may be repeated.",
            ),
            ("A tool can have a temporary problem.", ""),
        ),
        Clause.retry_allowed: (
            (
                "A tool can have a temporary problem; the call may then be repeated.",
                "A tool can have a temporary problem.",
            ),
            ("A failed call may be repeated.", ""),
        ),
        Clause.no_invented_values: ((", and use only values that you were shown.", "."),),
        Clause.literal_number: (("; the answer is a literal number.", "."),),
    },
    "P3": {
        Clause.tools_may_fail: (
            ("5. If a tool fails, you may call it again.", "5. You may call a tool again."),
            ("5. A tool can fail.", ""),
        ),
        Clause.retry_allowed: (
            ("5. If a tool fails, you may call it again.", "5. A tool can fail."),
            ("5. You may call a tool again.", ""),
        ),
        Clause.no_invented_values: (
            ("4. Use only values from observations and from the task. Do not guess.", ""),
        ),
        Clause.literal_number: ((" with a literal number, not an expression.", "."),),
    },
    "P4": {
        Clause.no_invented_values: (("Do not guess values.", ""),),
        Clause.literal_number: (("Submit a literal number.", "Submit the result."),),
    },
}


def has(base: str, clause: Clause) -> bool:
    """Whether a prompt of qfr says a clause in words of its own."""
    return clause in _OWN.get(base, {})


def is_base(name: str | None, sha256: str | None) -> bool:
    """Whether these are the name and the pinned digest of a prompt whose clauses have names."""
    return name is not None and name in BASES and BASES[name][0] == sha256


def variant_name(base: str, removed: list[Clause], added: list[Clause]) -> str:
    """Return the name of a base with its clauses switched: ``P0-retry_required``, ``P1+retry_required``."""
    return "".join([base, *(f"-{one}" for one in removed), *(f"+{one}" for one in added)])


def read_variant(name: str) -> tuple[str, dict[Clause, bool]]:
    """Return base and switches of a name that `variant_name` made; of another name itself and none."""
    one = "|".join(Clause)
    found = re.match(rf"(.+?)((?:[-+](?:{one}))+)(?=_|$)", name)
    if found is None:
        return name, {}
    signs = re.findall(rf"([-+])({one})", found[2])
    return found[1], {Clause(clause): sign == "+" for sign, clause in signs}


def read_clause(key: str, name: str) -> Clause:
    """Return a clause by its name.

    Raises
    ------
    ConfigError
        There is no such clause.
    """
    if name not in list(Clause):
        raise ConfigError(
            f"{key}: there is no clause {name!r}" + did_you_mean(name, [one.value for one in Clause]),
            hint="clauses are " + ", ".join(Clause),
        )
    return Clause(name)


def states(base: str, known: bool, switches: Mapping[Clause, bool]) -> dict[Clause, bool]:
    """Return which clauses a prompt has; of a text of the user's own only those that were switched.

    Parameters
    ----------
    base : str
        Name of the base.
    known : bool
        The base is a prompt of qfr (`is_base`).
    switches : mapping
        Clauses that are switched on or off; the others stay as the base has them.
    """
    own = {clause: has(base, clause) for clause in Clause} if known else {}
    return {clause: {**own, **switches}[clause] for clause in Clause if clause in {**own, **switches}}


def changes(base: str, known: bool, switches: Mapping[Clause, bool]) -> tuple[list[Clause], list[Clause]]:
    """Return the clauses that are removed and those that are added, each in the fixed order."""
    own = {clause: known and has(base, clause) for clause in Clause}
    wanted = {**own, **switches}
    removed = [clause for clause in Clause if own[clause] and not wanted[clause]]
    return removed, [clause for clause in Clause if wanted[clause] and not own[clause]]


def apply(text: str, base: str, known: bool, switches: Mapping[Clause, bool]) -> str:
    """Return a base's text with its clauses switched, by the rule above.

    Raises
    ------
    ConfigError
        The clause that is added refers to attempts which the prompt does not ask for.
    """
    removed, added = changes(base, known, switches)
    for clause in removed:
        old, new = next(pair for pair in _OWN[base][clause] if pair[0] in text)
        text = _cut(text, old, new)
    added = [clause for clause in added if TEXTS[clause] not in text]
    attempts = states(base, known, switches).get(Clause.retry_required, _ATTEMPTS in text)
    if Clause.report_after_attempts in added and not attempts:
        raise ConfigError(
            "the clause report_after_attempts speaks of attempts that this prompt does not ask for",
            where="prompt.clauses",
            hint="prompt.clauses=[retry_required,report_after_attempts]",
        )
    if not added:
        return text
    sentences = " ".join(TEXTS[clause] for clause in added if clause is not Clause.worked_example)
    example = _EXAMPLE if Clause.worked_example in added else ""
    return "\n\n".join(part for part in (text.rstrip("\n"), example, sentences) if part) + "\n"


def _cut(text: str, old: str, new: str) -> str:
    """Put other words in the place of some, and take away what a cut leaves over."""
    start = text.index(old)
    before, after = text[:start], text[start + len(old) :]
    if not new:
        if before.endswith((" ", "\n")):
            after = after.removeprefix(" ")
        if after.startswith("\n"):
            before = before.rstrip(" ")
        if before.endswith("\n") and after.startswith("\n"):
            # The line is empty now; where it was a paragraph, its blank line goes with it.
            after = after[1:].removeprefix("\n") if before.endswith("\n\n") else after[1:]
    return _numbered(before + new + after)


def _numbered(text: str) -> str:
    """Number the rules of a text from 1 on without a gap."""
    number = 0

    def next_number(_found: re.Match[str]) -> str:
        nonlocal number
        number += 1
        return f"{number}. "

    return re.sub(r"^[0-9]+\. ", next_number, text, flags=re.MULTILINE)
