"""A bounded evaluator for the arithmetic that models submit instead of a number (Hu 2026, section 3).

Grammar: decimals (``12``, ``12.5``, ``.5``, ``5.``), ``+ - * /``, unary minus, parentheses, blanks.
Everything is exact (`fractions.Fraction`). Powers, names, exponents, thousands separators, currency and
percent signs are not arithmetic here. Work is bounded by the length of the text, the digits of a number and
the depth of parentheses, so that no text can cost more than a millisecond.
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS = 200
MAX_DIGITS = 20
MAX_DEPTH = 20

_TOKEN = re.compile(r"[ \t\r\n]*(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)|([-+*/()]))")


class _NotArithmetic(Exception):
    """The text is no arithmetic within the bounds. Never leaves this module."""


def evaluate(text: str) -> Fraction | None:
    """Value of an arithmetic text, None when it is none (or divides by zero, or exceeds a bound)."""
    try:
        reader = _Reader(_tokens(text))
        value = reader.sum(0)
        return value if reader.at_end else None
    except _NotArithmetic:
        return None


def _tokens(text: str) -> list[str]:
    if len(text) > MAX_CHARS:
        raise _NotArithmetic
    text = text.rstrip(" \t\r\n")
    found: list[str] = []
    position = 0
    while position < len(text):
        hit = _TOKEN.match(text, position)
        if hit is None or len((hit[1] or "").replace(".", "")) > MAX_DIGITS:
            raise _NotArithmetic
        found.append(hit[1] or hit[2])
        position = hit.end()
    return found


class _Reader:
    """Recursive descent over the tokens; the depth of parentheses is bounded."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def _take(self, wanted: str) -> str | None:
        """The next token when it is one of the characters wanted."""
        if self.at_end or self._tokens[self._next] not in wanted:
            return None
        self._next += 1
        return self._tokens[self._next - 1]

    def sum(self, depth: int) -> Fraction:
        total = self._product(depth)
        while sign := self._take("+-"):
            term = self._product(depth)
            total = total + term if sign == "+" else total - term
        return total

    def _product(self, depth: int) -> Fraction:
        total = self._signed(depth)
        while sign := self._take("*/"):
            factor = self._signed(depth)
            if sign == "/" and factor == 0:
                raise _NotArithmetic
            total = total * factor if sign == "*" else total / factor
        return total

    def _signed(self, depth: int) -> Fraction:
        negative = False
        while self._take("-"):
            negative = not negative
        value = self._atom(depth)
        return -value if negative else value

    def _atom(self, depth: int) -> Fraction:
        if self._take("("):
            if depth >= MAX_DEPTH:
                raise _NotArithmetic
            value = self.sum(depth + 1)
            if not self._take(")"):
                raise _NotArithmetic
            return value
        if self.at_end or self._tokens[self._next] in "+-*/()":
            raise _NotArithmetic
        self._next += 1
        return Fraction(self._tokens[self._next - 1])
