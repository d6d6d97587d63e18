"""One self-contained HTML page: plotly.js and all data inside, no network, model text shown as text only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

import jinja2

from qfr.records import Policy
from qfr.report import cellviews, views
from qfr.report.build import Report
from qfr.report.figures import MARK_SIGNS, Panel, dark_of_light, panels, script
from qfr.report.layout import Group, groups
from qfr.report.notices import Notice, notices
from qfr.report.tables import spelled
from qfr.report.words import Answer, answers, overview

#: A longer text is cut on the page; the files hold it whole.
LONGEST_TEXT = 400


@dataclass(frozen=True)
class FigureView:
    """One figure: three panels under one policy."""

    policy: str
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]
    # Mark and pair of levels, one per series.
    left_out: int
    # Pairs that stand in the table only.


@dataclass(frozen=True)
class Section:
    """One group: figures and tables."""

    title: str
    agent: bool
    figures: tuple[FigureView, ...]
    contrasts: views.Table
    further: tuple[views.Table, ...]
    families: tuple[views.Table, ...]


@dataclass(frozen=True)
class Page:
    """All that the template shows."""

    title: str
    made: str
    command: str
    policy: str
    agents: tuple[str, ...]
    overview: tuple[str, ...]
    answers: tuple[Answer, ...]
    glance: views.Table
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    recovery: tuple[tuple[str, str, views.Table], ...]
    # Policy, model, table.
    clean: views.Table
    faulted: views.Table
    permanent: views.Table | None
    provenance: tuple[views.Table, ...]
    ids: views.Table
    interval: str
    # How the intervals were computed.


def render_page(report: Report) -> str:
    """Return the page as HTML text, pure UTF-8 without lone surrogates."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["clip"] = clip
    template = environment.from_string(_asset("page.html"))
    text = template.render(
        page=page_of(report),
        style=_asset("page.css"),
        behaviour=_asset("page.js"),
        plotly=script(),
        colours=json.dumps(dark_of_light()),
    )
    return spelled(text)


def page_of(report: Report) -> Page:
    """Arrange a report for the template."""
    headline = report.options.policy
    policies = (headline, *(policy for policy in Policy if policy is not headline))
    by_policy = [groups(report, policy.value) for policy in policies]
    sections = tuple(_section(sides) for sides in zip(*by_policy, strict=True))
    recovery = tuple(
        (policy.value, name, table)
        for policy in policies
        for name, table in cellviews.recovery_tables(report, policy.value)
    )
    options = report.options
    return Page(
        title=options.title,
        made=options.made,
        command=options.command,
        policy=headline.value,
        agents=report.reference_agents,
        overview=overview(report),
        answers=answers(report),
        glance=cellviews.glance_table(report),
        notices=notices(report),
        sections=sections,
        recovery=recovery,
        clean=cellviews.process_table(report.processes, faulted=False),
        faulted=cellviews.process_table(report.processes, faulted=True),
        permanent=cellviews.permanent_table(report.processes),
        provenance=cellviews.provenance_tables(report.facts),
        ids=cellviews.cell_ids(report.facts),
        interval="the exact bootstrap distribution"
        if options.method.value == "exact"
        else f"{options.resamples:,} Monte Carlo resamples, seed {options.seed}",
    )


def clip(text: str) -> str:
    """Return at most `LONGEST_TEXT` characters, saying how many there were."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"


def _section(sides: tuple[Group, ...]) -> Section:
    first = sides[0]
    return Section(
        title=first.title,
        agent=first.reference_agent,
        figures=tuple(_figure(group) for group in sides if group.pairs),
        contrasts=views.contrast_table(sides),
        further=tuple(views.further_table(group) for group in sides),
        families=tuple(views.family_table(group) for group in sides if group.families),
    )


def _figure(group: Group) -> FigureView:
    drawn = group.drawn_pairs
    signs = [MARK_SIGNS[at % len(MARK_SIGNS)] for at in range(len(drawn))]
    legend = tuple((sign, f"{a} − {b}") for sign, (a, b) in zip(signs, drawn, strict=True))
    return FigureView(group.policy, panels(group), legend, len(group.pairs) - len(drawn))


def _asset(name: str) -> str:
    return files("qfr.report").joinpath(name).read_text(encoding="utf-8")
