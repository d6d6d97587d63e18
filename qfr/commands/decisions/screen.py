"""Screen a reference preset for risk: what will a lower preset probably lose?

From the runs of the reference preset alone: how often it errs, per channel, and which tasks it wins by a
narrow margin (Jang 2026: a model that hardly errs at 16 bit is likely safe at 4). Where lower presets have
been run too, each predictor is tested against what they lost. Nothing is fitted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from qfr.analysis.diagnostics.channels import ChannelRate
from qfr.analysis.diagnostics.log import Log, make_log, pool
from qfr.analysis.diagnostics.screen import COMBINED, Screen, Tested, screen
from qfr.analysis.levels import bits
from qfr.commands.common import add_store
from qfr.commands.decisions.sides import add_axes, read, require_levels, side
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.records import FaultKind, Policy
from qfr.scope import differ, scope_of
from qfr.scoring import SCORER_VERSION
from qfr.stats.intervals import Estimate
from qfr.tracking.reading.cells import LoggedCell, read_calls
from qfr.tracking.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_axes(parser)
    parser.add_argument("--reference", required=True, help="the reference preset: q8_0, f16, …")
    parser.add_argument(
        "--policy", default=Policy.tolerant, type=Policy, choices=list(Policy), help="scoring policy"
    )
    parser.add_argument("--policy-version", default=str(SCORER_VERSION), help="which logged scores")
    parser.add_argument(
        "--ep-min-calls", default=2, type=int, help="EP: calls of a dead tool before a report counts"
    )
    parser.add_argument("--tasks", default=10, type=int, help="riskiest tasks that are listed")
    parser.add_argument("--seed", default=20260101, type=int, help="of the task bootstrap")


def run(arguments: argparse.Namespace) -> int:
    """Print one screen per model, prompt and suite."""
    store, reading = read(arguments)
    require_levels(reading, arguments)
    reference = [
        cell for cell in side(store, reading, arguments.reference, arguments).cells if _faulted(cell)
    ]
    if not reference:
        raise ConfigError(
            f"no finished fault cell of {arguments.reference}",
            where=store.shown,
            hint="run one first, or loosen --model, --prompt, --fault and --suite",
        )
    for cell in reference:
        lower = [
            other
            for other in reading.cells
            if _faulted(other)
            and _below(other, cell)
            and not differ(scope_of(cell.facts), scope_of(other.facts), ("quant",))
        ]
        lower.sort(key=lambda other: -(bits(other.facts.quant) or 0.0))
        found = screen(
            _log(store, cell),
            [_log(store, other) for other in lower],
            policy=arguments.policy,
            rng=np.random.default_rng(arguments.seed),
            ep_min_calls=arguments.ep_min_calls,
        )
        _print(cell, found, arguments.tasks)
    return 0


def _faulted(cell: LoggedCell) -> bool:
    return cell.facts.fault != FaultKind.none and cell.clean is not None


def _below(other: LoggedCell, cell: LoggedCell) -> bool:
    return (bits(other.facts.quant) or 0.0) < (bits(cell.facts.quant) or 0.0)


def _log(store: Store, cell: LoggedCell) -> Log:
    assert cell.clean is not None
    name = cell.facts.quant
    logs = [make_log(name, one.episodes, read_calls(store, one)) for one in (cell.clean, cell)]
    return pool(name, logs)


def _print(cell: LoggedCell, found: Screen, most: int) -> None:
    out = console()
    facts = cell.facts
    out.print(
        f"\n{facts.model} {facts.prompt} {facts.fault}, {facts.suite}: reference {facts.quant}, "
        f"{found.policy} scoring",
        style="bold",
        markup=False,
    )
    out.print(_rates(found.rates))
    table = Table(
        "task", "risk", "why", title=f"Riskiest {min(most, len(found.risks))} tasks", title_justify="left"
    )
    for one in found.risks[:most]:
        why = ", ".join(f"{p.name} {p.value:.3g}" for p in one.predictors if p.value)
        table.add_row(one.task, f"{one.risk:.2f}", why or "nothing of note")
    out.print(table)
    if found.tests:
        out.print(_tests(found.tests))
    else:
        out.print("No lower preset was run on these cells: the ranking is untested here.")


def _rates(rates: Sequence[ChannelRate]) -> Table:
    table = Table(
        "event", "count", "per call", "episodes with it", title="How often it errs", title_justify="left"
    )
    for one in rates:
        table.add_row(
            one.event, str(one.count), _percent(one.per_call), f"{one.episodes_with} of {one.episodes}"
        )
    return table


def _tests(tests: Sequence[Tested]) -> Table:
    table = Table(
        "preset", "predictor", "AUC", "interval", "tells more than chance",
        title="Tested on lower presets: does risk foretell what they lose?", title_justify="left",
    )  # fmt: skip
    for one in tests:
        estimate = one.area.estimate
        told = {True: "yes", False: "not shown", None: estimate.reason or "not estimable"}[one.beats_chance]
        style = "bold" if one.predictor == COMBINED else ""
        table.add_row(one.other, one.predictor, _number(estimate.value), _ends(estimate), told, style=style)
    return table


def _percent(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    ends = (
        "" if estimate.low is None or estimate.high is None else f" [{estimate.low:.1%}, {estimate.high:.1%}]"
    )
    return f"{estimate.value:.1%}{ends}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _ends(estimate: Estimate) -> str:
    return "–" if estimate.low is None else f"[{_number(estimate.low)}, {_number(estimate.high)}]"
