"""Everything a report shows, computed once from finished cells and what else it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pandas as pd

from qfr.analysis import frames
from qfr.analysis.cells import CellSummary, summarize
from qfr.analysis.contrast.ablation import Ablation, ablations
from qfr.analysis.contrast.agreement import Agreement, Spread, agreements, spreads
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.equal_memory import VARY as MEMORY
from qfr.analysis.contrast.equal_memory import equal_memory
from qfr.analysis.contrast.family import Family, Selector, Together, families, together
from qfr.analysis.contrast.groups import Grouped, Interaction, NamedGroup, grouped, interactions
from qfr.analysis.contrast.ladder import Ladder, ladders
from qfr.analysis.contrast.ranking import Ranking, rank
from qfr.analysis.contrast.repair import Repair, repairs
from qfr.analysis.frames import Cell, Joined, contexts
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import Apart, kept_apart
from qfr.analysis.process import Process, Waste, process, wastes
from qfr.analysis.published import Published
from qfr.analysis.results import Contrast, Result
from qfr.analysis.targets import TaskTable
from qfr.analysis.trials import FOREIGN
from qfr.facts import CellFacts
from qfr.records import Policy
from qfr.report.content.diagnosed import Diagnosed, Sources, diagnose
from qfr.report.content.imported import TITLE as IMPORTED_TITLE
from qfr.report.content.imported import only_imported
from qfr.report.content.outcomes import Map, outcome_maps
from qfr.report.content.registration_status import Followed, Registrations, followed
from qfr.report.content.rows import result_rows
from qfr.report.content.transcripts import Transcripts
from qfr.scope import VARIES, varying
from qfr.stats.intervals import Method

if TYPE_CHECKING:
    from qfr.tracking.reading.reader import Reading


@dataclass(frozen=True)
class Measured:
    """What a cell's run cost. None where it was not measured."""

    peak_memory_bytes: float | None = None
    # Largest resident size of the engine's process.
    decode_tokens_per_second: float | None = None
    # Generated tokens over the seconds in which they were decoded.


@dataclass(frozen=True, eq=False)
class Material:
    """Further tables and texts by cell_id; whatever is missing is left out of the report."""

    calls: Callable[[str], pd.DataFrame | None] | None = None
    # One row per call of a cell, as the tracking store returns them; None without diagnostics.
    others: Callable[[str], pd.DataFrame | None] | None = None
    # Failed calls of the other side of an imported log: task, trial, user_errors.
    measured: Mapping[str, Measured] = field(default_factory=dict)
    transcripts: Transcripts | None = None
    # Of the episodes that the viewer shows; None = no viewer.
    runs: Mapping[str, str] = field(default_factory=dict)
    # MLflow run of each cell.
    registrations: Registrations = field(default_factory=Registrations)
    # That the cells ran under.


@dataclass(frozen=True)
class ReportOptions:
    """What the report is to show."""

    vary: str = Axis.quant
    # An axis, a single key, or memory (see `qfr.scope`).
    policy: Policy = Policy.tolerant
    # Headline policy; both are always shown.
    method: Method = Method.EXACT
    resamples: int = 20_000
    seed: int = 0
    title: str = "Recovery from tool failures"
    command: str = ""
    # The command that makes this report again; shown as it is.
    made: str = ""
    # Date and version line; empty = left out.
    margin: float = 5.0
    # Of equivalence, in points (Jang 2026).
    family: tuple[Selector, ...] = ()
    # The declared family of contrasts; empty = none was declared.
    groups: tuple[NamedGroup, ...] = ()
    # Named groups of presets to be contrasted.
    against: Published | None = None
    # Published results to be set beside.
    across_builds: bool = False
    # Also contrast cells of different llama.cpp builds.
    ep_min_calls: int = 2
    # EP: calls of the dead tool before a report counts, as the scores were computed.
    stuck_after: int = 3
    # One call with one answer so often in a row is stuck.
    inferred: bool = False
    # No two cells differed in the asked axis, so what does differ is contrasted.

    @property
    def contrasts(self) -> Options:
        """The part that the contrasts need."""
        return Options(
            vary=self.vary,
            method=self.method,
            resamples=self.resamples,
            seed=self.seed,
            margin=self.margin,
            across_builds=self.across_builds,
        )


@dataclass(frozen=True)
class Gaps:
    """What is not there, as the tracking store knows it. One sentence or name each."""

    missing: tuple[str, ...] = ()
    # Planned cells without a finished run.
    failed: tuple[str, ...] = ()
    # Cells that failed or are unfinished, with the reason.
    alarms: tuple[str, ...] = ()
    # Cells whose finished runs disagree.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A report, ready to be shown."""

    options: ReportOptions
    facts: tuple[CellFacts, ...]
    # Of every cell shown, clean passes included.
    contrasts: tuple[Contrast, ...]
    summaries: tuple[CellSummary, ...]
    at_equal_memory: tuple[Contrast, ...]
    # Model against model, paired by the size of their files; empty where there is one model.
    processes: tuple[Process, ...]
    # One per cell, clean passes included.
    apart: tuple[Apart, ...]
    joined: Joined
    gaps: Gaps
    ranks: tuple[Ranking, ...]
    # Which preset to deploy, by model, setting and policy.
    families: tuple[Family, ...]
    together: tuple[Together, ...]
    # Simultaneous intervals over the prompts; only where presets are contrasted.
    interactions: tuple[Interaction, ...]
    ladders: tuple[Ladder, ...]
    ablations: tuple[Ablation, ...]
    # Clauses of the prompt, the headline policy first.
    wastes: tuple[Waste, ...]
    agreements: tuple[Agreement, ...]
    spreads: tuple[Spread, ...]
    repairs: tuple[Repair, ...]
    # Loops, forced ends and costs per solved episode, by cell and policy.
    grouped: tuple[Grouped, ...]
    maps: tuple[Map, ...]
    diagnosed: Diagnosed | None
    # None without the calls.
    followed: tuple[Followed, ...]
    # How the contrasts stand to each registration of their runs.
    material: Material
    results: tuple[Result, ...] = ()
    # Every number as a row of one table; each view of the report shows rows of it.

    @property
    def reference_agents(self) -> tuple[str, ...]:
        """Models that are reference agents: no evidence about any other model."""
        return tuple(dict.fromkeys(facts.model for facts in self.facts if facts.reference_agent))


def build_report(
    cells: Sequence[Cell],
    options: ReportOptions | None = None,
    gaps: Gaps | None = None,
    material: Material | None = None,
) -> Report:
    """Compute a report.

    Parameters
    ----------
    cells : sequence of Cell
        Finished cells, as `qfr.tracking.reading.reader.read_cells` returns them, each once.
    gaps : Gaps, optional
        What is missing or failed; see `gaps_of`.
    material : Material, optional
        Calls, costs and transcripts; see `qfr.report.content.gather`.

    Raises
    ------
    TableError
        If a level of the varied axis cannot be ordered, or cells of one suite list different tasks.
    LogError
        If a fault cell does not belong to its clean pass.
    """
    chosen, given = options or ReportOptions(), material or Material()
    everything = _with_clean(cells)
    played = tuple(cell for cell in everything if cell.facts.executor != FOREIGN)
    if chosen.title == ReportOptions.title and only_imported(cell.facts for cell in everything):
        chosen = replace(chosen, title=IMPORTED_TITLE)
    joined = frames.join(everything)
    tables, way, seed = joined.tables, chosen.contrasts.bootstrap, chosen.seed
    memory = _at_equal_memory(tables, everything, chosen)
    contrasts, vary = _contrasts(tables, chosen, memory)
    chosen = replace(chosen, vary=vary, inferred=vary != chosen.vary)
    summaries = summarize(tables, way, seed)
    told = contexts(cell.facts for cell in everything)
    processes = tuple(process(cell, told[cell.facts.cell_id]) for cell in everything)
    by_preset = vary == Axis.quant
    report = Report(
        options=chosen,
        facts=tuple(cell.facts for cell in everything),
        contrasts=contrasts,
        summaries=summaries,
        at_equal_memory=memory,
        processes=processes,
        apart=() if vary == MEMORY else kept_apart(tables, vary),
        joined=joined,
        gaps=gaps or Gaps(),
        ranks=rank(tables, _sizes(everything), way, seed, chosen.margin),
        families=families(contrasts, chosen.family),
        together=together(tables, chosen.resamples, seed) if by_preset else (),
        interactions=interactions(tables, way, seed),
        ladders=ladders(summaries, processes),
        ablations=tuple(sorted(ablations(tables, way, seed), key=lambda one: one.policy != chosen.policy)),
        wastes=wastes(
            played,
            replace(way, resamples=2_000),
            seed,
            told,
            stuck_after=chosen.stuck_after,
        ),
        agreements=agreements(joined.tables, seed),
        spreads=spreads(joined.tables),
        repairs=tuple(repairs(joined.tables, processes)),
        grouped=grouped(tables, chosen.groups, way, seed),
        maps=outcome_maps(everything, tables, chosen.policy),
        diagnosed=None
        if given.calls is None
        else diagnose(cells, Sources(given.calls, given.others), chosen.policy, seed, chosen.ep_min_calls),
        followed=followed(given.registrations, contrasts, tuple(cell.facts for cell in everything)),
        material=given,
    )
    return replace(report, results=result_rows(report))


def _contrasts(
    tables: Sequence[TaskTable], options: ReportOptions, memory: tuple[Contrast, ...]
) -> tuple[tuple[Contrast, ...], str]:
    """The contrasts along the asked axis; where presets were asked for and none differ, along what does."""
    if options.vary == MEMORY:
        return memory, MEMORY
    found = contrast_table(tables, options.contrasts)
    if found or options.vary != Axis.quant:
        return found, options.vary
    keys = [key for key, _ in varying(table.scope for table in tables)]
    for vary in (*(axis for axis in VARIES if axis != Axis.quant), *keys):
        if other := contrast_table(tables, replace(options.contrasts, vary=vary)):
            return other, vary
    return (), options.vary


def _at_equal_memory(
    tables: Sequence[TaskTable], cells: Iterable[Cell], options: ReportOptions
) -> tuple[Contrast, ...]:
    facts = [cell.facts for cell in cells]
    sizes = {(f.model, f.quant, f.model_sha256): float(f.model_bytes) for f in facts if f.model_bytes > 0}
    return equal_memory([table for table in tables if table.key.fault != "none"], sizes, options.contrasts)


def _sizes(cells: Iterable[Cell]) -> dict[str, int]:
    """Bytes of each GGUF, by its SHA-256."""
    return {cell.facts.model_sha256: cell.facts.model_bytes for cell in cells if cell.facts.model_bytes > 0}


def gaps_of(reading: Reading) -> Gaps:
    """Return what a reading of the tracking store lacks."""
    return Gaps(
        missing=tuple(cell.name for cell in reading.missing),
        failed=tuple(
            # The rest of a failure (the engine's log) stands in the run's failure.txt.
            f"{cell.facts.name}: {cell.failure.partition(chr(10))[0] or cell.status.lower()}"
            for cell in reading.unfinished
        ),
        alarms=tuple(
            f"{alarm.name} ({alarm.cell_id}): {len(alarm.runs)} finished runs with different logs"
            for alarm in reading.alarms
        ),
        notes=reading.notes,
    )


def _with_clean(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Add clean passes that came with their fault cells only."""
    given = tuple(cells)
    known = {cell.facts.cell_id for cell in given}
    added = {}
    for cell in given:
        if cell.clean is not None and cell.clean.facts.cell_id not in known:
            added[cell.clean.facts.cell_id] = cell.clean
    return (*given, *added.values())
