"""The analysis of a grid as a registration freezes it: contrasts, targets, methods, rules of exclusion."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from qfr.analysis.cells import FEWEST_CERTIFIED
from qfr.analysis.levels import Axis, order_key
from qfr.analysis.targets import Target
from qfr.config import CellConfig, Gate
from qfr.records import FaultKind, Policy
from qfr.registration.record import AnalysisPlan, Detectable, FrozenCell, PlannedContrast
from qfr.scope import NAMES, group, scope_of_design, value_of
from qfr.stats.power import detectable

_LEVEL = 0.95

FAMILY = (
    "The sign tests of all planned contrasts of one target under one policy, over all tasks: adjusted by "
    "Holm and by Benjamini and Hochberg. Task families are strata, shown beside them and not part of the "
    "family."
)
DECLARED = (
    "The contrasts over all tasks that a declared selector takes in, adjusted together by Holm and by "
    "Benjamini and Hochberg. Task families are strata, shown beside them and not part of the family."
)
EXCLUSIONS = (
    "Fault episodes run on the tasks that the cell passed in its own clean pass under the tolerant policy "
    "(suite.gate=certified), or on all tasks (suite.gate=none).",
    "A scheduled fault that never fired leaves the denominator of its task; a task with none delivered "
    "leaves own and matched, is listed, and counts 0 in full; bounds with all of them as success and as "
    "failure are given.",
    f"A cell with fewer than {FEWEST_CERTIFIED} certified tasks is kept and carries a visible warning; no "
    "cell is filtered out.",
    "A failure of the machinery is never a zero: the cell is missing until it is run again.",
    "Cells that differ in suite, prompt bytes, fault, executor, build or schema are never pooled nor "
    "contrasted.",
)


def analysis_plan(config: CellConfig, cells: Sequence[FrozenCell]) -> AnalysisPlan:
    """What the report of these cells computes."""
    report, scorer = config.report, config.scorer
    faulted = any(cell.asked and cell.fault != FaultKind.none for cell in cells)
    targets = (
        [Target.clean, Target.own, Target.matched, Target.full, Target.s_star] if faulted else [Target.clean]
    )
    if faulted and any(cell.gate == Gate.none for cell in cells):
        targets.append(Target.ungated)
    sizes = sorted({cell.episodes for cell in cells if cell.fault == FaultKind.none})
    return AnalysisPlan(
        vary=report.vary,
        contrasts=planned_contrasts(cells, report.vary),
        targets=tuple(map(str, targets)),
        policies=(str(scorer.policy), *(str(one) for one in Policy if one is not scorer.policy)),
        ep_min_calls=scorer.ep_min_calls,
        method=report.method,
        resamples=report.resamples,
        seed=report.seed,
        level=_LEVEL,
        equivalence_margin_points=float(report.margin),
        fewest_certified=FEWEST_CERTIFIED,
        family=DECLARED if report.family else FAMILY,
        selectors=tuple(dict(one) for one in report.family),
        groups=report.groups,
        exclusions=EXCLUSIONS,
        detectable=tuple(Detectable(n, _points(detectable(n).difference)) for n in sizes),
    )


def planned_contrasts(cells: Sequence[FrozenCell], vary: str) -> tuple[PlannedContrast, ...]:
    """Every pair of the grid's cells that differs in the varied axis alone; the higher level is A."""
    asked = [cell for cell in cells if cell.asked]
    found: list[PlannedContrast] = []
    for one in group(asked, (vary,), of=lambda cell: scope_of_design(cell.design, _named(cell))):
        ordered = sorted(one.members, key=lambda cell: order_key(vary, _level(cell, vary)))
        found += [
            _contrast(a, b, vary) for a, b in combinations(ordered, 2) if _level(a, vary) != _level(b, vary)
        ]
    return tuple(found)


def _named(cell: FrozenCell) -> dict[str, str]:
    return {key: str(getattr(cell, name)) for name, key in NAMES.items()}


def _level(cell: FrozenCell, vary: str) -> str:
    return value_of(scope_of_design(cell.design, _named(cell)), vary)


def _contrast(a: FrozenCell, b: FrozenCell, vary: str) -> PlannedContrast:
    def shared(axis: Axis) -> str | None:
        return None if axis == vary else str(getattr(a, axis))

    return PlannedContrast(
        vary=str(vary),
        a=_level(a, vary),
        b=_level(b, vary),
        model=shared(Axis.model),
        quant=shared(Axis.quant),
        prompt=shared(Axis.prompt),
        fault=shared(Axis.fault),
        executor=shared(Axis.executor),
        suite=a.suite,
        gate=a.gate,
        trial=a.trial,
    )


def _points(difference: float | None) -> float | None:
    return None if difference is None else round(100 * difference, 1)
