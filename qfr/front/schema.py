"""The keys of the configuration and their types in words, read from the dataclasses of `qfr.config`."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from qfr.config import CellConfig
from qfr.errors import did_you_mean

_WORDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}


@cache
def key_types() -> dict[str, Any]:
    """Type of every key, groups included: ``{"quant": QuantConfig, "quant.preset": str, ...}``."""
    return dict(_walk(CellConfig, ""))


def _walk(kind: type, prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        found.append((prefix + field.name, hint))
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += _walk(hint, f"{prefix}{field.name}.")
    return found


def unknown_key(key: str) -> tuple[str, str]:
    """What to say of a key that does not exist: (what, hint)."""
    parent = key.rpartition(".")[0]
    if key.startswith("hydra."):
        return f"there is no key {key!r}", "`--cfg hydra` shows Hydra's keys"
    if get_origin(key_types().get(parent)) is dict:
        return f"{parent} has no entry {key.rpartition('.')[2]!r}", f"to add one: +{key}=…"
    siblings = [known for known in key_types() if known.rpartition(".")[0] == parent]
    if not siblings:
        siblings = [known for known in key_types() if "." not in known]
    near = did_you_mean(key, siblings) or did_you_mean(key, key_types())
    return f"there is no key {key!r}{near}", "keys here: " + ", ".join(siblings)


def kind_of(key: str) -> Any:
    """Type of a key, entries of maps included (`suite.families.base`); None where it is not known."""
    kind = key_types().get(key)
    if kind is not None or "." not in key:
        return kind
    parent, _, name = key.rpartition(".")
    above = kind_of(parent)
    if get_origin(above) is dict:
        return get_args(above)[1]
    return get_type_hints(above).get(name) if dataclasses.is_dataclass(above) else None


def type_words(key: str) -> str:
    """The type of a key in words ("an integer or null"), empty where it is not known."""
    kind = kind_of(key)
    return "" if kind is None else _words(kind)


def _words(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join("null" if part is type(None) else _words(part) for part in get_args(kind))
    if get_origin(kind) is list:
        return "a list"
    if get_origin(kind) is dict or dataclasses.is_dataclass(kind):
        return "a map"
    if issubclass(kind, StrEnum):
        return "one of " + ", ".join(kind)
    return _WORDS.get(kind, "a value")


def is_group(key: str) -> bool:
    """Whether a key is a configuration group."""
    return bool(dataclasses.is_dataclass(key_types().get(key)))


def is_free(key: str) -> bool:
    """Whether a key stands in a map whose values may be anything (model.template_options)."""
    names = key.split(".")
    above = (key_types().get(".".join(names[:size])) for size in range(1, len(names)))
    maps = [option for kind in above for option in (get_args(kind) or (kind,)) if get_origin(option) is dict]
    return any(get_args(kind)[1] is Any for kind in maps)


def is_switch(key: str) -> bool:
    """Whether a key holds true or false (or null)."""
    return key_types().get(key) in (bool, bool | None)


def is_map(key: str) -> bool:
    """Whether a key holds a map whose entries the user names."""
    return get_origin(key_types().get(key)) is dict


def is_text(key: str) -> bool:
    """Whether a key holds one text (or null)."""
    return _is_text(kind_of(key))


def holds_text(key: str) -> bool:
    """Whether a key holds texts: one, or a list or a map of them."""
    kind = kind_of(key)
    while get_origin(kind) in (list, dict):
        kind = get_args(kind)[-1]
    return _is_text(kind)


def _is_text(kind: Any) -> bool:
    return kind is str or (isinstance(kind, UnionType) and set(get_args(kind)) == {str, type(None)})
