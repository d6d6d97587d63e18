"""The answer in plain words: what differs, what could not be told apart, what flips, what is not estimable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from qfr.analysis.results import Contrast
from qfr.analysis.targets import Target
from qfr.records import Policy
from qfr.report.build import Report
from qfr.report.layout import PANELS, TITLES, Group, Pair, groups, interval, signed

ENDINGS = {
    "submitted": "submitted an answer",
    "reported_failure": "reported failure",
    "out_of_steps": "ran out of steps",
    "out_of_errors": "ran out of errors",
    "out_of_context": "ran out of context",
}


@dataclass(frozen=True)
class Answer:
    """What a reader should take home about one group."""

    title: str
    lines: tuple[str, ...]
    flags: tuple[str, ...]
    # Signs that turn with prompt, target or policy although both intervals exclude zero.


def answers(report: Report) -> tuple[Answer, ...]:
    """Return one answer per group of the headline policy."""
    policy = report.options.policy.value
    other = Policy.strict if report.options.policy is Policy.tolerant else Policy.tolerant
    others = {group.title: group for group in groups(report, other.value)}
    found = []
    for group in groups(report, policy):
        lines = [line for pair in group.pairs for line in _pair_lines(group, pair)]
        if (line := _not_estimable(group)) is not None:
            lines.append(line)
        found.append(Answer(group.title, tuple(lines), _flags(group, others.get(group.title))))
    return tuple(found)


def overview(report: Report) -> tuple[str, ...]:
    """Return what ran and what was certified; always something, also when nothing is estimable."""
    policy = report.options.policy.value
    whole = [s for s in report.summaries if s.family is None and s.policy == policy]
    lines = []
    if not whole:
        lines.append("No finished cell was found.")
    else:
        n_episodes = sum(p.episodes for p in report.processes)
        certified = sum(s.n_certified for s in whole)
        tasks = sum(s.n_tasks for s in whole)
        lines.append(
            f"{_count(len(whole), 'cell')}, {_count(n_episodes, 'episode')}. Under {policy} scoring "
            f"{certified} of {tasks} clean passes were certified"
            + (
                ", so no fault was injected anywhere and no recovery can be estimated."
                if not certified
                else "."
            )
        )
    clean = [p for p in report.processes if p.key.fault == "none"]
    if clean and (told := _told_endings(e for p in clean for e in ((c.name, c.count) for c in p.endings))):
        lines.append(f"Clean episodes: {told}.")
    faulted = [p for p in report.processes if p.key.fault != "none"]
    if any(p.episodes for p in faulted):
        told = _told_endings(e for p in faulted for e in ((c.name, c.count) for c in p.endings))
        lines.append(f"Fault episodes: {told}.")
    if whole and not report.contrasts:
        vary = report.options.vary.value
        levels = ", ".join(dict.fromkeys(str(getattr(s.key, vary)) for s in whole))
        lines.append(
            f"There is nothing to contrast: no two finished cells differ in {vary} alone (found: {levels})."
        )
    return tuple(lines)


def verdict(contrast: Contrast) -> str:
    """Say in one word or two what an interval shows: ``a``, ``b``, ``open`` or ``none``."""
    if contrast.points is None or contrast.low is None or contrast.high is None or contrast.degenerate:
        return "none"
    if contrast.low > 0:
        return "a"
    return "b" if contrast.high < 0 else "open"


def _pair_lines(group: Group, pair: Pair) -> Iterable[str]:
    rows = [(row, c) for row in group.rows if (c := group.find(row, pair, Target.full)) is not None]
    by_verdict: dict[str, list[tuple[str, Contrast]]] = defaultdict(list)
    for row, contrast in rows:
        by_verdict[verdict(contrast)].append((row, contrast))
    if not rows:
        return
    parts = [
        f"{level} is ahead under {_listed(_told(row, c) for row, c in by_verdict[side])}"
        for side, level in (("a", pair[0]), ("b", pair[1]))
        if by_verdict[side]
    ]
    if still_open := by_verdict["open"]:
        parts.append(
            f"not told apart under {_listed(_told(row, c) for row, c in still_open)}{_detectable(still_open)}"
        )
    if flat := by_verdict["none"]:
        told = _listed(f"{row} ({_why(c)})" for row, c in flat)
        parts.append(f"no usable interval under {told}")
    yield f"{pair[0]} against {pair[1]}, full pipeline: " + "; ".join(parts) + "."


def _told(row: str, contrast: Contrast) -> str:
    doubt = "" if contrast.reliable else ", interval too short for so few or so equal tasks"
    return f"{row} ({signed(contrast.points)} points {interval(contrast)}{doubt})"


def _detectable(rows: list[tuple[str, Contrast]]) -> str:
    values = [c.detectable for _, c in rows if c.detectable is not None]
    if not values:
        return ""
    n = max(c.n_tasks for _, c in rows)
    return f" (with {n} tasks a true difference of about {max(values):.0f} points would be found four times in five)"


def _why(contrast: Contrast) -> str:
    if contrast.degenerate:
        return f"{signed(contrast.points)} on every resample, degenerate"
    return contrast.reason or "not estimable"


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
        + "; ".join(f"{_listed(where)} ({reason})" for reason, where in reasons.items())
        + "."
    )


def _row(group: Group, contrast: Contrast) -> str:
    return str(getattr(contrast, group.along.value))


def _flags(group: Group, other: Group | None) -> tuple[str, ...]:
    flags = []
    for pair in group.pairs:
        name = f"{pair[0]} − {pair[1]}"
        for target in PANELS:
            found = [(row, c) for row in group.rows if (c := group.find(row, pair, target)) is not None]
            if told := _flip(found):
                flags.append(f"The prompt turns the sign of {name} ({TITLES[target].lower()}): {told}.")
        for row in group.rows:
            by_target = [
                (TITLES[target].lower(), c)
                for target in PANELS
                if (c := group.find(row, pair, target)) is not None
            ]
            if told := _flip(by_target):
                flags.append(f"The target turns the sign of {name} under {row}: {told}.")
            for target in PANELS:
                sides = [
                    (one.policy, c)
                    for one in (group, other)
                    if one is not None and (c := one.find(row, pair, target)) is not None
                ]
                if told := _flip(sides):
                    flags.append(
                        f"The scoring policy turns the sign of {name} under {row} "
                        f"({TITLES[target].lower()}): {told}."
                    )
    return tuple(flags)


def _flip(found: list[tuple[str, Contrast]]) -> str:
    shown = [(name, c) for name, c in found if verdict(c) in ("a", "b")]
    if len({verdict(c) for _, c in shown}) < 2:
        return ""
    return ", ".join(f"{name} {signed(c.points)} {interval(c)}" for name, c in shown)


def _told_endings(endings: Iterable[tuple[str, int]]) -> str:
    counts: Counter[str] = Counter()
    for name, count in endings:
        counts[name] += count
    return ", ".join(f"{count} {ENDINGS.get(name, name)}" for name, count in counts.most_common() if count)


def _listed(parts: Iterable[str]) -> str:
    words = list(parts)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
