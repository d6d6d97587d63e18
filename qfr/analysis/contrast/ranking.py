"""Which preset to deploy: every preset of a model under every prompt, by the rule of `qfr pick`.

Under each prompt the presets are tested from the largest file to the smallest against the one of the highest
precision, until one is not shown to be not worse by more than the margin. A preset is named only if it is
shown under every prompt that was run. Averages over prompts rank the presets, over the prompts that all of
them finished; no verdict rests on an average, since what prompts pull apart cancels in it (Hu 2026, table 2:
Qwen's prompts are -33, +2, +8, +28 and -18 points apart).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qfr.analysis.contrast.groups import mean_of
from qfr.analysis.decisions.pick import Preset, Step, pick
from qfr.analysis.decisions.pick import Standing as Place
from qfr.analysis.decisions.verdict import Outcome, Rule
from qfr.analysis.levels import Axis, bits, order_key
from qfr.analysis.pairing import cells_of, pairs, tables_in_groups, together, variant_names
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, TaskTable, full_rates
from qfr.scope import Scope
from qfr.stats import bootstrap
from qfr.stats.bayesian import BayesianInterval, interval
from qfr.stats.intervals import Estimate, Options
from qfr.stats.lattice import Lattice


@dataclass(frozen=True)
class UnderPrompt:
    """One preset under one prompt."""

    prompt: str
    rate: float
    # Full pipeline, a fraction.
    step: Step | None
    # Where it stands in the sequence of this prompt; None without a reference there.

    @property
    def shown(self) -> bool:
        """Whether it is the reference, or shown not to be worse than it by more than the margin."""
        return self.step is not None and self.step.standing in (Place.SHOWN, Place.REFERENCE)

    @property
    def label(self) -> str:
        """The verdict in a few words."""
        if self.step is None:
            return "the reference was not run"
        if self.step.decision is None:
            return "the yardstick" if self.step.standing is Place.REFERENCE else self.step.reason
        return self.step.decision.label


@dataclass(frozen=True)
class Ranked:
    """One preset of a ranking."""

    name: str
    # Of the preset, with what tells two of its files apart.
    quant: str
    bytes: int
    # Of its file; 0 where unknown.
    certified: int
    tasks: int
    # Summed over the shared prompts.
    full: Estimate
    bayesian: BayesianInterval
    # Each task's success averaged over the shared prompts, then over tasks: the paper's interval and the one
    # that words rest on. Fractions.
    prompts: tuple[UnderPrompt, ...]
    # Every prompt that it finished.
    cells: tuple[str, ...]
    # cell_ids behind all of it.

    def under(self, prompt: str) -> UnderPrompt | None:
        """What it reached under a prompt; None where it was not finished."""
        return next((one for one in self.prompts if one.prompt == prompt), None)

    @property
    def lowest(self) -> float:
        """Lowest rate over its prompts."""
        return min(one.rate for one in self.prompts)

    @property
    def highest(self) -> float:
        """Highest rate over its prompts."""
        return max(one.rate for one in self.prompts)


@dataclass(frozen=True)
class PromptEffect:
    """The largest difference that the prompt alone makes, within one preset; fractions."""

    preset: str
    best: UnderPrompt
    worst: UnderPrompt


@dataclass(frozen=True)
class Ranking:
    """The presets of one model under one setting, full pipeline."""

    setting: Scope
    label: str
    # What tells the setting from others of the same names.
    key: CellKey
    # Preset and prompt are empty.
    policy: str
    margin: float
    # In points.
    reference: str | None
    # The preset of the highest precision, fixed before any result; None where a name says no precision.
    prompts: tuple[str, ...]
    # Every prompt that a preset finished.
    shared: tuple[str, ...]
    # Those that every preset finished.
    presets: tuple[Ranked, ...]
    # Best average first.
    missing: tuple[str, ...]
    # `Q4_K_M under P4`, for each cell of the grid of presets and prompts that is not finished.
    effect: PromptEffect | None

    @property
    def everywhere(self) -> Ranked | None:
        """The smallest preset below the reference that is shown under every prompt; None where none is."""
        found = [
            one
            for one in self.presets
            if one.name != self.reference
            and all((there := one.under(prompt)) is not None and there.shown for prompt in self.prompts)
        ]
        return min(found, key=lambda one: (one.bytes or 0, bits(one.quant) or 0.0, one.name), default=None)

    def smallest(self, prompt: str) -> Ranked | None:
        """The smallest preset below the reference that is shown under one prompt."""
        found = [
            one
            for one in self.presets
            if one.name != self.reference and (there := one.under(prompt)) is not None and there.shown
        ]
        return min(found, key=lambda one: (one.bytes or 0, bits(one.quant) or 0.0, one.name), default=None)

    @property
    def worse_everywhere(self) -> tuple[str, ...]:
        """Presets that are shown to be worse by more than the margin under every prompt."""
        return tuple(
            one.name
            for one in self.presets
            if one.name != self.reference
            and one.prompts
            and all(
                there.step is not None
                and there.step.decision is not None
                and there.step.decision.outcome is Outcome.WORSE
                for there in one.prompts
            )
        )


def rank(
    tables: Iterable[TaskTable],
    sizes: Mapping[str, int],
    options: Options = bootstrap.DEFAULT,
    seed: int = 0,
    margin: float = 5.0,
) -> tuple[Ranking, ...]:
    """Rank the presets of every model and setting.

    Parameters
    ----------
    sizes : mapping of str to int
        Bytes of each GGUF, by its SHA-256.
    seed : int
        Monte Carlo only.
    margin : float
        Of "not worse", in points.
    """
    faulted = [table for table in tables if table.key.fault != "none"]
    settings = tables_in_groups(faulted, ("quant", "prompt"))
    orderly = [table for table in faulted if bits(table.key.quant) is not None]
    way = _Way(
        sizes=sizes,
        options=options,
        seed=seed,
        margin=margin,
        names=dict(zip(map(id, faulted), variant_names(faulted, "quant"), strict=True)),
        counts=Counter(together(pair.a, pair.b) for pair in pairs(orderly, Axis.quant)),
    )
    return tuple(
        _ranking(setting.members, setting.fixed, setting.label, way)
        for setting in settings
        if len({table.tasks for table in setting.members}) == 1
    )


@dataclass(frozen=True)
class _Way:
    """How everything is computed."""

    sizes: Mapping[str, int]
    options: Options
    seed: int
    margin: float
    names: Mapping[int, str]
    # Of each table's preset, by `id`.
    counts: Counter[Hashable]
    # Comparisons of two presets that are one question under several prompts.


def _ranking(members: Sequence[TaskTable], setting: Scope, label: str, way: _Way) -> Ranking:
    quants = [way.names[id(one)] for one in members]
    prompts = variant_names(members, "prompt")
    cells = {(quant, prompt): one for quant, prompt, one in zip(quants, prompts, members, strict=True)}
    bare = {name: one.key.quant for name, one in zip(quants, members, strict=True)}
    known = all(bits(quant) is not None for quant in bare.values())
    ordered = sorted(bare, key=lambda name: (order_key(Axis.quant, bare[name]), name)) if known else []
    reference = ordered[0] if ordered else None
    every = tuple(sorted(dict.fromkeys(prompts), key=lambda name: (order_key(Axis.prompt, name), name)))
    shared = tuple(prompt for prompt in every if all((quant, prompt) in cells for quant in bare))
    steps = _steps(cells, reference, every, way)
    presets = [
        _ranked(name, {p: cells[name, p] for p in every if (name, p) in cells}, shared, steps, way)
        for name in bare
    ]
    presets.sort(key=lambda one: (-(one.full.value or 0.0), one.name))
    return Ranking(
        setting=setting,
        label=label,
        key=replace(members[0].key, quant="", prompt=""),
        policy=members[0].policy,
        margin=way.margin,
        reference=reference,
        prompts=every,
        shared=shared,
        presets=tuple(presets),
        missing=tuple(f"{name} under {p}" for name in bare for p in every if (name, p) not in cells),
        effect=_effect(presets),
    )


def _steps(
    cells: Mapping[tuple[str, str], TaskTable], reference: str | None, prompts: Sequence[str], way: _Way
) -> dict[tuple[str, str], Step]:
    """Each preset's step in the fixed sequence of each prompt."""
    rule = Rule(margin=way.margin / 100)
    found: dict[tuple[str, str], Step] = {}
    for prompt in prompts:
        here = {name: one for (name, under), one in cells.items() if under == prompt}
        base = here.get(reference or "")
        presets = {
            name: Preset(
                *(name, _bytes(one, way), None, None, None, one),
                comparisons=1 if base is None else max(1, way.counts[together(base, one)]),
            )
            for name, one in here.items()
        }
        if reference in presets:
            others = [one for name, one in presets.items() if name != reference]
            picked = pick(presets[reference], others, rule, float("inf"), tested=True)
            found |= {(step.preset.name, prompt): step for step in picked.steps}
    return found


def _ranked(
    name: str,
    tables: Mapping[str, TaskTable],
    shared: Sequence[str],
    steps: Mapping[tuple[str, str], Step],
    way: _Way,
) -> Ranked:
    first = next(iter(tables.values()))
    used = [tables[prompt] for prompt in shared]
    average = mean_of([_rates(one) for one in used]) if used else Lattice(np.zeros(0, dtype=np.int64), 1)
    rng = stream(way.seed, ["overall", replace(first.key, prompt="").name, first.policy])
    return Ranked(
        name=name,
        quant=first.key.quant,
        bytes=_bytes(first, way),
        certified=sum(one.n_certified for one in used),
        tasks=sum(one.n_tasks for one in used),
        full=bootstrap.mean(average, options=way.options, rng=rng),
        bayesian=interval(average, 0.0, 1.0, way.options.level),
        prompts=tuple(
            UnderPrompt(prompt, _rates(one).mean or 0.0, steps.get((name, prompt)))
            for prompt, one in tables.items()
        ),
        cells=cells_of(tables.values()),
    )


def _bytes(table: TaskTable, way: _Way) -> int:
    return way.sizes.get(table.scope.get("file.sha256", ""), 0)


def _effect(presets: Sequence[Ranked]) -> PromptEffect | None:
    several = [one for one in presets if len(one.prompts) > 1]
    if not several:
        return None
    widest = max(several, key=lambda one: one.highest - one.lowest)
    best = max(widest.prompts, key=lambda one: one.rate)
    return PromptEffect(widest.name, best, min(widest.prompts, key=lambda one: one.rate))


def _rates(table: TaskTable) -> Lattice:
    return full_rates(table, np.ones(table.n_tasks, dtype=np.bool_))
