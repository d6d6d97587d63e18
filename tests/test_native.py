"""The form of a call follows from the template, and what the template writes is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHATML

from qfr.engine.llama.template import ChatTemplate
from qfr.engine.native.check import call_form, written
from qfr.engine.native.form import CallForm, NoForm, schema
from qfr.engine.native.reading import NativeTurn, read_calls

END = "<|im_end|>"
HEAD = (
    "<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
)
TAIL = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def template(body: str) -> ChatTemplate:
    return ChatTemplate(HEAD + body + TAIL, "", END, "x.gguf")


EACH = "{% for c in m.tool_calls or [] %}"
TEMPLATES = {
    "tags": EACH + '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% if not loop.last %}\n{% endif %}{% endfor %}",
    "bare": "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}"
    + EACH
    + '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% endfor %}',
    "array": "{% if m.tool_calls %}[CALLS][" + EACH + '{"name": "{{ c.function.name }}", "arguments": '
    '{{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{{ ", " if not loop.last }}{% endfor %}]'
    "{% endif %}",
    "behind a name": EACH
    + "[CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}",
    "tagged": EACH
    + "<call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}"
    "<p={{ k }}>\n{{ v if v is string else v | tojson }}\n</p>\n{% endfor %}</function>\n</call>{% endfor %}",
    "pythonic": "{% if m.tool_calls %}<calls>[" + EACH + "{{ c.function.name }}("
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}"
    "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]</calls>{% endif %}",
    "typed": EACH + '<call name="{{ c.function.name }}">{% for k, v in c.function.arguments.items() %}'
    '<p name="{{ k }}" string="{{ "true" if v is string else "false" }}">'
    "{{ v if v is string else v | tojson }}</p>{% endfor %}</call>{% endfor %}",
    "channel": EACH + " to=functions.{{ c.function.name }}<|channel|>json<|message|>"
    "{{ c.function.arguments | tojson }}{% endfor %}",
}
TEXTS = {"f": frozenset({"a"}), "g": frozenset()}
TOOLS = [schema("f"), schema("g")]

Given = list[tuple[str, dict[str, Any]]]


def form(name: str) -> CallForm:
    return call_form(template(TEMPLATES[name]), TOOLS, (END,))


def read(text: str, name: str) -> NativeTurn:
    return read_calls(text, form(name), TEXTS)


def calls(turn: NativeTurn) -> Given:
    return [(call.name, json.loads(call.arguments)) for call in turn.calls]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_what_a_template_writes_is_read_back_strictly(name: str) -> None:
    found = form(name)
    several: Given = [("f", {"a": "x y", "b": 3}), ("g", {"n": -2.5, "t": True})]
    for given_calls in [[("f", {"a": "12", "b": 12})], several] if found.several else [several[:1]]:
        text = written(template(TEMPLATES[name]), found, TOOLS, given_calls, (END,))
        turn = read(text, name)
        assert calls(turn) == given_calls
        assert turn.strict
        assert turn.problem == ""


def test_forms_differ() -> None:
    assert form("tags").keyed is None
    assert form("tagged").keyed is not None
    assert form("pythonic").closing == "]</calls>"
    assert not form("bare").several


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "does not show the name"),
        ("{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}", "does not show the arguments"),
    ],
)
def test_a_template_from_which_no_form_follows_is_refused(body: str, reason: str) -> None:
    with pytest.raises(NoForm, match=f"(?s)no form of a tool call.*{reason}.*executor=tolerant"):
        call_form(template(body), TOOLS, (END,))
    with pytest.raises(NoForm, match="does not show the tools"):
        call_form(ChatTemplate(CHATML, "", END, "x.gguf"), TOOLS, (END,))


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        f"I will look.\n{CALL}",
        f"{CALL}\nThat was it.",
        CALL.replace("\n", " "),
        CALL.replace('{"a": "x"}', '"{\\"a\\": \\"x\\"}"'),
        CALL.removesuffix("\n</tool_call>"),
    ],
)
def test_leniencies_are_tolerant_readings(text: str) -> None:
    turn = read(text, "tags")
    assert calls(turn) == [("f", {"a": "x"})]
    assert not turn.strict


@pytest.mark.parametrize(
    "text",
    [
        CALL.replace('"a": "x"}', '"a": "x"'),
        CALL.replace('"x"', "'x'"),
        CALL.replace('{"a": "x"}', "[1]"),
        CALL.replace('"a": "x"', '"a": "x", "a": "y"'),
        CALL.replace("arguments", "parameters"),
        f"{CALL[:30]}\n{CALL}",
        f"{CALL}\n{CALL[:30]}",
    ],
)
def test_a_call_that_begins_and_is_none_makes_no_call(text: str) -> None:
    turn = read(text, "tags")
    assert turn.calls == ()
    assert turn.problem


@pytest.mark.parametrize(
    ("text", "unclosed"), [(f"<think>{CALL}</think>", False), (f"<think>{CALL}", True), ("hello", False)]
)
def test_calls_in_thoughts_and_plain_texts_are_none(text: str, unclosed: bool) -> None:
    turn = read(text, "tags")
    assert turn.calls == ()
    assert turn.problem == ""
    assert turn.unclosed == unclosed


def test_a_bare_value_is_a_text_where_the_schema_says_so() -> None:
    text = "<call>\n<function=f>\n<p=a>\n12\n</p>\n<p=b>\n12\n</p>\n</function>\n</call>"
    assert calls(read(text, "tagged")) == [("f", {"a": "12", "b": 12})]


@given(st.lists(st.sampled_from([*CALL.split(), "<call>", "[CALLS]", "{", "}", '"', "(", "\n", "f"])))
def test_hostile_text_is_read_without_an_error(pieces: list[str]) -> None:
    for name in ("tags", "array", "tagged", "pythonic", "typed"):
        read("".join(pieces), name)


@pytest.mark.parametrize(("tool", "read_as"), [("f", []), ("unknown", [("unknown", {"b": "{'a': 1}"})])])
def test_a_value_that_is_no_json_is_no_value(tool: str, read_as: Given) -> None:
    text = f"<call>\n<function={tool}>\n<p=b>\n{{'a': 1}}\n</p>\n</function>\n</call>"
    assert calls(read(text, "tagged")) == read_as
