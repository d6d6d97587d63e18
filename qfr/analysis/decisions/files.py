"""Decisions as Markdown (for a pull request) and as JUnit XML (for a build server)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from qfr.analysis.decisions.cells import Incomparable
from qfr.analysis.decisions.verdict import Decision, Outcome
from qfr.stats.power import TasksNeeded

# Everything that XML 1.0 has no place for.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~])")

_HEADS = (
    *("candidate", "baseline", "tasks", "candidate rate", "baseline rate", "difference, points"),
    *("95 % interval", "at least", "at most", "outcome"),
)


@dataclass(frozen=True)
class Gate:
    """Everything that one gate decided."""

    title: str
    decisions: tuple[Decision, ...]
    apart: tuple[Incomparable, ...]
    notes: tuple[str, ...] = ()
    # What a reader should know of the whole.

    @property
    def outcome(self) -> Outcome:
        """The worst of all: worse, then not comparable, then inconclusive; not worse only if all are."""
        found = {decision.outcome for decision in self.decisions}
        if self.apart or not found:
            found.add(Outcome.NOT_COMPARABLE)
        order = (Outcome.WORSE, Outcome.NOT_COMPARABLE, Outcome.INCONCLUSIVE, Outcome.NOT_WORSE)
        return next(outcome for outcome in order if outcome in found)


def points(value: float | None, digits: int = 1) -> str:
    """A difference in points with its sign; a dash where there is none.

    >>> points(-0.0421)
    '−4.2'
    """
    if value is None:
        return "–"
    text = f"{100 * value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def interval(decision: Decision) -> str:
    """The bootstrap interval in brackets, with a word where it says nothing or too little."""
    found = decision.difference
    if found.low is None or found.high is None:
        return "–"
    doubt = " (degenerate)" if found.degenerate else "" if found.reliable else " (too short)"
    return f"[{points(found.low)}, {points(found.high)}]{doubt}"


def percent(rate: float | None) -> str:
    """A rate as a percentage."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def tasks_told(decision: Decision) -> str:
    """Say how many tasks would settle an inconclusive decision; empty where that is not known."""
    if not decision.plans:
        return ""
    told = ", ".join(f"{_count(needed)} {case}" for case, needed in decision.plans)
    return f"to settle it: {told} ({plan_told(decision.plans[0][1])})"


def to_markdown(gate: Gate) -> str:
    """A table of all comparisons with what they rest on."""
    lines = [f"### {_plain(gate.title)}: {gate.outcome}", ""]
    if gate.decisions:
        lines += ["| " + " | ".join(_HEADS) + " |", "|" + "---|" * len(_HEADS)]
        lines += ["| " + " | ".join(map(_plain, _row(one))) + " |" for one in gate.decisions]
        lines.append("")
        lines += [f"- {_plain(text)}" for one in gate.decisions for text in _details(one)]
    lines += [f"- not comparable: {_plain(told_apart(one))}" for one in gate.apart]
    lines += [f"- {_plain(note)}" for note in gate.notes]
    return "\n".join(lines).rstrip() + "\n"


def to_junit(gate: Gate) -> str:
    """A JUnit test suite: one test case per comparison.

    Worse and inconclusive are failures (of those types), not comparable is an error: none of them is green.
    """
    cases = [_case(one) for one in gate.decisions] + [_apart_case(one) for one in gate.apart]
    if not cases:
        cases = [_apart_case(Incomparable("", "", "nothing was compared"))]
    kinds = [child.tag for case in cases for child in case if child.tag in ("failure", "error")]
    counts = {"tests": len(cases), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    attributes = {key: str(value) for key, value in counts.items()}
    suite = ElementTree.Element("testsuite", {"name": _xml(gate.title), **attributes, "skipped": "0"})
    suite.extend(cases)
    for note in gate.notes:
        ElementTree.SubElement(suite, "system-out").text = _xml(note)
    root = ElementTree.Element("testsuites", attributes)
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def told_apart(one: Incomparable) -> str:
    """Name two cells and what keeps them apart."""
    names = " against ".join(name for name in (one.candidate, one.baseline) if name)
    return f"{names}: {one.reason}" if names else one.reason


def _row(one: Decision) -> tuple[str, ...]:
    return (
        one.candidate,
        one.baseline,
        str(one.n_tasks),
        percent(one.rate_candidate),
        percent(one.rate_baseline),
        points(one.difference.value),
        interval(one),
        points(one.at_least),
        points(one.at_most),
        one.label,
    )


def _details(one: Decision) -> list[str]:
    told = tasks_told(one)
    return [
        f"{one.candidate}: {one.reason}",
        *([f"{one.candidate}: {told}"] if told else []),
        *(f"{one.candidate}: {text}" for text in one.remarks),
    ]


def _case(one: Decision) -> ElementTree.Element:
    case = _element(one.candidate, one.baseline)
    text = "\n".join(
        [
            f"difference {points(one.difference.value)} points {interval(one)}, at least "
            f"{points(one.at_least)}, at most {points(one.at_most)}, {one.n_tasks} tasks, "
            f"{percent(one.rate_candidate)} against {percent(one.rate_baseline)}",
            *_details(one),
        ]
    )
    if one.outcome is Outcome.NOT_WORSE:
        ElementTree.SubElement(case, "system-out").text = _xml(text)
        return case
    tag = "error" if one.outcome is Outcome.NOT_COMPARABLE else "failure"
    bad = ElementTree.SubElement(case, tag, {"type": str(one.outcome), "message": _xml(one.reason)})
    bad.text = _xml(text)
    return case


def _apart_case(one: Incomparable) -> ElementTree.Element:
    case = _element(one.candidate, one.baseline)
    attributes = {"type": str(Outcome.NOT_COMPARABLE), "message": _xml(one.reason)}
    ElementTree.SubElement(case, "error", attributes)
    return case


def _element(candidate: str, baseline: str) -> ElementTree.Element:
    name = " against ".join(part or "nothing" for part in (candidate, baseline))
    return ElementTree.Element("testcase", {"classname": "qfr.compare", "name": _xml(name)})


def _xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


def _plain(text: str) -> str:
    """Text as it is, inside a Markdown table or list."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def plan_told(needed: TasksNeeded) -> str:
    """What a number of tasks was planned with."""
    return f"power {needed.power:.0%}, spread {100 * needed.spread:.0f} points: as observed, and a lost task"


def _count(needed: TasksNeeded) -> str:
    return "no number of tasks" if needed.n is None else f"{needed.n:,} tasks"
