"""The answer of a pick, in sentences."""

from __future__ import annotations

from qfr.analysis.decisions.files import interval, plan_told, points
from qfr.analysis.decisions.pick import GB, Missing, Pick, Preset, Step


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
