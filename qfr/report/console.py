"""The report on the terminal: the answer, the contrasts, the warnings."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qfr.analysis.cells import CellSummary
from qfr.analysis.results import Contrast
from qfr.analysis.tablefile import Further
from qfr.analysis.targets import Target
from qfr.report.content.build import Report
from qfr.report.content.explain import Explained
from qfr.report.layout import TITLES, Group, groups, interval, memory_groups
from qfr.report.notices import clipped, notices
from qfr.report.tables.cells import recovery_tables
from qfr.report.tables.contrasts import group_table, interaction_table
from qfr.report.tables.formats import p_value, percent, signed
from qfr.report.tables.ranking import rankings
from qfr.report.tables.specs import Table as View
from qfr.report.words import answers, overview, varies

#: Turned signs that the terminal lists; the page lists all.
_MOST_FLAGS = 4


def print_report(report: Report, console: Console) -> None:
    """Print the headline policy's answer, contrasts and warnings; the page and the files hold the rest."""
    console.print(_plain(report.options.title, "bold"))
    if report.reference_agents:
        agents = ", ".join(report.reference_agents)
        console.print(_plain(f"Reference agents ({agents}): no evidence about any other model.", "yellow"))
    if told := varies(report):
        console.print(_plain(told))
    for ranking in rankings(report):
        console.print()
        console.print(_plain(f"{ranking.title}: {ranking.advice}", "bold"))
        for more in ranking.more:
            console.print(_plain(more))
        if ranking.levels.rows:
            console.print(_table(ranking.levels))
        console.print(_table(ranking.table))
    console.print()
    for text in overview(report):
        console.print(_plain(text))
    policy = report.options.policy.value
    for name, view in recovery_tables(report, policy):
        console.print()
        console.print(_plain(f"{name}: recovery on each cell's own clean set, {policy} scoring", "bold"))
        console.print(_table(view))
    for group in groups(report, policy):
        console.print()
        console.print(_plain(f"{group.title}: A − B in points{group.scoring}", "bold"))
        console.print(contrasts_table(group, narrow=console.width < 100))
    for group in memory_groups(report, policy):
        console.print()
        heading = f"{group.title} at equal memory: A − B in points, {policy} scoring"
        console.print(_plain(heading, "bold"))
        console.print(contrasts_table(group, narrow=console.width < 100))
    for answer in answers(report):
        console.print()
        console.print(_plain(answer.title, "bold"))
        for line in answer.lines:
            console.print(Padding(Text("• ").append_text(_plain(line.text)), (0, 0, 0, 2)))
        if answer.flag:
            console.print(Padding(_plain(answer.flag, "bold red"), (0, 0, 0, 2)))
        for flag in clipped(answer.flags, _MOST_FLAGS):
            console.print(Padding(_plain(flag), (0, 0, 0, 4)))
    _print_notices(report, console)


def print_answer(report: Report, console: Console, details: str) -> None:
    """Print the answer alone: per model which preset to use and why, the prompt's effect, what else to read.

    Parameters
    ----------
    details : str
        How to see the tables, such as a command.
    """
    console.print()
    if report.reference_agents:
        agents = ", ".join(report.reference_agents)
        console.print(_plain(f"Reference agents ({agents}): no evidence about any other model.", "yellow"))
    found = rankings(report)
    for ranking in found:
        console.print(_plain(f"{ranking.title}: {ranking.advice}", "bold"))
        for more in ranking.more:
            console.print(_plain(more))
    if not found:
        for text in overview(report):
            console.print(_plain(text))
    warned = [notice.title.rstrip(".") for notice in notices(report)]
    told = f"{len(warned)} warning{'s' if len(warned) > 1 else ''}: {'; '.join(warned)}. " if warned else ""
    console.print(_plain(f"{told}Tables, contrasts and warnings: {details}"))


def print_contrasts(contrasts: Iterable[Contrast], cells: Iterable[CellSummary], console: Console) -> None:
    """Print the contrasts and cells of a table file (`qfr contrast`)."""
    table = _new("Model", "Fixed", "A − B", "Target", "n", "Points", "95 % interval", "Sign p", "Note")
    for c in contrasts:
        if c.family is None:
            fixed = " ".join(name for name in (c.quant, c.prompt) if name)
            table.add_row(
                *_texts(
                    c.model or "", fixed, f"{c.a} − {c.b}", TITLES[Target(c.target)].split(":")[0], _n(c)
                ),
                *_texts(signed(c.points), interval(c), p_value(c.sign_p), _note(c)),
            )
    console.print(table)
    rates = _new("Model", "Level", "Prompt", "Certified", "Own", "Episodes", "Wilson 95 %", "Full", "S*")
    for s in cells:
        if s.family is None:
            wilson = (
                ""
                if s.episode_rate.low is None
                else f"{percent(s.episode_rate.low)}–{percent(s.episode_rate.high)}"
            )
            rates.add_row(
                *_texts(s.key.model, s.key.quant, s.key.prompt, f"{s.n_certified}/{s.n_tasks}"),
                *_texts(percent(s.own.value), f"{s.successes}/{s.episodes}", wilson, percent(s.full.value)),
                *_texts(f"{percent(s.s_star.value)} (n {s.n_s_star})"),
            )
    console.print(rates)


def print_explained(found: Explained, console: Console) -> None:
    """Print what one row is made of (`qfr report --explain`)."""
    console.print(_plain(found.title, "bold"))
    for view in (found.columns, found.tasks, found.cells):
        if view is not None and view.rows:
            console.print()
            console.print(_plain(f"{view.title}: {view.caption}"))
            console.print(_table(view))
    if found.note:
        console.print(_plain(found.note))


def print_further(further: Further, console: Console) -> None:
    """Print contrasts of more than two cells of a table file, where there are any."""
    for view in (group_table(further.grouped), interaction_table(further.interactions)):
        if view.rows:
            console.print()
            console.print(_plain(view.caption))
            console.print(_table(view, small=True))


def contrasts_table(group: Group, *, narrow: bool = False) -> Table:
    """Return one group's contrasts, one row per place and pair."""
    table = _new("Preset" if group.along.value == "quant" else "Prompt", "A − B")
    targets = group.panels[-1:] if narrow else group.panels
    for target in targets:
        table.add_column(group.titled(target), justify="right")
    table.add_column("sign p", justify="right")
    for row in group.rows:
        for pair in group.pairs:
            found = [group.find(row, pair, target) for target in targets]
            table.add_row(
                *_texts(row, f"{pair[0]} − {pair[1]}"),
                *(_estimate(c) for c in found),
                _plain("" if found[-1] is None else p_value(found[-1].sign_p)),
            )
    table.caption = (
        f"sign p: {group.titled(group.panels[-1]).lower()}, unadjusted; ~ interval too short; = degenerate"
    )
    table.caption_justify = "left"
    return table


def _print_notices(report: Report, console: Console) -> None:
    found = notices(report)
    if found:
        console.print()
        console.print(_plain("Warnings", "bold"))
    for notice in found:
        line = Text("⚠ ", "yellow").append(_clean(notice.title), "bold").append(f". {_clean(notice.text)}")
        console.print(Padding(line, (0, 0, 0, 2)))
        for item in notice.items:
            console.print(Padding(_plain(item), (0, 0, 0, 4)))


def _estimate(c: Contrast | None) -> Text:
    if c is None:
        return Text("not run", "dim")
    if c.points is None:
        return Text(f"– n {_n(c)}", "dim")
    mark = "=" if c.degenerate else "" if c.reliable or c.low is None else "~"
    style = "" if c.reliable else "dim"
    return Text(
        " ".join(part for part in (signed(c.points), interval(c) + mark, f"n {_n(c)}") if part), style
    )


def _n(c: Contrast) -> str:
    return f"{c.n_tasks_a}/{c.n_tasks_b}" if c.target == Target.own else str(c.n_tasks)


def _note(c: Contrast) -> str:
    if c.degenerate:
        return "degenerate"
    if c.points is None or c.low is None:
        return c.reason or ""
    return "" if c.reliable else "interval too short"


def _new(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _table(view: View, *, small: bool = False) -> Table:
    table = _new(*view.head)
    for row in view.rows:
        cells = []
        for entry in row:
            text = _plain(entry.text, "dim" if entry.doubtful else "")
            below = entry.brief or (entry.small if small else "")
            cells.append(text.append(f"\n{_clean(below)}", "dim") if below else text)
        table.add_row(*cells)
    return table


def _texts(*values: str) -> tuple[Text, ...]:
    return tuple(_plain(value) for value in values)


def _plain(text: str, style: str = "") -> Text:
    """Text without markup or control characters: nothing in it moves the cursor or colours the terminal."""
    return Text(_clean(text), style)


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
