"""What is read from the installed package bfcl-eval: task files, tool documents, classes, the checkers.

The classes are loaded a second time under names of our own, with a clock that stands still: `datetime.today`
decides who is of age, and `fromtimestamp` would follow the time zone of the machine. They touch no network
and no file of the user; their modules that would (web search, memory) are not loaded.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from qfr.errors import ConfigError
from qfr.records import Kind, Parameter, Role, Tool
from qfr.world.plain import stand_still

NAME = "bfcl_multi_turn"
PACKAGE, VERSION = "bfcl-eval", "2026.3.23"
FAMILIES = ("base", "miss_func", "miss_param", "long_context")
INSTALL = f"pip install 'qfr[bfcl]' && pip install --no-deps {PACKAGE}=={VERSION}"
_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_WORDS = "bfcl_eval.constants.default_prompts"
_PLACES = "bfcl_eval.constants.executable_backend_config"
_KINDS = {
    "string": Kind.string,
    "integer": Kind.number,
    "float": Kind.number,
    "boolean": Kind.boolean,
}


@dataclass(frozen=True)
class Entry:
    """One task of the benchmark."""

    id: str
    # multi_turn_base_0.
    family: str
    turns: tuple[str, ...]
    # Messages of the user.
    gold: tuple[tuple[str, ...], ...]
    # Per turn, the calls of the ground truth as Python text.
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    # Per class, its scenario.
    missed: Mapping[int, tuple[str, ...]]
    # Turn -> tools that are shown in that turn for the first time.
    excluded: tuple[str, ...]
    # Tools that are never shown.

    @property
    def long_context(self) -> bool:
        return self.family == "long_context"


@dataclass(frozen=True)
class Checkers:
    """The benchmark's own checks of one turn."""

    state: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    response: Callable[[list[str], list[str], int], dict[str, Any]]


@cache
def root() -> Path:
    """Folder of the installed package.

    Raises
    ------
    ConfigError
        It is not installed, or in another version than the one whose classes are known to be harmless.
    """
    spec = find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations or find_spec("mpmath") is None:
        lacking = "mpmath, which bfcl-eval needs," if spec is not None else PACKAGE
        raise ConfigError(f"{lacking} is not installed", where=f"suite.world={NAME}", hint=INSTALL)
    found = metadata.version(PACKAGE)
    if found != VERSION:
        raise ConfigError(
            f"{PACKAGE} {found} is installed, and this qfr reads {VERSION}",
            where=f"suite.world={NAME}",
            hint=INSTALL,
        )
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def entries(family: str) -> tuple[Entry, ...]:
    """All tasks of a family, in the order of the benchmark's file."""
    name = f"BFCL_v4_multi_turn_{family}.json"
    gold = {one["id"]: one["ground_truth"] for one in _rows(root() / "data" / "possible_answer" / name)}
    return tuple(_entry(family, row, gold[row["id"]]) for row in _rows(root() / "data" / name))


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def _entry(family: str, row: dict[str, Any], gold: list[list[str]]) -> Entry:
    missed = {int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()}
    turns = ["\n".join(message["content"] for message in turn) for turn in row["question"]]
    for turn in missed:
        turns[turn] = turns[turn] or _module(_WORDS).DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
    return Entry(
        id=row["id"],
        family=family,
        turns=tuple(turns),
        gold=tuple(tuple(calls) for calls in gold),
        classes=tuple(row["involved_classes"]),
        config=row["initial_config"],
        missed=missed,
        excluded=tuple(row.get("excluded_function", ())),
    )


@cache
def documents(kind: str) -> tuple[dict[str, Any], ...]:
    """The documents of a class's tools."""
    file = root() / "data" / "multi_turn_func_doc" / _module(_PLACES).MULTI_TURN_FUNC_DOC_FILE_MAPPING[kind]
    return tuple(_rows(file))


def tool(document: Mapping[str, Any], role: Role) -> Tool:
    """A tool from its document."""
    given = document["parameters"]
    parameters = tuple(
        Parameter(name, _kind(one), one.get("description", "").strip(), required=name in given["required"])
        for name, one in given["properties"].items()
    )
    _, _, told = document["description"].rpartition("Tool description: ")
    return Tool(document["name"], role, parameters, told.strip())


def _kind(document: Mapping[str, Any]) -> Kind:
    if document["type"] == "array" and document["items"]["type"] == "string":
        return Kind.strings
    return _KINDS.get(document["type"], Kind.any)


@cache
def classes() -> Mapping[str, type]:
    """All classes of the tasks, and those of the objects that they hold, by name."""
    found: dict[str, type] = {}
    for place in dict.fromkeys(_module(_PLACES).CLASS_FILE_PATH_MAPPING[name] for name in _needed()):
        loaded = _own(place)
        found |= {
            name: value
            for name, value in vars(loaded).items()
            if isinstance(value, type) and value.__module__ == loaded.__name__
        }
    return found


def _needed() -> list[str]:
    return sorted({name for family in FAMILIES for entry in entries(family) for name in entry.classes})


def _own(place: str) -> ModuleType:
    """A module of the package, loaded for us alone."""
    file = root().joinpath(*place.split(".")[1:]).with_suffix(".py")
    spec = spec_from_file_location(f"_qfr_bfcl_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    stand_still(loaded)
    return loaded


def stateless() -> tuple[str, ...]:
    """Classes without a scenario."""
    return tuple(_module(_PLACES).STATELESS_CLASSES)


@cache
def checkers() -> Checkers:
    """The benchmark's checks."""
    checker = _module(_CHECKER)
    return Checkers(checker.state_checker, checker.response_checker)


def _module(name: str) -> ModuleType:
    root()
    return importlib.import_module(name)
