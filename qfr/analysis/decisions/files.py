"""Decisions in words: as Markdown (for a pull request), as JUnit XML (for a build server), a pick in
sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from qfr.analysis.decisions.cells import Incomparable
from qfr.analysis.decisions.pick import GB, Missing, Pick, Preset, Step
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


def answer(found: Pick, max_gb: float) -> list[str]:
    """The answer in sentences: the preset, why no smaller one, what is missing."""
    reference, chosen = found.steps[0], found.chosen
    margin = f"{100 * found.rule.margin:g} points"
    lines = []
    if chosen is None:
        lines.append(f"No preset can be named yet: none of up to {max_gb:g} GB is shown not to be worse than")
        lines[-1] += f" {reference.preset.name} by more than {margin}."
    elif chosen is reference:
        lines.append(f"{reference.preset.name}: the reference itself fits ({size(reference.preset.bytes)}),")
        lines[-1] += f" and no smaller preset is shown not to be worse by more than {margin}."
    else:
        assert chosen.decision is not None
        one, at_least = chosen.preset, chosen.decision.at_least
        lines.append(
            f"{one.name}: {size(one.bytes)}, {_measured(one)}. Against {reference.preset.name}: "
            f"{points(chosen.decision.difference.value)} points {interval(chosen.decision)}, at least "
            f"{points(at_least)} (95 % sure): not worse by more than {margin}."
        )
    if found.stopped is None:
        if not any(step.decision for step in found.steps):
            lines.append(f"No other preset of up to {max_gb:g} GB was run and can be compared.")
        return lines
    lines.append(f"The sequence stops at {found.stopped.preset.name}: {found.stopped.reason}.")
    return lines + _missing(found.missing, found.stopped, reference)


def _missing(missing: Missing | None, stopped: Step, reference: Step) -> list[str]:
    if missing is None:
        return []
    lines = [f"To settle {stopped.preset.name} ({plan_told(missing.plans[0][1])}):"]
    for case, needed in missing.plans:
        if needed.n is None:
            lines.append(f"  {case}: no number of tasks ({needed.reason})")
            continue
        hours = missing.hours(needed)
        took = "speed not measured" if hours is None else f"{_hours(hours)} at the measured speed"
        lines.append(f"  {case}: {needed.n:,} tasks, {took} ({reference.preset.name} and it, one by one)")
    lines.append(
        "More tasks: python run.py experiment=pick …, with suite.families.FAMILY=COUNT for each family."
    )
    return lines


def _measured(one: Preset) -> str:
    memory = "memory not measured" if one.memory_bytes is None else f"{size(one.memory_bytes)} of memory"
    if one.tokens_per_second is None:
        return f"{memory}, speed not measured"
    return f"{memory}, {one.tokens_per_second:,.1f} tokens/s"


def size(count: int) -> str:
    """A size in bytes, as GB or MB of powers of ten."""
    if count <= 0:
        return "unknown size"
    return f"{count / GB:.2f} GB" if count >= GB else f"{count / 1e6:.1f} MB"


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"about {hours:.1f} hours"
    return f"about {60 * hours:.0f} minutes" if hours >= 1 / 60 else "less than a minute"
