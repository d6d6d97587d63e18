"""Messages as token ids, which of them are learned and how much each counts, and padded batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from qfr.reference.demonstration import Message
from qfr.reference.template import ASSISTANT, END, PAD, USER, Encoder


class Kind(IntEnum):
    """What a learned token is."""

    syntax = 0
    tool = 1
    copied = 2
    answer = 3
    choice = 4
    # What the prompt decides: the first token and the tool name's first token after an error.


LOSS_WEIGHTS = (0.3, 1.0, 2.0, 3.0, 10.0)
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

    prefix: NDArray[np.int64]
    bodies: NDArray[np.int64]
    rows: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.float32]
    kinds: NDArray[np.int64]


_SPANS = re.compile(r'"tool": "(?P<tool>[^"]*)", "arguments": \{"(?P<key>[^"]*)": (?P<value>.*)\}\}$')


def token_kinds(text: str, starts: tuple[int, ...]) -> list[int]:
    """Kind of each token of an assistant turn, by where it starts."""
    kinds = [int(Kind.syntax)] * len(starts)
    found = _SPANS.search(text)
    if found is None:
        return kinds
    value = {"answer": Kind.answer, "reason": Kind.syntax}.get(found["key"], Kind.copied)
    for i, start in enumerate(starts):
        if found.start("tool") <= start < found.end("tool"):
            kinds[i] = int(Kind.tool)
        elif found.start("value") <= start < found.end("value"):
            kinds[i] = int(value)
    return kinds


def mark_choices(kinds: list[int]) -> list[int]:
    """The first token of a turn and the first of its tool name become choices."""
    marked = [int(Kind.choice), *kinds[1:]]
    if int(Kind.tool) in marked:
        marked[marked.index(int(Kind.tool))] = int(Kind.choice)
    return marked


def encode_body(vocabulary: Encoder, messages: tuple[Message, ...], learned: int) -> Body:
    """Encode messages by the chat template; the last `learned` assistant turns are learned (-1 = all)."""
    ids: list[int] = []
    rows: list[int] = []
    kinds: list[int] = []
    turns = sum(message.assistant for message in messages)
    for before, message in zip((None, *messages), messages, strict=False):
        piece = vocabulary.encode(message.text)
        ids.append(ASSISTANT if message.assistant else USER)
        if message.assistant:
            if learned < 0 or turns <= learned:
                rows.extend(range(len(ids) - 1, len(ids) + len(piece.ids)))
                own = token_kinds(message.text, piece.starts)
                failed = before is not None and '"ok": false' in before.text
                kinds.extend([*(mark_choices(own) if failed else own), int(Kind.syntax)])
            turns -= 1
        ids.extend(piece.ids)
        ids.append(END)
    return Body(tuple(ids), tuple(rows), tuple(kinds))


def assemble(prefix: tuple[int, ...], bodies: list[Body]) -> Arrays:
    """Pad bodies to one length and flatten what is learned."""
    length = max(len(body.ids) for body in bodies)
    ids = np.full((len(bodies), length), PAD, dtype=np.int64)
    rows: list[int] = []
    targets: list[int] = []
    kinds: list[int] = []
    for i, body in enumerate(bodies):
        ids[i, : len(body.ids)] = body.ids
        rows.extend(i * length + row for row in body.rows)
        targets.extend(body.ids[row + 1] for row in body.rows)
        kinds.extend(body.kinds)
    weights = np.array(LOSS_WEIGHTS, dtype=np.float32)[kinds]
    return Arrays(
        np.array(prefix, dtype=np.int64),
        ids,
        np.array(rows, dtype=np.int64),
        np.array(targets, dtype=np.int64),
        weights,
        np.array(kinds, dtype=np.int64),
    )


def cut(bodies: list[Body], tokens: int) -> list[list[Body]]:
    """Group bodies of similar length into few, evenly filled groups of at most `tokens` padded tokens each.

    A body that is longer than `tokens` stands alone.
    """
    ordered = sorted(bodies, key=lambda body: len(body.ids))
    for number in range(1, len(ordered) + 1):
        groups = _even(ordered, number)
        if all(len(group) == 1 or len(group) * len(group[-1].ids) <= tokens for group in groups):
            return groups
    return [[body] for body in ordered]


def _even(ordered: list[Body], number: int) -> list[list[Body]]:
    """Split into at most `number` runs with about the same number of tokens."""
    share = sum(len(body.ids) for body in ordered) / number
    groups: list[list[Body]] = []
    done = 0
    for body in ordered:
        if not groups or done >= share * len(groups):
            groups.append([])
        groups[-1].append(body)
        done += len(body.ids)
    return groups
