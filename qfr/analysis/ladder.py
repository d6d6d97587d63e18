"""The ladder: presets from high to low under one prompt, with every kind of fault (Hu 2026, table 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qfr.analysis.cells import CellSummary
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.process import Process
from qfr.analysis.targets import CellKey
from qfr.faults import FAULTS, FaultKind
from qfr.stats.intervals import Interval

#: The kinds of fault, in the paper's order of columns.
# Kinds of fault in the order of a ladder's columns.
KINDS = tuple(kind for kind in FAULTS if kind is not FaultKind.none)
_INVENTED = {kind for kind, fault in FAULTS.items() if "invented" in fault.columns}


@dataclass(frozen=True)
class Step:
    """One fault at one preset, on the preset's own certified tasks."""

    fault: str
    rate: Interval
    # Successful episodes (ep: correct reports of failure) over delivered ones, Wilson.
    successes: int
    episodes: int


@dataclass(frozen=True)
class Rung:
    """One preset."""

    quant: str
    certified: int
    tasks: int
    few: bool
    # Fewer certified tasks than Hu 2026 asks of a ladder level.
    steps: tuple[Step, ...]
    # In the order of FAULTS; a fault that was not run is left out.
    invented: int | None
    # Numbers submitted although the dead tool made them unknowable; None without ep.


@dataclass(frozen=True)
class Ladder:
    """One model under one prompt."""

    key: CellKey
    # Preset and fault are empty.
    policy: str
    rungs: tuple[Rung, ...]
    # From high to low.


def ladders(summaries: Iterable[CellSummary], processes: Iterable[Process]) -> tuple[Ladder, ...]:
    """Draw up a ladder where several presets met several kinds of fault under one prompt."""
    found: dict[tuple[CellKey, str], dict[str, dict[str, CellSummary]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    twice: set[tuple[CellKey, str]] = set()
    for one in summaries:
        if one.family is None and one.key.fault != FaultKind.none and bits(one.key.quant) is not None:
            where = replace(one.key, quant="", fault=""), one.policy
            if one.key.fault in found[where][one.key.quant]:
                twice.add(where)
            found[where][one.key.quant][one.key.fault] = one
    invented = {
        (one.key, answers.policy): answers.invented
        for one in processes
        if one.key.fault in _INVENTED
        for answers in one.answers
    }
    ladder = []
    for where, presets in found.items():
        faults = {fault for cells in presets.values() for fault in cells}
        if len(presets) > 1 and len(faults) > 1 and where not in twice:
            order = sorted(presets, key=lambda name: order_key(Axis.quant, name))
            rungs = tuple(_rung(name, presets[name], invented) for name in order)
            ladder.append(Ladder(where[0], where[1], rungs))
    return tuple(ladder)


def _rung(quant: str, cells: dict[str, CellSummary], invented: dict[tuple[CellKey, str], int]) -> Rung:
    first = next(iter(cells.values()))
    dead = next((cells[kind] for kind in cells if kind in _INVENTED), None)
    return Rung(
        quant=quant,
        certified=first.n_certified,
        tasks=first.n_tasks,
        few=first.few,
        steps=tuple(
            Step(kind.value, one.episode_rate, one.successes, one.episodes)
            for kind in KINDS
            if (one := cells.get(kind)) is not None
        ),
        invented=None if dead is None else invented.get((dead.key, dead.policy)),
    )
