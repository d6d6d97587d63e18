"""What a try says: the plan, each look, the one named file, and the record of all looks."""

from __future__ import annotations

import dataclasses
import json
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path

from qfr.analysis.decisions.files import percent, points, size
from qfr.analysis.decisions.sequential import Look, Sequential
from qfr.analysis.decisions.verdict import Outcome
from qfr.play.progress import span
from qfr.tryout.files import Arm, Family
from qfr.tryout.sequence import Answer, Tried, at_floor
from qfr.tryout.waves import Waves


def plan_lines(family: Family, limit: float | None, tasks: int, waves: int) -> list[str]:
    """The files of one model and what is going to happen."""
    reference, *others = family.arms
    lines = [
        f"{family.name}: {len(family.arms)} file{'s' if others else ''} of {reference.facts.arch}, context "
        f"{reference.facts.n_ctx_train:,}"
    ]
    for arm in family.arms:
        what = "reference" if arm is reference else "tried"
        if arm is not reference and limit is not None and arm.gigabytes > limit:
            what = f"larger than {limit:g} GB, left out"
        publisher = dict(arm.facts.metadata).get("general.quantized_by", "")
        more = f", {publisher}" if publisher else ""
        lines.append(f"  {arm.label:<22} {size(arm.bytes):>10}  {arm.path.name}{more}: {what}")
    lines.append(
        f"  up to {tasks:,} tasks a file in {waves} wave{'s' if waves > 1 else ''}; "
        "it stops as soon as the answer is known"
    )
    return lines


def hours_line(reference: Waves, candidate: Waves, waves: int, files: int) -> str:
    """How long it can take, from the first waves that were played."""
    known = [one.seconds for one in (*reference.played[:1], *candidate.played[:1]) if one.seconds]
    if not known:
        return "no time known: the first waves were played before"
    wave = statistics.fmean(known)
    return (
        f"a wave of a file takes about {span(wave)}: {span(wave * waves * files)} at most for {files} files"
    )


def look_line(tried: Tried, reference: Arm, rule: Sequential) -> str:
    """One look in one line."""
    one = tried.looks[-1]
    said = (
        f"{tried.arm.label} − {reference.label}: {one.tasks} tasks, {points(one.estimate)} points "
        f"[{points(one.low)}, {points(one.high)}], evidence {one.not_worse:.3g} for 'not worse', "
        f"{one.worse:.3g} for 'worse' ({1 / rule.alpha:g} settles it)"
    )
    return said if one.outcome is Outcome.INCONCLUSIVE else f"{said}: {told(one.outcome, rule)}"


def told(outcome: Outcome, rule: Sequential) -> str:
    """A settled outcome in the words of the gate."""
    margin = f"{100 * rule.margin:g} points"
    if outcome is Outcome.NOT_WORSE:
        return f"not worse by more than {margin}"
    return f"worse by more than {margin}" if outcome is Outcome.WORSE else "not settled"


def lines(answer: Answer, waves: dict[Path, Waves], tasks: int, kv: str | None = None) -> list[str]:
    """The answer for one model, the named file first."""
    named, rule = answer.named, answer.rule
    margin = f"{100 * rule.margin:g} points"
    reference = waves.get(answer.reference.path)
    held = [] if reference is None else list(reference.played)
    out = []
    if reference is not None and at_floor(reference, rule):
        count, passed = sum(len(one.rates) for one in held), sum(one.certified for one in held)
        reached = percent(statistics.fmean(float(rate) for one in held for rate in one.rates))
        return [
            f"{answer.family.name}: not yet. {answer.reference.label} passed {passed or 'none'} of {count} "
            f"tasks without a fault and reaches {reached} of the full pipeline: nothing could be worse by "
            f"more than {margin}, so nothing can be said of its presets. Try an easier --suite, another "
            "--prompt, or a larger model."
        ]
    if named is None:
        why = answer.stopped or f"no file of up to {answer.limit:g} GB was shown"
        out.append(f"{answer.family.name}: not yet ({why}).")
    else:
        out.append(f"{answer.family.name}: {named.path}")
        out.append(f"  {_measured(named, waves)}")
    for one in answer.tried:
        out.append("  " + _result(one, answer, tasks))
    if named is answer.reference and not answer.tried:
        out.append("  the only file that fits: nothing was compared")
    elif named is answer.reference:
        out.append(f"  the reference itself: no smaller file was shown to be not worse by more than {margin}")
    if named is not None and answer.stopped:
        out.append(f"  stopped: {answer.stopped}; the same command goes on")
    if named is not None:
        out.append("  " + serve_line(named, kv))
    return out


def serve_line(arm: Arm, kv: str | None = None) -> str:
    """The command that serves a file as it was tried: greedy, with its own template and cache."""
    context = min(arm.facts.n_ctx_train or 8192, 8192)
    cache = ["-fa", "on", "-ctk", kv, "-ctv", kv] if kv and kv != "f16" else []
    path = str(arm.path.absolute())
    return shlex.join(["llama-server", "-m", path, "-c", str(context), *cache, "--jinja", "--temp", "0"])


def _result(one: Tried, answer: Answer, tasks: int) -> str:
    rule = answer.rule
    if one.failure:
        return f"{one.arm.label}: could not be played ({one.failure})"
    if not one.looks:
        return f"{one.arm.label}: not played ({answer.stopped})"
    last = one.looks[-1]
    said = (
        f"{one.arm.label} ({size(one.arm.bytes)}) against {answer.reference.label}: {points(last.estimate)} "
        f"points [{points(last.low)}, {points(last.high)}] on {last.tasks} tasks: {told(last.outcome, rule)}"
    )
    if last.outcome is Outcome.INCONCLUSIVE and not answer.stopped:
        said += f" with all {tasks} tasks; a larger suite may settle it (--tasks {2 * tasks})"
    return said


def _measured(arm: Arm, waves: dict[Path, Waves]) -> str:
    played = waves[arm.path].played if arm.path in waves else ()
    speeds = [one.tokens_per_second for one in played if one.tokens_per_second]
    memory = [one.memory_bytes for one in played if one.memory_bytes]
    rates = [float(rate) for one in played for rate in one.rates]
    parts = [arm.label, size(arm.bytes)]
    parts.append(f"{size(max(memory))} of memory" if memory else "memory not measured")
    parts.append(f"{statistics.median(speeds):,.0f} tokens/s" if speeds else "speed not measured")
    if rates:
        parts.append(f"{percent(statistics.fmean(rates))} of the full pipeline on {len(rates)} tasks")
    return ", ".join(parts)


def record(answers: Sequence[Answer], settings: dict[str, object]) -> str:
    """All looks as JSON."""

    def look(one: Look) -> dict[str, object]:
        return {**dataclasses.asdict(one), "outcome": str(one.outcome)}

    found = [
        {
            "model": one.family.name,
            "reference": str(one.reference.path),
            "named": None if one.named is None else str(one.named.path),
            "stopped": one.stopped,
            "tried": [
                {
                    "file": str(tried.arm.path),
                    "label": tried.arm.label,
                    "looks": [look(at) for at in tried.looks],
                }
                for tried in one.tried
            ],
        }
        for one in answers
    ]
    return json.dumps({"settings": settings, "answers": found}, indent=2, sort_keys=True) + "\n"
