"""How the episodes of a cell went: endings, error channels, fault states, answers. Counts from the log."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from qfr.analysis.frames import Cell, cell_key, score_column
from qfr.analysis.targets import CellKey
from qfr.faults import FAULTS, FaultKind
from qfr.records import Channel, Ending, Policy
from qfr.scope import Scope, scope_of


@dataclass(frozen=True)
class Count:
    """How often something happened."""

    name: str
    count: int


@dataclass(frozen=True)
class Answers:
    """What one policy makes of the episodes. Counts of episodes."""

    policy: str
    successes: int
    expressions: int
    # Successes whose answer was an arithmetic expression or a numeric string.
    reported: int
    # EP: report_failure without a number, however early.
    reported_after: int
    # EP: reported after enough calls of the dead tool (the headline).
    invented: int
    # EP: a number was submitted although the value could not be known.
    requeried: int
    # IT: the displaced lookup was asked again.
    right_answers: int
    without_recovery: int
    # Successes after a fault that was met by no valid repetition: a right guess, or another way.
    counted: tuple[Count, ...]
    # What the kind of fault is counted by (`Fault.columns`): sums over the episodes.


@dataclass(frozen=True)
class Process:
    """One logged cell: a clean pass (fault ``none``) or its fault episodes."""

    key: CellKey
    scope: Scope = field(repr=False)
    cell_id: str
    episodes: int
    tasks: int
    turns: int
    turns_not_strict: int
    # Turns that were not one JSON object throughout.
    errors: int
    # The agent's own failed calls; an injected fault is not one.
    endings: tuple[Count, ...]
    # One per kind of ending, episodes.
    channels: tuple[Count, ...]
    # One per error channel, failed calls.
    faults: tuple[Count, ...]
    # scheduled, fired, witnessed, retried, recovered: episodes; empty for a clean pass.
    answers: tuple[Answers, ...]
    # One per policy.
    tokens_generated: int
    control_texts: int
    # Episodes in which plain text spelled a control token of the model.


def process(cell: Cell, context: str = "") -> Process:
    """Count what happened in one cell; `context` tells it from others of the same names."""
    frame = cell.episodes
    endings = frame["ending"].value_counts()
    return Process(
        key=cell_key(cell.facts, context),
        scope=scope_of(cell.facts),
        cell_id=cell.facts.cell_id,
        episodes=len(frame),
        tasks=int(frame["task"].nunique()),
        turns=int(frame["turns"].sum()),
        turns_not_strict=int(frame["turns_not_strict"].sum()),
        errors=int(frame["errors"].sum()),
        endings=tuple(Count(str(ending), int(endings.get(str(ending), 0))) for ending in Ending),
        channels=tuple(
            Count(str(channel), int(frame[f"errors_{channel.value}"].sum())) for channel in Channel
        ),
        faults=() if cell.facts.fault == FaultKind.none else _faults(frame),
        answers=tuple(_answers(frame, policy, FaultKind(cell.facts.fault)) for policy in Policy),
        tokens_generated=int(frame["tokens_out"].sum()),
        control_texts=int(frame["control_text"].sum()),
    )


def _faults(frame: pd.DataFrame) -> tuple[Count, ...]:
    states = ("fired", "witnessed", "retried", "recovered")
    return (
        Count("scheduled", len(frame)),
        *(Count(state, int(frame[state].notna().sum())) for state in states),
    )


def _answers(frame: pd.DataFrame, policy: Policy, kind: FaultKind) -> Answers:
    def column(field: str) -> pd.Series[bool]:
        return frame[score_column(policy, field)].astype(bool)

    success = column("success") & column("delivered")
    return Answers(
        policy=policy.value,
        successes=int(success.sum()),
        expressions=int((success & column("expression")).sum()),
        reported=int(column("reported").sum()),
        reported_after=int(column("reported_after").sum()),
        invented=int(column("invented").sum()),
        requeried=int(column("requeried").sum()),
        right_answers=int(column("right_answer").sum()),
        without_recovery=_without_recovery(frame, success & ~column("reported_after")),
        counted=tuple(Count(name, _sum(frame, policy, name)) for name in FAULTS[kind].columns),
    )


def _without_recovery(frame: pd.DataFrame, success: pd.Series[bool]) -> int:
    return int((success & frame["fired"].notna() & frame["recovered"].isna()).sum())


def _sum(frame: pd.DataFrame, policy: Policy, field: str) -> int:
    name = score_column(policy, field)
    return int(frame[name].sum()) if name in frame else 0
