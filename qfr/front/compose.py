"""From Hydra's composed configuration to plain, closed, checked dataclasses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from qfr.config import CellConfig
from qfr.errors import ConfigError, did_you_mean
from qfr.front.schema import is_free, is_switch, type_words, unknown_key


def to_cell(cfg: DictConfig) -> CellConfig:
    """Merge a composed configuration onto the closed schema.

    Hydra lets `+typo=1` and `++typo=1` pass even on a structured configuration; a strict merge onto a fresh
    one does not.

    Parameters
    ----------
    cfg : DictConfig
        The composed configuration, with or without Hydra's own node (which is left out).

    Raises
    ------
    ConfigError
        Unknown key, missing key, wrong type, a value out of its choices or range.
    """
    try:
        own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
        plain = OmegaConf.to_container(own, resolve=True)
        merged = OmegaConf.merge(OmegaConf.structured(CellConfig), plain)
        _check_switches(plain)
        cell = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise explain_value(error, cfg) from error
    assert isinstance(cell, CellConfig)
    return cell


def explain_value(error: OmegaConfBaseException, cfg: DictConfig | None = None) -> ConfigError:
    """Say what OmegaConf found, with key, value, choices and the nearest name."""
    key = error.full_key or ""
    if isinstance(error, ConfigKeyError | ConfigAttributeError):
        what, hint = unknown_key(key)
        return ConfigError(what, hint=hint)
    if isinstance(error, MissingMandatoryValue):
        return ConfigError(
            f"{key} is missing", hint="give it in the YAML of its group or on the command line"
        )
    first = str(error).partition("\n")[0]
    if isinstance(error, ValidationError) and key:
        value = _named_value(first) if cfg is None else OmegaConf.select(cfg, key, throw_on_missing=False)
        choices, words = _choices(first), type_words(key)
        near = did_you_mean(str(value), choices)
        wanted = f"use one of {', '.join(choices)}" if choices else f"use {words}"
        return ConfigError(
            f"{key}={_shown(value)} is not possible{near}", hint=wanted if words or choices else first
        )
    return ConfigError(f"{key}: {first}" if key else first)


def _choices(message: str) -> list[str]:
    """The names in OmegaConf's ``expected one of [a, b]``."""
    inside = message.partition("expected one of [")[2].rpartition("]")[0]
    return [name.strip() for name in inside.split(",")] if inside else []


def _named_value(message: str) -> str | None:
    found = re.search(r"[Vv]alue '([^']*)'", message)
    return found[1] if found else None


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)


def _check_switches(plain: object) -> None:
    """OmegaConf takes any number for true or false, and true for 1; we do not."""
    for key, value in _leaves(plain, ""):
        if is_free(key):
            continue
        if is_switch(key) != isinstance(value, bool) and isinstance(value, bool | int | float):
            raise ConfigError(
                f"{key}={value!r} is not possible", hint=f"use {type_words(key) or 'another type'}"
            )


def _leaves(node: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node
