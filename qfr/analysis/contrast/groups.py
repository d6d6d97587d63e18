"""Contrasts of more than two cells: named groups of presets, and differences of differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from qfr.analysis.contrast.decomposition import POINTS
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import cells_of, tables_in_groups, variant_names
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target, TaskTable, full_rates, recovery, shared_tasks
from qfr.errors import TableError
from qfr.stats import bootstrap, intervals, lattice
from qfr.stats.bayesian import BayesianInterval, interval
from qfr.stats.exact import FisherResult, PairedTest, fisher, sign_flip_test, sign_test
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice


@dataclass(frozen=True)
class GroupContrast:
    """Mean of one group of cells minus mean of another over the same tasks."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    # Names of the cells.
    tasks: tuple[str, ...]
    # Tasks that enter.
    difference: Estimate
    # Fractions; None with the reason where not estimable.
    bayesian: BayesianInterval
    # The interval that words rest on, in fractions.
    sign: PairedTest
    signflip: PairedTest

    @property
    def points(self) -> float | None:
        """The difference in points."""
        return None if self.difference.value is None else POINTS * self.difference.value


def group_contrast(
    first: Sequence[TaskTable],
    second: Sequence[TaskTable],
    options: intervals.Options = bootstrap.DEFAULT,
    seed: int = 0,
) -> GroupContrast:
    """Contrast two groups of presets on the tasks that every member of both certified (Hu 2026, appendix A).

    The value of a task is its mean r over the group's members. Raises `TableError` if a group is empty or the
    cells list different tasks.
    """
    if not first or not second:
        raise TableError("a group without cells")
    members = (*first, *second)
    mask = np.logical_and.reduce([table.countable for table in members]) & shared_tasks(members)
    difference = lattice.difference(
        mean_of([recovery(table, mask) for table in first]),
        mean_of([recovery(table, mask) for table in second]),
    )
    return _result((first, second), mask, (difference, 1.0), (options, seed))


def interaction(
    upper: tuple[TaskTable, TaskTable],
    lower: tuple[TaskTable, TaskTable],
    target: Target = Target.matched,
    options: intervals.Options = bootstrap.DEFAULT,
    seed: int = 0,
) -> GroupContrast:
    """Difference of differences ``(upper[0] - upper[1]) - (lower[0] - lower[1])``, such as prompt by preset.

    Parameters
    ----------
    upper, lower : pairs of TaskTable
        For example Q8_0 and Q4_K_M under P0, and the same under P4.
    target : Target
        ``matched``: tasks certified by all four cells; ``full``: all tasks, uncertified ones count 0.

    Raises
    ------
    TableError
        If the target is another one, or the cells list different tasks.
    """
    members = (*upper, *lower)
    mask = shared_tasks(members)
    if target is Target.matched:
        mask = mask & np.logical_and.reduce([table.countable for table in members])
        values = [recovery(table, mask) for table in members]
    elif target is Target.full:
        mask = np.ones_like(mask)
        values = [full_rates(table, mask) for table in members]
    else:
        raise TableError(f"no difference of differences for the target {target}", hint="use matched or full")
    difference = lattice.difference(
        lattice.difference(values[0], values[1]), lattice.difference(values[2], values[3])
    )
    groups = ((upper[0], lower[1]), (upper[1], lower[0]))
    return _result(groups, mask, (difference, 2.0), (options, seed))


def pooled_test(first: Sequence[TaskTable], second: Sequence[TaskTable]) -> FisherResult:
    """Fisher's exact test of the pooled fault episodes of two groups, each cell on its own certified tasks.

    Hu 2026 (appendix A) pools so; the result carries the warning that episodes of one task are dependent.
    """
    counts = [
        (
            sum(int(table.successes[table.countable].sum()) for table in group),
            sum(int(table.delivered[table.countable].sum()) for table in group),
        )
        for group in (first, second)
    ]
    return fisher(*counts[0], *counts[1])


def mean_of(samples: Sequence[Lattice]) -> Lattice:
    """Return the mean of several samples task by task; all list the same tasks."""
    total = samples[0]
    for sample in samples[1:]:
        one, other = lattice.common(total, sample)
        total = Lattice(one.numerators + other.numerators, one.denominator)
    return Lattice(total.numerators, total.denominator * len(samples))


def _result(
    groups: tuple[Sequence[TaskTable], Sequence[TaskTable]],
    mask: lattice.BoolArray,
    limited: tuple[Lattice, float],
    drawing: tuple[intervals.Options, int],
) -> GroupContrast:
    """Estimate and test differences; `limited` holds them and the largest that a task can have."""
    names = tuple(tuple(table.key.name for table in group) for group in groups)
    tables = groups[0]
    (difference, limit), (options, seed) = limited, drawing
    rng = stream(seed, ["group", *names[0], "-", *names[1], tables[0].policy])
    return GroupContrast(
        first=names[0],
        second=names[1],
        tasks=tuple(tables[0].tasks[at] for at in np.flatnonzero(mask)),
        difference=bootstrap.mean(difference, options=options, rng=rng),
        bayesian=interval(difference, -limit, limit, options.level),
        sign=sign_test(difference),
        signflip=sign_flip_test(difference),
    )


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


@dataclass(frozen=True)
class Interaction:
    """``(A - B under the first prompt) - (A - B under the second)``."""

    key: CellKey
    # Preset and prompt are empty.
    cells: tuple[str, ...]
    # cell_ids of the four cells and their clean passes.
    policy: str
    a: str
    b: str
    first: str
    second: str
    # Prompts.
    target: str
    found: GroupContrast


def interactions(
    tables: Iterable[TaskTable],
    options: Options = bootstrap.DEFAULT,
    seed: int = 0,
    order: tuple[str, ...] = (),
) -> tuple[Interaction, ...]:
    """Set the first prompt against every other one, for the highest preset against every other one.

    Parameters
    ----------
    seed : int
        Monte Carlo only.
    order : tuple of str
        Explicit order of the presets, highest first; without it a preset needs a number of bits.

    Returns
    -------
    tuple of Interaction
        Targets matched (tasks that all four cells certified) and full, tolerant and strict.
    """
    usable = [
        table
        for table in tables
        if table.key.fault != "none" and (order or bits(table.key.quant) is not None)
    ]
    found: list[Interaction] = []
    for setting in tables_in_groups(usable, ("quant", "prompt")):
        found += _of_setting(setting.members, (options, seed), order)
    return tuple(found)


def _of_setting(
    members: tuple[TaskTable, ...], way: tuple[Options, int], order: tuple[str, ...]
) -> Iterable[Interaction]:
    cells = {(quant, prompt): table for (quant, prompt), table in zip(_places(members), members, strict=True)}
    bare = {quant: table.key.quant for (quant, _), table in cells.items()}
    names = {prompt: table.key.prompt for (_, prompt), table in cells.items()}
    quants = sorted(bare, key=lambda name: (order_key(Axis.quant, bare[name], order), name))
    prompts = sorted(names, key=lambda name: (order_key(Axis.prompt, names[name]), name))
    for b in quants[1:]:
        for second in prompts[1:]:
            places = [(quant, prompt) for prompt in (prompts[0], second) for quant in (quants[0], b)]
            four = [cells[place] for place in places if place in cells]
            if len(four) < 4 or len({table.tasks for table in four}) > 1:
                continue
            for target in (Target.matched, Target.full):
                yield Interaction(
                    key=replace(four[0].key, quant="", prompt=""),
                    cells=cells_of(four),
                    policy=four[0].policy,
                    a=quants[0],
                    b=b,
                    first=prompts[0],
                    second=second,
                    target=target.value,
                    found=interaction((four[0], four[1]), (four[2], four[3]), target, *way),
                )


def _places(members: tuple[TaskTable, ...]) -> list[tuple[str, str]]:
    """Preset and prompt of each cell, with what tells two files or two texts of one name apart."""
    return list(zip(variant_names(members, "quant"), variant_names(members, "prompt"), strict=True))
