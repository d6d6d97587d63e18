"""The answer in plain words: what differs, what cannot be told apart, what flips, what is not estimable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qfr.analysis.cells import CellSummary
from qfr.analysis.decisions.verdict import Direction, Outcome
from qfr.analysis.levels import NOT_STATED
from qfr.analysis.pairing import level
from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.analysis.trials import FOREIGN, Planned
from qfr.records import Policy
from qfr.report.content.build import Report
from qfr.report.content.outcomes import ENDINGS
from qfr.report.layout import PANELS, TITLES, Group, Pair, careful, cell_name, groups
from qfr.report.tables.formats import counted, listed, percent, signed
from qfr.report.tables.imported import logs_of
from qfr.scope import NAMES, scope_of, varying

#: Imported logs whose success the overview tells; the tables hold all.
_MOST_LOGS = 12
# Values of a varying key that are told.
_MOST_VALUES = 4


@dataclass(frozen=True)
class Line:
    """One statement, and the figures behind it."""

    text: str
    detail: str = ""
    rows: str = ""
    # Ids of the rows of results that it states, parted by spaces.


@dataclass(frozen=True)
class Answer:
    """What a reader should take home about one group."""

    title: str
    lines: tuple[Line, ...]
    flag: str
    # One sentence on signs that turn although both verdicts are shown; empty when none does.
    flags: tuple[str, ...]
    # Each of them.


def answers(report: Report) -> tuple[Answer, ...]:
    """Return one answer per group of the headline policy."""
    policy = report.options.policy.value
    other = Policy.strict if report.options.policy is Policy.tolerant else Policy.tolerant
    others = {group.title: group for group in groups(report, other.value)}
    found = []
    for group in groups(report, policy):
        lines = [line for pair in group.pairs for line in _pair_lines(group, pair)]
        if (line := _not_estimable(group)) is not None:
            lines.append(Line(line))
        turned = tuple(_flags(group, others.get(group.title)))
        told = f"The sign turns with {listed(dict.fromkeys(what for what, _ in turned))}." if turned else ""
        found.append(Answer(group.title, tuple(lines), told, tuple(text for _, text in turned)))
    return tuple(found)


def overview(report: Report) -> tuple[str, ...]:
    """Return what ran and what was certified; always something, also when nothing is estimable."""
    policy = report.options.policy.value
    whole = [s for s in report.summaries if s.family is None and s.policy == policy]
    played = [s for s in whole if s.key.executor != FOREIGN]
    plans = {one.table.cells: one.plan for one in logs_of(report)}
    lines = list(_imported([s for s in whole if s.key.executor == FOREIGN], plans))
    if not whole:
        lines.append("No finished cell was found.")
    elif played:
        n_episodes = sum(p.episodes for p in report.processes if p.key.executor != FOREIGN)
        certified = sum(s.n_certified for s in played)
        tasks = sum(s.n_tasks for s in played)
        lines.append(
            f"{counted(len(played), 'cell')}, {counted(n_episodes, 'episode')}. Under {policy} scoring "
            f"{certified} of {tasks} clean passes were certified"
            + (
                ", so no fault was injected anywhere and no recovery can be estimated."
                if not certified
                else "."
            )
        )
    clean = [p for p in report.processes if p.key.fault == "none" and p.key.executor != FOREIGN]
    if clean and (told := _told_endings(e for p in clean for e in ((c.name, c.count) for c in p.endings))):
        lines.append(f"Clean episodes: {told}.")
    faulted = [p for p in report.processes if p.key.fault != "none"]
    if any(p.episodes for p in faulted):
        told = _told_endings(e for p in faulted for e in ((c.name, c.count) for c in p.endings))
        lines.append(f"Fault episodes: {told}.")
    if told := _detectable(report):
        lines.append(told)
    if report.options.inferred:
        lines.append(
            f"No two finished cells differ in the preset alone, so {report.options.vary} is contrasted "
            f"(--vary {report.options.vary})."
        )
    if whole and not report.contrasts:
        vary = report.options.vary
        levels = ", ".join(dict.fromkeys(level(s, vary) for s in whole))
        lines.append(
            f"There is nothing to contrast: no two finished cells differ in {vary} alone (found: {levels})."
        )
    return tuple(lines)


def _imported(logs: list[CellSummary], plans: Mapping[tuple[str, ...], Planned]) -> Iterable[str]:
    """What imported logs say by themselves: no task of theirs was screened and no fault injected."""
    if logs:
        scored = counted(sum(s.episodes for s in logs), "scored simulation")
        yield f"{counted(len(logs), 'imported log')}, {scored}; success is the mean over a task's trials."
    for s in logs[:_MOST_LOGS]:
        if s.own.value is not None:
            told = ""
            if s.own.low is not None and s.own.high is not None:
                told = f" [{100 * s.own.low:.1f}, {100 * s.own.high:.1f}]"
            name, plan = cell_name(s.key), plans[s.cells]
            more = " ⚠ Limited: see Imported logs." if plan.warnings else ""
            yield f"{name} ({plan.source}): success {percent(s.own.value)}{told}, n = {s.own.n} tasks.{more}"
    if len(logs) > _MOST_LOGS:
        yield f"… and {len(logs) - _MOST_LOGS} more logs."


def ahead(contrast: Contrast) -> str:
    """Say which side is shown to be ahead: ``a``, ``b``, or neither (empty)."""
    found = contrast.decision
    if found is None:
        return ""
    if found.outcome is Outcome.WORSE or found.direction is Direction.WORSE:
        return "a"
    return "b" if found.direction is Direction.BETTER else ""


def _pair_lines(group: Group, pair: Pair) -> Iterable[Line]:
    target = group.panels[-1]
    rows = [(row, c) for row in group.rows if (c := group.find(row, pair, target)) is not None]
    labels: dict[str, list[str]] = defaultdict(list)
    for row, contrast in rows:
        labels[contrast.verdict or "no verdict"].append(row)
    if not rows:
        return
    # Imported logs name no prompt.
    parts = [
        f"{label} under {listed(named)}".removesuffix(f" under {NOT_STATED}")
        for label, named in labels.items()
    ]
    yield Line(
        f"{pair[1]} against {pair[0]}: {'; '.join(parts)} ({group.titled(target).lower()}).",
        f"{pair[0]} − {pair[1]}: {'; '.join(_told(row, c) for row, c in rows)}.",
        " ".join(c.id for _, c in rows),
    )


def _told(row: str, contrast: Contrast) -> str:
    name = "" if row == NOT_STATED else f"{row} "
    if contrast.points is None:
        return f"{name}{contrast.reason}"
    return f"{name}{signed(contrast.points)} {careful(contrast)}"


def varies(report: Report) -> str:
    """Say what differs between the settings of a store, key by key; nothing where names say it all."""
    faulted = [one for one in report.facts if one.fault != "none"]
    found = varying(scope_of(one) for one in faulted or report.facts)
    if all(key in NAMES.values() for key, _ in found):
        return ""
    shown = [
        f"{key} ({', '.join(values[:_MOST_VALUES])}{' …' * (len(values) > _MOST_VALUES)})"
        for key, values in found
    ]
    return f"What varies here: {'; '.join(shown)}."


def _detectable(report: Report) -> str:
    """The one detectable difference of a page: of the full pipeline, the largest over its contrasts."""
    policy = report.options.policy.value
    found = [
        (c.detectable_points, c.n_tasks)
        for c in report.contrasts
        if c.policy == policy and c.detectable_points is not None and c.target in (Target.full, Target.clean)
    ]
    if not found:
        return ""
    size, n = max(found)
    return f"With {n} tasks, a true difference of about {size:.0f} points would be found four times in five."


def _not_estimable(group: Group) -> str | None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for contrast in group.contrasts:
        if contrast.family is None and contrast.points is None and contrast.target in PANELS:
            where = f"{TITLES[Target(contrast.target)].lower()} {_row(group, contrast)}"
            if len(group.pairs) > 1:
                where += f" {contrast.a}−{contrast.b}"
            reasons[contrast.reason or "not estimable"].append(where)
    if not reasons:
        return None
    return (
        "Not estimable: "
        + "; ".join(f"{listed(where)} ({reason})" for reason, where in reasons.items())
        + "."
    )


def _row(group: Group, contrast: Contrast) -> str:
    return str(getattr(contrast, group.along.value))


def _flags(group: Group, other: Group | None) -> Iterable[tuple[str, str]]:
    """Yield what turns a sign, and the sentence."""
    for pair in group.pairs:
        name = f"{pair[0]} − {pair[1]}"
        for target in PANELS:
            found = [(row, c) for row in group.rows if (c := group.find(row, pair, target)) is not None]
            if told := _flip(found):
                yield f"the {group.along}", f"{name}, {TITLES[target].lower()}: {told}."
        for row in group.rows:
            by_target = [
                (TITLES[target].lower(), c)
                for target in PANELS
                if (c := group.find(row, pair, target)) is not None
            ]
            if told := _flip(by_target):
                yield "the target", f"{name} under {row}: {told}."
            for target in PANELS:
                sides = [
                    (one.policy, c)
                    for one in (group, other)
                    if one is not None and (c := one.find(row, pair, target)) is not None
                ]
                if told := _flip(sides):
                    yield "the scoring policy", f"{name} under {row}, {TITLES[target].lower()}: {told}."


def _flip(found: list[tuple[str, Contrast]]) -> str:
    shown = [(name, c) for name, c in found if ahead(c)]
    if len({ahead(c) for _, c in shown}) < 2:
        return ""
    return ", ".join(f"{name} {signed(c.points)} {careful(c)}" for name, c in shown)


def _told_endings(endings: Iterable[tuple[str, int]]) -> str:
    counts: Counter[str] = Counter()
    for name, count in endings:
        counts[name] += count
    return ", ".join(f"{count} {ENDINGS.get(name, name)}" for name, count in counts.most_common() if count)
