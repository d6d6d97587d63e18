"""Hydra's own errors in our words: what, where, the choices, the nearest name."""

from __future__ import annotations

import re

from hydra.errors import HydraException, MissingConfigException, SearchPathException
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from qfr.errors import ConfigError, did_you_mean
from qfr.front.compose import explain_value
from qfr.front.schema import unknown_key

_NO_CHOICE = re.compile(r"In '(?P<file>[^']*)': Could not find '(?P<path>[^']*)'")
_NO_KEY = re.compile(r"Could not (?:override|delete from config\.) '(?P<key>[^']*)'")
_OPTIONS = re.compile(r"Available options in '[^']*':\n(?P<options>(?:\t[^\n]*\n?)*)")


def explain(error: HydraException | OmegaConfBaseException) -> ConfigError:
    """Turn an error of Hydra or OmegaConf into one clear message."""
    text = str(error)
    if isinstance(error, MissingConfigException):
        return _missing(error, text)
    if isinstance(error, SearchPathException):
        folder = text.partition("'")[2].rpartition("'")[0]
        return ConfigError(
            f"there is no folder {folder!r}",
            where="--config-dir",
            hint="give a folder with model/, quant/, prompt/ …",
        )
    if (found := _NO_KEY.search(text)) is not None:
        what, hint = unknown_key(found["key"])
        return ConfigError(what, hint=hint)
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        told = explain_value(cause)
        where = text.partition("\n")[0] or None if cause is not error else None
        return ConfigError(told.what, where=where, hint=told.hint)
    if "Ambiguous value" in text or "requires --multirun" in text:
        return ConfigError(
            "a list of choices is a grid, and --cfg shows one cell", hint="mode=plan shows the grid"
        )
    lines = [line for line in text.splitlines() if line.strip() and "hydra.cc" not in line]
    return ConfigError(lines[0], hint="; ".join(line.strip() for line in lines[1:]) or None)


def explain_yaml(error: YAMLError) -> ConfigError:
    """Name the file, line and column of a YAML file that cannot be read."""
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    where = None if mark is None else f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}"
    problem = error.problem if isinstance(error, MarkedYAMLError) else str(error)
    return ConfigError(
        f"this YAML cannot be read: {problem}", where=where, hint="texts with ':' or '#' need quotes"
    )


def _missing(error: MissingConfigException, text: str) -> ConfigError:
    found = _NO_CHOICE.search(text)
    path = found["path"] if found else str(error.missing_cfg_file)
    group, _, name = path.rpartition("/")
    listed = _OPTIONS.search(text)
    options = [line.strip() for line in listed["options"].splitlines()] if listed else []
    where = f"{found['file']}.yaml" if found and found["file"] not in ("config", "hydra/config", "") else None
    if not options:
        return ConfigError(
            f"there is no configuration {path!r}", where=where, hint="look into conf/ and --config-dir"
        )
    return ConfigError(
        f"{group}={name}: there is no such choice{did_you_mean(name, options)}",
        where=where,
        hint="choices: " + ", ".join(options),
    )
