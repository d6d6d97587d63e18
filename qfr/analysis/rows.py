"""Rows of the one table of results, made from what the analysis computes (see `results.Result`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from qfr.analysis.cells import CellSummary
from qfr.analysis.contrast.ablation import Ablation
from qfr.analysis.contrast.agreement import Agreement, Spread
from qfr.analysis.contrast.decomposition import POINTS, Bounds
from qfr.analysis.contrast.family import AdjustedContrast, Together
from qfr.analysis.contrast.groups import GroupContrast, Grouped, Interaction
from qfr.analysis.contrast.ladder import Ladder
from qfr.analysis.contrast.ranking import Ranking
from qfr.analysis.contrast.repair import Repair
from qfr.analysis.process import MEASURES, Waste
from qfr.analysis.published import Published
from qfr.analysis.results import COLUMNS, Contrast, Kind, Result, row_id, tidy
from qfr.analysis.targets import CellKey, Target
from qfr.stats.intervals import Estimate, Interval

RATE, POINT = "rate", "points"
#: Item of the rows that count undelivered faults.
LOST = "faults that never fired"
#: Some columns of a row by name.
Columns = dict[str, Any]


def contrast_row(c: Contrast, adjusted: AdjustedContrast | None = None, **more: Any) -> Result:
    """Return the row of a contrast; `more` says what only a report knows, such as its standing."""
    told: Columns = {name: getattr(c, name) for name in COLUMNS}
    if adjusted is not None:
        told |= {"sign_holm_p": adjusted.sign_holm, "sign_bh_p": adjusted.sign_bh}
        told |= {"signflip_holm_p": adjusted.signflip_holm, "signflip_bh_p": adjusted.signflip_bh}
    return Result(**(told | more))


def row(
    key: CellKey,
    kind: Kind,
    found: Estimate | Interval | None = None,
    *,
    unit: str = RATE,
    cells: tuple[str, ...] = (),
    a: str | None = None,
    **more: Any,
) -> Result:
    """Return a row about one cell or preset, or one against another.

    Parameters
    ----------
    key : CellKey
        Names of the cell.
    found : Estimate or Interval, optional
        The number with its interval.
    unit : str
        Of the number; a difference in points comes as a fraction.
    cells : tuple of str
        What it comes from: with the words below, its identity.
    a : str, optional
        The side; the preset where nothing else is said.
    **more
        Further columns of the row.
    """
    side = a if a is not None else key.quant or None
    words = [more.get(name) for name in ("target", "item", "family")]
    sides = cells or (key.model, key.quant, key.prompt, key.fault, key.executor, key.suite, key.trial)
    identity = (kind, *sides, side, more.get("b"), *words, *(more.get(name) for name in ("policy", "fault")))
    name = row_id((kind, more.get("fault"), more.get("item") or more.get("target")), identity)
    told: Columns = {
        "id": name,
        "kind": kind,
        "scope": key.context,
        "model": key.model or None,
        "level": key.quant or None,
        "prompt": key.prompt or None,
        "fault": key.fault or None,
        "executor": key.executor or None,
        "suite": key.suite or None,
        "gate": key.gate or None,
        "trial": key.trial,
        "a": side,
        "unit": unit,
        "cells": cells,
    }
    return Result(**(told | (_estimated(found, unit) if found is not None else {}) | more))


def _estimated(found: Estimate | Interval, unit: str) -> Columns:
    scale = POINTS if unit == POINT else 1.0
    told: Columns = {
        POINT if unit == POINT else "value": tidy(found.value, scale),
        "low": tidy(found.low, scale),
        "high": tidy(found.high, scale),
        "confidence": found.level,
        "n_tasks": found.n,
        "degenerate": found.degenerate,
        "reason": found.reason,
        "method": "wilson",
    }
    if isinstance(found, Estimate):
        told |= {
            "method": str(found.method),
            "resamples": found.resamples,
            "reliable": found.reliable,
        }
    return told


def rate_rows(s: CellSummary) -> Iterator[Result]:
    """Yield the success rates of one cell, or of one family of its tasks."""
    shared: Columns = {
        "cells": s.cells,
        "policy": s.policy,
        "family": s.family,
        "certified_a": s.n_certified,
    }
    counts: Columns = {"count_a": s.successes, "of_a": s.episodes}
    own: Columns = {**shared, **counts, "undelivered_a": s.undelivered_tasks, "n_tasks_a": s.n_tasks}
    yield row(s.key, Kind.rate, s.own, target=str(Target.own), **own, **_open(s.own_bounds))
    yield row(s.key, Kind.rate, s.full, target=str(Target.full), **shared, **_open(s.full_bounds))
    clean: Columns = {"count_a": s.n_certified, "of_a": s.n_tasks, "n_tasks": s.n_tasks}
    yield row(s.key, Kind.rate, s.clean, target=str(Target.clean), **(shared | clean))
    episodes: Columns = {**counts, "n_tasks": s.n_certified, "item": "episodes"}
    yield row(s.key, Kind.rate, s.episode_rate, target=str(Target.own), **(shared | episodes))
    yield row(s.key, Kind.rate, s.s_star, target=str(Target.s_star), **shared)
    lost: Columns = {"count_a": s.undelivered, "of_a": s.scheduled, "item": LOST}
    yield row(s.key, Kind.counted, unit="number", **shared, **lost)


def _open(bounds: Bounds | None) -> Columns:
    """What faults that never fired leave open."""
    if bounds is None:
        return {}
    return {"undelivered_low_points": bounds.low, "undelivered_high_points": bounds.high}


def rank_rows(ranking: Ranking) -> Iterator[Result]:
    """Yield every preset of a ranking: averaged over the shared prompts, and under each of its prompts."""
    for place, one in enumerate(ranking.presets, 1):
        shared: Columns = {
            "cells": one.cells,
            "policy": ranking.policy,
            "target": str(Target.full),
            "level": one.quant,
            "a": one.name,
            "margin_points": ranking.margin,
            "scope": ranking.label or ranking.key.context,
        }
        average: Columns = {
            "item": " ".join(ranking.shared),
            "bayes_low": tidy(one.bayesian.low),
            "bayes_high": tidy(one.bayesian.high),
            "bayes_method": str(one.bayesian.method),
            "certified_a": one.certified,
            "n_tasks_a": one.tasks,
            "count_a": place if ranking.shared else None,
            "of_a": len(ranking.presets) if ranking.shared else None,
        }
        yield row(ranking.key, Kind.rank, one.full, **shared, **average)
        for there in one.prompts:
            of_prompt: Columns = {
                "prompt": there.prompt,
                "item": f"under {there.prompt}",
                "verdict": there.label,
            }
            yield row(ranking.key, Kind.rank, **shared, **of_prompt, value=tidy(there.rate))


def together_rows(one: Together) -> Iterator[Result]:
    """Yield intervals that hold for all prompts at once."""
    for at, prompt in enumerate(one.prompts):
        yield row(
            CellKey(one.model, "", prompt, one.fault, "", "", "", 0, one.context),
            Kind.simultaneous,
            unit=POINT,
            cells=one.cells[at],
            a=one.a,
            b=one.b,
            target=one.target,
            policy=one.policy,
            points=tidy(one.points[at]),
            low=tidy(one.lows[at]),
            high=tidy(one.highs[at]),
            method="max_t",
            resamples=one.resamples,
            critical=tidy(one.critical),
            reliable=one.reasons[at] is None,
            reason=one.reasons[at],
        )


def interaction_row(one: Interaction) -> Result:
    """Return a difference of differences; `item` is the second prompt."""
    return row(
        one.key,
        Kind.interaction,
        cells=one.cells,
        a=one.a,
        b=one.b,
        prompt=one.first,
        item=one.second,
        target=one.target,
        policy=one.policy,
        **_several(one.found),
    )


def group_row(one: Grouped) -> Result:
    """Return one named group of presets against another."""
    fisher, counted = one.pooled, one.successes
    return row(
        one.key,
        Kind.group,
        cells=one.cells,
        a=one.first.name,
        b=one.second.name,
        item=" − ".join(", ".join(side.quants) for side in (one.first, one.second)),
        target=str(Target.matched),
        policy=one.policy,
        scope=one.context,
        fisher_p=fisher.p,
        odds_ratio=fisher.odds_ratio,
        count_a=counted[0],
        of_a=fisher.n_first,
        count_b=counted[1],
        of_b=fisher.n_second,
        remarks=(fisher.warning,),
        **_several(one.found),
    )


def _several(found: GroupContrast) -> Columns:
    careful, sign = found.bayesian, found.sign
    return {
        "found": found.difference,
        "unit": POINT,
        "n_tasks": len(found.tasks),
        "bayes_low": tidy(careful.low, POINTS),
        "bayes_high": tidy(careful.high, POINTS),
        "bayes_method": str(careful.method),
        "favour_a": sign.favour_first,
        "favour_b": sign.favour_second,
        "ties": sign.ties,
        "sign_p": sign.p,
        "signflip_p": found.signflip.p,
        "smallest_p": sign.smallest_p,
    }


def ablation_rows(one: Ablation) -> Iterator[Result]:
    """Yield a clause's effect at each preset, and how it differs from that at the highest one."""
    item = f"{one.clause} on {one.base}{one.rest}"
    for step in one.presets:
        for effect in step.effects:
            found = contrast_row(effect)
            name = row_id(("ablation", effect.target, step.quant), ("ablation", item, found.id))
            yield replace(found, id=name, kind=Kind.ablation, item=item)
        for d in step.differences:
            yield row(
                one.key, Kind.ablation, d.estimate, unit=POINT, cells=one.cells, a=step.quant,
                b=one.presets[0].quant, item=f"{item}, difference", target=d.target, policy=one.policy,
                n_tasks=d.tasks, sign_p=d.sign_p,
            )  # fmt: skip


def waste_rows(one: Waste) -> Iterator[Result]:
    """Yield loops, forced ends, and costs per solved episode with their ratios to the highest preset."""
    shared: Columns = {"cells": (one.cell_id,), "policy": one.policy, "b": one.against or None}
    counts = [("stuck", one.stuck), ("forced end", sum(count.count for count in one.forced))]
    for item, count in (*counts, *((count.name, count.count) for count in one.forced)):
        yield row(one.key, Kind.waste, unit="number", **shared, item=item, count_a=count, of_a=one.episodes)
    for at, measure in enumerate(MEASURES):
        each: Columns = {"item": f"{measure} per solved", "count_a": one.successes, "of_a": one.episodes}
        yield row(one.key, Kind.waste, unit=measure, **shared, **each, value=tidy(one.spent[at]))
        if one.ratios:
            r = one.ratios[at]
            ends: Columns = {"value": tidy(r.value), "low": tidy(r.low), "high": tidy(r.high)}
            ends |= {"item": f"{measure} per solved, ratio", "n_tasks": r.tasks, "reason": r.reason or None}
            yield row(one.key, Kind.waste, unit="ratio", **shared, **ends, method="montecarlo")


def agreement_rows(one: Agreement) -> Iterator[Result]:
    """Yield Kendall's tau-b and Spearman's rho of one pair of places."""
    shared: Columns = {"unit": "ratio", "vary": one.across, "of_a": len(one.presets), "cells": one.cells}
    where = f"{one.first} / {one.second}"
    ends: Columns = {"value": tidy(one.tau), "low": tidy(one.tau_low), "high": tidy(one.tau_high)}
    reason = "all presets tie in one place" if one.tau is None else None
    yield row(
        one.key, Kind.agreement, **shared, **ends, item=f"tau-b, {where}", method="montecarlo", reason=reason
    )
    yield row(one.key, Kind.agreement, **shared, item=f"rho, {where}", value=tidy(one.rho))


def spread_row(one: Spread, called: str) -> Result:
    """Return what an axis moves, in points."""
    return Result(
        id=row_id(("spread", one.axis, one.target), ("spread", one.axis, one.target, one.policy)),
        kind=Kind.spread,
        policy=one.policy,
        vary=one.axis,
        target=one.target,
        item=called,
        of_a=one.places,
        points=tidy(one.mean, POINTS),
        high=tidy(one.largest, POINTS),
        method="range",
        cells=one.cells,
    )


def repair_rows(one: Repair) -> Iterator[Result]:
    """Yield tasks won and lost, and what the request costs."""
    shared: Columns = {"policy": one.policy, "cells": one.cells}
    for item, changed in (("tasks", one.faulted), ("clean passes", one.clean)):
        counts: Columns = {"count_a": changed.won, "of_a": changed.tasks}
        counts |= {"count_b": changed.lost, "of_b": changed.tasks}
        yield row(one.key, Kind.repair, unit="number", **shared, **counts, item=item)
    costs = (("turns", one.turns), ("tokens", one.tokens), ("turns of clean episodes", one.clean_turns))
    for item, cost in costs:
        for side, value in (("tolerant", cost.without), ("repair", cost.with_it)):
            unit = "tokens" if item == "tokens" else "turns"
            yield row(one.key, Kind.repair, unit=unit, **shared, a=side, item=item, value=tidy(value))


def ladder_rows(ladder: Ladder) -> Iterator[Result]:
    """Yield each kind of fault at each preset, and the answers invented there."""
    for rung in ladder.rungs:
        shared: Columns = {
            "a": rung.quant,
            "policy": ladder.policy,
            "certified_a": rung.certified,
            "n_tasks_a": rung.tasks,
            "reliable": not rung.few,
        }
        for step in rung.steps:
            counts: Columns = {"count_a": step.successes, "of_a": step.episodes}
            more: Columns = {
                **shared,
                **counts,
                "fault": step.fault,
                "target": "episodes",
                "cells": step.cells,
            }
            yield row(ladder.key, Kind.ladder, step.rate, **(more | {"n_tasks": rung.certified}))
        if rung.invented is not None:
            cells = rung.steps[-1].cells
            yield row(
                ladder.key, Kind.ladder, unit="number", cells=cells, item="invented", count_a=rung.invented,
                **shared,
            )  # fmt: skip


def published_rows(known: Published) -> Iterator[Result]:
    """Yield the numbers of a publication."""
    for c in known.contrasts:
        key = CellKey(c.model, "", c.prompt, known.fault, "", "", "", 0)
        yield row(
            key, Kind.published, unit=POINT, a=known.a, b=known.b, item=known.name, target=c.target,
            policy=c.policy, points=c.points, low=c.low, high=c.high, n_tasks=c.n, method="as printed",
        )  # fmt: skip
    for cell in known.cells:
        key = CellKey(cell.model, cell.quant, cell.prompt, known.fault, "", "", "", 0)
        shared: Columns = {"item": known.name, "policy": "tolerant", "method": "as printed"}
        counts: Columns = {"count_a": cell.successes, "of_a": cell.episodes}
        yield row(key, Kind.published, **shared, target="own", value=tidy(cell.own_percent, 0.01), **counts)
        yield row(key, Kind.published, **shared, target="full", value=tidy(cell.full_rate))


def in_order(rows: Iterable[Result]) -> tuple[Result, ...]:
    """Sort rows by kind, contrasts first; the order within a kind stays."""
    order = {kind: at for at, kind in enumerate(Kind)}
    return tuple(sorted(rows, key=lambda one: order[Kind(one.kind)]))
