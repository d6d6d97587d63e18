"""Whether a prompt is for the world at hand, and a word on prompts that look like templates: nothing in a
prompt is ever filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import yaml

from qfr.canonical import quote
from qfr.config import CellConfig, ExecutorKind
from qfr.errors import ConfigError
from qfr.grid.checks import build_world
from qfr.places import conf_folder
from qfr.prompts import Prompt

if TYPE_CHECKING:
    from qfr.grid.grid import GridCell

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
        if cell.config.executor.kind is ExecutorKind.native and not cell.config.prompt.bare:
            lines[f"native {cell.design.prompt.sha256}"] = (
                f"prompt {cell.config.prompt.name} is played natively as it is; if it describes tools and "
                "the form of a call, the model is told two forms: N0 to N4 leave that to the chat template"
            )
    return list(lines.values())


def check_prompt_fits(cell: CellConfig) -> None:
    """Refuse a prompt that is written for other worlds.

    Raises
    ------
    ConfigError
        Names the world, the prompt's worlds and the prompts that fit.
    """
    prompt, suite = cell.prompt, cell.suite
    world = {suite.world, build_world(suite).name}
    if prompt.worlds is None or world & set(prompt.worlds):
        return
    fit = [name for name, worlds in _declared() if world & set(worlds)]
    raise ConfigError(
        f"prompt={prompt.name} is written for {', '.join(prompt.worlds)}, and suite={suite.name} is of the "
        f"world {suite.world}",
        hint=f"prompt={','.join(fit)}"
        if fit
        else "a prompt of your own: prompt.file=FILE prompt.name=NAME prompt.worlds=null; prompt.tools=true "
        "appends the world's tools",
    )


def _declared() -> list[tuple[str, list[str]]]:
    """The prompts of the configuration and the worlds that they are for."""
    read = {
        path.stem: yaml.safe_load(path.read_text("utf-8")) for path in conf_folder().glob("prompt/*.yaml")
    }
    return sorted((name, list(prompt.get("worlds") or ())) for name, prompt in read.items())
