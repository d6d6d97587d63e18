"""The greedy engine on llama.cpp: a cursor on one token transcript.

The same tokens give other logits when they are evaluated in other batches, so tokens are evaluated in
segments that depend on the episode alone: the system message, the task message, each generated token, each
observation. A generated end token is logged, never evaluated; the template's closing markup heads the next
segment, whatever ended the turn. A last token that is no end token is evaluated alone once the transcript
goes on. Where a template rewrites history, the path of the episode goes back to what still stands.

What an episode has in common with the one before it is answered from memory. The cache follows the path only
when a turn has to be written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qfr.config import EngineConfig
from qfr.engine.base import Counters, EngineInfo, Native, Past
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.greedy import Logits, Writing
from qfr.engine.llama.opened import open_file
from qfr.engine.llama.path import (
    Asked,
    EpisodePath,
    Extension,
    Node,
    Segment,
    Written,
    generation,
    out_of_context,
    position,
    turn_node,
)
from qfr.engine.llama.tokens import Tokenizer
from qfr.engine.sampling import Sampling
from qfr.engine.tree import Tally
from qfr.errors import EngineError
from qfr.records import Generation


@dataclass(frozen=True)
class _Answered:
    """A turn of the episode played last."""

    before: tuple[bytes, ...]
    # Keys of the nodes before it.
    turn: Written


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

    _outputs = 1
    # Vectors of logits that are read of one decode at most.

    def __init__(
        self, model: ModelFile, config: EngineConfig, n_ctx: int, log: LlamaLog | None = None
    ) -> None:
        opened = open_file(model, config, n_ctx, log, self._outputs)
        self._model, self._tokenizer, self._info = opened.model, opened.tokenizer, opened.info
        self._native = opened.native
        self._sampling = Sampling.of(config, self._info.model_sha256)
        self._task, self._trial = "", 0
        # Of the episode that is open: its tokens are drawn by them.
        self._rewind = self._info.rewind
        self._tally = Tally()
        self._held: list[Node] = []
        # What the cache holds.
        self._answered: list[_Answered] = []
        # Turns of the episode played last: another that repeats them is answered from here.
        self._path: EpisodePath | None = None
        self._full = False

    @property
    def info(self) -> EngineInfo:
        """What answers."""
        return self._info

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Open an episode's transcript and generate its first turn."""
        self._model.require_open()
        self._full = False
        self._task, self._trial = task, trial if self._sampling is not None else 0
        tokenizer = self._tokenizer if native is None else self._native.of(native)
        self._path = EpisodePath(tokenizer, system, task, native=native is not None)
        flagged = tokenizer.spells_control(system, task)
        return self._go_on(self._path, self._path.opening(), Asked(max_tokens, forced, self._trial), flagged)

    def reply(self, told: str | Past, max_tokens: int, forced: str | None = None) -> Generation:
        """Append what the last turn is told and generate the next turn."""
        if self._path is None:
            raise EngineError("an observation came before an episode was opened")
        text = told.told if isinstance(told, Past) else told
        flagged = self._path.tokenizer.spells_control(text)
        asked = Asked(max_tokens, forced, self._trial)
        return self._go_on(self._path, self._path.message(told), asked, flagged)

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns messages into tokens."""
        return self._tokenizer

    def read(self) -> tuple[int, ...]:
        """Tokens that the model has read before the last turn of the episode."""
        nodes = [] if self._path is None else self._path.nodes[:-1]
        return tuple(token for node in nodes for token in node.tokens)

    def counters(self) -> Counters:
        """Work so far."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start counting anew."""
        live = {node.key for node in self._held}
        for answered in self._answered:
            live.update(answered.before, (answered.turn.key,))
        self._tally.reset(live)

    def start_over(self) -> None:
        """Forget everything: the next episode is evaluated into an empty cache."""
        self._model.clear()
        self._held.clear()
        self._answered.clear()
        self._path = None

    def evaluate_afresh(self) -> None:
        """Do without rewinding from now on: every fork is evaluated anew."""
        self._rewind, self._info = False, replace(self._info, rewind=False)

    def close(self) -> None:
        """Free the model's memory."""
        self._model.close()
        self._held.clear()
        self._answered.clear()
        self._path = None

    # The path of the episode

    def _go_on(self, path: EpisodePath, extension: Extension, asked: Asked, flagged: bool) -> Generation:
        """Read what a message brings, and answer it."""
        if self._full or extension.size > self._model.n_ctx:
            self._full = True
            return out_of_context(extension.prompt_tokens, flagged=flagged)
        path.take(extension, self._tally)
        number, before = len(path.turns), tuple(node.key for node in path.nodes)
        known = self._answered[number] if number < len(self._answered) else None
        if known is not None and known.turn.asked == asked and known.before == before:
            turn = known.turn
            self._tally.visit(path.key, turn.tokens, kind="turn")
        else:
            del self._answered[number:]
            self._catch_up(path)
            writing = self._write(asked, number)
            made = generation(
                writing,
                path.tokenizer,
                extension.prompt_tokens,
                rewritten=extension.rewritten,
                flagged=flagged,
                native=path.native,
            )
            key = self._tally.visit(path.key, made.token_ids[:-1], kind="turn")
            turn = turn_node(key, asked, made)
            self._held.append(turn)
            self._answered.append(_Answered(before, turn))
        path.add(turn)
        return turn.generation

    # The cache

    def _catch_up(self, path: EpisodePath) -> None:
        """Make the cache hold the path: go back to what both share, and evaluate the rest."""
        shared = 0
        for node, held in zip(path.nodes, self._held, strict=False):
            if node.key != held.key:
                break
            shared += 1
        self._go_back(shared)
        for node in path.nodes[shared:]:
            if isinstance(node, Written):
                self._again(node)
                self._held.append(node)
            else:
                self._held.append(Segment(node.key, node.tokens, self._evaluate(node.tokens).copy()))

    def _go_back(self, count: int) -> None:
        """Let the cache hold the first `count` nodes alone."""
        for node in self._held[count:]:
            self._tally.leave(node.key)
        del self._held[count:]
        length = position(self._held)
        if self._model.length() == length:
            return
        if self._rewind:
            if self._model.rewind(length):
                return
            self.evaluate_afresh()
        self._model.clear()
        for node in self._held:
            self._again(node)

    def _again(self, node: Node) -> None:
        """Evaluate a node as it was evaluated the first time: a turn token by token."""
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

    def _write(self, asked: Asked, turn: int) -> Writing:
        """Write a turn behind the last segment."""
        segment = self._held[-1]
        if not isinstance(segment, Segment):
            raise EngineError("a turn has to follow a message")
        script = None if asked.forced is None else self._tokenizer.assistant(asked.forced)
        room = self._model.n_ctx - position(self._held)
        draw = None if self._sampling is None else self._sampling.draw(self._task, asked.trial, turn)
        writing = Writing(asked.max_tokens, room, script, self._model.is_end, str(self._model.path), draw)
        writing.take(segment.logits)
        while writing.stop is None:
            writing.take(self._evaluate(writing.chosen[-1:]))
        if script is None:
            self._tally.chosen(len(writing.chosen))
        return writing
