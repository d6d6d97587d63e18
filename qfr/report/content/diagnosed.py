"""Diagnostics of the process (Jang 2026), computed for every model, fault and prompt of a report.

Within each setting the presets are set against the highest one. Each preset's log holds its clean pass and
its fault episodes; comparisons run over the episodes that both presets played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from qfr.analysis.diagnostics.budget import (
    BudgetCurve,
    BudgetGap,
    BudgetTable,
    Rerun,
    budget_curve,
    budget_gap,
    rerun,
    rerun_pairs,
)
from qfr.analysis.diagnostics.channels import Amplification, ChannelRate, amplifications, channel_rates
from qfr.analysis.diagnostics.length import Length, lengths
from qfr.analysis.diagnostics.log import Log, make_log, pool, shared
from qfr.analysis.diagnostics.margins import Foretold, TurnMargins, foretold, turn_margins
from qfr.analysis.diagnostics.novelty import Novelty, novelty
from qfr.analysis.diagnostics.recovery import Recovery, recovery
from qfr.analysis.diagnostics.resampled import DEFAULT
from qfr.analysis.frames import Cell, cell_key, contexts
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target
from qfr.facts import CellFacts
from qfr.records import FaultKind, Policy
from qfr.report.content.imported import (
    Counted,
    OtherErrors,
    RuledCurve,
    blind,
    counted,
    imported,
    recount,
    seen_amplifications,
    seen_curves,
    seen_lengths,
    seen_rates,
    seen_recovery,
    shared_budget,
    with_details,
)
from qfr.scope import Scope, group, scope_of
from qfr.stats.intervals import Options

#: Task weights drawn per quantity at most; large suites get fewer resamples.
_MOST_WEIGHTS = 400_000
_FEWEST_RESAMPLES = 200
CallsOf = Callable[[str], pd.DataFrame | None]


@dataclass(frozen=True)
class Sources:
    """Tables by cell_id, None where there are none."""

    calls: CallsOf
    # One row per call.
    others: OtherErrors | None = None
    # Failed calls of the other side of imported logs.


@dataclass(frozen=True)
class Agent:
    """One preset under one prompt and one fault: its clean pass and its fault episodes, or either alone."""

    key: CellKey
    scope: Scope = field(repr=False)
    cells: tuple[str, ...]
    # cell_ids of its runs, the fault cell first.
    curves: tuple[RuledCurve, ...]
    # S(K) of the full pipeline under each counting rule.
    rates: tuple[ChannelRate, ...]
    margins: TurnMargins
    recovery: tuple[Recovery, ...]
    lengths: tuple[Length, ...]

    @property
    def curve(self) -> BudgetCurve:
        """S(K) as the figures show it."""
        return self.curves[0].curve


@dataclass(frozen=True)
class Compared:
    """One preset against the highest one under the same prompt and fault."""

    key: CellKey
    scope: Scope = field(repr=False)
    cells: tuple[str, ...]
    # cell_ids of both sides, those of the highest preset first.
    reference: str
    against: Scope = field(repr=False)
    # Of the highest preset.
    gap: BudgetGap | None
    no_gap: str
    # Why there is none; empty where there is one.
    amplified: tuple[Amplification, ...]
    episodes: int
    # That both played.
    novelty: Novelty
    foretold: Foretold


@dataclass(frozen=True)
class Repeated:
    """A cell that was really run again under a tighter error budget, beside the recount of its log."""

    key: CellKey
    cells: tuple[str, ...]
    # The recounted cell, then the one that was run again.
    wide: int
    # Error budget of the log that is recounted.
    found: Rerun


@dataclass(frozen=True)
class Diagnosed:
    """All of it."""

    agents: tuple[Agent, ...]
    compared: tuple[Compared, ...]
    repeated: tuple[Repeated, ...]
    resamples: int
    # Fewest that were drawn for an interval.


def diagnose(
    cells: Iterable[Cell], sources: Sources, policy: Policy, seed: int, ep_min_calls: int = 2
) -> Diagnosed:
    """Compute the diagnostics of every cell whose calls are known.

    Parameters
    ----------
    cells : iterable of Cell
        Fault cells with their clean passes; clean passes that no fault cell belongs to (imported logs too)
        stand for themselves.
    sources : Sources
        Where calls come from; asked for one setting at a time.
    policy : Policy
        Says what is a success.
    ep_min_calls : int
        As the scorer's.
    """
    given = tuple(cells)
    told = contexts(cell.facts for cell in given)
    agents: list[Agent] = []
    compared: list[Compared] = []
    fewest = DEFAULT.resamples
    for members in _settings(given):
        budget = shared_budget(members, sources.others)
        how = (policy, told, budget)
        played = [one for cell in members if (one := _played(cell, sources, how)) is not None]
        for one in played:
            work = _Work(policy, seed, ep_min_calls, _options(len(one.log.tasks)))
            fewest = min(fewest, work.options.resamples)
            agents.append(_agent(one, work))
            if one is not played[0]:
                compared.append(_compared(played[0], one, work))
    return Diagnosed(tuple(agents), tuple(compared), _repeated(given, policy), fewest)


def _settings(cells: Iterable[Cell]) -> Iterable[list[Cell]]:
    """Cells that differ in their preset alone, the highest first."""
    given = [cell for cell in cells if _whole(cell)]
    used = {cell.facts.clean_id for cell in given if cell.facts.fault != FaultKind.none}
    alone = [cell for cell in given if cell.facts.fault != FaultKind.none or cell.facts.cell_id not in used]
    groups = group(alone, ("quant",), of=lambda cell: scope_of(cell.facts))
    return [sorted(members.members, key=_place) for members in groups]


def _whole(cell: Cell) -> bool:
    """Whether the cell holds episodes, and a fault cell its clean pass."""
    first = cell if cell.facts.fault == FaultKind.none else cell.clean
    return first is not None and len(first.episodes) > 0


@dataclass(frozen=True)
class _Work:
    """How everything is computed."""

    policy: Policy
    seed: int
    ep_min_calls: int
    options: Options


@dataclass(frozen=True, eq=False)
class _Played:
    """One preset's log and its recount."""

    key: CellKey
    scope: Scope = field(repr=False)
    cells: tuple[str, ...]
    facts: CellFacts
    log: Log
    counts: tuple[Counted, ...]
    tokens: bool = True
    # The tokens that were written are known.

    @property
    def table(self) -> BudgetTable:
        """As the figures show it."""
        return self.counts[0].table


def _place(cell: Cell) -> tuple[float, str]:
    value = bits(cell.facts.quant)
    order = order_key(Axis.quant, cell.facts.quant)[0] if value is not None else 0.0
    return order, cell.facts.cell_id


def _played(
    cell: Cell, sources: Sources, how: tuple[Policy, Mapping[str, str], int | None]
) -> _Played | None:
    (policy, told, budget), name = how, cell.facts.quant
    logs = []
    tokens = True
    for part in (cell,) if cell.clean is None else (cell.clean, cell):
        found = sources.calls(part.facts.cell_id)
        if found is None:
            return None
        episodes = part.episodes
        if imported(part.facts):
            details = None if sources.others is None else sources.others(part.facts.cell_id)
            episodes, tokens = with_details(episodes, details)
        logs.append(make_log(name, episodes, found))
    key = cell_key(cell.facts, told[cell.facts.cell_id])
    counts = counted(cell, policy, sources.others, budget)
    return _Played(key, scope_of(cell.facts), _cells(cell), cell.facts, pool(name, logs), counts, tokens)


def _cells(cell: Cell) -> tuple[str, ...]:
    return (cell.facts.cell_id, *(() if cell.clean is None else (cell.clean.facts.cell_id,)))


def _repeated(cells: Iterable[Cell], policy: Policy) -> tuple[Repeated, ...]:
    """Every pair of cells that differ in nothing but the error budget."""
    whole = [cell for cell in cells if cell.facts.fault != FaultKind.none and _whole(cell)]
    found = []
    for pair in rerun_pairs([cell.facts for cell in whole]):
        wide, tight = whole[pair.wide], whole[pair.tight]
        both = rerun(recount(wide, policy), recount(tight, policy))
        ids = (*_cells(wide), *_cells(tight))
        found.append(Repeated(cell_key(wide.facts), ids, wide.facts.error_budget, both))
    return tuple(found)


def _options(tasks: int) -> Options:
    resamples = min(DEFAULT.resamples, max(_FEWEST_RESAMPLES, _MOST_WEIGHTS // max(1, tasks)))
    return replace(DEFAULT, resamples=resamples)


def _agent(one: _Played, work: _Work) -> Agent:
    rng, options = stream(work.seed, ["agent", one.key.name, work.policy.value]), work.options
    return Agent(
        key=one.key,
        scope=one.scope,
        cells=one.cells,
        curves=seen_curves(
            (RuledCurve(c.rule, budget_curve(c.table, Target.full)) for c in one.counts), one.facts, options
        ),
        rates=seen_rates(
            channel_rates(one.log, rng=rng, options=options, ep_min_calls=work.ep_min_calls),
            one.log,
            one.facts,
            stream(work.seed, ["counted in the log", one.key.name]),
            options,
        ),
        margins=turn_margins(one.log, work.policy, rng=rng, options=options),
        recovery=seen_recovery(recovery(one.log, rng=rng, options=options), one.facts, options),
        lengths=seen_lengths(
            lengths(one.log.episodes, work.policy, rng=rng, options=options),
            one.facts,
            options,
            tokens=one.tokens,
        ),
    )


def _compared(high: _Played, low: _Played, work: _Work) -> Compared:
    rng = stream(work.seed, ["compared", high.key.name, low.key.name, work.policy.value])
    first, second = shared(high.log, low.log)
    unseen = next((reason for one in (high, low) if (reason := blind(one.facts))), "")
    gap = None
    if not unseen and set(high.table.tasks) & set(low.table.tasks):
        # Logs of other programs may list different tasks; the shared ones are paired.
        same = set(high.table.tasks) == set(low.table.tasks)
        gap = budget_gap(
            high.table,
            low.table,
            Target.full if same else Target.matched,
            rng=rng,
            resamples=max(1_000, work.options.resamples),
        )
    return Compared(
        key=low.key,
        scope=low.scope,
        cells=(*high.cells, *low.cells),
        reference=high.key.quant,
        against=high.scope,
        gap=gap,
        no_gap="" if gap is not None else unseen or "the two logs share no task",
        amplified=seen_amplifications(
            amplifications(first, second, rng=rng, options=work.options, ep_min_calls=work.ep_min_calls),
            high.facts,
            low.facts,
        ),
        episodes=first.n_episodes,
        novelty=novelty(first, second, rng=rng, options=work.options),
        foretold=foretold(high.log, low.log, work.policy, rng=rng, options=work.options),
    )
