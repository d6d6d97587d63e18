"""Canonical JSON and digests: one text for one value, so that equal things have equal hashes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

# A JSON value as it is read; numbers are Decimal so that no digit is lost.
Json = None | bool | str | Decimal | list["Json"] | dict[str, "Json"]

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def canonical(value: object) -> str:
    """Canonical JSON text: sorted keys, no blanks, ASCII only (lone surrogates survive as escapes).

    Decimals are written in their own digits. Raises ValueError for NaN and infinities, TypeError for what
    JSON cannot hold.
    """
    try:
        return _dumps(value)
    except TypeError:
        # The standard encoder cannot write a Decimal in its own digits.
        return _with_decimals(value)


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _with_decimals(value: object) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no JSON number")
        return str(value)
    if isinstance(value, dict):
        inside = (f"{_dumps(str(key))}:{_with_decimals(value[key])}" for key in sorted(value))
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_with_decimals(item) for item in value) + "]"
    return _dumps(value)


def sha256_hex(data: bytes) -> str:
    """SHA-256 as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return sha256_hex(canonical(value).encode("ascii"))


def readable(value: Json | Mapping[str, Json]) -> str:
    """JSON text for a model to read: keys in the given order, a blank after ``,`` and ``:``.

    No escapes except those that JSON demands and lone surrogates, which no encoding can carry.
    """
    if isinstance(value, Decimal):
        return canonical(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{readable(key)}: {readable(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(readable(item) for item in value) + "]"
    return _SURROGATE.sub(lambda hit: f"\\u{ord(hit[0]):04x}", json.dumps(value, ensure_ascii=False))


def read_json(text: str) -> Json:
    """Read JSON text of our own making, numbers as Decimal. A model's text goes through `qfr.protocol`.

    Raises ValueError for what is not JSON (NaN and the infinities are not).
    """
    value: Json = json.loads(text, parse_int=_decimal, parse_float=_decimal, parse_constant=_refuse)
    return value


def quote(text: str, limit: int = 60) -> str:
    """A text of foreign origin in quotation marks, cut to `limit` characters, fit for a message."""
    return f"'{text if len(text) <= limit else text[:limit] + '…'}'"


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation as error:
        raise ValueError("the exponent of a number is out of all range") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")
