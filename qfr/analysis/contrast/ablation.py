"""A clause of the prompt, with and without it: its effect at each preset, and whether presets differ in it.

The main effect is success with the clause minus success without it, all else equal (`qfr.scope`), per preset,
on the targets own, matched and full. Whether a preset depends on the clause more than the highest one does is
the difference of the two effects, on the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.groups import interaction
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import tables_in_groups
from qfr.analysis.results import Contrast
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target, TaskTable
from qfr.clauses import Clause
from qfr.records import FaultKind
from qfr.stats import bootstrap
from qfr.stats.intervals import Estimate, Method
from qfr.stats.intervals import Options as BootstrapOptions

TARGETS = (Target.own, Target.matched, Target.full)


@dataclass(frozen=True)
class Difference:
    """``(with - without at a preset) - (with - without at the highest preset)``."""

    target: str
    tasks: int
    # Distinct tasks that enter.
    estimate: Estimate
    # Fractions; None with the reason where it cannot be estimated.
    sign_p: float | None
    # Sign test over the tasks; None for own, whose task sets differ.


@dataclass(frozen=True)
class AtPreset:
    """A clause at one preset."""

    quant: str
    effects: tuple[Contrast, ...]
    # With minus without: own, matched, full.
    differences: tuple[Difference, ...]
    # Against the highest preset; empty for the highest itself.


@dataclass(frozen=True)
class Ablation:
    """A clause on one base prompt, under one setting and policy."""

    key: CellKey
    # Preset and prompt are empty.
    clause: Clause
    base: str
    rest: str
    # What else the prompts have or lack against their base, such as ``-retry_allowed``; mostly empty.
    policy: str
    presets: tuple[AtPreset, ...]
    # From high to low.
    cells: tuple[str, ...]
    # cell_ids of everything that enters.


def ablations(
    tables: Iterable[TaskTable], options: BootstrapOptions = bootstrap.DEFAULT, seed: int = 0
) -> tuple[Ablation, ...]:
    """Find every clause that some cells have and others, alike in all else, have not.

    Parameters
    ----------
    seed : int
        Monte Carlo only, which the differences on own sets always are.

    Returns
    -------
    tuple of Ablation
        Clause by clause in the order of `Clause`, tolerant and strict.
    """
    given = [
        table for table in tables if table.key.fault != FaultKind.none and bits(table.key.quant) is not None
    ]
    found = []
    for clause in Clause:
        axis = f"prompt.{clause.value}"
        usable = [table for table in given if axis in table.scope]
        for setting in tables_in_groups(usable, (Axis.quant, axis)):
            one = _ablation(clause, setting.members, (options, seed))
            if one is not None:
                found.append(one)
    return tuple(found)


def _ablation(
    clause: Clause, members: Sequence[TaskTable], way: tuple[BootstrapOptions, int]
) -> Ablation | None:
    axis = f"prompt.{clause.value}"
    cells = {(table.key.quant, table.scope[axis]): table for table in members}
    quants = sorted({quant for quant, _ in cells}, key=lambda name: order_key(Axis.quant, name))
    whole = [quant for quant in quants if {(quant, "true"), (quant, "false")} <= cells.keys()]
    if not whole or len({table.tasks for table in members}) > 1:
        return None
    options, seed = way
    chosen = Options(
        vary=axis,
        method=options.method,
        resamples=options.resamples,
        seed=seed,
        level=options.level,
        families=False,
    )
    pairs = {quant: (cells[quant, "true"], cells[quant, "false"]) for quant in whole}
    presets = []
    for quant in whole:
        effects = [one for one in contrast_table(pairs[quant], chosen) if one.target in TARGETS]
        differences = () if quant == whole[0] else _differences(pairs[quant], pairs[whole[0]], way)
        presets.append(AtPreset(quant, tuple(effects), differences))
    first = pairs[whole[0]][0]
    return Ablation(
        key=replace(first.key, quant="", prompt=""),
        clause=clause,
        base=first.scope.told("prompt.base"),
        rest=_rest(first.scope.told("prompt.name"), first.scope.told("prompt.base"), clause),
        policy=first.policy,
        presets=tuple(presets),
        cells=tuple(dict.fromkeys(cell for table in members for cell in table.cells)),
    )


def _rest(name: str, base: str, clause: Clause) -> str:
    end = name.removeprefix(base)
    for sign in ("+", "-"):
        end = end.replace(f"{sign}{clause}", "")
    return end


def _differences(
    lower: tuple[TaskTable, TaskTable],
    upper: tuple[TaskTable, TaskTable],
    way: tuple[BootstrapOptions, int],
) -> tuple[Difference, ...]:
    found = [_own(lower, upper, way)]
    for target in (Target.matched, Target.full):
        one = interaction(lower, upper, target, *way)
        found.append(Difference(target.value, len(one.tasks), one.difference, one.sign.p))
    return tuple(found)


def _own(
    lower: tuple[TaskTable, TaskTable],
    upper: tuple[TaskTable, TaskTable],
    way: tuple[BootstrapOptions, int],
) -> Difference:
    """Each cell on its own certified tasks: the suite's tasks are drawn once for all four cells."""
    four, (options, seed) = (*lower, *upper), way
    counted = np.array([table.countable for table in four])
    reached = int(counted.any(axis=0).sum())
    empty = [table.key.name for table, row in zip(four, counted, strict=True) if not row.any()]
    if empty:
        reason = f"no certified task with a delivered fault at {' and '.join(empty)}"
        missing = Estimate(
            None, None, None, options.level, reached, None, options.method, None, False, False, reason
        )
        return Difference(Target.own.value, reached, missing, None)
    delivered = np.array([table.delivered for table in four])
    rates = np.where(counted, np.array([table.successes for table in four]) / np.maximum(delivered, 1), 0.0)
    rng = stream(seed, ["ablation", *(table.key.name for table in four), four[0].policy])
    estimate = _joint(rates, counted.astype(np.float64), options, rng)
    return Difference(Target.own.value, reached, estimate, None)


_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])


def _joint(rates: np.ndarray, counted: np.ndarray, options: BootstrapOptions, rng: Generator) -> Estimate:
    """Percentile interval of a difference of differences of means over sets that share tasks."""
    n = rates.shape[1]
    weights = rng.multinomial(n, np.full(n, 1.0 / n), size=options.resamples).astype(np.float64)
    sums, sizes = weights @ rates.T, weights @ counted.T
    drawn = ((sums / np.where(sizes > 0, sizes, np.nan)) @ _SIGNS)[(sizes > 0).all(axis=1)]
    value = float((rates.sum(axis=1) / counted.sum(axis=1)) @ _SIGNS)
    tail = (1.0 - options.level) / 2.0
    low, high = (float(end) for end in np.quantile(drawn, (tail, 1.0 - tail)))
    flat = low == high
    return Estimate(
        value=value,
        low=low,
        high=high,
        level=options.level,
        n=n,
        n_second=None,
        method=Method.MONTECARLO,
        resamples=options.resamples,
        degenerate=flat,
        reliable=not flat,
        reason="degenerate: the resampled value does not vary, so the interval shows no uncertainty"
        if flat
        else None,
    )
