"""One turn, token by token: which comes next, how clearly the likeliest one leads, when the turn ends."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from qfr.engine.sampling import Draw
from qfr.errors import EngineError
from qfr.records import StopReason

Logits = NDArray[np.float32]
# Digits kept of a margin, in logits.
_MARGIN_DIGITS = 6


def best(logits: Logits, where: str) -> tuple[int, float]:
    """The token with the largest logit (the lowest id among equals) and its lead over the runner-up.

    Parameters
    ----------
    logits : ndarray of float32, shape (n_vocab,)
        Writable: one entry is changed for a moment and put back.
    where : str
        The model file, for errors.

    Raises
    ------
    EngineError
        A logit is not finite.
    """
    winner = int(logits.argmax())
    top = float(logits[winner])
    if not (math.isfinite(top) and math.isfinite(float(logits.min()))):
        raise EngineError(
            "the model's logits are not finite",
            where=where,
            hint="the file is damaged, or this build or cache type does not suit it",
        )
    # The runner-up is the maximum without the winner, which steps aside for that: no copy, no sorting.
    logits[winner] = -math.inf
    second = float(logits.max())
    logits[winner] = top
    return winner, round(top - second, _MARGIN_DIGITS)


class Writing:
    """A turn that is being written, token by token.

    Parameters
    ----------
    max_tokens : int
        Tokens of the turn at most.
    room : int
        Tokens that can still be evaluated: the turn may be one longer, its last token is not evaluated.
    script : tuple of int or None
        Tokens that are written by force; margins and digests are those of the model all the same.
    is_end
        Whether a token ends a turn.
    where : str
        The model file, for errors.
    draw : Draw or None
        Draws the tokens; None = the most likely one is taken.
    """

    def __init__(
        self,
        max_tokens: int,
        room: int,
        script: tuple[int, ...] | None,
        is_end: Callable[[int], bool],
        where: str,
        draw: Draw | None = None,
    ) -> None:
        self._draw = draw
        self._max_tokens, self._room, self._script = max_tokens, room, script
        self._is_end, self._where = is_end, where
        self._digest = hashlib.sha256()
        self.chosen: list[int] = []
        self.margins: list[float] = []
        self.stop: StopReason | None = None
        # Why the turn ended; None while it goes on.

    def take(self, logits: Logits) -> int:
        """Choose the next token from the logits after the last one; the token.

        Raises
        ------
        EngineError
            A logit is not finite.
        """
        winner, margin = best(logits, self._where)
        self._digest.update(logits.data)
        self.margins.append(margin)
        token = winner
        if self._script is not None:
            token = self._script[len(self.chosen)]
        elif self._draw is not None:
            token = self._draw.choose(logits, len(self.chosen))
        self.chosen.append(token)
        if self._is_end(token):
            self.stop = StopReason.end_of_generation
        elif len(self.chosen) == self._max_tokens:
            self.stop = StopReason.max_tokens
        elif len(self.chosen) > self._room:
            self.stop = StopReason.context
        return token

    @property
    def logits_sha256(self) -> str:
        """Over the logit vectors so far, in order."""
        return self._digest.hexdigest()
