"""Model text to action, and result to model text. Every leniency is listed in docs/protocol.md.

A turn is one JSON object ``{"tool": "...", "arguments": {...}}``. Strict: the whole turn is that object.
Tolerant: the first JSON object in the turn counts, and an arithmetic expression may stand for the submitted
number (Hu 2026, section 3). Model text is hostile: nothing here raises on it, work is bounded by
`MAX_TURN_CHARS`, `MAX_STARTS`, `MAX_DEPTH` and `MAX_DIGITS`, and nothing is evaluated but arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from qfr.arithmetic import evaluate
from qfr.bounded_json import MAX_DIGITS, Decoder, exceeds_bounds, read_number
from qfr.canonical import Json, canonical, quote, readable
from qfr.errors import did_you_mean
from qfr.records import Channel, Kind, Observation, Parameter, ParseKind, Role, Tool, ToolCall
from qfr.thoughts import apart, holds_mark

MAX_TURN_CHARS = 32_768
# A longer turn is not read at all.
MAX_STARTS = 1_000
# Places in a turn at which an object is tried.

FORM = "Write exactly one JSON object with the keys tool and arguments."

# The form of a call, for prompts that say nothing of it.
FORM_BLOCK = (
    "Every reply is exactly one JSON object and nothing else:\n"
    '{"tool": "<name>", "arguments": {"<argument>": <value>}}\n'
    "After each call you receive an observation with the result or an error."
)
# What a native agent is told once after a plain message.
REMINDER = (
    "Your last message holds no tool call. Go on by calling a tool; end the task with the tool that submits "
    "the result or reports a failure."
)
# What follows a failed call under executor=repair, in the same message.
REPAIR = (
    "The call failed. Say in one sentence what went wrong, then issue the call again, corrected if it was "
    "wrong and unchanged if it was right."
)
_LEAD = "Observation: "

_CODES = {
    Channel.form: "invalid_format",
    Channel.tool_name: "unknown_tool",
    Channel.arguments: "invalid_arguments",
    Channel.entity: "not_found",
    Channel.policy: "refused",
}
_BLANKS = " \t\r\n"
# Between the parts of a turn that thoughts part: no JSON reaches across it.
_NO_JSON = "\0"
_START = re.compile(
    r'\{[ \t\r\n]*(?:["}]|[\'\w]{1,64}[\'\w .-]{0,64}[ \t\r\n]*:)|\[[ \t\r\n]*["{\[\]0-9tfnNI-]'
)
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# The one form in which an unquoted expression is read: {"tool": "x", "arguments": {"y": 200.0 * 0.5}}
_UNQUOTED = re.compile(
    r'\{\s*"tool"\s*:\s*"(?P<tool>[^"\\]{1,64})"\s*,\s*"arguments"\s*:\s*'
    r'\{\s*"(?P<name>[^"\\]{1,64})"\s*:(?P<value>[-+*/().0-9 \t\r\n]{1,400})\}\s*\}'
)


@dataclass(frozen=True)
class Problem:
    """What is wrong with a turn, said to the model."""

    channel: Channel
    message: str


@dataclass(frozen=True)
class ParsedTurn:
    """A turn's text, read. Exactly one of `tool` and `problem` is None."""

    parse: ParseKind
    # Which reading applied.
    call: ToolCall | None
    # The call as asked for, known tool or not; None when no call could be read.
    tool: Tool | None
    # The called tool when the call is well-formed.
    arguments: Mapping[str, Json]
    # Its arguments; empty when there is a problem.
    problem: Problem | None
    # Why the call cannot be made.

    @property
    def submitted(self) -> str | None:
        """Canonical JSON of the argument of a well-formed submit call, None for any other turn."""
        if self.tool is None or self.tool.role is not Role.submit:
            return None
        if not self.tool.parameters:
            return "null"
        return canonical(self.arguments[self.tool.parameters[0].name])


@dataclass(frozen=True)
class Answer:
    """A submitted argument read as a number."""

    value: Fraction | None
    # None when it is no number.
    literal: bool
    # It was a JSON number.
    expression: bool
    # It was a numeric string or an arithmetic expression.


@dataclass(frozen=True)
class _Object:
    """An object found in a turn."""

    value: dict[str, Json]
    parse: ParseKind


def read_turn(text: str, tools: Sequence[Tool], *, repair: bool, thinking: bool = False) -> ParsedTurn:
    """Read a model turn. Never raises, whatever the text.

    Parameters
    ----------
    text : str
        The turn as generated.
    tools : sequence of Tool
        The tools that exist in the task.
    repair : bool
        True = tolerant executor. False = a turn that is not strict JSON, or an answer that is no literal
        number, is a problem.
    thinking : bool
        The template has opened a thought before the turn: what stands before its end is no part of it.
    """
    found = _find(text, tools, repair, thinking)
    if isinstance(found, Problem):
        return ParsedTurn(ParseKind.none, None, None, {}, found)
    return _check(found, tools, repair)


def read_call(name: str, arguments: str, tools: Sequence[Tool], parse: ParseKind) -> ParsedTurn:
    """Check a call that a template's own form was read as. Never raises.

    Parameters
    ----------
    name : str
        As the model wrote it.
    arguments : str
        The arguments object as canonical JSON.
    tools : sequence of Tool
    parse : ParseKind
        Which reading applied.
    """
    given = Decoder(arguments).at(0).value
    return _check(_Object({"tool": name, "arguments": given}, parse), tools, repair=True)


def not_read(why: str) -> ParsedTurn:
    """A turn whose call cannot be read, in a template's own form."""
    problem = Problem(Channel.form, f"The call cannot be read: {why}.")
    return ParsedTurn(ParseKind.none, None, None, {}, problem)


def read_answer(argument: str) -> Answer:
    """Read the canonical JSON of a submitted argument as a number, exactly and within bounds."""
    if _LITERAL.fullmatch(argument):
        number = read_number(argument)
        return Answer(Fraction(number) if number.is_finite() else None, literal=True, expression=False)
    value: Fraction | None = None
    if argument.startswith('"') and len(argument) <= MAX_TURN_CHARS:
        decoded = Decoder(argument).at(0)
        value = evaluate(decoded.value) if isinstance(decoded.value, str) else None
    return Answer(value, literal=False, expression=value is not None)


def observe_record(record: Mapping[str, Json], *, injected: bool) -> Observation:
    """Observation of a lookup that returned a record."""
    text = f"{_LEAD}{readable({'ok': True, 'result': dict(record)})}"
    return Observation(text, ok=True, channel=None, injected=injected)


def observe_problem(problem: Problem) -> Observation:
    """Observation of a call that the agent got wrong."""
    text = _error_text(_CODES[problem.channel], problem.message)
    return Observation(text, ok=False, channel=problem.channel, injected=False)


def observe_fault(code: str, message: str, extra: Mapping[str, Json] | None = None) -> Observation:
    """Observation of an injected failure, which is not the agent's error. `extra` follows the message."""
    return Observation(_error_text(code, message, extra), ok=False, channel=None, injected=True)


def observe_cut(record: Mapping[str, Json]) -> Observation:
    """Observation of a lookup whose answer broke off in the middle."""
    whole = observe_record(record, injected=True).text
    return Observation(whole[: len(whole) // 2], ok=False, channel=None, injected=True)


def observe_user(text: str) -> Observation:
    """The next message of the user, after a plain message of the agent."""
    return Observation(text, ok=True, channel=None, injected=False)


def observe_reminder() -> Observation:
    """What a native agent is told once after a plain message without a call."""
    return Observation(REMINDER, ok=True, channel=None, injected=False)


def plainly(observation: Observation) -> Observation:
    """An observation as the result of a native call: without the word before it."""
    return replace(observation, text=observation.text.removeprefix(_LEAD))


def asks_repair(observation: Observation) -> bool:
    """Whether an observation ends in the request to diagnose a failed call and to issue it again."""
    return not observation.ok and observation.text.endswith(f"\n{REPAIR}")


def with_repair(observation: Observation) -> Observation:
    """A failed call's observation with that request below it."""
    return replace(observation, text=f"{observation.text}\n{REPAIR}")


def is_message(text: str) -> bool:
    """Whether a turn is a plain message: it holds words, and nothing that could be meant as a call."""
    return bool(text.strip()) and "{" not in text


def observe_end() -> Observation:
    """Observation of a terminal call: nothing is sent."""
    return Observation("", ok=True, channel=None, injected=False)


def _error_text(code: str, message: str, extra: Mapping[str, Json] | None = None) -> str:
    return f"{_LEAD}{readable({'ok': False, 'error': code, 'message': message, **(extra or {})})}"


def _find(text: str, tools: Sequence[Tool], repair: bool, thinking: bool) -> _Object | Problem:
    """The object that the turn stands for: the whole turn, or the first one in it that stands in no array.

    Thoughts are no part of the turn.
    """
    if len(text) > MAX_TURN_CHARS:
        return _bad_format(f"The turn has {len(text)} characters; at most {MAX_TURN_CHARS} are read.")
    body = text.strip(_BLANKS)
    if not body:
        return _bad_format("The turn is empty.")
    decoder = Decoder(body)
    if thinking or (holds_mark(body) and not _is_object(body)):
        spoken = apart(body, inside=thinking)
        body = _NO_JSON.join(piece for piece in spoken.said if piece.strip(_BLANKS)).strip(_BLANKS)
        decoder = Decoder(body)
        if not body:
            ends = "ends inside a thought" if spoken.unclosed else "holds nothing but a thought"
            return _bad_format(f"The turn {ends}; a call counts only behind it.")
    whole = decoder.at(0)
    alone = whole.found and whole.end == len(body)
    if alone and whole.flaw is not None:
        return _bad_format(whole.flaw)
    if alone and isinstance(whole.value, dict):
        return _Object(whole.value, ParseKind.strict)
    if alone:
        return _bad_format(f"The turn is {_type(whole.value)}, not a JSON object.")
    if repair:
        return _first_object(body, decoder, tools)
    if not body.startswith("{"):
        return _bad_format("The turn does not start with a JSON object.")
    return _bad_format("More text follows the JSON object." if whole.found else "The turn is not valid JSON.")


def _is_object(body: str) -> bool:
    """Whether the whole turn is one object: marks of thoughts in it are texts of its own."""
    whole = Decoder(body).at(0)
    return whole.end == len(body) and isinstance(whole.value, dict)


def _first_object(body: str, decoder: Decoder, tools: Sequence[Tool]) -> _Object | Problem:
    """Try each place where an object or array may start, from left to right.

    After a failure the search goes on where reading failed, so the work is linear and no part of a broken
    object is taken for the whole. Arrays are stepped over: what they hold is data, not a turn.
    """
    position, what = 0, "The turn holds no JSON object."
    for _ in range(MAX_STARTS):
        start = _START.search(body, position)
        if start is None:
            return _bad_format(what)
        decoded = decoder.at(start.start())
        if decoded.flaw is not None:
            return _bad_format(decoded.flaw)
        if isinstance(decoded.value, dict):
            return _Object(decoded.value, ParseKind.tolerant)
        unquoted = _UNQUOTED.match(body, start.start())
        if unquoted is not None and _is_submit(unquoted["tool"], unquoted["name"], tools):
            arguments: dict[str, Json] = {unquoted["name"]: unquoted["value"].strip(_BLANKS)}
            return _Object({"tool": unquoted["tool"], "arguments": arguments}, ParseKind.tolerant)
        # What stands inside a broken object or array is a part of it, also behind the place that broke it.
        position = max(decoded.end, decoded.closed)
        what = (
            "The turn holds only a JSON array." if decoded.found else "The turn holds no valid JSON object."
        )
    return _bad_format(f"The turn holds no JSON object in the first {MAX_STARTS} places where one may start.")


def _is_submit(tool: str, name: str, tools: Sequence[Tool]) -> bool:
    return any(t.name == tool and t.role is Role.submit and t.parameters[0].name == name for t in tools)


def _check(found: _Object, tools: Sequence[Tool], repair: bool) -> ParsedTurn:
    """Turn an object into a call of a known tool with the right arguments; the first problem found counts."""
    value, parse = found.value, found.parse
    name, arguments = value.get("tool"), value.get("arguments")
    if not isinstance(name, str):
        has = ", ".join(quote(key, 20) for key in list(value)[:5]) or "no keys"
        what = "has no key 'tool'" if "tool" not in value else "has a 'tool' that is not a string"
        return ParsedTurn(parse, None, None, {}, _bad_format(f"The object {what} (it has {has})."))
    readable_call = isinstance(arguments, dict) and not exceeds_bounds(arguments)
    call = ToolCall(name, canonical(arguments)) if readable_call else None
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        names = [tool.name for tool in tools]
        near = did_you_mean(name[:64], names)
        message = f"There is no tool {quote(name)}{near}. The tools are: {', '.join(names)}."
        return ParsedTurn(parse, call, None, {}, Problem(Channel.tool_name, message))
    wrong = _wrong_arguments(arguments, tool, repair)
    if wrong is not None or not isinstance(arguments, dict):
        said = wrong if "arguments" in value else "the key 'arguments' is missing"
        return ParsedTurn(parse, call, None, {}, _bad_arguments(tool, said or "no arguments"))
    return ParsedTurn(parse, call, tool, arguments, None)


def _wrong_arguments(arguments: Json, tool: Tool, repair: bool) -> str | None:
    """The first thing wrong with a call's arguments."""
    if exceeds_bounds(arguments):
        return f"a number has more than {MAX_DIGITS} digits or too large an exponent"
    if not isinstance(arguments, dict):
        return f"'arguments' must be an object, not {_type(arguments)}"
    names = [parameter.name for parameter in tool.parameters]
    missing = [p.name for p in tool.parameters if p.required and p.name not in arguments]
    extra = [name for name in arguments if name not in names]
    if missing:
        also = f", and there is no argument {quote(extra[0])}" if extra else ""
        return f"the argument '{missing[0]}' is missing{also}"
    if extra:
        return f"there is no argument {quote(extra[0])}{did_you_mean(extra[0][:64], names)}"
    for parameter in tool.parameters:
        if parameter.name not in arguments:
            continue
        wrong = _wrong_type(arguments[parameter.name], parameter, lenient=repair and tool.role is Role.submit)
        if wrong is not None:
            return wrong
    return None


# For each type but numbers: the test of a value, and the type in words.
_FITS: Mapping[Kind, tuple[Callable[[Json], bool], str]] = {
    Kind.string: (lambda value: isinstance(value, str), "a string"),
    Kind.boolean: (lambda value: isinstance(value, bool), "true or false"),
    Kind.strings: (
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        "a list of strings",
    ),
    Kind.any: (lambda _: True, "a JSON value"),
}


def _wrong_type(value: Json, parameter: Parameter, *, lenient: bool) -> str | None:
    if parameter.kind is not Kind.number:
        fits, wanted = _FITS[parameter.kind]
        return None if fits(value) else f"'{parameter.name}' must be {wanted}, not {_type(value)}"
    if isinstance(value, Decimal) or (lenient and isinstance(value, str)):
        return None
    found = f"the string {quote(value, 30)}" if isinstance(value, str) else _type(value)
    return f"'{parameter.name}' must be a literal number such as 12.50, not {found}"


def _type(value: Json) -> str:
    """JSON's word for a value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, Decimal):
        return "a number"
    return {str: "a string", list: "an array", dict: "an object"}[type(value)]


def _bad_format(what: str) -> Problem:
    return Problem(Channel.form, f"{what} {FORM}")


def _bad_arguments(tool: Tool, what: str) -> Problem:
    return Problem(Channel.arguments, f"Bad call of {tool.name}: {what}. Call it as {tool.signature}.")
