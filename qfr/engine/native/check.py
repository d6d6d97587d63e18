"""A derived form proves itself: calls that the template writes are read back, exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from qfr.engine.llama.template import ChatTemplate
from qfr.engine.native.form import ID, INDEX, CallForm, NoForm, call_id, derive, schema, shared_start
from qfr.engine.native.reading import read_calls

_TOOL = "qfr_probe"
_KEYS = ("qfr_key_one", "qfr_key_two")
_VALUES: tuple[tuple[str, str], ...] = (("O-17", "two words"), ("12", "a: b = c"))
_AWKWARD = ("say \"hi\" <b> & 'x'", "two\nlines, {a: [1]}")


def call_form(
    template: ChatTemplate, tools: Sequence[Mapping[str, object]] = (), ends: Sequence[str] = ()
) -> CallForm:
    """The form of a template's calls, proven on calls of its own.

    Raises
    ------
    NoForm
        None follows from the template, or what it writes is not read back.
    """
    form = derive(template, tools, ends)
    every = [*tools, schema(_TOOL)]
    counts = (1, 2) if form.several else (1,)
    for count in counts:
        calls = [(_TOOL, dict(zip(_KEYS, values, strict=True))) for values in _VALUES[:count]]
        text = written(template, form, every, calls, ends)
        read = read_calls(text, form, {_TOOL: frozenset(_KEYS)})
        if [(call.name, json.loads(call.arguments)) for call in read.calls] != calls:
            raise NoForm(
                f"no form of a tool call follows from its chat template: {count} of its own calls "
                f"{'is' if count == 1 else 'are'} not read back ({read.problem or 'no call is found'})",
                where=template.file,
                hint="executor=tolerant plays the text protocol, which needs no tools in the template",
            )
    # Texts that a template may escape: what comes back is the same text, or no call.
    calls = [(_TOOL, dict(zip(_KEYS, _AWKWARD, strict=True)))]
    read = read_calls(written(template, form, every, calls, ends), form, {_TOOL: frozenset(_KEYS)})
    if read.calls and [(call.name, json.loads(call.arguments)) for call in read.calls] != calls:
        raise NoForm(
            "no form of a tool call follows from its chat template: it escapes texts in a way of its own",
            where=template.file,
            hint="executor=tolerant plays the text protocol, which needs no tools in the template",
        )
    return form


def messages(form: CallForm, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A user message and an assistant message with calls."""
    made = [
        {
            "id": call_id(form.id_style, name, 1, place),
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(given, ensure_ascii=False) if form.arguments_as_text else given,
            },
        }
        for place, (name, given) in enumerate(calls)
    ]
    return [
        {"role": "user", "content": "QFRUSER"},
        {"role": "assistant", "content": "", "tool_calls": made},
    ]


def written(
    template: ChatTemplate,
    form: CallForm,
    tools: Sequence[Mapping[str, object]],
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    ends: Sequence[str],
) -> str:
    """Calls as the template writes them, from where the first begins to the turn's end.

    Raises
    ------
    ModelFileError
        The template does not take these calls.
    """
    given = messages(form, calls)
    base = template.render(given[:1], tools=tools, prompt=False)
    whole = template.render(given, tools=tools, prompt=False)
    begin = re.split(f"[{ID}{INDEX}]", form.opening + form.before_name)[0]
    start = whole.find(begin, max(0, len(shared_start(base, whole)) - len(begin)))
    if start < 0:
        raise NoForm("its calls do not begin as derived", where=template.file)
    text = whole[start:]
    for end in ends:
        text = text.partition(end)[0] if end else text
    return text
