"""Named groups of presets, such as 8 to 5 bits against 4 and 3, on shared tasks (Hu 2026, appendix A)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from qfr.analysis.contrast.groups import GroupContrast, group_contrast, pooled_test
from qfr.analysis.pairing import cells_of, tables_in_groups, variant_names
from qfr.analysis.targets import CellKey, TaskTable
from qfr.errors import TableError
from qfr.stats import bootstrap
from qfr.stats.exact import FisherResult
from qfr.stats.intervals import Options


@dataclass(frozen=True)
class NamedGroup:
    """Presets under one name."""

    name: str
    quants: tuple[str, ...]
    # As llama.cpp writes them, upper case.


@dataclass(frozen=True)
class Grouped:
    """One group minus another under one model, prompt and fault."""

    key: CellKey
    # Preset is empty.
    cells: tuple[str, ...]
    # cell_ids of everything that enters.
    context: str
    # What tells it from another one of the same names.
    policy: str
    first: NamedGroup
    second: NamedGroup
    found: GroupContrast
    # On the tasks that every member of both certified.
    pooled: FisherResult
    # Of the episodes, each preset on its own certified tasks.
    successes: tuple[int, int]
    # Successful ones of these episodes, per group.


def parse_groups(text: str) -> tuple[NamedGroup, ...]:
    """Read ``high=q8_0,q6_k;low=q4_k_m,q3_k_m``: two groups or more, highest first; empty text = none.

    Raises
    ------
    TableError
        If the text has another form, a preset stands in two groups, or there is only one group.
    """
    if not text.strip():
        return ()
    form = "write NAME=PRESET,PRESET;NAME=PRESET,PRESET"
    groups = []
    for part in text.split(";"):
        name, equals, listed = part.partition("=")
        quants = tuple(quant.strip().upper() for quant in listed.split(",") if quant.strip())
        if not equals or not name.strip() or not quants:
            raise TableError(f"a group of presets cannot be read from {part.strip()!r}", hint=form)
        groups.append(NamedGroup(name.strip(), quants))
    every = [quant for group in groups for quant in group.quants]
    if len(groups) < 2:
        raise TableError("one group has nothing to be set against", hint=form)
    if len(set(every)) < len(every):
        raise TableError(f"a preset stands in two groups: {text}", hint=form)
    return tuple(groups)


def grouped(
    tables: Iterable[TaskTable],
    groups: tuple[NamedGroup, ...],
    options: Options = bootstrap.DEFAULT,
    seed: int = 0,
) -> tuple[Grouped, ...]:
    """Contrast every two groups wherever all their presets were run, each with one file."""
    faulted = [table for table in tables if table.key.fault != "none"]
    found = []
    for setting in tables_in_groups(faulted, ("quant",)):
        cells: dict[str, list[TaskTable]] = defaultdict(list)
        for table in setting.members:
            cells[table.key.quant.upper()].append(table)
        for first, second in combinations(groups, 2):
            sides = tuple(
                [one for quant in group.quants for one in cells[quant]] for group in (first, second)
            )
            whole = all(len(cells[quant]) == 1 for group in (first, second) for quant in group.quants)
            if whole and len({table.tasks for side in sides for table in side}) == 1:
                found.append(
                    Grouped(
                        key=replace(sides[0][0].key, quant=""),
                        cells=cells_of((*sides[0], *sides[1])),
                        context=setting.label,
                        policy=sides[0][0].policy,
                        first=first,
                        second=second,
                        found=group_contrast(sides[0], sides[1], options, seed),
                        pooled=pooled_test(sides[0], sides[1]),
                        successes=(_successes(sides[0]), _successes(sides[1])),
                    )
                )
    return tuple(found)


def not_run(tables: Iterable[TaskTable], groups: tuple[NamedGroup, ...]) -> tuple[str, ...]:
    """Name the presets of the groups that no cell has, or that are several files under one setting."""
    given = tuple(tables)
    known = {table.key.quant.upper() for table in given}
    found = [f"{group.name}: {quant}" for group in groups for quant in group.quants if quant not in known]
    wanted = {quant for group in groups for quant in group.quants}
    files: dict[str, None] = {}
    for setting in tables_in_groups(given, ("quant",)):
        names = variant_names(setting.members, "quant")
        several = {table.key.quant for table in setting.members if table.key.quant.upper() in wanted}
        for quant in sorted(several):
            mine = {name for name, one in zip(names, setting.members, strict=True) if one.key.quant == quant}
            if len(mine) > 1:
                files[f"{quant} is {len(mine)} files: {'; '.join(sorted(mine))}"] = None
    return (*found, *files)


def _successes(tables: list[TaskTable]) -> int:
    return sum(int(table.successes[table.countable].sum()) for table in tables)
