"""JSON of foreign origin: read once, walked with a path in hand so that a complaint names its place."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qfr.errors import LogError, did_you_mean

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

LARGEST_FILE = 2 * 1024**3
# Bytes of one file. Larger runs come in folder form, one file per simulation.
LARGEST_NUMBER = 300
# Digits of an integer; longer ones are kept as text.

# Provider payloads and audio repeat each message many times over; nothing here reads them.
_HEAVY = ("audio_content", "audio_format", "speech_effects", "source_effects", "channel_effects")
_STOPS = ("finish_reason", "stop_reason")
_ROLES = ("assistant", "user", "system", "tool")


def shown(text: str, limit: int = 60) -> str:
    """A foreign text in quotation marks for a message: cut, printable ASCII only."""
    return ascii(text if len(text) <= limit else text[:limit] + "…")


@dataclass(frozen=True)
class Node:
    """One JSON value and where it stands."""

    value: Json
    source: str
    # File name.
    path: str
    # Such as ``simulations[3].messages[14].role``; empty for the whole file.

    @property
    def where(self) -> str:
        """`results.json: simulations[3].role`."""
        return f"{self.source}: {self.path}" if self.path else self.source

    @property
    def missing(self) -> bool:
        """Null or absent."""
        return self.value is None

    def wrong(self, what: str, hint: str | None = None) -> LogError:
        """The error to raise about this value."""
        return LogError(what, where=self.where, hint=hint)

    def get(self, key: str) -> Node:
        """Return a value of this object, null when the key is absent."""
        return Node(self._object().get(key), self.source, f"{self.path}.{key}" if self.path else key)

    def need(self, key: str) -> Node:
        """Return a value of this object. Raises `LogError` when the key is absent or null."""
        found = self.get(key)
        if found.missing:
            keys = self._object()
            state = "is null" if key in keys else f"is missing{did_you_mean(key, keys)}"
            raise self.wrong(f"the key {key!r} {state}", "the file is damaged or of another format")
        return found

    def items(self) -> Iterator[Node]:
        """Iterate over this list; null counts as empty."""
        if self.missing:
            return
        if not isinstance(self.value, list):
            raise self._not("a list")
        for at, value in enumerate(self.value):
            yield Node(value, self.source, f"{self.path}[{at}]")

    def drain(self) -> Iterator[Node]:
        """As `items`, but each value is let go once it was visited."""
        for at, node in enumerate(self.items()):
            if isinstance(self.value, list):
                self.value[at] = None
            yield node

    def keys(self) -> tuple[str, ...]:
        """Keys of this object; null counts as empty."""
        return () if self.missing else tuple(self._object())

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self._not("a string")
        return self.value

    def text_or(self, default: str) -> str:
        """Return a string, or the default for null."""
        return default if self.missing else self.text()

    def name(self) -> str:
        """Return an id that files write as a string or as an integer."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return str(self.value)
        return self.text()

    def name_or(self, default: str) -> str:
        """Return an id, or the default for null."""
        return default if self.missing else self.name()

    def flag_or(self, default: bool) -> bool:
        """Return a boolean, or the default for null."""
        if self.missing:
            return default
        if not isinstance(self.value, bool):
            raise self._not("true or false")
        return self.value

    def count_or(self, default: int, largest: int = 10**6) -> int:
        """Return a whole number from 0 to `largest`, or the default for null."""
        return default if self.missing else self.count(largest)

    def count(self, largest: int = 10**6) -> int:
        """Return a whole number from 0 to `largest`."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._not("a whole number")
        if not 0 <= value <= largest:
            raise self.wrong(f"{value} is not between 0 and {largest}")
        return value

    def whole_or_none(self) -> int | None:
        """Return an integer of any sign, None for anything else: for fields that are only carried along."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    def number(self) -> float:
        """Return a finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self._not("a number")
        if not -1e15 < self.value < 1e15:
            raise self.wrong("the number is out of all range")
        return float(self.value)

    def _object(self) -> dict[str, Json]:
        if not isinstance(self.value, dict):
            raise self._not("an object")
        return self.value

    def _not(self, wanted: str) -> LogError:
        names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
        found = names.get(type(self.value), "a number")
        return self.wrong(
            f"{wanted} is expected here, not {found}", "the file is damaged or of another format"
        )


@dataclass(frozen=True)
class Loaded:
    """A file, read."""

    root: Node
    sha256: str


def load(path: Path, name: str | None = None) -> Loaded:
    """Read one JSON file.

    Parameters
    ----------
    name : str, optional
        What messages call the file; its own name by default.

    Raises
    ------
    LogError
        The file cannot be read, is too large, is not UTF-8, is no JSON, or is nested too deeply.
    """
    source = shown_name(name or path.name)
    try:
        if not path.is_file():
            raise LogError("no such file" if not path.exists() else "not a plain file", where=str(path))
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise LogError(
                f"{size} bytes are too many for one file",
                where=source,
                hint="save the run in folder form (results.json and simulations/), or split it by task",
            )
        data = path.read_bytes()
    except OSError as error:
        raise LogError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    digest = hashlib.sha256(data).hexdigest()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LogError(
            "not UTF-8 text", where=f"{source}, line {line}", hint="is it compressed, or a binary file?"
        ) from None
    del data
    return Loaded(Node(parse(text, source), source, ""), digest)


def parse(text: str, source: str) -> Json:
    """Parse JSON text. NaN and infinities become null, numbers beyond all range text. Raises `LogError`."""
    try:
        value: Json = json.loads(
            text, object_hook=_lighten, parse_int=_integer, parse_float=_float, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise LogError(
            f"no JSON: {error.msg}",
            where=f"{source}, line {error.lineno}, column {error.colno}",
            hint=_why(text, error),
        ) from None
    except RecursionError:
        raise LogError("nested too deeply", where=source, hint="the file is no log") from None
    return value


def shown_name(name: str) -> str:
    """A file name fit for a message."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def combined(digests: Iterable[str]) -> str:
    """One digest for several files, in their order."""
    return hashlib.sha256("\n".join(digests).encode("ascii")).hexdigest()


def _why(text: str, error: json.JSONDecodeError) -> str:
    if not text.strip():
        return "the file is empty"
    if error.msg == "Extra data":
        return "one JSON document per file is expected; is this JSON Lines?"
    if error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated string"):
        return "the file seems to be cut off; copy it again, or let the run finish"
    return "the file is damaged"


def _lighten(value: dict[str, Json]) -> dict[str, Json]:
    """Let go of what no reader needs while the file is being parsed, so that memory stays near its text.

    Only objects that look like messages are touched.
    """
    if "content" not in value or value.get("role") not in _ROLES:
        return value
    raw = value.get("raw_data")
    if isinstance(raw, dict):
        value["raw_data"] = {key: raw[key] for key in _STOPS if isinstance(raw.get(key), str)}
    for key in _HEAVY:
        value.pop(key, None)
    return value


def _integer(digits: str) -> Json:
    return int(digits) if len(digits) <= LARGEST_NUMBER else digits


def _float(digits: str) -> Json:
    value = float(digits)
    return value if math.isfinite(value) else digits


def _constant(_name: str) -> None:
    return None
