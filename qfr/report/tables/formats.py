"""How numbers and texts are written for a reader: percent, points, intervals, p values, counts, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable

NONE = "–"


def signed(points: float | None, digits: int = 1) -> str:
    """Return ``+27.5``, ``−3.3``, ``0.0``, or a dash for None."""
    if points is None:
        return NONE
    rounded = round(points, digits) + 0.0
    return f"{rounded:+.{digits}f}".replace("-", "−") if rounded else f"{0:.{digits}f}"


def ends(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval in points as ``[−12.5, 44.2]``; empty where there is none."""
    if low is None or high is None:
        return ""
    return f"[{signed(low, digits)}, {signed(high, digits)}]".replace("+", "")


def percent(rate: float | None, digits: int = 1) -> str:
    """Return a fraction as ``47.9 %``."""
    return NONE if rate is None else f"{100 * rate:.{digits}f} %"


def percents(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return an interval of fractions as ``[33.3 %, 61.0 %]``; empty where there is none."""
    return "" if low is None or high is None else f"[{percent(low, digits)}, {percent(high, digits)}]"


def p_value(p: float | None) -> str:
    """Return a p value as a reader wants it, never as 0."""
    if p is None:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def number(value: float | None, digits: int = 2) -> str:
    """Return ``1,234.50``."""
    return NONE if value is None else f"{value:,.{digits}f}"


def megabytes(size: float | None) -> str:
    """Return bytes as megabytes, ``8,541`` or ``12.3``; empty for nothing."""
    if not size:
        return ""
    return f"{size / 1e6:,.1f}" if size < 100e6 else f"{size / 1e6:,.0f}"


def listed(parts: Iterable[str]) -> str:
    """Return ``a, b and c``."""
    words = list(parts)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def counted(n: int, noun: str) -> str:
    """Return ``1 task``, ``1,200 tasks``."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


_SURROGATE = re.compile("[\ud800-\udfff]")


def spelled(text: str) -> str:
    """Return text with its lone surrogates as escapes, such as ``\\ud800``."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
