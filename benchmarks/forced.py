"""Episodes that are written by the demonstrator instead of the model: the same tokens for any weights."""

from __future__ import annotations

from qfr.engine.base import Counters, Engine, EngineInfo, Native
from qfr.engine.llama.path import Asked, EpisodePath, Extension, turn_node
from qfr.engine.llama.tokens import Tokenizer
from qfr.engine.tree import Tally
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

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
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
        self._path: EpisodePath | None = None
        self._seen: set[bytes] = set()
        self.prefill = self.decode = 0

    @property
    def info(self) -> EngineInfo:
        """Of the model whose tokenizer counts."""
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
        """Open an episode."""
        self._path = EpisodePath(self._tokenizer, system, task)
        return self._turn(self._path, self._path.opening(), Asked(max_tokens, forced))

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Go on."""
        assert self._path is not None
        return self._turn(self._path, self._path.message(observation), Asked(max_tokens, forced))

    def counters(self) -> Counters:
        """Of the tree."""
        return self._tally.counters()

    def reset_counters(self) -> None:
        """Start anew."""
        self._tally.reset(())

    def close(self) -> None:
        """Nothing to close."""

    def _turn(self, path: EpisodePath, extension: Extension, asked: Asked) -> Generation:
        for node in path.take(extension, self._tally):
            self.prefill += self._new(node.key, node.tokens)
        text = asked.forced or ""
        tokens = self._tokenizer.assistant(text)
        key = self._tally.visit(path.key, tokens[:-1], kind="turn")
        self.decode += self._new(key, tokens[:-1])
        stop = StopReason.end_of_generation
        made = Generation(text, tokens, stop, 0, (0.0,) * len(tokens), "", False)
        path.add(turn_node(key, asked, made))
        return made

    def _new(self, key: bytes, tokens: tuple[int, ...]) -> int:
        """How many tokens a node adds that was not seen before."""
        if key in self._seen:
            return 0
        self._seen.add(key)
        return len(tokens)
