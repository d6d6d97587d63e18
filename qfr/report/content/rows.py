"""Every number of a report as rows of one table: contrasts first, then ranks, process and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from qfr.analysis import rows
from qfr.analysis.contrast.agreement import SPREADS
from qfr.analysis.contrast.equal_memory import VARY as MEMORY
from qfr.analysis.contrast.family import families
from qfr.analysis.diagnostics.channels import Amplification
from qfr.analysis.diagnostics.margins import PROBABILITIES, Spread
from qfr.analysis.diagnostics.novelty import Novelty
from qfr.analysis.diagnostics.recovery import Recovery
from qfr.analysis.process import Process
from qfr.analysis.results import Kind, Result, tidy
from qfr.analysis.rows import POINT, RATE, Columns, row
from qfr.analysis.targets import CellKey
from qfr.analysis.trials import FOREIGN
from qfr.registration.status import Standing
from qfr.report.content.diagnosed import Agent, Compared, Repeated
from qfr.report.content.imported import neutral
from qfr.report.content.registration_status import best
from qfr.report.content.transcripts import Parting
from qfr.report.tables.imported import figures_of
from qfr.stats.intervals import Estimate

if TYPE_CHECKING:
    from qfr.report.content.build import Report

_T = TypeVar("_T", Agent, Compared)
_MIDDLE = PROBABILITIES.index(0.5)
_UNPLANNED = "model against model at equal memory is not among the planned contrasts"


def result_rows(report: Report) -> tuple[Result, ...]:
    """Return the rows of a report, contrasts first."""
    found = [*_contrasts(report), *_equal_memory(report)]
    found += [one for summary in report.summaries for one in rows.rate_rows(summary)]
    found += [one for ranking in report.ranks for one in rows.rank_rows(ranking)]
    found += [one for together in report.together for one in rows.together_rows(together)]
    found += [rows.interaction_row(one) for one in report.interactions]
    found += [rows.group_row(one) for one in report.grouped]
    found += [one for ladder in report.ladders for one in rows.ladder_rows(ladder)]
    found += [one for ablation in report.ablations for one in rows.ablation_rows(ablation)]
    found += [one for waste in report.wastes for one in rows.waste_rows(waste)]
    found += [one for agreement in report.agreements for one in rows.agreement_rows(agreement)]
    found += [rows.spread_row(one, SPREADS[one.axis]) for one in report.spreads]
    found += [one for repair in report.repairs for one in rows.repair_rows(repair)]
    found += [figure.row for figure in figures_of(report)]
    policy = report.options.policy.value
    if report.diagnosed is not None:
        for agent in _by_file(report.diagnosed.agents):
            found += _agent(agent, policy)
        for compared in _by_file(report.diagnosed.compared):
            found += _compared(compared, policy)
        found += [one for again in report.diagnosed.repeated for one in _repeated(again, policy)]
    if report.material.transcripts is not None:
        found += [one for parting in report.material.transcripts.partings for one in _parting(parting)]
    tokenless = {one.cell_id for one in report.facts if neutral(one)}
    found += [one for process in report.processes for one in _counts(process, process.cell_id in tokenless)]
    found += _costs(report)
    if report.options.against is not None:
        found += rows.published_rows(report.options.against)
    # Ladders of several fault texts share their cells.
    return rows.in_order({one.id: one for one in found}.values())


def _contrasts(report: Report) -> Iterator[Result]:
    adjusted = {one.place: (family, one) for family in report.families for one in family.members}
    for at, contrast in enumerate(report.contrasts):
        family, one = adjusted.get(at, (None, None))
        registration, stood = best(report.followed, at)
        yield rows.contrast_row(
            contrast,
            one,
            declared_family=family.declared if family else None,
            registration=registration,
            standing=str(stood.standing),
            standing_reason="; ".join(stood.reasons),
        )


def _equal_memory(report: Report) -> Iterator[Result]:
    if report.options.vary == MEMORY:
        return
    # They are no part of a declared family.
    apart = () if report.options.family else families(report.at_equal_memory, ())
    own = {one.place: one for family in apart for one in family.members}
    for at, contrast in enumerate(report.at_equal_memory):
        yield rows.contrast_row(
            contrast,
            own.get(at),
            declared_family=False if at in own else None,
            registration="",
            standing=str(Standing.exploratory),
            standing_reason=_UNPLANNED,
        )


def _by_file(members: Iterable[_T]) -> Iterator[_T]:
    """Tell imported logs of one name apart by their files."""
    given = tuple(members)
    times = Counter(one.key for one in given)
    for one in given:
        if one.key.executor == FOREIGN and times[one.key] > 1:
            parts = (one.key.context, one.scope.told("log.source"))
            one = replace(one, key=replace(one.key, context=", ".join(part for part in parts if part)))
        yield one


def _agent(one: Agent, policy: str) -> Iterator[Result]:
    shared: Columns = {"cells": one.cells, "policy": policy}
    for ruled in one.curves:
        for p in ruled.curve.points:
            of_rule: Columns = {"item": f"K={p.budget}", "target": ruled.rule}
            yield row(one.key, Kind.budget, p.success, **shared, **of_rule)
    for r in one.rates:
        calls: tuple[int | None, int]
        episodes: tuple[int | None, int]
        calls, episodes = (r.count, r.calls), (r.episodes_with, r.episodes)
        if (r.per_call.reason or "").startswith("not observable"):
            calls, episodes = (None, r.calls), (None, r.episodes)
        for target, found, (count, of) in (
            ("per call", r.per_call, calls),
            ("per episode", r.per_episode, episodes),
        ):
            yield row(
                one.key, Kind.channel, found, cells=one.cells, item=r.event, target=target, count_a=count,
                of_a=of, remarks=(r.note,) if r.note else (),
            )  # fmt: skip
    for after in one.recovery:
        yield from _recovery(one, after)
    for length in one.lengths:
        unit = "turns" if length.measure == "turns" else "tokens"
        which: Columns = {"item": length.measure, "target": length.outcome}
        yield row(one.key, Kind.length, length.mean, unit=unit, **shared, **which, of_a=length.episodes)
        if length.quantiles:
            ends: Columns = {"low": tidy(length.quantiles[0]), "high": tidy(length.quantiles[-1])}
            spread: Columns = {"item": f"{length.measure}, 5 % to 95 % of episodes", "method": "quantiles"}
            yield row(one.key, Kind.length, unit=unit, **(shared | which | ends | spread))
    margins = one.margins
    yield row(
        one.key, Kind.margin, margins.area.estimate, unit="area", **shared, item="wrong below right",
        count_a=margins.area.positives, count_b=margins.area.negatives,
    )  # fmt: skip
    for side, found_spread in (("right turns", margins.right), ("wrong turns", margins.wrong)):
        if found_spread.n:
            yield row(one.key, Kind.margin, unit="logits", **shared, item=side, **_spread(found_spread))


def _spread(found: Spread) -> Columns:
    values = found.quantiles
    ends: Columns = {"value": tidy(values[_MIDDLE]), "low": tidy(values[0]), "high": tidy(values[-1])}
    return {**ends, "method": "quantiles", "count_a": found.n}


def _recovery(one: Agent, after: Recovery) -> Iterator[Result]:
    shared: Columns = {"cells": one.cells, "item": after.source}
    counts: Columns = {"count_a": after.recovered, "of_a": after.errors}
    for w in after.within:
        yield row(one.key, Kind.recovery, w.share, **shared, target=f"within {w.turns}", **counts)
    yield row(one.key, Kind.recovery, after.turns, unit="turns", **shared, target="turns", **counts)
    yield row(one.key, Kind.recovery, after.tokens_out, unit="tokens", **shared, target="tokens", **counts)
    for follow in after.following:
        if follow.count:
            counted: Columns = {"count_a": follow.count, "of_a": after.errors}
            yield row(
                one.key, Kind.recovery, unit="number", **shared, target=f"next {follow.kind}", **counted
            )


def _compared(one: Compared, policy: str) -> Iterator[Result]:
    shared: Columns = {"cells": one.cells, "a": one.reference, "b": one.key.quant}
    if one.gap is not None:
        for p in one.gap.points:
            yield row(
                one.key, Kind.gap, p.gap, unit=POINT, **shared, item=f"K={p.budget}", policy=policy,
                target="full", rate_a=tidy(p.first), rate_b=tidy(p.second), critical=tidy(one.gap.critical),
            )  # fmt: skip
    for a in one.amplified:
        yield from _amplified(one.key, a, shared)
    yield from _novelty(one.key, one.novelty, shared)
    for item, area in (("by task", one.foretold.by_task), ("by episode", one.foretold.by_episode)):
        yield row(
            one.key, Kind.foretold, area.estimate, unit="area", **shared, item=item, policy=policy,
            count_a=area.positives, count_b=area.negatives,
        )  # fmt: skip
    lost: Columns = {"count_a": one.foretold.uncertified, "count_b": one.foretold.incomparable}
    lost |= {"item": "with the clean pass", "policy": policy}
    yield row(one.key, Kind.foretold, unit="number", **shared, **lost)


def _amplified(key: CellKey, a: Amplification, shared: Columns) -> Iterator[Result]:
    counts: Columns = {"count_a": a.reference_count, "of_a": a.reference_calls}
    counts |= {"count_b": a.other_count, "of_b": a.other_calls}
    # A ratio is of B to A, and so is this difference.
    for target, found, unit in (
        ("count ratio", a.count_ratio, "ratio"),
        ("rate ratio", a.rate_ratio, "ratio"),
        ("difference per task, B minus A", a.task_difference, POINT),
    ):
        yield row(
            key, Kind.amplification, found, unit=unit, **shared, item=a.event, target=target,
            verdict=str(a.verdict).replace("_", " "), **counts,
        )  # fmt: skip


def _novelty(key: CellKey, n: Novelty, shared: Columns) -> Iterator[Result]:
    def of(item: str, **more: Any) -> Result:
        return row(key, Kind.novelty, **({"unit": "number"} | shared | {"item": item} | more))

    yield of("failed calls", count_a=n.reference_events, count_b=n.other_events)
    yield of("signatures", count_a=n.reference_signatures, count_b=n.other_signatures)
    yield of("shared signatures", count_a=n.shared_signatures)
    yield of("rank correlation", value=tidy(n.correlation.value), reason=n.correlation.reason)
    both = n.correlation_shared
    yield of("rank correlation of shared ones", value=tidy(both.value), reason=both.reason)
    counts: Columns = {"count_b": n.novel_occurrences, "of_b": n.other_occurrences}
    yield of("novel, once per episode", found=n.novel_share, unit=RATE, **counts)
    told: Columns = {"value": tidy(n.expected_share), "reason": n.reason, "count_a": n.singletons}
    yield of("expected on new tasks", unit=RATE, **told)


def _repeated(one: Repeated, policy: str) -> Iterator[Result]:
    parts: tuple[tuple[str, Estimate, str], ...] = (
        ("recount", one.found.recount, RATE),
        ("rerun", one.found.rerun, RATE),
        ("recount minus rerun", one.found.difference, POINT),
    )
    for target, found, unit in parts:
        yield row(
            one.key, Kind.rerun, found, unit=unit, cells=one.cells, policy=policy, target=target,
            item=f"K={one.found.budget} from {one.wide}", count_a=len(one.found.differing),
            dropped_a=one.found.differing if unit == POINT else (),
        )  # fmt: skip


def _parting(one: Parting) -> Iterator[Result]:
    key = CellKey(one.model, "", one.prompt, one.fault, "", "", "", 0)
    for item, count, of in (
        ("episodes that part", one.parted, one.paired),
        *((str(phase), count, one.parted) for phase, count in one.by_phase),
        ("at the narrowest token", one.at_narrowest, one.with_token),
    ):
        yield row(
            key, Kind.divergence, unit="number", cells=one.cells, a=one.first, b=one.second, item=item,
            count_a=count, of_a=of,
        )  # fmt: skip


def _counts(one: Process, tokenless: bool) -> Iterator[Result]:
    """What happened in a cell, counted; by policy where it depends on it. `tokenless`: without tokens."""
    shared: Columns = {"cells": (one.cell_id,), "unit": "number", "of_a": one.episodes}
    counted = [("episodes", one.episodes), *((c.name, c.count) for c in (*one.endings, *one.faults))]
    counted += [("turns", one.turns), ("turns not strict", one.turns_not_strict)]
    counted += [("failed calls", one.errors)]
    counted += [(f"{c.name} errors", c.count) for c in one.channels]
    counted += [] if tokenless else [("generated tokens", one.tokens_generated)]
    if one.key.executor == FOREIGN:
        # A log of another program shows neither; its errors and lengths have rows of their own.
        shown = ("episodes", *(c.name for c in one.endings))
        counted = [(item, count) for item, count in counted if item in shown]
    for item, count in counted:
        yield row(one.key, Kind.counted, **shared, item=item, count_a=count)
    for a in one.answers:
        right = [("right", a.successes), ("right by expression", a.expressions)]
        right += [("right without recovery", a.without_recovery)]
        for item, count in (*right, *((c.name, c.count) for c in a.counted)):
            yield row(one.key, Kind.counted, **shared, policy=a.policy, item=item, count_a=count)


def _costs(report: Report) -> Iterator[Result]:
    """Size of each ranked file, and what its runs needed: memory, and speed as a median with its range."""
    measured = report.material.measured
    for ranking in report.ranks:
        if ranking.policy != report.options.policy.value:
            continue
        for one in ranking.presets:
            used = [measured[cell] for cell in one.cells if cell in measured]
            peaks = [m.peak_memory_bytes for m in used if m.peak_memory_bytes is not None]
            speeds = sorted(
                m.decode_tokens_per_second for m in used if m.decode_tokens_per_second is not None
            )
            shared: Columns = {"cells": one.cells, "a": one.name, "level": one.quant}
            shared |= {"scope": ranking.label or ranking.key.context}
            if one.bytes:
                yield row(ranking.key, Kind.cost, unit="bytes", **shared, item="file", value=float(one.bytes))
            if peaks:
                peak: Columns = {"item": "peak memory", "value": max(peaks)}
                yield row(ranking.key, Kind.cost, unit="bytes", **shared, **peak)
            if speeds:
                speed: Columns = {"value": float(median(speeds)), "low": speeds[0], "high": speeds[-1]}
                speed |= {"item": "decoding speed", "method": "range", "count_a": len(speeds)}
                yield row(ranking.key, Kind.cost, unit="tokens_per_second", **shared, **speed)
