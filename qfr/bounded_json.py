"""Reads JSON of foreign origin: exact numbers, bounded depth and digits, nothing ambiguous.

The standard decoder does the reading; this module refuses what it would let pass (duplicate keys, NaN) and
what it would choke on (deep nesting, huge numbers). Nothing here raises on a text, and what is said of a text
does not depend on the version of Python.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from qfr.canonical import Json, quote

MAX_DEPTH = 16
# Nesting of objects and arrays.
MAX_DIGITS = 40
# Digits of a number, and size of its exponent.
MAX_WORK = 131_072
# Characters looked at before a text is given up, all places together.

# Strings (the last one may lack its end) and brackets; possessive, so that no text is read twice.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True)
class Decoded:
    """Outcome of reading JSON at one place."""

    found: bool
    # A JSON value stands there.
    value: Json
    end: int
    # Where the value ends, or where reading failed.
    flaw: str | None
    # Why the value is refused although its grammar may be JSON's.
    closed: int = 0
    # Where the brackets that open here are closed again; 0 where they never are.


class Decoder:
    """Reads JSON values at places of one text, and notes what JSON's grammar leaves open."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._flaws: list[str] = []
        self._closed = 0
        # Characters looked at so far.
        self.work = 0
        self._json = json.JSONDecoder(
            object_pairs_hook=self._pairs,
            parse_int=read_number,
            parse_float=read_number,
            parse_constant=self._constant,
        )

    def at(self, start: int) -> Decoded:
        """Read the value that starts at `start`."""
        refused = self._refused(start)
        if refused is not None:
            return Decoded(True, None, len(self._text), refused)
        self._flaws.clear()
        try:
            value, end = self._json.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            return Decoded(False, None, max(error.pos, start + 1), None, self._closed)
        return Decoded(True, value, end, self._flaws[0] if self._flaws else None)

    def _refused(self, start: int) -> str | None:
        """Why the value at `start` is not even tried: it opens too many brackets before it closes its first.

        Looked at before decoding, since the decoder's own limit is the stack and differs between versions of
        Python.
        """
        if self.work > MAX_WORK:
            return "The turn has too many brackets and quotation marks."
        depth, end, self._closed = 0, len(self._text), 0
        for mark in _MARKS.finditer(self._text, start):
            depth += (mark[0] in "[{") - (mark[0] in "]}")
            if depth <= 0 or depth > MAX_DEPTH:
                end = mark.end()
                self._closed = end if depth <= 0 else 0
                break
        self.work += end - start
        return f"The turn is nested more than {MAX_DEPTH} levels deep." if depth > MAX_DEPTH else None

    def _pairs(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            self._flaws.append(f"The key {quote(twice)} stands twice in one object.")
        return value

    def _constant(self, name: str) -> None:
        self._flaws.append(f"{name} is not a JSON number.")


def read_number(text: str) -> Decimal:
    """A JSON number as Decimal; NaN stands for one that exceeds the bounds."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa.lstrip("-").replace(".", "")) > MAX_DIGITS or len(exponent) > 4:
        return Decimal("NaN")
    return Decimal(text) if abs(int(exponent or 0)) <= MAX_DIGITS else Decimal("NaN")


def exceeds_bounds(value: Json) -> bool:
    """Some number in a value that was read here is out of bounds."""
    if isinstance(value, Decimal):
        return not value.is_finite()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(exceeds_bounds(item) for item in inner)
