"""What a tool call looks like in one chat template, derived by rendering marked calls.

Two calls with marked names, keys and values are rendered in one assistant message. What stands before,
between and behind the marks is the form: JSON arguments (in tags, bare, behind a name) or keyed arguments
(tags, keyword arguments in parentheses). Nothing depends on a model's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qfr.engine.llama.template import ChatTemplate
from qfr.errors import ModelFileError
from qfr.thoughts import apart

_NAMES = ("qfr_tool_one", "qfr_tool_two")
_KEYS = ("qfr_key_one", "qfr_key_two")
_TEXTS = (("QFRTEXTA", "QFRTEXTB"), ("QFRTEXTC", "QFRTEXTD"))
_NUMBERS = (7310251, 7310252)
# A number of a template's own.
_RUNNING = re.compile(r"(?<![\w.])(?!73102)[0-9]+(?![\w.])")
# Ids of calls as templates want them: nine letters and digits, or the name and a running number.
ID_STYLES = ("nine", "named")


class NoForm(ModelFileError):
    """No form of a call follows from the template."""


@dataclass(frozen=True)
class Keyed:
    """Arguments that stand one by one."""

    before_key: str
    text: tuple[str, str]
    # Between a key and a text, and right behind the text.
    other: tuple[str, str]
    # The same for a number and all other values, which stand as JSON.
    separator: str
    # Between two arguments.


@dataclass(frozen=True)
class CallForm:
    """How a template writes calls. Texts are exact; `ID` and `INDEX` stand for an id and a running number."""

    opening: str
    # Before the first call.
    before_name: str
    after_name: str
    # Between a name and its arguments.
    keyed: Keyed | None
    # None = the arguments are one JSON object.
    text_arguments: bool
    # The JSON object stands as a JSON string.
    arguments_as_text: bool
    # The template wants the arguments of a call as a JSON text; False = as an object.
    after_arguments: str
    separator: str
    # Between two calls.
    closing: str
    # Behind the last call.
    id_style: str
    # One of ID_STYLES.
    several: bool
    # The template shows several calls of one message.


# What stands in a form for an id, a running number, the call's name and the argument's key.
ID, INDEX, NAME, KEY = "\ue000", "\ue001", "\ue002", "\ue003"


def call_id(style: str, name: str, turn: int, place: int) -> str:
    """A call's id, from its turn and its place in the turn."""
    return f"functions.{name}:{place}" if style == "named" else f"q{turn:04d}c{place:03d}"


def derive(
    template: ChatTemplate, tools: Sequence[Mapping[str, object]] = (), ends: Sequence[str] = ()
) -> CallForm:
    """The form of a template's calls.

    Parameters
    ----------
    template : ChatTemplate
    tools : sequence of mapping
        Further tools, as JSON schemas.
    ends : sequence of str
        Spelling of the tokens that end a turn: what a template writes from one on, no model writes.

    Raises
    ------
    NoForm
        The template fails, shows no tools, or loses a part of a call: which.
    """
    problem: ModelFileError | None = None
    for style in ID_STYLES:
        for as_text in (False, True):
            try:
                return _Derivation(template, tools, style, as_text).form(ends)
            except ModelFileError as error:
                problem = problem or error
    assert problem is not None
    raise NoForm(
        f"no form of a tool call follows from its chat template: {problem.what}",
        where=template.file,
        hint="executor=tolerant plays the text protocol, which needs no tools in the template",
    )


def schema(name: str) -> dict[str, object]:
    """A tool with the two marked keys."""
    properties = {_KEYS[0]: {"type": "string"}, _KEYS[1]: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": list(_KEYS)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}


class _Derivation:
    """One attempt, with ids of one style and arguments as an object or as a text."""

    def __init__(
        self,
        template: ChatTemplate,
        tools: Sequence[Mapping[str, object]],
        style: str,
        as_text: bool,
    ) -> None:
        self._template, self._style, self._as_text = template, style, as_text
        self._tools = [*map(schema, _NAMES), *tools]
        start = [{"role": "user", "content": "QFRUSER"}]
        self._base = template.render(start, tools=self._tools, prompt=False)
        self._prompt = template.render(start, tools=self._tools)
        if _NAMES[0] not in self._prompt:
            raise NoForm("it does not show the tools", where=template.file)

    def _written(self, count: int, *, numbers: bool = False) -> str:
        """What the template writes for an assistant message with calls, behind what opens the turn."""
        calls = []
        for place in range(count):
            values: Sequence[object] = (_TEXTS[place][0], _NUMBERS[place]) if numbers else _TEXTS[place]
            given = dict(zip(_KEYS, values, strict=True))
            arguments = json.dumps(given) if self._as_text else given
            name = _NAMES[place]
            function = {"name": name, "arguments": arguments}
            one = call_id(self._style, name, 1, place)
            calls.append({"id": one, "type": "function", "function": function})
        message = {"role": "assistant", "content": "", "tool_calls": calls}
        user = {"role": "user", "content": "QFRUSER"}
        whole = self._template.render([user, message], tools=self._tools, prompt=False)
        tail = whole[len(shared_start(self._base, whole)) :]
        opened = self._prompt[len(shared_start(self._base, self._prompt)) :]
        tail = tail[len(_common_start(opened, tail)) :]
        for place in range(count):
            mark = call_id(self._style, _NAMES[place], 1, place)
            tail = tail.replace(mark, f"functions.{_NAMES[place]}:0" if self._style == "named" else ID)
        return _RUNNING.sub(INDEX, tail)

    def form(self, ends: Sequence[str]) -> CallForm:
        one = self._written(1)
        try:
            two = self._written(2)
            several = all(name in two for name in _NAMES)
        except ModelFileError:
            several = False
        first = self._call(one, 0)
        before, after = one[: first.start], one[first.end :]
        if several:
            a, b = self._call(two, 0), self._call(two, 1)
            between, after = two[a.end : b.start], two[b.end :]
            before_name = _common_end(two[: a.start], between)
            rest = between[: len(between) - len(before_name)]
            ended = _common_start(rest, after)
            separator, opening = rest[len(ended) :], two[: a.start - len(before_name)]
            closing = after[len(ended) :]
        else:
            opening, before_name, ended, separator, closing = "", before, "", "", after
        spoken = apart(opening)
        opening = "".join(spoken.said).lstrip() if spoken.thought or "think" in opening else opening
        return CallForm(
            opening=opening,
            before_name=before_name,
            after_name=first.after_name,
            keyed=first.keyed,
            text_arguments=first.text_arguments,
            arguments_as_text=self._as_text,
            after_arguments=_cut(ended, ends),
            separator=separator,
            closing="" if _cut(ended, ends) != ended else _cut(closing, ends),
            id_style=self._style,
            several=several,
        )

    def _call(self, text: str, place: int) -> _Found:
        """Where a call stands in a text, and what its arguments look like."""
        name = _NAMES[place]
        start = text.find(name)
        if start < 0:
            raise NoForm("it does not show the name of a call", where=self._template.file)
        for value in _TEXTS[place]:
            if value not in text[start:]:
                raise NoForm("it does not show the arguments of a call", where=self._template.file)
        given = dict(zip(_KEYS, _TEXTS[place], strict=True))
        rest = start + len(name)
        found = _json_object(text, rest, given)
        if found is not None:
            begin, end, as_text = found
            return _Found(start, end, text[rest:begin], None, as_text)
        return self._keyed(text, start, rest, place)

    def _keyed(self, text: str, start: int, rest: int, place: int) -> _Found:
        key_one, key_two = self._spots(text, rest, (_KEYS[0], _TEXTS[place][0], _KEYS[1], _TEXTS[place][1]))
        opens = text[key_one.key_end : key_one.value]
        if opens != text[key_two.key_end : key_two.value]:
            raise NoForm("it writes two arguments in two ways", where=self._template.file)
        between, tail = text[key_one.end : key_two.key], text[key_two.end :]
        before_key = _common_end(text[rest : key_one.key], between)
        closes = between[: len(between) - len(before_key)].replace(_KEYS[0], KEY)
        separator = ""
        if not tail.replace(_KEYS[1], KEY).startswith(closes):
            closes, separator = _closing(closes, tail)
        end = key_two.end + len(closes.replace(KEY, _KEYS[1]))
        after_name = text[rest : key_one.key - len(before_key)].replace(_NAMES[place], NAME)
        other = self._other(opens, closes, start, place)
        return _Found(start, end, after_name, Keyed(before_key, (opens, closes), other, separator), False)

    def _spots(self, text: str, start: int, marks: Sequence[str]) -> tuple[_Spot, _Spot]:
        """Where two keys and their values stand."""
        places = []
        for mark in marks:
            where = text.find(mark, start)
            if where < 0:
                raise NoForm("it writes arguments in an order of its own", where=self._template.file)
            places.append((where, where + len(mark)))
            start = where + len(mark)
        return _Spot(*places[0], *places[1]), _Spot(*places[2], *places[3])

    def _other(self, opens: str, closes: str, start: int, place: int) -> tuple[str, str]:
        """What stands around a value that is no text."""
        if place:
            return opens, closes
        text = self._written(1, numbers=True)
        number = text.find(str(_NUMBERS[0]), start)
        key = text.rfind(_KEYS[1], start, number)
        if number < 0 or key < 0:
            raise NoForm("it does not show a number", where=self._template.file)
        behind = text[number + len(str(_NUMBERS[0])) :].replace(_KEYS[1], KEY)
        quoted = closes
        while quoted and not behind.startswith(quoted):
            quoted = quoted[1:]
        return text[key + len(_KEYS[1]) : number], quoted


def _closing(closes: str, tail: str) -> tuple[str, str]:
    """Cut what stands between a value and the next key into the value's end and the separator."""
    size = len(shared_start(closes, tail))
    return closes[:size], closes[size:]


@dataclass(frozen=True)
class _Spot:
    """Where a key and its value stand."""

    key: int
    key_end: int
    value: int
    end: int


@dataclass(frozen=True)
class _Found:
    start: int
    end: int
    after_name: str
    keyed: Keyed | None
    text_arguments: bool


def _json_object(text: str, start: int, wanted: Mapping[str, object]) -> tuple[int, int, bool] | None:
    """Begin and end of the JSON object that holds the arguments, and whether it stands as a string."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r'[{"]', text[start:]):
        begin = start + found.start()
        try:
            value, end = decoder.raw_decode(text, begin)
        except json.JSONDecodeError:
            continue
        if value == wanted:
            return begin, end, False
        if isinstance(value, str) and value.startswith("{"):
            try:
                if json.loads(value) == wanted:
                    return begin, end, True
            except json.JSONDecodeError:
                continue
    return None


def _cut(text: str, ends: Sequence[str]) -> str:
    places = [text.index(end) for end in ends if end and end in text]
    return text[: min(places)] if places else text


def shared_start(first: str, second: str) -> str:
    """The longest text that both start with."""
    pairs = zip(first, second, strict=False)
    size = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    return first[: min(len(first), len(second)) if size is None else size]


def _common_end(first: str, second: str) -> str:
    """The longest text that both end with and that begins with no part of a tag."""
    text = shared_start(first[::-1], second[::-1])[::-1]
    if text in (first, second):
        return text
    return re.sub(r"^[^<>\[\]\s]*[>\]]", "", text)


def _common_start(first: str, second: str) -> str:
    """The longest text that both start with and that ends with no part of a tag."""
    text = shared_start(first, second)
    if text in (first, second):
        return text
    return re.sub(r"[<\[][^<>\[\]\s]*$", "", text)
