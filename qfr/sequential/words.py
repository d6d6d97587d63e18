"""The answer of a try, in sentences."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence

from qfr.analysis.decisions.pick import GB
from qfr.analysis.decisions.sequential import Look
from qfr.analysis.decisions.verdict import Outcome
from qfr.analysis.decisions.words import size
from qfr.config import CellConfig
from qfr.sequential.files import Arm
from qfr.sequential.sequence import Answer, Tried
from qfr.sequential.waves import Wave


def look_line(arm: Arm, one: Look, margin: float) -> str:
    """One look in a line."""
    return (
        f"  {arm.label}: {one.n} tasks, {_interval(one)}, capital {_capital(one.not_worse)} for not worse by "
        f"{100 * margin:g}, {_capital(one.worse)} for worse"
        + ("" if one.outcome is Outcome.INCONCLUSIVE else f": {one.outcome}")
    )


def told(answer: Answer, max_gb: float | None, base: CellConfig) -> list[str]:
    """Return the answer: the named file and how to start it, or what is missing."""
    reference = answer.reference.arm
    lines = [_tried(one, answer) for one in answer.tried]
    if answer.skipped:
        over = [arm for arm in answer.skipped if max_gb is not None and arm.bytes > max_gb * GB]
        left = [arm for arm in answer.skipped if arm not in over]
        if over:
            lines.append(f"Larger than {max_gb:g} GB: {', '.join(arm.label for arm in over)}.")
        if left:
            lines.append(f"Not tested: {', '.join(arm.label for arm in left)}.")
    if answer.stopped:
        lines.append(f"Stopped: {answer.stopped}.")
    lines += _missing(answer)
    if answer.chosen is None:
        lines.append(f"No file can be named yet for {answer.family.name}.")
        return lines
    return [*lines, *_named(answer, answer.chosen, reference, base)]


def _tried(one: Tried, answer: Answer) -> str:
    if one.problem:
        return f"{one.arm.label}: cannot be played: {one.problem.splitlines()[0]}"
    if not one.looks:
        return f"{one.arm.label}: not played"
    last, margin = one.looks[-1], f"{100 * answer.rule.margin:g} points"
    said = {
        Outcome.NOT_WORSE: f"not worse than {answer.reference.arm.label} by more than {margin}",
        Outcome.WORSE: f"worse than {answer.reference.arm.label} by more than {margin}",
    }.get(last.outcome, f"not decided at {margin}")
    return f"{one.arm.label}: {said}; {_interval(last)} after {last.n} tasks"


def _missing(answer: Answer) -> list[str]:
    """What an undecided arm needs, in tasks and hours."""
    if not any(bool(wave.table.certified.any()) for wave in answer.reference.played) and answer.tried:
        return [
            "Nothing to compare with: the reference fails every task without any fault. "
            "Try another --prompt or --suite."
        ]
    last = answer.tried[-1] if answer.tried else None
    if last is None or not last.looks or last.outcome is not Outcome.INCONCLUSIVE:
        return []
    n = last.looks[-1].n
    each = _per_task(last.played) + _per_task(answer.reference.played[: len(last.played)])
    if n >= answer.tasks:
        return [
            f"To decide {last.arm.label}: a larger margin, or a larger suite (--suite); "
            f"{n} more tasks would take about {_hours(n * each)}."
        ]
    rest = answer.tasks - n
    took = _hours(rest * each)
    return [f"The remaining {rest} tasks of {last.arm.label} take about {took}: repeat the command."]


def _named(answer: Answer, chosen: Arm, reference: Arm, base: CellConfig) -> list[str]:
    played = answer.reference.played
    found = next((one for one in answer.tried if one.arm is chosen), None)
    interval = "the reference itself"
    if found is not None and found.looks:
        last, played = found.looks[-1], found.played
        interval = (
            f"{_interval(last)} against {reference.label}, not worse by more than "
            f"{100 * answer.rule.margin:g} points (95 % sure at any look)"
        )
    memory = max((wave.memory_bytes or 0 for wave in played), default=0)
    speeds = [wave.tokens_per_second for wave in played if wave.tokens_per_second]
    return [
        "",
        f"→ {chosen.path}",
        f"  {chosen.label}: {interval}",
        f"  {size(chosen.bytes)}, {size(memory)} of memory"
        + (f", {statistics.median(speeds):,.1f} tokens/s" if speeds else ""),
        f"  {server_line(chosen, base)}",
    ]


def server_line(arm: Arm, base: CellConfig) -> str:
    """The command that serves the file with the settings that were tried."""
    command = ["llama-server", "-m", str(arm.path.absolute()), "--jinja", "--temp", "0"]
    if base.engine.n_ctx:
        command += ["-c", str(base.engine.n_ctx)]
    if (base.engine.type_k, base.engine.type_v) != ("f16", "f16"):
        command += ["-fa", "on", "-ctk", base.engine.type_k, "-ctv", base.engine.type_v]
    return shlex.join(command)


def _per_task(played: Sequence[Wave]) -> float:
    tasks = sum(wave.table.n_tasks for wave in played)
    return sum(wave.seconds for wave in played) / tasks if tasks else 0.0


def _interval(one: Look) -> str:
    return f"{_points(one.estimate)} points [{_points(one.low)}, {_points(one.high)}]"


def _points(value: float) -> str:
    return f"{100 * value + 0.0:+.1f}".replace("-", "−")


def _capital(value: float) -> str:
    return f"{value:,.2g}" if value < 1000 else f"{value:.0e}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1.0, seconds / 60):.0f} minutes"
