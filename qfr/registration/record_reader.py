"""A record back from its bytes, strictly: every field, of its type, and no other."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from qfr.canonical import canonical, quote
from qfr.errors import RegistrationError
from qfr.registration.record import FEWEST_DIGITS, FORMAT, RECORD_VERSION, Record

T = TypeVar("T")

_ID = re.compile(rf"r-[0-9a-f]{{{FEWEST_DIGITS},64}}")


def is_id(text: str) -> bool:
    """Whether a text is `r-` and a prefix of a digest."""
    return _ID.fullmatch(text) is not None


def read_record(data: bytes, *, where: str) -> Record:
    """Read a document.

    Raises
    ------
    RegistrationError
        It is no registration, of another version, damaged, or not in canonical form.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RegistrationError(f"not JSON ({quote(str(error))})", where=where, hint=_RESTORE) from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise RegistrationError(
            "this is no registration of qfr", where=where, hint="give a file of registrations/, or an id r-…"
        )
    if raw.get("version") != RECORD_VERSION:
        raise RegistrationError(
            f"a registration of version {raw.get('version')!r}, but this qfr reads version {RECORD_VERSION}",
            where=where,
            hint="read it with the qfr version that wrote it",
        )
    try:
        record = _build(Record, raw, "")
        if canonical(raw).encode("ascii") + b"\n" != data:
            raise ValueError("not in canonical form: it was written anew by another program")
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"no valid registration: {error}", where=where, hint=_RESTORE) from None
    return record


_RESTORE = "it was damaged or edited: restore it from git or from the store (qfr verify r-… says more)"


def _build(kind: type[T], raw: object, at: str) -> T:
    if not isinstance(raw, Mapping):
        raise TypeError(f"{at or 'the document'} is not an object")
    hints = get_type_hints(kind)
    fields = dataclasses.fields(cast(Any, kind))
    names = [field.name for field in fields if field.name in raw]
    lacking = {field.name for field in fields if field.default is dataclasses.MISSING} - raw.keys()
    if wrong := sorted(lacking | (raw.keys() - set(names))):
        word = "lacks" if wrong[0] in lacking else "does not know"
        raise ValueError(f"{at or 'the document'} {word} {quote(wrong[0])}")
    prefix = f"{at}." if at else ""
    return kind(**{name: _value(hints[name], raw[name], prefix + name) for name in names})


def _value(hint: Any, raw: object, at: str) -> object:
    if get_origin(hint) is UnionType:
        if raw is None and NoneType in get_args(hint):
            return None
        hint = next(option for option in get_args(hint) if option is not NoneType)
    if get_origin(hint) is tuple:
        if not isinstance(raw, list):
            raise TypeError(f"{at} is not a list")
        return tuple(_value(get_args(hint)[0], item, f"{at}[{i}]") for i, item in enumerate(raw))
    if get_origin(hint) is Mapping:
        if not isinstance(raw, dict):
            raise TypeError(f"{at} is not an object")
        inner = get_args(hint)[1]
        return raw if inner is object else {k: _value(inner, v, f"{at}.{k}") for k, v in raw.items()}
    if dataclasses.is_dataclass(hint):
        return _build(cast("type[object]", hint), raw, at)
    if issubclass(hint, StrEnum):
        return hint(raw)
    if type(raw) is not hint:
        raise TypeError(f"{at} is not of type {hint.__name__}")
    return raw
