"""The page's part on loops and waste: agents that were stuck or stopped, and what a solved episode cost."""

from __future__ import annotations

from qfr.analysis.results import Result
from qfr.analysis.rows import waste_rows
from qfr.report.content.build import Report
from qfr.report.tables.formats import NONE, number
from qfr.report.tables.specs import CELL, Column, Line, of, pick, table
from qfr.report.tables.views import Entry, Table

_ENDINGS = {"out_of_steps": "turns", "out_of_errors": "errors", "out_of_context": "context"}


def waste_table(report: Report) -> Table | None:
    """Loops, forced ends and costs under the headline policy; None without a cell."""
    found = [one for one in report.wastes if one.policy == report.options.policy]
    if not found:
        return None
    uncounted = any(one.stuck is None for one in found)
    hint = " –: not counted in that run; qfr rescore counts it." if uncounted else ""
    rows = (row for one in found for row in waste_rows(one))
    return table(
        rows,
        lambda one: one.cells,
        (
            CELL,
            of("Stuck", _share, item="stuck"),
            Column("Forced end", _forced),
            Column("Tokens per solved", lambda line: _cost(line, "tokens", 0)),
            Column("Turns per solved", lambda line: _cost(line, "turns", 1)),
        ),
        f"Stuck: one call got one answer {report.options.stuck_after} times in a row. Forced end: turns, "
        "failed calls or the context were used up. Both count episodes. Tokens and turns per solved episode: "
        f"all that was generated over the successes, {report.options.policy} scoring; × = the ratio to the "
        "highest preset on the tasks that both played, 95 % task-bootstrap interval." + hint,
        title="Loops and waste",
        headers=1,
    )


def _share(one: Result) -> Entry:
    return Entry(NONE if one.count_a is None else f"{one.count_a}/{one.of_a}", id=one.id)


def _forced(line: Line) -> Entry:
    whole = pick(line, item="forced end")
    parts = [one for one in line if one.item in _ENDINGS and one.count_a]
    if whole is None:
        return Entry(NONE)
    small = ", ".join(f"{_ENDINGS[one.item]} {one.count_a}" for one in parts)
    return Entry(f"{whole.count_a}/{whole.of_a}", small, id=" ".join(one.id for one in (whole, *parts)))


def _cost(line: Line, measure: str, digits: int) -> Entry:
    spent = pick(line, item=f"{measure} per solved")
    ratio = pick(line, item=f"{measure} per solved, ratio")
    if spent is None:
        return Entry(NONE)
    shown = number(spent.value, digits)
    if ratio is None:
        why = "not counted" if spent.count_a else "no success"
        return Entry(shown, "" if spent.value is not None else why, id=spent.id)
    ids = f"{spent.id} {ratio.id}"
    if ratio.value is None:
        return Entry(shown, ratio.reason or "", True, id=ids)
    ends = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    small = "; ".join(part for part in (f"×{ratio.value:.2f}{ends}, n {ratio.n_tasks}", ratio.reason) if part)
    return Entry(shown, small, ratio.low is None, id=ids)
