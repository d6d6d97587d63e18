"""How contrasts are arranged for a reader: groups, rows along an axis, pairs of levels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from qfr.analysis.levels import NOT_STATED, Axis, order_key
from qfr.analysis.results import Contrast
from qfr.analysis.targets import CellKey, Target
from qfr.analysis.trials import FOREIGN
from qfr.report.tables.formats import ends

if TYPE_CHECKING:
    from qfr.report.content.build import Report

#: The three panels of Hu 2026, figure 1.
PANELS = (Target.own, Target.matched, Target.full)
TITLES = {
    Target.clean: "Clean pass",
    Target.own: "Own clean sets",
    Target.matched: "Matched tasks",
    Target.full: "Full pipeline",
    Target.s_star: "S*: certified under every prompt",
    Target.ungated: "Ungated: every task",
}
#: Pairs of levels in one figure; more are in the table only.
MOST_PAIRS = 5

Pair = tuple[str, str]


@dataclass(frozen=True)
class Group:
    """Contrasts that share every axis but the varied one and the one along which a reader goes."""

    title: str
    reference_agent: bool
    policy: str
    vary: str
    along: Axis
    # Axis of the rows and of the figure's x: the prompt, or the preset where prompts are contrasted.
    rows: tuple[str, ...]
    pairs: tuple[Pair, ...]
    contrasts: tuple[Contrast, ...]
    # All targets and families.

    def find(self, row: str, pair: Pair, target: Target | str, family: str | None = None) -> Contrast | None:
        """Return one contrast, None where there is none."""
        return self._index.get((row, *pair, str(target), family))

    @cached_property
    def _index(self) -> dict[tuple[str, str, str, str, str | None], Contrast]:
        return {(place(c, self.along), c.a, c.b, c.target, c.family): c for c in self.contrasts}

    @property
    def families(self) -> tuple[str, ...]:
        """Task families, in order."""
        return tuple(dict.fromkeys(c.family for c in self.contrasts if c.family is not None))

    @property
    def panels(self) -> tuple[Target, ...]:
        """Targets that are shown: those of the figure, or the clean pass where no fault was injected."""
        return PANELS if any(c.target in PANELS for c in self.contrasts) else (Target.clean,)

    @property
    def logs(self) -> bool:
        """Whether these are imported logs: nothing was injected, and both policies say the same."""
        return all(c.executor == FOREIGN for c in self.contrasts)

    @property
    def scoring(self) -> str:
        """The scoring policy for a title, where it makes a difference."""
        return "" if self.logs else f", {self.policy} scoring"

    def titled(self, target: Target) -> str:
        """A target's title."""
        return "Success" if self.logs and target is Target.clean else TITLES[target]

    @property
    def drawn_pairs(self) -> tuple[Pair, ...]:
        """Pairs that a figure shows: all, or the highest level against each other one."""
        if len(self.pairs) <= 3:
            return self.pairs
        return tuple(pair for pair in self.pairs if pair[0] == self.pairs[0][0])[:MOST_PAIRS]


def groups(report: Report, policy: str) -> tuple[Group, ...]:
    """Arrange a report's contrasts under one policy."""
    along = Axis.quant if report.options.vary == Axis.prompt else Axis.prompt
    return _arranged(report, policy, along, report.contrasts)


def memory_groups(report: Report, policy: str) -> tuple[Group, ...]:
    """Arrange model against model at equal memory under one policy."""
    found = _arranged(report, policy, Axis.prompt, report.at_equal_memory)
    return tuple(replace(group, title=_models(group, report.options.title)) for group in found)


def _models(group: Group, usual: str) -> str:
    """The models of a group at equal memory, and what tells it from another group."""
    names = dict.fromkeys(label.rpartition(" ")[0] for pair in group.pairs for label in pair)
    rest = () if group.title == usual else (group.title,)
    return " · ".join((" / ".join(names), *rest))


def _arranged(report: Report, policy: str, along: Axis, contrasts: Iterable[Contrast]) -> tuple[Group, ...]:
    found: dict[tuple[str, ...], list[Contrast]] = defaultdict(list)
    for contrast in contrasts:
        if contrast.policy == policy:
            found[_rest(contrast, along)].append(contrast)
    several = _telling(found)
    agents = set(report.reference_agents)
    return tuple(
        Group(
            title=" · ".join(part for part, told in zip(key, several, strict=True) if part and told)
            or report.options.title,
            reference_agent=bool(agents & {key[0]}) or (not key[0] and bool(agents)),
            policy=policy,
            vary=members[0].vary,
            along=along,
            rows=_sorted_rows(members, along),
            pairs=tuple(dict.fromkeys((c.a, c.b) for c in members)),
            contrasts=tuple(members),
        )
        for key, members in found.items()
    )


def title_of(key: CellKey, label: str = "") -> str:
    """Name a model and its setting; of the label of its group, what the names do not say."""
    if key.executor == FOREIGN:
        return " · ".join(part for part in (key.model, key.suite, key.context) if part)
    gate = "" if key.gate == "certified" else f"gate {key.gate}"
    trial = f"trial {key.trial}" if key.trial else ""
    more = [part for part in label.split(", ") if part and part not in key.context.split(", ")]
    parts = (key.model, key.fault, key.executor, key.suite, gate, trial, key.context, ", ".join(more))
    return " · ".join(part for part in parts if part)


def shortened(titles: Iterable[str]) -> dict[str, str]:
    """Return titles such as ``m · et · tolerant`` without the parts that are the same in all of them.

    The first part, the model, always stays.
    """
    parts = {title: title.split(" · ") for title in titles}
    if len({len(one) for one in parts.values()}) > 1:
        return {title: title for title in parts}
    columns = list(zip(*parts.values(), strict=True))
    kept = [at for at, column in enumerate(columns) if at == 0 or len(set(column)) > 1]
    return {title: " · ".join(one[at] for at in kept) for title, one in parts.items()}


def place(contrast: Contrast, along: Axis) -> str:
    """Return the contrast's place along an axis."""
    return str(getattr(contrast, along.value))


def _rest(contrast: Contrast, along: Axis) -> tuple[str, ...]:
    axes = (Axis.model, Axis.quant, Axis.fault, Axis.executor, Axis.prompt)
    names = tuple("" if axis is along else str(getattr(contrast, axis.value) or "") for axis in axes)
    gate = "" if contrast.gate == "certified" else f"gate {contrast.gate}"
    trial = f"trial {contrast.trial}" if contrast.trial else ""
    return (*names, contrast.suite, gate, trial, contrast.scope)


def _telling(keys: Iterable[tuple[str, ...]]) -> tuple[bool, ...]:
    """Which parts of the keys belong in a title: the model, and whatever differs between groups."""
    columns = list(zip(*keys, strict=True))
    return tuple(at == 0 or len(set(column)) > 1 for at, column in enumerate(columns))


def _sorted_rows(members: Iterable[Contrast], along: Axis) -> tuple[str, ...]:
    names = dict.fromkeys(place(contrast, along) for contrast in members)
    return tuple(sorted(names, key=lambda name: order_key(along, name)))


def cell_name(key: CellKey) -> str:
    """Name a cell; an imported log by model, preset and suite, since it has neither prompt nor fault."""
    if key.executor != FOREIGN:
        return key.name
    names = (key.model, "" if key.quant == NOT_STATED else key.quant, key.suite, key.context)
    return " ".join(name for name in names if name)


def interval(contrast: Contrast) -> str:
    """Return ``[12.5, 44.2]``, empty where there is none."""
    return ends(contrast.low, contrast.high)


def careful(contrast: Contrast) -> str:
    """Return the interval that words rest on, as ``[12.5, 44.2]``; empty where there is none."""
    return ends(contrast.bayes_low, contrast.bayes_high)
