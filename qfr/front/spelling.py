"""A command line in the spelling that Hydra takes as it was meant.

Hydra reads `model.name=1e5` as a number and keeps 100000.0, merges a map into the one that stands there, and
knows `quant=q8_0` but not `quant=Q8_0`. Here a text stays the text that was typed, a map replaces, and a
choice is found whatever its case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from qfr.front.arguments import hydra_quote
from qfr.front.schema import holds_text, is_group, is_map, is_text

# Quoted texts, escapes and interpolations are taken whole; brackets, commas and colons one by one.
_PIECES = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\{[^{}]*\}|[][{}(),:]|[^][{}(),:'\"\\$]+|.", re.S
)
_ENDS = {"[": "]", "{": "}", "(": ")"}

# Names of a group's choices, empty for no group.
Choices = Callable[[str], Sequence[str]]


def choices_in(folders: Iterable[Path]) -> Choices:
    """Choices by the YAML files of configuration folders."""
    places = tuple(folders)

    def names(group: str) -> list[str]:
        return sorted({path.stem for folder in places for path in (folder / group).glob("*.yaml")})

    return names


def respell(arguments: Iterable[str], choices: Choices) -> list[str]:
    """The arguments, options included, with their values as they were meant.

    A file of one's own without a model is `model=local`, and not the default model with another file.
    """
    meant = [_argument(one, choices) for one in arguments]
    keys = {one.partition("=")[0].lstrip("+") for one in meant}
    if keys & {"model.path", "model.base"} and not keys & {"model", "experiment"}:
        meant.append("model=local")
    return meant


def replacing(arguments: Iterable[str]) -> list[str]:
    """Overrides by which Hydra, which merges maps, takes the old map away first."""
    out: list[str] = []
    for one in arguments:
        key, _, value = one.partition("=")
        if key.startswith("++") and is_map(key[2:]) and value.lstrip().startswith("{"):
            out += [f"~{key[2:]}", one[1:]]
        else:
            out.append(one)
    return out


def _argument(argument: str, choices: Choices) -> str:
    key, equals, value = argument.partition("=")
    bare = key.lstrip("+")
    if not equals or key.startswith(("-", "~")):
        return argument
    if is_map(bare) and value.lstrip().startswith("{"):
        key = f"++{bare}"
    if is_group(bare) or bare == "experiment":
        return f"{key}={_each_value(value, lambda text: _choice(text, choices(bare)))}"
    if bare == "tracking.root" and value.startswith("~/"):
        # A shell expands it only where a word begins.
        return f"{key}={hydra_quote(str(Path(value).expanduser()))}"
    meant = holds_text(bare) and (is_text(bare) or value.lstrip().startswith(("[", "{")))
    return f"{key}={_each_value(value, _as_text) if meant else value}"


def _choice(text: str, names: Sequence[str]) -> str:
    alike = [name for name in names if name.casefold() == text.casefold()]
    return _as_text(alike[0] if len(alike) == 1 and text not in names else text)


def _as_text(text: str) -> str:
    """In quotes where Hydra would read a number or a truth value."""
    try:
        value = OverridesParser.create().parse_override(f"x={text}").value()
    except HydraException:
        return text
    return f'"{text}"' if isinstance(value, bool | int | float) else text


def _each_value(raw: str, change: Callable[[str], str]) -> str:
    """Change every unquoted value of a list, of a map or of several choices; keys of maps stay."""
    out: list[str] = []
    open_: list[str] = []
    word = ""

    def flush(*, value: bool) -> None:
        nonlocal word
        text = word.strip()
        quoted = any(mark in text for mark in "'\"\\$")
        out.append(word if quoted or not text or not value else word.replace(text, change(text), 1))
        word = ""

    for piece in _PIECES.findall(raw):
        if piece == "(" and word.strip() != "choice":
            # Another function of Hydra's grammar says itself what it makes of its arguments.
            return raw
        if piece in _ENDS:
            flush(value=False)
            open_.append(_ENDS[piece])
        elif open_ and piece == open_[-1]:
            flush(value=True)
            open_.pop()
        elif piece == ",":
            flush(value=True)
        elif piece == ":" and open_ and open_[-1] == "}":
            flush(value=False)
        else:
            word += piece
            continue
        out.append(piece)
    flush(value=True)
    return "".join(out)
