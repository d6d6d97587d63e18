"""What a report says of imported logs alone: pass^k, what is in no rate, what limits a number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qfr.analysis.targets import CellKey, TaskTable
from qfr.analysis.trials import FOREIGN, Planned, planned
from qfr.foreign.measures import TaskTrials, pass_hat_of
from qfr.report.layout import cell_name
from qfr.report.views import Entry, Table

if TYPE_CHECKING:
    from qfr.report.build import Report

#: Exponents of pass^k that are shown at most.
_MOST_K = 4


@dataclass(frozen=True)
class ImportedLog:
    """One imported log of a report."""

    key: CellKey
    plan: Planned
    table: TaskTable

    @property
    def scored(self) -> int:
        """Simulations that the log scores."""
        return int(self.table.delivered.sum())

    @property
    def successes(self) -> int:
        """Of the scored ones."""
        return int(self.table.successes.sum())

    def pass_hat(self, k: int, *, failed: bool) -> float | None:
        """pass^k, with excluded simulations removed or failed; None where a task has fewer trials."""
        trials = self.table.scheduled if failed else self.table.delivered
        counts = zip(self.table.tasks, self.table.successes, trials, strict=True)
        return pass_hat_of([TaskTrials(task, int(wins), int(n)) for task, wins, n in counts], k)


@dataclass(frozen=True)
class Figure:
    """One figure of a log, for the files."""

    key: CellKey
    kind: str
    item: str
    value: float | None
    low: float | None
    high: float | None
    n_tasks: int
    reason: str


def logs_of(report: Report) -> tuple[ImportedLog, ...]:
    """The imported logs of a report."""
    facts = {one.cell_id: one for one in report.facts if one.executor == FOREIGN}
    return tuple(
        ImportedLog(table.key, planned(facts[table.cells[0]]), table)
        for table in report.joined.tables
        if table.key.executor == FOREIGN and table.policy == report.options.policy
    )


def log_table(report: Report) -> Table:
    """One row per log; no rows where none was imported."""
    logs = logs_of(report)
    most = min(_MOST_K, max((one.plan.trials for one in logs), default=0))
    rows = tuple(_row(one, most) for one in logs)
    return Table(
        "Simulations that each log scores, of those planned; success with all others as failures and as "
        "successes below it. pass^k: all of k trials of a task succeed, mean over tasks; below it with the "
        "simulations that are in no rate as failures. Right: what limits these numbers.",
        (
            "Log", "Scored", "Success", *(f"pass^{k}" for k in range(1, most + 1)), "In no rate",
            "What limits the numbers",
        ),
        rows,
        title="Imported logs",
    )  # fmt: skip


def figures_of(report: Report) -> Iterator[Figure]:
    """The same figures and warnings for the files."""
    for one in logs_of(report):
        n = len(one.table.tasks)
        low, high = _bounds(one)
        share = one.successes / one.scored if one.scored else None
        yield Figure(one.key, "success of the scored simulations", "", share, low, high, n, "")
        for k in range(1, one.plan.trials + 1):
            for word, failed in (("removed", False), ("failed", True)):
                value = one.pass_hat(k, failed=failed)
                reason = "" if value is not None else "a task has fewer counted trials"
                yield Figure(one.key, f"pass^{k}", f"excluded {word}", value, None, None, n, reason)
        for reason, count in one.plan.reasons:
            yield Figure(one.key, "simulations in no rate", reason, float(count), None, None, n, "")
        for at, text in enumerate(one.plan.warnings, 1):
            yield Figure(one.key, "warning", str(at), None, None, None, n, text)


def limits(report: Report) -> tuple[str, ...]:
    """Every warning of every log, the log's name first."""
    return tuple(f"{cell_name(one.key)}: {text}" for one in logs_of(report) for text in one.plan.warnings)


def _bounds(one: ImportedLog) -> tuple[float | None, float | None]:
    whole = int(one.table.scheduled.sum())
    if not whole:
        return None, None
    return one.successes / whole, (one.successes + whole - one.scored) / whole


def _row(one: ImportedLog, most: int) -> tuple[Entry, ...]:
    whole = int(one.table.scheduled.sum())
    low, high = _bounds(one)
    ends = "" if low is None or high is None or low == high else f"{100 * low:.1f} to {100 * high:.1f} %"
    powers = []
    for k in range(1, most + 1):
        removed, failed = one.pass_hat(k, failed=False), one.pass_hat(k, failed=True)
        same = removed == failed
        powers.append(Entry(_percent(removed), "" if same else _percent(failed), removed is None))
    gone = ", ".join(f"{count} {reason}" for reason, count in one.plan.reasons)
    return (
        Entry(cell_name(one.key)),
        Entry(f"{one.scored} of {whole}"),
        Entry(_percent(one.successes / one.scored if one.scored else None), ends),
        *powers,
        Entry(gone or "none"),
        Entry(_short(one.plan.warnings), doubtful=bool(one.plan.warnings)),
    )


def _short(warnings: tuple[str, ...]) -> str:
    """The warnings in a table: each by its beginning; the list of warnings holds them whole."""
    bare = (re.sub(r" \([^()]*\)", "", text) for text in warnings)
    return "; ".join(text if len(text) <= 240 else f"{text[:238]}…" for text in bare) or "nothing known"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
