"""How far one order of presets holds under other prompts, targets and policies, and what moves rates most.

*Agreement* is Kendall's tau-b and Spearman's rho of the presets' rates in two places that differ in the
prompt, in the target or in the policy alone, with task-bootstrap intervals (tasks drawn once for all cells).
*Spread* is the largest rate minus the smallest along one axis, all else equal, averaged over the places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy import stats

from qfr.analysis.levels import bits
from qfr.analysis.pairing import cells_of, tables_in_groups
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target, TaskTable
from qfr.records import FaultKind, Policy
from qfr.stats.lattice import FloatArray

TARGETS = (Target.own, Target.full)
#: Axes whose spread is shown, with what they are called.
SPREADS = {
    "quant": "presets",
    "prompt": "prompts",
    "prompt.rewrites": "rewrites of one prompt",
    "executor": "executors",
}
_RESAMPLES = 1_000


@dataclass(frozen=True)
class Agreement:
    """The order of presets in two places."""

    key: CellKey
    # Preset and prompt are empty.
    across: str
    # prompt, target or policy: the only thing in which the places differ.
    first: str
    second: str
    # Such as ``P0, full, tolerant``.
    presets: tuple[str, ...]
    tau: float | None
    tau_low: float | None
    tau_high: float | None
    # None where all presets tie in one of the places.
    rho: float | None
    tops: tuple[str, str]
    # The preset of the highest rate in either place; several are joined by ``=``.
    cells: tuple[str, ...]
    # cell_ids of all that enter.


@dataclass(frozen=True)
class Spread:
    """What an axis moves."""

    axis: str
    target: str
    policy: str
    places: int
    # Groups of at least two cells that differ along the axis alone.
    mean: float
    largest: float
    # Of the largest minus the smallest rate in a place, fractions.
    cells: tuple[str, ...]
    # cell_ids of all that enter.


@dataclass(frozen=True)
class _Place:
    prompt: str
    target: Target
    policy: str
    rates: dict[str, tuple[FloatArray, FloatArray]]
    # Per preset: r of each task (0 where it does not count), and whether it counts.
    cells: tuple[str, ...]


def agreements(tables: Iterable[TaskTable], seed: int = 0) -> tuple[Agreement, ...]:
    """Set every two places with at least three presets in common against each other."""
    given = [one for one in tables if one.key.fault != FaultKind.none and bits(one.key.quant) is not None]
    by_setting: dict[tuple[tuple[str, str], ...], list[TaskTable]] = {}
    for table in given:
        by_setting.setdefault(table.scope.fixed(frozenset({"quant", "prompt"})), []).append(table)
    found = []
    for members in by_setting.values():
        if len({table.tasks for table in members}) == 1:
            places = _places(members)
            key = replace(members[0].key, quant="", prompt="")
            for one, other in combinations(places, 2):
                across = _across(one, other)
                if across and (result := _agreement(key, across, (one, other), seed)) is not None:
                    found.append(result)
    return tuple(found)


def spreads(tables: Iterable[TaskTable]) -> tuple[Spread, ...]:
    """Return the spread along every axis on which some cells differ alone, by target and policy."""
    given = [one for one in tables if one.key.fault != FaultKind.none]
    found = []
    for axis in SPREADS:
        groups = [one.members for one in tables_in_groups(given, (axis,)) if len(one.members) > 1]
        for policy in Policy:
            for target in TARGETS:
                widths: list[float] = []
                entered: list[TaskTable] = []
                for members in groups:
                    if members[0].policy == policy:
                        rates = [rate for one in members if (rate := _rate(one, target)) is not None]
                        if len(rates) > 1:
                            widths.append(max(rates) - min(rates))
                            entered += members
                if widths:
                    mean = sum(widths) / len(widths)
                    of = cells_of(entered)
                    found.append(Spread(axis, target.value, policy.value, len(widths), mean, max(widths), of))
    return tuple(found)


def _rate(table: TaskTable, target: Target) -> float | None:
    values, counts = _values(table, target)
    return float(values.sum() / counts.sum()) if counts.any() else None


def _values(table: TaskTable, target: Target) -> tuple[FloatArray, FloatArray]:
    counted = table.countable
    rates = np.where(counted, table.successes / np.maximum(table.delivered, 1), 0.0)
    return rates, np.ones(len(rates)) if target is Target.full else counted.astype(np.float64)


def _places(members: Sequence[TaskTable]) -> list[_Place]:
    found = []
    for prompt in sorted({table.key.prompt for table in members}):
        for policy in Policy:
            here = [table for table in members if (table.key.prompt, table.policy) == (prompt, policy)]
            names = [table.key.quant for table in here]
            if len(names) < 3 or len(set(names)) < len(names):
                continue
            for target in TARGETS:
                rates = {table.key.quant: _values(table, target) for table in here}
                found.append(_Place(prompt, target, policy.value, rates, cells_of(here)))
    return found


def _across(one: _Place, other: _Place) -> str:
    """The only thing in which two places differ; empty where they differ in several."""
    differ = [name for name in ("prompt", "target", "policy") if getattr(one, name) != getattr(other, name)]
    return differ[0] if len(differ) == 1 else ""


def _agreement(key: CellKey, across: str, places: tuple[_Place, _Place], seed: int) -> Agreement | None:
    presets = tuple(sorted(places[0].rates.keys() & places[1].rates.keys()))
    if len(presets) < 3:
        return None
    n = len(places[0].rates[presets[0]][0])
    names = [f"{one.prompt}, {one.target}, {one.policy}" for one in places]
    rng = stream(seed, ["agreement", key.name, *names])
    drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=_RESAMPLES)
    weights = np.vstack([np.ones(n), drawn]).astype(np.float64)
    rates = [_weighted(one, presets, weights) for one in places]
    if any(np.isnan(one[0]).any() for one in rates):
        return None
    taus = tau_b(rates[0], rates[1])
    usable = taus[1:][np.isfinite(taus[1:])]
    known = bool(np.isfinite(taus[0])) and len(usable) > _RESAMPLES // 2
    low, high = (float(end) for end in np.quantile(usable, (0.025, 0.975))) if known else (None, None)
    return Agreement(
        key=key,
        across=across,
        first=names[0],
        second=names[1],
        presets=presets,
        tau=float(taus[0]) if np.isfinite(taus[0]) else None,
        tau_low=low,
        tau_high=high,
        rho=float(stats.spearmanr(rates[0][0], rates[1][0]).statistic) if np.isfinite(taus[0]) else None,
        tops=(_top(presets, rates[0][0]), _top(presets, rates[1][0])),
        cells=tuple(dict.fromkeys((*places[0].cells, *places[1].cells))),
    )


def _weighted(place: _Place, presets: Sequence[str], weights: FloatArray) -> FloatArray:
    """Rate of each preset under each weighting of the tasks, shape (weightings, presets)."""
    sums = np.stack([weights @ place.rates[name][0] for name in presets], axis=1)
    sizes = np.stack([weights @ place.rates[name][1] for name in presets], axis=1)
    found: FloatArray = np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)
    # Rates that differ by rounding only are a tie.
    return np.round(found, 12)


def tau_b(first: FloatArray, second: FloatArray) -> FloatArray:
    """Kendall's tau-b of each row, nan where all values of a row tie (as `scipy.stats.kendalltau`)."""
    rows, columns = np.triu_indices(first.shape[1], 1)
    one, other = (np.sign(side[:, rows] - side[:, columns]) for side in (first, second))
    scale = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    found: FloatArray = np.full(len(scale), np.nan)
    np.divide((one * other).sum(axis=1), scale, out=found, where=scale > 0)
    return found


def _top(presets: Sequence[str], rates: FloatArray) -> str:
    return "=".join(name for name, rate in zip(presets, rates, strict=True) if rate == rates.max())
