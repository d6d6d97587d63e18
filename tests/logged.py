"""Logged cells without a store: the episode tables that a reading of the tracking store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from qfr.analysis import frames
from qfr.facts import CellFacts
from qfr.records import Episode, FaultKind, Policy
from qfr.tracking.reading.tables import episode_table, score_table, to_frame
from tests.builders import Style, build_cell_episodes, make_facts, orders20

PLAIN = Style()


@dataclass(frozen=True)
class Logged:
    """A cell as the tracking store returns it, without the store."""

    facts: CellFacts
    episodes: pd.DataFrame
    clean: Logged | None = None


def logged(facts: CellFacts, episodes: Sequence[Episode]) -> Logged:
    """One cell with the episode table that the tracking store would give."""
    frame = to_frame(episode_table(episodes))
    for policy in Policy:
        scores = to_frame(score_table(episodes, policy, ep_min_calls=2))
        for field in scores.columns.difference(["task", "fault", "site", "trial"]):
            frame[frames.score_column(policy, str(field))] = scores[field]
    return Logged(facts, frame)


def logged_pair(
    quant: str,
    table: Sequence[int | None],
    style: Style = PLAIN,
    fault: FaultKind = FaultKind.et,
    *,
    model: str = "m",
    prompt: str = "P0",
) -> list[Logged]:
    """A clean pass and its fault cell on orders20, without a store."""
    built = build_cell_episodes(table, orders20(), fault=fault, style=style)
    return [
        logged(make_facts(model, quant, prompt, "none"), built.clean),
        logged(make_facts(model, quant, prompt, fault.value), built.faulted),
    ]
