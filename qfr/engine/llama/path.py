"""The path of an episode: the segments and turns of its transcript, which follow from the episode alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from qfr.engine.base import Past
from qfr.engine.llama.greedy import Logits, Writing
from qfr.engine.llama.tokens import Kept, Tokenizer
from qfr.engine.tree import ROOT, Tally
from qfr.errors import EngineError
from qfr.records import Generation, StopReason


@dataclass(frozen=True)
class Asked:
    """What was asked of a turn: a turn in the cache answers the same question again."""

    max_tokens: int
    # Tokens at most.
    forced: str | None
    # Text that is written by force.
    trial: int = 0
    # Whose noise draws the tokens; 0 where decoding is greedy.


@dataclass(frozen=True, eq=False)
class Read:
    """Tokens that are to be evaluated together."""

    key: bytes
    # Digest of the path to it.
    tokens: tuple[int, ...]


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


def position(nodes: Iterable[Read | Node]) -> int:
    """Tokens of some nodes in the cache."""
    return sum(len(node.tokens) for node in nodes)


def generation(
    writing: Writing,
    tokenizer: Tokenizer,
    prompt_tokens: int,
    *,
    rewritten: int,
    flagged: bool,
    native: bool,
) -> Generation:
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
        rewritten=rewritten,
        thought_tokens=tokenizer.thought_tokens(writing.chosen) if native else 0,
    )


def turn_node(key: bytes, asked: Asked, made: Generation) -> Written:
    """The node of a turn."""
    ended = made.stop is StopReason.end_of_generation
    return Written(key, asked, made, made.token_ids[:-1], None if ended else made.token_ids[-1])


def out_of_context(prompt_tokens: int, *, flagged: bool) -> Generation:
    """The empty turn after a message that does not fit into the context."""
    empty = hashlib.sha256().hexdigest()
    return Generation("", (), StopReason.context, prompt_tokens, (), empty, flagged)


@dataclass(frozen=True)
class Extension:
    """How an episode's path changes with a message."""

    common: int
    # Nodes of the path that stay.
    segments: tuple[tuple[int, ...], ...]
    # Tokens to be read behind them.
    history: int
    # How many of these segments show earlier messages anew.
    prompt_tokens: int
    # Tokens of the newest message.
    rewritten: int
    # Tokens of the segments that show earlier messages anew.
    size: int
    # Tokens of the whole path then.


class EpisodePath:
    """The path of one episode.

    With each message the transcript is what the template shows then. The longest run of whole segments and
    turns that it shares with the path so far stays; the rest is read anew, segment by segment.
    """

    def __init__(self, tokenizer: Tokenizer, system: str, task: str, *, native: bool = False) -> None:
        self.tokenizer, self.native = tokenizer, native
        self._now = self._next = tokenizer.conversation(system, task)
        self.nodes: list[Read | Written] = []
        self.turns: list[Written] = []

    def opening(self) -> Extension:
        """The messages that open the episode."""
        return self._extension()

    def message(self, told: str | Past) -> Extension:
        """A message after the last turn."""
        text = self.tokenizer.said(self.turns[-1].generation.text) if self.turns else ""
        self._next = self._now.grown(text, told)
        return self._extension()

    def take(self, extension: Extension, tally: Tally) -> list[Read]:
        """Go on with a message; the nodes that are new."""
        self._now = self._next
        del self.nodes[extension.common :]
        new = []
        for place, tokens in enumerate(extension.segments):
            key = tally.visit(self.key, tokens, history=place < extension.history)
            new.append(Read(key, tokens))
            self.nodes.append(new[-1])
        return new

    def add(self, turn: Written) -> None:
        """Go on with a turn."""
        self.nodes.append(turn)
        self.turns.append(turn)

    @property
    def key(self) -> bytes:
        """Digest of the path."""
        return self.nodes[-1].key if self.nodes else ROOT

    def _extension(self) -> Extension:
        common, history, new = 0, 0, list[tuple[int, ...]]()

        def read(tokens: tuple[int, ...]) -> bool:
            """Step over a segment of the path, or read it anew: whether it is new."""
            nonlocal common
            node = self.nodes[common] if not new and common < len(self.nodes) else None
            if isinstance(node, Read) and node.tokens == tokens:
                common += 1
                return False
            new.append(tokens)
            return True

        transcript = self.tokenizer.segments(self._next.shown())
        newest: list[tuple[int, ...]] = []
        for place, segment in enumerate(transcript.segments):
            if isinstance(segment, Kept):
                if segment.turn >= len(self.turns):
                    continue
                turn = self.turns[segment.turn]
                last = () if turn.pending is None else (turn.pending,)
                if new or common == len(self.nodes) or self.nodes[common] is not turn:
                    history += read((*turn.tokens, *last))
                    continue
                common += 1
                if last:
                    read(last)
            elif place < transcript.newest:
                history += read(segment)
            else:
                newest.append(segment)
                read(segment)
        again = new[:history]
        return Extension(
            common=common,
            segments=tuple(new),
            history=history,
            prompt_tokens=sum(map(len, newest)),
            rewritten=sum(map(len, again)),
            size=position(self.nodes[:common]) + sum(map(len, new)),
        )
