"""Which way a call failed, read off the text of its result.

The texts are those of the programs' own code: tau2-bench answers any exception of a tool with ``Error: ``
and the exception's text and sets the result's ``error`` flag; tau-bench v1 has no flag and answers an unknown
tool with ``Unknown action X``. The channels are Jang's (2026): tool name, arguments, entity, policy or state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qfr.foreign.common import FailureKind
from qfr.records import Channel

_PREFIX = re.compile(r"\s*Error:?\s*", re.IGNORECASE)
_UNKNOWN_TOOL = re.compile(r"(?:Error:\s*)?Tool '.*' not found\.?|Unknown action .*", re.DOTALL)
# Texts of Python's own TypeError (a call that does not fit the signature, a value of the wrong type), of
# pydantic, and of a bare KeyError, whose text is the quoted key: a value that is none of the choices.
_ARGUMENTS = re.compile(
    r"""
    missing\ \d+\ required\ (?:positional|keyword-only)\ argument
    | got\ an\ unexpected\ keyword\ argument
    | got\ multiple\ values\ for
    | takes\ .{0,40}\ positional\ arguments?
    | keywords\ must\ be\ strings
    | argument\ after\ \*\*\ must\ be
    | \d+\ validation\ errors?\ (?:for|parsing)\b
    | is\ a\ required\ property | \badditional\ properties\ are\ not\ allowed
    | object\ (?:has\ no\ attribute|is\ not\ (?:subscriptable|iterable|callable))
    | (?:indices|index)\ must\ be
    | unsupported\ operand\ type
    | not\ supported\ between\ instances
    | can\ only\ concatenate
    | unhashable\ type
    | must\ be\ (?:str|int|float|bool|list|dict)\b
    | could\ not\ convert\ string
    | invalid\ literal\ for
    | does\ not\ match\ format
    | Invalid\ isoformat
    | Invalid\ characters\ in\ expression
    """,
    re.VERBOSE | re.IGNORECASE,
)
_KEY_ERROR = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_ENTITY = re.compile(
    r"\bnot\ found\b | \bUnknown\ ID\ format\ or\ type\b | \bdoes\ not\ exist\b | \bno\ such\b"
    r"| \bNo\ \w+(?:\ \w+)?\ found\b",
    re.VERBOSE | re.IGNORECASE,
)
# What the tools of the retail, airline and telecom domains say when a rule or the state forbids a call.
_POLICY = re.compile(
    r"""
    \bcannot\b | \bcan\ not\b | \bcan't\b | \bmust\b | \bshould\b | \binsufficient\b | \bnot\ enough\b
    | \balready\b | \bnot\ (?:available|allowed|permitted|eligible|authori[sz]ed|active|pending)\b
    | \binvalid\b | \btoo\ many\b | \bdoes\ not\ (?:match|add\ up|belong)\b | \bonly\b | \bexceeds?\b
    | \brequired?\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A call that an agent left in the text of a message: the marks of the chat templates in use,
# a JSON object that is a call by its keys, a line that is a call of a function.
_LEFT = re.compile(
    r"""
    <\|?/?tool_calls?(?:_begin|_start)?\b | <tool▁calls?▁begin | <｜tool▁calls?▁begin | <function[=_\s>]
    | <\|python_tag\|> | \[TOOL_CALLS\] | \bfunctools\[ | <invoke\s+name= | \bto=functions\.
    | <\|tool_call | <minimax:tool_call | <start_function_call>
    | Action:\s*(?:```\w*\s*)?\{
    | \{\s*"(?:name|tool|function|action)"\s*:\s*"[^"\n]{1,80}"\s*,
      \s*"(?:arguments|parameters|args|action_input)"\s*:
    | ^\s*\[?\w{2,60}\((?:\w+\s*=[^()\n]*)?\)\]?\s*$
    """,
    re.VERBOSE,
)
_RECORDED = frozenset(member.value for member in Channel)
# A text of a model or a tool may be huge; what the forms look for stands near the front.
_LOOKED_AT = 2_000
_MESSAGE = 20_000
# Characters of a message that are searched for a call.


@dataclass(frozen=True)
class Failure:
    """Why a call failed."""

    kind: FailureKind
    recognised: bool
    # False when no known form fits; the kind is policy then, the channel of a tool's own refusals.


def classify(text: str) -> Failure:
    """Return why a call failed, from the text of its result.

    Parameters
    ----------
    text : str
        Result of a failing call, with or without ``Error: `` in front.

    Returns
    -------
    Failure
        One kind for each text, the forms tried in the order tool name, arguments, entity, policy.
    """
    head = text[:_LOOKED_AT].strip()
    if _UNKNOWN_TOOL.fullmatch(head):
        return Failure(FailureKind.tool_name, True)
    said = _PREFIX.sub("", head, count=1)
    if _ARGUMENTS.search(said) or _KEY_ERROR.fullmatch(said):
        return Failure(FailureKind.arguments, True)
    if _ENTITY.search(said):
        return Failure(FailureKind.entity, True)
    return Failure(FailureKind.policy, _POLICY.search(said) is not None)


def looks_failed(text: str) -> bool:
    """Whether a result without an error flag tells of a failure (tau-bench v1, early tau2-bench)."""
    return text.startswith(("Error:", "Unknown action "))


def call_in_text(text: str) -> bool:
    """Whether a message of the agent without a call holds one in its text, which the program did not run."""
    return _LEFT.search(text[:_MESSAGE]) is not None


def channel(kind: FailureKind | None) -> Channel | None:
    """Return the records' channel of that name; None for a good call and for a kind that has none there."""
    return Channel(kind.value) if kind is not None and kind.value in _RECORDED else None
