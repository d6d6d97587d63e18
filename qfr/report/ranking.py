"""The answer to "which preset do I deploy?": presets ranked, with a verdict in words for each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from qfr.analysis.decomposition import POINTS
from qfr.analysis.overall import Overall
from qfr.analysis.ranking import Rank
from qfr.analysis.targets import CellKey
from qfr.report.build import Report
from qfr.report.layout import shortened, signed
from qfr.report.views import Entry, Table
from qfr.scope import Scope, labels


@dataclass(frozen=True)
class Ranking:
    """One model under one setting."""

    title: str
    agent: bool
    advice: str
    # One sentence.
    table: Table


def rankings(report: Report) -> tuple[Ranking, ...]:
    """Rank the presets of every model and setting under the headline policy."""
    policy = report.options.policy.value
    settings: dict[Scope, list[Overall]] = defaultdict(list)
    for one in report.overall:
        if one.policy == policy:
            settings[one.setting].append(one)
    ranks = {(r.setting, r.name): r for r in report.ranks if r.policy == policy}
    agents = set(report.reference_agents)
    told = labels(tuple(settings))
    titles = {
        setting: " · ".join(part for part in (*_names(settings[setting][0].key), text) if part)
        for setting, text in zip(settings, told, strict=True)
    }
    names = shortened(titles.values())
    found = []
    for setting, members in settings.items():
        members.sort(key=lambda one: -(one.full.value or 0.0))
        rows = [(one, ranks.get((setting, one.name))) for one in members]
        found.append(
            Ranking(
                title=names[titles[setting]],
                agent=members[0].key.model in agents,
                advice=_advice(report, rows),
                table=_table(report, rows),
            )
        )
    return tuple(found)


def told_rank(rank: Rank) -> str:
    """Say in words what the difference to the highest preset shows."""
    found, name, margin = rank.difference, rank.reference, rank.equivalence.margin * POINTS
    if found.value is None or found.low is None or found.high is None:
        return f"against {name}: {found.reason}"
    if found.degenerate:
        return f"no difference from {name} in any of {found.n} tasks, which proves no equality"
    alike = bool(rank.equivalence.equivalent)
    doubt = "" if found.reliable else " (the interval is too short for so few tasks)"
    within = f", though within {margin:g} points" if alike else ""
    if found.low > 0:
        return f"better than {name}{within}{doubt}"
    if found.high < 0:
        return f"worse than {name}{within}{doubt}"
    if alike and rank.equivalence.reliable:
        return f"equivalent to {name} within {margin:g} points"
    if good_enough(rank):
        return f"not worse than {name} by more than {margin:g} points"
    told = f"not distinguishable from {name} with {found.n} tasks"
    if rank.detectable is not None:
        told += f"; a true difference below about {rank.detectable:.0f} points would often be missed"
    return told


def good_enough(rank: Rank) -> bool:
    """Whether the preset is shown to be not worse than the highest by more than the margin (level 0.05)."""
    alike = rank.equivalence
    if alike.low is None or not alike.reliable or alike.degenerate:
        return False
    return alike.low > -alike.margin


def _advice(report: Report, rows: list[tuple[Overall, Rank | None]]) -> str:
    ranked = [(one, rank) for one, rank in rows if rank is not None]
    if not ranked:
        return "Only one preset was run, so there is nothing to choose between."
    reference = ranked[0][1].reference
    margin = f"{report.options.margin:g} points"
    passed = [(one, rank) for one, rank in ranked if good_enough(rank)]
    if passed:
        sizes = [(_bytes(report, one), one, rank) for one, rank in passed]
        known = [row for row in sizes if row[0]]
        size, one, rank = min(known or sizes, key=lambda row: row[0])
        small = f" ({_megabytes(size)} MB)" if size else ""
        return (
            f"Smallest preset shown to be not worse than {reference} by more than {margin}: "
            f"{one.name}{small}, {told_rank(rank)}."
        )
    worse = [one.name for one, rank in ranked if (rank.difference.high or 0.0) < 0]
    text = f"No preset below {reference} is shown to be not worse by more than {margin}"
    if worse:
        text += f"; {' and '.join(worse)} {'does' if len(worse) == 1 else 'do'} worse"
    if len(worse) == len(ranked):
        return f"{text}."
    n = max(rank.difference.n for _, rank in ranked)
    return f"{text}. With {n} tasks only large differences can be told; more tasks would settle smaller ones."


def _table(report: Report, rows: list[tuple[Overall, Rank | None]]) -> Table:
    policy, several = report.options.policy.value, any(len(one.prompts) > 1 for one, _ in rows)
    entries = []
    for place, (one, rank) in enumerate(rows, 1):
        peak, speed = _cost(report, one)
        ends = "" if one.full.low is None else f"[{_percent(one.full.low)}, {_percent(one.full.high)}]"
        row = [
            Entry(f"{place}. {one.name}"),
            Entry(_percent(one.full.value), ends, not one.full.reliable),
            _verdict(rank),
            Entry(_megabytes(_bytes(report, one)) or "–"),
            Entry(_megabytes(peak) or "–"),
            Entry(f"{speed:,.0f}" if speed else "–"),
            Entry(f"{one.certified} of {one.tasks}"),
        ]
        if several:
            row.append(Entry(f"{_percent(one.lowest)} to {_percent(one.highest)}"))
        entries.append(tuple(row))
    prompts = rows[0][0].prompts
    caption = (
        f"Presets by full-pipeline success ({policy} scoring"
        + (f", averaged over {', '.join(prompts)}" if several else "")
        + "), 95 % task-bootstrap interval."
    )
    head = ["Preset", "Full pipeline", "Verdict", "File, MB", "Peak memory, MB", "Tokens/s", "Certified"]
    return Table(caption, (*head, *(["From prompt to prompt"] if several else [])), tuple(entries))


def _verdict(rank: Rank | None) -> Entry:
    if rank is None:
        return Entry("the yardstick")
    found = rank.difference
    ends = ""
    if found.value is not None:
        ends = f"{signed(POINTS * found.value)}"
    if found.low is not None and found.high is not None:
        ends += f" [{signed(POINTS * found.low)}, {signed(POINTS * found.high)}]".replace("+", "")
    return Entry(told_rank(rank), ends, not found.reliable)


def _names(key: CellKey) -> tuple[str, ...]:
    return key.model, key.fault, key.executor, key.suite


def _bytes(report: Report, one: Overall) -> float:
    return next((f.model_bytes for f in report.facts if f.cell_id in one.cells), 0)


def _cost(report: Report, one: Overall) -> tuple[float | None, float | None]:
    measured = [found for cell, found in report.material.measured.items() if cell in one.cells]
    peaks = [m.peak_memory_bytes for m in measured if m.peak_memory_bytes is not None]
    speeds = sorted(m.decode_tokens_per_second for m in measured if m.decode_tokens_per_second is not None)
    return max(peaks, default=None), speeds[len(speeds) // 2] if speeds else None


def _megabytes(size: float | None) -> str:
    if not size:
        return ""
    return f"{size / 1e6:,.1f}" if size < 100e6 else f"{size / 1e6:,.0f}"


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"
