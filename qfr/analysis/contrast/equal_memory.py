"""Model against model at equal memory: which model to put into the room that one of its files takes.

Presets of two models are paired by the size of their files, not by their names: each preset with the other
model's preset whose file is nearest, if neither is larger by more than a tolerance. What is contrasted then
are two files of about one size, with everything else the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from qfr.analysis.contrast.contrasts import Options, contrast_pair
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import Pair
from qfr.analysis.results import Contrast, identified
from qfr.analysis.targets import TaskTable
from qfr.errors import TableError
from qfr.scope import differ

#: What `Contrast.vary` says of such a contrast; model and preset are both None.
VARY = "memory"
#: The larger file may be so much larger than the smaller one, as a fraction.
TOLERANCE = 0.10

Size = tuple[str, str, str]
# Model, preset and digest of the file, the latter empty where files have none.


@dataclass(frozen=True)
class _Agent:
    """One file of one model."""

    model: str
    quant: str
    model_file: str
    bytes: float

    @property
    def name(self) -> str:
        return f"{self.model} {self.quant}"


def equal_memory(
    tables: Iterable[TaskTable],
    sizes: Mapping[Size, float],
    options: Options | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[Contrast, ...]:
    """Contrast models at equal memory, for every target and family.

    Parameters
    ----------
    tables : iterable of TaskTable
        Finished fault cells, any policies.
    sizes : mapping
        Bytes of each file, by model, preset and digest. Files without a size are left out.
    options : Options, optional
        How to contrast; its `vary` and `order` do not matter here.
    tolerance : float
        Largest excess of the larger file over the smaller one, as a fraction.

    Returns
    -------
    tuple of Contrast
        `a` and `b` name model and preset; A is the model first by name; a remark says both sizes.

    Raises
    ------
    TableError
        The tolerance is negative, or a size is not positive.
    """
    if tolerance < 0:
        raise TableError(f"a tolerance of {tolerance} is negative")
    for (model, quant, _), size in sizes.items():
        if not size > 0:
            raise TableError(f"{model} {quant} has a size of {size} bytes", hint="sizes are positive")
    cells: dict[_Agent, list[TaskTable]] = defaultdict(list)
    for table in tables:
        key, file = table.key, table.scope.get("file.sha256", "")
        known = sizes.get((key.model, key.quant, file))
        if known is not None:
            cells[_Agent(key.model, key.quant, file, known)].append(table)
    chosen = replace(options or Options(), vary=Axis.model, order=())
    return tuple(
        identified(replace(contrast, level=None, vary=VARY))
        for first, second in matches(cells, tolerance)
        for pair in _pairs((first, cells[first]), (second, cells[second]))
        for contrast in contrast_pair(pair, chosen, _members(pair, cells[first], cells[second]))
    )


def matches(agents: Iterable[_Agent], tolerance: float) -> tuple[tuple[_Agent, _Agent], ...]:
    """Pair each file with the nearest one of every other model, within the tolerance; largest first."""
    models: dict[str, list[_Agent]] = defaultdict(list)
    for one in agents:
        models[one.model].append(one)
    found: dict[tuple[_Agent, _Agent], None] = {}
    for left, right in combinations(sorted(models), 2):
        near = [(one, _nearest(one, models[right])) for one in models[left]]
        near += [(_nearest(one, models[left]), one) for one in models[right]]
        found |= dict.fromkeys(pair for pair in near if _excess(*pair) <= tolerance)
    return tuple(
        sorted(found, key=lambda pair: (pair[0].model, pair[1].model, -pair[0].bytes, -pair[1].bytes))
    )


def _nearest(one: _Agent, others: Sequence[_Agent]) -> _Agent:
    return min(
        others,
        key=lambda other: (_excess(one, other), other.quant != one.quant, other.quant, other.model_file),
    )


def _excess(one: _Agent, other: _Agent) -> float:
    return max(one.bytes, other.bytes) / min(one.bytes, other.bytes) - 1


def _pairs(first: tuple[_Agent, list[TaskTable]], second: tuple[_Agent, list[TaskTable]]) -> Iterable[Pair]:
    sizes = tuple(_megabytes(agent.bytes) for agent, _ in (first, second))
    remark = f"files of {sizes[0]} and {sizes[1]}"
    for a in first[1]:
        for b in second[1]:
            same = a.policy == b.policy and a.tasks == b.tasks
            if same and not differ(a.scope, b.scope, ("model", "quant")):
                yield Pair(a, b, first[0].name, second[0].name, (remark,), a.key.context or b.key.context)


def _members(pair: Pair, first: Iterable[TaskTable], second: Iterable[TaskTable]) -> tuple[TaskTable, ...]:
    """The cells of S* of the pair: both files under every prompt."""
    return tuple(
        table
        for table in (*first, *second)
        if table.policy == pair.a.policy
        and table.tasks == pair.a.tasks
        and not differ(table.scope, pair.a.scope, ("model", "quant", "prompt"))
    )


def _megabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
