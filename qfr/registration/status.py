"""What of a report was planned: each contrast is planned, deviated or exploratory; missing cells by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from qfr.facts import CellFacts
from qfr.registration.differences import read_deviation
from qfr.registration.record import AnalysisPlan, FrozenCell, PlannedContrast, Record

_AXES = ("model", "quant", "prompt", "fault", "executor")


class Standing(StrEnum):
    """How a result stands to the registration."""

    planned = "planned"
    # Both cells as frozen and run under it, contrasted as the analysis plan says.
    deviated = "deviated"
    # Planned, and then run or analysed otherwise, for a declared reason.
    exploratory = "exploratory"
    # Everything else.


class Contrasted(Protocol):
    """What is asked of a contrast; `qfr.analysis.results.Contrast` has it."""

    @property
    def model(self) -> str | None: ...
    @property
    def quant(self) -> str | None: ...
    @property
    def prompt(self) -> str | None: ...
    @property
    def fault(self) -> str | None: ...
    @property
    def executor(self) -> str | None: ...
    @property
    def suite(self) -> str: ...
    @property
    def gate(self) -> str: ...
    @property
    def trial(self) -> int: ...
    @property
    def policy(self) -> str: ...
    @property
    def vary(self) -> str: ...
    @property
    def cells(self) -> tuple[str, ...]: ...
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def resamples(self) -> int | None: ...
    @property
    def seed(self) -> int | None: ...


@dataclass(frozen=True)
class Stood:
    """How one contrast stands, and why, in sentences (none for a planned one)."""

    standing: Standing
    reasons: tuple[str, ...]


def stand(
    record: Record, registration: str, contrasts: Iterable[Contrasted], cells: Sequence[CellFacts]
) -> tuple[Stood, ...]:
    """Classify contrasts.

    Parameters
    ----------
    record : Record
    registration : str
        Its id, as runs carry it.
    contrasts : iterable of Contrasted
    cells : sequence of CellFacts
        Of every cell that the contrasts were computed from, clean passes included.

    Returns
    -------
    tuple of Stood
        One per contrast, in order.
    """
    planned = {_key(one) for one in record.analysis.contrasts}
    designs = {cell.design_id for cell in record.cells}
    known = {facts.cell_id: facts for facts in cells}
    return tuple(
        _stand(
            one,
            record.analysis,
            planned,
            [known[cell] for cell in one.cells if cell in known],
            (registration, designs),
        )
        for one in contrasts
    )


def missing_cells(record: Record, registration: str, cells: Iterable[CellFacts]) -> tuple[FrozenCell, ...]:
    """Planned cells, clean passes included, of which no given run under the registration is one."""
    ran = {facts.design_id for facts in cells if facts.registration == registration}
    return tuple(cell for cell in record.cells if cell.design_id not in ran)


def missing_contrasts(record: Record, contrasts: Iterable[Contrasted]) -> tuple[PlannedContrast, ...]:
    """Planned contrasts that are none of the given ones."""
    there = {_key(one) for one in contrasts}
    return tuple(one for one in record.analysis.contrasts if _key(one) not in there)


def _stand(
    contrast: Contrasted,
    plan: AnalysisPlan,
    planned: set[tuple[object, ...]],
    cells: Sequence[CellFacts],
    frozen: tuple[str, set[str]],
) -> Stood:
    registration, designs = frozen
    outside = [facts.name for facts in cells if facts.registration != registration]
    reasons = []
    if not cells:
        reasons.append("none of its cells is known")
    if outside:
        reasons.append(f"not run under {registration}: {', '.join(outside)}")
    if _key(contrast) not in planned:
        reasons.append("not among the planned contrasts")
    if contrast.target not in plan.targets or contrast.policy not in plan.policies:
        reasons.append(f"target {contrast.target} under the {contrast.policy} policy is not in the plan")
    if reasons:
        return Stood(Standing.exploratory, tuple(reasons))
    reasons = [*_deviations(cells, designs), *_other_method(contrast, plan)]
    return Stood(Standing.deviated if reasons else Standing.planned, tuple(reasons))


def _deviations(cells: Sequence[CellFacts], designs: set[str]) -> list[str]:
    found: dict[str, list[str]] = {}
    for facts in cells:
        told = read_deviation(facts.deviation)
        if told is not None:
            keys = "; ".join(str(one.shortened) for one in told.differences)
            found.setdefault(f"{told.reason} ({keys})", []).append(facts.name)
        elif facts.design_id not in designs:
            found.setdefault("no frozen cell, and no reason was declared", []).append(facts.name)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in found.items()]


def _other_method(contrast: Contrasted, plan: AnalysisPlan) -> list[str]:
    found = []
    if contrast.method != plan.method:
        found.append(f"interval by {contrast.method}, planned was {plan.method}")
    elif contrast.resamples is not None and (contrast.resamples, contrast.seed) != (
        plan.resamples,
        plan.seed,
    ):
        found.append(
            f"{contrast.resamples} resamples with seed {contrast.seed}, planned were {plan.resamples} "
            f"with seed {plan.seed}"
        )
    return found


def _key(one: Contrasted | PlannedContrast) -> tuple[object, ...]:
    # A level that is several files carries what tells them apart in brackets.
    levels = (one.a.partition(" [")[0], one.b.partition(" [")[0])
    return (*levels, *(getattr(one, name) for name in ("vary", *_AXES, "suite", "gate", "trial")))
