"""The plan on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.grid.files import Presence
from qfr.grid.outcomes import JobOutcome, Status
from qfr.grid.plan import Plan, PlannedCell

# Walks that are named in one line.
_MOST_NAMED = 8
# Points of a grid that get a line each.
_FEW = 3
# Width of tables where the output is no terminal.
_WIDTH = 120


class _Console(Console):
    """Goes on when its reader is gone (`python run.py … | head`), where Rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on, whoever writes."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())
        os.close(nowhere)


def console(*, stderr: bool = False) -> Console:
    """A console that neither breaks lines in a pipe nor invents colours or emoji."""
    found = _Console(stderr=stderr, highlight=False, emoji=False)
    return found if found.is_terminal else _Console(stderr=stderr, highlight=False, emoji=False, width=_WIDTH)


def show_plan(plan: Plan, out: Console) -> None:
    """Print the whole plan."""
    out.print(_cells(plan))
    out.print(_totals(plan))
    out.print(_files(plan))
    for line in _notes(plan):
        out.print(line, soft_wrap=True)


def head_line(plan: Plan) -> str:
    """`20 cells in 20 walks, at most 1400 episodes`."""
    split = f"{plan.clean_episodes:,} clean, {plan.fault_episodes:,} with a fault"
    cells, walks = _count(len(plan.cells), "cell"), _count(plan.jobs, "walk")
    return f"{cells} in {walks}, at most {_count(plan.episodes, 'episode')} ({split})"


def note_lines(plan: Plan) -> list[str]:
    """What was left out of the grid and why."""
    return [*_folded("excluded", plan.excluded), *_folded("folded, the same cell as one above", plan.folded)]


def _folded(what: str, points: Sequence[str]) -> list[str]:
    """A line per point of the grid; one line, with what they have in common, for more than a few."""
    if len(points) <= _FEW:
        return [f"{what}: {text}" for text in points]
    split = [text.split() for text in points]
    common = " ".join(word for word in split[0] if all(word in words for words in split))
    return [f"{what}: {len(points):,} combinations{f' with {common}' if common else ''}"]


def skipped_lines(outcomes: Iterable[object]) -> list[str]:
    """One line for all cells that were finished before."""
    kinds: dict[str, list[str]] = {}
    for job in outcomes:
        for cell in job.cells if isinstance(job, JobOutcome) else ():
            if cell.status is Status.skipped:
                walk, _, kind = cell.name.rpartition(" ")
                kinds.setdefault(walk, []).append(kind)
    if not kinds:
        return []
    cells = sum(map(len, kinds.values()))
    named = [f"{walk} {', '.join(found)}" for walk, found in list(kinds.items())[:_MOST_NAMED]]
    named += [f"and of {len(kinds) - _MOST_NAMED} more walks"] if len(kinds) > _MOST_NAMED else []
    return [f"{_count(cells, 'cell')} finished before, skipped: {'; '.join(named)}"]


def _cells(plan: Plan) -> Table:
    table = Table(title=f"Plan: {_count(len(plan.cells), 'cell')}", title_justify="left", title_style="bold")
    extra = any(one.extra for one in plan.cells)
    for name in ("model", "quant", "prompt", "fault", "suite", "executor", *(["also"] if extra else [])):
        table.add_column(name)
    table.add_column("episodes ≤", justify="right")
    table.add_column("design_id", no_wrap=True)
    table.add_column("in the store")
    for one in plan.cells:
        table.add_row(*map(escape, _row(one, extra)))
    return table


def _row(one: PlannedCell, extra: bool) -> list[str]:
    config = one.cell.config
    return [
        config.model.name,
        config.quant.preset.lower(),
        config.prompt.name,
        config.fault.kind,
        config.suite.name,
        config.executor.kind,
        *([one.extra] if extra else []),
        f"{one.episodes:,}",
        one.cell.design.design_id,
        one.status or "–",
    ]


def _totals(plan: Plan) -> str:
    passes = _count(plan.clean_passes, "clean pass", "clean passes")
    return (
        f"{head_line(plan)}.\n"
        f"{passes} ({plan.clean_held:,} in the store), each played once and shared by the fault\n"
        "cells of its walk. Fault episodes run on the tasks passed clean, so these are upper bounds.\n"
    )


def _files(plan: Plan) -> Table:
    table = Table(title="Model files", title_justify="left", title_style="bold")
    for name in ("model", "quant", "file"):
        table.add_column(name, overflow="fold")
    table.add_column("size", justify="right")
    table.add_column("sha256")
    table.add_column("presence")
    for file in plan.files:
        presence = f"{file.presence} ({file.origin})" if file.origin else str(file.presence)
        if file.made:
            presence += f", {file.made} to {file.preset.lower()}"
        held = file.place and file.presence is not Presence.served
        pin = f"{file.sha256[:12]}…" if file.sha256 else "unpinned" if held else "–"
        size = _size(file.bytes) if held else "–"
        presence += f" by {file.place}" if file.presence is Presence.served else ""
        row = (file.model, file.preset.lower(), file.filename, size, pin, presence)
        table.add_row(*map(escape, row))
    return table


def _notes(plan: Plan) -> list[str]:
    lines = [escape(line) for line in note_lines(plan)]
    lines += [
        f"[red]{escape(str(file.problem))}[/red]"
        for file in plan.files
        if file.problem is not None and file.presence is Presence.missing
    ]
    for power in plan.powers:
        found = power.detectable
        if found.difference is None:
            lines.append(f"With {_count(power.tasks, 'task')} no difference can be detected: {found.reason}.")
            continue
        limit = "" if found.attainable else " (more than there are: nothing can be detected so)"
        lines.append(
            f"Smallest difference that {power.tasks} tasks detect: "
            f"{100 * found.difference:.0f} points{limit}. Paired, power {found.power:.0%}, two-sided "
            f"{found.alpha:.0%}, all tasks certified, and an assumed SD of {100 * found.spread:.0f} points "
            "between the tasks' differences."
        )
    build = f"{plan.llama_commit[:12]} ({plan.llama_commit_source})"
    lines.append(f"llama.cpp commit {build}. Store: {escape(plan.store)}.")
    return [*lines, "mode=plan: nothing was run."]


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
