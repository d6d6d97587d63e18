"""The greedy engine on llama.cpp: a cursor on one append-only token transcript.

The same tokens give other logits when they are evaluated in other batches, so tokens are evaluated in
segments that depend on the episode alone: the system message, the task message, each generated token, each
observation. A generated end token is logged, never evaluated; the template's closing markup heads the next
segment, whatever ended the turn. A last token that is no end token is evaluated alone once the transcript
goes on.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qfr.config import EngineConfig
from qfr.engine import provenance
from qfr.engine.base import Counters, EngineInfo
from qfr.engine.gguf import ModelFile
from qfr.engine.llama_api import LlamaLog
from qfr.engine.llama_model import LoadedModel
from qfr.engine.template import ChatTemplate
from qfr.engine.tokens import Tokenizer
from qfr.engine.tree import ROOT, Tally
from qfr.errors import EngineError, ModelFileError
from qfr.records import Generation, StopReason

_Logits = NDArray[np.float32]
# Digits kept of a margin, in logits.
_MARGIN_DIGITS = 6


@dataclass(frozen=True)
class _Segment:
    """Tokens that were evaluated together."""

    key: bytes
    tokens: tuple[int, ...]
    logits: _Logits
    # After the last token, shape (n_vocab,): a turn can be generated anew without evaluating the segment.


@dataclass(frozen=True)
class _Turn:
    """A turn that was generated, or written by force."""

    key: bytes
    max_tokens: int
    forced: str | None
    generation: Generation
    tokens: tuple[int, ...]
    # Those of its tokens that were evaluated, one by one: all but the last.
    pending: int | None
    # The last token where it is no end token: it still has to be evaluated if the transcript goes on.


class LlamaEngine:
    """A loaded GGUF that answers greedily. Implements `qfr.engine.base.Engine`.

    Parameters
    ----------
    model : ModelFile
        Resolved and verified file.
    config : EngineConfig
        How tokens are evaluated.
    n_ctx : int
        Context length in tokens.
    log : LlamaLog or None
        Receives llama.cpp's log.

    Raises
    ------
    ModelFileError
        llama.cpp cannot load the file, its context is too short, or its chat template does not serve.
    EngineError
        No memory for the context.
    """

    def __init__(
        self, model: ModelFile, config: EngineConfig, n_ctx: int, log: LlamaLog | None = None
    ) -> None:
        self._model = LoadedModel(model.path, config, n_ctx, log or LlamaLog())
        try:
            spell = self._model.spelling
            template = ChatTemplate(
                model.facts.template, spell(self._model.bos), spell(self._model.eos), str(model.path)
            )
            markup = template.markup()
            if self._model.eot is None:
                raise ModelFileError("it has no token that ends a turn", where=str(model.path))
        except ModelFileError:
            self._model.close()
            raise
        self._tokenizer = Tokenizer(self._model, markup)
        self._rewind = self._model.rewindable and (self._model.window == 0 or config.swa_full)
        self._info = provenance.engine_info(self._model, model, markup, rewind=self._rewind)
        self._tally = Tally()
        self._path: list[_Segment | _Turn] = []
        self._cursor = 0
        self._began = self._full = False

    @property
    def info(self) -> EngineInfo:
        """What answers."""
        return self._info

    def begin(self, system: str, task: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Open an episode's transcript and generate its first turn."""
        self._model.require_open()
        self._cursor, self._began, self._full = 0, True, False
        first, second = self._tokenizer.opening(system, task)
        size = len(first) + len(second)
        flagged = self._tokenizer.spells_control(system, task)
        if size > self._model.n_ctx:
            return self._out_of_context(size, flagged)
        self._segment(first)
        self._segment(second)
        return self._turn(size, max_tokens, forced, flagged)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Append an observation as a user message and generate the next turn."""
        if not self._began:
            raise EngineError("an observation came before an episode was opened")
        tokens = self._tokenizer.observation(observation)
        flagged = self._tokenizer.spells_control(observation)
        last = self._path[self._cursor - 1] if self._cursor else None
        pending = last.pending if isinstance(last, _Turn) else None
        needed = self._position(self._cursor) + len(tokens) + (pending is not None)
        if self._full or needed > self._model.n_ctx:
            return self._out_of_context(len(tokens), flagged)
        if pending is not None:
            self._segment((pending,))
        self._segment(tokens)
        return self._turn(len(tokens), max_tokens, forced, flagged)

    def counters(self) -> Counters:
        """Work so far."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start counting anew."""
        self._tally.reset(node.key for node in self._path)

    def close(self) -> None:
        """Free the model's memory."""
        self._model.close()
        self._path.clear()
        self._began = False

    # The live path

    def _position(self, count: int) -> int:
        """Evaluated tokens of the first `count` nodes."""
        return sum(len(node.tokens) for node in self._path[:count])

    def _key_before(self) -> bytes:
        return self._path[self._cursor - 1].key if self._cursor else ROOT

    def _out_of_context(self, prompt_tokens: int, flagged: bool) -> Generation:
        self._full = True
        empty = hashlib.sha256().hexdigest()
        return Generation("", (), StopReason.context, prompt_tokens, (), empty, flagged)

    def _segment(self, tokens: tuple[int, ...]) -> None:
        """Step over the segment, evaluating it unless the live path holds it here."""
        key = self._tally.visit(self._key_before(), tokens)
        node = self._path[self._cursor] if self._cursor < len(self._path) else None
        if not isinstance(node, _Segment) or node.tokens != tokens:
            self._fork()
            self._path.append(_Segment(key, tokens, self._evaluate(tokens).copy()))
        self._cursor += 1

    def _turn(self, prompt_tokens: int, max_tokens: int, forced: str | None, flagged: bool) -> Generation:
        """Step over the turn, generating it unless the live path holds it here."""
        node = self._path[self._cursor] if self._cursor < len(self._path) else None
        if isinstance(node, _Turn) and (node.max_tokens, node.forced) == (max_tokens, forced):
            self._tally.visit(self._key_before(), node.tokens, kind="turn")
        else:
            self._fork()
            written = self._generate(max_tokens, forced)
            key = self._tally.visit(self._key_before(), written.token_ids[:-1], kind="turn")
            node = _Turn(
                key,
                max_tokens,
                forced,
                generation=replace(
                    written, prompt_tokens=prompt_tokens, control_text=flagged or written.control_text
                ),
                tokens=written.token_ids[:-1],
                pending=None if written.stop is StopReason.end_of_generation else written.token_ids[-1],
            )
            self._path.append(node)
        self._cursor += 1
        return node.generation

    def _fork(self) -> None:
        """Drop what the live path holds from the cursor on, in the cache too."""
        for node in self._path[self._cursor :]:
            self._tally.leave(node.key)
        del self._path[self._cursor :]
        length = self._position(self._cursor)
        if self._model.length() == length:
            return
        if self._rewind:
            if self._model.rewind(length):
                return
            self._rewind, self._info = False, replace(self._info, rewind=False)
        self._model.clear()
        for node in self._path:
            pieces = [node.tokens] if isinstance(node, _Segment) else [(token,) for token in node.tokens]
            for piece in pieces:
                self._evaluate(piece)

    def _evaluate(self, tokens: Sequence[int]) -> _Logits:
        start = time.perf_counter()
        try:
            logits = self._model.decode(tokens)
        except EngineError:
            # What the cache holds now is unknown.
            self._model.clear()
            self._path.clear()
            self._began = False
            raise
        self._tally.evaluated(len(tokens), time.perf_counter() - start)
        return logits

    # Greedy decoding

    def _generate(self, max_tokens: int, forced: str | None) -> Generation:
        """Write a turn after the segment at the cursor."""
        segment = self._path[self._cursor - 1]
        if not isinstance(segment, _Segment):
            raise EngineError("a turn has to follow a message")
        script = None if forced is None else self._tokenizer.assistant(forced)
        room = self._model.n_ctx - self._position(self._cursor)
        logits, digest, stop = segment.logits, hashlib.sha256(), None
        chosen: list[int] = []
        margins: list[float] = []
        while stop is None:
            if chosen:
                logits = self._evaluate(chosen[-1:])
            best, margin = self._best(logits)
            digest.update(logits.data)
            margins.append(margin)
            if script is None:
                self._tally.chosen()
            chosen.append(best if script is None else script[len(chosen)])
            if self._model.is_end(chosen[-1]):
                stop = StopReason.end_of_generation
            elif len(chosen) == max_tokens:
                stop = StopReason.max_tokens
            elif len(chosen) > room:
                stop = StopReason.context
        text = self._tokenizer.text(chosen)
        spelled = self._tokenizer.spells_control(text)
        return Generation(text, tuple(chosen), stop, 0, tuple(margins), digest.hexdigest(), spelled)

    def _best(self, logits: _Logits) -> tuple[int, float]:
        """The token with the largest logit (the lowest id among equals) and its lead over the runner-up."""
        best = int(logits.argmax())
        top = float(logits[best])
        if not (math.isfinite(top) and math.isfinite(float(logits.min()))):
            raise EngineError(
                "the model's logits are not finite",
                where=str(self._model.path),
                hint="the file is damaged, or this build or cache type does not suit it",
            )
        # The runner-up is the larger of the maxima beside the winner: no copy, no sorting.
        beside = (logits[:best], logits[best + 1 :])
        second = max(float(part.max()) for part in beside if part.size)
        return best, round(top - second, _MARGIN_DIGITS)
