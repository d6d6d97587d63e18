"""The declared family of contrasts: which tests are adjusted together, and intervals that hold together.

A family is declared before results are seen, in the experiment file, as a list of selectors. A selector
names fields of a contrast and the values that it takes in; a contrast belongs to the family when one
selector takes it in. Without a declaration all contrasts of one target and policy count as one family, which
is said wherever adjusted values are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qfr import scope
from qfr.analysis.contrast.decomposition import POINTS
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import Pair, cells_of, pairs
from qfr.analysis.results import Contrast
from qfr.analysis.streams import stream
from qfr.analysis.targets import Target, TaskTable, samples
from qfr.errors import TableError, did_you_mean
from qfr.stats.multiplicity import benjamini_hochberg, holm, simultaneous

#: Fields that a selector may name.
FIELDS = ("model", "quant", "prompt", "fault", "executor", "suite", "policy", "a", "b", "target")
_TARGETS = (Target.matched, Target.full)
#: Task weights drawn for one simultaneous band; a large suite gets fewer resamples.
_MOST_WEIGHTS = 4_000_000
_FEWEST_RESAMPLES = 1_000


@dataclass(frozen=True)
class Selector:
    """Values that a contrast must have, field by field; upper and lower case do not matter."""

    wanted: tuple[tuple[str, frozenset[str]], ...]

    def takes(self, contrast: Contrast) -> bool:
        """Whether the contrast has one of the wanted values in every named field."""
        return all(str(getattr(contrast, name) or "").lower() in values for name, values in self.wanted)

    @property
    def text(self) -> str:
        """In words: ``a=q8_0; target=full``."""
        return "; ".join(f"{name}={','.join(sorted(values))}" for name, values in self.wanted)


@dataclass(frozen=True)
class AdjustedContrast:
    """A contrast of the family with its adjusted p values; None where there is no test."""

    place: int
    # In the sequence of contrasts.
    sign_holm: float | None
    sign_bh: float | None
    signflip_holm: float | None
    signflip_bh: float | None


@dataclass(frozen=True)
class Family:
    """Contrasts whose tests are adjusted together."""

    declared: bool
    members: tuple[AdjustedContrast, ...]
    unmatched: tuple[str, ...] = ()
    # Selectors that take in no contrast: misspelt, or their cells were not run.


@dataclass(frozen=True)
class Together:
    """Intervals over the prompts that hold together, in points."""

    cells: tuple[tuple[str, ...], ...]
    # cell_ids behind each prompt's pair.
    model: str
    fault: str
    policy: str
    a: str
    b: str
    target: str
    context: str
    critical: float | None
    # Quantile of the largest deviation in standard errors, before the correction for few tasks.
    resamples: int
    prompts: tuple[str, ...]
    points: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    reasons: tuple[str | None, ...]
    # Per prompt, why its interval is none, degenerate or not to be relied on; None = reliable.


def selector(given: Mapping[str, str]) -> Selector:
    """Read a selector, such as ``{"a": "q8_0", "b": "q4_k_m", "target": "full", "prompt": "P0,P4"}``.

    Raises
    ------
    TableError
        If a field is unknown or has no value.
    """
    wanted = []
    for name, values in given.items():
        if name not in FIELDS:
            raise TableError(
                f"a family cannot select by {name!r}" + did_you_mean(name, FIELDS),
                where="report.family",
                hint="fields are " + ", ".join(FIELDS),
            )
        kept = frozenset(value.strip().lower() for value in values.split(",") if value.strip())
        if not kept:
            raise TableError(f"{name} has no value", where="report.family")
        wanted.append((name, kept))
    return Selector(tuple(wanted))


def families(contrasts: Sequence[Contrast], selectors: Sequence[Selector]) -> tuple[Family, ...]:
    """Adjust the tests of the declared family; without one, of each target and policy."""
    whole = [at for at, one in enumerate(contrasts) if one.family is None]
    if not selectors:
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for at in whole:
            groups[contrasts[at].target, contrasts[at].policy].append(at)
        return tuple(_adjusted(contrasts, places, ()) for places in groups.values())
    places = [at for at in whole if any(one.takes(contrasts[at]) for one in selectors)]
    unmatched = [one.text for one in selectors if not any(one.takes(contrasts[at]) for at in whole)]
    return (replace(_adjusted(contrasts, places, unmatched), declared=True),)


def together(tables: Sequence[TaskTable], resamples: int, seed: int) -> tuple[Together, ...]:
    """Give each pair of presets intervals over the prompts that hold together (max-T on joint task weights).

    Parameters
    ----------
    resamples : int
        At most.
    """
    along = [pair for pair in pairs(tables, Axis.quant) if pair.a.key.fault != "none"]
    free = frozenset({"prompt"})
    return tuple(
        _together(list(one.members), target, (resamples, seed))
        for one in scope.group(
            along,
            free,
            of=lambda pair: pair.a.scope,
            also=lambda pair: (pair.a.policy, pair.b.scope.fixed(free), pair.a.tasks),
        )
        if len(one.members) > 1
        for target in _TARGETS
    )


def _together(members: list[Pair], target: Target, way: tuple[int, int]) -> Together:
    first = members[0]
    n = first.a.n_tasks
    sides = np.full((2, len(members), n), np.nan)
    for at, pair in enumerate(members):
        drawn = samples(target, pair.a, pair.b, pair.a.within(None))
        sides[0, at, drawn.enters_a] = drawn.rates_a.values
        sides[1, at, drawn.enters_b] = drawn.rates_b.values
    resamples = min(way[0], max(_FEWEST_RESAMPLES, _MOST_WEIGHTS // max(1, n)))
    key = first.a.key
    names = [key.model, key.fault, key.executor, first.label_a, first.label_b, target.value, first.a.policy]
    rng = stream(way[1], ["together", *names])
    band = simultaneous(sides[0], sides[1], rng=rng, resamples=resamples)
    found = band.intervals

    def points(value: float | None) -> float | None:
        return None if value is None else POINTS * value

    return Together(
        cells=tuple(cells_of((pair.a, pair.b)) for pair in members),
        model=key.model,
        fault=key.fault,
        policy=first.a.policy,
        a=first.label_a,
        b=first.label_b,
        target=target.value,
        context=first.context,
        critical=band.critical,
        resamples=resamples,
        prompts=tuple(pair.a.key.prompt for pair in members),
        points=tuple(points(one.value) for one in found),
        lows=tuple(points(one.low) for one in found),
        highs=tuple(points(one.high) for one in found),
        reasons=tuple(one.reason for one in found),
    )


def _adjusted(contrasts: Sequence[Contrast], places: Sequence[int], unmatched: Sequence[str]) -> Family:
    sign = [contrasts[at].sign_p for at in places]
    flip = [contrasts[at].signflip_p for at in places]
    columns = (holm(sign), benjamini_hochberg(sign), holm(flip), benjamini_hochberg(flip))
    rows = zip(places, *(one.values for one in columns), strict=True)
    return Family(False, tuple(AdjustedContrast(*row) for row in rows), tuple(unmatched))
