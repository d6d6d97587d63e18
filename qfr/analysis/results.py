"""`Result`, the row of the one table of results that every view shows, and `Contrast`, its richest kind.

A line of meaning stands under each field; docs/data_dictionary.md is made from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from qfr.analysis.decisions.verdict import Decision
from qfr.canonical import digest

_NOT_IN_AN_ID = re.compile("[^a-z0-9]+")


#: Of the columns, in every JSON that holds rows.
VERSION = 2

Plain = None | bool | int | float | str | tuple[str, ...]


class Kind(StrEnum):
    """What a row is about, in the order of the table."""

    contrast = "contrast"
    # Level A minus level B of the varied axis, all else equal.
    rate = "rate"
    # Success of one cell: own, full, clean, s_star, and its episodes with a Wilson interval.
    rank = "rank"
    # A preset's full pipeline, averaged over the prompts that all presets share, and under each prompt.
    simultaneous = "simultaneous"
    # A contrast with an interval that holds for all prompts at once.
    interaction = "interaction"
    # A difference of differences: A minus B under `prompt`, minus the same under `item`.
    group = "group"
    # A named group of presets minus another, on shared tasks.
    ladder = "ladder"
    # A preset under one kind of fault, on its own certified tasks.
    gap = "gap"
    # S(K) of the highest preset A minus that of B, at one error budget; the band holds for all budgets.
    amplification = "amplification"
    # How much more often B than A shows an event: ratios, and the difference per task.
    recovery = "recovery"
    # What follows a failed call: shares recovered, turns and tokens until then.
    channel = "channel"
    # How often a kind of failed call or of harmful behaviour happens, per call and per episode.
    budget = "budget"
    # S(K), success when an episode may fail K calls, under one counting rule (`target`).
    rerun = "rerun"
    # A recounted error budget beside a real rerun under it.
    novelty = "novelty"
    # Whether B fails in ways that A never shows.
    length = "length"
    # Turns and tokens per episode, by outcome (`target`).
    margin = "margin"
    # Logit margins of right and wrong turns.
    foretold = "foretold"
    # Whether A's narrow margins foretell what B loses.
    divergence = "divergence"
    # Where the episodes of two presets part.
    counted = "count"
    # What happened in a cell, counted.
    cost = "cost"
    # Size of a preset's file, and the memory and speed of its runs.
    ablation = "ablation"
    # A clause of the prompt: with it minus without it, and that minus the same at the highest preset.
    waste = "waste"
    # Loops and forced ends of a cell, what a solved episode cost, and the ratio to the highest preset.
    agreement = "agreement"
    # The order of the presets in two places that differ in one thing: tau-b and Spearman's rho (`item`).
    spread = "spread"
    # Largest rate minus smallest along the axis `vary`, all else equal: mean over places (`high` = largest).
    repair = "repair"
    # The request to repair failed calls: tasks won (A) and lost (B), turns and tokens with and without it.
    imported = "imported"
    # What an imported log says of itself: success, pass^k, simulations in no rate.
    published = "published"
    # A number that was printed elsewhere.


@dataclass(frozen=True, kw_only=True)
class Result:
    """One number and all that is said of it: a row of the one table that every view shows.

    A difference stands in `points` (-100..100), any other number in `value`, in its `unit`; `low` and `high`
    are ends of the same. ``_a`` and ``_b`` are the two sides; a row about one cell or preset fills ``_a``.
    What does not apply, or cannot be estimated, is None; `reason` says why.
    """

    # --- which ------------------------------------------------------------------------------------
    id: str
    # Short name of the row, the same in every report of the same cells: `qfr report --explain ID`.
    kind: str
    # contrast, rate (of one cell), rank, interaction, group, ladder, gap and so on.
    scope: str = ""
    # The keys that tell it from a row of the same names (a build, a prompt's text); mostly empty.
    model: str | None = None
    # Short name of the model; empty when it is the varied axis, as are the next four.
    level: str | None = None
    # Preset, as llama.cpp names it, or level of a table file.
    prompt: str | None = None
    # Name of the system prompt; of an interaction, the first one.
    fault: str | None = None
    # Kind of fault; none for a clean pass.
    executor: str | None = None
    # How text becomes calls.
    suite: str | None = None
    # Name of the suite of tasks.
    gate: str | None = None
    # On which tasks fault episodes ran: certified, or none (on all).
    trial: int | None = None
    # Repetition of the cell, 0 for the first.
    policy: str | None = None
    # Scoring policy: tolerant or strict; empty where it does not matter.
    vary: str | None = None
    # The axis or key whose levels are contrasted; memory = models at equal size of their files.
    a: str | None = None
    # Level A, with what tells two files of one name apart: a difference is A minus B.
    b: str | None = None
    # Level B; empty for a row about one cell.
    target: str | None = None
    # What is estimated: clean, own, matched, full, s_star, ungated, or what the kind of row counts.
    family: str | None = None
    # Tasks of one family only (a stratum); empty = all tasks.
    item: str = ""
    # What the number is of, where the kind alone does not say it: an event, a budget, a prompt.

    # --- tasks and counts ----------------------------------------------------------------------------
    n_tasks: int | None = None
    # Distinct tasks that enter.
    n_tasks_a: int | None = None
    # Tasks that enter on A's side.
    n_tasks_b: int | None = None
    # Tasks that enter on B's side.
    certified_a: int | None = None
    # Tasks that A passed clean.
    certified_b: int | None = None
    # Tasks that B passed clean.
    count_a: int | None = None
    # What was counted on A's side: successful episodes, occurrences of an event.
    of_a: int | None = None
    # Out of so many: delivered episodes, calls.
    count_b: int | None = None
    # The same on B's side.
    of_b: int | None = None
    # The same on B's side.

    # --- estimate ------------------------------------------------------------------------------------
    rate_a: float | None = None
    # A's mean over its tasks, 0..1.
    rate_b: float | None = None
    # B's mean over its tasks.
    points: float | None = None
    # The difference A minus B in points.
    value: float | None = None
    # The number of a row that is no difference, in its unit.
    unit: str = "points"
    # points, rate (0..1), ratio, turns, tokens, tokens_per_second, logits, area, bytes, p or number.
    low: float | None = None
    # Lower end of the interval, in the same unit.
    high: float | None = None
    # Upper end of the interval.
    confidence: float | None = None
    # Nominal level of the interval.
    method: str | None = None
    # exact or montecarlo (task bootstrap), wilson (episodes), range or quantiles (no confidence interval).
    resamples: int | None = None
    # Number of resamples, where they were drawn.
    seed: int | None = None
    # Of a montecarlo bootstrap.
    bayes_low: float | None = None
    # Lower end of the interval that words rest on: Bayesian bootstrap with half an imagined task at each end.
    bayes_high: float | None = None
    # Upper end of that interval.
    bayes_method: str | None = None
    # bayesian (one value per task), or bayesian_joint (two sets that share tasks).
    strata_low: float | None = None
    # Lower end of the interval that resamples within families; where the design fixes counts per family.
    strata_high: float | None = None
    # Upper end of that interval.
    critical: float | None = None
    # Simultaneous intervals: their half-width in standard errors.

    # --- flags ---------------------------------------------------------------------------------------
    degenerate: bool | None = None
    # The resampled value does not vary at all; `reason` says why.
    reliable: bool | None = None
    # False = the interval rests on few or nearly equal tasks and covers less than it says.
    reason: str | None = None
    # Why there is no estimate, or why it is degenerate or not reliable.
    remarks: tuple[str, ...] = ()
    # What a reader should know besides.

    # --- exact tests over paired tasks; None for own ---------------------------------------------------
    favour_a: int | None = None
    # Paired tasks on which A did better.
    favour_b: int | None = None
    # Paired tasks on which B did better.
    ties: int | None = None
    # Paired tasks on which they did equally well.
    sign_p: float | None = None
    # Two-sided exact sign test over the tasks that are not tied.
    signflip_p: float | None = None
    # Two-sided exact sign-flip test over the task differences.
    smallest_p: float | None = None
    # The smallest p that the untied tasks could have given.
    sign_holm_p: float | None = None
    # sign_p adjusted by Holm's method over the family of tests.
    sign_bh_p: float | None = None
    # sign_p adjusted by Benjamini and Hochberg's method.
    signflip_holm_p: float | None = None
    # signflip_p adjusted by Holm's method.
    signflip_bh_p: float | None = None
    # signflip_p adjusted by Benjamini and Hochberg's method.
    declared_family: bool | None = None
    # The family of tests was declared beforehand; else it is this target and policy over all tasks.
    fisher_p: float | None = None
    # Groups: Fisher's exact test of the pooled episodes, which are not independent within a task.
    odds_ratio: float | None = None
    # Groups: odds ratio of the pooled episodes.

    # --- verdict of B against A ------------------------------------------------------------------------
    verdict: str | None = None
    # In words, by the rule of qfr compare, at the margin.
    detectable_points: float | None = None
    # True difference that this many tasks, spread as observed, find with 80 % power.
    margin_points: float | None = None
    # Margin of "not worse" and of equivalence.
    equivalence_low_points: float | None = None
    # Lower of the two one-sided bounds of level 95 % that decide on equivalence.
    equivalence_high_points: float | None = None
    # Upper one.
    equivalent: bool | None = None
    # Both lie within the margin; empty where it cannot be told.

    # --- what a difference of the full pipeline is made of ----------------------------------------------
    shared_points: float | None = None
    # Part from tasks that both passed clean.
    only_a_points: float | None = None
    # Part from tasks that only A passed clean.
    only_b_points: float | None = None
    # Part from tasks that only B passed clean.
    screening_points: float | None = None
    # Part from the clean pass: which tasks came to a fault at all.
    own_rates_points: float | None = None
    # Part from the rates on own sets: each side on the tasks that it certified.
    undelivered_low_points: float | None = None
    # Lowest difference that faults that never fired allow; empty when all fired.
    undelivered_high_points: float | None = None
    # Highest difference that they allow.
    ungated_low_points: float | None = None
    # Lowest difference had faults run on uncertified tasks too; full only.
    ungated_high_points: float | None = None
    # Highest such difference, whatever their outcomes.

    # --- where it comes from -------------------------------------------------------------------------
    dropped_a: tuple[str, ...] = ()
    # Tasks certified for A that do not enter.
    dropped_b: tuple[str, ...] = ()
    # Tasks certified for B that do not enter.
    undelivered_a: tuple[str, ...] = ()
    # Certified tasks of A none of whose scheduled faults fired.
    undelivered_b: tuple[str, ...] = ()
    # Certified tasks of B none of whose scheduled faults fired.
    registration: str | None = None
    # Id of the registration that it is set against; empty for none.
    standing: str | None = None
    # Contrasts: planned, deviated or exploratory.
    standing_reason: str | None = None
    # Why it is not as planned; empty for a planned one.
    cells: tuple[str, ...] = ()
    # cell_ids of every cell that enters, clean passes included (runs.csv has their MLflow runs); empty for
    # published tables.


@dataclass(frozen=True, kw_only=True)
class Contrast(Result):
    """A row that is A minus B, as the analysis makes it: what other rows may lack is there."""

    kind: str = Kind.contrast
    suite: str
    gate: str
    trial: int
    policy: str
    vary: str
    a: str
    b: str
    target: str
    n_tasks: int
    n_tasks_a: int
    n_tasks_b: int
    certified_a: int
    certified_b: int
    confidence: float
    method: str
    degenerate: bool
    reliable: bool
    margin_points: float
    decision: Decision | None = None
    # By the rule of the gate (`decisions.verdict`), all that `verdict` rests on; not in families, not for S*.

    @property
    def quant(self) -> str | None:
        """The level, by the name of its axis."""
        return self.level


def identified(found: Contrast) -> Contrast:
    """Return the contrast with the id of what it is about (see `row_id`)."""
    sides = found.cells or (found.model, found.level, found.prompt, found.a, found.b, found.suite)
    fixed = next((name for name in (found.prompt, found.level, found.model) if name), None)
    identity = ("contrast", *sides, found.vary, found.target, found.policy, found.family)
    return replace(found, id=row_id((found.target, fixed, found.family), identity))


#: Columns of the table, in order.
COLUMNS = tuple(one.name for one in fields(Result))


def row_id(words: Iterable[str | None], identity: Sequence[object]) -> str:
    """Return a short name of a row: a few words to read, and a digest of what it is about.

    Parameters
    ----------
    words : iterable of str
        Shown in front; empty ones are left out.
    identity : sequence
        All that tells the row from another one; nothing about how it was computed.
    """
    shown = [_NOT_IN_AN_ID.sub("_", word.lower()).strip("_")[:12] for word in words if word]
    return "-".join([*(word for word in shown if word), digest(list(identity))[:8]])


def tidy(value: float | None, scale: float = 1.0) -> float | None:
    """Return a number without the rounding error of its computation: 27.5, not 27.500000000000004."""
    return None if value is None else round(scale * value, 10) + 0.0
