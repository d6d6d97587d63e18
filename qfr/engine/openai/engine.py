"""A model behind an OpenAI-compatible server as an engine: text in, text out.

The server renders its own chat template and evaluates as it likes. There are no token ids, no margins and no
logits: records hold none, token counts of turns stay 0, and forks are played afresh.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from qfr.bounded_json import Decoder
from qfr.engine.base import Counters, EngineInfo, Native, Past
from qfr.engine.native.form import call_id
from qfr.engine.native.served import written
from qfr.engine.openai.client import GREEDY, Answer, Client, ContextFull
from qfr.engine.openai.fields import ServedCall, check_calls, served, well_formed
from qfr.engine.openai.server import look_at, served_info
from qfr.engine.sampling import Sampling, turn_key
from qfr.errors import EngineError
from qfr.records import Generation, StopReason
from qfr.served import ServerConfig

_GREETING = ({"role": "user", "content": "Hello"},)


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

    def __init__(
        self,
        settings: ServerConfig,
        seed: int,
        client: Client | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._client = client or Client(settings)
        self._settings, self._seed, self._sampling = settings, seed, sampling
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
        self._info = served_info(
            settings, found, first.fingerprint, seed, None if sampling is None else sampling.request()
        )
        self._sums = _Sums()
        self._messages: list[dict[str, object]] = []
        self._task, self._trial, self._turns = "", 0, 0
        # Of the episode that is open: each of its turns has a seed of its own.
        self._tools: list[dict[str, object]] | None = None
        # Of a native episode.
        self._calls: tuple[ServedCall, ...] = ()
        # Of its last turn, with ids.

    @property
    def info(self) -> EngineInfo:
        """What answers, as far as it tells."""
        return self._info

    def another(self) -> OpenAIEngine:
        """A second conversation with the same server, for another thread; counted together."""
        twin = OpenAIEngine.__new__(OpenAIEngine)
        twin.__dict__ |= self.__dict__ | {"_messages": [], "_calls": ()}
        return twin

    def begin(
        self,
        system: str,
        task: str,
        max_tokens: int,
        forced: str | None = None,
        native: Native | None = None,
        trial: int = 0,
    ) -> Generation:
        """Open a conversation and get its first turn."""
        self._messages = [_message("system", system), _message("user", task)]
        self._task, self._trial, self._turns = task, trial, 0
        self._tools = None if native is None else json.loads(native.tools)
        self._calls = ()
        return self._turn(max_tokens, forced)

    def reply(self, told: str | Past, max_tokens: int, forced: str | None = None) -> Generation:
        """Append what the last turn is told and get the next turn."""
        if not self._messages:
            raise EngineError("an observation came before an episode was opened")
        if isinstance(told, Past) and self._calls:
            # Every call has to be answered; one text stands for all where they could not be read.
            texts = told.results if len(told.results) == len(self._calls) else (told.told,) * len(self._calls)
            self._messages += [
                _message("tool", text) | {"tool_call_id": call.id, "name": call.name}
                for call, text in zip(self._calls, texts, strict=True)
            ]
        else:
            self._messages.append(_message("user", told.told if isinstance(told, Past) else told))
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
            answer = self._client.ask(
                self._model, self._messages, max_tokens, self._turn_seed(), self._tools or (), self._fields()
            )
        except ContextFull:
            return _generation("", StopReason.context)
        self._sums.add(answer, time.perf_counter() - started)
        # Whose limit cut it, the request's or the context's, is not told: the next request will.
        stop = StopReason.max_tokens if answer.cut else StopReason.end_of_generation
        if self._tools is not None:
            return served(self._native(answer, stop), answer.beside)
        check_calls(answer.text, answer.beside, self._settings.base_url)
        self._messages.append(_message("assistant", answer.text))
        return served(_generation(answer.text, stop), answer.beside)

    def _turn_seed(self) -> int:
        """The seed of a turn; a server's noise is its own, so that presets cannot share it."""
        number, self._turns = self._turns, self._turns + 1
        if self._sampling is None:
            return self._seed
        key = turn_key(self._seed, "", self._task, self._trial, number)
        return int.from_bytes(key[:4], "big") >> 1

    def _fields(self) -> Mapping[str, float]:
        """How the server is asked to choose."""
        return GREEDY if self._sampling is None else self._sampling.request()

    def _native(self, answer: Answer, stop: StopReason) -> Generation:
        """A turn with the calls that the server tells apart from its text."""
        turn = len(self._messages)
        self._calls = tuple(
            replace(call, id=call.id or call_id("nine", call.name, turn, place))
            for place, call in enumerate(answer.calls)
        )
        message = _message("assistant", answer.text)
        if self._calls:
            message["tool_calls"] = [_sent(call) for call in self._calls]
        self._messages.append(message)
        text = written(answer.text, [(call.name, call.arguments) for call in self._calls])
        return replace(_generation(text, stop), thought_tokens=answer.thought_tokens)


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": well_formed(text)}


def _sent(call: ServedCall) -> dict[str, object]:
    """A call in the conversation's history; a server cannot show arguments that are no JSON object."""
    whole = Decoder(call.arguments).at(0)
    good = isinstance(whole.value, dict) and whole.end == len(call.arguments.rstrip())
    function = {"name": call.name, "arguments": call.arguments if good else "{}"}
    return {"id": call.id, "type": "function", "function": function}


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
