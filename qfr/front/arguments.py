"""Checks of the command line that need no configuration, and the quoting that a shell and Hydra both take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException

from qfr.errors import ConfigError
from qfr.front.schema import is_group

# Set by the sweeper for its jobs.
_OURS = ("walk", "sweep")

# One per sweep: they say what is done with the grid and where it is written.
_ONE_PER_SWEEP = ("mode", "tracking", "report", "registration", "exclude")

_PATHS = (
    "model.path",
    "model.base",
    "model.folder",
    "prompt.file",
    "quant.imatrix",
    "registration.hypotheses",
)

# Fastest last: a loaded model serves all prompts, a clean pass all faults.
_ORDER = ("engine", "model", "quant", "suite", "executor", "trial", "prompt", "fault")


def check_arguments(arguments: Sequence[str]) -> None:
    """Parse the overrides of a command line and refuse what can never work.

    Raises
    ------
    ConfigError
        Bad grammar (with the right quoting), or a key that is not the user's to set.
    """
    check_overrides(parse(arguments))


def parse(arguments: Sequence[str]) -> list[Override]:
    """Parse overrides one by one.

    Raises
    ------
    ConfigError
        An override that Hydra's grammar does not take; the hint shows the right quoting.
    """
    parser = OverridesParser.create()
    parsed: list[Override] = []
    for at, argument in enumerate(arguments):
        try:
            parsed += parser.parse_overrides([argument])
        except OverrideParseException as error:
            raise _unreadable(argument, arguments[at + 1 :]) from error
        except HydraException as error:
            raise ConfigError(str(error).partition("\n")[0], where=f"override {argument!r}") from error
    return parsed


def check_overrides(overrides: Iterable[Override]) -> None:
    """Refuse overrides of keys that are not the user's to set or to sweep over.

    Raises
    ------
    ConfigError
        Says which override and what to write instead.
    """
    for override in overrides:
        key = base_key(override)
        group = key.partition(".")[0]
        if override.is_delete():
            raise ConfigError(
                f"~{key}: keys cannot be removed", hint=f"set it: {key}=null where null is allowed"
            )
        if key in _OURS:
            raise ConfigError(f"{key} is set by the sweeper for its jobs", hint=f"leave {key}=… out")
        if override.value() is None and (key == "experiment" or is_group(key)):
            raise ConfigError(
                f"{key}=null is not possible", hint="choose one, or leave it out for the default"
            )
        if not override.is_sweep_override():
            if key == "hydra.mode" and override.value() != "MULTIRUN":
                raise ConfigError(
                    f"{override.input_line}: the checks of the grid run with hydra.mode=MULTIRUN",
                    hint="leave it out: one cell runs without it too",
                )
            continue
        if not override.is_discrete_sweep():
            raise ConfigError(
                f"{override.input_line}: a grid has no intervals", hint="list the values: KEY=A,B,C"
            )
        if key == "experiment":
            raise ConfigError(
                f"{override.input_line}: experiments cannot be swept over",
                hint="run one command per experiment",
            )
        text = (override.input_line or "").partition("=")[2]
        if group in _ONE_PER_SWEEP:
            raise ConfigError(f"{override.input_line}: {group} is one per sweep", hint="give one value")
        if key in _PATHS and Path(text).expanduser().exists():
            raise ConfigError(
                f"{override.input_line}: the comma makes several values of this path",
                hint="both quotes keep it one: " + quote_override(key, text),
            )


def base_key(override: Override) -> str:
    """The key without `+` and `++`."""
    return str(override.key_or_group)


def in_job_order(overrides: Iterable[Override]) -> list[Override]:
    """Sort overrides so that the product runs through faults and prompts first, presets and models last."""

    def rank(override: Override) -> int:
        group = base_key(override).partition(".")[0]
        return _ORDER.index(group) + 1 if group in _ORDER else 0

    return sorted(overrides, key=rank)


def quote_override(key: str, value: str) -> str:
    """An override as it must be typed into a shell so that the value arrives character for character.

    >>> quote_override("model.path", "/a b/c=d.gguf")
    '\\'model.path="/a b/c=d.gguf"\\''
    """
    return shlex.quote(f"{key}={hydra_quote(value)}")


def hydra_quote(value: str) -> str:
    """A text as a quoted string of Hydra's override grammar (interpolations escaped)."""
    pieces: list[str] = []
    backslashes = 0
    for char in re.sub(r"(\\*)\$\{", r"\1\1\\${", value):
        if char == "\\":
            backslashes += 1
            continue
        # Backslashes count twice only where a quote follows.
        pieces.append("\\" * (2 * backslashes + 1 if char == '"' else backslashes) + char)
        backslashes = 0
    return '"' + "".join(pieces) + "\\" * (2 * backslashes) + '"'


def _unreadable(argument: str, following: Sequence[str]) -> ConfigError:
    key, equals, value = argument.partition("=")
    if argument.endswith(",") and key and equals:
        more: list[str] = []
        for word in following:
            if "=" in word:
                break
            more.append(word)
        joined = "".join([argument, *more]).rstrip(",")
        return ConfigError(
            f"{argument!r} ends in a comma: the shell parts words at blanks",
            hint=f"write the list without blanks: {joined}",
        )
    if not key or not equals or (not value and following and "=" not in following[0]):
        return ConfigError(
            f"{argument!r} is not an override",
            hint="write KEY=VALUE without blanks around '='; a value with blanks needs both quotes: "
            + quote_override("KEY", "a value"),
        )
    if key.startswith("-"):
        return ConfigError(f"{argument!r} is not an option", hint="`--help` lists the options")
    value = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    return ConfigError(
        f"the override {argument!r} cannot be read",
        hint="blanks, '=', ',', '#' and other special characters need both quotes: "
        + quote_override(key, value),
    )
