"""A word on prompts that look like templates: nothing in a prompt is ever filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qfr.canonical import quote
from qfr.front.grid import GridCell
from qfr.prompts import Prompt

# {{ tools }}, ${tools}, {tools}, %(tools)s, <<tools>>; an example of JSON is none of these.
_PLACEHOLDER = re.compile(
    r"\{\{\s*[\w.]{1,40}\s*\}\}|\$\{[\w.:]{1,40}\}|(?<![{$])\{[A-Za-z_]\w{0,39}\}(?!\})|%\(\w{1,40}\)s|<<\w{1,40}>>"
)
_MOST = 5


def placeholders(prompt: Prompt) -> tuple[str, ...]:
    """What a reader would take for a place to be filled in, each once, in the order of the text."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(prompt.text)))


def prompt_lines(cells: Iterable[GridCell]) -> list[str]:
    """One line for each prompt of a grid that holds placeholders."""
    lines: dict[str, str] = {}
    for cell in cells:
        found = placeholders(cell.design.prompt)
        if found:
            named = ", ".join(map(quote, found[:_MOST])) + (" …" if len(found) > _MOST else "")
            lines[cell.design.prompt.sha256] = (
                f"prompt {cell.config.prompt.name} holds {named}: nothing is filled in, the model reads the"
                " file's very bytes; write the text itself if that is not meant"
            )
    return list(lines.values())
