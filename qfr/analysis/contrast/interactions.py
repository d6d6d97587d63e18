"""Prompt by preset: does the difference between two presets change from one prompt to another?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from qfr.analysis.contrast.groups import GroupContrast, interaction
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import cells_of, tables_in_groups, variant_names
from qfr.analysis.targets import CellKey, Target, TaskTable
from qfr.stats import bootstrap
from qfr.stats.intervals import Options


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
    tables : iterable of TaskTable
    options : qfr.stats.bootstrap.Options
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
