"""Pieces of Markdown in which foreign text means only itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(inline(name) for name in head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(_cell(str(value)) for value in row) + " |"


def _cell(value: str) -> str:
    """Code spans and emphasis of our own stay; everything else is a plain text."""
    if re.fullmatch(r"`[^`]*`( \(\d+ cells\))?(; `[^`]*` \(\d+ cells\))*|\*\*\w+\*\*", value):
        return re.sub(r"(?<!\\)\|", r"\\|", value)
    return inline(value)


def inline(text: str) -> str:
    """A text that means only itself within a line of Markdown."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*\[\]<>|#~!]|(?<!\w)_|_(?!\w))", r"\\\1", one_line)


def span(text: str) -> str:
    """A text inside a code span."""
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|") or "–"


def fenced(text: str) -> Iterator[str]:
    """A block that holds the text as it is: its fence is longer than any in the text."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield text.removesuffix("\n")
    yield fence
