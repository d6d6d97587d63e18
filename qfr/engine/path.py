"""The nodes of a transcript in the cache: segments that were evaluated together, and turns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from qfr.engine.greedy import Logits, Writing
from qfr.engine.tokens import Tokenizer
from qfr.errors import EngineError
from qfr.records import Generation, StopReason


@dataclass(frozen=True)
class Asked:
    """What was asked of a turn: a turn in the cache answers the same question again."""

    max_tokens: int
    # Tokens at most.
    forced: str | None
    # Text that is written by force.


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens that were evaluated together."""

    key: bytes
    # Digest of the path to it.
    tokens: tuple[int, ...]
    logits: Logits
    # After the last token, shape (n_vocab,): a turn can be generated anew without evaluating the segment.


@dataclass(frozen=True, eq=False)
class Written:
    """A turn that was generated, or written by force."""

    key: bytes
    # Digest of the path to it.
    asked: Asked
    generation: Generation
    tokens: tuple[int, ...]
    # Those of its tokens that were evaluated: all but the last.
    pending: int | None
    # The last token where it is no end token: it still has to be evaluated if the transcript goes on.


Node = Segment | Written


def position(nodes: Iterable[Node]) -> int:
    """Tokens of some nodes in the cache."""
    return sum(len(node.tokens) for node in nodes)


def generation(writing: Writing, tokenizer: Tokenizer, prompt_tokens: int, *, flagged: bool) -> Generation:
    """What is recorded of a turn that has ended."""
    if writing.stop is None:
        raise EngineError("the turn is still being written")
    text = tokenizer.text(writing.chosen)
    return Generation(
        text=text,
        token_ids=tuple(writing.chosen),
        stop=writing.stop,
        prompt_tokens=prompt_tokens,
        margins=tuple(writing.margins),
        logits_sha256=writing.logits_sha256,
        control_text=flagged or tokenizer.spells_control(text),
    )


def turn_node(key: bytes, asked: Asked, made: Generation) -> Written:
    """The node of a turn."""
    ended = made.stop is StopReason.end_of_generation
    return Written(key, asked, made, made.token_ids[:-1], None if ended else made.token_ids[-1])


def out_of_context(prompt_tokens: int, *, flagged: bool) -> Generation:
    """The empty turn after a message that does not fit into the context."""
    empty = hashlib.sha256().hexdigest()
    return Generation("", (), StopReason.context, prompt_tokens, (), empty, flagged)
