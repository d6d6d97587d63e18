"""What a number of tasks can show, and how many a wanted difference or margin needs.

Detecting a difference: paired, two-sided 5 %. Showing "not worse by more than a margin": one-sided 5 %, the
bound that compare and pick use, and no true difference. The spread between the tasks' differences is assumed
(--spread), or observed between two presets, runs or sweeps (--baseline and --candidate).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.analysis.decisions.bound import ALPHA, fewest_tasks, margin_shown, tasks_to_show
from qfr.analysis.decisions.cells import match, tables_of
from qfr.analysis.decisions.files import told_apart
from qfr.analysis.decisions.verdict import Rule, decide
from qfr.analysis.targets import Target
from qfr.commands.common import add_store, points, positive
from qfr.commands.decisions.sides import add_axes, add_decision, read, side
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.stats.power import ASSUMED_SPREAD, TasksNeeded, detectable, tasks_needed

_TASKS = (20, 40, 100, 200, 450, 1000)


@dataclass(frozen=True)
class Spread:
    """A standard deviation of paired differences, a fraction, and where it is from."""

    value: float
    origin: str
    tasks: int | None
    # Of the comparison that it was observed in.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--tasks", type=positive, action="append", help="number of tasks, may be repeated (left out = a few)"
    )
    parser.add_argument(
        "--difference", default=5.0, type=points, help="true difference to be detected, in points"
    )
    parser.add_argument(
        "--spread",
        type=spread_points,
        help=f"standard deviation of the tasks' differences, in points (left out = observed, else "
        f"{100 * ASSUMED_SPREAD:g})",
    )
    parser.add_argument("--power", default=80.0, type=power_percent, help="chance to find it, in per cent")
    parser.add_argument("--baseline", help="with --candidate: take the spread that was observed between them")
    parser.add_argument("--candidate", help="preset, run (its id) or sweep (s-…)")
    add_decision(parser)
    add_axes(parser)
    add_store(parser)


def spread_points(text: str) -> float:
    """A spread in points, for argparse."""
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is no spread: 0 to 100 points")
    return value


def power_percent(text: str) -> float:
    """A power in per cent, for argparse."""
    value = float(text)
    if not 5 < value < 100:
        raise argparse.ArgumentTypeError(f"{text} is no power: above 5, below 100 per cent")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Print a table per spread."""
    out = console()
    for found in _spreads(arguments, out):
        _show(found, arguments, out)
    return 0


def _spreads(arguments: argparse.Namespace, out: Console) -> list[Spread]:
    if arguments.spread is not None:
        return [Spread(arguments.spread / 100, "as given", None)]
    if arguments.baseline is None and arguments.candidate is None:
        return [Spread(ASSUMED_SPREAD, "assumed; Hu 2026's full-pipeline tables show 24 to 53", None)]
    if arguments.baseline is None or arguments.candidate is None:
        raise ConfigError("--baseline and --candidate belong together", hint="give both, or --spread")
    if arguments.target is Target.own:
        raise ConfigError("the target own pairs no tasks", hint="--target full, matched or clean")
    store, reading = read(arguments)
    baseline, candidate = (
        tables_of(side(store, reading, name, arguments).cells, arguments.policy, arguments.target)
        for name in (arguments.baseline, arguments.candidate)
    )
    found = match(baseline, candidate)
    for apart in found.apart:
        out.print(f"not comparable: {told_apart(apart)}", markup=False, soft_wrap=True)
    observed = []
    rule = Rule(arguments.target, arguments.margin / 100)
    for pair in found.pairs:
        one = decide(pair.baseline, pair.candidate, rule)
        if one.spread is None:
            out.print(f"{one.candidate}: {one.n_tasks} tasks show no spread", markup=False)
            continue
        observed.append(Spread(one.spread, f"observed, {one.candidate} − {one.baseline}", one.n_tasks))
    if not observed:
        raise ConfigError("no comparison to take the spread from", hint="give --spread POINTS instead")
    return observed


def _show(found: Spread, arguments: argparse.Namespace, out: Console) -> None:
    power = arguments.power / 100
    sizes = sorted({*(arguments.tasks or _TASKS), *([found.tasks] if found.tasks else [])})
    title = f"Spread {100 * found.value:.1f} points ({found.origin}), power {power:.0%}"
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for name in ("tasks", "difference detected", "margin shown", "margin shown without any loss"):
        table.add_column(name, justify="right")
    for n in sizes:
        table.add_row(f"{n:,}", *_row(n, found.value, power))
    out.print(table)
    for text in lines(found.value, arguments.difference / 100, arguments.margin / 100, power):
        out.print(text, markup=False, soft_wrap=True)


def _row(n: int, spread: float, power: float) -> Sequence[str]:
    difference = detectable(n, spread, power=power)
    shown = margin_shown(n, spread, power=power)
    seen = None if not difference.attainable else difference.difference
    return [_points(value) for value in (seen, shown.margin, shown.floor)]


def lines(spread: float, difference: float, margin: float, power: float) -> list[str]:
    """What the wanted difference and margin need, in sentences (fractions in)."""
    detect = tasks_needed(difference, spread, power=power)
    show = tasks_to_show(margin, spread, power=power)
    fewest = fewest_tasks(margin, ALPHA)
    return [
        f"To detect a difference of {_points(difference)} points: {_count(detect)}.",
        f'To show "not worse by more than {_points(margin)} points" where nothing differs: {_count(show)}; '
        f"never fewer than {fewest:,}, which is what it takes without a single loss.",
    ]


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}".removesuffix(".0")


def _count(needed: TasksNeeded) -> str:
    return f"no number of tasks ({needed.reason})" if needed.n is None else f"{needed.n:,} tasks"
