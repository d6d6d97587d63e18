"""Published results to set a report beside: numbers with their source, and what differs from ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from qfr.errors import UserError, did_you_mean
from qfr.facts import CellFacts

#: Names that ``--against`` takes.
NAMES = ("hu2026",)


@dataclass(frozen=True)
class PublishedContrast:
    """A minus B as printed, in points. None where the number was not at hand."""

    model: str
    prompt: str
    target: str
    policy: str
    points: float
    n: int | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PublishedCell:
    """One cell as printed."""

    model: str
    quant: str
    prompt: str
    own_percent: float
    # Task-mean recovery on the cell's own clean set, tolerant.
    successes: int
    episodes: int
    full_rate: float
    # Full-pipeline success, tolerant.


@dataclass(frozen=True)
class PublishedModel:
    """A model's short name and full name."""

    name: str
    full_name: str


@dataclass(frozen=True)
class Circumstance:
    """Something that was other than here, or was not said."""

    what: str
    theirs: str


@dataclass(frozen=True)
class Published:
    """One publication."""

    name: str
    title: str
    source: str
    fault: str
    a: str
    b: str
    # Presets of the contrasts.
    models: tuple[PublishedModel, ...]
    circumstances: tuple[Circumstance, ...]
    contrasts: tuple[PublishedContrast, ...]
    cells: tuple[PublishedCell, ...]

    def model_like(self, model: str) -> PublishedModel | None:
        """The published model that a model of ours is named after, None where none is."""
        return next((one for one in self.models if one.name.lower() in model.lower()), None)

    def same_model(self, facts: CellFacts) -> bool:
        """Whether a cell ran the published model, as far as its name tells."""
        like = self.model_like(facts.model)
        return like is not None and facts.model.lower() == like.name.lower() and not facts.reference_agent


def published(name: str) -> Published:
    """Load published results by name.

    Raises
    ------
    UserError
        If there are none of this name.
    """
    if name not in NAMES:
        raise UserError(
            f"no published results named {name!r}" + did_you_mean(name, NAMES),
            where="--against",
            hint="known are " + ", ".join(NAMES),
        )
    data = json.loads(files("qfr.analysis").joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Published(
        name=data["name"],
        title=data["title"],
        source=data["source"],
        fault=data["fault"],
        a=data["a"],
        b=data["b"],
        models=tuple(PublishedModel(short, full) for short, full in data["models"].items()),
        circumstances=tuple(Circumstance(what, theirs) for what, theirs in data["differs"].items()),
        contrasts=tuple(PublishedContrast(**row) for row in data["contrasts"]),
        cells=tuple(PublishedCell(**row) for row in data["cells"]),
    )
