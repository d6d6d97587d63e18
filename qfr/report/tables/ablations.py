"""The page's part on clauses of the prompt: one sentence per preset, and the figures behind it."""

from __future__ import annotations

from collections.abc import Sequence

from qfr.analysis.contrast.ablation import Ablation, AtPreset, Difference
from qfr.analysis.results import Contrast, Result
from qfr.analysis.rows import ablation_rows
from qfr.analysis.targets import Target
from qfr.report.content.build import Report
from qfr.report.layout import TITLES, careful
from qfr.report.sections import Illustrated
from qfr.report.tables.formats import NONE, ends, p_value, percent, signed
from qfr.report.tables.specs import pick, points
from qfr.report.tables.views import Entry, Table


def ablation_sections(report: Report) -> tuple[Illustrated, ...]:
    """One part per clause, base prompt and setting under the headline policy."""
    agents = report.reference_agents
    return tuple(
        Illustrated(title_of(one), one.key.model in agents, (), (sentence_table(one), figure_table(one)))
        for one in report.ablations
        if one.policy == report.options.policy
    )


def title_of(one: Ablation) -> str:
    """Such as ``ref_llama · retry_required on P0``."""
    rest = f" ({one.rest})" if one.rest else ""
    return f"{one.key.model} · {one.clause} on {one.base}{rest}" + (
        f", {one.key.context}" if one.key.context else ""
    )


def sentence_table(one: Ablation) -> Table:
    """What the clause does at each preset, in words."""
    rows = tuple((Entry(step.quant), Entry(sentence(one, step))) for step in one.presets)
    return Table(
        f"What the clause {one.clause} does under {one.base}{one.rest}, {one.policy} scoring.",
        ("Preset", "In words"),
        rows,
        title="In words",
    )


def sentence(one: Ablation, step: AtPreset) -> str:
    """The effect on the full pipeline and whether it differs from the highest preset's."""
    full = next(effect for effect in step.effects if effect.target == Target.full)
    levels = f"{percent(full.rate_a)} with the clause, {percent(full.rate_b)} without"
    said = f"{levels} (full pipeline, {full.n_tasks} tasks): {_effect(full)}."
    difference = next((d for d in step.differences if d.target == Target.full), None)
    if difference is None:
        return said
    return f"{said} {_compared(difference, one.presets[0].quant)}."


def figure_table(one: Ablation) -> Table:
    """Effects and differences of effects for every target."""
    found = tuple(ablation_rows(one))
    rows = []
    for step in one.presets:
        for effect in step.effects:
            mine = pick(found, level=step.quant, target=effect.target, cells=effect.cells)
            other = pick(found, a=step.quant, target=effect.target, cells=one.cells)
            if mine is not None:
                rates = Entry(f"{percent(mine.rate_a)} / {percent(mine.rate_b)}", id=mine.id)
                tested = "" if mine.sign_p is None else f"p {p_value(mine.sign_p)}"
                rows.append(
                    (
                        Entry(step.quant),
                        Entry(TITLES[Target(effect.target)].lower()),
                        rates,
                        points(mine, tested),
                        Entry(NONE) if other is None else _entry(other),
                    )
                )
    top = one.presets[0].quant
    return Table(
        "With the clause minus without it, in points, and that minus the same at "
        f"{top} (difference of differences). 95 % task-bootstrap intervals, paired for matched and full; for "
        "own sets the suite's tasks are drawn once for all cells. p: sign test, unadjusted.",
        ("Preset", "Target", "With / without", "Effect", f"Minus the effect at {top}"),
        tuple(rows),
        headers=2,
        title="Effects and differences of differences",
    )


def _effect(full: Contrast) -> str:
    if full.points is None:
        return full.reason or "not estimable"
    if full.points == 0 and full.rate_a in (0.0, 1.0):
        return "no difference on any task"
    low, high = full.bayes_low, full.bayes_high
    shown = low is not None and high is not None and (low > 0 or high < 0)
    word = ("raises" if full.points > 0 else "lowers") if shown else "is not shown to change"
    return f"the clause {word} it ({signed(full.points)} points {careful(full)})"


def _compared(difference: Difference, top: str) -> str:
    estimate = difference.estimate
    if estimate.value is None:
        return f"Against {top}: {estimate.reason}"
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    found = f"{signed(100 * estimate.value)} points {ends(low, high)}"
    if estimate.value == 0 and estimate.degenerate:
        return f"The effect is that at {top} on every task"
    shown = (
        difference.sign_p is not None
        and difference.sign_p <= 0.05
        and estimate.low is not None
        and estimate.high is not None
        and (estimate.low > 0 or estimate.high < 0)
    )
    if not shown:
        return f"Another effect than at {top} is not shown ({found})"
    return f"The effect is {'larger' if estimate.value > 0 else 'smaller'} than at {top} ({found})"


def _entry(one: Result) -> Entry:
    return points(one, f"n {one.n_tasks}", "" if one.sign_p is None else f"p {p_value(one.sign_p)}")


def lines(report: Report) -> Sequence[str]:
    """The sentences for a terminal."""
    return [
        f"{title_of(one)}, {step.quant}: {sentence(one, step)}"
        for one in report.ablations
        if one.policy == report.options.policy
        for step in one.presets
    ]
