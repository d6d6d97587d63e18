"""What differs between a cell that is about to run, or ran, and the cells that were frozen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qfr.canonical import canonical
from qfr.registration.record import AnalysisPlan, FrozenCell, FrozenCode, Record


@dataclass(frozen=True)
class Difference:
    """One key."""

    key: str
    found: str
    frozen: str

    def __str__(self) -> str:
        return f"{self.key}: found {self.found}, frozen {self.frozen}"

    @property
    def shortened(self) -> Difference:
        """The same, with long values cut."""
        return Difference(self.key, _cut(self.found), _cut(self.frozen))


@dataclass(frozen=True)
class Nearest:
    """The frozen cell that a cell is compared with: the one with the fewest differing keys."""

    cell: FrozenCell
    differences: tuple[Difference, ...]
    # Empty exactly when the design is the frozen one.


def flat(design: Mapping[str, object]) -> dict[str, str]:
    """Every key of a design with its value as text, named as on the command line where it has such a name."""
    out: dict[str, str] = {}

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, Mapping) and value:
            for key, item in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            out[_NAMES.get(prefix, prefix)] = value if isinstance(value, str) else canonical(value)

    for key, value in design.items():
        walk({"fields": "", "source": "model"}.get(key, key), value)
    return out


_NAMES = {"model.preset": "quant.preset", "model.imatrix": "quant.imatrix"}
_NONE = "nothing"
# Keys of which a grid holds several values.
_CHOICES = ("quant.preset", "model.name", "fault.kind")


def compared(found: Mapping[str, str], frozen: Mapping[str, str]) -> tuple[Difference, ...]:
    """The keys whose values differ, in alphabetical order."""
    return tuple(
        Difference(key, found.get(key, _NONE), frozen.get(key, _NONE))
        for key in sorted(found.keys() | frozen.keys())
        if found.get(key, _NONE) != frozen.get(key, _NONE)
    )


def nearest(design: Mapping[str, object], cells: Iterable[FrozenCell]) -> Nearest:
    """Compare a design with the frozen cells (at least one); of several equally near the first counts."""
    mine = flat(design)
    found = [Nearest(cell, compared(mine, flat(cell.design))) for cell in cells]
    return min(found, key=lambda one: len(one.differences))


def in_words(difference: Difference, cells: Iterable[FrozenCell]) -> str:
    """A difference; a choice that no frozen cell has lies outside the grid, and is no change of one in it."""
    frozen = sorted({value for cell in cells if (value := flat(cell.design).get(difference.key)) is not None})
    if difference.key in _CHOICES and frozen and difference.found not in frozen:
        return f"{difference.key}: {difference.found} is outside the frozen grid ({', '.join(frozen)})"
    return str(difference)


def code_differences(found: Mapping[str, str], frozen: FrozenCode) -> tuple[Difference, ...]:
    """The files of the code that differ, by their digests."""
    return tuple(
        Difference(f"code {one.key}", _short(one.found), _short(one.frozen))
        for one in compared(found, frozen.files)
    )


def settings_differences(found: Mapping[str, str], frozen: AnalysisPlan) -> tuple[Difference, ...]:
    """Settings of the analysis that differ. The contrasts follow from the cells and are not compared."""
    return compared(found, _settings(frozen))


def file_difference(record: Record, model: str, preset: str, sha256: str) -> Difference | None:
    """Whether a model file is another one than the frozen; None when it is the same or was not known yet."""
    for file in record.files:
        if (file.model, file.preset) == (model, preset) and file.sha256 not in (None, sha256):
            return Difference("model file (SHA-256)", _short(sha256), _short(file.sha256 or ""))
    return None


def _settings(plan: AnalysisPlan) -> dict[str, str]:
    return {
        "report.vary": plan.vary,
        "report.method": plan.method,
        "report.resamples": str(plan.resamples),
        "report.seed": str(plan.seed),
        "report.margin": f"{plan.equivalence_margin_points:g}",
        "report.family": canonical(list(plan.selectors)),
        "report.groups": plan.groups,
        "scorer.policy": plan.policies[0],
        "scorer.ep_min_calls": str(plan.ep_min_calls),
    }


def _cut(value: str) -> str:
    return value if len(value) <= 80 else value[:79] + "…"


def _short(value: str) -> str:
    return value if len(value) <= 24 else value[:12] + "…"


@dataclass(frozen=True)
class Deviation:
    """Why something under a registration is not what was frozen, and in which keys."""

    reason: str
    differences: tuple[Difference, ...]


def deviation_text(deviation: Deviation) -> str:
    """Canonical JSON, as a run carries it."""
    keys = [[one.key, one.found, one.frozen] for one in deviation.differences]
    return canonical({"reason": deviation.reason, "differences": keys})


def read_deviation(text: str) -> Deviation | None:
    """A deviation back from a run; None for "". A text that is none of ours is a reason without keys."""
    if not text:
        return None
    try:
        raw = json.loads(text)
        keys = tuple(
            Difference(str(key), str(found), str(frozen)) for key, found, frozen in raw["differences"]
        )
        return Deviation(str(raw["reason"]), keys)
    except (ValueError, TypeError, KeyError):
        return Deviation(text, ())
