"""A cell's configuration again, from what its run recorded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from qfr.canonical import quote
from qfr.config import CellConfig
from qfr.errors import ConfigError
from qfr.front.models import compose_cell
from qfr.identity import LATER_KEYS

T = TypeVar("T")


def recall(config: str, *, where: str) -> CellConfig:
    """Build the configuration that a run recorded as canonical JSON (`CellFacts.config`).

    Nothing in it is resolved or interpolated. Keys that came after the run get the value that reproduces the
    old behaviour; keys that are no part of a cell get today's default.

    Parameters
    ----------
    config : str
        As recorded.
    where : str
        Names the run in errors.

    Raises
    ------
    ConfigError
        It is no configuration of this version of qfr, or a value is out of its range.
    """
    try:
        raw = json.loads(config)
        return _build(CellConfig, raw, dataclasses.asdict(compose_cell()), "")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"its recorded configuration cannot be used here ({error})",
            where=where,
            hint="audit it with the qfr version that ran it",
        ) from None


def _build(kind: type[T], raw: object, defaults: Mapping[str, Any], prefix: str) -> T:
    if not isinstance(raw, dict):
        raise TypeError(f"{prefix.removesuffix('.') or 'it'} is no object")
    hints = get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(cast("Any", kind))]
    if unknown := set(raw) - set(fields):
        raise ValueError(f"{quote(prefix + min(unknown))} is unknown")
    values = {}
    for name in fields:
        key = prefix + name
        given = raw[name] if name in raw else LATER_KEYS.get(key, defaults.get(name))
        values[name] = _value(hints[name], given, defaults.get(name), key)
    return kind(**values)


def _value(hint: Any, raw: object, default: object, key: str) -> object:
    """One value, of the type that the schema gives it."""
    if get_origin(hint) is UnionType:
        if raw is None and NoneType in get_args(hint):
            return None
        hint = next(option for option in get_args(hint) if option is not NoneType)
    if hint is Any:
        return raw
    if get_origin(hint) is dict and isinstance(raw, dict):
        return {str(name): _value(get_args(hint)[1], item, {}, f"{key}.{name}") for name, item in raw.items()}
    if get_origin(hint) is list and isinstance(raw, list):
        return [_value(get_args(hint)[0], item, {}, key) for item in raw]
    if dataclasses.is_dataclass(hint):
        return _build(
            cast("type[object]", hint), raw, default if isinstance(default, dict) else {}, f"{key}."
        )
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if raw not in list(hint):
            raise ValueError(f"{key} is {quote(str(raw))}")
        return hint(str(raw))
    if hint is float and type(raw) is int:
        return float(raw)
    if type(raw) is not hint:
        raise TypeError(f"{key} is not of type {getattr(hint, '__name__', hint)}")
    return raw
