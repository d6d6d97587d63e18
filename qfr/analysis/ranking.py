"""Presets of one model against its highest one, averaged over prompts: the question of deployment.

The yardstick is the preset of the highest precision that was run, fixed before any result is seen; the best
of several observed presets would be too good by selection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from qfr.analysis.decomposition import POINTS
from qfr.analysis.groups import mean_of
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import tables_in_groups, variant_names
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.scope import Scope, differ
from qfr.stats import bootstrap, equivalence, lattice, power
from qfr.stats.equivalence import Equivalence
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice


@dataclass(frozen=True)
class Rank:
    """One preset against the highest preset of the same model and setting, full pipeline."""

    key: CellKey
    # The prompt is empty.
    name: str
    # Of the preset, with what tells two of its files apart.
    setting: Scope
    # What all presets that may be ranked together share.
    policy: str
    reference: str
    # Name of the highest preset.
    prompts: tuple[str, ...]
    # Under which both were run.
    difference: Estimate
    # This preset minus the reference, each task averaged over the prompts; a fraction.
    equivalence: Equivalence
    detectable: float | None
    # True difference in points that this many tasks, spread as observed, find with 80 % power.


def rank(
    tables: Iterable[TaskTable],
    options: Options = bootstrap.DEFAULT,
    seed: int = 0,
    margin: float = POINTS * equivalence.DEFAULT_MARGIN,
) -> tuple[Rank, ...]:
    """Set every preset against the highest one of its model, fault, executor, suite and build.

    Parameters
    ----------
    tables : iterable of TaskTable
    options : qfr.stats.bootstrap.Options
    seed : int
        Monte Carlo only.
    margin : float
        Of equivalence, in points.

    Returns
    -------
    tuple of Rank
        Nothing where a preset's name says no precision, since then none is the highest.
    """
    faulted = [table for table in tables if table.key.fault != "none"]
    found: list[Rank] = []
    for setting in tables_in_groups(faulted, ("quant", "prompt")):
        if any(bits(table.key.quant) is None for table in setting.members):
            continue
        names = dict(zip(map(id, setting.members), variant_names(setting.members, "quant"), strict=True))
        presets: dict[str, list[TaskTable]] = defaultdict(list)
        for table in setting.members:
            presets[names[id(table)]].append(table)
        highest = min(presets, key=lambda name: (order_key(Axis.quant, presets[name][0].key.quant), name))
        for preset, members in presets.items():
            if preset != highest:
                found += _rank(
                    (preset, highest),
                    (members, presets[highest]),
                    setting.fixed,
                    (options, seed, margin),
                )
    return tuple(found)


def _rank(
    names: tuple[str, str],
    cells: tuple[list[TaskTable], list[TaskTable]],
    setting: Scope,
    way: tuple[Options, int, float],
) -> Iterable[Rank]:
    options, seed, margin = way
    members, reference = cells
    pairs = [
        (table, other)
        for table in members
        for other in reference
        if not differ(table.scope, other.scope, ("quant",)) and table.tasks == other.tasks
    ]
    if not pairs:
        return
    mine, other = (mean_of([_rates(pair[side]) for pair in pairs]) for side in (0, 1))
    apart = lattice.difference(mine, other)
    key = replace(members[0].key, prompt="")
    rng = stream(seed, ["rank", key.name, reference[0].key.quant, members[0].policy])
    spread = power.spread(apart)
    known = power.detectable(len(apart), spread).difference if spread else None
    yield Rank(
        key=key,
        name=names[0],
        setting=setting,
        policy=members[0].policy,
        reference=names[1],
        prompts=tuple(table.key.prompt for table, _ in pairs),
        difference=bootstrap.mean(apart, options=options, rng=rng),
        equivalence=equivalence.tost_bootstrap(apart, margin / POINTS),
        detectable=None if known is None else POINTS * known,
    )


def _rates(table: TaskTable) -> Lattice:
    return full_rates(table, np.ones(table.n_tasks, dtype=np.bool_))
