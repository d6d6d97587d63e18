"""What a chat template does with conversations, found by rendering marks.

A mark stands for a content. Where the marks are, in which order, and what surrounds them tells how the
template wants to be asked, what it strips, alters or looks for, and whether it rewrites history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from qfr.engine.llama.template import DIALECTS, ChatTemplate, Dialect, TemplateRefused, sha256_of
from qfr.errors import ModelFileError
from qfr.thoughts import opened_thought

# Observations up to which the markup is compared when a template is examined.
_ROUNDS = 4
# Holds what templates are known to escape or strip; strings that they look for are tried one by one.
_AWKWARD = "{x}<a & b='c' \"d\">\n  [X] %% ${e} {{ f }}"
# A string of a template's that may be an end of a thought.
_TAG = re.compile(r"[<>\[\]|]")
MARK = re.compile(r"QFR(\d{4})P(\d{2})MARK")

SYSTEM, TASK, ASSISTANT, OBSERVATION = 0, 1, 2, 3


@dataclass(frozen=True)
class Slot:
    """Treatment of one kind of content."""

    strips_left: bool
    # The template strips blanks in front of the content.
    strips_right: bool
    # The template strips blanks behind it.
    alters: bool
    # It changes the text otherwise (escapes, JSON): each text is rendered.
    sought: tuple[str, ...]
    # Strings that matter to the template, longest first.

    def clean(self, content: str) -> str:
        """The content without the blanks that the template strips."""
        content = content.lstrip() if self.strips_left else content
        return content.rstrip() if self.strips_right else content


@dataclass(frozen=True)
class Shape:
    """What an examination of a template found."""

    dialect: Dialect
    slots: tuple[Slot, Slot, Slot, Slot]
    # Of the system message, the task, a turn and an observation.
    refused: tuple[str, ...]
    # Strings that the template does not accept in a turn.
    header: str
    # Markup between a user message and an assistant's text in history.
    prompt: str
    # Markup behind the last user message, which opens the next turn.
    closing: str
    # Markup between an assistant's text and the next user message.
    markup: str
    # All markup that was seen, pieces apart by NUL.
    rewrites: str
    # What changes in earlier text as the conversation grows; "" = nothing does.
    system_role: str
    # own = a turn of its own; folded = the template joins it to the first user message; refused = it takes no
    # system message, and the text heads the first user message.
    thinking: str
    # Opening of a thought in which the prompt leaves the model; "" = none.
    thinks: bool
    # It has a switch `enable_thinking`, and leaves it on.
    sha256: str
    # Digest of the template's text.

    @property
    def alters(self) -> str:
        """Which contents the template shows otherwise than they are."""
        kinds = ("system", "task", "turn", "observation")
        return ", ".join(kind for kind, slot in zip(kinds, self.slots, strict=True) if slot.alters)


def mark(message: int, piece: int = 0) -> str:
    """What stands for a piece of a message's text while the template is rendered."""
    return f"QFR{message:04d}P{piece:02d}MARK"


def examine(template: ChatTemplate) -> Shape:
    """What a template does with conversations of the text protocol.

    Raises
    ------
    ModelFileError
        It cannot be rendered, or loses a message: what, and in which conversation.
    """
    problem: ModelFileError | None = None
    for dialect in DIALECTS:
        try:
            renderings = [_rounds(template, dialect, rounds) for rounds in range(_ROUNDS)]
        except ModelFileError as error:
            problem = problem or error
            continue
        return _shape(template, dialect, renderings)
    assert problem is not None
    raise problem


def _rounds(template: ChatTemplate, dialect: Dialect, rounds: int) -> str:
    """A conversation of marks; every system and user message of it must be shown."""
    marks = [mark(number) for number in range(2 + 2 * rounds)]
    text = template.write(marks, dialect)
    for number, one in enumerate(marks):
        if one not in text:
            who = "system" if number == SYSTEM else "user" if number % 2 else "assistant"
            raise ModelFileError(
                f"its chat template loses messages: of a conversation of {len(marks)} messages it does not "
                f"show number {number + 1} ({who})",
                where=template.file,
                hint="model.template=FILE gives another template, model.template_options its variables",
            )
    return text


def _shape(template: ChatTemplate, dialect: Dialect, renderings: Sequence[str]) -> Shape:
    pieces = [MARK.split(text)[::3] for text in renderings]
    opening, prompt = pieces[0][1], pieces[0][-1]
    header, closing = _beside_turn(renderings[1])
    write = _Probe(template, dialect)
    sought = template.sought()
    refused = tuple(string for string in sought if write.refuses(string))
    slots = tuple(_slot(write, kind, [s for s in sought if s not in refused]) for kind in range(4))
    role = "refused"
    if dialect.system:
        role = "folded" if _folds(template, dialect, opening, closing) else "own"
    return Shape(
        dialect=dialect,
        slots=(slots[0], slots[1], slots[2], slots[3]),
        refused=refused,
        header=header,
        prompt=prompt,
        closing=closing,
        markup="\0".join(sorted({piece for text in pieces for piece in text})),
        rewrites=_rewrites(pieces, renderings),
        system_role=role,
        thinking=opened_thought(prompt),
        thinks=_thinks(template, dialect),
        sha256=sha256_of(template.text),
    )


def _thinks(template: ChatTemplate, dialect: Dialect) -> bool:
    """Whether a model would think, and `enable_thinking` false would keep it from that."""
    marks = [mark(SYSTEM), mark(TASK)]
    quiet = template.write(marks, dialect, {"enable_thinking": False})
    return quiet != template.write(marks, dialect)


def _beside_turn(text: str) -> tuple[str, str]:
    """Markup right before and right behind the turn of a conversation that has one."""
    start = text.index(mark(ASSISTANT))
    end = start + len(mark(ASSISTANT))
    earlier = [found.end() for found in MARK.finditer(text, 0, start)]
    later = MARK.search(text, end)
    return text[max(earlier, default=0) : start], text[end : len(text) if later is None else later.start()]


def _rewrites(pieces: Sequence[Sequence[str]], renderings: Sequence[str]) -> str:
    """What changes in earlier text as a conversation of plain messages grows."""
    for text in renderings:
        order = [int(found[1]) for found in MARK.finditer(text)]
        if order != sorted(set(order)):
            return "messages do not stand in their order, or stand twice"
    if pieces[1][2] != pieces[0][2]:
        return f"a turn opens with {pieces[0][2]!r}, history shows {pieces[1][2]!r}"
    for rounds, (short, long) in enumerate(pairwise(pieces)):
        if list(long[: len(short)]) != list(short):
            return f"earlier text changes with observation {rounds + 1}"
    return ""


# Messages of each kind in a conversation of two turns.
_PLACES = {SYSTEM: (0,), TASK: (1,), ASSISTANT: (2, 4), OBSERVATION: (3, 5)}


class _Probe:
    """A conversation of two turns in which one content is tried."""

    def __init__(self, template: ChatTemplate, dialect: Dialect) -> None:
        self._template, self._dialect = template, dialect
        self._marks = [mark(number) for number in range(6)]
        self._plain = template.write(self._marks, dialect)

    def write(self, place: int, content: str) -> str | None:
        """What the template writes; None where it refuses the content."""
        texts = [*self._marks[:place], content, *self._marks[place + 1 :]]
        try:
            return self._template.write(texts, self._dialect)
        except TemplateRefused:
            return None

    def shows(self, place: int, content: str) -> bool:
        """Whether the content stands where the mark would, and all else stays; so too where it is refused."""
        found = self.write(place, content)
        return found is None or found == self._plain.replace(mark(place), content)

    def refuses(self, string: str) -> bool:
        """Whether a turn with this string is refused."""
        return self.write(ASSISTANT, f"{mark(ASSISTANT)}{string}{mark(ASSISTANT, 1)}") is None


def _slot(probe: _Probe, kind: int, sought: Sequence[str]) -> Slot:
    places = _PLACES[kind]
    found = {string for string in sought if any(_matters(probe, place, string) for place in places)}
    for place in places if kind == ASSISTANT else ():
        tags = [string for string in sought if string not in found and _TAG.search(string)]
        found.update(*_pairs(probe, place, tags))
    padded = probe.write(kind, f" \n {mark(kind)} \n ") or ""
    before, _, after = padded.partition(mark(kind))
    matters = [string for string in sought if string in found]
    also = [
        string
        for string in sought
        if string not in matters and any(_beside(probe, place, string, matters) for place in places)
    ]
    awkward = f"{mark(kind)}{_AWKWARD}{mark(kind, 1)}"
    return Slot(
        strips_left=not before.endswith(" \n "),
        strips_right=not after.startswith(" \n "),
        alters=kind != ASSISTANT and not probe.shows(kind, awkward),
        sought=tuple(string for string in sought if string in matters or string in also),
    )


def _matters(probe: _Probe, place: int, string: str) -> bool:
    """Whether a content with the string is shown otherwise than it is, or changes anything else."""
    first, second = mark(place), mark(place, 1)
    tried = (f"{first}{string}{second}", f"{first}\n\n{string}\n\n{second}")
    return not all(probe.shows(place, content) for content in tried)


def _pairs(probe: _Probe, place: int, sought: Sequence[str]) -> list[tuple[str, str]]:
    """Strings that matter where one follows the other: the two ends of a thought."""
    first, second, third = (mark(place, piece) for piece in range(3))
    return [
        (one, other)
        for one, other in permutations(sought, 2)
        if not probe.shows(place, f"{first}\n{one}\n{second}\n{other}\n\n{third}")
    ]


def _beside(probe: _Probe, place: int, string: str, matters: Sequence[str]) -> bool:
    """Whether the string changes what becomes of one that matters."""
    first, second, third = (mark(place, piece) for piece in range(3))
    for other in matters:
        without = probe.write(place, f"{first}{second}{other}{third}")
        found = probe.write(place, f"{first}{string}{second}{other}{third}")
        if found is None or without is None:
            continue
        if found != without.replace(f"{first}{second}", f"{first}{string}{second}"):
            return True
    return False


def _folds(template: ChatTemplate, dialect: Dialect, before_task: str, closing: str) -> bool:
    """Whether the first user message lacks the header that user messages have.

    The header is what an observation's markup shares with the opening of a conversation that has no system
    message.
    """
    alone = Dialect(system=False, typed=dialect.typed, tool_list=dialect.tool_list)
    try:
        opening = template.write([mark(TASK)], alone)
    except ModelFileError:
        # It insists on a system message, so it has one of its own.
        return False
    opening = opening.partition(mark(TASK))[0]
    return not before_task.endswith(_common_end(opening, closing))


def _common_end(first: str, second: str) -> str:
    """The longest text that both end with."""
    size = 0
    while size < min(len(first), len(second)) and first[-1 - size] == second[-1 - size]:
        size += 1
    return first[len(first) - size :]
