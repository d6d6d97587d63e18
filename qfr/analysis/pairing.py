"""Which cells are set against each other, under which labels, and what keeps the others apart.

Two cells are contrasted when they agree in every key of their scope but those that the varied axis owns
(`qfr.scope`). Cells of the same names that differ elsewhere are never pooled and never paired; the keys are
named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

from qfr import scope
from qfr.analysis.levels import NOT_STATED, OrderKey, order_key
from qfr.analysis.targets import CellKey, TaskTable
from qfr.analysis.trials import FOREIGN, aligned
from qfr.errors import TableError
from qfr.scope import NAMES, Scope

ACROSS_BUILDS = "across builds"
# Context of pairs whose sides are of two builds.


class Keyed(Protocol):
    """What has the names and the scope of a cell."""

    @property
    def key(self) -> CellKey: ...
    @property
    def scope(self) -> Scope: ...


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
    # What tells this pair from another of the same names, such as ``engine.type_k=q8_0``; mostly empty.


@dataclass(frozen=True)
class Apart:
    """Two cells that a reader might expect to see contrasted or pooled, and why they are not."""

    a: str
    b: str
    reason: str


def tables_in_groups(tables: Iterable[TaskTable], free: Iterable[str]) -> tuple[scope.Group[TaskTable], ...]:
    """Sort tables into groups of one policy that differ in nothing but the free axes or keys."""
    return scope.group(tables, free, of=lambda table: table.scope, also=lambda table: table.policy)


def together(a: TaskTable, b: TaskTable) -> Hashable:
    """Return what comparisons share that are one question under several prompts.

    One of them suffices to say "worse", so they share the chance of saying it wrongly.
    """
    free = frozenset({"prompt"})
    return a.scope.fixed(free), b.scope.fixed(free), a.policy


def cells_of(tables: Iterable[TaskTable]) -> tuple[str, ...]:
    """Return the cell_ids behind some tables, each once."""
    return tuple(dict.fromkeys(cell for table in tables for cell in table.cells))


def pairs(tables: Iterable[TaskTable], vary: str, order: tuple[str, ...] = ()) -> tuple[Pair, ...]:
    """Return every pair of cells that differs in the varied axis alone, all levels against each other.

    Parameters
    ----------
    tables : iterable of TaskTable
        Of any policies and suites.
    vary : str
        An axis or a key (see `qfr.scope`).
    order : tuple of str
        Explicit order of the levels, highest first.

    Raises
    ------
    TableError
        If the same cell is listed twice, or a level cannot be ordered.
    """
    given = tuple(tables)
    names = dict(zip(map(id, given), variant_names(given, vary), strict=True))
    found = []
    for members in tables_in_groups(given, (vary,)):
        _refuse_twins(members.members)
        ordered = sorted(members.members, key=lambda table: _place(table, vary, order))
        parts = [_named(ordered), members.label]
        if parts[0] and ordered[0].key.executor == FOREIGN:
            # One key tells logs apart where it can; the notice of what is kept apart names the others.
            parts = parts[:1]
        context = ", ".join(dict.fromkeys(part for part in parts if part))
        for a, b in combinations(ordered, 2):
            if level(a, vary) != level(b, vary):
                first, second = aligned((a, b))
                if first.tasks == second.tasks or not _of_suites(vary):
                    labels = names[id(a)], names[id(b)]
                    found.append(Pair(first, second, labels[0], labels[1], _remarks(a, b, vary), context))
    return tuple(found)


def across_builds(tables: Iterable[TaskTable], vary: str) -> tuple[Pair, ...]:
    """Return every pair of cells of two llama.cpp builds that agree in all else but the varied axis.

    They are no part of `pairs`: whoever asks for them gets both builds named in the labels. A level is also
    set against itself, the build that was listed first as A.
    """
    found = []
    for members in tables_in_groups(tables, (vary, "build")):
        ordered = sorted(members.members, key=lambda table: order_key(vary, level(table, vary)))
        builds = dict(zip(map(id, ordered), variant_names(ordered, "build"), strict=True))
        for a, b in combinations(ordered, 2):
            told = scope.told(a.scope, b.scope, (vary,))
            if told and a.tasks == b.tasks:
                name_a, name_b = (f"{level(one, vary)} [{builds[id(one)]}]" for one in (a, b))
                remarks = (*_remarks(a, b, vary), f"{told}, as asked")
                first, second = aligned((a, b))
                found.append(Pair(first, second, name_a, name_b, remarks, ACROSS_BUILDS))
    return tuple(found)


def kept_apart(tables: Iterable[TaskTable], vary: str) -> tuple[Apart, ...]:
    """Return the cells that share all names but the varied one and are not contrasted, with the keys.

    Cells that share every name and are not pooled are named too.
    """
    groups: dict[tuple[str, ...], dict[tuple[object, ...], TaskTable]] = defaultdict(dict)
    for table in tables:
        # One table for each variant of each level: thousands of equal cells make one comparison.
        fixed = table.scope.fixed(frozenset((vary,)))
        groups[_names(table, vary)].setdefault((level(table, vary), table.scope, fixed), table)
    found: dict[tuple[str, str, str], Apart] = {}
    for variants in groups.values():
        contrasted = _contrasted(variants.values(), vary)
        for a, b in combinations(variants.values(), 2):
            levels = level(a, vary), level(b, vary)
            if levels[0] != levels[1] and levels in contrasted:
                continue
            reason = scope.told(a.scope, b.scope) or "the two list different tasks"
            names = _shown(a), _shown(b)
            found.setdefault((*names, reason), Apart(*names, reason))
    return tuple(found.values())


def _shown(table: TaskTable) -> str:
    """A cell's name; of an imported log, which has neither prompt nor fault, its model, suite and file."""
    if table.key.executor != FOREIGN:
        return table.key.name
    names = (table.key.model, table.key.quant, table.key.suite)
    return f"{' '.join(name for name in names if name != NOT_STATED)} ({table.scope.told('log.source')})"


def level(table: Keyed, axis: str) -> str:
    """Return the table's level along an axis or key."""
    return str(getattr(table.key, axis)) if axis in NAMES else scope.value_of(table.scope, axis)


def _of_suites(vary: str) -> bool:
    """Whether the varied key changes the tasks, so that two levels may list different ones."""
    return vary.startswith("suite")


def _contrasted(tables: Iterable[TaskTable], vary: str) -> set[tuple[str, str]]:
    """Pairs of levels, in both orders, that stand in one group."""
    found = set()
    for members in tables_in_groups(tables, (vary,)):
        levels = {level(table, vary) for table in members.members}
        found |= {(one, other) for one in levels for other in levels if one != other}
    return found


def _place(table: TaskTable, vary: str, order: tuple[str, ...]) -> tuple[OrderKey, tuple[object, ...]]:
    return order_key(vary, level(table, vary), order), tuple(owned(table, vary).items())


def _names(table: TaskTable, vary: str) -> tuple[str, ...]:
    names = (str(getattr(table.key, name)) for name in NAMES if name != vary)
    return (*names, table.key.gate, str(table.key.trial), table.policy)


def _named(tables: Iterable[TaskTable]) -> str:
    """The context that the tables' names carry already, where they agree in it."""
    contexts = {table.key.context for table in tables}
    return contexts.pop() if len(contexts) == 1 else ""


def variant_names(tables: Sequence[Keyed], axis: str) -> tuple[str, ...]:
    """Name each table's level; in brackets what tells two files (or texts) of one level of a model apart."""
    variants: dict[tuple[str, str], dict[Scope, None]] = defaultdict(dict)
    own = [owned(table, axis) for table in tables]
    for table, mine in zip(tables, own, strict=True):
        variants[_model(table, axis), level(table, axis)][mine] = None
    texts: dict[tuple[str, str, Scope], str] = {}
    for (model, name), known in variants.items():
        # A model is its files: which of them a level uses follows from the preset.
        told = scope.labels(tuple(known)) if axis != "model" else [""] * len(known)
        for mine, text in zip(known, told, strict=True):
            texts[model, name, mine] = f"{name} [{text}]" if text else name
    return tuple(
        texts[_model(table, axis), level(table, axis), mine] for table, mine in zip(tables, own, strict=True)
    )


def _model(table: Keyed, axis: str) -> str:
    """Whose levels are told apart. The files of imported logs are of one suite each."""
    model = "" if axis == "model" else table.key.model
    return f"{model} {table.key.suite}" if table.key.executor == FOREIGN else model


def owned(table: Keyed, axis: str) -> Scope:
    """Return what of a cell's scope belongs to an axis: which file, which text."""
    return Scope(dict(table.scope.items() - table.scope.fixed(frozenset((axis,)))))


def _remarks(a: TaskTable, b: TaskTable, vary: str) -> tuple[str, ...]:
    pair = [one.scope.get("file.imatrix", "") or "none" for one in (a, b)]
    if vary not in ("quant", "model") or pair[0] == pair[1]:
        return ()
    return (
        f"importance matrix differs ({pair[0]} / {pair[1]}): "
        "the contrast is of the files, not of the presets alone",
    )


def _refuse_twins(members: tuple[TaskTable, ...]) -> None:
    seen: set[Scope] = set()
    for table in members:
        if table.scope in seen:
            raise TableError(
                "the same cell is listed twice", where=table.key.name, hint="hand in each finished cell once"
            )
        seen.add(table.scope)
