"""The greedy engine on llama.cpp: a cursor on one append-only token transcript.

The same tokens give other logits when they are evaluated in other batches, so tokens are evaluated in
segments that depend on the episode alone: the system message, the task message, each generated token, each
observation. A generated end token is logged, never evaluated; the template's closing markup heads the next
segment, whatever ended the turn. A last token that is no end token is evaluated alone once the transcript
goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from qfr.config import EngineConfig
from qfr.engine.base import Counters, EngineInfo
from qfr.engine.gguf import ModelFile
from qfr.engine.greedy import Logits, Writing
from qfr.engine.llama_api import LlamaLog
from qfr.engine.opened import open_file
from qfr.engine.path import Asked, Node, Segment, Written, generation, out_of_context, position, turn_node
from qfr.engine.tree import ROOT, Tally
from qfr.errors import EngineError
from qfr.records import Generation


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
        opened = open_file(model, config, n_ctx, log)
        self._model, self._tokenizer, self._info = opened.model, opened.tokenizer, opened.info
        self._rewind = self._info.rewind
        self._tally = Tally()
        self._path: list[Node] = []
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
        pending = last.pending if isinstance(last, Written) else None
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

    def start_over(self) -> None:
        """Forget everything: the next episode is evaluated into an empty cache."""
        self._model.clear()
        self._path.clear()
        self._began = False

    def evaluate_afresh(self) -> None:
        """Do without rewinding from now on: every fork is evaluated anew."""
        self._rewind, self._info = False, replace(self._info, rewind=False)

    def close(self) -> None:
        """Free the model's memory."""
        self._model.close()
        self._path.clear()
        self._began = False

    # The live path

    def _position(self, count: int) -> int:
        """Evaluated tokens of the first `count` nodes."""
        return position(self._path[:count])

    def _key_before(self) -> bytes:
        return self._path[self._cursor - 1].key if self._cursor else ROOT

    def _out_of_context(self, prompt_tokens: int, flagged: bool) -> Generation:
        self._full = True
        return out_of_context(prompt_tokens, flagged=flagged)

    def _segment(self, tokens: tuple[int, ...]) -> None:
        """Step over the segment, evaluating it unless the live path holds it here."""
        key = self._tally.visit(self._key_before(), tokens)
        node = self._path[self._cursor] if self._cursor < len(self._path) else None
        if not isinstance(node, Segment) or node.tokens != tokens:
            self._fork()
            self._path.append(Segment(key, tokens, self._evaluate(tokens).copy()))
        self._cursor += 1

    def _turn(self, prompt_tokens: int, max_tokens: int, forced: str | None, flagged: bool) -> Generation:
        """Step over the turn, generating it unless the live path holds it here."""
        asked = Asked(max_tokens, forced)
        node = self._path[self._cursor] if self._cursor < len(self._path) else None
        if isinstance(node, Written) and node.asked == asked:
            self._tally.visit(self._key_before(), node.tokens, kind="turn")
        else:
            self._fork()
            made = generation(self._write(asked), self._tokenizer, prompt_tokens, flagged=flagged)
            key = self._tally.visit(self._key_before(), made.token_ids[:-1], kind="turn")
            node = turn_node(key, asked, made)
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
            self.evaluate_afresh()
        self._model.clear()
        for node in self._path:
            pieces = [node.tokens] if isinstance(node, Segment) else [(token,) for token in node.tokens]
            for piece in pieces:
                self._evaluate(piece)

    def _evaluate(self, tokens: Sequence[int]) -> Logits:
        start = time.perf_counter()
        try:
            logits = self._model.decode(tokens)
        except EngineError:
            # What the cache holds now is unknown.
            self.start_over()
            raise
        self._tally.evaluated(len(tokens), time.perf_counter() - start)
        return logits

    def _write(self, asked: Asked) -> Writing:
        """Write a turn after the segment at the cursor, greedily."""
        segment = self._path[self._cursor - 1]
        if not isinstance(segment, Segment):
            raise EngineError("a turn has to follow a message")
        script = None if asked.forced is None else self._tokenizer.assistant(asked.forced)
        room = self._model.n_ctx - self._position(self._cursor)
        writing = Writing(asked.max_tokens, room, script, self._model.is_end, str(self._model.path))
        writing.take(segment.logits)
        while writing.stop is None:
            writing.take(self._evaluate(writing.chosen[-1:]))
        if script is None:
            self._tally.chosen(len(writing.chosen))
        return writing
