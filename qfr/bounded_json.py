"""Reads JSON of foreign origin: exact numbers, bounded depth and digits, nothing ambiguous.

The standard decoder does the reading; this module refuses what it would let pass (duplicate keys, NaN) and
what it would choke on (deep nesting, huge numbers). Nothing here raises on a text.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from qfr.canonical import Json, quote

MAX_DEPTH = 16
# Nesting of objects and arrays.
MAX_DIGITS = 40
# Digits of a number, and size of its exponent.

_TOO_DEEP = f"The turn is nested more than {MAX_DEPTH} levels deep."


@dataclass(frozen=True)
class Decoded:
    """Outcome of reading JSON at one place."""

    value: Json
    end: int
    # Where the value ends, or where reading failed.
    failed: str | None
    # Why no JSON value stands there.
    flaw: str | None
    # Why a JSON value stands there that is refused.


class Decoder:
    """Reads JSON values at places of one text, and notes what JSON's grammar leaves open."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._flaws: list[str] = []
        self._json = json.JSONDecoder(
            object_pairs_hook=self._pairs,
            parse_int=read_number,
            parse_float=read_number,
            parse_constant=self._constant,
        )

    def at(self, start: int) -> Decoded:
        self._flaws.clear()
        try:
            value, end = self._json.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            return Decoded(None, max(error.pos, start + 1), f"{error.msg} at character {error.pos + 1}", None)
        except RecursionError:
            return Decoded(None, len(self._text), None, _TOO_DEEP)
        if not self._flaws and _depth(value) > MAX_DEPTH:
            return Decoded(None, end, None, _TOO_DEEP)
        return Decoded(value, end, None, self._flaws[0] if self._flaws else None)

    def _pairs(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            self._flaws.append(f"The key {quote(twice)} stands twice in one object.")
        return value

    def _constant(self, name: str) -> None:
        self._flaws.append(f"{name} is not a JSON number.")


def _depth(value: Json) -> int:
    """Levels of nesting; recursion is bounded because the decoder's own recursion was."""
    level: list[Json] = [value]
    depth = 0
    while level:
        inner = [item for item in level if isinstance(item, dict | list)]
        level = [child for item in inner for child in (item.values() if isinstance(item, dict) else item)]
        depth += 1 if inner else 0
    return depth


def read_number(text: str) -> Decimal:
    """A JSON number as Decimal; NaN stands for one that exceeds the bounds."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa.lstrip("-").replace(".", "")) > MAX_DIGITS or len(exponent) > 4:
        return Decimal("NaN")
    return Decimal(text) if abs(int(exponent or 0)) <= MAX_DIGITS else Decimal("NaN")


def exceeds_bounds(value: Json) -> bool:
    """Some number in a value is out of bounds."""
    if isinstance(value, Decimal):
        return not value.is_finite()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(exceeds_bounds(item) for item in inner)
