"""Replication or extension: which runs had been there to be seen when a grid was registered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qfr.records import FaultKind
from qfr.registration.record import ExistingRun, FrozenCell, Label, Relation

_SCRIPTED = "scripted"
_SHOWN = 5


@dataclass(frozen=True)
class Shape:
    """What a run must share with the grid to say something about it."""

    designs: frozenset[str]
    # design_id of every cell and clean pass.
    settings: frozenset[tuple[str, str, str]]
    # (suite digest, prompt digest, kind of fault) of every cell and clean pass.
    scripted: bool
    # The grid's agents are scripted: then only scripted runs are its siblings, else only real ones.


def shape_of(cells: Iterable[FrozenCell]) -> Shape:
    """The shape of a frozen grid. `cells` is not empty."""
    given = tuple(cells)
    return Shape(
        designs=frozenset(cell.design_id for cell in given),
        settings=frozenset(
            (str(cell.design["suite_sha256"]), str(cell.design["prompt_sha256"]), cell.fault)
            for cell in given
        ),
        scripted=all(_scripted(cell) for cell in given),
    )


def _scripted(cell: FrozenCell) -> bool:
    fields = cell.design.get("fields")
    return isinstance(fields, dict) and fields.get("engine.kind") == _SCRIPTED


def relation(shape: Shape, *, design_id: str, setting: tuple[str, str, str], engine: str) -> Relation | None:
    """How a run is related to the grid; None when it says nothing about it.

    A sibling is any other model, preset or setting on the same tasks under the same prompt and kind of fault:
    its results may have shaped the hypotheses.

    Parameters
    ----------
    shape : Shape
        Of the grid.
    design_id : str
        Of the run.
    setting : tuple of str
        (suite digest, prompt digest, kind of fault) of the run.
    engine : str
        Kind of engine that played it.
    """
    if design_id in shape.designs:
        return Relation.grid
    if setting in shape.settings and (engine == _SCRIPTED) == shape.scripted:
        return Relation.sibling
    return None


def label(existing: Sequence[ExistingRun]) -> tuple[Label, tuple[str, ...]]:
    """The label of a registration and why, in sentences.

    Only complete runs hold results. What the store does not know, it cannot say: results seen elsewhere
    belong into the hypotheses.
    """
    reasons: list[str] = []
    for kind, words in (
        (Relation.grid, "of this grid"),
        (Relation.sibling, "of a sibling (another model, preset or setting on the same tasks and prompt)"),
    ):
        seen = [run for run in existing if run.relation is kind and run.complete]
        if seen:
            names = list(dict.fromkeys(run.name for run in seen))
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            reasons.append(
                f"{_count(seen, 'finished run')} {words} stood in the store: "
                f"{', '.join(names[:_SHOWN])}{more}."
            )
    if reasons:
        return Label.extension, tuple(reasons)
    partial = [run for run in existing if not run.complete]
    told = f", {_count(partial, 'unfinished run')} apart" if partial else ""
    return Label.replication, (f"The store held no result of this grid or of a sibling{told}.",)


def _count(runs: Sequence[ExistingRun], what: str) -> str:
    faulted = sum(run.name.rpartition(" ")[2] != FaultKind.none for run in runs)
    return f"{len(runs)} {what}{'' if len(runs) == 1 else 's'} ({faulted} with a fault)"
