"""Contrasts as tables of plain strings, without markup."""

from __future__ import annotations

from dataclasses import dataclass

from qfr.analysis.levels import NOT_STATED, Axis
from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.report.layout import TITLES, Group, interval
from qfr.report.tables.formats import ends, p_value, signed


@dataclass(frozen=True)
class Entry:
    """One cell of a table: a main line and smaller ones below it."""

    text: str
    small: str = ""
    doubtful: bool = False
    # Shown in a muted way: unreliable, degenerate or not estimable.
    brief: str = ""
    # What a terminal shows below the main line instead of the smaller one.
    id: str = ""
    # Ids of the rows of results whose numbers it shows, separated by blanks.
    share: float | None = None
    # Fraction by which a page shades it, in a table that is a heat map.


@dataclass(frozen=True)
class Table:
    """A table."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    headers: int = 1
    # Leading columns that are row headers.
    title: str = ""
    # Of the line behind which the table is folded, where it is.


def contrast_table(pair_of_policies: tuple[Group, ...]) -> Table:
    """Contrasts of one group under each policy (Hu 2026, table 4)."""
    first = pair_of_policies[0]
    head = [*_along_title(first), "A − B"]
    head += [
        first.titled(target) + ("" if first.logs else f", {group.policy}")
        for group in pair_of_policies
        for target in first.panels
    ]
    rows = []
    for row in first.rows:
        for pair in first.pairs:
            cells = [*_along(first, row), Entry(f"{pair[0]} − {pair[1]}")]
            for group in pair_of_policies:
                cells += [_contrast_cell(group.find(row, pair, target)) for target in first.panels]
            rows.append(tuple(cells))
    return Table(
        "Differences A − B in points with 95 % percentile task-bootstrap intervals; "
        + ("" if first.logs else "by family: resampled within task families, whose sizes the suite fixes; ")
        + "n = tasks that enter; "
        "sign p = two-sided sign test without ties, unadjusted.",
        tuple(head),
        tuple(rows),
        headers=len(_along_title(first)) + 1,
    )


def further_table(group: Group) -> Table:
    """Clean pass, S*, ungated, and what the full-pipeline difference is made of."""
    targets = [
        t
        for t in (Target.clean, Target.s_star, Target.ungated)
        if any(c.target == t for c in group.contrasts)
    ]
    if group.logs:
        # Nothing was injected: the one target stands in the table above.
        return Table("", (), ())
    head = [*_along_title(group), "A − B", *(TITLES[target] for target in targets)]
    head += ["Full pipeline", "certified by both", "by A only", "by B only", "screening", "rates on own sets"]
    head.append("Had all tasks met a fault")
    rows = []
    for row in group.rows:
        for pair in group.pairs:
            full = group.find(row, pair, Target.full)
            name, bounds = (full.id, full.ungated_bounds) if full else ("", None)
            split = full.decomposition if full else None
            parts = (
                (split.shared, split.only_a, split.only_b, split.screening, split.own_rates)
                if split
                else (None,) * 5
            )
            rows.append(
                (
                    Entry(row),
                    Entry(f"{pair[0]} − {pair[1]}"),
                    *(_contrast_cell(group.find(row, pair, target)) for target in targets),
                    Entry(signed(full.points if full else None), id=name),
                    *(Entry(signed(part), id=name) for part in parts),
                    Entry(ends(bounds.low, bounds.high) if bounds else "", id=name),
                )
            )
    return Table(
        "Further targets, and two exact splits of the full-pipeline difference in points: by who certified "
        "the task, and into screening (how many tasks are certified) and rates on own sets (of these). "
        "Last column: bounds of the difference had faults run on uncertified tasks too, whatever came of it.",
        tuple(head),
        tuple(rows),
        headers=2,
    )


def family_table(group: Group) -> Table:
    """Family strata: the same estimators within each task family."""
    head = [*_along_title(group), "A − B", "Family", *(group.titled(target) for target in group.panels)]
    rows = [
        (
            *_along(group, row),
            Entry(f"{pair[0]} − {pair[1]}"),
            Entry(family),
            *(_contrast_cell(group.find(row, pair, target, family)) for target in group.panels),
        )
        for row in group.rows
        for pair in group.pairs
        for family in group.families
    ]
    return Table(
        f"The same differences within each task family{group.scoring}, in points.",
        tuple(head),
        tuple(rows),
        headers=len(_along_title(group)) + 2,
    )


def _along_title(group: Group) -> tuple[str, ...]:
    """Head of the column that names the row; there is none where no log names a prompt."""
    if group.rows == (NOT_STATED,):
        return ()
    return ("Preset" if group.along is Axis.quant else "Prompt",)


def _along(group: Group, row: str) -> tuple[Entry, ...]:
    return (Entry(row),) if _along_title(group) else ()


def _contrast_cell(c: Contrast | None) -> Entry:
    if c is None:
        return Entry("not run", "", True)
    n = f"n {c.n_tasks_a}/{c.n_tasks_b}" if c.target == Target.own else f"n {c.n_tasks}"
    if c.points is None:
        return Entry("–", f"{n}: {c.reason}", True, id=c.id)
    if c.sign_p is not None:
        n += f", sign p {p_value(c.sign_p)}"
    within = ends(c.strata_low, c.strata_high)
    lines = (interval(c), within and f"{within} by family", n, "degenerate" if c.degenerate else "")
    return Entry(signed(c.points), "\n".join(line for line in lines if line), not c.reliable, id=c.id)
