"""One of several streams: a transcript, the turn that is being written in it, and what it can fork from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qfr.engine.llama.greedy import Writing
from qfr.engine.llama.path import Asked, EpisodePath, Node
from qfr.engine.llama.sequences import Saved


@dataclass(frozen=True)
class Kept:
    """A transcript that later episodes can fork from."""

    path: tuple[Node, ...]
    saved: Saved
    # Its part of the cache.


@dataclass
class Stream:
    """One transcript and the turn that is being written in it."""

    number: int
    path: list[Node] = field(default_factory=list)
    # What its part of the cache holds.
    follows: Kept | None = None
    # The kept transcript that its episode has repeated so far.
    passed: int = 0
    # Nodes of `follows` that were passed.
    writing: Writing | None = None
    asked: Asked | None = None
    prompt_tokens: int = 0
    rewritten: int = 0
    flagged: bool = False
    episode: EpisodePath | None = None
    # The episode that it plays.
    full: bool = False
    # The context is exhausted.
    task: str = ""
    trial: int = 0
    # Of its episode: tokens are drawn by them.

    def nodes(self) -> Sequence[Node]:
        """The transcript so far."""
        return self.path if self.follows is None else self.follows.path[: self.passed]
