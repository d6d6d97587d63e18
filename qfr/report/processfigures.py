"""Figures of the process diagnostics: S(K), gaps, channel rates, recovery after errors, margins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from qfr.analysis.diagnostics.margins import PROBABILITIES, Spread
from qfr.analysis.levels import NOT_STATED, Axis, bits, order_key
from qfr.analysis.pairing import variant_names
from qfr.analysis.results import Kind, Result
from qfr.analysis.targets import CellKey
from qfr.analysis.trials import FOREIGN
from qfr.records import FaultKind
from qfr.report.charts import Chart, Figure, Mark, Series
from qfr.report.charts import Kind as Drawn
from qfr.report.content.diagnosed import Agent, Compared, Diagnosed
from qfr.report.content.imported import CLEAN
from qfr.report.layout import title_of
from qfr.report.tables.formats import signed
from qfr.scope import Scope, group
from qfr.stats.intervals import Estimate

#: Smallest margin that a logarithmic axis shows, in logits.
_LEAST_MARGIN = 0.01
#: Of the logarithmic axis: powers of ten.
_LOGITS = (-2.1, 1.6)
_FREE = ("quant", "prompt")
_POOLED = ", clean pass and fault episodes together; an injected fault is not the agent's error"
_OWN = "; injected failures are shown apart from the agent's own"
_PER_PROMPT = " A panel per prompt."
# Row ids by kind, cells, item and target.
_Ids = Mapping[tuple[str, tuple[str, ...], str, str | None], str]
_T = TypeVar("_T", Agent, Compared)
_LOW, _MIDDLE, _HIGH = (PROBABILITIES.index(p) for p in (0.25, 0.5, 0.75))


def process_figures(
    found: Diagnosed, results: Iterable[Result] = ()
) -> tuple[tuple[str, tuple[Figure, ...]], ...]:
    """Return the figures of each model, fault and setting, titled; marks name their rows of the results."""
    ids = {(one.kind, one.cells, one.item, one.target): one.id for one in results}
    settings = group(found.agents, _FREE, of=lambda one: one.scope)
    compared = {one.fixed: one.members for one in group(found.compared, _FREE, of=lambda one: one.scope)}
    names = {scope: key for one in settings for scope, key in _named(one.members).items()}
    styles = preset_styles(key.quant for key in names.values())
    resamples = f"{found.resamples:,} task resamples"
    sections = []
    for setting in settings:
        members = [replace(one, key=names[one.scope]) for one in setting.members]
        others = [
            replace(one, key=names[one.scope], reference=names[one.against].quant)
            for one in compared.get(setting.fixed, ())
        ]
        figures = (
            _curves(members, styles, ids),
            *([_curves(members, styles, ids, CLEAN)] if _clean(members) else []),
            *([_gaps(others, styles, ids)] if others else []),
            _channels(members, styles, resamples, ids),
            _recoveries(members, styles, resamples, ids),
            _margins(members, ids),
        )
        kept = tuple(one for one in figures if any(s.marks for c in one.charts for s in c.series))
        kept = (*(one for one in kept if not _flat(one)), *map(_told_flat, filter(_flat, kept)))
        missing = [f"{one.key.quant}: {one.no_gap}" for one in others if one.no_gap]
        if kept and missing:
            told = f" No gap to the highest preset for {'; '.join(dict.fromkeys(missing))}."
            kept = (replace(kept[0], caption=kept[0].caption + told), *kept[1:])
        # What the log of another program cannot show is said by the tables.
        if kept or not _logs(members):
            sections.append((title_of(setting.members[0].key, setting.label), kept))
    return tuple(sections)


def preset_styles(quants: Iterable[str]) -> dict[str, int]:
    """Return one style per preset, the same in every figure."""
    names = sorted(set(quants), key=_order)
    return {name: at for at, name in enumerate(names)}


def _order(name: str) -> tuple[float, str]:
    # Two files of one preset are told apart in brackets.
    preset = name.split(" [")[0]
    return (order_key(Axis.quant, preset)[0] if bits(preset) is not None else 0.0), name


def _named(members: Sequence[Agent]) -> dict[Scope, CellKey]:
    """Each one's names, with what tells two files or two texts of one name apart."""
    names = zip(members, variant_names(members, "quant"), variant_names(members, "prompt"), strict=True)
    return {one.scope: replace(one.key, quant=quant, prompt=prompt) for one, quant, prompt in names}


def _panels(
    members: list[_T], styles: dict[str, int], marks: Callable[[_T], tuple[Mark, ...]], chart: Chart
) -> tuple[Chart, ...]:
    """One chart per prompt, one series per preset."""
    prompts = sorted({one.key.prompt for one in members}, key=lambda name: order_key(Axis.prompt, name))
    charts = []
    for prompt in prompts:
        here = [one for one in members if one.key.prompt == prompt]
        series = tuple(Series(one.key.quant, styles[one.key.quant], marks(one)) for one in here)
        charts.append(replace(chart, title="" if prompt == NOT_STATED else prompt, series=series))
    return tuple(charts)


def _legend(members: Iterable[Agent | Compared], styles: dict[str, int]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted({(styles[one.key.quant], _preset(one.key.quant)) for one in members}))


def _preset(quant: str) -> str:
    return "precision not stated" if quant == NOT_STATED else quant


def _clean(members: Iterable[Agent]) -> bool:
    """Whether the clean pass is recounted beside the fault episodes."""
    return any(curve.rule == CLEAN for one in members for curve in one.curves)


def _flat(figure: Figure) -> bool:
    """Whether an error budget changes nothing in a figure of it: every line has one value."""
    lines = [series.marks for chart in figure.charts for series in chart.series if series.marks]
    drawn = all(chart.kind is Drawn.lines for chart in figure.charts)
    return drawn and all(len({mark.value for mark in marks}) == 1 for marks in lines)


def _told_flat(figure: Figure) -> Figure:
    return replace(figure, title=f"{figure.title}: flat, no budget shown changes anything")


def _curves(members: list[Agent], styles: dict[str, int], ids: _Ids, rule: str = "") -> Figure:
    """S(K) under the first counting rule, or under the named one."""
    members = [
        replace(one, curves=tuple(c for c in one.curves if c.rule == rule) or one.curves) if rule else one
        for one in members
    ]

    def marks(one: Agent) -> tuple[Mark, ...]:
        return tuple(
            _mark(
                str(p.budget),
                p.success,
                f"{one.key.quant}, at most {p.budget} failed calls",
                ids.get((Kind.budget, one.cells, f"K={p.budget}", one.curves[0].rule)),
            )
            for p in one.curve.points
            if p.success.value is not None
        )

    chart = Chart("", Drawn.lines, (), (), "success, %", "failed calls allowed (K)", (-3.0, 103.0))
    charts = _panels(members, styles, marks, chart)
    scoring = "" if _logs(members) else f", {members[0].curve.policy} scoring"
    hidden = {
        f"{one.key.quant}: {one.curve.points[0].success.reason}"
        for one in members
        if one.curve.points[0].success.value is None
    }
    unseen = f" No curve of {'; '.join(sorted(hidden))}." if hidden else ""
    return Figure(
        f"Success {'of the clean pass ' if rule else ''}under a shrinking error budget, S(K)",
        f"{'Clean-pass success' if rule else _success(members[0].key)} in % of {_counts(members)} tasks"
        f"{scoring}, when an episode may fail K calls. Counting rule: {members[0].curves[0].rule}; "
        "the table of "
        "counting rules has the others. A recount of the logs. Bands: 95 % task-bootstrap intervals, each K "
        f"for itself.{_PER_PROMPT if charts[0].title else ''}{unseen}",
        charts,
        _legend(members, styles),
    )


def _counts(members: list[Agent]) -> str:
    """Tasks of the curves: one number where all agree, else each preset's."""
    points = {one.key.quant: one.curve.points[0].success for one in members}
    counts = {quant: point.n for quant, point in points.items() if point.value is not None}
    if len(set(counts.values())) < 2:
        return f"n = {next(iter(counts.values()), 0)}"
    return "n = " + ", ".join(f"{n} ({quant})" for quant, n in counts.items())


def _logs(members: Iterable[Agent | Compared]) -> bool:
    """Whether these are imported logs: nothing was injected."""
    return all(one.key.executor == FOREIGN for one in members)


def _success(key: CellKey) -> str:
    return "Success" if key.fault == FaultKind.none else "Full-pipeline success"


def _gaps(members: list[Compared], styles: dict[str, int], ids: _Ids) -> Figure:
    def marks(one: Compared) -> tuple[Mark, ...]:
        if one.gap is None:
            return ()
        return tuple(
            _mark(
                str(p.budget),
                p.gap,
                f"{one.reference} − {one.key.quant} at K = {p.budget}",
                ids.get((Kind.gap, one.cells, f"K={p.budget}", "full")),
                points=True,
            )
            for p in one.gap.points
            if p.gap.value is not None
        )

    chart = Chart("", Drawn.lines, (), (), "points", "failed calls allowed (K)", zero=True)
    reference = members[0].reference
    rule = next((one.gap.rule.text for one in members if one.gap is not None), "")
    rule = "allow K, the agent's failed calls" if _logs(members) else rule
    n = max((p.gap.n for one in members if one.gap is not None for p in one.gap.points), default=0)
    return Figure(
        f"Gap to {reference} under a shrinking error budget",
        f"S(K) of {reference} minus S(K) of the named preset, in points, paired over {n} common tasks. "
        f"Counting rule: {rule}. Bands hold for all K at once (95 %, max-T).",
        _panels(members, styles, marks, chart),
        _legend(members, styles),
    )


def _channels(members: list[Agent], styles: dict[str, int], resamples: str, ids: _Ids) -> Figure:
    seen = dict.fromkeys(r.event for one in members for r in one.rates if r.count)
    names = tuple(event.replace("_", " ") for event in seen)

    def marks(one: Agent) -> tuple[Mark, ...]:
        return tuple(
            _mark(
                rate.event.replace("_", " "),
                rate.per_call,
                f"{one.key.quant}, {rate.event.replace('_', ' ')}: {rate.count} in {rate.calls} calls, in "
                f"{rate.episodes_with} of {rate.episodes} episodes",
                ids.get((Kind.channel, one.cells, rate.event, "per call")),
            )
            for rate in one.rates
            if rate.event in seen and rate.per_call.value is not None
        )

    chart = Chart("", Drawn.dots, names, (), "% of calls")
    return Figure(
        "Error channels and harmful behaviours",
        f"Occurrences per 100 calls of the agent{'' if _logs(members) else _POOLED}. Whiskers: 95 % "
        f"task-bootstrap intervals ({resamples}). Events that never happened are left out; n stands in the "
        "table.",
        _panels(members, styles, marks, chart),
        _legend(members, styles),
    )


def _recoveries(members: list[Agent], styles: dict[str, int], resamples: str, ids: _Ids) -> Figure:
    seen = dict.fromkeys(r.source for one in members for r in one.recovery if r.errors)
    names = tuple(source.replace("_", " ") for source in seen)

    def marks(one: Agent) -> tuple[Mark, ...]:
        return tuple(
            _mark(
                r.source.replace("_", " "),
                r.within[-1].share,
                f"{one.key.quant}, after {r.source.replace('_', ' ')}: {r.errors} errors, {r.recovered} ever "
                "recovered",
                ids.get((Kind.recovery, one.cells, r.source, f"within {r.within[-1].turns}")),
            )
            for r in one.recovery
            if r.errors
        )

    turns = next((r.within[-1].turns for one in members for r in one.recovery), 0)
    chart = Chart("", Drawn.dots, names, (), f"% recovered within {turns} turns", span=(-3.0, 103.0))
    return Figure(
        "Recovery after an error",
        f"Share of failed calls that a valid call follows within {turns} turns, in %"
        f"{'' if _logs(members) else _OWN}. Whiskers: 95 % task-bootstrap intervals ({resamples}).",
        _panels(members, styles, marks, chart),
        _legend(members, styles),
    )


def _margins(members: list[Agent], ids: _Ids) -> Figure:
    prompts = sorted({one.key.prompt for one in members}, key=lambda name: order_key(Axis.prompt, name))
    charts = []
    for prompt in prompts:
        here = [one for one in members if one.key.prompt == prompt]
        right = tuple(mark for one in here for mark in _spread(one, one.margins.right, "right", ids))
        wrong = tuple(mark for one in here for mark in _spread(one, one.margins.wrong, "wrong", ids))
        sides = (Series("right turns", 0, right), Series("wrong turns", 1, wrong))
        quants = tuple(one.key.quant for one in here)
        charts.append(
            Chart(prompt, Drawn.dots, quants, sides, "smallest margin, logits", span=_LOGITS, log=True)
        )
    return Figure(
        "Narrow decisions: smallest logit margin of right and wrong turns",
        "Median over turns of the smallest margin of a turn (top logit minus runner-up, in logits, "
        "logarithmic; "
        "n in the hover text and the table); whiskers: the middle half of the turns, no confidence interval. "
        "A wrong turn failed by the agent's own error or ended the episode without success.",
        tuple(charts),
        ((0, "right turns"), (1, "wrong turns")),
    )


def _spread(one: Agent, spread: Spread, side: str, ids: _Ids) -> tuple[Mark, ...]:
    if not spread.n:
        return ()
    low, middle, high = (max(spread.quantiles[at], _LEAST_MARGIN) for at in (_LOW, _MIDDLE, _HIGH))
    told = (
        f"{one.key.quant}, {spread.n} {side} turns: median {middle:.2f}, half of them {low:.2f} to {high:.2f}"
    )
    name = ids.get((Kind.margin, one.cells, f"{side} turns", None))
    return (Mark(one.key.quant, middle, low, high, hover=told + (f"\nrow {name}" if name else "")),)


def _mark(at: str, found: Estimate, told: str, name: str | None, *, points: bool = False) -> Mark:
    value = 100 * (found.value or 0.0)
    low, high = (None if end is None else 100 * end for end in (found.low, found.high))
    shown = signed(value) + " points" if points else f"{value:.1f} %"
    ends = "" if low is None or high is None else f" [{low:.1f}, {high:.1f}]"
    hover = f"{told}\n{shown}{ends}, n = {found.n}" + (f"\nrow {name}" if name else "")
    return Mark(at, value, low, high, not found.reliable, hover)
