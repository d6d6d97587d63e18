"""One self-contained HTML page: plotly.js and all data inside, no network, model text shown as text only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

import jinja2

from qfr.analysis.trials import FOREIGN
from qfr.records import Policy
from qfr.report.content.build import Report
from qfr.report.content.imported import only_imported
from qfr.report.content.transcripts import Transcripts
from qfr.report.figures.palette import dark_of_light, script
from qfr.report.layout import groups, memory_groups, shortened
from qfr.report.notices import Notice, notices
from qfr.report.processfigures import process_figures
from qfr.report.sections import (
    FigureView,
    Illustrated,
    Section,
    contrast_section,
    figure_view,
    ladder_section,
    log_index,
    map_view,
    prompt_sections,
)
from qfr.report.tables.cells import (
    cell_ids,
    counted_table,
    dropped_table,
    full_tables,
    process_table,
    provenance_tables,
    recovery_tables,
)
from qfr.report.tables.contrasts import family_table, group_table, together_table
from qfr.report.tables.effects import ablation_sections, agreement_tables, repair_sections
from qfr.report.tables.formats import spelled
from qfr.report.tables.imported import log_table, made_table
from qfr.report.tables.process import parting_table, process_tables, rerun_table, waste_table
from qfr.report.tables.ranking import ONE_LOOK, Ranking, rankings
from qfr.report.tables.registration import standing_table
from qfr.report.tables.replication import Replication, replication
from qfr.report.tables.specs import Table
from qfr.report.words import Answer, answers, overview, varies

#: A longer text is cut on the page; the files hold it whole.
LONGEST_TEXT = 400
_UNREGISTERED = (
    "No cell of this report ran under a registration: every contrast is exploratory. mode=register freezes a "
    "grid and its analysis before it runs."
)


@dataclass(frozen=True)
class NamedTable:
    """A table under a heading."""

    policy: str
    name: str
    table: Table


@dataclass(frozen=True)
class Plan:
    """How the report stands to one registration."""

    title: str
    summary: str
    missing: tuple[str, ...]
    table: Table


@dataclass(frozen=True)
class Page:
    """All that the template shows."""

    title: str
    made: str
    policy: str
    # The headline policy.
    command: str
    agents: tuple[str, ...]
    varies: str
    # What differs between the settings shown; empty where names say it all.
    overview: tuple[str, ...]
    rankings: tuple[Ranking, ...]
    one_look: str
    # Under which conditions the verdicts hold.
    answers: tuple[Answer, ...]
    notices: tuple[Notice, ...]
    imported: Table
    # Imported logs; no rows where there is none.
    logs_only: bool
    # The report is of imported logs alone: nothing was injected.
    plans: tuple[Plan, ...]
    unregistered: str
    # One sentence where nothing was registered; empty otherwise.
    sections: tuple[Section, ...]
    memory: tuple[Section, ...]
    # Model against model at equal memory.
    prompts: tuple[Illustrated, ...]
    ladders: tuple[Illustrated, ...]
    ablations: tuple[Illustrated, ...]
    repairs: tuple[Illustrated, ...]
    # Clauses of the prompt, with and without.
    several: tuple[Table, ...]
    # Several contrasts at once: adjusted tests, simultaneous intervals, named groups.
    recovery: tuple[NamedTable, ...]
    full: tuple[NamedTable, ...]
    process: tuple[Illustrated, ...]
    reruns: Table | None
    # None without a real rerun under a tighter budget.
    process_tables: tuple[Table, ...]
    maps: tuple[FigureView, ...]
    transcripts: Transcripts | None
    log_index: str
    partings: Table
    replication: Replication | None
    beside: tuple[FigureView, ...]
    # Figures of the replication.
    clean: Table
    faulted: Table
    permanent: Table | None
    waste: Table | None
    # Loops, forced ends, costs per solved episode.
    dropped: Table
    provenance: tuple[Table, ...]
    ids: Table


def render_page(report: Report) -> str:
    """Return the page as HTML text, pure UTF-8 without lone surrogates."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["clip"] = clip
    environment.loader = jinja2.FunctionLoader(_asset)
    text = environment.get_template("page.html").render(
        page=page_of(report),
        style=_asset("page.css"),
        behaviour=_asset("page.js") + _asset("viewer.js"),
        plotly=script(),
        colours=json.dumps(dark_of_light()),
    )
    return spelled(text)


def page_of(report: Report) -> Page:
    """Arrange a report for the template."""
    options = report.options
    policies = (options.policy, *(policy for policy in Policy if policy is not options.policy))
    logs_only = only_imported(report.facts)
    if logs_only:
        # Success is the log's own word: both policies say the same.
        policies = policies[:1]
    names = tuple(policy.value for policy in policies)
    by_policy = [groups(report, name) for name in names]
    by_memory = [memory_groups(report, name) for name in names]
    how = interval_method(report)
    agents = report.reference_agents
    given = report.material.transcripts
    beside = replication(report)
    return Page(
        title=options.title,
        made=options.made,
        policy=options.policy.value,
        command=options.command,
        agents=agents,
        varies=varies(report),
        overview=overview(report),
        rankings=rankings(report),
        one_look=ONE_LOOK,
        answers=answers(report),
        notices=notices(report),
        imported=log_table(report),
        logs_only=logs_only,
        plans=tuple(
            Plan(one.title, one.summary, one.missing, standing_table(one, report.contrasts))
            for one in report.followed
        ),
        unregistered="" if report.followed or logs_only else _UNREGISTERED,
        sections=tuple(contrast_section(sides, how) for sides in zip(*by_policy, strict=True)),
        memory=tuple(contrast_section(sides, how) for sides in zip(*by_memory, strict=True)),
        prompts=prompt_sections(report, names),
        ladders=tuple(ladder_section(one, agents) for one in report.ladders if one.policy == names[0]),
        ablations=ablation_sections(report),
        repairs=repair_sections(report),
        several=_several(report),
        recovery=tuple(NamedTable(p, *row) for p in names for row in recovery_tables(report, p)),
        full=tuple(NamedTable(p, *row) for p in names for row in full_tables(report, p)),
        process=_process(report),
        reruns=_reruns(report),
        process_tables=process_tables(report.results),
        maps=_maps(report),
        transcripts=given,
        log_index=log_index(report),
        partings=parting_table(report.results),
        replication=beside,
        beside=() if beside is None else tuple(figure_view(one, False) for one in beside.figures),
        clean=process_table(report.results, faulted=False),
        faulted=process_table(report.results, faulted=True),
        permanent=counted_table(report.results),
        waste=waste_table(report),
        dropped=dropped_table(report),
        provenance=tuple(
            one
            for one in (
                made_table(report),
                *provenance_tables(tuple(f for f in report.facts if f.executor != FOREIGN)),
            )
            if one.rows
        ),
        ids=cell_ids(report.facts),
    )


def interval_method(report: Report) -> str:
    """Say how the intervals were computed."""
    options = report.options
    if options.method.value == "exact":
        return "the exact bootstrap distribution"
    return f"{options.resamples:,} Monte Carlo resamples, seed {options.seed}"


def clip(text: str) -> str:
    """Return at most `LONGEST_TEXT` characters, saying how many there were."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"


def _several(report: Report) -> tuple[Table, ...]:
    policy = report.options.policy.value
    families = [
        family_table(report.contrasts, family)
        for family in report.families
        if family.declared or _headline(report, family.members[0].place if family.members else None)
    ]
    together = [one for one in report.together if one.policy == policy]
    tables = (*families, together_table(together), group_table(report.grouped))
    tables = (*tables, *agreement_tables(report))
    return tuple(table for table in tables if table.rows)


def _headline(report: Report, place: int | None) -> bool:
    if place is None:
        return False
    one = report.contrasts[place]
    return one.target == "full" and one.policy == report.options.policy.value


def _process(report: Report) -> tuple[Illustrated, ...]:
    if report.diagnosed is None:
        return ()
    agents = set(report.reference_agents)
    found = process_figures(report.diagnosed, report.results)
    names = shortened(title for title, _ in found)
    return tuple(
        Illustrated(
            title=names[title],
            agent=title.split(" · ")[0] in agents,
            figures=tuple(figure_view(one, title.split(" · ")[0] in agents) for one in figures),
            tables=(),
        )
        for title, figures in found
    )


def _reruns(report: Report) -> Table | None:
    found = rerun_table(report.results)
    return found if found.rows else None


def _maps(report: Report) -> tuple[FigureView, ...]:
    agents, policy = set(report.reference_agents), report.options.policy.value
    names = shortened(one.title for one in report.maps)
    return tuple(map_view(one, names[one.title], one.model in agents, policy) for one in report.maps)


def _asset(name: str) -> str:
    return files("qfr.report").joinpath(name).read_text(encoding="utf-8")
