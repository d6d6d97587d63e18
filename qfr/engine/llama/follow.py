"""Teacher forcing: an engine that reads the turns of another one's episodes and tells its own choices there.

Messages are evaluated as they are when an episode is played. The tokens of a turn are evaluated in one batch,
which is cheaper and moves the logits a little (`qfr.audit.looking` measures by how much), or one by one.
"""

from __future__ import annotations

import time
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from qfr.config import EngineConfig
from qfr.engine.base import Followed
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.path import Asked, EpisodePath, Segment, position, turn_node
from qfr.engine.llama.sequences import Row, Sequences
from qfr.engine.worker import Follow
from qfr.errors import EngineError

# Nothing is asked of a turn that was written by another engine.
_NOTHING = Asked(0, None)


class FollowingEngine(LlamaEngine):
    """A loaded GGUF that reads written turns. Parameters and errors as of `LlamaEngine`."""

    _outputs = 64

    def __init__(
        self, model: ModelFile, config: EngineConfig, n_ctx: int, log: LlamaLog | None = None
    ) -> None:
        super().__init__(model, config, n_ctx, log)
        self._n_batch = min(config.n_batch, self._outputs)
        self._batches = Sequences(self._model, config.n_batch)
        self._followed: list[tuple[bytes, Follow, Followed]] = []
        # Turns of the episode read last: another that repeats them is answered from here.

    def follow(self, ask: Follow) -> Followed:
        """Read a turn behind the path of the episode so far."""
        path = self._extended(ask)
        tokenizer = path.tokenizer
        if tokenizer.text(ask.written.token_ids) != ask.written.text:
            raise EngineError(
                "the reference's turns are spelled by other tokens here",
                where=str(self._model.path),
                hint="look at files of the same model",
            )
        number = len(path.turns)
        key = self._tally.visit(path.key, ask.written.token_ids[:-1], kind="turn")
        turn = turn_node(key, _NOTHING, ask.written)
        known = self._followed[number] if number < len(self._followed) else None
        if known is not None and known[0] == key and (known[1].apart, known[1].rows) == (ask.apart, ask.rows):
            path.add(turn)
            old = known[2]
            return Followed(old.winners, old.margins, old.leads, old.ends, known=True, rows=old.rows)
        del self._followed[number:]
        self._catch_up(path)
        logits = self._read_turn(turn.tokens, apart=ask.apart)
        self._held.append(turn)
        path.add(turn)
        ends = tuple(accumulate(len(self._model.piece(token)) for token in ask.written.token_ids))
        found = _choices(logits, ask.written.token_ids, ends, rows=ask.rows)
        self._followed.append((key, ask, found))
        return found

    def _extended(self, ask: Follow) -> EpisodePath:
        if ask.opening is not None:
            system, task, native = ask.opening
            tokenizer = self._tokenizer if native is None else self._native.of(native)
            path = self._path = EpisodePath(tokenizer, system, task, native=native is not None)
            extension = path.opening()
        elif self._path is None:
            raise EngineError("a turn came before an episode was opened")
        else:
            path = self._path
            extension = path.message(ask.told)
        if extension.size + len(ask.written.token_ids) > self._model.n_ctx + 1:
            raise EngineError(f"a context of {self._model.n_ctx} tokens is too short for this episode")
        path.take(extension, self._tally)
        return path

    def _read_turn(self, tokens: tuple[int, ...], *, apart: bool) -> NDArray[np.float32]:
        """Logits that each token of a turn was chosen from; shape (n_tokens, n_vocab)."""
        segment = self._held[-1]
        if not isinstance(segment, Segment):
            raise EngineError("a turn has to follow a message")
        rows = [segment.logits]
        if apart:
            rows += [self._evaluate((token,)).copy() for token in tokens]
            return np.stack(rows)
        start, place = time.perf_counter(), position(self._held)
        for begin in range(0, len(tokens), self._n_batch):
            chunk = tokens[begin : begin + self._n_batch]
            batch = [Row(0, token, place + begin + at) for at, token in enumerate(chunk)]
            rows += [one.copy() for one in self._batches.step(batch)]
        self._tally.evaluated(len(tokens), time.perf_counter() - start)
        return np.stack(rows)


def _choices(
    logits: NDArray[np.float32], written: tuple[int, ...], ends: tuple[int, ...], *, rows: bool
) -> Followed:
    at = np.arange(len(written))
    log_probs = log_softmax(logits, axis=1).astype(np.float32) if rows else None
    winners = logits.argmax(axis=1)
    chosen, top = logits[at, written], logits[at, winners]
    if not np.isfinite(logits).all():
        raise EngineError("the model's logits are not finite", hint="the file is damaged")
    logits[at, winners] = -np.inf
    second = logits.max(axis=1)
    leads = np.where(winners == written, top - second, chosen - top)
    return Followed(
        winners=tuple(map(int, winners)),
        margins=tuple(map(float, top - second)),
        leads=tuple(map(float, leads)),
        ends=ends,
        known=False,
        rows=log_probs,
    )
