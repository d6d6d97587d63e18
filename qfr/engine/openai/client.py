"""Requests to an OpenAI-compatible server: what is asked, what is tried again, what an error says.

The only importer of the `openai` client. Its own retries are off: it would also repeat requests that the
server answered with an error of its own, and such an error has to be seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import openai

from qfr.engine.openai.fields import ServedCall, beside_text, calls_of, well_formed
from qfr.errors import EngineError
from qfr.served import ServerConfig

T = TypeVar("T")

# Answers that say "not now" on behalf of the server: overload and gateways, not the server's own errors.
_TRANSPORT_STATUS = frozenset({408, 425, 429, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_MOST_TEXT = 300
# Ways in which servers say that a conversation is longer than the model's context.
_CONTEXT_CODES = ("context_length_exceeded", "exceed_context_size_error")
_CONTEXT_WORDS = ("context length", "context window", "context size", "maximum context")


@dataclass(frozen=True)
class Answer:
    """One completion."""

    text: str
    # Well-formed; "" where there is none.
    cut: bool
    # It ended at a limit of tokens, the request's or the server's.
    model: str
    # As the server names it.
    fingerprint: str
    # The server's own name of its configuration, empty where it gives none.
    prompt_tokens: int
    # Of the whole conversation, as the server counts; 0 where it does not.
    completion_tokens: int
    beside: Mapping[str, str]
    # Other fields of the message that hold something.
    calls: tuple[ServedCall, ...]
    # Calls of tools that the server has read out of what the model wrote.
    thought_tokens: int
    # Of the completion, as the server counts; 0 where it does not.


class ContextFull(Exception):
    """The conversation is longer than the model's context."""


class Closed(EngineError):
    """The client was closed while a request waited."""


#: Fields of a request that is answered greedily.
GREEDY: Mapping[str, float] = {"temperature": 0.0, "top_p": 1.0}


class Client:
    """A server at an address.

    Parameters
    ----------
    settings : ServerConfig
        With a base_url. The key is read from the environment here and kept nowhere else.
    pause : callable
        Waits so many seconds between tries.
    """

    def __init__(self, settings: ServerConfig, pause: Callable[[float], None] = time.sleep) -> None:
        assert settings.base_url is not None
        self._settings, self._pause = settings, pause
        self._where = settings.base_url
        self._key = os.environ.get(settings.api_key_env, "")
        self._closed = False
        self._client = openai.OpenAI(
            base_url=settings.base_url,
            # The client insists on one; a server without keys ignores it.
            api_key=self._key or "none",
            max_retries=0,
            timeout=settings.timeout_s,
        )

    def models(self) -> tuple[Mapping[str, object], ...]:
        """What the server says that it serves, one map per model.

        Raises
        ------
        EngineError
            Nobody answers, or the answer is no list of models.
        """
        found = self._json(f"{self._where}/models")
        data = found.get("data") if isinstance(found, dict) else None
        if not isinstance(data, list):
            raise EngineError(
                "its answer to /models is not a list of models",
                where=self._where,
                hint="does the address end in /v1, and is it an OpenAI-compatible server?",
            )
        return tuple(one for one in data if isinstance(one, dict) and isinstance(one.get("id"), str))

    def page(self, path: str) -> Mapping[str, object]:
        """What a server of some kind says of itself at a path beside /v1; empty where it does not."""
        root = self._where.removesuffix("/v1")
        try:
            found = self._client.get(f"{root}{path}", cast_to=object)
        except (openai.OpenAIError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, object]],
        max_tokens: int,
        seed: int,
        tools: Sequence[Mapping[str, object]] = (),
        sampling: Mapping[str, float] = GREEDY,
    ) -> Answer:
        """One completion of a conversation; with tools, the model may call them.

        Raises
        ------
        ContextFull
            The conversation does not fit.
        EngineError
            The transport failed as often as allowed, or the answer is none.
        """
        request: dict[str, Any] = {
            "model": model,
            "messages": list(messages),
            "temperature": sampling["temperature"],
            "top_p": sampling["top_p"],
            "seed": seed,
            self._settings.limit_key: max_tokens,
        }
        if tools:
            request |= {"tools": list(tools), "tool_choice": "auto"}
        # top_k and min_p are no fields of OpenAI's own interface; llama-server and vLLM know them.
        beyond = {key: value for key, value in sampling.items() if key not in GREEDY}
        extra = {**self._settings.extra_fields(), **beyond}
        return self._answer(
            self._try(lambda: self._client.chat.completions.create(**request, extra_body=extra))
        )

    def close(self) -> None:
        """End all connections; requests that wait end with `Closed`."""
        self._closed = True
        self._client.close()

    def redact(self, text: str) -> str:
        """The text without the key, on one line, not longer than is of use."""
        if len(self._key) >= 3:
            text = text.replace(self._key, "***")
        text = " ".join(text.split())
        return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} …"

    def _json(self, url: str) -> object:
        return self._try(lambda: self._client.get(url, cast_to=object))

    def _try(self, request: Callable[[], T]) -> T:
        """Repeat a request while the transport fails, with growing pauses."""
        tries = self._settings.retries + 1
        for attempt in range(tries):
            if self._closed:
                raise Closed("the engine was closed", where=self._where)
            wait = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
            try:
                return request()
            except openai.APIStatusError as error:
                if _is_context(error):
                    raise ContextFull from None
                if error.status_code not in _TRANSPORT_STATUS:
                    raise self._refused(error) from None
                last, wait = f"HTTP {error.status_code}", max(wait, _asked_pause(error))
            except openai.APIConnectionError as error:
                last = self.redact(f"{error} ({error.__cause__})" if error.__cause__ else str(error))
            except (openai.OpenAIError, ValueError, TypeError) as error:
                # An answer came, but it cannot be read: asking again would hide a broken server.
                raise self._unreadable(str(error)) from None
            if attempt + 1 < tries:
                self._pause(wait)
        if self._closed:
            raise Closed("the engine was closed", where=self._where)
        raise EngineError(
            f"the server did not answer: {last}" + (f" ({tries} tries)" if tries > 1 else ""),
            where=self._where,
            hint="is it up? Finished episodes are kept: run the same command again",
        )

    def _answer(self, made: object) -> Answer:
        """Check and take over a completion: the client itself does not look at what a server sends."""
        choices = getattr(made, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise self._unreadable("there are no choices in it")
        message = getattr(choices[0], "message", None)
        text = getattr(message, "content", None)
        if message is None or not (text is None or isinstance(text, str)):
            raise self._unreadable("its first choice holds no text")
        finish, usage = getattr(choices[0], "finish_reason", None), getattr(made, "usage", None)
        details = getattr(usage, "completion_tokens_details", None)
        return Answer(
            text=well_formed(text or ""),
            cut=finish == "length",
            model=_text(getattr(made, "model", None)),
            fingerprint=_text(getattr(made, "system_fingerprint", None)),
            prompt_tokens=_count(getattr(usage, "prompt_tokens", None)),
            completion_tokens=_count(getattr(usage, "completion_tokens", None)),
            beside=beside_text(message, finish),
            calls=calls_of(message),
            thought_tokens=_count(getattr(details, "reasoning_tokens", None)),
        )

    def _refused(self, error: openai.APIStatusError) -> EngineError:
        hints = {
            401: f"put the key into the environment variable {self._settings.api_key_env}",
            403: f"may the key in {self._settings.api_key_env} use this model?",
            404: "is engine.server.model a model of this server, and does the address end in /v1?",
        }
        return EngineError(
            f"the server refused with HTTP {error.status_code}: {self.redact(error.message)}",
            where=self._where,
            hint=hints.get(error.status_code, "see the server's own log"),
        )

    def _unreadable(self, why: str) -> EngineError:
        return EngineError(
            f"the server's answer cannot be read: {self.redact(why)}",
            where=self._where,
            hint="see the server's own log; a cut or malformed answer is never a turn",
        )


def _is_context(error: openai.APIStatusError) -> bool:
    if error.status_code not in (400, 413, 500):
        return False
    words = error.message.casefold()
    return (error.code or error.type or "") in _CONTEXT_CODES or any(one in words for one in _CONTEXT_WORDS)


def _asked_pause(error: openai.APIStatusError) -> float:
    """Seconds that the server asks to wait, within bounds."""
    try:
        seconds = float(error.response.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE) if seconds == seconds else 0.0


def _text(value: object) -> str:
    return well_formed(value) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
