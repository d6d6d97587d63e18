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
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.stats import bootstrap, equivalence, lattice, power
from qfr.stats.equivalence import Equivalence
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice


@dataclass(frozen=True)
class Rank:
    """One preset against the highest preset of the same model and setting, full pipeline."""

    key: CellKey
    # The prompt is empty.
    model_file: str
    # Digest, which tells two files of one preset apart.
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
    settings: dict[tuple[object, ...], dict[tuple[str, str], list[TaskTable]]] = defaultdict(dict)
    for table in tables:
        if table.key.fault != "none":
            alike = table.treatment
            rest = (alike.suite, alike.build, alike.engine, alike.executor, table.tasks)
            where = (replace(table.key, prompt="", quant=""), table.policy, *rest)
            settings[where].setdefault((table.key.quant, alike.model_file), []).append(table)
    found: list[Rank] = []
    for presets in settings.values():
        if any(bits(quant) is None for quant, _ in presets):
            continue
        highest = min(presets, key=lambda preset: order_key(Axis.quant, preset[0]))
        for preset, members in presets.items():
            if preset != highest:
                found += _rank(members, presets[highest], (options, seed, margin))
    return tuple(found)


def _rank(
    members: list[TaskTable], reference: list[TaskTable], way: tuple[Options, int, float]
) -> Iterable[Rank]:
    options, seed, margin = way
    by_prompt = {(table.key.prompt, table.treatment.prompt): table for table in reference}
    pairs = [
        (table, by_prompt[name])
        for table in members
        if (name := (table.key.prompt, table.treatment.prompt)) in by_prompt
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
        model_file=members[0].treatment.model_file,
        policy=members[0].policy,
        reference=reference[0].key.quant,
        prompts=tuple(table.key.prompt for table, _ in pairs),
        difference=bootstrap.mean(apart, options=options, rng=rng),
        equivalence=equivalence.tost_bootstrap(apart, margin / POINTS),
        detectable=None if known is None else POINTS * known,
    )


def _rates(table: TaskTable) -> Lattice:
    return full_rates(table, np.ones(table.n_tasks, dtype=np.bool_))
