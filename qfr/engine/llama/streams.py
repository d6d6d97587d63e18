"""The greedy engine on llama.cpp with several streams in lockstep.

Each stream is a transcript of its own. Messages are evaluated as in the engine of one stream: in their own
stream alone, so with the same bits. Generated tokens of all open turns share one batch per step, which moves
their last bits. What a batch holds follows from the calls alone, so the same calls give the same bytes.

An episode that repeats a kept transcript is answered from memory as long as it does; where it leaves it, the
stream takes the kept part of the cache over (by rewinding, where the stream still holds it, else by a copy)
and goes on from there. Copies hold the very bits. Where a cache cannot be rewound every episode is evaluated
afresh.
"""

from __future__ import annotations

import time
from dataclasses import replace

from qfr.config import EngineConfig
from qfr.engine.base import Answered, Ask, Counters, EngineInfo, Past
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.greedy import Logits, Writing
from qfr.engine.llama.opened import open_file
from qfr.engine.llama.path import (
    Asked,
    EpisodePath,
    Node,
    Read,
    Segment,
    Written,
    generation,
    out_of_context,
    position,
    turn_node,
)
from qfr.engine.llama.sequences import Row, Sequences
from qfr.engine.llama.stream import Kept, Stream
from qfr.engine.sampling import Sampling
from qfr.engine.tree import Tally
from qfr.errors import EngineError
from qfr.records import Generation

Tokens = tuple[int, ...]


class LlamaStreams:
    """A loaded GGUF that plays `config.streams` episodes. Implements `qfr.engine.base.StreamEngine`.

    Parameters
    ----------
    model : ModelFile
        Resolved and verified file.
    config : EngineConfig
        How tokens are evaluated.
    n_ctx : int
        Context length of each stream, in tokens.
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
        self._native = opened.native
        self._sampling = Sampling.of(config, self._info.model_sha256)
        self._sequences = Sequences(self._model, config.n_batch)
        self._tally = Tally()
        self._streams = [Stream(number) for number in range(config.streams)]
        self._kept: dict[tuple[Tokens, ...], Kept] = {}
        self._system: Kept | None = None
        # The system message evaluated last.
        if self._model.window:
            # A copy leaves out what has slid out of the window, and a fork needs it again.
            self._info = replace(self._info, rewind=False)

    @property
    def info(self) -> EngineInfo:
        """What answers."""
        return self._info

    @property
    def streams(self) -> int:
        """How many episodes can be open."""
        return len(self._streams)

    def start_over(self) -> None:
        """Forget everything: the next episodes are evaluated into an empty cache."""
        self._model.clear()
        self._streams = [Stream(stream.number) for stream in self._streams]
        self._kept.clear()
        self._system = None

    def evaluate_afresh(self) -> None:
        """Do without forks from now on: every episode is evaluated from its start."""
        self._info = replace(self._info, rewind=False)
        self.start_over()

    def counters(self) -> Counters:
        """Work so far."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start counting anew."""
        held = [stream.path for stream in self._streams] + [list(kept.path) for kept in self._all_kept()]
        self._tally.reset(node.key for path in held for node in path)

    def close(self) -> None:
        """Free the model's memory."""
        self._model.close()

    def keep(self) -> None:
        """Keep the transcripts that the streams hold now."""
        if not self._info.rewind:
            return
        for stream in self._streams:
            if len(stream.path) > 1 and stream.follows is None and stream.writing is None:
                kept = Kept(tuple(stream.path), self._sequences.save(stream.number))
                self._kept[tuple(node.tokens for node in self._opening(stream))] = kept

    def _opening(self, stream: Stream) -> list[Node]:
        """The segments before the first turn."""
        turns = [place for place, node in enumerate(stream.path) if isinstance(node, Written)]
        return stream.path[: turns[0]] if turns else []

    def forget(self) -> None:
        """Let go of the transcripts that were kept."""
        gone = [node.key for kept in self._kept.values() for node in kept.path[1:]]
        gone += [node.key for stream in self._streams for node in stream.path[1:]]
        for key in gone:
            self._tally.leave(key)
        self._kept.clear()

    def advance(self, asks: tuple[Ask, ...]) -> tuple[Answered, ...]:
        """Take messages, and go on until at least one turn is finished."""
        self._model.require_open()
        try:
            done = [answer for ask in sorted(asks, key=lambda one: one.stream) for answer in self._take(ask)]
            while not done:
                done = self._step()
        except EngineError:
            # What the cache holds now is unknown.
            self.start_over()
            raise
        return tuple(done)

    def _all_kept(self) -> list[Kept]:
        return [*self._kept.values(), *([] if self._system is None else [self._system])]

    # Messages

    def _take(self, ask: Ask) -> list[Answered]:
        """Step over a message; its turn, if it is finished at once."""
        if not 0 <= ask.stream < len(self._streams):
            raise EngineError(f"there is no stream {ask.stream}")
        stream = self._streams[ask.stream]
        if stream.writing is not None:
            raise EngineError(f"stream {ask.stream} is still writing")
        if ask.system is not None:
            stream.task = ask.message if isinstance(ask.message, str) else ask.message.told
            stream.trial = ask.trial if self._sampling is not None else 0
        asked = Asked(ask.max_tokens, ask.forced, stream.trial)
        made = self._open(stream, ask.system, ask) if ask.system is not None else self._go_on(stream, ask)
        if made is None:
            made = self._turn(stream, asked)
        return [] if made is None else [Answered(ask.stream, made)]

    def _open(self, stream: Stream, system: str, ask: Ask) -> Generation | None:
        """Open an episode; the empty turn where its messages do not fit."""
        if isinstance(ask.message, Past):
            raise EngineError("an episode opens with its task")
        tokenizer = self._tokenizer if ask.native is None else self._native.of(ask.native)
        stream.episode = EpisodePath(tokenizer, system, ask.message, native=ask.native is not None)
        stream.full = False
        extension = stream.episode.opening()
        stream.prompt_tokens, stream.rewritten = extension.prompt_tokens, extension.rewritten
        stream.flagged = tokenizer.spells_control(system, ask.message)
        stream.follows, stream.passed = self._kept.get(extension.segments), 0
        if extension.size > self._model.n_ctx:
            return self._out_of_context(stream)
        if stream.follows is None:
            self._restart(stream, extension.segments[0])
        for node in stream.episode.take(extension, self._tally):
            self._segment(stream, node)
        return None

    def _go_on(self, stream: Stream, ask: Ask) -> Generation | None:
        """Append an observation; the empty turn where it does not fit."""
        if stream.episode is None:
            raise EngineError("an observation came before an episode was opened")
        extension = stream.episode.message(ask.message)
        stream.prompt_tokens, stream.rewritten = extension.prompt_tokens, extension.rewritten
        told = ask.message.told if isinstance(ask.message, Past) else ask.message
        stream.flagged = stream.episode.tokenizer.spells_control(told)
        if stream.full or extension.size > self._model.n_ctx:
            return self._out_of_context(stream)
        self._go_back(stream, extension.common)
        for node in stream.episode.take(extension, self._tally):
            self._segment(stream, node)
        return None

    def _out_of_context(self, stream: Stream) -> Generation:
        stream.full = True
        return out_of_context(stream.prompt_tokens, flagged=stream.flagged)

    # The transcript of a stream

    def _go_back(self, stream: Stream, count: int) -> None:
        """Let a stream's transcript end after its first `count` nodes: the template rewrites what follows."""
        if stream.follows is not None:
            stream.passed = min(stream.passed, count)
        elif len(stream.path) > count:
            if self._info.rewind:
                self._rewind(stream, position(stream.path[:count]))
                del stream.path[count:]
            else:
                kept, stream.path = stream.path[:count], []
                self._rewind(stream, 0)
                for node in kept:
                    self._again(stream, node)

    def _again(self, stream: Stream, node: Node) -> None:
        """Evaluate a node as it was evaluated the first time: a turn token by token."""
        pieces = [node.tokens] if isinstance(node, Segment) else [(token,) for token in node.tokens]
        at = position(stream.path)
        for piece in pieces:
            start = time.perf_counter()
            self._sequences.segment(stream.number, piece, at)
            self._tally.evaluated(len(piece), time.perf_counter() - start)
            at += len(piece)
        stream.path.append(node)

    def _restart(self, stream: Stream, first: Tokens) -> None:
        """Bring a stream to the start of an episode, after the system message where a copy of it is held."""
        held = self._system
        if self._info.rewind and held is not None and held.path[0].tokens == first:
            stream.follows = held
        else:
            stream.path.clear()
            self._rewind(stream, 0)

    def _reach(self, stream: Stream, kept: Kept, count: int) -> None:
        """Make a stream's part of the cache hold the first `count` nodes of a kept transcript."""
        wanted = kept.path[:count]
        held = len(stream.path) >= count and all(a is b for a, b in zip(stream.path, wanted, strict=False))
        if not held:
            self._sequences.restore(stream.number, kept.saved)
        if len(stream.path if held else kept.path) > count:
            self._rewind(stream, position(wanted))
        stream.path = list(wanted)

    def _rewind(self, stream: Stream, length: int) -> None:
        if not self._sequences.rewind(stream.number, length):
            raise EngineError("the cache cannot be rewound", where=str(self._model.path))

    def _leave(self, stream: Stream) -> None:
        """The episode no longer repeats the kept transcript: take over what it shares with it."""
        if stream.follows is not None:
            self._reach(stream, stream.follows, stream.passed)
            stream.follows = None

    def _next(self, stream: Stream) -> Node | None:
        """The node that the kept transcript goes on with."""
        kept = stream.follows
        return kept.path[stream.passed] if kept is not None and stream.passed < len(kept.path) else None

    def _episode(self, stream: Stream) -> EpisodePath:
        if stream.episode is None:
            raise EngineError(f"stream {stream.number} has no episode")
        return stream.episode

    def _key(self, stream: Stream) -> bytes:
        return self._episode(stream).key

    def _segment(self, stream: Stream, read: Read) -> None:
        """Step over a segment, evaluating it unless the kept transcript holds it here."""
        node = self._next(stream)
        if isinstance(node, Segment) and node.tokens == read.tokens:
            stream.passed += 1
            return
        self._leave(stream)
        start, at = time.perf_counter(), position(stream.path)
        logits = self._sequences.segment(stream.number, read.tokens, at).copy()
        self._tally.evaluated(len(read.tokens), time.perf_counter() - start)
        stream.path.append(Segment(read.key, read.tokens, logits))
        if at == 0 and self._info.rewind:
            self._system = Kept(tuple(stream.path), self._sequences.save(stream.number))

    # Turns

    def _turn(self, stream: Stream, asked: Asked) -> Generation | None:
        """Step over a turn that the kept transcript holds here, else start to write it."""
        node = self._next(stream)
        if isinstance(node, Written) and node.asked == asked:
            self._tally.visit(self._key(stream), node.tokens, kind="turn")
            stream.passed += 1
            self._episode(stream).add(node)
            return node.generation
        self._leave(stream)
        last = stream.path[-1]
        if not isinstance(last, Segment):
            raise EngineError("a turn has to follow a message")
        script = None if asked.forced is None else self._tokenizer.assistant(asked.forced)
        room = self._model.n_ctx - position(stream.path)
        stream.asked = asked
        turn = len(self._episode(stream).turns)
        draw = None if self._sampling is None else self._sampling.draw(stream.task, asked.trial, turn)
        stream.writing = Writing(
            asked.max_tokens, room, script, self._model.is_end, str(self._model.path), draw
        )
        return self._choose(stream, stream.writing, last.logits)

    def _choose(self, stream: Stream, writing: Writing, logits: Logits) -> Generation | None:
        """Choose a turn's next token; the turn, if it ends there."""
        writing.take(logits)
        if writing.stop is None or stream.asked is None:
            return None
        if stream.asked.forced is None:
            self._tally.chosen(len(writing.chosen))
        episode = self._episode(stream)
        made = generation(
            writing,
            episode.tokenizer,
            stream.prompt_tokens,
            rewritten=stream.rewritten,
            flagged=stream.flagged,
            native=episode.native,
        )
        key = self._tally.visit(self._key(stream), made.token_ids[:-1], kind="turn")
        turn = turn_node(key, stream.asked, made)
        stream.path.append(turn)
        episode.add(turn)
        stream.writing = stream.asked = None
        return made

    def _step(self) -> list[Answered]:
        """Evaluate the last token of every open turn in one batch; the turns that end with the next."""
        open_turns = [(stream, stream.writing) for stream in self._streams if stream.writing is not None]
        if not open_turns:
            raise EngineError("no stream has a turn to write")
        rows = [
            Row(stream.number, writing.chosen[-1], position(stream.path) + len(writing.chosen) - 1)
            for stream, writing in open_turns
        ]
        start = time.perf_counter()
        logits = self._sequences.step(rows)
        self._tally.stepped(len(rows), time.perf_counter() - start)
        done = []
        for (stream, writing), vector in zip(open_turns, logits, strict=True):
            made = self._choose(stream, writing, vector)
            if made is not None:
                done.append(Answered(stream.number, made))
        return done
