"""Everything beyond plain contrasts as two long tables: one figure per row, its unit in a column.

Columns: the cell's names, ``context`` (what tells a cell from one of the same names, such as
``error budget 2``), ``kind`` and ``item`` (what the figure is of), ``against`` (the other side, where
there is one), ``policy``, ``value``, ``low`` and ``high`` (95 %), ``unit`` (points, rate, ratio, turns,
tokens or area), ``n_tasks``, ``reliable`` and ``reason``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from qfr.analysis.targets import CellKey
from qfr.report.ablations import found_ablations
from qfr.report.build import Report
from qfr.report.diagnosed import Agent, Compared, Repeated
from qfr.report.imported_page import figures_of
from qfr.report.text import spelled
from qfr.stats.intervals import Estimate

_COLUMNS = {
    "model": "string",
    "quant": "string",
    "prompt": "string",
    "fault": "string",
    "executor": "string",
    "suite": "string",
    "context": "string",
    "kind": "string",
    "item": "string",
    "against": "string",
    "policy": "string",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "unit": "string",
    "n_tasks": "Int64",
    "reliable": "boolean",
    "reason": "string",
}


@dataclass(frozen=True)
class Row:
    """One figure."""

    key: CellKey
    kind: str
    item: str
    against: str
    policy: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    n_tasks: int | None
    reliable: bool | None
    reason: str | None


def diagnostics_frame(report: Report) -> pd.DataFrame:
    """Return the diagnostics of the process, one figure per row; no rows where there are none."""
    if report.diagnosed is None:
        return _frame(())
    policy = report.options.policy.value
    found = report.diagnosed
    rows = [row for one in found.agents for row in _agent(one, policy)]
    rows += [row for one in found.compared for row in _compared(one, policy)]
    rows += [row for one in found.repeated for row in _repeated(one, policy)]
    return _frame(tuple(rows))


def further_frame(report: Report) -> pd.DataFrame:
    """Return ranks, interactions, named groups, simultaneous intervals, ladders, imported logs."""
    rows = [
        _row((replace(r.key, quant=one.name), "rank", " ".join(r.shared), "", r.policy), one.full, "rate")
        for r in report.ranks
        for one in r.presets
    ]
    for i in report.interactions:
        item = f"{i.target}: ({i.a} - {i.b} under {i.first}) - (the same under {i.second})"
        rows.append(_row((i.key, "interaction", item, "", i.policy), i.found.difference, "points"))
    for a in found_ablations(report):
        for at in a.presets:
            for d in at.differences:
                item = f"{d.target}: {a.clause} on {a.base}{a.rest}, {at.quant} - {a.presets[0].quant}"
                rows.append(_row((a.key, "ablation", item, "", a.policy), d.estimate, "points"))
    for g in report.grouped:
        names = (g.key, "group", g.first.name, g.second.name, g.policy)
        rows.append(_row(names, g.found.difference, "points"))
    for t in report.together:
        key = CellKey(t.model, "", "", t.fault, "", "", "", 0)
        for prompt, value, low, high in zip(t.prompts, t.points, t.lows, t.highs, strict=True):
            item = f"{t.target} {t.a} - {t.b} {prompt}"
            rows.append(
                Row(key, "simultaneous", item, "", t.policy, value, low, high, "points", None, None, None)
            )
    for ladder in report.ladders:
        for rung in ladder.rungs:
            for step in rung.steps:
                key, rate = ladder.key, step.rate
                item = f"{rung.quant} {step.fault} {step.successes}/{step.episodes}"
                ends = (rate.value, rate.low, rate.high)
                rows.append(
                    Row(key, "ladder", item, "", ladder.policy, *ends, "rate", rung.certified, None, None)
                )
    rows += [
        Row(f.key, f.kind, f.item, "", "", f.value, f.low, f.high, "rate", f.n_tasks, None, f.reason or None)
        for f in figures_of(report)
    ]
    return _frame(tuple(rows))


def _agent(one: Agent, policy: str) -> Iterator[Row]:
    for at, ruled in enumerate(one.curves):
        # Without a word it is the rule of the figures: allow K of the agent's own failed calls.
        rule = f", {ruled.rule}" if at else ""
        for p in ruled.curve.points:
            names = (one.key, f"success within a budget{rule}", f"K={p.budget}", "", policy)
            yield _row(names, p.success, "rate")
    for r in one.rates:
        yield _row((one.key, "rate per call", r.event, "", ""), r.per_call, "rate")
        yield _row((one.key, "share of episodes", r.event, "", ""), r.per_episode, "rate")
    for after in one.recovery:
        for w in after.within:
            names = (one.key, "recovered", f"{after.source} within {w.turns}", "", "")
            yield _row(names, w.share, "rate")
        yield _row((one.key, "turns to recover", after.source, "", ""), after.turns, "turns")
    for length in one.lengths:
        unit = "turns" if length.measure == "turns" else "tokens"
        names = (one.key, f"{length.measure} per episode", length.outcome, "", policy)
        yield _row(names, length.mean, unit)
    yield _row((one.key, "margin of wrong turns", "", "", policy), one.margins.area.estimate, "area")


def _repeated(one: Repeated, policy: str) -> Iterator[Row]:
    item = f"K={one.found.budget} from {one.wide}"
    for kind, found, unit in (
        ("recount", one.found.recount, "rate"),
        ("rerun", one.found.rerun, "rate"),
        ("recount minus rerun", one.found.difference, "points"),
    ):
        yield _row((one.key, kind, item, "", policy), found, unit)


def _compared(one: Compared, policy: str) -> Iterator[Row]:
    if one.gap is not None:
        for p in one.gap.points:
            yield _row(
                (one.key, "gap, simultaneous", f"K={p.budget}", one.reference, policy), p.gap, "points"
            )
    for a in one.amplified:
        yield _row((one.key, "count ratio", a.event, one.reference, ""), a.count_ratio, "ratio")
        yield _row((one.key, "rate ratio", a.event, one.reference, ""), a.rate_ratio, "ratio")
    yield _row((one.key, "novel failures", "", one.reference, ""), one.novelty.novel_share, "rate")
    for name, area in (("by task", one.foretold.by_task), ("by episode", one.foretold.by_episode)):
        yield _row((one.key, "losses foretold", name, one.reference, policy), area.estimate, "area")


def _row(names: tuple[CellKey, str, str, str, str], found: Estimate, unit: str) -> Row:
    scale = 100 if unit == "points" else 1
    value, low, high = (None if one is None else scale * one for one in (found.value, found.low, found.high))
    return Row(*names, value, low, high, unit, found.n, found.reliable, found.reason)


def _frame(rows: tuple[Row, ...]) -> pd.DataFrame:
    plain = [
        {
            **{name: spelled(getattr(row.key, name)) for name in ("model", "quant", "prompt", "fault")},
            "executor": row.key.executor,
            "suite": row.key.suite,
            "context": row.key.context,
            **{
                name: getattr(row, name)
                for name in _COLUMNS
                if name not in ("model", "quant", "prompt", "fault", "executor", "suite", "context")
            },
        }
        for row in rows
    ]
    return pd.DataFrame(plain, columns=list(_COLUMNS)).astype(_COLUMNS)
