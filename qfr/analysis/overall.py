"""One line per preset: full-pipeline success averaged over the prompts that were run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from qfr.analysis.groups import mean_of
from qfr.analysis.pairing import cells_of, tables_in_groups, variant_names
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.scope import Group, Scope
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Options


@dataclass(frozen=True)
class Overall:
    """A preset over all its prompts. Rates are fractions (0..1)."""

    key: CellKey
    # The prompt is empty.
    name: str
    # Of the preset, with what tells two of its files apart.
    scope: Scope
    # Of one of its cells: the file and the setting.
    setting: Scope
    # What all presets that may be ranked together share.
    cells: tuple[str, ...]
    # cell_ids of everything that enters.
    policy: str
    prompts: tuple[str, ...]
    certified: int
    tasks: int
    # Summed over the prompts.
    full: Estimate
    # Each task's success averaged over the prompts first, then over tasks; the task is what is resampled.
    lowest: float
    highest: float
    # Over the prompts.


def overall(
    tables: Iterable[TaskTable], options: Options = bootstrap.DEFAULT, seed: int = 0
) -> tuple[Overall, ...]:
    """Average every preset over its prompts, in the order of the tables."""
    faulted = [table for table in tables if table.key.fault != "none"]
    settings = tables_in_groups(faulted, ("quant", "prompt"))
    return tuple(
        _overall(list(members.members), setting, (options, seed))
        for setting in settings
        for members in tables_in_groups(setting.members, ("prompt",))
        if len({table.tasks for table in members.members}) == 1
    )


def _overall(members: list[TaskTable], setting: Group[TaskTable], way: tuple[Options, int]) -> Overall:
    options, seed = way
    key = replace(members[0].key, prompt="")
    everything = np.ones(members[0].n_tasks, dtype=np.bool_)
    rates = [full_rates(table, everything) for table in members]
    means = [rate.mean or 0.0 for rate in rates]
    return Overall(
        key=key,
        name=dict(zip(map(id, setting.members), variant_names(setting.members, "quant"), strict=True))[
            id(members[0])
        ],
        scope=members[0].scope,
        setting=setting.fixed,
        cells=cells_of(members),
        policy=members[0].policy,
        prompts=tuple(table.key.prompt for table in members),
        certified=sum(table.n_certified for table in members),
        tasks=sum(table.n_tasks for table in members),
        full=bootstrap.mean(
            mean_of(rates), options=options, rng=stream(seed, ["overall", key.name, members[0].policy])
        ),
        lowest=min(means),
        highest=max(means),
    )
