"""Thoughts in a model's text: where they begin and end.

A thought is what a model writes for itself before it answers. The pairs below are those of published chat
templates; nothing here depends on a model's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Opening and end of a thought.
PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel>analysis", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
    ("<|channel|>analysis", "<|end|>"),
    ("◁think▷", "◁/think▷"),
)

# What stands around an answer where it is not the only channel.
_FRAMES = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|(?:START|END)_(?:RESPONSE|TEXT)\|>"
)
_OPENINGS = re.compile("|".join(re.escape(opening) for opening, _ in PAIRS))
_ENDS = re.compile("|".join(sorted({re.escape(end) for _, end in PAIRS if end != "<|end|>"})))
_END_OF = dict(PAIRS)


@dataclass(frozen=True)
class Spoken:
    """A turn's text apart from its thoughts."""

    said: tuple[str, ...]
    # The text without its thoughts and without marks of an answer's channel: what stands before, between and
    # behind them.
    thought: str
    # The thoughts, joined.
    unclosed: bool
    # The text ends inside a thought.


def opened_thought(prompt: str) -> str:
    """The opening of a thought in which the markup that opens a turn leaves the model; "" = none."""
    openings = list(_OPENINGS.finditer(prompt))
    if not openings or _END_OF[openings[-1][0]] in prompt[openings[-1].end() :]:
        return ""
    return openings[-1][0]


def holds_mark(text: str) -> bool:
    """Whether a text holds a mark of a thought or of a channel."""
    return any(pattern.search(text) for pattern in (_OPENINGS, _ENDS, _FRAMES))


def apart(text: str, *, inside: bool = False) -> Spoken:
    """Cut the thoughts out of a turn's text.

    Parameters
    ----------
    text : str
        As generated.
    inside : bool
        The markup before the turn has opened a thought.
    """
    said, thoughts, position = [], [], 0
    opening = _OPENINGS.search(text)
    end = _ENDS.search(text)
    if inside or (end is not None and (opening is None or end.start() < opening.start())):
        # The thought began before the text does.
        if end is None:
            return Spoken((), text, unclosed=True)
        thoughts.append(text[: end.start()])
        position = end.end()
    while (opening := _OPENINGS.search(text, position)) is not None:
        said.append(text[position : opening.start()])
        close = text.find(_END_OF[opening[0]], opening.end())
        if close < 0:
            thoughts.append(text[opening.end() :])
            return Spoken(_unframed(said), "".join(thoughts), unclosed=True)
        thoughts.append(text[opening.end() : close])
        position = close + len(_END_OF[opening[0]])
    return Spoken(_unframed([*said, text[position:]]), "".join(thoughts), unclosed=False)


def _unframed(pieces: list[str]) -> tuple[str, ...]:
    return tuple(part for piece in pieces for part in _FRAMES.split(piece))


def thought_span(text: str, *, inside: bool = False) -> tuple[int, int] | None:
    """Where a turn's thoughts begin and end, marks included; None where it has none."""
    opening, end = _OPENINGS.search(text), _ENDS.search(text)
    if inside or (end is not None and (opening is None or end.start() < opening.start())):
        if end is None:
            return 0, len(text)
        begin, position = 0, end.end()
    elif opening is not None:
        begin, position = opening.start(), opening.start()
    else:
        return None
    while (opening := _OPENINGS.search(text, position)) is not None:
        place = text.find(_END_OF[opening[0]], opening.end())
        if place < 0:
            return begin, len(text)
        position = place + len(_END_OF[opening[0]])
    return begin, position
