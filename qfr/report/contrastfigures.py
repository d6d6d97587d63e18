"""Figures of contrasts: differences, what they are made of, prompt by preset, ladder."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrast.ladder import KINDS, Ladder
from qfr.analysis.levels import NOT_STATED, Axis, order_key
from qfr.analysis.pairing import variant_names
from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.faults import FAULTS, FaultKind
from qfr.report.charts import Chart, Figure, Kind, Mark, Series
from qfr.report.content.build import Report
from qfr.report.layout import Group, interval, title_of
from qfr.report.processfigures import preset_styles
from qfr.report.tables.formats import percent, signed
from qfr.scope import group

_SUM = -1
#: Parts of a full-pipeline difference, in the order of their styles, and their columns.
_PARTS = {"certified by both": "shared_points", "by A only": "only_a_points", "by B only": "only_b_points"}


def difference_figure(group: Group, how: str) -> Figure:
    """Figure 1 of Hu 2026 for any group; `how` says how the intervals were computed."""
    left_out = len(group.pairs) - len(group.drawn_pairs)
    left = f" {left_out} further pairs stand in the table." if left_out else ""
    better = "recovers better" if any(c.fault != "none" for c in group.contrasts) else "succeeds more often"
    own, span = "" if group.logs else " (own clean sets: A/B)", _common_span(group)
    return Figure(
        f"Differences{group.scoring}",
        f"A − B in points (positive: A {better}) with 95 % percentile task-bootstrap intervals "
        f"({how}){group.scoring}. Below each tick: n = tasks that enter{own}. Open marks: "
        f"an interval that is too short for so few or so equal tasks, or none.{left}",
        tuple(_differences(group, target, span) for target in group.panels),
        tuple((at, f"{a} − {b}") for at, (a, b) in enumerate(group.drawn_pairs)),
    )


def _differences(group: Group, target: Target, span: tuple[float, float]) -> Chart:
    """One panel, the numbers of tasks below each tick, one line per pair."""
    pairs = group.drawn_pairs
    found = {row: [group.find(row, pair, target) for pair in pairs] for row in group.rows}
    named = {row: () if row == NOT_STATED else (row,) for row in group.rows}
    ticks = {row: "\n".join((*named[row], *map(_tasks, found[row]))) for row in group.rows}
    series = []
    for at, (a, b) in enumerate(pairs):
        shown = [(row, c) for row in group.rows if (c := found[row][at]) and c.points is not None]
        series.append(Series(f"{a} − {b}", at, tuple(_difference(ticks[row], row, c) for row, c in shown)))
    chart = Chart(
        group.titled(target), Kind.points, tuple(ticks.values()), tuple(series), "points", span=span
    )
    return replace(chart, zero=True, empty="not estimable")


def _tasks(c: Contrast | None) -> str:
    if c is None:
        return "not run"
    return f"{c.n_tasks_a}/{c.n_tasks_b}" if c.target == Target.own else f"n {c.n_tasks}"


def _difference(at: str, row: str, c: Contrast) -> Mark:
    n = f"n = {c.n_tasks}" if c.target != Target.own else f"n = {c.n_tasks_a} and {c.n_tasks_b}"
    where = f"row {c.id}" if c.id else ""
    lines = (
        f"{row}: {c.a} − {c.b}",
        f"{signed(c.points)} points {interval(c)}",
        n,
        (c.reason or "")[:90],
        where,
    )
    told = "\n".join(line for line in lines if line)
    return Mark(at, c.points or 0.0, c.low, c.high, not c.reliable, told)


def _common_span(group: Group) -> tuple[float, float]:
    """Of all panels; never less than ten points either way, so that nothing looks large for want of more."""
    places = [(row, pair) for row in group.rows for pair in group.drawn_pairs]
    shown = [group.find(*place, target) for target in group.panels for place in places]
    ends = [end for c in shown if c for end in (c.low, c.high, c.points) if end is not None]
    low, high = min(-10.0, *ends, 0.0), max(10.0, *ends, 0.0)
    room = 0.08 * (high - low)
    return low - room, high + room


def decomposition_figure(group: Group) -> Figure | None:
    """Bars: what each full-pipeline difference is made of; None where there is none."""
    charts = []
    for pair in group.drawn_pairs:
        found = [(row, group.find(row, pair, Target.full)) for row in group.rows]
        kept = [(row, c) for row, c in found if c is not None and c.shared_points is not None]
        if kept:
            series = [_part(at, name, kept) for at, name in enumerate(_PARTS)]
            sums = tuple(
                Mark(
                    row,
                    c.points or 0.0,
                    hover=f"{row}, full pipeline: {signed(c.points)} {interval(c)}\n{_steps(c)}",
                )
                for row, c in kept
            )
            series.append(Series("full pipeline", _SUM, sums))
            title = f"{pair[0]} − {pair[1]}"
            chart = Chart(title, Kind.bars, group.rows, tuple(series), "points", span=_span(kept), zero=True)
            charts.append(chart)
    if not charts:
        return None
    n = next(c.n_tasks for c in group.contrasts if c.target == Target.full and c.family is None)
    return Figure(
        f"What the full-pipeline difference is made of, {group.policy} scoring",
        f"A − B in points, n = {n} tasks. The bars add up to the full-pipeline difference (diamond): tasks "
        "that both certified (recovery alone), tasks that only A certified, tasks that only B certified. "
        "Exact sums, no interval; the intervals of the total stand in figure and table above.",
        tuple(charts),
        tuple(enumerate(_PARTS)),
    )


def _part(style: int, name: str, kept: list[tuple[str, Contrast]]) -> Series:
    values = [(row, getattr(c, _PARTS[name])) for row, c in kept]
    marks = (Mark(row, value, hover=f"{row}, {name}: {signed(value)} points") for row, value in values)
    return Series(name, style, tuple(marks))


def _span(kept: list[tuple[str, Contrast]]) -> tuple[float, float]:
    """A common scale, never less than ten points either way."""
    low, high = -10.0, 10.0
    for _, c in kept:
        parts = [getattr(c, column) for column in _PARTS.values()]
        low = min(low, sum(part for part in parts if part < 0))
        high = max(high, sum(part for part in parts if part > 0))
    room = 0.06 * (high - low)
    return low - room, high + room


def _steps(c: Contrast) -> str:
    if c.screening_points is None:
        return ""
    return f"screening {signed(c.screening_points)}, rates on own sets {signed(c.own_rates_points)}"


@dataclass(frozen=True)
class OverPrompts:
    """One model under one setting, over its prompts."""

    title: str
    cells: frozenset[str]
    # cell_ids of every cell in it.
    figure: Figure


def prompt_figures(report: Report, policy: str) -> tuple[OverPrompts, ...]:
    """Lines over the prompts, one per preset: full pipeline and own clean sets (Hu 2026, figure 4)."""
    wanted = [
        s for s in report.summaries if s.policy == policy and s.family is None and s.key.fault != "none"
    ]
    settings = group(wanted, ("quant", "prompt"), of=lambda one: one.scope)
    placed = [
        {
            (quant, prompt): one
            for one, quant, prompt in zip(
                setting.members,
                variant_names(setting.members, "quant"),
                variant_names(setting.members, "prompt"),
                strict=True,
            )
        }
        for setting in settings
    ]
    styles = preset_styles(quant for members in placed for quant, _ in members)
    return tuple(
        OverPrompts(
            title_of(setting.members[0].key, setting.label),
            frozenset(cell for one in setting.members for cell in one.cells),
            _prompt_figure(members, styles, policy),
        )
        for setting, members in zip(settings, placed, strict=True)
        if all(len({place[at] for place in members}) > 1 for at in (0, 1))
    )


def _prompt_figure(
    members: dict[tuple[str, str], CellSummary], styles: dict[str, int], policy: str
) -> Figure:
    bare = {prompt: one.key.prompt for (_, prompt), one in members.items()}
    prompts = tuple(sorted(bare, key=lambda name: (order_key(Axis.prompt, bare[name]), name)))
    quants = sorted({quant for quant, _ in members}, key=lambda quant: styles[quant])
    return Figure(
        f"Prompt × preset, {policy} scoring",
        "Success in % by prompt, one line per preset; whiskers: 95 % task-bootstrap intervals. Lines that "
        "cross are presets whose order depends on the prompt. Full pipeline: all "
        f"{next(iter(members.values())).n_tasks} tasks; own clean sets: the certified ones (n in the hover "
        "text). Hollow: an interval that is too short.",
        tuple(
            _over_prompts(name, prompts, quants, (members, styles))
            for name in ("Full pipeline", "Own clean sets")
        ),
        tuple((styles[quant], quant) for quant in quants),
    )


def _over_prompts(
    title: str,
    prompts: tuple[str, ...],
    quants: list[str],
    data: tuple[dict[tuple[str, str], CellSummary], dict[str, int]],
) -> Chart:
    members, styles = data
    series = []
    for quant in quants:
        marks = []
        for prompt in prompts:
            one = members.get((quant, prompt))
            if one is None:
                continue
            full = title == "Full pipeline"
            estimate, n = (one.full, one.n_tasks) if full else (one.own, one.n_certified)
            if estimate.value is None:
                continue
            low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
            told = f"{quant} {prompt}: {percent(estimate.value)}, n = {n} tasks"
            if low is not None and high is not None:
                told += f"\n[{low:.1f}, {high:.1f}]"
            marks.append(Mark(prompt, 100 * estimate.value, low, high, not estimate.reliable, told))
        series.append(Series(quant, styles[quant], tuple(marks)))
    return Chart(title, Kind.columns, prompts, tuple(series), "%", span=(-3.0, 103.0))


def ladder_figure(ladder: Ladder) -> Figure:
    """Rates by preset, one line per kind of fault (Hu 2026, figure 3)."""
    quants = tuple(rung.quant for rung in ladder.rungs)
    series = []
    for at, kind in enumerate(KINDS):
        marks = []
        for rung in ladder.rungs:
            step = next((one for one in rung.steps if one.fault == kind), None)
            if step is None or step.rate.value is None:
                continue
            low, high = (None if end is None else 100 * end for end in (step.rate.low, step.rate.high))
            told = f"{rung.quant} {kind}: {step.successes} of {step.episodes} episodes"
            marks.append(Mark(rung.quant, 100 * step.rate.value, low, high, rung.few, told))
        series.append(Series(_words(kind), at, tuple(marks)))
    chart = Chart("", Kind.columns, quants, tuple(series), "% of fault episodes", span=(-3.0, 103.0))
    return Figure(
        f"{ladder.key.model} under {ladder.key.prompt}: the ladder, {ladder.policy} scoring",
        "Successful fault episodes in % on each preset's own certified tasks; whiskers: Wilson 95 % "
        "intervals over episodes, which are not independent within a task. n stands in the table. Hollow: "
        "fewer than eight certified tasks.",
        (chart,),
        tuple((at, _words(kind)) for at, kind in enumerate(KINDS) if series[at].marks),
        wide=True,
    )


def _words(kind: FaultKind) -> str:
    title = FAULTS[kind].title
    return f"{title[0].lower()}{title[1:]} ({kind})"
