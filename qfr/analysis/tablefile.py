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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.equal_memory import VARY, Size, equal_memory
from qfr.analysis.contrast.family import families
from qfr.analysis.contrast.groups import Grouped, Interaction, NamedGroup, grouped, interactions, not_run
from qfr.analysis.levels import Axis
from qfr.analysis.results import COLUMNS, VERSION, Contrast, Plain, Result
from qfr.analysis.rows import contrast_row, group_row, interaction_row
from qfr.analysis.targets import CellKey, Target, TaskTable
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


#: What `qfr contrast` can vary: the axes of a table file, and models at equal size of their files.
VARIES = (*map(str, (Axis.quant, Axis.prompt, Axis.model)), VARY)

_Plain = None | bool | int | float | str | list["_Plain"] | dict[str, "_Plain"]
_OF_A_STORE = frozenset(
    [
        "scope",
        "fault",
        "executor",
        "suite",
        "gate",
        "trial",
        "cells",
        "unit",
        "value",
        "critical",
        "registration",
        "standing",
        "standing_reason",
        "declared_family",
    ]
)
_HEADLINE = (Target.own, Target.matched, Target.full)


@dataclass(frozen=True)
class Further:
    """Contrasts of more than two cells."""

    grouped: tuple[Grouped, ...] = ()
    # Named groups of levels on shared tasks.
    interactions: tuple[Interaction, ...] = ()
    # Differences of differences, prompt by level.


def contrast_file(table: ResultTable, options: Options | None = None) -> tuple[Contrast, ...]:
    """Contrast a table file along an axis; its own order of levels counts where presets are contrasted.

    Raises
    ------
    TableError
        If the axis is none that a table file has, or a level cannot be ordered.
    """
    chosen = options or Options()
    if chosen.vary not in (Axis.quant, Axis.prompt, Axis.model):
        raise TableError(
            f"a table file has no axis {str(chosen.vary)!r}", hint="use --vary quant, prompt or model"
        )
    if chosen.vary is Axis.quant and table.levels:
        chosen = replace(chosen, order=table.levels)
    return contrast_table(table.tables, chosen)


def memory_file(table: ResultTable, options: Options | None = None) -> tuple[Contrast, ...]:
    """Contrast the models of a table file at equal size of their files.

    Raises
    ------
    TableError
        If the file gives no sizes.
    """
    if not table.sizes:
        raise TableError(
            "the file gives no sizes, so nothing is known of equal memory",
            hint='add "file_bytes": {"Llama/8": 8540770592, …}, one size per model and level',
        )
    return equal_memory(table.tables, table.sizes, options)


def further_file(table: ResultTable, groups: tuple[NamedGroup, ...], options: Options) -> Further:
    """Contrast named groups of levels, and prompts by levels.

    Raises
    ------
    TableError
        If no table has a level of the groups.
    """
    lost = not_run(table.tables, groups)
    if lost:
        known = dict.fromkeys(one.key.quant for one in table.tables)
        raise TableError(
            f"no table has these levels: {'; '.join(lost)}", hint=f"the file has {', '.join(known)}"
        )
    way = options.bootstrap, options.seed
    return Further(grouped(table.tables, groups, *way), interactions(table.tables, *way, order=table.levels))


def to_json(
    contrasts: Sequence[Contrast], cells: Iterable[CellSummary] = (), further: Further | None = None
) -> str:
    """Render contrasts (and cell summaries) of a table file.

    Returns
    -------
    str
        One object: ``contrasts`` holds the targets own, matched and full over all tasks; ``further`` the
        targets clean and s_star; ``families`` every target within each family; ``cells`` the summaries;
        ``groups`` and ``interactions`` contrasts of more than two cells. Differences and ends are in points,
        rates in 0..1; what cannot be estimated is null with a reason. Tests are adjusted over the contrasts
        of one target and policy over all tasks.
    """
    lists: dict[str, list[_Plain]] = {"contrasts": [], "further": [], "families": [], "cells": []}
    adjusted = {one.place: one for family in families(contrasts, ()) for one in family.members}
    for at, contrast in enumerate(contrasts):
        place = "contrasts" if contrast.target in _HEADLINE else "further"
        row = _record(contrast_row(contrast, adjusted.get(at)))
        lists[place if contrast.family is None else "families"].append(row)
    lists["cells"] += [_cell(cell) for cell in cells]
    more = further or Further()
    lists["groups"] = [_group(one) for one in more.grouped]
    lists["interactions"] = [_interaction(one) for one in more.interactions]
    return json.dumps({"version": VERSION, **lists}, indent=1, ensure_ascii=True, allow_nan=False)


def _record(row: Result) -> dict[str, _Plain]:
    """The row's columns that a table file can fill: it says nothing of runs, faults and registrations."""
    found: dict[str, _Plain] = {}
    for name in COLUMNS:
        if name not in _OF_A_STORE:
            value: Plain = getattr(row, name)
            found[name] = [*value] if isinstance(value, tuple) else value
    return found | {"policy": row.policy or None}


def _group(one: Grouped) -> _Plain:
    row = group_row(one)
    return _record(row) | {
        "a_levels": [*one.first.quants],
        "b_levels": [*one.second.quants],
        "a_successes": row.count_a,
        "a_episodes": row.of_a,
        "b_successes": row.count_b,
        "b_episodes": row.of_b,
        "fisher_warning": one.pooled.warning,
    }


def _interaction(one: Interaction) -> _Plain:
    return _record(interaction_row(one)) | {"first_prompt": one.first, "second_prompt": one.second}


def _cell(cell: CellSummary) -> _Plain:
    return {
        "model": cell.key.model,
        "level": cell.key.quant,
        "prompt": cell.key.prompt,
        "policy": cell.policy or None,
        "family": cell.family,
        "n_tasks": cell.n_tasks,
        "certified": cell.n_certified,
        "own_rate": cell.own.value,
        "own_low": cell.own.low,
        "own_high": cell.own.high,
        "successes": cell.successes,
        "episodes": cell.episodes,
        "episode_rate": cell.episode_rate.value,
        "wilson_low": cell.episode_rate.low,
        "wilson_high": cell.episode_rate.high,
        "full_rate": cell.full.value,
        "full_low": cell.full.low,
        "full_high": cell.full.high,
        "s_star_tasks": cell.n_s_star,
        "s_star_rate": cell.s_star.value,
        "reason": cell.own.reason,
    }
