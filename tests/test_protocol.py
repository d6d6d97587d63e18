"""Hostile text in, one good error or one call out; answers are exact, bounded and never evaluated."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr import bounded_json
from qfr.canonical import Json, canonical, readable
from qfr.protocol import (
    MAX_TURN_CHARS,
    ParsedTurn,
    Problem,
    observe_end,
    observe_fault,
    observe_problem,
    observe_record,
    read_answer,
    read_turn,
)
from qfr.records import Channel, Kind, Parameter, ParseKind, Role, Tool, ToolCall

TOOLS = (
    Tool("find", Role.lookup, (Parameter("key", Kind.string, "a key"),), "Find."),
    Tool("sum", Role.lookup, (Parameter("a", Kind.number, ""), Parameter("b", Kind.number, "")), "Add."),
    Tool("answer", Role.submit, (Parameter("value", Kind.number, "the answer"),), "Answer."),
    Tool("give_up", Role.report, (Parameter("reason", Kind.string, "why"),), "Give up."),
)
FIND = '{"tool": "find", "arguments": {"key": "k"}}'
SLOW = settings(deadline=None, max_examples=300)


def tolerant(text: str) -> ParsedTurn:
    return read_turn(text, TOOLS, repair=True)


def strictly(text: str) -> ParsedTurn:
    return read_turn(text, TOOLS, repair=False)


def submit(value: str) -> str:
    return FIND.replace("find", "answer").replace("key", "value").replace('"k"', value)


def find(value: str) -> str:
    return FIND.replace('"k"', value)


# Text, channel, a part of the message. The same under both executors.
BAD = [
    ("", Channel.form, "empty"),
    ("I do not know.", Channel.form, "JSON object"),
    ("[" + FIND + "]", Channel.form, "an array"),
    ("42", Channel.form, "a number"),
    ('"find"', Channel.form, "a string"),
    ("null", Channel.form, "null"),
    (submit("NaN"), Channel.form, "NaN is not a JSON number"),
    (submit("-Infinity"), Channel.form, "-Infinity is not a JSON number"),
    ('{"tool": "find", "tool": "sum", "arguments": {}}', Channel.form, "'tool' stands twice"),
    ('{"tool": "find", "arguments": {"key": "a", "key": "a"}}', Channel.form, "'key' stands twice"),
    ("x" * 1_000_000, Channel.form, "1000000 characters"),
    (find('"' + "x" * 1_000_000 + '"'), Channel.form, "at most 32768"),
    ("[" * 100_000, Channel.form, "at most 32768"),
    ("[" * 30_000 + "]" * 2_000, Channel.form, "16 levels"),
    ('{"a":' * 6_000 + "1" + "}" * 2_000, Channel.form, "16 levels"),
    (find("[" * 15 + "]" * 15), Channel.form, "16 levels"),
    (
        '{"name": "find", "parameters": {"key": "k"}}',
        Channel.form,
        "no key 'tool' (it has 'name', 'parameters')",
    ),
    ("{}", Channel.form, "no keys"),
    ('{"tool": 7, "arguments": {}}', Channel.form, "not a string"),
    ('{"tool": "fund", "arguments": {"key": "k"}}', Channel.tool_name, "did you mean 'find'?"),
    ('{"tool": "Find", "arguments": {"key": "k"}}', Channel.tool_name, "find, sum, answer, give_up"),
    ('{"tool": "%s"}' % ("f" * 30_000), Channel.tool_name, "…"),
    ('{"tool": "\\ud800", "arguments": {}}', Channel.tool_name, "no tool"),
    ('{"tool": "find"}', Channel.arguments, "'arguments' is missing"),
    ('{"tool": "find", "arguments": ["k"]}', Channel.arguments, "not an array"),
    ('{"tool": "find", "arguments": null}', Channel.arguments, "not null"),
    ('{"tool": "find", "arguments": {}}', Channel.arguments, "'key' is missing"),
    ('{"tool": "find", "arguments": {"kee": "k"}}', Channel.arguments, "no argument 'kee'"),
    ('{"tool": "find", "arguments": {"key": "k", "keys": 1}}', Channel.arguments, "did you mean 'key'?"),
    (find("7"), Channel.arguments, "'key' must be a string, not a number. Call it as find(key: string)."),
    (find("{}"), Channel.arguments, "not an object"),
    (find("9" * 5_000), Channel.arguments, "40 digits"),
    (submit("9" * 5_000), Channel.arguments, "40 digits"),
    (submit("1e999999999999999999999"), Channel.arguments, "exponent"),
    (submit("[1e41]"), Channel.arguments, "exponent"),
    (submit("null"), Channel.arguments, "literal number such as 12.50, not null"),
    (submit("true"), Channel.arguments, "not a boolean"),
    (submit("[95]"), Channel.arguments, "not an array"),
    ('{"tool": "sum", "arguments": {"a": 1, "b": "2"}}', Channel.arguments, "'b' must be a literal number"),
]


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(("text", "channel", "part"), BAD, ids=[f"{i}-{row[2]}" for i, row in enumerate(BAD)])
def test_bad_calls(text: str, channel: Channel, part: str, repair: bool) -> None:
    parsed = read_turn(text, TOOLS, repair=repair)
    assert parsed.problem is not None
    assert parsed.problem.channel is channel
    assert part in parsed.problem.message
    assert (parsed.tool, parsed.submitted, dict(parsed.arguments)) == (None, None, {})
    observation = observe_problem(parsed.problem)
    assert (observation.ok, observation.channel, observation.injected) == (False, channel, False)
    assert len(observation.text.encode()) < 500


def test_good_calls_are_strict_and_canonical() -> None:
    for parsed in (tolerant(f"\n {FIND}\t"), strictly(FIND)):
        assert parsed.parse is ParseKind.strict
        assert parsed.call == ToolCall("find", '{"key":"k"}')
        assert parsed.tool == TOOLS[0]
        assert parsed.problem is None
    parsed = tolerant('{"arguments": {"b": 2.50, "a": 1E2}, "thought": [], "tool": "sum"}')
    assert parsed.call == ToolCall("sum", '{"a":1E+2,"b":2.50}')
    assert parsed.arguments == {"a": Decimal(100), "b": Decimal("2.5")}


@pytest.mark.parametrize(
    "text",
    [
        f"Let me look.\n{FIND}",
        f"```json\n{FIND}\n```",
        f"I use {{find}} and [1] and {{x: 1}}: {FIND}",
        f"{FIND}\n{submit('1')}",
        f"[1, 2] {FIND}",
        "{" + FIND + "}",
        f"{FIND} {{",
    ],
)
def test_first_object_is_taken_only_by_the_tolerant_reading(text: str) -> None:
    parsed = tolerant(text)
    assert parsed.parse is ParseKind.tolerant
    assert parsed.call == ToolCall("find", '{"key":"k"}')
    assert parsed.problem is None
    refused = strictly(text)
    assert refused.parse is ParseKind.none
    assert refused.call is None
    assert refused.problem is not None
    assert refused.problem.channel is Channel.form


@pytest.mark.parametrize(
    "text",
    [
        FIND[:-1],
        "{'tool': 'find'}",
        f"x [{FIND}",
        f"x [{FIND}]",
        '{"tool": "find", "arguments": {"key": 1 + 1}}',
    ],
)
def test_parts_of_broken_objects_do_not_count(text: str) -> None:
    parsed = tolerant(text)
    assert parsed.parse is ParseKind.none
    assert parsed.problem is not None
    assert parsed.problem.channel is Channel.form


@pytest.mark.parametrize(
    ("argument", "stored", "value", "parse"),
    [
        ("100", "100", Fraction(100), ParseKind.strict),
        ("100.00", "100.00", Fraction(100), ParseKind.strict),
        ('"100.0"', '"100.0"', Fraction(100), ParseKind.strict),
        ('"200.0 * 0.5"', '"200.0 * 0.5"', Fraction(100), ParseKind.strict),
        ("200.0 * 0.5", '"200.0 * 0.5"', Fraction(100), ParseKind.tolerant),
        (" -(3 - 5)\n", '"-(3 - 5)"', Fraction(2), ParseKind.tolerant),
        ("007", '"007"', Fraction(7), ParseKind.tolerant),
        ('"about 95"', '"about 95"', None, ParseKind.strict),
        ("9**9**9", '"9**9**9"', None, ParseKind.tolerant),
    ],
)
def test_submitted_arguments(argument: str, stored: str, value: Fraction | None, parse: ParseKind) -> None:
    parsed = tolerant(submit(argument))
    assert (parsed.submitted, parsed.parse, parsed.problem) == (stored, parse, None)
    assert parsed.submitted is not None
    assert read_answer(parsed.submitted).value == value
    literal = stored[0] != '"'
    assert read_answer(parsed.submitted).literal is literal
    assert (strictly(submit(argument)).problem is None) is literal


def test_strict_feedback_says_what_it_wants() -> None:
    problem = strictly(submit('"200.0 * 0.5"')).problem
    assert problem is not None
    assert problem.channel is Channel.arguments
    assert "'200.0 * 0.5'" in problem.message
    assert "answer(value: number)" in problem.message


KEYS = ["tool", "arguments", "key"]
HOSTILE = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            ["{", "}", "[", "]", '"', "\\", ":", ",", " ", "1", "-", "NaN", "null", '"tool"', '"find"',
             '"arguments"', '"key"', FIND, submit("1*2"), submit("1")[:-2], "\ud800", "\x00", "\\ud800",
             '{"a":', "9" * 50]
        ),
        max_size=60,
    ).map("".join),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
        max_leaves=12,
    ).map(json.dumps),
)  # fmt: skip


@settings(deadline=None, max_examples=1_000)
@given(HOSTILE, st.booleans())
def test_no_text_raises_and_each_has_one_outcome(text: str, repair: bool) -> None:
    parsed = read_turn(text, TOOLS, repair=repair)
    assert (parsed.tool is None) == (parsed.problem is not None)
    if parsed.problem is not None:
        observe_problem(parsed.problem).text.encode()
    else:
        assert parsed.call is not None
        assert parsed.call.arguments == canonical(parsed.arguments)
    if not repair:
        assert parsed.parse is not ParseKind.tolerant
    read_answer(parsed.submitted or "")


@SLOW
@given(HOSTILE)
def test_strict_readings_are_a_part_of_the_tolerant_ones(text: str) -> None:
    strict = strictly(text)
    if strict.problem is None:
        assert tolerant(text) == strict
    if strict.parse is ParseKind.strict:
        assert tolerant(text).parse is ParseKind.strict


@SLOW
@given(st.text(max_size=80))
def test_strict_is_what_the_json_library_reads_as_an_object(text: str) -> None:
    whole = strictly(text).parse is ParseKind.strict
    try:
        value = json.loads(text)
    except ValueError:
        assert not whole
        return
    assert not whole or isinstance(value, dict)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.sampled_from(['{"', '"', "{", "}", "\\", '\\"', "[1 ", '{"\\"', '{"":"{",', "1+"]),
        min_size=1,
        max_size=5,
    )
)
def test_work_is_bounded(parts: list[str]) -> None:
    text = ("".join(parts) * MAX_TURN_CHARS)[:MAX_TURN_CHARS]
    decoder = bounded_json.Decoder(text)
    looked, position = 0, 0
    while position < len(text) and looked < 1_000:
        decoder.at(position)
        position, looked = position + 1, looked + 1
    assert decoder.work <= bounded_json.MAX_WORK + MAX_TURN_CHARS
    assert tolerant(text).problem is not None


def test_observations() -> None:
    record = observe_record({"key": "k", "n": Decimal("2.50"), "ä": [None, True]}, injected=True)
    assert record.text == 'Observation: {"ok": true, "result": {"key": "k", "n": 2.50, "ä": [null, true]}}'
    assert (record.ok, record.channel, record.injected) == (True, None, True)
    fault = observe_fault("service_unavailable", 'No "answer".')
    assert (
        fault.text
        == 'Observation: {"ok": false, "error": "service_unavailable", "message": "No \\"answer\\"."}'
    )
    assert (fault.ok, fault.channel, fault.injected) == (False, None, True)
    missing = observe_problem(Problem(Channel.entity, "No record for key '\ud800'."))
    assert (
        missing.text
        == r"""Observation: {"ok": false, "error": "not_found", "message": "No record for key '\ud800'."}"""
    )
    assert observe_end().text == ""


@SLOW
@given(st.text(), st.decimals(allow_nan=False, allow_infinity=False, places=4))
def test_json_forms_read_back(text: str, number: Decimal) -> None:
    value: Json = {"b": text, "a": [number, None, False, {}]}
    for written in (canonical(value), readable(value)):
        read = json.loads(written, parse_float=Decimal, parse_int=Decimal)
        assert read == value
        written.encode()
    assert canonical(value).isascii()


LOOKUP = '{"tool": "get_order", "arguments": {"order_id": "O-1"}}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"sure": tru, "call": {LOOKUP}}}',
        f"{{'note': 'x', 'call': {LOOKUP}}}",
        f"{{call: {LOOKUP}}}",
        f'{{ "note": x, "calls": [{LOOKUP}] }}',
        f"[1, oops, {LOOKUP}]",
        f'{{"a": 1,, "b": {{"c": {LOOKUP}}}}} and no more',
        f'{{"a" "b", "call": {LOOKUP}}}',
    ],
)
def test_a_part_of_a_broken_object_is_no_object(text: str) -> None:
    turn = read_turn(text, TOOLS, repair=True)
    assert (turn.parse, turn.call) == (ParseKind.none, None)
    # What follows the broken one counts.
    later = read_turn(f"{text} I mean {LOOKUP}", TOOLS, repair=True)
    assert later.call == ToolCall("get_order", '{"order_id":"O-1"}')


@pytest.mark.parametrize("before", ["Use {braces} so: ", "{ ", "{{", 'a "quote: ', "set {x, y} ", "{1: 2} "])
def test_braces_in_prose_do_not_hide_a_call(before: str) -> None:
    assert read_turn(before + LOOKUP, TOOLS, repair=True).call == ToolCall("get_order", '{"order_id":"O-1"}')


# Thoughts

CALL, OTHER = find('"k"'), find('"x"')


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{OTHER}</think>{CALL}",
        f"<think>\n{OTHER}\n</think>\n\n{CALL}\n",
        f"<think></think>{CALL}",
        f"[THINK]{OTHER}[/THINK]{CALL}",
        f"<|channel>thought\n{OTHER}<channel|>{CALL}",
        f"<|channel|>analysis<|message|>{OTHER}<|end|><|start|>assistant<|channel|>final<|message|>{CALL}",
        f"<|START_THINKING|>{OTHER}<|END_THINKING|><|START_RESPONSE|>{CALL}<|END_RESPONSE|>",
        f"{OTHER}</think>{CALL}",
    ],
)
def test_a_call_in_a_thought_is_no_call(text: str) -> None:
    """What the model writes for itself is no part of its turn, under neither reading."""
    for read in (tolerant(text), strictly(text)):
        assert read.call == ToolCall("find", '{"key":"k"}')
        assert read.parse is ParseKind.strict


@pytest.mark.parametrize(
    ("text", "thinking", "said"),
    [
        (f"<think>{CALL}", False, "ends inside a thought"),
        (f"<think>a</think><think>{CALL}", False, "ends inside a thought"),
        (CALL, True, "ends inside a thought"),
        ("x" * 50, True, "ends inside a thought"),
        (f"<think>{CALL}</think>", False, "holds nothing but a thought"),
        (f"{CALL}</think>", True, "holds nothing but a thought"),
        (f"<|channel|>analysis<|message|>{CALL}", False, "ends inside a thought"),
    ],
)
def test_an_unclosed_thought_holds_no_call(text: str, thinking: bool, said: str) -> None:
    read = read_turn(text, TOOLS, repair=True, thinking=thinking)
    assert read.call is None
    assert read.problem is not None
    assert read.problem.channel is Channel.form
    assert said in read.problem.message


def test_a_thought_that_the_template_opened_ends_in_the_turn() -> None:
    read = read_turn(f"{OTHER} no</think>\n{CALL}", TOOLS, repair=False, thinking=True)
    assert read.call == ToolCall("find", '{"key":"k"}')


def test_a_call_before_a_thought_counts() -> None:
    assert tolerant(f"{CALL}<think>hm").call == ToolCall("find", '{"key":"k"}')


def test_marks_inside_a_call_are_its_own_text() -> None:
    read = strictly(find('"<think>"'))
    assert read.call == ToolCall("find", '{"key":"<think>"}')


def test_no_object_reaches_across_a_thought() -> None:
    assert tolerant('{"tool": "find", <think>a</think> "arguments": {"key": "k"}}').call is None
