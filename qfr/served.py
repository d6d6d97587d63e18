"""Settings of models that an OpenAI-compatible server holds.

As in `qfr.config`, the class carries no default. Keys and passwords never stand in a configuration: it is
logged with every run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from qfr.choices import aside, check_at_least, identity
from qfr.errors import ConfigError

# What a request holds already, and what would change how answers are read.
_OURS = ("model", "messages", "temperature", "top_p", "n", "seed", "max_tokens", "max_completion_tokens")
_REFUSED = (*_OURS, "stream", "tools", "functions", "logprobs")


@dataclass
class ServerConfig:
    """An OpenAI-compatible server (engine=openai)."""

    base_url: str | None = aside()
    # http://host:port/v1, without user name or password.
    name: str | None = identity()
    # What the server is called in a cell's identity; null = its address.
    model: str | None = identity()
    # The model's name at the server; null = the only one that it serves.
    api_key_env: str = aside()
    # Environment variable that holds the key; unset = the server asks for none.
    concurrency: int = aside()
    # Tasks played at the same time.
    retries: int = aside()
    # After a failure of the transport, with growing pauses.
    timeout_s: float = aside()
    # Of one answer, in seconds.
    limit_key: str = aside()
    # How the request names the limit of tokens: max_tokens or max_completion_tokens.
    request: str = identity()
    # Further fields of every request, a JSON object in a text.

    def __post_init__(self) -> None:
        check_at_least("engine.server.concurrency", self.concurrency, 1)
        check_at_least("engine.server.retries", self.retries, 0)
        if not self.timeout_s > 0:
            raise ConfigError(
                f"engine.server.timeout_s={self.timeout_s} is not possible", hint="seconds above 0"
            )
        if self.limit_key not in ("max_tokens", "max_completion_tokens"):
            raise ConfigError(
                f"engine.server.limit_key={self.limit_key!r} is not possible",
                hint="use one of max_tokens, max_completion_tokens",
            )
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.api_key_env):
            # Whoever writes the key itself here must not find it in a message.
            raise ConfigError(
                "engine.server.api_key_env is not the name of an environment variable",
                hint="name the variable that holds the key, never the key: OPENAI_API_KEY",
            )
        if self.base_url is not None:
            self.base_url = checked_url(self.base_url)
        self.extra_fields()

    def extra_fields(self) -> dict[str, object]:
        """The further fields of a request.

        Raises
        ------
        ConfigError
            It is no JSON object, or names a field that is set already.
        """
        try:
            fields = json.loads(self.request, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"engine.server.request is not JSON ({error})", hint="for example '{\"top_k\": 1}'"
            ) from None
        if not isinstance(fields, dict):
            raise ConfigError(
                "engine.server.request is not a JSON object", hint="for example '{\"top_k\": 1}'"
            )
        taken = [key for key in fields if key in _REFUSED]
        if taken:
            raise ConfigError(
                f"engine.server.request names {taken[0]!r}",
                hint="these are set already or would change how an answer is read: " + ", ".join(_REFUSED),
            )
        return fields

    @property
    def identity_name(self) -> str:
        """What the server is called in a cell's identity."""
        return self.name or self.base_url or ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def checked_url(url: str) -> str:
    """The address in one spelling.

    Raises
    ------
    ConfigError
        It is no http(s) address, or holds a user name, a password, a query or a fragment. The message does
        not repeat it then.
    """
    hint = "http://host:port/v1; a key goes into the environment variable engine.server.api_key_env"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("engine.server.base_url is not an address", hint=hint) from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            "engine.server.base_url holds a user name, a password or a query, and would be logged", hint=hint
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("engine.server.base_url is not an http:// or https:// address", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
