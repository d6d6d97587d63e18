"""A gate: is the candidate not worse than the baseline by more than a margin?

Baseline and candidate are each a preset (q8_0), a run (its MLflow id, or its beginning) or a sweep (s-…).
Everything but the preset must agree: model, prompt, suite, fault, executor, llama.cpp build, settings.

Exit codes:
  0    every comparison shows that the candidate is not worse by more than the margin
  1    one comparison shows that it is worse by more than the margin
  2    inconclusive: neither is shown (the output says how many tasks would settle it)
  3    not comparable: suite, prompt, build … differ, nothing was certified, or runs are missing
  4    the command cannot be carried out: an unknown name or option, no store
  130  interrupted
Of several outcomes the first in the order 1, 3, 2, 0 counts. Twenty tasks cannot give a 0 at five points.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.analysis.decisions.cells import ALLOWABLE, Incomparable, match, tables_of
from qfr.analysis.decisions.files import (
    Gate,
    interval,
    percent,
    points,
    tasks_told,
    to_junit,
    to_markdown,
    told_apart,
)
from qfr.analysis.decisions.verdict import Decision, Outcome, decide
from qfr.analysis.pairing import together
from qfr.analysis.targets import Target
from qfr.commands.common import add_store
from qfr.commands.decisions.sides import (
    add_axes,
    add_decision,
    add_sequential,
    looks_note,
    one_question,
    read,
    rule_of,
    side,
)
from qfr.errors import ConfigError, UserError
from qfr.faults import FaultKind
from qfr.grid.show import console
from qfr.scope import labels
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import Reading

#: An error of the user must not look like an inconclusive gate.
USAGE_ERROR = 4
EXIT_CODES = {
    Outcome.NOT_WORSE: 0,
    Outcome.WORSE: 1,
    Outcome.INCONCLUSIVE: 2,
    Outcome.NOT_COMPARABLE: 3,
}
_COLOURS = {
    Outcome.NOT_WORSE: "green",
    Outcome.WORSE: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_COMPARABLE: "bold yellow",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(usage_error=USAGE_ERROR)
    parser.add_argument("--baseline", required=True, help="preset, run or sweep that is good enough")
    parser.add_argument("--candidate", required=True, help="preset, run or sweep that is to replace it")
    add_decision(parser)
    add_sequential(parser)
    add_axes(parser)
    parser.add_argument(
        "--allow",
        action="append",
        choices=ALLOWABLE,
        help="let baseline and candidate differ in this, may be repeated; the output says so",
    )
    parser.add_argument("--junit", type=Path, help="write JUnit XML to this file")
    parser.add_argument("--markdown", type=Path, help="write Markdown to this file")
    add_store(parser)


def run(arguments: argparse.Namespace) -> int:
    """Decide, print, write the files."""
    try:
        gate = _gate(arguments)
        for path, text in ((arguments.junit, to_junit(gate)), (arguments.markdown, to_markdown(gate))):
            if path is not None:
                _write(path, text)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    show(gate, console())
    return EXIT_CODES[gate.outcome]


def show(gate: Gate, out: Console) -> None:
    """Print the comparisons and what they come to."""
    colour = _COLOURS[gate.outcome]
    if gate.decisions:
        out.print(_table(gate))
    for one in gate.decisions:
        told = tasks_told(one)
        for text in (one.reason, *([told] if told else []), *one.remarks):
            out.print(f"{one.candidate}: {text}", markup=False, soft_wrap=True)
    for apart in gate.apart:
        out.print(f"not comparable: {told_apart(apart)}", markup=False, soft_wrap=True)
    for note in gate.notes:
        out.print(note, markup=False, soft_wrap=True)
    code = EXIT_CODES[gate.outcome]
    out.print(f"\n[{colour}]{gate.outcome}[/] (exit code {code})", soft_wrap=True)


def _gate(arguments: argparse.Namespace) -> Gate:
    store, reading = read(arguments)
    baseline = side(store, reading, arguments.baseline, arguments)
    candidate = side(store, reading, arguments.candidate, arguments)
    kinds = {cell.facts.fault for one in (baseline, candidate) for cell in one.cells}
    if kinds == {FaultKind.none} and arguments.target is not Target.clean:
        raise ConfigError(
            f"no fault was injected into these cells, so there is no target {arguments.target}",
            hint="--target clean compares success without faults (imported logs too)",
        )
    tables = [tables_of(one.cells, arguments.policy, arguments.target) for one in (baseline, candidate)]
    for one, held, name in zip(
        (baseline, candidate), tables, (arguments.baseline, arguments.candidate), strict=True
    ):
        if not one.named:
            one_question(held, name, arguments)
    found = match(
        tables[0],
        tables[1],
        frozenset(arguments.allow or ()),
    )
    # One comparison that is worse fails the gate, so the prompts of one question share the chance of a wrong
    # "worse"; a wrong "not worse" needs no sharing, because all of them must be shown.
    counts = Counter(together(pair.baseline, pair.candidate) for pair in found.pairs)
    rule = rule_of(arguments)
    told_apart_by = labels([pair.candidate.scope for pair in found.pairs])
    decisions = tuple(
        _labelled(
            decide(
                pair.baseline,
                pair.candidate,
                rule.shared(counts[together(pair.baseline, pair.candidate)]),
                pair.remarks,
            ),
            label,
        )
        for pair, label in zip(found.pairs, told_apart_by, strict=True)
    )
    apart = (
        *found.apart,
        *(Incomparable(text, "", "not finished") for text in baseline.lacking),
        *(Incomparable("", text, "not finished") for text in candidate.lacking),
    )
    if not found.pairs and not apart:
        apart = (Incomparable(arguments.baseline, arguments.candidate, "no finished cell of either"),)
    title = (
        f"{arguments.candidate} against {arguments.baseline}, target {arguments.target}, "
        f"margin {arguments.margin:g} points, {arguments.policy} scoring"
    )
    return Gate(
        title, decisions, apart, _notes(reading, (*baseline.cells, *candidate.cells), looks_note(arguments))
    )


def _labelled(decision: Decision, label: str) -> Decision:
    """The decision with what tells its cells from others of the same names."""
    if not label:
        return decision
    return replace(
        decision,
        baseline=f"{decision.baseline} ({label})",
        candidate=f"{decision.candidate} ({label})",
    )


def _notes(reading: Reading, cells: Iterable[LoggedCell], looks: str) -> tuple[str, ...]:
    agents = sorted({cell.facts.model for cell in cells if cell.facts.reference_agent})
    notes = [f"{name} is a reference agent: no evidence about any other model" for name in agents]
    notes += [
        f"not deterministic: {one.name} has finished runs with different logs" for one in reading.alarms
    ]
    return (*notes, looks)


def _table(gate: Gate) -> Table:
    table = Table(title=escape(gate.title), title_justify="left", title_style="bold")
    table.add_column("candidate − baseline", overflow="fold")
    for name in ("tasks", "rates", "points", "95 % interval", "at least", "at most"):
        table.add_column(name, justify="right")
    table.add_column("outcome")
    for one in gate.decisions:
        table.add_row(
            escape(f"{one.candidate} − {one.baseline}"),
            str(one.n_tasks),
            f"{percent(one.rate_candidate)} − {percent(one.rate_baseline)}",
            points(one.difference.value),
            escape(interval(one)),
            points(one.at_least),
            points(one.at_most),
            f"[{_COLOURS[one.outcome]}]{one.label}[/]",
        )
    return table


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror or error})", where=str(path), hint="name another file"
        ) from None
