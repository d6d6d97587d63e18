"""Counts the work of an engine against what a tree of segments needs at least.

The floors are counted from the calls alone, not from what the engine evaluates: the ratio of the two is a
check on the engine.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from qfr.engine.base import Counters

ROOT = b""


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    unequal = (place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    return next(unequal, min(len(first), len(second)))


class Tally:
    """Work since the last reset.

    A node of the tree is a segment or a turn's evaluated tokens, named by the digest of the path to it.
    """

    def __init__(self) -> None:
        self.reset(())

    def reset(self, live: Iterable[bytes]) -> None:
        """Start anew. `live` are the nodes still in the cache: they will not have to be evaluated."""
        self._seen = set(live)
        # Per live node: the token sequences tried below it, sorted, so that the nearest is a neighbour.
        self._children: dict[bytes, list[tuple[int, ...]]] = {}
        self._evaluated = self._generated = self._tree = self._trie = self._fresh = self._rewritten = 0
        self._prefill_seconds = self._decode_seconds = 0.0
        self._prefill_tokens = self._decode_tokens = 0

    def visit(
        self, parent: bytes, tokens: Sequence[int], *, kind: str = "segment", history: bool = False
    ) -> bytes:
        """An episode passes through a node; its name. `history` where it shows earlier messages anew."""
        key = hashlib.blake2b(parent + kind.encode() + array("q", tokens).tobytes(), digest_size=16).digest()
        self._fresh += len(tokens)
        if key not in self._seen:
            self._seen.add(key)
            self._tree += len(tokens)
            self._rewritten += len(tokens) if history else 0
            siblings = self._children.setdefault(parent, [])
            own = tuple(tokens)
            place = bisect_left(siblings, own)
            near = siblings[max(0, place - 1) : place + 1]
            self._trie += len(own) - max((_shared(own, other) for other in near), default=0)
            insort(siblings, own)
        return key

    def leave(self, key: bytes) -> None:
        """A node is no longer in the cache: what hung below it is not needed for the trie any more."""
        self._children.pop(key, None)

    def evaluated(self, tokens: int, seconds: float) -> None:
        """Tokens were evaluated in one call; a single one counts as decoding."""
        self._evaluated += tokens
        if tokens > 1:
            self._prefill_tokens += tokens
            self._prefill_seconds += seconds
        else:
            self._decode_tokens += tokens
            self._decode_seconds += seconds

    def stepped(self, tokens: int, seconds: float) -> None:
        """One token each of several streams was evaluated in one batch."""
        self._evaluated += tokens
        self._decode_tokens += tokens
        self._decode_seconds += seconds

    def chosen(self, tokens: int = 1) -> None:
        """Tokens were chosen by the model."""
        self._generated += tokens

    def counters(self) -> Counters:
        """The sums."""
        return Counters(
            evaluated=self._evaluated,
            generated=self._generated,
            tree=self._tree,
            trie=self._trie,
            fresh=self._fresh,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=self._decode_seconds,
            prefill_tokens=self._prefill_tokens,
            decode_tokens=self._decode_tokens,
            rewritten=self._rewritten,
        )
