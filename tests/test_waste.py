"""Loops and waste: a row of one call with one answer, forced ends, and costs per solved episode as ratios."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from qfr.analysis.process import wastes
from qfr.records import Ending, Episode, FaultKind, Policy
from qfr.scoring import longest_repeat
from qfr.stats.intervals import Options
from tests.builders import build_cell_episodes, make_suite
from tests.logged import logged_pair


def _with_calls(row: str) -> Episode:
    """An episode whose turns make these calls: one letter a call, '.' a turn without; 'a!' another answer."""
    episode = build_cell_episodes([2] * 4, make_suite([2, 2, 3, 3]), fault=FaultKind.et).faulted[0]
    turn = next(one for one in episode.turns if one.call is not None)
    turns = []
    for at, (letter, mark) in enumerate(zip(row, f"{row[1:]} ", strict=False)):
        if letter == "!":
            continue
        assert turn.call is not None
        call = None if letter == "." else dataclasses.replace(turn.call, arguments=f'{{"id": "{letter}"}}')
        answer = dataclasses.replace(turn.observation, text="changed" if mark == "!" else "error")
        turns.append(dataclasses.replace(turn, index=at, call=call, observation=answer))
    return dataclasses.replace(episode, turns=tuple(turns))


@pytest.mark.parametrize(
    ("row", "longest"),
    [("", 0), (".", 0), ("abc", 1), ("aab", 2), ("abbbb", 4), ("aabaa", 2), ("aa.aa", 2), ("aaa!a", 2)],
)
def test_a_row_is_one_call_with_one_answer(row: str, longest: int) -> None:
    assert longest_repeat(_with_calls(row)) == longest


def test_costs_are_ratios_of_totals_over_the_tasks_that_both_played() -> None:
    cells = [
        cell
        for quant, table in (("Q8_0", [2] * 10 + [3] * 10), ("Q4_K_M", [1] * 10 + [2] * 9 + [None]))
        for cell in logged_pair(quant, table)
    ]
    unique = list({cell.facts.cell_id: cell for cell in cells}.values())
    found = {
        (one.key.quant, one.key.fault, one.policy): one
        for one in wastes(unique, Options(resamples=500), 1, {}, stuck_after=3)
    }
    high, low = (found[quant, "et", "tolerant"] for quant in ("Q8_0", "Q4_K_M"))
    frames = {cell.facts.quant: cell.episodes for cell in unique if cell.facts.fault == "et"}
    shared = set(frames["Q8_0"]["task"]) & set(frames["Q4_K_M"]["task"])
    costs = []
    for frame in (frames["Q4_K_M"], frames["Q8_0"]):
        rows = frame[frame["task"].isin(shared)]
        costs.append(rows["tokens_out"].sum() / (rows["tolerant_success"] & rows["delivered"]).sum())
    assert low.ratios[0].value == pytest.approx(costs[0] / costs[1])
    assert low.ratios[0].tasks == len(shared)
    assert low.ratios[0].low is not None
    assert low.ratios[0].low <= costs[0] / costs[1] <= (low.ratios[0].high or np.inf)
    assert (high.against, high.ratios, low.against) == ("", (), "Q8_0")
    ended = (frames["Q4_K_M"]["ending"] == Ending.out_of_steps).sum()
    assert low.forced[0].count == ended
    # These frames were read without the table of repeated calls: unknown is not zero.
    assert low.stuck is None
    assert {one.policy for one in found.values()} == set(map(str, Policy))
