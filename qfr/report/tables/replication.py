"""Our contrasts beside published ones: both intervals, same sign or not, and what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from qfr.analysis.published import Published, PublishedCell, PublishedContrast
from qfr.analysis.results import Contrast
from qfr.analysis.rows import published_rows, rate_rows
from qfr.analysis.targets import Target
from qfr.facts import CellFacts
from qfr.report.charts import Chart, Figure, Kind, Mark, Series
from qfr.report.content.build import Report
from qfr.report.layout import PANELS, TITLES, interval
from qfr.report.tables.formats import ends, percent, signed
from qfr.report.tables.specs import Entry, Table, pick
from qfr.scope import Scope, scope_of, value_of


@dataclass(frozen=True)
class Beside:
    """One published contrast and ours."""

    theirs: PublishedContrast
    ours: Contrast

    @property
    def sign(self) -> str:
        """Whether both point the same way, by their point estimates."""
        if self.ours.points is None:
            return "ours not estimable"
        signs = [(value > 0) - (value < 0) for value in (round(self.ours.points, 1), self.theirs.points)]
        if not all(signs):
            return "both are zero" if not any(signs) else "one is zero"
        return "same sign" if signs[0] == signs[1] else "opposite sign"


@dataclass(frozen=True)
class Replication:
    """The section of the report."""

    title: str
    warning: str
    # Empty when the models are the published ones.
    summary: str
    differs: Table
    contrasts: Table
    cells: Table
    figures: tuple[Figure, ...]


def replication(report: Report) -> Replication | None:
    """Set the report beside published results; None where none were asked for."""
    if report.options.against is None:
        return None
    known = report.options.against
    pairs = tuple(_pairs(report, known))
    return Replication(
        title=known.title,
        warning=_warning(report, known),
        summary=_summary(pairs, known),
        differs=_differs(report, known),
        contrasts=_table(pairs, known),
        cells=_cells(report, known),
        figures=tuple(_figures(pairs, known)),
    )


def _pairs(report: Report, known: Published) -> Iterable[Beside]:
    scopes = {facts.cell_id: scope_of(facts) for facts in report.facts if facts.fault == known.fault}
    found: dict[tuple[str, str, str], list[tuple[Contrast, list[Scope]]]] = defaultdict(list)
    for ours in report.contrasts:
        like = known.model_like(ours.model or "")
        sides = [scopes[cell] for cell in ours.cells if cell in scopes][:2]
        if ours.family is None and ours.vary == "quant" and like is not None and len(sides) == 2:
            found[like.name, ours.target, ours.policy].append((ours, sides))
    for theirs in known.contrasts:
        for ours, (a, b) in found[theirs.model, theirs.target, theirs.policy]:
            if _is_printed(a, known.a, theirs.prompt) and _is_printed(b, known.b, theirs.prompt):
                yield Beside(theirs, ours)


def _is_printed(one: Scope, quant: str, prompt: str) -> bool:
    """Whether a cell goes by the names of a printed one; what else differs is told, cell by cell."""
    return (value_of(one, "quant"), value_of(one, "prompt")) == (quant, prompt)


def _warning(report: Report, known: Published) -> str:
    others = tuple(dict.fromkeys(f.model for f in report.facts if not known.same_model(f)))
    if not others:
        return ""
    names = ", ".join(one.full_name for one in known.models)
    text = f"These are not the models of {known.title} ({names}): {', '.join(others)}."
    likes = [(name, like.name) for name in others if (like := known.model_like(name)) is not None]
    if likes:
        told = "; ".join(f"{name} beside {like}" for name, like in likes)
        text += (
            f" They are set side by side by their names only ({told}); agreement or not says nothing about "
            "the paper."
        )
    else:
        text += " No name is like one of the published models, so nothing is set side by side."
    return text


def _summary(pairs: tuple[Beside, ...], known: Published) -> str:
    if not pairs:
        return f"No contrast {known.a} − {known.b} under {known.fault} here has a published counterpart."
    counts: dict[str, int] = {}
    for one in pairs:
        counts[one.sign] = counts.get(one.sign, 0) + 1
    told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{len(pairs)} contrasts {known.a} − {known.b} side by side: {told}."


def _differs(report: Report, known: Published) -> Table:
    rows = tuple(
        (Entry(one.what), Entry(one.theirs), Entry(_ours(one.what, report.facts)))
        for one in known.circumstances
    )
    return Table("What differs, as far as it is known.", ("What", "Published", "Here"), rows)


def _ours(what: str, facts: tuple[CellFacts, ...]) -> str:
    shown: dict[str, list[str]] = {
        "prompts": [f"{f.prompt} (SHA-256 {f.prompt_sha256[:8]})" for f in facts],
        "tasks": [f"{f.suite} (SHA-256 {f.suite_sha256[:8]})" for f in facts],
        "budget": [f"{f.step_budget} steps, {f.error_budget} failed calls" for f in facts],
        "messages": [f"digest {f.fault_sha256[:8]} ({f.fault})" for f in facts if f.fault != "none"],
        "files": [f"{f.model} {f.quant} {f.model_sha256[:8]}" for f in facts],
        "build": [
            f"llama.cpp {f.llama_commit[:9] or 'none'} ({f.engine}), {f.device or 'no device'}" for f in facts
        ],
    }
    return ", ".join(dict.fromkeys(shown.get(what, [])))


def _table(pairs: tuple[Beside, ...], known: Published) -> Table:
    rows = tuple(
        (
            Entry(one.ours.model or "", one.ours.scope),
            Entry(
                f"{one.theirs.prompt} {one.theirs.policy}",
                TITLES[next(t for t in PANELS if t == one.theirs.target)].lower(),
            ),
            Entry(signed(one.theirs.points), _theirs(one.theirs), id=_id(known, one.theirs)),
            Entry(signed(one.ours.points), _n(one.ours), not one.ours.reliable, id=one.ours.id),
            Entry(one.sign, _overlap(one), one.sign != "opposite sign"),
        )
        for one in pairs
    )
    return Table(
        f"{known.a} − {known.b} in points, 95 % intervals. {known.source}",
        ("Model", "Where", "Published", "Here", "Sign"),
        rows,
        headers=2,
    )


def _id(known: Published, one: PublishedContrast | PublishedCell, target: Target | None = None) -> str:
    """The id of a printed number's row."""
    wanted = {"model": one.model, "prompt": one.prompt, "target": target}
    if isinstance(one, PublishedContrast):
        wanted |= {"target": one.target, "policy": one.policy, "unit": "points"}
    else:
        wanted |= {"level": one.quant, "unit": "rate"}
    found = pick(published_rows(known), **wanted)
    return "" if found is None else found.id


def _theirs(one: PublishedContrast) -> str:
    n = "" if one.n is None else f"n {one.n}"
    return " ".join(part for part in (ends(one.low, one.high) or "interval not at hand", n) if part)


def _n(one: Contrast) -> str:
    n = f"n {one.n_tasks_a}/{one.n_tasks_b}" if one.target == "own" else f"n {one.n_tasks}"
    return f"{interval(one)} {n}" if one.points is not None else one.reason or ""


def _overlap(one: Beside) -> str:
    low, high = one.theirs.low, one.theirs.high
    if low is None or high is None or one.ours.low is None or one.ours.high is None:
        return ""
    return (
        "intervals overlap" if one.ours.low <= high and low <= one.ours.high else "intervals do not overlap"
    )


def _cells(report: Report, known: Published) -> Table:
    rows = []
    for theirs in known.cells:
        for s in report.summaries:
            like = known.model_like(s.key.model)
            same = s.key.fault == known.fault and _is_printed(s.scope, theirs.quant, theirs.prompt)
            if (
                like is not None
                and like.name == theirs.model
                and same
                and s.family is None
                and s.policy == "tolerant"
            ):
                found = tuple(rate_rows(s))
                own, full = (pick(found, target=target, item="") for target in (Target.own, Target.full))
                printed = [_id(known, theirs, target) for target in (Target.own, Target.full)]
                here = f"{s.successes}/{s.episodes}"
                rows.append(
                    (
                        Entry(s.key.name),
                        Entry(
                            percent(theirs.own_percent / 100),
                            f"{theirs.successes}/{theirs.episodes}",
                            id=printed[0],
                        ),
                        Entry(percent(s.own.value), here, id=own.id if own else ""),
                        Entry(percent(theirs.full_rate), id=printed[1]),
                        Entry(percent(s.full.value), id=full.id if full else ""),
                    )
                )
    return Table(
        "Recovery on each cell's own clean set and full-pipeline success, tolerant scoring.",
        ("Cell", "Own, published", "Own, here", "Full, published", "Full, here"),
        tuple(rows),
    )


def _figures(pairs: tuple[Beside, ...], known: Published) -> Iterable[Figure]:
    for model in dict.fromkeys(one.ours.model or "" for one in pairs):
        charts = []
        for target in PANELS:
            here = [
                one
                for one in pairs
                if one.ours.model == model and one.theirs.target == target and one.theirs.policy == "tolerant"
            ]
            prompts = tuple(dict.fromkeys(one.theirs.prompt for one in here))
            theirs = tuple(
                Mark(o.theirs.prompt, o.theirs.points, o.theirs.low, o.theirs.high, o.theirs.low is None,
                     f"published {o.theirs.prompt}: {signed(o.theirs.points)} {_theirs(o.theirs)}")
                for o in here
            )  # fmt: skip
            ours = tuple(
                Mark(o.ours.prompt or "", o.ours.points, o.ours.low, o.ours.high, not o.ours.reliable,
                     f"here {o.ours.prompt}: {signed(o.ours.points)} {_n(o.ours)}")
                for o in here
                if o.ours.points is not None
            )  # fmt: skip
            series = (Series("published", 7, theirs), Series("here", 0, ours))
            charts.append(Chart(TITLES[target], Kind.dots, prompts, series, "points", zero=True))
        yield Figure(
            f"{model} beside {known.title}, tolerant scoring",
            f"{known.a} − {known.b} in points with 95 % intervals; n stands in the table. Hollow: no "
            "interval at hand, or one that is too short.",
            tuple(charts),
            ((7, "published"), (0, "here")),
        )
