"""Which cells may be set against each other, under which labels, and what keeps the others apart.

Two cells are contrasted when they agree in every axis but the varied one, and in everything that would make
the comparison one of something else: tasks, prompt bytes, fault, executor, build, schema. Cells that carry
the same names but differ there are never pooled and never paired; the difference is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations

from qfr.analysis.levels import Axis, order_key
from qfr.analysis.targets import TaskTable, Treatment
from qfr.analysis.trials import aligned
from qfr.errors import TableError

# What each axis may change besides its name. A static and an importance-matrix file of one preset are two
# variants of that preset.
_FREE: dict[Axis, frozenset[str]] = {
    Axis.quant: frozenset({"model_file", "imatrix"}),
    Axis.prompt: frozenset({"prompt"}),
    Axis.model: frozenset({"model_file", "imatrix", "template"}),
    Axis.fault: frozenset({"fault"}),
    Axis.executor: frozenset({"executor"}),
}
_TREATMENTS = tuple(field.name for field in fields(Treatment))
_WORDS = {
    "suite": "suite (tasks)",
    "prompt": "prompt bytes",
    "fault": "fault message",
    "executor": "executor or budgets",
    "template": "chat template",
    "model_file": "model file",
    "imatrix": "importance matrix",
    "build": "llama.cpp build",
    "engine": "engine settings",
    "schema": "schema or scorer version",
}

ACROSS_BUILDS = "across builds"
# Context of pairs whose sides are of two builds.

Variant = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two cells to contrast, A the higher level."""

    a: TaskTable
    b: TaskTable
    label_a: str
    label_b: str
    remarks: tuple[str, ...]
    # Differences that the varied axis brings along.
    context: str
    # What tells this pair from another of the same names, such as ``llama.cpp build 0c1e570``; mostly empty.


@dataclass(frozen=True)
class Apart:
    """Two cells that a reader might expect to see contrasted or pooled, and why they are not."""

    a: str
    b: str
    reason: str


def level(table: TaskTable, axis: Axis) -> str:
    """Return the table's level along an axis."""
    return str(getattr(table.key, axis.value))


def pairs(tables: Iterable[TaskTable], vary: Axis, order: tuple[str, ...] = ()) -> tuple[Pair, ...]:
    """Return every pair of cells that differs in the varied axis alone, all levels against each other.

    Parameters
    ----------
    tables : iterable of TaskTable
        Of any policies and suites.
    vary : Axis
    order : tuple of str
        Explicit order of the levels, highest first.

    Raises
    ------
    TableError
        If two tables are the same cell, or a level cannot be ordered.
    """
    given = tuple(tables)
    labels = _labels(given, vary)
    groups: dict[tuple[str, ...], list[TaskTable]] = defaultdict(list)
    for table in given:
        groups[_context(table, vary)].append(table)
    contexts = _contexts(given, vary)
    found = []
    for context, members in groups.items():
        _refuse_twins(members, vary)
        members.sort(key=lambda table: (order_key(vary, level(table, vary), order), _variant(table, vary)))
        for a, b in combinations(members, 2):
            if level(a, vary) != level(b, vary):
                names = labels[_label_key(a, vary)], labels[_label_key(b, vary)]
                first, second = aligned((a, b))
                found.append(Pair(first, second, *names, _remarks(a, b, vary), contexts[context]))
    return tuple(found)


def across_builds(tables: Iterable[TaskTable], vary: Axis) -> tuple[Pair, ...]:
    """Return every pair of cells of two llama.cpp builds that agree in all else but the varied axis.

    They are no part of `pairs`: whoever asks for them gets both builds named in the labels. A level is also
    set against itself, the build that was listed first as A.
    """
    groups: dict[tuple[str, ...], list[TaskTable]] = defaultdict(list)
    for table in tables:
        rest = (name for name in _TREATMENTS if name not in _FREE[vary] and name != "build")
        key = (*_names(table, vary), table.policy, *(getattr(table.treatment, name) for name in rest))
        groups[key].append(table)
    found = []
    for members in groups.values():
        members.sort(key=lambda table: order_key(vary, level(table, vary)))
        for a, b in combinations(members, 2):
            if a.treatment.build != b.treatment.build:
                name_a, name_b = (f"{level(one, vary)} [{one.treatment.build[:9]}]" for one in (a, b))
                first, second = aligned((a, b))
                remark = differences(a.treatment, b.treatment, frozenset(_TREATMENTS) - {"build"})
                remarks = (*_remarks(a, b, vary), f"{remark}, as asked")
                found.append(Pair(first, second, name_a, name_b, remarks, ACROSS_BUILDS))
    return tuple(found)


def kept_apart(tables: Iterable[TaskTable], vary: Axis) -> tuple[Apart, ...]:
    """Return the cells that share all names but the varied one and are not contrasted, with the difference.

    Cells that share every name and are not pooled are named too.
    """
    groups: dict[tuple[str, ...], list[TaskTable]] = defaultdict(list)
    for table in tables:
        groups[(*_names(table, vary), table.policy)].append(table)
    found: dict[tuple[str, str, str], Apart] = {}
    for members in groups.values():
        for a, b in _distinct_variants(members, vary):
            if level(a, vary) != level(b, vary) and _context(a, vary) == _context(b, vary):
                continue
            if level(a, vary) != level(b, vary) and _contrasted(
                members, level(a, vary), level(b, vary), vary
            ):
                continue
            reason = differences(a.treatment, b.treatment, frozenset())
            found.setdefault((a.key.name, b.key.name, reason), Apart(a.key.name, b.key.name, reason))
    return tuple(found.values())


def differences(a: Treatment, b: Treatment, free: frozenset[str]) -> str:
    """Name what differs between two treatments, such as ``llama.cpp build differs (0c1e570 / b10f9ca)``."""
    return "; ".join(
        f"{_WORDS[name]} differs ({_told(name, getattr(a, name))} / {_told(name, getattr(b, name))})"
        for name in _TREATMENTS
        if name not in free and getattr(a, name) != getattr(b, name)
    )


def _distinct_variants(members: list[TaskTable], vary: Axis) -> Iterable[tuple[TaskTable, TaskTable]]:
    # One table for each variant of each level: thousands of equal cells make one comparison.
    seen: dict[tuple[str, ...], TaskTable] = {}
    for table in members:
        seen.setdefault((level(table, vary), *_context(table, vary), *_variant(table, vary)), table)
    return combinations(seen.values(), 2)


def _contrasted(members: list[TaskTable], first: str, second: str, vary: Axis) -> bool:
    contexts = [
        {_context(table, vary) for table in members if level(table, vary) == name} for name in (first, second)
    ]
    return bool(contexts[0] & contexts[1])


def _names(table: TaskTable, vary: Axis) -> tuple[str, ...]:
    key = table.key
    axes = tuple(level(table, axis) for axis in Axis if axis is not vary)
    return (*axes, key.suite, key.gate, str(key.trial))


def _context(table: TaskTable, vary: Axis) -> tuple[str, ...]:
    """Return everything that both sides of a contrast must share."""
    fixed = (getattr(table.treatment, name) for name in _TREATMENTS if name not in _FREE[vary])
    return (*_names(table, vary), table.policy, *fixed)


def _variant(table: TaskTable, vary: Axis) -> Variant:
    return tuple(getattr(table.treatment, name) for name in sorted(_FREE[vary]))


def _label_key(table: TaskTable, vary: Axis) -> tuple[str, str, Variant]:
    model = "" if vary is Axis.model else table.key.model
    return model, level(table, vary), _variant(table, vary)


def _labels(tables: tuple[TaskTable, ...], vary: Axis) -> dict[tuple[str, str, Variant], str]:
    """Label each variant of each level: the bare name where a model knows only one variant of it."""
    variants: dict[tuple[str, str], set[Variant]] = defaultdict(set)
    for table in tables:
        model, name, variant = _label_key(table, vary)
        variants[model, name].add(variant)
    labels = {}
    for (model, name), known in variants.items():
        for variant in known:
            several = len(known) > 1 and vary is not Axis.model
            labels[model, name, variant] = f"{name} [{_told_apart(variant, known)}]" if several else name
    return labels


def _contexts(tables: tuple[TaskTable, ...], vary: Axis) -> dict[tuple[str, ...], str]:
    """Describe each context by what tells it from the others of the same names."""
    treatments: dict[tuple[str, ...], dict[tuple[str, ...], Treatment]] = defaultdict(dict)
    for table in tables:
        names = (*_names(table, vary), table.policy)
        treatments[names].setdefault(_context(table, vary), table.treatment)
    described = {}
    for known in treatments.values():
        differing = [
            name
            for name in _TREATMENTS
            if name not in _FREE[vary] and len({getattr(one, name) for one in known.values()}) > 1
        ]
        for context, treatment in known.items():
            described[context] = "; ".join(
                f"{_WORDS[name]} {_told(name, getattr(treatment, name))}" for name in differing
            )
    # Cells of one run share what tells the run from another, also where only some of them have twins.
    named = {_context(table, vary): table.key.context for table in tables if table.key.context}
    return described | named


def _told_apart(variant: Variant, known: set[Variant]) -> str:
    for at, part in enumerate(variant):
        values = [other[at] for other in known]
        if len(set(values)) == len(values):
            return _short(part)
    return " ".join(_short(part) for part in variant)


def _remarks(a: TaskTable, b: TaskTable, vary: Axis) -> tuple[str, ...]:
    if vary not in (Axis.quant, Axis.model) or a.treatment.imatrix == b.treatment.imatrix:
        return ()
    return (
        f"importance matrix differs ({_short(a.treatment.imatrix)} / {_short(b.treatment.imatrix)}): "
        "the contrast is of the files, not of the presets alone",
    )


def _refuse_twins(members: list[TaskTable], vary: Axis) -> None:
    seen: set[tuple[str, Variant]] = set()
    for table in members:
        mine = (level(table, vary), _variant(table, vary))
        if mine in seen:
            raise TableError(
                "the same cell is listed twice", where=table.key.name, hint="hand in each finished cell once"
            )
        seen.add(mine)


def _told(name: str, value: str) -> str:
    parts = value.split()
    if name == "executor" and len(parts) == 3:
        return f"{parts[0][:8]}, {parts[1]} steps, {parts[2]} errors"
    return _short(value)


def _short(value: str) -> str:
    if not value:
        return "none"
    return value if len(value) <= 24 else value[:12] + "…"
