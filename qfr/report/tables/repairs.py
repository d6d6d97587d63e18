"""The page's part on the request to repair failed calls: what it wins, what it costs, what it harms."""

from __future__ import annotations

from qfr.analysis.contrast.repair import Repair
from qfr.analysis.results import Result
from qfr.analysis.rows import repair_rows
from qfr.report.content.build import Report
from qfr.report.sections import Illustrated
from qfr.report.tables.views import Entry, Table

_CAPTION = (
    "executor=repair against executor=tolerant, all else equal. Won and lost: tasks that both certified, by "
    "their successes over the same faults. Clean won and lost: tasks passed without a fault by one of the "
    "two alone; the request follows a failed call only: a clean episode without one is the same. "
    "Turns and tokens: means per episode, without / with the request."
)
_HEADERS = (
    *("Model", "Preset", "Prompt", "Fault", "Won", "Lost", "Clean won", "Clean lost"),
    *("Turns", "Generated tokens", "Turns of clean episodes"),
)


def repair_sections(report: Report) -> tuple[Illustrated, ...]:
    """One table under the headline policy; nothing where no cell was played with the request."""
    found = [one for one in report.repairs if one.policy == report.options.policy]
    if not found:
        return ()
    rows = tuple(_row(one) for one in found)
    agent = all(one.key.model in report.reference_agents for one in found)
    table = Table(_CAPTION, _HEADERS, rows, headers=4, title="Repair of failed calls")
    return (Illustrated("Request to repair failed calls", agent, (), (table,)),)


def _row(one: Repair) -> tuple[Entry, ...]:
    names = (one.key.model, one.key.quant, one.key.prompt, one.key.fault)
    counted, costs = [], []
    rows = tuple(repair_rows(one))
    for changed in rows[:2]:
        counted += [
            Entry(f"{changed.count_a} of {changed.of_a}", id=changed.id),
            Entry(f"{changed.count_b} of {changed.of_b}", id=changed.id),
        ]
    for without, with_it in zip(rows[2::2], rows[3::2], strict=True):
        costs.append(Entry(f"{_mean(without)} / {_mean(with_it)}", id=f"{without.id} {with_it.id}"))
    return (*map(Entry, names), *counted, *costs)


def _mean(row: Result) -> str:
    return "–" if row.value is None else f"{row.value:.1f}"
