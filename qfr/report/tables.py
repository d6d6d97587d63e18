"""Analysis results as pandas tables, one row per contrast or cell; units stand in the column names.

``…_points`` are differences in points (-100..100), ``…_rate`` fractions (0..1), ``…_tasks``,
``…_episodes``, ``…_turns`` and ``…_calls`` counts, ``…_p`` p values. A missing value is what could not be
estimated; ``reason`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from qfr.analysis.cells import CellSummary
from qfr.analysis.family import AdjustedContrast, families
from qfr.analysis.process import Process
from qfr.analysis.results import Contrast
from qfr.facts import CellFacts
from qfr.faults import USUAL
from qfr.registration.status import Standing
from qfr.report.build import Report
from qfr.report.columns import CELLS, CONTRASTS, PROCESS
from qfr.report.registration_status import best
from qfr.report.text import spelled

_COUNTS = frozenset({"trial", "resamples", "seed", "episodes", "turns"})
_FLAGS = frozenset({"degenerate", "reliable", "equivalent", "declared_family"})
_FACTS = tuple(name for name in CellFacts.__dataclass_fields__ if name != "config")
_Value = str | int | float | bool | None


def contrast_frame(report: Report) -> pd.DataFrame:
    """Return one row per contrast, target, policy and family.

    ``sign_holm_p`` … ``signflip_bh_p`` adjust the tests over the declared family; where none is declared,
    over this report's contrasts of the same target and policy over all tasks.
    """
    adjusted = {one.place: (family, one) for family in report.families for one in family.members}
    rows = []
    for at, contrast in enumerate(report.contrasts):
        family, one = adjusted.get(at, (None, None))
        registration, stood = best(report.followed, at)
        rows.append(
            _contrast_row(contrast)
            | _adjusted_row(one, family.declared if family else None)
            | {
                "registration": registration,
                "standing": str(stood.standing),
                "standing_reason": "; ".join(stood.reasons),
            }
        )
    unplanned = "model against model at equal memory is not among the planned contrasts"
    # They are no part of a declared family.
    apart = () if report.options.family else families(report.at_equal_memory, ())
    own = {one.place: one for family in apart for one in family.members}
    for at, contrast in enumerate(report.at_equal_memory):
        rows.append(
            _contrast_row(contrast)
            | _adjusted_row(own.get(at), False if at in own else None)
            | {"registration": "", "standing": str(Standing.exploratory), "standing_reason": unplanned}
        )
    return _frame(rows, CONTRASTS)


def cell_frame(report: Report) -> pd.DataFrame:
    """Return one row per cell, policy and family."""
    return _frame([_cell_row(summary) for summary in report.summaries], CELLS)


def process_frame(report: Report) -> pd.DataFrame:
    """Return one row per cell (clean passes included) and policy: how its episodes went."""
    return _frame([row for one in report.processes for row in _process_rows(one)], PROCESS)


def provenance_frame(report: Report) -> pd.DataFrame:
    """Return one row per cell: ids, digests, build, settings, code."""
    return _frame([_facts_row(facts) for facts in report.facts], _FACTS)


def metrics(report: Report) -> dict[str, float]:
    """Return the contrasts over all tasks by name, such as ``full/tolerant/llama P0 Q8_0-Q4_K_M points``."""
    found: dict[str, float] = {}
    for c in report.contrasts:
        if c.family is not None:
            continue
        names = (c.model, c.quant, c.prompt, c.fault if c.fault != USUAL else None)
        fixed = " ".join(name for name in names if name)
        name = f"{c.target}/{c.policy}/{fixed} {c.a}-{c.b}"
        if c.context:
            name += f" ({c.context})"
        for unit, value in (("points", c.points), ("low_points", c.low), ("high_points", c.high)):
            if value is not None:
                found[f"{name} {unit}"] = value
    return found


def _contrast_row(c: Contrast) -> dict[str, _Value]:
    return {
        "model": c.model,
        "quant": c.quant,
        "prompt": c.prompt,
        "fault": c.fault,
        "executor": c.executor,
        "suite": c.suite,
        "gate": c.gate,
        "trial": c.trial,
        "context": c.context,
        "policy": c.policy,
        "vary": c.vary,
        "a": c.a,
        "b": c.b,
        "target": c.target,
        "family": c.family,
        "n_tasks": c.n_tasks,
        "a_tasks": c.n_tasks_a,
        "b_tasks": c.n_tasks_b,
        "a_certified_tasks": c.certified_a,
        "b_certified_tasks": c.certified_b,
        "a_rate": c.rate_a,
        "b_rate": c.rate_b,
        "difference_points": c.points,
        "low_points": c.low,
        "high_points": c.high,
        "confidence_rate": c.level,
        "method": c.method,
        "resamples": c.resamples,
        "seed": c.seed,
        "degenerate": c.degenerate,
        "reliable": c.reliable,
        "reason": c.reason,
        "a_better_tasks": c.favour_a,
        "b_better_tasks": c.favour_b,
        "tied_tasks": c.ties,
        "sign_p": c.sign_p,
        "signflip_p": c.signflip_p,
        "smallest_p": c.smallest_p,
        "detectable_points": c.detectable,
        "margin_points": c.margin,
        "equivalence_low_points": c.equivalence_low,
        "equivalence_high_points": c.equivalence_high,
        "equivalent": c.equivalent,
        **_split_row(c),
        "a_dropped_task_names": " ".join(c.dropped_a),
        "b_dropped_task_names": " ".join(c.dropped_b),
        "a_undelivered_task_names": " ".join(c.undelivered_a),
        "b_undelivered_task_names": " ".join(c.undelivered_b),
        "remarks": " ".join(c.remarks),
    }


def _split_row(c: Contrast) -> dict[str, _Value]:
    split, lost, open_ = c.decomposition, c.bounds, c.ungated_bounds
    return {
        "shared_points": split.shared if split else None,
        "only_a_points": split.only_a if split else None,
        "only_b_points": split.only_b if split else None,
        "screening_points": split.screening if split else None,
        "own_rates_points": split.own_rates if split else None,
        "undelivered_low_points": lost.low if lost else None,
        "undelivered_high_points": lost.high if lost else None,
        "ungated_low_points": open_.low if open_ else None,
        "ungated_high_points": open_.high if open_ else None,
    }


def _adjusted_row(one: AdjustedContrast | None, declared: bool | None) -> dict[str, _Value]:
    return {
        "sign_holm_p": one.sign_holm if one else None,
        "sign_bh_p": one.sign_bh if one else None,
        "signflip_holm_p": one.signflip_holm if one else None,
        "signflip_bh_p": one.signflip_bh if one else None,
        "declared_family": declared,
    }


def _key_row(row: CellSummary | Process) -> dict[str, _Value]:
    key = row.key
    return {
        "model": key.model,
        "quant": key.quant,
        "prompt": key.prompt,
        "fault": key.fault,
        "executor": key.executor,
        "suite": key.suite,
        "gate": key.gate,
        "trial": key.trial,
        "context": key.context,
    }


def _cell_row(s: CellSummary) -> dict[str, _Value]:
    return {
        **_key_row(s),
        "policy": s.policy,
        "family": s.family,
        "n_tasks": s.n_tasks,
        "certified_tasks": s.n_certified,
        "clean_rate": s.clean.value,
        "clean_low_rate": s.clean.low,
        "clean_high_rate": s.clean.high,
        "own_rate": s.own.value,
        "own_low_rate": s.own.low,
        "own_high_rate": s.own.high,
        "own_reliable": s.own.reliable,
        "own_reason": s.own.reason,
        "successful_episodes": s.successes,
        "delivered_episodes": s.episodes,
        "episode_rate": s.episode_rate.value,
        "wilson_low_rate": s.episode_rate.low,
        "wilson_high_rate": s.episode_rate.high,
        "full_rate": s.full.value,
        "full_low_rate": s.full.low,
        "full_high_rate": s.full.high,
        "full_reliable": s.full.reliable,
        "s_star_tasks": s.n_s_star,
        "s_star_rate": s.s_star.value,
        "scheduled_episodes": s.scheduled,
        "undelivered_episodes": s.undelivered,
        "undelivered_task_names": " ".join(s.undelivered_tasks),
    }


def _process_rows(one: Process) -> list[dict[str, _Value]]:
    shared: dict[str, _Value] = {
        **_key_row(one),
        "episodes": one.episodes,
        "n_tasks": one.tasks,
        "turns": one.turns,
        "not_strict_turns": one.turns_not_strict,
        "failed_calls": one.errors,
        "generated_tokens": one.tokens_generated,
    }
    shared |= {f"{c.name}_episodes": c.count for c in one.endings}
    shared |= {f"{c.name}_failed_calls": c.count for c in one.channels}
    states = {c.name: c.count for c in one.faults}
    for state in ("scheduled", "fired", "witnessed", "retried", "recovered"):
        shared[f"fault_{state}_episodes"] = states.get(state)
    return [
        {
            **shared,
            "policy": a.policy,
            "successful_episodes": a.successes,
            "expression_episodes": a.expressions,
            "ep_reported_episodes": a.reported,
            "ep_reported_after_calls_episodes": a.reported_after,
            "ep_invented_episodes": a.invented,
            "it_requeried_episodes": a.requeried,
            "right_answer_episodes": a.right_answers,
            "right_without_recovery_episodes": a.without_recovery,
        }
        for a in one.answers
    ]


def _facts_row(facts: CellFacts) -> dict[str, _Value]:
    return {name: getattr(facts, name) for name in _FACTS}


def _frame(rows: list[dict[str, _Value]], columns: Iterable[str]) -> pd.DataFrame:
    """Give every column the type of its unit, so that a gap or an empty table changes no file's schema.

    Lone surrogates, which neither Arrow nor UTF-8 can hold, are spelled out.
    """
    frame = pd.DataFrame(
        [
            {name: spelled(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in rows
        ],
        columns=list(columns),
    )
    return frame.astype({name: _dtype(str(name), frame[name]) for name in frame.columns})


def _dtype(name: str, column: pd.Series) -> str:
    if name.endswith(("_points", "_rate", "_p")):
        return "float64"
    if name in _COUNTS or name.endswith(("_tasks", "_episodes", "_turns", "_calls", "_tokens")):
        return "Int64"
    if name in _FLAGS:
        return "boolean"
    kinds = {type(value) for value in column.dropna()}
    if kinds == {bool}:
        return "boolean"
    return "Int64" if kinds == {int} else "string"
