"""The ladder: presets from high to low under one prompt, with every kind of fault (Hu 2026, table 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from qfr import scope
from qfr.analysis.cells import CellSummary
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import variant_names
from qfr.analysis.process import Process
from qfr.analysis.targets import CellKey
from qfr.faults import FAULTS, FaultKind
from qfr.scope import Scope
from qfr.stats.intervals import Interval

#: Kinds of fault in the order of a ladder's columns.
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
    cells: tuple[str, ...]
    # cell_ids of the fault cell and its clean pass.


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
    usable = [
        one
        for one in summaries
        if one.family is None and one.key.fault != FaultKind.none and bits(one.key.quant) is not None
    ]
    invented = {
        (one.cell_id, answers.policy): answers.invented
        for one in processes
        if one.key.fault in _INVENTED
        for answers in one.answers
    }
    settings = scope.group(usable, ("quant", "fault"), of=lambda one: one.scope, also=lambda one: one.policy)
    return tuple(
        ladder
        for setting in settings
        for members, text in _by_text(setting.members)
        if (ladder := _ladder(members, text, invented)) is not None
    )


def _by_text(members: Sequence[CellSummary]) -> Iterable[tuple[list[CellSummary], str]]:
    """Cells with one text per kind of fault, for every choice of texts, and what tells the choices apart."""
    kinds: dict[str, dict[Scope, list[CellSummary]]] = defaultdict(lambda: defaultdict(list))
    for one in members:
        own = Scope(dict(one.scope.items() - one.scope.fixed(frozenset({"fault"}))))
        kinds[one.key.fault][own].append(one)
    told = {
        own: f"{kind} {text}"
        for kind, texts in kinds.items()
        if len(texts) > 1
        for own, text in zip(texts, scope.labels(tuple(texts)), strict=True)
    }
    for chosen in product(*(texts.items() for texts in kinds.values())):
        text = ", ".join(told[own] for own, _ in chosen if own in told)
        yield [one for _, cells in chosen for one in cells], text


def _ladder(members: Sequence[CellSummary], text: str, invented: dict[tuple[str, str], int]) -> Ladder | None:
    names = dict(zip(map(id, members), variant_names(members, "quant"), strict=True))
    presets: dict[str, dict[str, CellSummary]] = defaultdict(dict)
    for one in members:
        presets[names[id(one)]][one.key.fault] = one
    if len(presets) < 2 or len({one.key.fault for one in members}) < 2:
        return None
    bare = {names[id(one)]: one.key.quant for one in members}
    order = sorted(presets, key=lambda name: (order_key(Axis.quant, bare[name]), name))
    key = replace(members[0].key, quant="", fault="")
    context = ", ".join(part for part in (key.context, text) if part)
    rungs = tuple(_rung(name, presets[name], invented) for name in order)
    return Ladder(replace(key, context=context), members[0].policy, rungs)


def _rung(quant: str, cells: dict[str, CellSummary], invented: dict[tuple[str, str], int]) -> Rung:
    first = next(iter(cells.values()))
    dead = next((cells[kind] for kind in cells if kind in _INVENTED), None)
    return Rung(
        quant=quant,
        certified=first.n_certified,
        tasks=first.n_tasks,
        few=first.few,
        steps=tuple(
            Step(kind.value, one.episode_rate, one.successes, one.episodes, one.cells)
            for kind in KINDS
            if (one := cells.get(kind)) is not None
        ),
        invented=None if dead is None else invented.get((dead.cells[0], dead.policy)),
    )
