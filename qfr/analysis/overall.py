"""One line per preset: full-pipeline success averaged over the prompts that were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from qfr.analysis.groups import mean_of
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Options


@dataclass(frozen=True)
class Overall:
    """A preset over all its prompts. Rates are fractions (0..1)."""

    key: CellKey
    # The prompt is empty.
    model_file: str
    # Digest of the GGUF.
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
    found: dict[tuple[object, ...], list[TaskTable]] = defaultdict(list)
    for table in tables:
        if table.key.fault != "none":
            key, alike = replace(table.key, prompt=""), table.treatment
            rest = (alike.suite, alike.build, alike.engine, alike.model_file, table.tasks)
            found[(key, table.policy, *rest)].append(table)
    return tuple(_overall(members, options, seed) for members in found.values())


def _overall(members: list[TaskTable], options: Options, seed: int) -> Overall:
    key = replace(members[0].key, prompt="")
    everything = np.ones(members[0].n_tasks, dtype=np.bool_)
    rates = [full_rates(table, everything) for table in members]
    means = [rate.mean or 0.0 for rate in rates]
    return Overall(
        key=key,
        model_file=members[0].treatment.model_file,
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
