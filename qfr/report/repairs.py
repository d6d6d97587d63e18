"""The page's part on the request to repair failed calls: what it wins, what it costs, what it harms."""

from __future__ import annotations

from qfr.analysis.repair import Changed, Cost, Repair, repairs
from qfr.report.build import Report
from qfr.report.sections import Illustrated
from qfr.report.views import Entry, Table

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
    found = [
        one for one in repairs(report.joined.tables, report.processes) if one.policy == report.options.policy
    ]
    if not found:
        return ()
    rows = tuple(_row(one) for one in found)
    agent = all(one.key.model in report.reference_agents for one in found)
    table = Table(_CAPTION, _HEADERS, rows, headers=4, title="Repair of failed calls")
    return (Illustrated("Request to repair failed calls", agent, (), (table,)),)


def _row(one: Repair) -> tuple[Entry, ...]:
    names = (one.key.model, one.key.quant, one.key.prompt, one.key.fault)
    return (
        *map(Entry, names),
        *(Entry(text) for text in _counts(one.faulted)),
        *(Entry(text) for text in _counts(one.clean)),
        *(Entry(_cost(cost)) for cost in (one.turns, one.tokens, one.clean_turns)),
    )


def _counts(one: Changed) -> tuple[str, str]:
    return f"{one.won} of {one.tasks}", f"{one.lost} of {one.tasks}"


def _cost(cost: Cost) -> str:
    return " / ".join("–" if value is None else f"{value:.1f}" for value in (cost.without, cost.with_it))
