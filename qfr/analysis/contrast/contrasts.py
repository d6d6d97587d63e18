"""Contrasts: A minus B on one axis with the others fixed, for every target, with interval and exact tests.

Each contrast has the paper's percentile interval (paired, or two-sample for *own*). Words rest on `bayesian`.
`stratified` resamples within families, for targets that every task of the suite enters: there the counts per
family are fixed by the design.

Example
-------
Read a table of published per-task successes and contrast its presets::

    from qfr.analysis.contrast.contrasts import Options, contrast_table
    from qfr.analysis.levels import Axis
    from qfr.analysis.tablefile import read_table
    from qfr.stats.intervals import Method

    table = read_table("published.json")
    for contrast in contrast_table(table.tables, Options(vary=Axis.quant)):
        where = f"{contrast.model} {contrast.prompt} {contrast.a} - {contrast.b} {contrast.target}"
        if contrast.points is None:
            print(where, "not estimable:", contrast.reason)
        elif contrast.low is None:
            print(where, f"{contrast.points:+.1f} points, no interval:", contrast.reason)
        else:
            interval = f"[{contrast.low:+.1f}, {contrast.high:+.1f}]"
            doubt = "" if contrast.reliable else f" ({contrast.reason})"
            print(where, f"{contrast.points:+.1f} points {interval}, n = {contrast.n_tasks}{doubt}")

    # The paper's own way: seeded Monte Carlo instead of the exact bootstrap distribution.
    paper = Options(vary=Axis.prompt, method=Method.MONTECARLO, resamples=20_000, seed=1)
    by_prompt = contrast_table(table.tables, paper)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.random import Generator

from qfr.analysis.contrast.decomposition import (
    POINTS,
    decompose,
    undelivered_bounds,
    ungated_bounds,
)
from qfr.analysis.decisions.verdict import TARGETS, Rule, decide
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import Pair, across_builds, cells_of, owned, pairs, tables_in_groups, together
from qfr.analysis.results import Contrast, identified
from qfr.analysis.streams import stream
from qfr.analysis.targets import Samples, Target, TaskTable, named, samples, shared_tasks
from qfr.stats import bootstrap, equivalence, intervals, lattice, power
from qfr.stats.bayesian import BayesianInterval, interval, joint
from qfr.stats.exact import PairedTest, sign_flip_test, sign_test
from qfr.stats.intervals import Estimate, Method
from qfr.stats.lattice import BoolArray, FloatArray, Lattice


@dataclass(frozen=True)
class Options:
    """How to contrast."""

    vary: str = Axis.quant
    # An axis, or a single key such as engine.type_k (see `qfr.scope`).
    method: Method = Method.EXACT
    resamples: int = 20_000
    # Monte Carlo only (Hu 2026: 20,000).
    seed: int = 0
    # Monte Carlo only; every contrast draws from a stream of its own.
    level: float = 0.95
    families: bool = True
    # Also within each task family.
    order: tuple[str, ...] = ()
    # Explicit order of the varied levels, highest first.
    margin: float = POINTS * equivalence.DEFAULT_MARGIN
    # Of equivalence, in points (5 unless told otherwise; Jang 2026 uses 7.5).
    across_builds: bool = False
    # Also contrast cells of different llama.cpp builds; they are kept apart otherwise.

    @property
    def bootstrap(self) -> intervals.Options:
        """The part that the bootstrap needs."""
        return intervals.Options(self.level, self.method, self.resamples)


def contrast_table(tables: Iterable[TaskTable], options: Options | None = None) -> tuple[Contrast, ...]:
    """Contrast every pair of cells that differs in the varied axis alone, for every target and family.

    Parameters
    ----------
    tables : iterable of TaskTable
        Finished fault cells, any policies; cells that must not be set against each other are kept apart (see
        `qfr.analysis.pairing`).

    Returns
    -------
    tuple of Contrast
        Ordered by pair, then target, then family (all tasks first). A quantity that cannot be estimated is
        None with the reason.

    Raises
    ------
    TableError
        If a cell is listed twice or its level cannot be ordered.
    """
    given, chosen = tuple(tables), options or Options()
    more = across_builds(given, chosen.vary) if chosen.across_builds else ()
    every = (*pairs(given, chosen.vary, chosen.order), *more)
    # One of them suffices to say "worse": they share the chance of saying it wrongly, as in the gate.
    counts = Counter(together(pair.a, pair.b) for pair in every)
    return tuple(
        contrast
        for pair in every
        for contrast in contrast_pair(
            pair,
            chosen,
            s_star(pair, given, chosen.vary),
            counts[together(pair.a, pair.b)],
        )
    )


def s_star(pair: Pair, tables: Iterable[TaskTable], vary: str) -> tuple[TaskTable, ...]:
    """Return the cells of S*(A, P): both levels of the pair under every prompt that was run.

    Their certified tasks are S*. When the prompt varies, it is one level under every prompt (Hu 2026: nine
    tasks pass every 3-bit prompt). Nothing screens the tasks of an imported log: no cell.
    """
    if pair.a.repeated:
        return ()
    ends = {pair.a.scope, pair.b.scope}
    levels = {owned(one, vary) for one in (pair.a, pair.b)}
    members = [
        table
        for one in tables_in_groups(tables, (vary, "prompt"))
        if ends & {table.scope for table in one.members} and one.members[0].policy == pair.a.policy
        for table in one.members
        if vary == "prompt" or owned(table, vary) in levels
    ]
    return tuple(table for table in members if table.tasks == pair.a.tasks)


def contrast_pair(
    pair: Pair, options: Options, members: tuple[TaskTable, ...], comparisons: int = 1
) -> tuple[Contrast, ...]:
    """Contrast one pair for every target and family.

    Parameters
    ----------
    members : tuple of TaskTable
        The cells whose certified tasks are S*.
    comparisons : int
        Of these two levels, under how many prompts: they share the chance of a wrong "worse".
    """
    none = np.zeros(pair.a.n_tasks, dtype=np.bool_)
    shared = shared_tasks(members) if members else none
    targets = [target for target in Target if target is not Target.ungated or pair.a.key.gate == "none"]
    if pair.a.key.fault == "none":
        targets = [Target.clean]
    families: list[str | None] = [None]
    if options.families and len(names := pair.a.family_names()) > 1:
        families += names
    masks = {family: pair.a.within(family) for family in families}
    own, entering = cells_of((pair.a, pair.b)), cells_of((pair.a, pair.b, *members))
    strata = [
        _Stratum(target, family, masks[family], shared, entering if target is Target.s_star else own)
        for target in targets
        for family in families
        if family is None or target is not Target.s_star
    ]
    rule = Rule(margin=options.margin / POINTS).shared(comparisons)
    return tuple(_contrast(pair, stratum, options, rule) for stratum in strata)


@dataclass(frozen=True)
class _Stratum:
    """What one contrast is computed on."""

    target: Target
    family: str | None
    within: BoolArray
    shared: BoolArray
    cells: tuple[str, ...]
    # cell_ids of everything that enters.


def _contrast(pair: Pair, stratum: _Stratum, options: Options, rule: Rule) -> Contrast:
    a, b, within = pair.a, pair.b, stratum.within
    drawn = samples(stratum.target, a, b, within, stratum.shared)
    listed = stratum.family is None
    full = stratum.target is Target.full and bool(within.any())
    # Without a fault, success itself is what is compared.
    decides = listed and (stratum.target in (Target.matched, Target.full) or a.key.fault == "none")
    said = None
    if listed and stratum.target in TARGETS:
        said = decide(a, b, replace(rule, target=stratum.target), pair.remarks)
    split = asdict(decompose(a, b, within)) if full else {}
    lost = undelivered_bounds(stratum.target, a, b, within, stratum.shared)
    open_ = ungated_bounds(a, b, within) if full and a.key.gate != "none" else None
    found = replace(
        _tested(_estimated(pair, stratum, drawn, options), drawn, decides),
        decision=said,
        verdict=said.label if said else None,
        equivalence_low_points=_negated(said.equivalence_high) if said else None,
        equivalence_high_points=_negated(said.equivalence_low) if said else None,
        equivalent=said.equivalent if said else None,
        dropped_a=named(a.tasks, a.certified & within & ~drawn.enters_a) if listed else (),
        dropped_b=named(b.tasks, b.certified & within & ~drawn.enters_b) if listed else (),
        undelivered_a=a.undelivered_tasks if listed else (),
        undelivered_b=b.undelivered_tasks if listed else (),
        undelivered_low_points=lost.low if lost else None,
        undelivered_high_points=lost.high if lost else None,
        ungated_low_points=open_.low if open_ else None,
        ungated_high_points=open_.high if open_ else None,
        **{f"{part}_points": points for part, points in split.items()},
    )
    return identified(found)


def _estimated(pair: Pair, stratum: _Stratum, drawn: Samples, options: Options) -> Contrast:
    """The contrast with its interval; tests, lists of tasks and splits are still missing."""
    a, b, within = pair.a, pair.b, stratum.within
    axes = {axis: None if axis == options.vary else str(getattr(a.key, axis.value)) for axis in Axis}
    estimate = _estimate(drawn, options, _stream(pair, stratum, options))
    careful = bayesian(drawn, _stream(pair, stratum, options), options.level)
    fixed = None
    if stratum.family is None and all(a.families):
        fixed = stratified(drawn, a.families, options.bootstrap, _stream(pair, stratum, options, "strata"))
    return Contrast(
        id="",
        model=axes[Axis.model],
        level=axes[Axis.quant],
        prompt=axes[Axis.prompt],
        fault=axes[Axis.fault],
        executor=axes[Axis.executor],
        suite=a.key.suite,
        gate=a.key.gate,
        trial=a.key.trial,
        scope=pair.context,
        policy=a.policy,
        vary=str(options.vary),
        cells=stratum.cells,
        a=pair.label_a,
        b=pair.label_b,
        target=stratum.target.value,
        family=stratum.family,
        n_tasks=int((drawn.enters_a | drawn.enters_b).sum()),
        n_tasks_a=len(drawn.rates_a),
        n_tasks_b=len(drawn.rates_b),
        certified_a=int((a.certified & within).sum()),
        certified_b=int((b.certified & within).sum()),
        rate_a=drawn.rates_a.mean,
        rate_b=drawn.rates_b.mean,
        points=_points(estimate.value),
        low=_points(estimate.low),
        high=_points(estimate.high),
        confidence=estimate.level,
        method=estimate.method.value,
        resamples=estimate.resamples,
        seed=options.seed if estimate.resamples is not None else None,
        bayes_low=_points(careful.low),
        bayes_high=_points(careful.high),
        bayes_method=str(careful.method),
        strata_low=_points(fixed.low) if fixed else None,
        strata_high=_points(fixed.high) if fixed else None,
        degenerate=estimate.degenerate,
        reliable=estimate.reliable,
        reason=_reason(estimate, drawn, stratum, (pair.label_a, pair.label_b)),
        remarks=pair.remarks,
        margin_points=options.margin,
    )


def _tested(contrast: Contrast, drawn: Samples, decides: bool) -> Contrast:
    """The same with its tests; what plans a deployment only where `decides`."""
    test, flip = _tests(drawn)
    return replace(
        contrast,
        favour_a=test.favour_first if test else None,
        favour_b=test.favour_second if test else None,
        ties=test.ties if test else None,
        sign_p=test.p if test else None,
        signflip_p=flip.p if flip else None,
        smallest_p=test.smallest_p if test else None,
        detectable_points=_detectable(drawn) if decides else None,
    )


def _estimate(drawn: Samples, options: Options, rng: np.random.Generator) -> Estimate:
    ask = bootstrap.paired if drawn.paired else bootstrap.two_sample
    return ask(drawn.rates_a, drawn.rates_b, options=options.bootstrap, rng=rng)


def _tests(drawn: Samples) -> tuple[PairedTest | None, PairedTest | None]:
    if not drawn.paired:
        return None, None
    difference = lattice.difference(drawn.rates_a, drawn.rates_b)
    return sign_test(difference), sign_flip_test(difference)


def _detectable(drawn: Samples) -> float | None:
    return _points(power.detectable_difference(lattice.difference(drawn.rates_a, drawn.rates_b)).difference)


def _stream(pair: Pair, stratum: _Stratum, options: Options, *more: str) -> np.random.Generator:
    """Return this contrast's own stream, so that adding a contrast changes no other."""
    key = pair.a.key
    names = [str(getattr(key, axis.value)) for axis in Axis if axis != options.vary]
    parts = [*names, key.suite, key.gate, key.trial, pair.context, pair.a.policy, str(options.vary)]
    parts += [pair.label_a, pair.label_b, stratum.target.value, stratum.family or ""]
    return stream(options.seed, [str(part) for part in (*parts, *more)])


def _reason(estimate: Estimate, drawn: Samples, stratum: _Stratum, labels: tuple[str, str]) -> str | None:
    if drawn.paired and not len(drawn.rates_a):
        return "empty matched set" if stratum.target is Target.matched else f"empty {stratum.target} set"
    empty = [
        label for label, rates in zip(labels, (drawn.rates_a, drawn.rates_b), strict=True) if not len(rates)
    ]
    if empty:
        return f"no certified task with a delivered fault at {' and '.join(empty)}"
    return estimate.reason


def _negated(fraction: float | None) -> float | None:
    # A verdict speaks of B minus A, a contrast of A minus B.
    return None if fraction is None else _points(0.0 - fraction)


def _points(value: float | None) -> float | None:
    # Ten digits: the product with 100 would otherwise show its rounding, 27.500000000000004.
    return None if value is None else round(POINTS * value, 10)


def bayesian(drawn: Samples, rng: Generator, level: float = 0.95) -> BayesianInterval:
    """Return the interval of A minus B that words rest on, in fractions.

    Parameters
    ----------
    drawn : Samples
        As `targets.samples` returns them.
    rng : numpy.random.Generator
        Used for *own* alone; the paired interval is deterministic.
    """
    if drawn.paired:
        return interval(lattice.difference(drawn.rates_a, drawn.rates_b), level=level)
    members = (drawn.enters_a, drawn.enters_b)
    rates = (_spread_out(drawn.rates_a, drawn.enters_a), _spread_out(drawn.rates_b, drawn.enters_b))
    return joint(rates, members, rng=rng, level=level)


def stratified(
    drawn: Samples, families: tuple[str, ...], options: intervals.Options, rng: Generator | None = None
) -> Estimate | None:
    """Return the percentile interval that resamples tasks within their families.

    Returns
    -------
    Estimate or None
        None where the counts per family are not fixed by the design: where not every task enters on both
        sides, or where the suite has one family.
    """
    if not (drawn.paired and drawn.enters_a.all() and drawn.enters_b.all()) or len(set(families)) < 2:
        return None
    strata = np.unique(np.array(families), return_inverse=True)[1].astype(np.int64)
    return bootstrap.paired(drawn.rates_a, drawn.rates_b, strata=strata, options=options, rng=rng)


def _spread_out(rates: Lattice, enters: BoolArray) -> FloatArray:
    """Return one rate per task of the suite; nan where the task is not in the set."""
    values: FloatArray = np.full(enters.size, np.nan)
    values[enters] = rates.values
    return values
