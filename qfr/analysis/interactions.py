"""Prompt by preset: does the difference between two presets change from one prompt to another?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qfr.analysis.groups import GroupContrast, interaction
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.targets import CellKey, Target, TaskTable
from qfr.stats import bootstrap
from qfr.stats.intervals import Options


@dataclass(frozen=True)
class Interaction:
    """``(A - B under the first prompt) - (A - B under the second)``."""

    key: CellKey
    # Preset and prompt are empty.
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
        Targets matched (tasks that all four cells certified) and full, tolerant and strict; only where one
        preset has one file and one prompt one text.
    """
    settings: dict[tuple[object, ...], dict[tuple[str, str], TaskTable]] = defaultdict(dict)
    twice: set[tuple[object, ...]] = set()
    for table in tables:
        if table.key.fault != "none" and (order or bits(table.key.quant) is not None):
            alike = table.treatment
            rest = (alike.suite, alike.build, alike.engine, alike.executor, table.tasks)
            where = (replace(table.key, quant="", prompt=""), table.policy, *rest)
            place = (table.key.quant, table.key.prompt)
            if place in settings[where]:
                twice.add(where)
            settings[where][place] = table
    found: list[Interaction] = []
    for setting, cells in settings.items():
        if setting not in twice:
            found += _of_setting(cells, (options, seed), order)
    return tuple(found)


def _of_setting(
    cells: dict[tuple[str, str], TaskTable], way: tuple[Options, int], order: tuple[str, ...]
) -> Iterable[Interaction]:
    quants = sorted({quant for quant, _ in cells}, key=lambda name: order_key(Axis.quant, name, order))
    prompts = sorted({prompt for _, prompt in cells}, key=lambda name: order_key(Axis.prompt, name))
    for b in quants[1:]:
        for second in prompts[1:]:
            places = [(quant, prompt) for prompt in (prompts[0], second) for quant in (quants[0], b)]
            if any(place not in cells for place in places):
                continue
            four = [cells[place] for place in places]
            for target in (Target.matched, Target.full):
                yield Interaction(
                    key=replace(four[0].key, quant="", prompt=""),
                    policy=four[0].policy,
                    a=quants[0],
                    b=b,
                    first=prompts[0],
                    second=second,
                    target=target.value,
                    found=interaction((four[0], four[1]), (four[2], four[3]), target, *way),
                )
