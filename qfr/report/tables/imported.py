"""What a report says of imported logs alone: pass^k, what is in no rate, what limits a number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qfr.analysis.results import Kind, Result, tidy
from qfr.analysis.rows import row
from qfr.analysis.targets import CellKey, TaskTable
from qfr.analysis.trials import FOREIGN, Planned, planned
from qfr.foreign.measures import TaskTrials, pass_hat_of
from qfr.report.layout import cell_name
from qfr.report.tables.formats import percent
from qfr.report.tables.specs import Entry, Table, pick

if TYPE_CHECKING:
    from qfr.report.content.build import Report


#: Exponents of pass^k that are shown at most.
_MOST_K = 4
_MADE = ("kind", "release", "agent", "user_model", "timestamp", "max_steps", "max_errors", "seed")
_SUCCESS = "success of the scored simulations"
_IN_NO_RATE = "simulations in no rate"


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
    cells: tuple[str, ...]
    count: int | None = None
    of: int | None = None
    # Simulations, where they are counted.

    @property
    def row(self) -> Result:
        """The figure as a row of results."""
        return row(
            self.key,
            Kind.imported,
            unit="number" if self.kind == _IN_NO_RATE else "rate",
            cells=self.cells,
            target=self.kind,
            item=self.item,
            n_tasks=self.n_tasks,
            value=tidy(self.value),
            low=tidy(self.low),
            high=tidy(self.high),
            reason=self.reason or None,
            count_a=self.count,
            of_a=self.of,
        )


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
    rows = tuple(_row(one, most, [figure.row for figure in figures_of(report)]) for one in logs)
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


def made_table(report: Report) -> Table:
    """Where each log comes from; no rows where none was imported."""
    rows = tuple(
        tuple(
            Entry(text)
            for text in (
                one.plan.source, cell_name(one.key), one.plan.made.get("sha256", "")[:16],
                *(one.plan.made.get(name, "") for name in _MADE),
            )
        )
        for one in logs_of(report)
    )  # fmt: skip
    head = (
        "File", "Log", "SHA-256", "Program", "Release", "Agent", "User simulator", "Began", "Step budget",
        "Error budget", "Seed",
    )  # fmt: skip
    return Table("Imported files, as they say it themselves; empty where they are silent.", head, rows)


def figures_of(report: Report) -> Iterator[Figure]:
    """The same figures and warnings for the files."""
    for one in logs_of(report):
        n, cells = len(one.table.tasks), one.table.cells
        low, high = _bounds(one)
        share = one.successes / one.scored if one.scored else None
        whole = int(one.table.scheduled.sum())
        yield Figure(one.key, _SUCCESS, "", share, low, high, n, "", cells, one.scored, whole)
        for k in range(1, one.plan.trials + 1):
            for word, failed in (("removed", False), ("failed", True)):
                value = one.pass_hat(k, failed=failed)
                reason = "" if value is not None else "a task has fewer counted trials"
                yield Figure(one.key, f"pass^{k}", f"excluded {word}", value, None, None, n, reason, cells)
        for reason, count in one.plan.reasons:
            yield Figure(one.key, _IN_NO_RATE, reason, None, None, None, n, "", cells, count)
        for at, text in enumerate(one.plan.warnings, 1):
            yield Figure(one.key, "warning", str(at), None, None, None, n, text, cells)


def limits(report: Report) -> tuple[str, ...]:
    """Every warning of every log, the log's name first."""
    return tuple(
        f"{cell_name(one.key)} ({one.plan.source}): {text}"
        for one in logs_of(report)
        for text in one.plan.warnings
    )


def _bounds(one: ImportedLog) -> tuple[float | None, float | None]:
    whole = int(one.table.scheduled.sum())
    if not whole:
        return None, None
    return one.successes / whole, (one.successes + whole - one.scored) / whole


def _row(one: ImportedLog, most: int, rows: list[Result]) -> tuple[Entry, ...]:
    whole = int(one.table.scheduled.sum())
    low, high = _bounds(one)
    ends = "" if low is None or high is None or low == high else f"{100 * low:.1f} to {100 * high:.1f} %"
    mine = [found for found in rows if found.cells == one.table.cells]
    success = pick(mine, target=_SUCCESS)
    own = success.id if success else ""
    powers = []
    for k in range(1, most + 1):
        removed, failed = one.pass_hat(k, failed=False), one.pass_hat(k, failed=True)
        same = removed == failed
        ids = " ".join(found.id for found in mine if found.target == f"pass^{k}")
        powers.append(Entry(percent(removed), "" if same else percent(failed), removed is None, id=ids))
    gone = ", ".join(f"{count} {reason}" for reason, count in one.plan.reasons)
    return (
        Entry(cell_name(one.key), one.plan.source),
        Entry(f"{one.scored} of {whole}", id=own),
        Entry(percent(one.successes / one.scored if one.scored else None), ends, id=own),
        *powers,
        Entry(gone or "none", id=" ".join(found.id for found in mine if found.target == _IN_NO_RATE)),
        Entry(_short(one.plan.warnings), doubtful=bool(one.plan.warnings)),
    )


def _short(warnings: tuple[str, ...]) -> str:
    """The warnings in a table: each by its beginning; the list of warnings holds them whole."""
    bare = (re.sub(r" \([^()]*\)", "", text) for text in warnings)
    return "; ".join(text if len(text) <= 240 else f"{text[:238]}…" for text in bare) or "nothing known"
