"""The JSON format of `qfr contrast`: per-task successes of published or foreign results.

::

    {"sites": [2, 2, 3],                       fault sites of each task
     "families": ["base", "base", "shipping"], optional
     "task_names": ["a", "b", "c"],            optional
     "levels": ["bf16", "awq"],                optional, from high to low (else by number or by bits)
     "policy": "strict",                       optional, a label
     "file_bytes": {"Llama/8": 8540770592},    optional, size of each model's file at a level
     "tables": {"Llama/8/P0": [2, null, 3]}}   model/level/prompt: successes, null = failed the clean pass

Other top-level keys are ignored unless they look like a misspelling of one of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qfr.analysis.contrast.equal_memory import Size
from qfr.analysis.targets import CellKey, TaskTable
from qfr.errors import TableError, did_you_mean
from qfr.stats.lattice import IntArray

_KEYS = ("sites", "families", "task_names", "levels", "policy", "file_bytes", "tables")
_Json = None | bool | int | float | str | list["_Json"] | dict[str, "_Json"]
_LARGEST_COUNT = 10**6


@dataclass(frozen=True)
class ResultTable:
    """A table file, read and checked."""

    tables: tuple[TaskTable, ...]
    levels: tuple[str, ...]
    # The file's own order of levels, highest first; empty when it gives none.
    sizes: Mapping[Size, float] = field(default_factory=dict)
    # Bytes by model, level and "" (a table names no file); empty when it gives none.


@dataclass(frozen=True)
class _Source:
    """The file that a message speaks of."""

    name: str
    text: str

    def at(self, key: str) -> str:
        """Return `file, line 12: key`, the line where the quoted key first stands."""
        place = self.text.find(json.dumps(key.split("[")[0]))
        line = f", line {self.text.count(chr(10), 0, place) + 1}" if place >= 0 else ""
        return f"{self.name}{line}: {key}"


def read_table(path: str | Path) -> ResultTable:
    """Read a table file.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    TableError
        If the file cannot be read, is no JSON of this format, or counts are impossible.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TableError(
            "the file is not UTF-8 text", where=str(file), hint="save it as UTF-8 JSON"
        ) from error
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror}", where=str(file)) from error
    return parse_table(text, str(file))


def parse_table(text: str, name: str = "table") -> ResultTable:
    """Parse the text of a table file; `name` stands in messages. Raises as `read_table`."""
    source = _Source(name, text)
    try:
        data: _Json = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise TableError(
            f"no JSON: {error.msg}", where=f"{name}, line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise TableError("no table: nested too deeply", where=name) from error
    except ValueError as error:
        raise TableError(str(error), where=name) from error
    if not isinstance(data, dict):
        raise TableError("the file must hold one JSON object", where=name, hint="see `qfr contrast --help`")
    _check_keys(data, source)
    sites = _counts(data["sites"], source, "sites")
    if not sites:
        raise TableError("no tasks", where=source.at("sites"), hint="list the number of fault sites per task")
    for at, value in enumerate(sites):
        if value < 1:
            raise TableError(
                f"{value} sites", where=source.at(f"sites[{at}]"), hint="a task has at least one site"
            )
    families = _names(data, "families", source, len(sites)) or [""] * len(sites)
    tasks = _names(data, "task_names", source, len(sites)) or [f"task {at}" for at in range(len(sites))]
    if len(set(tasks)) < len(tasks):
        raise TableError("a task is named twice", where=source.at("task_names"))
    shape = _Shape(np.array(sites, dtype=np.int64), tuple(tasks), tuple(families), _policy(data, source))
    tables = data["tables"]
    if not isinstance(tables, dict) or not tables:
        raise TableError(
            "must be an object with at least one table",
            where=source.at("tables"),
            hint='"Model/level/prompt": [...]',
        )
    read = tuple(_table(key, values, shape, source) for key, values in tables.items())
    return ResultTable(read, _levels(data, source, read), _sizes(data, source, read))


@dataclass(frozen=True)
class _Shape:
    sites: IntArray
    tasks: tuple[str, ...]
    families: tuple[str, ...]
    policy: str


def _table(name: str, values: _Json, shape: _Shape, source: _Source) -> TaskTable:
    parts = name.rsplit("/", 2)
    if len(parts) != 3 or not all(part.strip() for part in parts):
        raise TableError(
            f"{name!r} does not name a cell",
            where=source.at(name),
            hint="use Model/level/prompt, such as Llama/8/P0",
        )
    if not isinstance(values, list):
        raise TableError("must be a list of successes, one per task", where=source.at(name))
    if len(values) != len(shape.sites):
        raise TableError(
            f"{len(values)} tasks, but sites lists {len(shape.sites)}",
            where=source.at(name),
            hint="one entry per task; null for a task that failed its clean pass",
        )
    certified = np.array([value is not None for value in values], dtype=np.bool_)
    passed = _counts([0 if value is None else value for value in values], source, name)
    for at, (count, most) in enumerate(zip(passed, shape.sites.tolist(), strict=True)):
        if not 0 <= count <= most:
            raise TableError(f"{count} successes at {most} sites", where=source.at(f"{name}[{at}]"))
    ran = np.where(certified, shape.sites, 0)
    model, level, prompt = (part.strip() for part in parts)
    key = CellKey(model, level, prompt, fault="", executor="", suite="", gate="certified", trial=0)
    return TaskTable(
        key, shape.policy, shape.tasks, shape.families, certified, np.array(passed, dtype=np.int64), ran, ran
    )


def _check_keys(data: dict[str, _Json], source: _Source) -> None:
    for key in data:
        if key not in _KEYS and (meant := did_you_mean(key, [name for name in _KEYS if name not in data])):
            raise TableError(f"unknown key {key!r}{meant}", where=source.at(key))
    for key in ("sites", "tables"):
        if key not in data:
            raise TableError(
                f"the key {key!r} is missing",
                where=source.name,
                hint=f"found: {', '.join(sorted(data)) or 'none'}",
            )


def _counts(values: _Json, source: _Source, name: str) -> list[int]:
    if not isinstance(values, list):
        raise TableError("must be a list of integers", where=source.at(name))
    counts = []
    for at, value in enumerate(values):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not isinstance(value, int | float) or not whole:
            raise TableError(f"{json.dumps(value)[:40]} is no count", where=source.at(f"{name}[{at}]"))
        if abs(value) > _LARGEST_COUNT:
            raise TableError(f"a count above {_LARGEST_COUNT}", where=source.at(f"{name}[{at}]"))
        counts.append(int(value))
    return counts


def _names(data: dict[str, _Json], key: str, source: _Source, n: int | None) -> list[str]:
    values = data.get(key)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise TableError("must be a list of names", where=source.at(key))
    if n is not None and len(values) != n:
        raise TableError(f"{len(values)} names for {n} tasks", where=source.at(key))
    return [str(value) for value in values]


def _policy(data: dict[str, _Json], source: _Source) -> str:
    policy = data.get("policy", "")
    if not isinstance(policy, str):
        raise TableError("must be a name, such as strict", where=source.at("policy"))
    return policy


def _levels(data: dict[str, _Json], source: _Source, tables: Sequence[TaskTable]) -> tuple[str, ...]:
    levels = _names(data, "levels", source, None)
    if levels:
        for table in tables:
            if table.key.quant not in levels:
                raise TableError(
                    f"level {table.key.quant!r} is missing{did_you_mean(table.key.quant, levels)}",
                    where=source.at("levels"),
                )
    return tuple(levels)


def _sizes(data: dict[str, _Json], source: _Source, tables: Sequence[TaskTable]) -> dict[Size, float]:
    given = data.get("file_bytes", {})
    if not isinstance(given, dict):
        raise TableError("must be an object", where=source.at("file_bytes"), hint='{"Llama/8": 8540770592}')
    known = {f"{table.key.model}/{table.key.quant}" for table in tables}
    sizes: dict[Size, float] = {}
    for name, value in given.items():
        if name not in known:
            raise TableError(
                f"{name!r} is no model and level of a table{did_you_mean(name, known)}",
                where=source.at("file_bytes"),
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**63:
            raise TableError(f"{json.dumps(value)[:40]} is no size in bytes", where=source.at(name))
        model, _, level = name.rpartition("/")
        sizes[model, level, ""] = float(value)
    return sizes


def _unique(pairs: list[tuple[str, _Json]]) -> dict[str, _Json]:
    found: dict[str, _Json] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found


def _no_constant(name: str) -> _Json:
    raise ValueError(f"{name} is no JSON number")
