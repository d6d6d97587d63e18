"""Diagnostics of the process (Jang 2026), computed for every model, fault and prompt of a report.

Within each setting the presets are set against the highest one. Each preset's log holds its clean pass and
its fault episodes; comparisons run over the episodes that both presets played.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pandas as pd

from qfr.analysis.diagnostics.budget import BudgetCurve, BudgetTable, budget_curve, budget_table
from qfr.analysis.diagnostics.budget_gap import BudgetGap, budget_gap
from qfr.analysis.diagnostics.channels import Amplification, ChannelRate, amplifications, channel_rates
from qfr.analysis.diagnostics.log import Log, make_log, pool, shared
from qfr.analysis.diagnostics.margins import Foretold, TurnMargins, foretold, turn_margins
from qfr.analysis.diagnostics.novelty import Novelty, novelty
from qfr.analysis.diagnostics.recovery import Recovery, recovery
from qfr.analysis.diagnostics.resampled import DEFAULT
from qfr.analysis.frames import Cell, cell_key, treatment
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target
from qfr.records import FaultKind, Policy
from qfr.stats.intervals import Options

#: Task weights drawn per quantity at most; large suites get fewer resamples.
_MOST_WEIGHTS = 400_000
_FEWEST_RESAMPLES = 200
CallsOf = Callable[[str], pd.DataFrame | None]


@dataclass(frozen=True)
class Agent:
    """One preset under one prompt and one fault: its clean pass and its fault episodes."""

    key: CellKey
    curve: BudgetCurve
    # S(K) of the full pipeline.
    rates: tuple[ChannelRate, ...]
    margins: TurnMargins
    recovery: tuple[Recovery, ...]


@dataclass(frozen=True)
class Compared:
    """One preset against the highest one under the same prompt and fault."""

    key: CellKey
    reference: str
    gap: BudgetGap | None
    # None where the two list different tasks.
    amplified: tuple[Amplification, ...]
    episodes: int
    # That both played.
    novelty: Novelty
    foretold: Foretold


@dataclass(frozen=True)
class Diagnosed:
    """All of it."""

    agents: tuple[Agent, ...]
    compared: tuple[Compared, ...]
    resamples: int
    # Fewest that were drawn for an interval.


def diagnose(
    cells: Iterable[Cell], calls: CallsOf, policy: Policy, seed: int, ep_min_calls: int = 2
) -> Diagnosed:
    """Compute the diagnostics of every cell whose calls are known.

    Parameters
    ----------
    cells : iterable of Cell
        Fault cells with their clean passes; others are passed over.
    calls : callable
        From cell_id to the calls table, None where there is none. Asked for one setting at a time.
    policy : Policy
        Says what is a success.
    seed : int
    ep_min_calls : int
        As the scorer's.
    """
    settings: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.facts.fault != FaultKind.none and cell.clean is not None and len(cell.clean.episodes):
            alike = treatment(cell.facts)
            rest = (alike.suite, alike.prompt, alike.executor, alike.build)
            settings[(replace(cell_key(cell.facts), quant=""), *rest)].append(cell)
    agents: list[Agent] = []
    compared: list[Compared] = []
    fewest = DEFAULT.resamples
    for members in settings.values():
        members.sort(key=_place)
        played = [one for cell in members if (one := _played(cell, calls, policy)) is not None]
        for at, one in enumerate(played):
            work = _Work(policy, seed, ep_min_calls, _options(len(one.log.tasks)))
            fewest = min(fewest, work.options.resamples)
            agents.append(_agent(one, work))
            if at:
                compared.append(_compared(played[0], one, work))
    return Diagnosed(tuple(agents), tuple(compared), fewest)


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
    log: Log
    table: BudgetTable


def _place(cell: Cell) -> tuple[float, str]:
    value = bits(cell.facts.quant)
    order = order_key(Axis.quant, cell.facts.quant)[0] if value is not None else 0.0
    return order, cell.facts.cell_id


def _played(cell: Cell, calls: CallsOf, policy: Policy) -> _Played | None:
    clean = cell.clean
    if clean is None:
        return None
    mine, before = calls(cell.facts.cell_id), calls(clean.facts.cell_id)
    if mine is None or before is None:
        return None
    name = cell.facts.quant
    log = pool(name, [make_log(name, clean.episodes, before), make_log(name, cell.episodes, mine)])
    table = budget_table(name, clean.episodes, cell.episodes, policy=policy, budget=cell.facts.error_budget)
    return _Played(cell_key(cell.facts), log, table)


def _options(tasks: int) -> Options:
    resamples = min(DEFAULT.resamples, max(_FEWEST_RESAMPLES, _MOST_WEIGHTS // max(1, tasks)))
    return replace(DEFAULT, resamples=resamples)


def _agent(one: _Played, work: _Work) -> Agent:
    rng = stream(work.seed, ["agent", one.key.name, work.policy.value])
    return Agent(
        key=one.key,
        curve=budget_curve(one.table, Target.full),
        rates=channel_rates(one.log, rng=rng, options=work.options, ep_min_calls=work.ep_min_calls),
        margins=turn_margins(one.log, work.policy, rng=rng, options=work.options),
        recovery=recovery(one.log, rng=rng, options=work.options),
    )


def _compared(high: _Played, low: _Played, work: _Work) -> Compared:
    rng = stream(work.seed, ["compared", high.key.name, low.key.name, work.policy.value])
    first, second = shared(high.log, low.log)
    gap = None
    if set(high.table.tasks) == set(low.table.tasks) and high.table.budgets == low.table.budgets:
        gap = budget_gap(
            high.table, low.table, Target.full, rng=rng, resamples=max(1_000, work.options.resamples)
        )
    return Compared(
        key=low.key,
        reference=high.key.quant,
        gap=gap,
        amplified=amplifications(
            first, second, rng=rng, options=work.options, ep_min_calls=work.ep_min_calls
        ),
        episodes=first.n_episodes,
        novelty=novelty(first, second, rng=rng, options=work.options),
        foretold=foretold(high.log, low.log, work.policy, rng=rng, options=work.options),
    )
