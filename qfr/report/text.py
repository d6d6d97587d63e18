"""Texts of models and files, made fit for files and pages."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def spelled(text: str) -> str:
    """Return text with its lone surrogates as escapes, such as ``\\ud800``."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
