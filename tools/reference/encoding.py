"""Messages as token ids, which of them are learned and how much each counts, and padded batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tools.reference.demonstration import Message
from tools.reference.template import ASSISTANT, END, PAD, USER, Encoder


class Kind(IntEnum):
    """What a learned token is."""

    syntax = 0
    tool = 1
    copied = 2
    answer = 3
    choice = 4
    # What a policy decides: the first token and the tool name where a demonstration had a choice.


LOSS_WEIGHTS = (0.3, 1.0, 2.0, 4.0, 8.0)
# By kind: syntax is learned at once, digits are not; choices are rare.


@dataclass(frozen=True)
class Body:
    """One encoded conversation after the system prompt."""

    ids: tuple[int, ...]
    rows: tuple[int, ...]
    # Positions whose next token is learned.
    kinds: tuple[int, ...]
    # Kind of each learned token.


@dataclass(frozen=True)
class Arrays:
    """A batch before it becomes tensors; see model.Batch."""

    prefixes: NDArray[np.int64]
    bodies: NDArray[np.int64]
    rows: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int64]


_SPANS = re.compile(
    r'"(?:tool|name)": "(?P<tool>[^"]*)", "arguments": \{(?:"(?P<key>[^"]*)": (?P<value>.*))?\}\}'
    r"(?:\n</tool_call>)?$"
)


def token_kinds(text: str, starts: tuple[int, ...]) -> list[int]:
    """Kind of each token of an assistant turn, by where it starts."""
    kinds = [int(Kind.syntax)] * len(starts)
    found = _SPANS.search(text)
    if found is None:
        return kinds
    value = {"answer": Kind.answer, "reason": Kind.syntax}.get(found["key"] or "", Kind.copied)
    for i, start in enumerate(starts):
        if found.start("tool") <= start < found.end("tool"):
            kinds[i] = int(Kind.tool)
        elif found.start("value") <= start < found.end("value"):
            kinds[i] = int(value)
    return kinds


def mark_choices(kinds: list[int]) -> list[int]:
    """The first token of a turn and its tool name become choices."""
    return [int(Kind.choice) if i == 0 or kind == Kind.tool else kind for i, kind in enumerate(kinds)]


def encode_body(vocabulary: Encoder, messages: tuple[Message, ...], learned: int) -> Body:
    """Encode messages by the chat template; the last `learned` assistant turns are learned (-1 = all)."""
    ids: list[int] = []
    rows: list[int] = []
    kinds: list[int] = []
    turns = sum(message.assistant for message in messages)
    for message in messages:
        piece = vocabulary.encode(message.text)
        ids.append(ASSISTANT if message.assistant else USER)
        if message.assistant:
            if learned < 0 or turns <= learned:
                rows.extend(range(len(ids) - 1, len(ids) + len(piece.ids)))
                own = token_kinds(message.text, piece.starts)
                kinds.extend([*(mark_choices(own) if message.choice else own), int(Kind.syntax)])
            turns -= 1
        ids.extend(piece.ids)
        ids.append(END)
    return Body(tuple(ids), tuple(rows), tuple(kinds))


def assemble(prefixes: list[tuple[int, ...]], bodies: list[list[Body]]) -> Arrays:
    """Pad and flatten; `bodies` has one list per prefix, all of one length."""
    longest = max(map(len, prefixes))
    before = np.full((len(prefixes), longest), PAD, dtype=np.int64)
    for i, prefix in enumerate(prefixes):
        before[i, longest - len(prefix) :] = prefix
    flat = [body for group in bodies for body in group]
    length = max(len(body.ids) for body in flat)
    ids = np.full((len(flat), length), PAD, dtype=np.int64)
    rows: list[int] = []
    targets: list[int] = []
    kinds: list[int] = []
    for i, body in enumerate(flat):
        ids[i, : len(body.ids)] = body.ids
        rows.extend(i * length + row for row in body.rows)
        targets.extend(body.ids[row + 1] for row in body.rows)
        kinds.extend(body.kinds)
    weights = np.array(LOSS_WEIGHTS, dtype=np.float32)[kinds]
    return Arrays(
        before,
        ids,
        np.array(rows, dtype=np.int64),
        np.array(targets, dtype=np.int64),
        weights,
        np.array(kinds, dtype=np.int64),
    )


def cut(groups: list[list[Body]], tokens: int) -> list[list[list[Body]]]:
    """Split equally many bodies per prompt into batches of at most `tokens` padded tokens.

    Bodies of similar length stand together; each batch holds equally many bodies of every prompt. A row of
    bodies (one per prompt) that is longer than `tokens` stands alone.
    """
    rows = list(zip(*(sorted(group, key=lambda body: len(body.ids)) for group in groups), strict=True))
    parts: list[list[tuple[Body, ...]]] = []
    for row in sorted(rows, key=_longest, reverse=True):
        if not parts or (len(parts[-1]) + 1) * len(row) * _longest(parts[-1][0]) > tokens:
            parts.append([])
        parts[-1].append(row)
    return [[list(group) for group in zip(*part, strict=True)] for part in parts]


def _longest(row: tuple[Body, ...]) -> int:
    return max(len(body.ids) for body in row)
