"""A native episode so far, as its chat template shows it: tools, calls and results in its own form.

As in the text protocol, contents are never rendered: each stands as a mark, and what surrounds the marks is
markup. Of a turn's calls the texts and odd names are contents. A turn stays as it was generated, whatever
else its template would write for these calls; only a thought that is not shown again makes it history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any

from qfr.choices import Thinking
from qfr.engine.base import Native, Past, PastCall
from qfr.engine.llama.shape import MARK, SYSTEM, TASK, mark
from qfr.engine.llama.template import SYSTEM_JOIN, Dialect
from qfr.engine.llama.transcript import Body, Content, Layout, Markup, Shown, readable
from qfr.engine.native.form import CallForm, call_id
from qfr.errors import EngineError, ModelFileError

# Contents whose treatment is kept.
_KEPT = 512
# Keys under which templates look for a thought.
_THOUGHT_KEYS = ("reasoning_content", "thinking", "reasoning")
_PLAIN_KEY = re.compile(r"\w{0,64}")
# Places of a turn's own contents among its pieces; texts of its calls follow.
_THOUGHT, _SAID, _FIRST = 0, 1, 2

# Contents of the example by which a template is examined.
_MARKS = {"system": mark(SYSTEM), "user": mark(TASK), "tool": mark(3)}

Message = dict[str, Any]


class NativeLayout:
    """How one template lays out native conversations with one set of tools.

    Parameters
    ----------
    layout : Layout
        Of the text protocol: how the template wants to be asked.
    form : CallForm
        How it writes calls.
    native : Native
        Tools, and what becomes of thoughts.
    ends : sequence of str
        Spelling of the tokens that end a turn.

    Raises
    ------
    ModelFileError
        It loses a message or a call's result.
    """

    def __init__(self, layout: Layout, form: CallForm, native: Native, ends: Sequence[str]) -> None:
        self.template, self.form, self.ends = layout.template, form, tuple(ends)
        self.thinking = native.thinking
        self.tools: list[Message] = json.loads(native.tools)
        self.names = {str(tool["function"]["name"]) for tool in self.tools}
        self.content = lru_cache(_KEPT)(self._content)
        name = str(self.tools[0]["function"]["name"])
        known = self.tools[0]["function"]["parameters"]["properties"]
        call = PastCall(name, json.dumps({next(iter(known), "qfr_key"): "QFRVALUE"}))
        self._sample = Past("", "", (call,), ("QFRRESULT",))
        own = layout.shape.dialect
        # Some templates drop the system message once a tool has answered: then it heads the user's.
        self._dialect, self._around = self._tried(own) or self._tried(replace(own, system=False)) or (own, "")
        if not self._around:
            raise ModelFileError(
                "its chat template loses the system text, the task or the result of a call in a conversation "
                "with tools",
                where=self.template.file,
                hint="executor=tolerant plays the text protocol",
            )
        self.thought_key = next(filter(self._shows_thought, _THOUGHT_KEYS), None)
        opening = self.render(self.opening(mark(SYSTEM), mark(TASK)))
        prompt = MARK.split(opening)[-1]
        markup = "\0".join([layout.shape.markup, *MARK.split(opening)[::3], *MARK.split(self._around)[::3]])
        self.shape = replace(layout.shape, prompt=prompt, markup=markup)

    def _tried(self, dialect: Dialect) -> tuple[Dialect, str] | None:
        """An example in a dialect; None where a text of it is not shown once."""
        self._dialect = dialect
        text = self.render(self._example(_MARKS))
        return (dialect, text) if all(text.count(one) == 1 for one in _MARKS.values()) else None

    def begun(self, system: str, task: str) -> NativeConversation:
        """An episode that begins."""
        return NativeConversation(self, system, task)

    def render(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        """What the template writes for messages, with the tools."""
        return self.template.render(messages, tools=self.tools, prompt=prompt)

    def opening(self, system: str, task: str) -> list[Message]:
        """The messages that open an episode."""
        if not self._dialect.system:
            return [self.message("user", SYSTEM_JOIN.join((system, task)))]
        return [self.message("system", system), self.message("user", task)]

    def message(self, role: str, text: str, **more: str) -> Message:
        """A message as the template takes it."""
        content: object = [{"type": "text", "text": text}] if self._dialect.typed else text
        return {"role": role, "content": content, **more}

    def calling(self, turn: int, calls: Sequence[tuple[str, object]], content: str, thought: str) -> Message:
        """An assistant's message with calls."""
        made = [
            {
                "id": call_id(self.form.id_style, name, turn, place),
                "type": "function",
                "function": {"name": name, "arguments": self._given(arguments)},
            }
            for place, (name, arguments) in enumerate(calls)
        ]
        message = self.message("assistant", content)
        if made:
            message["tool_calls"] = made
        if thought and self.thought_key is not None:
            message[self.thought_key] = thought
        return message

    def told(self, turn: int, names: Sequence[str], results: Sequence[str]) -> list[Message]:
        """What follows a turn: a result for each call, or a message of the user."""
        if not names:
            return [self.message("user", text) for text in results]
        return [
            self.message("tool", text, tool_call_id=call_id(self.form.id_style, name, turn, place), name=name)
            for place, (name, text) in enumerate(zip(names, results, strict=True))
        ]

    def _given(self, arguments: object) -> object:
        return json.dumps(arguments, ensure_ascii=False) if self.form.arguments_as_text else arguments

    def _example(self, texts: Mapping[str, str], thought: str = "", key: str | None = None) -> list[Message]:
        calls = [(call.name, json.loads(call.arguments)) for call in self._sample.calls]
        asked = self.calling(0, calls, "", "")
        if key is not None:
            asked[key] = thought
        return [
            *self.opening(texts["system"], texts["user"]),
            asked,
            *self.told(0, [name for name, _ in calls], [texts["tool"]]),
        ]

    def _shows_thought(self, key: str) -> bool:
        try:
            return self.render(self._example(_MARKS, mark(2), key)).count(mark(2)) == 1
        except ModelFileError:
            return False

    def _content(self, role: str, text: str) -> str:
        """A text as the template shows it between its neighbours: stripped, or escaped."""
        head, tail = self._around.split(_MARKS[role])
        whole = self.render(self._example(_MARKS | {role: text}))
        if len(whole) < len(head) + len(tail) or not (whole.startswith(head) and whole.endswith(tail)):
            raise EngineError(
                "its chat template changes other messages with the text of one", where=self.template.file
            )
        return whole[len(head) : len(whole) - len(tail)]


@dataclass(frozen=True)
class _Tail:
    """What stands behind a turn's last content."""

    name: str
    # The call's name where that comes last: no text follows it.
    times: int
    # How often it stands behind the last mark.
    text: str
    # What the template writes then, up to what ends a turn.


@dataclass(frozen=True)
class _Turn:
    """A turn with what followed it."""

    past: Past
    tail: _Tail


@dataclass(frozen=True)
class _Span:
    """Where a turn stands in a rendering."""

    start: int
    # Behind the message before it.
    end: int
    # Behind its own text, before what ends a turn.


@dataclass
class NativeConversation:
    """An episode so far, as one template shows it."""

    layout: NativeLayout
    system: str
    task: str
    turns: tuple[_Turn, ...] = ()
    prompts: list[str] = field(default_factory=list)
    # Markup that opened each turn.

    def grown(self, _turn: str, told: str | Past) -> NativeConversation:
        """The episode after a turn and what it is told."""
        if isinstance(told, str):
            raise EngineError("a turn of the text protocol in a native episode")
        past = replace(told, results=tuple(map(readable, told.results)))
        grown = replace(self, turns=(*self.turns, _Turn(past, _Tail("", 0, ""))), prompts=list(self.prompts))
        tail = grown._tail(len(self.turns))
        return replace(grown, turns=(*self.turns, _Turn(past, tail)))

    def shown(self) -> Shown:
        """The transcript that opens the next turn."""
        whole = frozenset(range(len(self.turns)))
        messages, pieces = self._messages(whole)
        text = self.layout.render(messages)
        spans = self._spans(text)
        kept = frozenset(place for place in whole if self._stays(place, text, spans[place]))
        if kept != whole:
            messages, pieces = self._messages(kept)
            text = self.layout.render(messages)
            spans = self._spans(text)
        shown = self._cut(text, spans, kept, pieces)
        self.prompts = [*self.prompts[: len(self.turns)], shown.prompt]
        return shown

    # Messages with marks

    def _messages(
        self, whole: frozenset[int], most: int | None = None
    ) -> tuple[list[Message], dict[tuple[int, int], str]]:
        """Messages with marks in place of contents, and what the marks stand for.

        Turns in `whole` come with their thoughts, the others without.
        """
        layout = self.layout
        pieces = {
            (SYSTEM, 0): layout.content("system", self.system),
            (TASK, 0): layout.content("user", self.task),
        }
        messages = layout.opening(mark(SYSTEM), mark(TASK))
        for turn, past in enumerate(one.past for one in self.turns):
            number, places = 2 + 2 * turn, count(_FIRST)

            def masked(text: str, number: int = number, places: count[int] = places) -> str:
                place = next(places)
                pieces[number, place] = text
                return mark(number, place)

            names = [call.name if call.name in layout.names else masked(call.name) for call in past.calls]
            calls = [
                (name, _masked(json.loads(call.arguments), layout.form, masked, 0))
                for name, call in zip(names, past.calls, strict=True)
            ]
            thought = mark(number, _THOUGHT) if turn in whole and past.thought else ""
            said = "" if not past.content or (past.calls and turn in whole) else mark(number, _SAID)
            pieces[number, _SAID], pieces[number, _THOUGHT] = readable(past.content), ""
            messages.append(layout.calling(turn, calls, said, thought))
            if turn == most:
                break
            role = "tool" if past.calls else "user"
            for place, result in enumerate(past.results):
                pieces[number + 1, place] = layout.content(role, result)
            marks = [mark(number + 1, place) for place in range(len(past.results))]
            messages += layout.told(turn, names, marks)
        return messages, pieces

    # Where turns stand

    def _tail(self, turn: int) -> _Tail:
        """What the template writes behind a turn's last content, up to what ends a turn."""
        messages, _ = self._messages(frozenset(range(turn)), most=turn)
        text = self.layout.render(messages, prompt=False)
        past, last = self.turns[turn].past, self._last_mark(text, turn, len(text))
        name, times = "", 0
        if past.calls and past.calls[-1].name in self.layout.names:
            times = text.count(past.calls[-1].name, last)
            name = past.calls[-1].name if times else ""
        tail = text[_behind(text, name, times, last) :]
        size = self._ends_at(tail)
        return _Tail(name, times, tail.rstrip() if size is None else tail[:size])

    def _ends_at(self, text: str) -> int | None:
        """Where the first text stands that ends a turn; None where there is none."""
        places = [text.index(end) for end in self.layout.ends if end and end in text]
        return min(places) if places else None

    def _last_mark(self, text: str, turn: int, limit: int) -> int:
        """Where the last mark of a turn ends; of the message before it, where the turn has none."""
        marks = [found for found in MARK.finditer(text, 0, limit) if int(found[1]) <= 2 + 2 * turn]
        return max((found.end() for found in marks), default=0)

    def _spans(self, text: str) -> list[_Span]:
        """Where each turn stands in a rendering; every other message has to be there, once and in order."""
        wanted = [(SYSTEM, 0), (TASK, 0)]
        for turn, one in enumerate(self.turns):
            wanted += [(3 + 2 * turn, place) for place in range(len(one.past.results))]
        found = [one for one in MARK.finditer(text) if int(one[1]) < 2 or int(one[1]) % 2]
        if [(int(one[1]), int(one[2])) for one in found] != wanted:
            there = {(int(one[1]), int(one[2])) for one in found}
            lost = next((key for key in wanted if key not in there), None)
            raise self._lost("the order of messages" if lost is None else f"message {lost[0]}")
        spans = []
        for turn, one in enumerate(self.turns):
            first = next(place for place in found if int(place[1]) == 3 + 2 * turn)
            last = [place for place in found if int(place[1]) < 3 + 2 * turn][-1]
            tail = one.tail
            behind = _behind(text, tail.name, tail.times, self._last_mark(text, turn, first.start()))
            if behind < 0:
                raise self._lost(f"turn {turn}")
            region = text[behind : first.start()]
            size = self._ends_at(region)
            if size is None:
                if not region.startswith(tail.text):
                    raise self._lost(f"the end of turn {turn}")
                size = len(tail.text)
            spans.append(_Span(last.end(), behind + size))
        return spans

    def _stays(self, turn: int, text: str, span: _Span) -> bool:
        """Whether a turn stands in the transcript as it was generated."""
        if self.layout.thinking is Thinking.keep:
            return True
        thought = self.turns[turn].past.thought
        if thought and (
            self.layout.thinking is Thinking.drop
            or mark(2 + 2 * turn, _THOUGHT) not in text[span.start : span.end]
        ):
            return False
        return text.startswith(self.prompts[turn], span.start)

    def _cut(
        self,
        text: str,
        spans: Sequence[_Span],
        kept: frozenset[int],
        pieces: Mapping[tuple[int, int], str],
    ) -> Shown:
        """A rendering as bodies."""
        bodies: list[Body] = []
        rest = 0
        for number in range(2 + 2 * len(self.turns)):
            turn = number // 2 - 1
            if number >= 2 and number % 2 == 0:
                end = spans[turn].end
                if turn in kept:
                    bodies.append(Body(self.prompts[turn], number, (), generated=True))
                else:
                    before, parts = _parts(text[rest:end], pieces)
                    bodies.append(Body(before, number, parts, generated=False))
                rest = end
                continue
            marks = [found for found in MARK.finditer(text, rest) if int(found[1]) == number]
            before, parts = _parts(text[rest : marks[-1].end()], pieces)
            bodies.append(Body(before, number, parts, generated=False))
            rest = marks[-1].end()
        return Shown(tuple(bodies), text[rest:])

    def _lost(self, what: str) -> EngineError:
        return EngineError(
            f"its chat template loses {what} of a native conversation",
            where=self.layout.template.file,
            hint="executor=tolerant plays the text protocol; model.template=FILE gives another template",
        )


def _parts(text: str, pieces: Mapping[tuple[int, int], str]) -> tuple[str, tuple[Markup | Content, ...]]:
    """Markup before the first content, then contents and the markup between them."""
    before, parts, rest = "", list[Markup | Content](), 0
    for found in MARK.finditer(text):
        between, rest = text[rest : found.start()], found.end()
        if not parts:
            before = between
        elif between:
            parts.append(Markup(between))
        parts.append(Content(pieces[int(found[1]), int(found[2])]))
    if not parts:
        return text, ()
    return before, (*parts, *([Markup(text[rest:])] if text[rest:] else []))


def _behind(text: str, name: str, times: int, start: int) -> int:
    """Where a name ends that stands so often behind a place; the place itself without a name, else -1."""
    for _ in range(times if name else 0):
        place = text.find(name, start)
        if place < 0:
            return -1
        start = place + len(name)
    return start


def _masked(value: Any, form: CallForm, masked: Any, depth: int) -> Any:
    """Arguments with marks in place of texts."""
    if isinstance(value, str):
        quoted = form.keyed is None or depth > 1 or form.keyed.text[0].endswith(('"', "'"))
        text = readable(value)
        text = json.dumps(text, ensure_ascii=False)[1:-1] if quoted else text
        return masked(json.dumps(text, ensure_ascii=False)[1:-1] if form.text_arguments else text)
    if isinstance(value, list):
        return [_masked(one, form, masked, depth + 1) for one in value]
    if isinstance(value, dict):
        return {
            key if _PLAIN_KEY.fullmatch(key) else masked(key): _masked(one, form, masked, depth + 1)
            for key, one in value.items()
        }
    return value
