"""The result of a contrast: one line of meaning under each field."""

from __future__ import annotations

from dataclasses import dataclass

from qfr.analysis.decisions.verdict import Decision
from qfr.analysis.decomposition import Bounds, Decomposition


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A minus B. Differences, ends and bounds in points (-100..100), rates as fractions (0..1)."""

    # --- which; the varied axis is None -----------------------------------------------------------
    model: str | None
    quant: str | None
    prompt: str | None
    fault: str | None
    executor: str | None
    suite: str
    gate: str
    trial: int
    context: str
    # What tells it from another contrast of the same names (a build, a prompt's digest); mostly empty.
    policy: str
    vary: str
    cells: tuple[str, ...]
    # cell_ids of every cell that enters, clean passes included; empty for published tables.
    a: str
    b: str
    target: str
    family: str | None
    # A stratum; None for all tasks.

    # --- tasks ------------------------------------------------------------------------------------
    n_tasks: int
    # Distinct tasks that enter.
    n_tasks_a: int
    n_tasks_b: int
    # Tasks that enter on either side.
    certified_a: int
    certified_b: int
    # Tasks that passed clean (within the family).
    dropped_a: tuple[str, ...] = ()
    dropped_b: tuple[str, ...] = ()
    # Tasks certified on that side that do not enter; not listed again per family.
    undelivered_a: tuple[str, ...] = ()
    undelivered_b: tuple[str, ...] = ()
    # Certified tasks none of whose scheduled faults fired.

    # --- estimate ---------------------------------------------------------------------------------
    rate_a: float | None
    rate_b: float | None
    points: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    resamples: int | None
    seed: int | None
    bayes_low: float | None
    bayes_high: float | None
    # Bayesian bootstrap with half an imagined task at each end: the interval that words rest on.
    bayes_method: str
    # bayesian (one value per task), or bayesian_joint (two sets that share tasks).
    degenerate: bool
    reliable: bool
    reason: str | None
    remarks: tuple[str, ...]

    # --- exact tests over paired tasks; None for own ----------------------------------------------
    favour_a: int | None = None
    favour_b: int | None = None
    ties: int | None = None
    sign_p: float | None = None
    signflip_p: float | None = None
    smallest_p: float | None = None
    # The smallest p that the untied tasks could have given.
    detectable: float | None = None
    # True difference in points that this many tasks find with 80 % power (`power.detectable_difference`);
    # matched and full over all tasks only, None where the interval is flagged.

    # --- the verdict of B against A; None within families and for S* ----------------------------------
    verdict: Decision | None = None
    # By the rule of the gate (`qfr.analysis.decisions.verdict`), at `margin`.

    # --- equivalence within the margin; None where there is no verdict ------------------------------
    margin: float
    # In points.
    equivalence_low: float | None = None
    equivalence_high: float | None = None
    # Two one-sided bounds of level 95 %, in points: the rule of the gate.
    equivalent: bool | None = None
    # Both lie within the margin, and A reaches more than the margin.

    # --- what it is made of; None where it does not apply -------------------------------------------
    decomposition: Decomposition | None = None
    # Full target only.
    bounds: Bounds | None = None
    # Only while a scheduled fault of an entering task did not fire: all of them as failure and as success.
    ungated_bounds: Bounds | None = None
    # Full target only: the difference had faults run on uncertified tasks too, which may have any outcome.
