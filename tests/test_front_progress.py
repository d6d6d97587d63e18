"""What a user is told while cells are played, and of a cell group when it is."""

from __future__ import annotations

import dataclasses
import io
import time

import pytest
from rich.console import Console

from qfr.config import Gate
from qfr.front.models import compose_cell
from qfr.grid.outcomes import CellOutcome, JobOutcome, Status
from qfr.grid.show import _folded, skipped_lines
from qfr.play.progress import WalkProgress
from qfr.play.remarks import remarks
from qfr.records import Ending, Episode, StopReason
from tests.builders import build_cell_episodes, make_suite

SHAPES = make_suite([2, 3])
CELL = compose_cell("model=ref_llama", "suite=orders6", "quant=q8_0")


def cut(episode: Episode) -> Episode:
    """The episode with every turn cut at its limit."""
    turns = tuple(
        dataclasses.replace(turn, generation=dataclasses.replace(turn.generation, stop=StopReason.max_tokens))
        for turn in episode.turns
    )
    return dataclasses.replace(episode, turns=turns)


def test_outside_a_terminal_a_line_comes_while_an_episode_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QFR_WALKS", "QFR_WALK"):
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    with WalkProgress(Console(file=out, width=200), "m q8_0 P0", 70, 10, every=0.01) as progress:
        until(out, "m q8_0 P0: 10 of at most 70 episodes, 0 s so far\n")
        progress.advance("1 certified", 3)
        until(out, "11 of at most 67 episodes, 1 certified, 0 s so far, at most about")
    said = out.getvalue()
    time.sleep(0.05)
    assert out.getvalue() == said


def until(out: io.StringIO, text: str) -> None:
    end = time.monotonic() + 60
    while text not in out.getvalue():
        assert time.monotonic() < end, out.getvalue()
        time.sleep(0.01)


def test_a_clean_pass_without_a_certified_task_says_why() -> None:
    none = build_cell_episodes([None, None], SHAPES).clean
    lost = dataclasses.replace(none[0], ending=Ending.out_of_errors, answer=None)
    (line,) = remarks(CELL, [none[0], none[1], lost], [])
    assert "2 with a wrong answer, 1 with more failed calls than suite.error_budget" in line
    assert "ref_llama is made for suite=orders20_ref; this was suite=orders6" in line
    for_it = compose_cell("model=ref_llama", "quant=q8_0")
    assert "is made for" not in remarks(for_it, none, [])[0]
    some = build_cell_episodes([1, None], SHAPES)
    assert remarks(CELL, some.clean, some.faulted) == []


def test_faults_that_never_fired_are_told_by_kind() -> None:
    some = build_cell_episodes([1, 1], SHAPES)
    lost = [
        dataclasses.replace(one, trace=dataclasses.replace(one.trace, fired=None, recovered=None))
        for one in some.faulted
        if one.trace is not None
    ]
    (line,) = remarks(CELL, some.clean, lost)
    assert line.startswith(f"{len(lost)} of {len(lost)} scheduled faults (et) never fired")
    assert "suite.gate" not in line
    ungated = dataclasses.replace(CELL, suite=dataclasses.replace(CELL.suite, gate=Gate.none))
    assert "suite.gate=none schedules them" in remarks(ungated, some.clean, lost)[0]


def test_cut_turns_are_told() -> None:
    good = build_cell_episodes([1, 1], SHAPES)
    (line,) = remarks(CELL, [cut(one) for one in good.clean], [])
    turns = sum(len(one.turns) for one in good.clean)
    assert line.startswith(f"{turns} of {turns} turns were cut at executor.max_tokens=160:")


def test_points_of_a_grid_and_skipped_cells_are_one_line_each() -> None:
    points = [f"model=qwen quant=q3_k_m prompt=P{n}" for n in range(5)]
    assert _folded("excluded", points) == ["excluded: 5 combinations with model=qwen quant=q3_k_m"]
    assert _folded("excluded", points[:1]) == [f"excluded: {points[0]}"]
    assert _folded("excluded", ()) == []

    def job(name: str, status: Status) -> JobOutcome:
        return JobOutcome(
            tuple(CellOutcome(f"{name} {kind}", "", "", status, "", "") for kind in ("none", "et"))
        )

    jobs = [job(f"m q8_0 P{n}", Status.skipped) for n in range(9)] + [job("m q4_0 P0", Status.finished)]
    (line,) = skipped_lines(jobs)
    assert line.startswith("18 cells finished before, skipped: m q8_0 P0 none, et; m q8_0 P1 none, et; ")
    assert line.endswith("; and of 1 more walks")
    assert skipped_lines(jobs[-1:]) == []
