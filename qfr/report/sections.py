"""Parts of the page: figures as the template shows them, and the sections that hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from qfr.analysis.contrast.ladder import Ladder
from qfr.analysis.frames import told_apart
from qfr.report.charts import Figure
from qfr.report.content.build import Report
from qfr.report.content.outcomes import MEANINGS, Map, agent_name
from qfr.report.contrastfigures import (
    OverPrompts,
    decomposition_figure,
    difference_figure,
    ladder_figure,
    prompt_figures,
)
from qfr.report.figures.draw import drawn, drawn_map, height, label, map_height
from qfr.report.figures.palette import MARK_SIGNS
from qfr.report.layout import Group, shortened
from qfr.report.tables.contrasts import (
    contrast_table,
    further_table,
    interaction_table,
    ladder_table,
    strata_table,
)
from qfr.report.tables.formats import spelled
from qfr.report.tables.specs import Table


@dataclass(frozen=True)
class PanelView:
    """One drawing."""

    title: str
    label: str
    # What a screen reader says.
    spec: str
    height: int
    # CSS pixels.


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend."""

    sign: str
    style: str
    # CSS class.
    name: str


@dataclass(frozen=True)
class FigureView:
    """One figure with its caption."""

    title: str
    caption: str
    panels: tuple[PanelView, ...]
    legend: tuple[LegendEntry, ...]
    agent: bool
    # Of a reference agent.
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """One group: figures and tables."""

    title: str
    agent: bool
    figures: tuple[FigureView, ...]
    contrasts: Table
    further: tuple[Table, ...]
    families: tuple[Table, ...]


@dataclass(frozen=True)
class Illustrated:
    """Figures and tables under one heading."""

    title: str
    agent: bool
    figures: tuple[FigureView, ...]
    tables: tuple[Table, ...]


def figure_view(one: Figure, agent: bool) -> FigureView:
    """Draw a figure."""
    return FigureView(
        title=one.title,
        caption=one.caption + (_AGENT if agent else ""),
        panels=tuple(PanelView(c.title, label(c), drawn(c), height(c)) for c in one.charts),
        legend=tuple(_entry(style, name) for style, name in one.legend),
        agent=agent,
        wide=one.wide or len(one.charts) == 1,
    )


def contrast_section(sides: tuple[Group, ...], how: str) -> Section:
    """Arrange one group under each policy; `how` says how the intervals were computed."""
    first = sides[0]
    drawn_sides = [group for group in sides if group.pairs]
    bars = [one for group in drawn_sides if (one := decomposition_figure(group)) is not None]
    return Section(
        title=first.title,
        agent=first.reference_agent,
        figures=(
            *(figure_view(difference_figure(group, how), first.reference_agent) for group in drawn_sides),
            *(figure_view(one, first.reference_agent) for one in bars),
        ),
        contrasts=contrast_table(sides),
        further=tuple(table for group in sides if (table := further_table(group)).rows),
        families=tuple(strata_table(group) for group in sides if group.families),
    )


def prompt_sections(report: Report, policies: tuple[str, ...]) -> tuple[Illustrated, ...]:
    """Prompt by preset: lines under each policy, differences of differences under the headline policy."""
    agents = set(report.reference_agents)
    found: dict[str, list[OverPrompts]] = {}
    for policy in policies:
        for one in prompt_figures(report, policy):
            found.setdefault(one.title, []).append(one)
    mine = [one for one in report.interactions if one.policy == policies[0]]
    names = shortened(found)
    sections = []
    for title, members in found.items():
        agent, cells = title.split(" · ")[0] in agents, members[0].cells
        table = interaction_table(one for one in mine if cells.issuperset(one.cells))
        figures = tuple(figure_view(one.figure, agent) for one in members)
        sections.append(Illustrated(names[title], agent, figures, (table,) if table.rows else ()))
    return tuple(sections)


def ladder_section(ladder: Ladder, agents: tuple[str, ...]) -> Illustrated:
    """One ladder."""
    agent = ladder.key.model in agents
    return Illustrated(
        title=f"{ladder.key.model} {ladder.key.prompt}, {ladder.policy} scoring",
        agent=agent,
        figures=(figure_view(ladder_figure(ladder), agent),),
        tables=(ladder_table(ladder),),
    )


def map_view(one: Map, title: str, agent: bool, policy: str) -> FigureView:
    """Draw a map of outcomes."""
    seen = sorted({code for row in one.codes for code in row})
    left = f" {one.left_out} tasks, on which the cells differ least, are left out." if one.left_out else ""
    caption = (
        f"One square per task and fault site (rows, {len(one.rows)} sites) and cell (columns), {policy} "
        f"scoring: how the episode ended. Hover for the details; a click opens the transcript below.{left}"
    )
    good = sum(code == 0 for row in one.codes for code in row)
    told = f"{one.title}: {good} of {len(one.rows) * len(one.columns)} squares are successes"
    return FigureView(
        title=title,
        caption=caption + (_AGENT if agent else ""),
        panels=(PanelView("", told, drawn_map(one), map_height(one)),),
        legend=tuple(LegendEntry("■", f"q{code}", MEANINGS[code]) for code in seen),
        agent=agent,
        wide=True,
    )


def log_index(report: Report) -> str:
    """What the viewer needs to know before it unpacks a transcript, as JSON for a script element."""
    given = report.material.transcripts
    cells = () if given is None else given.cells
    told = told_apart((*report.facts, *(one.facts for one in cells)))
    rows = [
        {
            "agent": agent_name(one.facts, told[one.facts.cell_id]),
            "model": spelled(one.facts.model),
            "fault": one.facts.fault,
            "tasks": list(one.tasks),
        }
        for one in cells
    ]
    return json.dumps(rows).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _entry(style: int, name: str) -> LegendEntry:
    return LegendEntry(MARK_SIGNS[style % len(MARK_SIGNS)], f"s{style % len(MARK_SIGNS)}", name)


_AGENT = " Of a reference agent and no evidence about any other model."
