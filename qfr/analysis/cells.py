"""One summary per cell and scoring policy: certified tasks, recovery on the cell's own set, full pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from qfr.analysis.contrast.decomposition import Bounds, rate_bounds
from qfr.analysis.pairing import tables_in_groups
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates, recovery, shared_tasks
from qfr.scope import Scope
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Interval, Options, wilson
from qfr.stats.lattice import BoolArray, Lattice

#: A cell with fewer certified tasks carries a visible warning. Hu 2026 admits no such preset to the ladder,
#: yet keeps one with five tasks in its main table; so it is a warning here and not a filter.
FEWEST_CERTIFIED = 8


@dataclass(frozen=True)
class CellSummary:
    """What one policy says of one cell, or of one task family in it. Rates are fractions (0..1)."""

    key: CellKey
    scope: Scope = field(repr=False)
    cells: tuple[str, ...]
    # cell_id of the cell and of its clean pass.
    policy: str
    family: str | None
    # None for all tasks.
    n_tasks: int
    n_certified: int
    clean: Interval
    # Share of certified tasks, Wilson interval over tasks.
    own: Estimate
    # Mean of r over the certified tasks, task bootstrap.
    successes: int
    episodes: int
    # Successful and all delivered fault episodes on certified tasks.
    episode_rate: Interval
    # successes / episodes, Wilson interval (episodes of one task are not independent).
    full: Estimate
    # Mean over all tasks, uncertified ones count 0.
    n_s_star: int
    s_star: Estimate
    # Mean of r over the tasks that this preset passed under every prompt.
    scheduled: int
    undelivered: int
    # Scheduled faults on certified tasks, and those that never fired.
    undelivered_tasks: tuple[str, ...]
    # Certified tasks none of whose faults fired.
    own_bounds: Bounds | None
    full_bounds: Bounds | None
    # In points, only while a fault did not fire.

    @property
    def few(self) -> bool:
        """Whether the whole cell has fewer certified tasks than the paper asks of a ladder level."""
        return self.family is None and self.n_certified < FEWEST_CERTIFIED


def summarize(
    tables: Iterable[TaskTable], options: Options = bootstrap.DEFAULT, seed: int = 0, families: bool = True
) -> tuple[CellSummary, ...]:
    """Summarize each cell, all tasks first and then each family.

    Parameters
    ----------
    options : qfr.stats.bootstrap.Options
        Level, method and resamples of the task bootstrap.
    seed : int
        Monte Carlo only; each cell draws from a stream of its own.
    families : bool
        Also within each family.
    """
    given = tuple(tables)
    shared: dict[TaskTable, BoolArray] = {}
    for one in tables_in_groups(given, ("prompt",)):
        # Published tables say no suite: one group may hold several lists of tasks.
        for members in _of_same_tasks(one.members):
            shared |= dict.fromkeys(members, shared_tasks(members))
    summaries = []
    for table in given:
        names: Sequence[str | None] = [None]
        if families and len(known := table.family_names()) > 1:
            names = [None, *known]
        summaries += [_summary(table, family, shared[table], options, seed) for family in names]
    return tuple(summaries)


def _of_same_tasks(tables: Sequence[TaskTable]) -> Iterable[tuple[TaskTable, ...]]:
    found: dict[tuple[str, ...], list[TaskTable]] = defaultdict(list)
    for table in tables:
        found[table.tasks].append(table)
    return map(tuple, found.values())


def _summary(
    table: TaskTable, family: str | None, shared: BoolArray, options: Options, seed: int
) -> CellSummary:
    within = table.within(family)
    counted = table.countable & within
    everywhere = counted & shared
    successes, episodes = int(table.successes[counted].sum()), int(table.delivered[counted].sum())
    certified = table.certified & within
    limits = rate_bounds(table) if family is None else None

    def mean(sample: Lattice, name: str) -> Estimate:
        return bootstrap.mean(sample, options=options, rng=_stream(table, family, name, seed))

    return CellSummary(
        key=table.key,
        scope=table.scope,
        cells=table.cells,
        policy=table.policy,
        family=family,
        n_tasks=int(within.sum()),
        n_certified=int(certified.sum()),
        clean=wilson(int(certified.sum()), int(within.sum()), options.level),
        own=mean(recovery(table, counted), "own"),
        successes=successes,
        episodes=episodes,
        episode_rate=wilson(successes, episodes, options.level),
        full=mean(full_rates(table, within), "full"),
        n_s_star=int(everywhere.sum()),
        s_star=mean(recovery(table, everywhere), "s_star"),
        scheduled=int(table.scheduled[certified].sum()),
        undelivered=int((table.scheduled - table.delivered)[certified].sum()),
        undelivered_tasks=table.undelivered_tasks if family is None else (),
        own_bounds=limits[0] if limits else None,
        full_bounds=limits[1] if limits else None,
    )


def _stream(table: TaskTable, family: str | None, name: str, seed: int) -> np.random.Generator:
    key = table.key
    parts = [key.model, key.quant, key.prompt, key.fault, key.executor, key.suite, key.gate, str(key.trial)]
    return stream(seed, [*parts, table.policy, family or "", name])
