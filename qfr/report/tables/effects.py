"""The page's parts on what moves rates: how far one order of presets holds, requests to repair, clauses."""

from __future__ import annotations

from qfr.analysis.contrast.ablation import Ablation, AtPreset, Difference
from qfr.analysis.contrast.agreement import SPREADS, Agreement
from qfr.analysis.contrast.repair import Repair
from qfr.analysis.results import Contrast, Result
from qfr.analysis.rows import ablation_rows, agreement_rows, repair_rows, spread_row
from qfr.analysis.targets import Target
from qfr.report.content.build import Report
from qfr.report.layout import TITLES, careful
from qfr.report.sections import Illustrated
from qfr.report.tables.formats import NONE, ends, p_value, percent, signed
from qfr.report.tables.specs import Entry, Table, pick, points


def agreement_tables(report: Report) -> tuple[Table, ...]:
    """Agreement of orders, and spread by axis; tables without rows are left out."""
    found = (_agreements(report.agreements), _spreads(report))
    return tuple(one for one in found if one.rows)


def _agreements(found: tuple[Agreement, ...]) -> Table:
    changed = sum(not set(one.tops[0].split("=")) & set(one.tops[1].split("=")) for one in found)
    return Table(
        "The order of the presets by their rate in two places that differ in one thing alone: Kendall tau-b "
        "with a 95 % task-bootstrap interval, and Spearman's rho. Not defined where all presets tie. The top "
        f"preset changes in {changed} of {len(found)} comparisons.",
        ("Across", "First", "Second", "Kendall tau", "Spearman", "Top preset"),
        tuple(
            (
                Entry(one.across, one.key.context),
                Entry(one.first),
                Entry(one.second),
                *_orders(one),
                Entry(one.tops[0] if one.tops[0] == one.tops[1] else f"{one.tops[0]} / {one.tops[1]}"),
            )
            for one in found
        ),
        headers=3,
        title="Does one order of the presets hold?",
    )


def _orders(one: Agreement) -> tuple[Entry, Entry]:
    tau, rho = agreement_rows(one)
    return _tau(one, tau), Entry("–" if rho.value is None else f"{rho.value:.2f}", id=rho.id)


def _tau(one: Agreement, row: Result) -> Entry:
    if one.tau is None:
        return Entry("–", row.reason or "", True, id=row.id)
    ends = "" if one.tau_low is None or one.tau_high is None else f"[{one.tau_low:.2f}, {one.tau_high:.2f}]"
    small = f"{ends} {len(one.presets)} presets".strip()
    return Entry(f"{one.tau:.2f}", small, one.tau_low is None, id=row.id)


def _spreads(report: Report) -> Table:
    found = report.spreads
    places: dict[tuple[str, str], dict[str, Entry]] = {(one.axis, one.target): {} for one in found}
    for one in found:
        small = f"largest {100 * one.largest:.1f}, {one.places} places"
        row = spread_row(one, SPREADS[one.axis])
        places[one.axis, one.target][one.policy] = Entry(f"{100 * one.mean:.1f}", small, id=row.id)
    return Table(
        "Largest rate minus smallest along one axis, all else equal, in points: mean over places where it "
        "can be seen. Where a spread over prompts shrinks under the other policy, the scorer made that part.",
        ("Along", "Target", "tolerant", "strict"),
        tuple(
            (
                Entry(SPREADS[axis]),
                Entry(target),
                *(by_policy.get(name, Entry("–")) for name in ("tolerant", "strict")),
            )
            for (axis, target), by_policy in places.items()
        ),
        headers=2,
        title="What moves rates: presets, prompts, rewrites, executors",
    )


_CAPTION = (
    "executor=repair against executor=tolerant, all else equal. Won and lost: tasks that both certified, by "
    "their successes over the same faults. Clean won and lost: tasks passed without a fault by one of the "
    "two alone; the request follows a failed call only: a clean episode without one is the same. "
    "Turns and tokens: means per episode, without / with the request."
)
_HEADERS = (
    *("Model", "Preset", "Prompt", "Fault", "Won", "Lost", "Clean won", "Clean lost"),
    *("Turns", "Generated tokens", "Turns of clean episodes"),
)


def repair_sections(report: Report) -> tuple[Illustrated, ...]:
    """One table under the headline policy; nothing where no cell was played with the request."""
    found = [one for one in report.repairs if one.policy == report.options.policy]
    if not found:
        return ()
    rows = tuple(_row(one) for one in found)
    agent = all(one.key.model in report.reference_agents for one in found)
    table = Table(_CAPTION, _HEADERS, rows, headers=4, title="Repair of failed calls")
    return (Illustrated("Request to repair failed calls", agent, (), (table,)),)


def _row(one: Repair) -> tuple[Entry, ...]:
    names = (one.key.model, one.key.quant, one.key.prompt, one.key.fault)
    counted, costs = [], []
    rows = tuple(repair_rows(one))
    for changed in rows[:2]:
        counted += [
            Entry(f"{changed.count_a} of {changed.of_a}", id=changed.id),
            Entry(f"{changed.count_b} of {changed.of_b}", id=changed.id),
        ]
    for without, with_it in zip(rows[2::2], rows[3::2], strict=True):
        costs.append(Entry(f"{_mean(without)} / {_mean(with_it)}", id=f"{without.id} {with_it.id}"))
    return (*map(Entry, names), *counted, *costs)


def _mean(row: Result) -> str:
    return "–" if row.value is None else f"{row.value:.1f}"


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
