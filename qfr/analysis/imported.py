"""Two imported logs against each other: success, and how their agents' calls went (Jang 2026).

The first log is the reference. Success is contrasted as in `trials`; the diagnostics are those of
`qfr.analysis.diagnostics`. A log of other programs counts failing calls of two sides, the agent's and the
user simulator's; the records hold the agent's alone, so budgets that both share are counted from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.diagnostics.budget import BudgetGap, budget_gap, budget_table
from qfr.analysis.diagnostics.channels import Amplification, amplifications
from qfr.analysis.diagnostics.length import LengthChange, length_changes
from qfr.analysis.diagnostics.log import Log, make_log, shared
from qfr.analysis.diagnostics.novelty import Novelty, novelty
from qfr.analysis.diagnostics.recovery import Recovery, recovery
from qfr.analysis.frames import score_column
from qfr.analysis.levels import NOT_STATED, Axis
from qfr.analysis.results import Contrast
from qfr.analysis.streams import stream
from qfr.analysis.targets import CellKey, Target
from qfr.analysis.trials import FOREIGN, common_budget, listed_differences, table_of_run
from qfr.errors import LogError
from qfr.foreign import ForeignRun, Requestor
from qfr.records import Channel, FaultKind, Policy
from qfr.tracking.reading.tables import call_table, episode_table, score_table, to_frame

#: An error is recovered when one of so many next calls is good.
WINDOWS = (1, 3)


@dataclass(frozen=True)
class Side:
    """One of the logs."""

    label: str
    run: ForeignRun


@dataclass(frozen=True)
class Gap:
    """S(K) of the first log minus the second's, by whose failing calls count."""

    whose: str
    curve: BudgetGap


@dataclass(frozen=True)
class Comparison:
    """A log against the reference."""

    first: Side
    # The reference.
    second: Side
    contrast: Contrast
    # Success of the first minus success of the second, paired by task.
    differences: tuple[str, ...]
    # What else differs between the logs.
    episodes: int
    # Simulations (task, trial) that both logs score: those of the amplifications and the novelty.
    amplifications: tuple[Amplification, ...]
    # The second against the first, over the simulations (task, trial) that both logs score.
    novelty: tuple[Novelty, ...]
    # All channels, then invented tool names alone.
    gaps: tuple[Gap, ...]
    # Both sides together, then the agent alone; empty where a log cannot show failing calls.
    blind: str
    # Why there are no failing calls to compare; empty where there are.
    lengths: tuple[LengthChange, ...]
    # Calls of the agent per simulation, over the simulations (task, trial) that both logs score.
    recovery: tuple[Recovery, Recovery]
    # After any error of the agent.


def compare(sides: Sequence[Side], options: Options | None = None) -> tuple[Comparison, ...]:
    """Compare every log with the first.

    Parameters
    ----------
    sides : sequence of Side
        At least two, with different labels.
    options : Options, optional
        Method, seed, level and margin of the contrasts.

    Raises
    ------
    LogError
        A log holds no scored simulation.
    """
    for side in sides:
        if not side.run.episodes:
            raise LogError(
                "holds no scored simulation, so there is nothing to contrast", where=side.run.info.source
            )
    chosen = options or Options()
    contrasts = contrasts_of(sides, chosen)
    logs = [_Read.of(side) for side in sides]
    return tuple(_compared(logs[0], other, contrasts[at], chosen) for at, other in enumerate(logs[1:]))


def contrasts_of(sides: Sequence[Side], options: Options) -> tuple[Contrast, ...]:
    """Return the first log's success minus each other one's, paired by task."""
    labels = tuple(side.label for side in sides)
    tables = [
        table_of_run(
            side.run,
            CellKey("", side.label, NOT_STATED, str(FaultKind.none), FOREIGN, "", "certified", 0),
            str(Policy.tolerant),
        )
        for side in sides
    ]
    asked = Options(
        vary=Axis.quant,
        method=options.method,
        resamples=options.resamples,
        seed=options.seed,
        level=options.level,
        families=False,
        order=labels,
        margin=options.margin,
    )
    found = {contrast.b: contrast for contrast in contrast_table(tables, asked) if contrast.a == labels[0]}
    return tuple(found[label] for label in labels[1:])


@dataclass(frozen=True, eq=False)
class _Read:
    """A log as tables."""

    side: Side
    episodes: pd.DataFrame
    log: Log

    @classmethod
    def of(cls, side: Side) -> _Read:
        episodes = [found.episode for found in side.run.episodes]
        frame = to_frame(episode_table(episodes))
        scores = to_frame(score_table(episodes, Policy.tolerant, ep_min_calls=2))
        for field in ("success", "delivered", "invented"):
            frame[score_column(Policy.tolerant, field)] = scores[field]
        return cls(side, frame, make_log(side.label, frame, to_frame(call_table(episodes))))

    def counting(self, requestor: Requestor | None) -> pd.DataFrame:
        """Episodes whose errors are one side's failing calls, or both sides'."""
        errors = np.array([found.errors(requestor) for found in self.side.run.episodes], dtype=np.int64)
        return self.episodes.assign(errors=errors)


def _compared(first: _Read, second: _Read, contrast: Contrast, options: Options) -> Comparison:
    def rng(name: str) -> np.random.Generator:
        return stream(options.seed, ["imported", name, first.side.label, second.side.label])

    runs = (first.side.run, second.side.run)
    budget = common_budget(
        (run.info.max_errors for run in runs),
        (max(found.errors() for found in run.episodes) for run in runs),
    )
    gaps = []
    blind = next((f"{run.info.source}: {run.blind}" for run in runs if run.blind), "")
    for whose, requestor in () if blind else (("both sides", None), ("agent alone", Requestor.agent)):
        tables = [
            budget_table(
                read.side.label, read.counting(requestor), None, policy=Policy.tolerant, budget=budget
            )
            for read in (first, second)
        ]
        curve = budget_gap(tables[0], tables[1], Target.matched, rng=rng(whose), level=options.level)
        gaps.append(Gap(whose, curve))
    ours, theirs = shared(first.log, second.log)
    return Comparison(
        first=first.side,
        second=second.side,
        contrast=contrast,
        differences=listed_differences([first.side.run, second.side.run]),
        episodes=ours.n_episodes,
        amplifications=amplifications(ours, theirs, rng=rng("amplification")),
        novelty=tuple(
            novelty(ours, theirs, rng=rng(f"novelty {channel}"), channel=channel)
            for channel in (None, Channel.tool_name)
        ),
        gaps=tuple(gaps),
        blind=blind,
        lengths=length_changes(first.episodes, second.episodes, rng=rng("length")),
        recovery=(
            recovery(first.log, rng=rng("recovery first"), windows=WINDOWS)[0],
            recovery(second.log, rng=rng("recovery second"), windows=WINDOWS)[0],
        ),
    )
