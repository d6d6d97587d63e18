"""Planned, deviated, exploratory: how the contrasts of a report stand to the registrations of their runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qfr.analysis.results import Contrast
from qfr.facts import CellFacts
from qfr.registration.differences import read_deviation
from qfr.registration.record import PlannedContrast, Record
from qfr.registration.status import Standing, Stood, missing_cells, missing_contrasts, stand

UNREGISTERED = "not run under a registration"


@dataclass(frozen=True)
class Frozen:
    """A registration that cells of a report ran under."""

    id: str
    record: Record
    finished: frozenset[str]
    # design_id of every cell that the store holds finished under it, in this report or not.
    deviation: str = ""
    # What of its grid or analysis the sweep itself declared to be otherwise (`CellFacts.deviation`).


@dataclass(frozen=True)
class Registrations:
    """The registrations of a report's runs."""

    found: tuple[Frozen, ...] = ()
    lost: tuple[str, ...] = ()
    # Those that cells name and nobody has, or that were changed: one sentence each.


@dataclass(frozen=True)
class Followed:
    """How a report stands to one registration."""

    frozen: Frozen
    stood: tuple[Stood, ...]
    # One per contrast of the report, in order.
    missing: tuple[str, ...]
    # Planned cells without a finished run under the registration, by name.
    otherwise: tuple[str, ...]
    # Planned cells that ran under it with a declared deviation only.
    elsewhere: tuple[str, ...]
    # Planned cells that are finished under it and not among the report's cells.
    absent: tuple[PlannedContrast, ...]
    # Planned contrasts that the report does not hold, since a cell is missing.
    otherwise_varied: str
    # The axis that the report contrasts, where the plan contrasts another one; empty otherwise.

    @property
    def title(self) -> str:
        """`r-…: what was asked`."""
        return f"{self.frozen.id}: {self.frozen.record.title}"

    @property
    def summary(self) -> str:
        """What was planned and what became of it, in sentences."""
        record, n = self.frozen.record, self.counts
        cells = len(record.cells)
        parts = [
            f"Registered {record.registered} as {record.label}, {cells} cells with their clean passes, "
            f"{len(record.analysis.contrasts)} contrasts.",
            f"Of this report's estimates {n[Standing.planned]} are as planned, {n[Standing.deviated]} "
            f"deviated and {n[Standing.exploratory]} exploratory.",
            f"{len(self.missing)} of {cells} planned cells are missing."
            if self.missing
            else "No planned cell is missing.",
        ]
        if self.otherwise:
            parts.append(f"{len(self.otherwise)} ran with a declared deviation only.")
        if self.otherwise_varied:
            parts.append(
                f"The plan contrasts {record.analysis.vary}, this report {self.otherwise_varied}; see the "
                "report of the planned axis."
            )
        if self.absent:
            parts.append(f"{len(self.absent)} planned contrasts cannot be shown for that reason.")
        if self.elsewhere:
            parts.append(
                f"{len(self.elsewhere)} finished under it are not among this report's cells "
                "(a filter, or another sweep)."
            )
        told = read_deviation(self.frozen.deviation)
        if told is not None:
            keys = "; ".join(str(one.shortened) for one in told.differences)
            parts.append(f"The sweep declared a deviation: {told.reason} ({keys}).")
        return " ".join(parts)

    @property
    def counts(self) -> Counter[Standing]:
        """Estimates by standing."""
        return Counter(one.standing for one in self.stood)


def followed(
    registrations: Registrations, contrasts: Sequence[Contrast], facts: Sequence[CellFacts]
) -> tuple[Followed, ...]:
    """Set the contrasts of a report beside each registration of its runs."""
    found = []
    for one in registrations.found:
        plan = one.record.analysis
        vary = next((contrast.vary for contrast in contrasts), plan.vary)
        absent = missing_cells(one.record, one.id, facts)
        changed = {cell.name for cell in facts if cell.registration == one.id and cell.deviation}
        gone = [cell for cell in absent if cell.design_id not in one.finished]
        found.append(
            Followed(
                frozen=one,
                stood=stand(one.record, one.id, contrasts, facts),
                missing=tuple(cell.name for cell in gone if cell.name not in changed),
                otherwise=tuple(cell.name for cell in gone if cell.name in changed),
                elsewhere=tuple(cell.name for cell in absent if cell.design_id in one.finished),
                absent=() if vary != plan.vary else missing_contrasts(one.record, contrasts),
                otherwise_varied="" if vary == plan.vary else vary,
            )
        )
    return tuple(found)


def best(registered: Sequence[Followed], place: int) -> tuple[str, Stood]:
    """Return the registration under which a contrast stands best (none: an empty id), and how it stands."""
    order = tuple(Standing)
    choices = [(one.frozen.id, one.stood[place]) for one in registered]
    if not choices:
        return "", Stood(Standing.exploratory, (UNREGISTERED,))
    # A contrast that is exploratory under every registration belongs to none.
    name, stood = min(choices, key=lambda choice: order.index(choice[1].standing))
    return ("" if stood.standing is Standing.exploratory and len(choices) > 1 else name), stood
