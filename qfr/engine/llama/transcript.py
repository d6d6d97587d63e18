"""What a template makes of an episode so far: markup, contents, and turns as they were generated.

Contents are never rendered. Each stands in the rendering as a mark, so what surrounds the marks is markup,
and no content can act as such. Only the strings that a template looks for (`</think>`) are left in sight.

Many templates rewrite history as a conversation grows: they drop the thoughts of earlier turns, or open the
next turn with a text that history does not show. The transcript of a turn is what the template renders then.
A turn stays as it was generated wherever the template shows it unchanged (blanks at its two ends aside);
where it does not, its text stands in the transcript as the template shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Protocol

from qfr.canonical import canonical
from qfr.engine.base import Past
from qfr.engine.llama.shape import ASSISTANT, MARK, OBSERVATION, TASK, Shape, Slot, examine, mark
from qfr.engine.llama.template import ChatTemplate
from qfr.errors import EngineError

_SURROGATE = re.compile("[\ud800-\udfff]")
# Conversations whose rendering is kept.
_KEPT = 512


@dataclass(frozen=True)
class Markup:
    """Text of the template."""

    text: str


@dataclass(frozen=True)
class Content:
    """Text of a message, which never acts as markup."""

    text: str


@dataclass(frozen=True)
class Body:
    """What a transcript shows of one message, and the markup before it."""

    before: str
    # Markup between the message before it and this one.
    message: int
    # 0 = system, 1 = task, then turns (even) and observations (odd) by turns.
    parts: tuple[Markup | Content, ...]
    # Empty for a turn that stands as it was generated.
    generated: bool
    # It is a turn that stands as it was generated.

    @property
    def turn(self) -> int | None:
        """Number of the turn, None for another message."""
        return self.message // 2 - 1 if self.message and self.message % 2 == 0 else None


@dataclass(frozen=True)
class Shown:
    """A transcript: what the template renders of an episode so far."""

    bodies: tuple[Body, ...]
    prompt: str
    # Markup behind the last message: it opens the next turn.


class Talk(Protocol):
    """An episode so far."""

    def grown(self, turn: str, told: str | Past) -> Talk:
        """The episode after a turn and what it is told."""
        ...

    def shown(self) -> Shown:
        """The transcript that opens the next turn."""
        ...


class Style(Protocol):
    """How conversations are laid out."""

    @property
    def shape(self) -> Shape:
        """What is known of the template."""
        ...

    def begun(self, system: str, task: str) -> Talk:
        """An episode that begins."""
        ...


def readable(text: str) -> str:
    """The text as it can be encoded: every lone surrogate becomes U+FFFD, all else (NUL too) is kept."""
    return _SURROGATE.sub("\ufffd", text)


@dataclass(frozen=True)
class Masked:
    """A content with marks in place of its text."""

    text: str
    pieces: tuple[str, ...]
    # What the marks stand for.


def masked(message: int, text: str, seen: Iterable[str], *, closed: bool) -> Masked:
    """Put marks in place of a text, all but the strings in `seen` and the blanks around what is left.

    `closed` puts a mark at both ends, so that a string in sight at an end is known as part of the content.
    """
    strings = [string for string in seen if string in text]
    if not strings:
        core = text if closed else text.strip()
        if not core:
            return Masked(mark(message), ("",))
        start = text.index(core)
        return Masked(text[:start] + mark(message) + text[start + len(core) :], (core,))
    pieces: list[str] = []
    out: list[str] = []
    for index, piece in enumerate(re.split("(" + "|".join(map(re.escape, strings)) + ")", text)):
        core = piece.strip()
        if index % 2 or not core:
            out.append(piece)
            continue
        start = piece.index(core)
        out += [piece[:start], mark(message, len(pieces)), piece[start + len(core) :]]
        pieces.append(core)
    if closed or not pieces:
        out.insert(0, mark(message, len(pieces)))
        pieces.append("")
    if closed:
        out.append(mark(message, len(pieces)))
        pieces.append("")
    return Masked("".join(out), tuple(pieces))


class Layout:
    """How one template lays conversations out.

    Raises
    ------
    ModelFileError
        The template fails, or loses a message of the conversation.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.shape = examine(template)
        self._render = lru_cache(_KEPT)(lambda texts: template.write(texts, self.shape.dialect))
        self._altered = lru_cache(_KEPT)(self._alter)

    def begun(self, system: str, task: str) -> Conversation:
        """An episode that begins."""
        return Conversation(self, [system, task])

    def render(self, texts: Sequence[str]) -> str:
        """The template's text for contents, ready for the next turn."""
        return self._render(tuple(texts))

    def described(self) -> str:
        """All that a transcript is put together from, as canonical JSON."""
        shape = self.shape
        return canonical(
            {
                **self.template.described(),
                "dialect": asdict(shape.dialect),
                "generation_prompt": shape.prompt,
                "before_answer": shape.header,
                "after_answer": shape.closing,
                "rewrites": shape.rewrites,
                "system_role": shape.system_role,
            }
        )

    def slot(self, message: int) -> Slot:
        """Treatment of a message by its number in the conversation."""
        return self.shape.slots[message if message <= TASK else ASSISTANT + message % 2]

    def content(self, message: int, text: str) -> Masked:
        """A system or user message with marks in place of its text."""
        slot = self.slot(message)
        text = self._altered(message if message <= TASK else OBSERVATION, text) if slot.alters else text
        if not any(string in text for string in slot.sought):
            return Masked(mark(message), (slot.clean(text),))
        return masked(message, text, slot.sought, closed=True)

    def _alter(self, kind: int, text: str) -> str:
        """The text as the template writes it between its neighbours."""
        texts = [mark(number) for number in range(4)]
        around = self.render(texts).split(texts[kind])
        whole = self.render([*texts[:kind], text, *texts[kind + 1 :]])
        head, tail = around[0], around[-1]
        if len(around) != 2 or not whole.startswith(head) or not whole.endswith(tail):
            raise EngineError(
                "its chat template changes other messages with the text of one", where=self.template.file
            )
        return whole[len(head) : len(whole) - len(tail)]


@dataclass
class Conversation:
    """An episode so far, as one template shows it."""

    layout: Layout
    texts: list[str]
    # System, task, turn, observation … as they were sent and generated.
    prompts: list[str] = field(default_factory=list)
    # Markup that opened each turn.

    def grown(self, turn: str, told: str | Past) -> Conversation:
        """The episode after a turn and what it is told."""
        if isinstance(told, Past):
            raise EngineError("a native turn in an episode of the text protocol")
        return Conversation(self.layout, [*self.texts, turn, readable(told)], list(self.prompts))

    def shown(self) -> Shown:
        """The transcript that opens the next turn."""
        contents, heads = self._masks()
        kept: set[int] = set()
        text = self._rendered(contents)
        for message in range(ASSISTANT, len(contents), 2):
            before = _before(text, message, _core(contents[message]))
            if before is not None and self._unchanged(message, before, heads[message], contents[message]):
                kept.add(message)
        final = [
            Masked(mark(number), content.pieces) if number in kept else content
            for number, content in enumerate(contents)
        ]
        shown = _parsed(self._rendered(final), final, kept)
        self._require_all(shown, contents)
        self.prompts = [*self.prompts[: (len(self.texts) - 2) // 2], shown.prompt]
        return shown

    def _rendered(self, contents: Sequence[Masked]) -> str:
        return self.layout.render([content.text for content in contents])

    def _masks(self) -> tuple[list[Masked], dict[int, str]]:
        """All messages with marks, and per turn what of its text the template writes itself."""
        contents, heads = [], {}
        for message, text in enumerate(self.texts):
            if message < ASSISTANT or message % 2:
                contents.append(self.layout.content(message, text))
                continue
            heads[message], text = self._answer(text)
            seen = self.layout.shape.slots[ASSISTANT].sought
            contents.append(masked(message, text, seen, closed=False))
        return contents, heads

    def _answer(self, text: str) -> tuple[str, str]:
        """What the template writes of a turn's beginning itself, and the text that it is given."""
        shape = self.layout.shape
        own = shape.header.removeprefix(shape.prompt) if shape.header.startswith(shape.prompt) else ""
        if own and text.startswith(own):
            return own, text[len(own) :]
        if own.strip() and own in text and any(string in text for string in shape.refused):
            # The template takes the answer alone: what stands before it is a thought.
            return "", text.rpartition(own)[2]
        return "", text

    def _unchanged(self, message: int, before: str, head: str, content: Masked) -> bool:
        """Whether history shows the turn as it was generated, behind the markup that opened it."""
        opened = self.prompts[message // 2 - 1] + head
        lead = content.text[: len(content.text) - len(content.text.lstrip())]
        if not before.startswith(opened) or not lead.endswith(before[len(opened) :]):
            return False
        # What the template was given is all of the turn.
        seen = self.layout.shape.slots[ASSISTANT].sought
        whole = masked(message, self.texts[message].removeprefix(head), seen, closed=False)
        return content.text == whole.text

    def _require_all(self, shown: Shown, contents: Sequence[Masked]) -> None:
        found = {body.message for body in shown.bodies}
        for message, content in enumerate(contents):
            turn = message >= ASSISTANT and message % 2 == 0
            if not turn and message not in found and any(content.pieces):
                raise EngineError(
                    f"its chat template loses message {message} of the conversation: "
                    f"{self.texts[message][:60]!r} is not in what it writes",
                    where=self.layout.template.file,
                    hint="model.template=FILE gives another template",
                )


def _core(content: Masked) -> str:
    return content.text.strip()


def _before(text: str, message: int, core: str) -> str | None:
    """Markup between the message before it and a message's text; None where the text is not shown whole."""
    if text.count(core) != 1:
        return None
    start = text.index(core)
    marks = [found for found in MARK.finditer(text, 0, start) if int(found[1]) != message]
    end = marks[-1].end() if marks else 0
    return text[end:start]


def _parsed(text: str, contents: Sequence[Masked], kept: set[int]) -> Shown:
    """Cut a rendering at its marks."""
    bodies: list[Body] = []
    rest = 0
    for found in MARK.finditer(text):
        message, piece = int(found[1]), int(found[2])
        if message >= len(contents) or piece >= len(contents[message].pieces):
            continue
        between, rest = text[rest : found.start()], found.end()
        content = Content(contents[message].pieces[piece])
        if bodies and bodies[-1].message == message:
            inner = Markup(between) if message and message % 2 == 0 else Content(between)
            bodies[-1] = Body(bodies[-1].before, message, (*bodies[-1].parts, inner, content), False)
        else:
            generated = message in kept
            bodies.append(Body(between, message, () if generated else (content,), generated))
    return Shown(tuple(bodies), text[rest:])
