"""Records from plain JSON: every field of its declared type, nothing unknown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

# Reads a value of one type from what JSON gave; the name is for errors.
_Read = Callable[[object, str], object]


@dataclass(frozen=True)
class _Field:
    label: str
    read: _Read
    optional: bool
    # It has a default, which stands for it where it is left out.


def build(kind: type[T], raw: object) -> T:
    """A record from what JSON gave.

    Parameters
    ----------
    kind : type
        A dataclass whose fields are texts, numbers, truth values, `StrEnum`s, dataclasses like it, tuples or
        maps of one of these, or one of these or None.
    raw : object
        As `json.loads` gives it.

    Raises
    ------
    TypeError, ValueError
        A field is missing, unknown, of another type, or no finite number.
    """
    if not isinstance(raw, Mapping):
        raise TypeError(f"{kind.__name__} is not an object")
    fields = _fields(cast("Any", kind))
    missing = [name for name, field in fields.items() if name not in raw and not field.optional]
    unknown = sorted(raw.keys() - fields.keys())
    if missing or unknown:
        word = "lacks" if missing else "does not know"
        raise ValueError(f"{kind.__name__} {word} {sorted([*missing, *unknown])[0]!r}")
    return kind(**{name: field.read(raw[name], field.label) for name, field in fields.items() if name in raw})


@cache
def _fields(kind: Any) -> dict[str, _Field]:
    hints = get_type_hints(kind)
    return {
        field.name: _Field(
            f"{kind.__name__}.{field.name}",
            _reader(hints[field.name]),
            optional=field.default is not dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


@cache
def _reader(hint: Any) -> _Read:
    """How values of a type are read: what the type is, is looked up once and not for each value."""
    if get_origin(hint) is UnionType:
        inner = _reader(next(option for option in get_args(hint) if option is not NoneType))
        return lambda raw, name: None if raw is None else inner(raw, name)
    if get_origin(hint) is tuple:
        return _list_reader(get_args(hint)[0])
    if get_origin(hint) is Mapping:
        return _map_reader(get_args(hint)[1])
    if dataclasses.is_dataclass(hint):
        return lambda raw, _name: build(cast("type[object]", hint), raw)
    if issubclass(hint, StrEnum):
        return lambda raw, _name: hint(raw)
    if hint is float:
        return _read_number

    def plain(raw: object, name: str) -> object:
        if type(raw) is not hint:
            raise TypeError(f"{name} is not of type {hint.__name__}")
        return raw

    return plain


def _list_reader(kind: Any) -> _Read:
    item = _reader(kind)

    def read(raw: object, name: str) -> object:
        if not isinstance(raw, list):
            raise TypeError(f"{name} is not a list")
        # Token ids and margins: by far the most values of a log.
        alike = kind in (int, float) and set(map(type, raw)) <= {kind}
        if alike and (kind is int or all(map(math.isfinite, raw))):
            return tuple(raw)
        return tuple(item(one, name) for one in raw)

    return read


def _map_reader(kind: Any) -> _Read:
    item = _reader(kind)

    def read(raw: object, name: str) -> object:
        if not isinstance(raw, dict):
            raise TypeError(f"{name} is not an object")
        return {key: item(value, name) for key, value in raw.items()}

    return read


def _read_number(raw: object, name: str) -> float:
    if type(raw) not in (int, float):
        raise TypeError(f"{name} is not of type float")
    return _finite(cast("int | float", raw), name)


def _finite(raw: int | float, name: str) -> float:
    """A number that can be written again: JSON's reader lets NaN, infinities and 1e999 pass."""
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{name} is no finite number")
    return value
