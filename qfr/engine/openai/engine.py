"""A model behind an OpenAI-compatible server as an engine: text in, text out.

The server renders its own chat template and evaluates as it likes. There are no token ids, no margins and no
logits: records hold none, token counts of turns stay 0, and forks are played afresh.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from qfr.engine.base import Counters, EngineInfo
from qfr.engine.openai.client import Answer, Client, ContextFull
from qfr.engine.openai.fields import check_calls, served
from qfr.engine.openai.server import look_at, served_info
from qfr.errors import EngineError
from qfr.records import Generation, StopReason
from qfr.served import ServerConfig

_GREETING = (("user", "Hello"),)


@dataclass
class _Sums:
    """Work of all the conversations with one server."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    generated: int = 0
    # Tokens written, as the server counts them.
    seconds: float = 0.0
    # Sum of the answers' times; conversations at the same time count each.

    def add(self, answer: Answer, seconds: float) -> None:
        with self.lock:
            self.generated += answer.completion_tokens
            self.seconds += seconds


class OpenAIEngine:
    """One conversation at a time with a served model. Implements `qfr.engine.base.Engine`.

    Parameters
    ----------
    settings : ServerConfig
        With a base_url.
    seed : int
        Sent along, although decoding is greedy.
    client : Client or None
        None = a client of its own.

    Raises
    ------
    EngineError
        Nobody answers, the model is not served, or the answer cannot be read.
    """

    def __init__(self, settings: ServerConfig, seed: int, client: Client | None = None) -> None:
        self._client = client or Client(settings)
        self._settings, self._seed = settings, seed
        try:
            found = look_at(self._client, settings)
            # A first answer tells the configuration's own name, and that the model does answer.
            first = self._client.ask(found.model, _GREETING, 1, seed)
        except EngineError:
            self._client.close()
            raise
        except ContextFull:
            self._client.close()
            raise EngineError("has no room for a single word", where=settings.base_url) from None
        self._model = found.model
        self._info = served_info(settings, found, first.fingerprint, seed)
        self._sums = _Sums()
        self._messages: list[tuple[str, str]] = []

    @property
    def info(self) -> EngineInfo:
        """What answers, as far as it tells."""
        return self._info

    def another(self) -> OpenAIEngine:
        """A second conversation with the same server, for another thread; counted together."""
        twin = OpenAIEngine.__new__(OpenAIEngine)
        twin.__dict__ |= self.__dict__ | {"_messages": []}
        return twin

    def begin(self, system: str, task: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Open a conversation and get its first turn."""
        self._messages = [("system", system), ("user", task)]
        return self._turn(max_tokens, forced)

    def reply(self, observation: str, max_tokens: int, forced: str | None = None) -> Generation:
        """Append an observation and get the next turn."""
        if not self._messages:
            raise EngineError("an observation came before an episode was opened")
        self._messages.append(("user", observation))
        return self._turn(max_tokens, forced)

    def counters(self) -> Counters:
        """Tokens written and time; what the server evaluated is its own business."""
        return Counters(
            evaluated=0,
            generated=self._sums.generated,
            tree=0,
            trie=0,
            fresh=0,
            prefill_seconds=0.0,
            decode_seconds=self._sums.seconds,
            prefill_tokens=0,
            decode_tokens=0,
        )

    def reset_counters(self) -> None:
        """Start counting anew."""
        with self._sums.lock:
            self._sums.generated, self._sums.seconds = 0, 0.0

    def close(self) -> None:
        """End the connections; conversations of other threads end with an error."""
        self._client.close()

    def _turn(self, max_tokens: int, forced: str | None) -> Generation:
        if forced is not None:
            raise EngineError("a server cannot be made to write a given text", where=self._settings.base_url)
        started = time.perf_counter()
        try:
            answer = self._client.ask(self._model, self._messages, max_tokens, self._seed)
        except ContextFull:
            return _generation("", StopReason.context)
        self._sums.add(answer, time.perf_counter() - started)
        check_calls(answer.text, answer.beside, self._settings.base_url)
        self._messages.append(("assistant", answer.text))
        # Whose limit cut it, the request's or the context's, is not told: the next request will.
        stop = StopReason.max_tokens if answer.cut else StopReason.end_of_generation
        return served(_generation(answer.text, stop), answer.beside)


def _generation(text: str, stop: StopReason) -> Generation:
    return Generation(
        text=text,
        token_ids=(),
        stop=stop,
        prompt_tokens=0,
        margins=(),
        logits_sha256="",
        control_text=False,
    )
