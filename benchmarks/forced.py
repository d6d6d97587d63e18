"""Episodes that are written by the demonstrator instead of the model: the same tokens for any weights."""

from __future__ import annotations

from qfr.engine.base import Counters, Engine, EngineInfo
from qfr.engine.tokens import Tokenizer
from qfr.engine.tree import ROOT, Tally
from qfr.records import Generation, StopReason
from qfr.world.demonstrate import Habits, next_turn


class Forced:
    """An engine whose turns the demonstrator writes. Implements `qfr.engine.base.Engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._task = ""
        self._transcript: list[tuple[str, str]] = []
        self._last = ""

    @property
    def info(self) -> EngineInfo:
        """Of the engine beneath."""
        return self._engine.info

    def begin(self, system: str, task: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Open an episode."""
        self._task, self._transcript = task, []
        self._last = next_turn(task, (), Habits())
        return self._engine.begin(system, task, max_tokens, self._last)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Go on."""
        self._transcript.append((self._last, observation))
        self._last = next_turn(self._task, tuple(self._transcript), Habits())
        return self._engine.reply(observation, max_tokens, self._last)

    def counters(self) -> Counters:
        """Of the engine beneath."""
        return self._engine.counters()

    def reset_counters(self) -> None:
        """Of the engine beneath."""
        self._engine.reset_counters()

    def close(self) -> None:
        """Close the engine beneath."""
        self._engine.close()


class Counting:
    """Tokenizes and counts without evaluating anything. Implements `qfr.engine.base.Engine` for `Forced`."""

    def __init__(self, tokenizer: Tokenizer, info: EngineInfo) -> None:
        self._tokenizer, self._info = tokenizer, info
        self._tally = Tally()
        self._key = ROOT
        self._seen: set[bytes] = set()
        self.prefill = self.decode = 0

    @property
    def info(self) -> EngineInfo:
        """Of the model whose tokenizer counts."""
        return self._info

    def begin(self, system: str, task: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Open an episode."""
        self._key = ROOT
        for segment in self._tokenizer.opening(system, task):
            self._visit(segment, written=False)
        return self._turn(forced)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Go on."""
        self._visit(self._tokenizer.observation(observation), written=False)
        return self._turn(forced)

    def counters(self) -> Counters:
        """Of the tree."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start anew."""
        self._tally.reset(())

    def close(self) -> None:
        """Nothing to close."""

    def _turn(self, forced: str | None) -> Generation:
        text = forced or ""
        tokens = self._tokenizer.assistant(text)
        self._visit(tokens[:-1], written=True)
        stop = StopReason.end_of_generation
        return Generation(text, tokens, stop, 0, (0.0,) * len(tokens), "", False)

    def _visit(self, tokens: tuple[int, ...], *, written: bool) -> None:
        self._key = self._tally.visit(self._key, tokens, kind="turn" if written else "segment")
        if self._key in self._seen:
            return
        self._seen.add(self._key)
        if written:
            self.decode += len(tokens)
        else:
            self.prefill += len(tokens)
