"""Canonical JSON and digests: one text for one value, so that equal things have equal hashes."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal


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
