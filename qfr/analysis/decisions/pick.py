"""The smallest preset that is shown not to be worse than a reference by more than a margin.

The presets that are small enough are tested from the largest to the smallest, each at the full level alpha,
until one is not shown: a fixed sequence (Maurer, Hothorn and Lehmacher 1995), whose order the file sizes set
before any result is seen. The chance that the named preset is truly worse by more than the margin is at
most alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from qfr.analysis.decisions.cells import Incomparable, Matches, match
from qfr.analysis.decisions.verdict import Decision, Outcome, Rule, decide
from qfr.analysis.levels import bits
from qfr.analysis.targets import TaskTable
from qfr.stats.power import TasksNeeded

#: Bytes of a gigabyte, as file sizes are published.
GB = 1e9


class Standing(StrEnum):
    """Where a preset stands in the sequence."""

    REFERENCE = "reference"
    TOO_LARGE = "too large"
    SHOWN = "shown"
    STOPPED = "not shown"
    # The sequence stops here.
    NOT_TESTED = "not tested"
    # An earlier one was not shown.
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, eq=False)
class Preset:
    """A preset as it was measured."""

    name: str
    bytes: int
    # Of its file.
    memory_bytes: int | None
    # Peak resident size of the engine's process; None where unknown.
    tokens_per_second: float | None
    # Generated; None where unknown.
    seconds_per_task: float | None
    # Clean and fault episodes of one task together; None where unknown.
    table: TaskTable
    comparisons: int = 1
    # Under how many prompts and settings it is compared with the reference: they share the chance of a wrong
    # "worse".

    @property
    def size(self) -> tuple[int, float]:
        """What presets are ordered by: the file's size; nominal bits where that is equal or unknown."""
        return self.bytes, bits(self.name) or 0.0


@dataclass(frozen=True, eq=False)
class Step:
    """One preset in the sequence."""

    preset: Preset
    standing: Standing
    decision: Decision | None
    # None for the reference and for presets that were not tested.
    reason: str


@dataclass(frozen=True)
class Missing:
    """What it takes to settle the preset at which the sequence stopped."""

    plans: tuple[tuple[str, TasksNeeded], ...]
    # Conditions and the tasks that each would take.
    seconds_per_task: float | None
    # Measured, reference and preset together; None where unknown.

    def hours(self, needed: TasksNeeded) -> float | None:
        """Hours of that many tasks on the machine that was measured; None where unknown."""
        if needed.n is None or self.seconds_per_task is None:
            return None
        return needed.n * self.seconds_per_task / 3600


@dataclass(frozen=True, eq=False)
class Pick:
    """The answer."""

    rule: Rule
    chosen: Step | None
    # The smallest preset that was shown; the reference itself where it fits and no other was shown; or None.
    stopped: Step | None
    # The first that was not shown.
    missing: Missing | None
    # None where nothing is missing, or more tasks would not help.
    steps: tuple[Step, ...]
    # From large to small, the reference first.


def pick(
    reference: Preset, others: Sequence[Preset], rule: Rule, max_bytes: float, *, tested: bool = False
) -> Pick:
    """Choose a preset.

    Parameters
    ----------
    others : sequence of Preset
        Each preset once, any order.
    max_bytes : float
        Largest file that will do.
    tested : bool
        Carry the verdict of presets behind the stop too. It is for the reader: they are not named.
    """
    fits = reference.bytes <= max_bytes
    steps = [Step(reference, Standing.REFERENCE, None, "fits" if fits else "does not fit")]
    chosen = steps[0] if fits else None
    stopped: Step | None = None
    for preset in sorted(others, key=lambda one: one.size, reverse=True):
        found = match([reference.table], [preset.table])
        if preset.bytes > max_bytes or preset.size >= reference.size:
            reason = "larger than allowed" if preset.bytes > max_bytes else "not smaller than the reference"
            beside = _decided(reference, preset, rule, found) if tested and found.pairs else None
            steps.append(Step(preset, Standing.TOO_LARGE, beside, reason))
            continue
        if not found.pairs:
            steps.append(Step(preset, Standing.NOT_COMPARABLE, None, _said(found.apart)))
        elif stopped is not None:
            reason = f"the sequence stopped at {stopped.preset.name}"
            beside = _decided(reference, preset, rule, found) if tested else None
            steps.append(Step(preset, Standing.NOT_TESTED, beside, reason))
        else:
            decision = _decided(reference, preset, rule, found)
            shown = decision.outcome is Outcome.NOT_WORSE
            standing = Standing.SHOWN if shown else Standing.STOPPED
            steps.append(Step(preset, standing, decision, decision.reason))
            if not shown:
                stopped = steps[-1]
            elif chosen is None or preset.size < chosen.preset.size:
                chosen = steps[-1]
    return Pick(rule, chosen, stopped, _missing(reference, stopped), tuple(steps))


def _decided(reference: Preset, preset: Preset, rule: Rule, found: Matches) -> Decision:
    shared = rule.shared(preset.comparisons)
    return decide(reference.table, preset.table, shared, found.pairs[0].remarks)


def _said(apart: Sequence[Incomparable]) -> str:
    return "; ".join(one.reason for one in apart)


def _missing(reference: Preset, stopped: Step | None) -> Missing | None:
    if stopped is None or stopped.decision is None or not stopped.decision.plans:
        return None
    times = (reference.seconds_per_task, stopped.preset.seconds_per_task)
    together = None if times[0] is None or times[1] is None else times[0] + times[1]
    return Missing(stopped.decision.plans, together)
