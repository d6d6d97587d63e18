"""The page's part on loops and waste: agents that were stuck or stopped, and what a solved episode cost."""

from __future__ import annotations

from qfr.analysis.process import Count
from qfr.analysis.waste import Ratio, Waste
from qfr.report.build import Report
from qfr.report.layout import cell_name
from qfr.report.views import Entry, Table

_ENDINGS = {"out_of_steps": "turns", "out_of_errors": "errors", "out_of_context": "context"}


def waste_table(report: Report) -> Table | None:
    """Loops, forced ends and costs under the headline policy; None without a cell."""
    found = [one for one in report.wastes if one.policy == report.options.policy]
    if not found:
        return None
    uncounted = any(one.stuck is None for one in found)
    hint = " –: not counted in that run; qfr rescore counts it." if uncounted else ""
    return Table(
        f"Stuck: one call got one answer {report.options.stuck_after} times in a row. Forced end: turns, "
        "failed calls or the context were used up. Both count episodes. Tokens and turns per solved episode: "
        f"all that was generated over the successes, {report.options.policy} scoring; × = the ratio to the "
        "highest preset on the tasks that both played, 95 % task-bootstrap interval." + hint,
        ("Cell", "Stuck", "Forced end", "Tokens per solved", "Turns per solved"),
        tuple(_row(one) for one in found),
        title="Loops and waste",
    )


def _row(one: Waste) -> tuple[Entry, ...]:
    costs = zip(one.spent, one.ratios or (None, None), (0, 1), strict=True)
    return (
        Entry(cell_name(one.key)),
        Entry("–") if one.stuck is None else Entry(f"{one.stuck}/{one.episodes}"),
        _forced(one.forced, one.episodes),
        *(_cost(value, ratio, digits) for value, ratio, digits in costs),
    )


def _forced(counts: tuple[Count, ...], episodes: int) -> Entry:
    small = ", ".join(f"{_ENDINGS[count.name]} {count.count}" for count in counts if count.count)
    return Entry(f"{sum(count.count for count in counts)}/{episodes}", small)


def _cost(value: float | None, ratio: Ratio | None, digits: int) -> Entry:
    shown = "–" if value is None else f"{value:,.{digits}f}"
    if ratio is None:
        return Entry(shown, "" if value is not None else "no success")
    if ratio.value is None:
        return Entry(shown, ratio.reason, True)
    ends = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    small = f"×{ratio.value:.2f}{ends}, n {ratio.tasks}"
    return Entry(shown, f"{small}; {ratio.reason}" if ratio.reason else small, ratio.low is None)
