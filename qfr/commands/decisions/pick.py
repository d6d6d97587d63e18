"""Name one preset: the smallest that is shown not to be worse than the reference by more than a margin.

The presets that fit are tested from the largest file to the smallest, until one is not shown (a fixed
sequence, so the chance of naming one that is truly worse by more than the margin stays at 5 % at most).
Where none is shown, the output says how many tasks are missing and, from measured speed, how many hours.

  python run.py experiment=pick model.base=FILE-F16.gguf    # runs a suite that can settle five points
  qfr pick --reference f16 --max-gb 6 --margin 5 --prompt P0

Exit code 0 when a preset is named (the reference itself where it fits and nothing smaller is shown), 1 when
none can be named yet, 2 for an error of the user.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.analysis.decisions.cells import of_preset, tables_of
from qfr.analysis.decisions.files import answer, interval, percent, points, size
from qfr.analysis.decisions.pick import GB, Pick, Preset, Standing, Step, pick
from qfr.analysis.levels import bits
from qfr.analysis.process import cost_line, wastes
from qfr.analysis.targets import Target
from qfr.commands.common import add_store
from qfr.commands.decisions.sides import (
    add_axes,
    add_decision,
    add_sequential,
    looks_note,
    read,
    require_levels,
    rule_of,
)
from qfr.errors import ConfigError, LogError, TrackingError, did_you_mean
from qfr.faults import USUAL, FaultKind
from qfr.grid.show import console
from qfr.records import Policy
from qfr.scope import differ, scope_of, varying
from qfr.stats.intervals import Options
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.store import Store

_COLOURS = {Standing.SHOWN: "green", Standing.STOPPED: "yellow", Standing.REFERENCE: "bold"}
# Settled by the options, by a default, or by there being one only.
_SETTLED = ("model", "prompt", "suite", "fault", "executor", "gate", "trial")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--reference", help="preset that is good enough (left out = the one of most bits)")
    parser.add_argument(
        "--max-gb", required=True, type=positive_gb, help="largest file that will do, in 10^9 bytes"
    )
    parser.add_argument("--presets", help="only these, as a list: q6_k,q4_k_m (decide before you look)")
    add_decision(parser)
    add_sequential(parser)
    add_axes(parser)
    parser.set_defaults(prompt="P0")
    add_store(parser)


def positive_gb(text: str) -> float:
    """A size above 0, for argparse."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is no size: above 0")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Name a preset, or say what is missing."""
    store, reading = read(arguments)
    require_levels(reading, arguments)
    cells = settled(reading.cells, arguments)
    presets = _wanted(_presets(store, cells, arguments), arguments)
    reference = _reference(presets, arguments.reference)
    rule = rule_of(arguments)
    prompts = _prompts(reading.cells, cells[0])
    others = [replace(one, comparisons=prompts) for one in presets if one is not reference]
    found = pick(reference, others, rule, arguments.max_gb * GB)
    show(found, cells[0], arguments, console())
    for line in _costs(found, cells, arguments.policy):
        console().print(line, markup=False, soft_wrap=True)
    return 0 if found.chosen is not None else 1


def _costs(found: Pick, cells: Sequence[LoggedCell], policy: Policy) -> list[str]:
    """What the preset that was chosen spends, and how often it was stuck or had to be stopped."""
    shown = {one.preset.name for one in (found.steps[0], found.chosen) if one is not None}
    members = [cell for cell in cells if cell.facts.quant.lower() in shown]
    return [
        cost_line(one)
        for one in wastes(members, Options(resamples=2_000), 0, {})
        if one.policy == policy and one.key.quant.lower() in shown
    ]


def settled(cells: Iterable[LoggedCell], arguments: argparse.Namespace) -> tuple[LoggedCell, ...]:
    """Return the cells of one model, prompt, suite, fault, executor, gate and trial.

    What the options leave open must be one only; of several faults ET counts.

    Raises
    ------
    ConfigError
        Something is open, or nothing is left.
    """
    clean = arguments.target is Target.clean
    kept = [cell for cell in cells if clean or cell.facts.fault != FaultKind.none]
    for name in _SETTLED:
        asked = getattr(arguments, name, None)
        if name == "fault" and clean:
            continue
        kept = [cell for cell in kept if asked is None or getattr(cell.facts, name) == asked]
        levels = sorted({getattr(cell.facts, name) for cell in kept})
        if len(levels) < 2:
            continue
        if name == "fault" and USUAL in levels:
            chosen = USUAL
        else:
            raise ConfigError(f"several values of {name}: {', '.join(map(str, levels))}", hint=_how(name))
        kept = [cell for cell in kept if getattr(cell.facts, name) == chosen]
    if not kept:
        raise ConfigError(
            f"no finished cell with prompt {arguments.prompt} and the other options",
            hint="run python run.py experiment=pick …, or look at --model, --prompt, --suite, --fault",
        )
    return tuple(kept)


def _prompts(every: Iterable[LoggedCell], one: LoggedCell) -> int:
    """Under how many prompts presets were run: they share the chance of a wrong "worse"."""
    alike = [
        cell for cell in every if not differ(scope_of(cell.facts), scope_of(one.facts), ("quant", "prompt"))
    ]
    return max(1, len({cell.facts.prompt_sha256 for cell in alike}))


def _how(name: str) -> str:
    return (
        f"choose one: --{name} VALUE (or --sweep s-…)"
        if name in ("model", "suite", "fault")
        else f"--filter \"params.{name} = '…'\" chooses one"
    )


def _tasks(cell: LoggedCell) -> int:
    return len(cell.clean.episodes) if cell.clean is not None else len(cell.episodes)


def _presets(store: Store, cells: Sequence[LoggedCell], arguments: argparse.Namespace) -> list[Preset]:
    found = []
    for quant in dict.fromkeys(cell.facts.quant for cell in cells):
        members = of_preset(cells, quant)
        tables = tables_of(members, arguments.policy, arguments.target)
        if not tables:
            continue
        if len(tables) > 1:
            told = "; ".join(
                f"{key}: {', '.join(values)}" for key, values in varying([one.scope for one in tables])
            )
            raise ConfigError(
                f"{len(tables)} different cells of {quant.lower()} ({told})",
                hint="--sweep s-… or --filter \"params.… = '…'\" chooses one of them",
            )
        cell, table = members[0], tables[0]
        memory = cell.metrics.get("work.peak_memory_bytes")
        found.append(
            Preset(
                name=quant.lower(),
                bytes=cell.facts.model_bytes,
                memory_bytes=None if memory is None else int(memory),
                tokens_per_second=cell.metrics.get("work.decode_tokens_per_second"),
                seconds_per_task=_seconds_per_task(store, cell),
                table=table,
            )
        )
    return found


def _wanted(presets: list[Preset], arguments: argparse.Namespace) -> list[Preset]:
    names = [one.name for one in presets]
    if arguments.presets is None:
        return presets
    asked = [name.strip().lower() for name in arguments.presets.split(",") if name.strip()]
    for name in asked:
        if name not in names:
            raise ConfigError(
                f"--presets: no finished cell of {name!r}{did_you_mean(name, names)}", hint=_held(names)
            )
    reference = (arguments.reference or "").lower()
    return [one for one in presets if one.name in (*asked, reference)]


def _reference(presets: Sequence[Preset], asked: str | None) -> Preset:
    names = [one.name for one in presets]
    if asked is None:
        return max(presets, key=lambda one: (bits(one.name) or 0.0, one.bytes))
    if asked.lower() not in names:
        raise ConfigError(
            f"no finished cell of the reference {asked!r}{did_you_mean(asked, names)}", hint=_held(names)
        )
    return presets[names.index(asked.lower())]


def _held(names: Sequence[str]) -> str:
    return f"finished are {', '.join(names)}; python run.py … quant=PRESET runs another"


def _seconds_per_task(store: Store, cell: LoggedCell) -> float | None:
    """Seconds that a task took, clean pass and fault episodes; None where they were not logged."""
    runs = [cell] if cell.clean is None else [cell, cell.clean]
    total = 0.0
    for one in runs:
        try:
            data = read_artifact(store, one.run_id, one.artifact_uri, "timing.jsonl")
        except TrackingError:
            # Old or imported runs have no times; the answer itself does not need them.
            return None
        total += _seconds(data, one.run_id)
    tasks = _tasks(cell)
    return total / tasks if tasks and total > 0 else None


def _seconds(data: bytes, run_id: str) -> float:
    try:
        return sum(float(json.loads(line)["seconds"]) for line in data.splitlines() if line.strip())
    except (ValueError, TypeError, KeyError) as error:
        raise LogError(f"no list of times ({error})", where=f"timing.jsonl of run {run_id}") from None


def show(found: Pick, cell: LoggedCell, arguments: argparse.Namespace, out: Console) -> None:
    """Print the sequence and the answer."""
    facts = cell.facts
    title = f"{facts.model}, {facts.prompt}, {facts.suite} ({_tasks(cell)} tasks), "
    title += f"target {arguments.target}, {arguments.policy} scoring, margin {arguments.margin:g} points"
    out.print(_table(found, title))
    if facts.reference_agent:
        out.print(f"{facts.model} is a reference agent: no evidence about any other model.", markup=False)
    for step in found.steps:
        for remark in step.decision.remarks if step.decision else ():
            out.print(f"{step.preset.name}: {remark}", markup=False, soft_wrap=True)
    for text in (*answer(found, arguments.max_gb), looks_note(arguments)):
        out.print(text, markup=False, soft_wrap=True)


def _table(found: Pick, title: str) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("preset")
    for name in ("file", "memory", "tokens/s", "rate", "points", "95 % interval", "at least"):
        table.add_column(name, justify="right")
    table.add_column("standing", overflow="fold")
    for step in found.steps:
        one, decision = step.preset, step.decision
        rate = _rate(found, step)
        figures = ("–",) * 3
        if decision is not None:
            shown = points(decision.difference.value), interval(decision), points(decision.at_least)
            figures = (shown[0], escape(shown[1]), shown[2])
        speed = "–" if one.tokens_per_second is None else f"{one.tokens_per_second:,.1f}"
        memory = "–" if one.memory_bytes is None else size(one.memory_bytes)
        colour = _COLOURS.get(step.standing, "dim")
        why = f" ({step.reason})" if decision is None else ""
        standing = f"[{colour}]{step.standing}[/]{escape(why)}"
        name = f"[bold]{escape(one.name)}[/]" if step is found.chosen else escape(one.name)
        table.add_row(name, size(one.bytes), memory, speed, rate, *figures, standing)
    return table


def _rate(found: Pick, step: Step) -> str:
    if step.decision is not None:
        return percent(step.decision.rate_candidate)
    first = next((one.decision for one in found.steps if one.decision), None)
    return percent(first.rate_baseline) if first and step.standing is Standing.REFERENCE else "–"
