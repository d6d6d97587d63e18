"""What a table is, and how one is declared: which rows of results make one line, and what each column shows
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from qfr.analysis.results import Result
from qfr.analysis.targets import CellKey
from qfr.report.layout import cell_name
from qfr.report.tables.formats import NONE, ends, number, percent, percents, signed


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


#: The rows of one line of a table.
Line = tuple[Result, ...]
Show = Callable[[Result], Entry]


@dataclass(frozen=True)
class Column:
    """One column: its head, and what it shows of the rows of a line."""

    head: str
    entry: Callable[[Line], Entry]


def table(
    rows: Iterable[Result],
    line: Callable[[Result], Hashable],
    columns: Iterable[Column],
    caption: str,
    *,
    title: str = "",
    headers: int = 2,
) -> Table:
    """Lay rows out: those with the same `line` stand in one line, in the order of their first rows."""
    lines: dict[Hashable, list[Result]] = {}
    for one in rows:
        lines.setdefault(line(one), []).append(one)
    shown = tuple(columns)
    laid = tuple(tuple(column.entry(tuple(members)) for column in shown) for members in lines.values())
    return Table(caption, tuple(column.head for column in shown), laid, headers, title)


def named(
    head: str, text: Callable[[Result], str], small: Callable[[Result], str] = lambda _one: ""
) -> Column:
    """A column that names the line."""
    return Column(head, lambda line: Entry(text(line[0]), small(line[0])))


def of(head: str, show: Show, *, missing: str = NONE, **wanted: object) -> Column:
    """A column that shows the one row of the line whose columns have the wanted values."""

    def entry(line: Line) -> Entry:
        found = pick(line, **wanted)
        return Entry(missing, doubtful=missing != NONE) if found is None else show(found)

    return Column(head, entry)


def pick(line: Iterable[Result], **wanted: object) -> Result | None:
    """Return the row whose columns have the wanted values; None where there is none."""
    return next(
        (one for one in line if all(getattr(one, name) == value for name, value in wanted.items())), None
    )


def across(rows: Iterable[Result], value: Callable[[Result], str]) -> tuple[str, ...]:
    """Return the values along which a table spreads, in the order in which they appear."""
    return tuple(dict.fromkeys(map(value, rows)))


def key_of(one: Result) -> CellKey:
    """Return the names of a row's cell."""
    return CellKey(
        one.model or "",
        one.level or "",
        one.prompt or "",
        one.fault or "",
        one.executor or "",
        one.suite or "",
        one.gate or "",
        one.trial or 0,
        one.scope,
    )


#: The column that names a cell.
CELL = named("Cell", lambda one: cell_name(key_of(one)))
PAIR = named("A − B", lambda one: f"{one.a} − {one.b}")


# --- what a column shows of a row ------------------------------------------------------------------------


def estimate(
    one: Result, text: Callable[[float], str], interval: str, *more: str, value: float | None = None
) -> Entry:
    """The number, its interval below it and more lines; a dash with the reason where there is none."""
    found = value if value is not None else one.points if one.unit == "points" else one.value
    kept = [part for part in more if part]
    if found is None:
        return Entry(NONE, ": ".join([*kept, one.reason or ""]).strip(": "), True, id=one.id)
    below = [part for part in (interval, *kept, "degenerate" if one.degenerate else "") if part]
    return Entry(text(found), "\n".join(below), one.reliable is False, id=one.id)


def rate(one: Result, *more: str) -> Entry:
    """A fraction in percent."""
    return estimate(one, percent, percents(one.low, one.high), *more)


def points(one: Result, *more: str) -> Entry:
    """A difference in points."""
    return estimate(one, signed, ends(one.low, one.high), *more)


def ratio(one: Result) -> Entry:
    """A ratio; what one side never shows has none."""
    if one.verdict == "new channel":
        return Entry("new channel", id=one.id)
    low, high = (
        NONE if one.low is None else f"{one.low:.2f}",
        "∞" if one.high is None else f"{one.high:.2f}",
    )
    return estimate(one, lambda value: f"×{value:.2f}", f"[{low}, {high}]")


def area(one: Result) -> Entry:
    """An area under the curve, and how many of each side it rests on."""
    interval = "" if one.low is None or one.high is None else f"[{one.low:.2f}, {one.high:.2f}]"
    return estimate(one, number, interval, f"{one.count_a} against {one.count_b}")


def count(one: Result) -> Entry:
    """What was counted."""
    return Entry(f"{one.count_a}", id=one.id)


def share(one: Result) -> Entry:
    """What was counted, of how many."""
    shown = one.of_a and one.count_a is not None
    return Entry(f"{one.count_a} of {one.of_a}" if shown else NONE, id=one.id)


def change(one: Result, small: str = "") -> Entry:
    """A count on both sides."""
    return Entry(f"{one.count_a} → {one.count_b}", small, id=one.id)
