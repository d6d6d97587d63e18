"""Expected hours of a plan: from earlier walks, else from measured speed, else none; and the measurement."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_builders import engine_config
from tiny_models import MODELS, write_model

from qfr.cli import main
from qfr.config import CellConfig
from qfr.engine.files.gguf import open_model
from qfr.engine.worker import WorkerEngine
from qfr.front.models import compose_cell
from qfr.grid.grid import Grid, Point, build_grid
from qfr.play.hours import expected, hours_lines
from qfr.play.speed import FOLDER, Measured, Speed, measure, remember, remembered
from qfr.tracking.writing.group_times import WalkTime


@pytest.fixture(scope="module")
def grid() -> Grid:
    """A clean pass and transient faults of one reference agent at two presets."""
    points = []
    for quant in ("q8_0", "q4_k_m"):
        overrides = ("model=ref_llama", f"quant={quant}", "prompt=P0", "suite=orders20_ref")
        cell = compose_cell(*overrides, "fault=et")
        points.append(Point((*overrides, "fault=et"), {"quant": quant}, (), partial(_same, cell)))
    return build_grid(points, lambda group: (), files_needed=False)


def _same(cell: CellConfig) -> CellConfig:
    return cell


def earlier(seconds: float, episodes: int, **changes: Any) -> WalkTime:
    one = WalkTime("ref_llama", "Q8_0", socket.gethostname(), "cpu", 1, 1, seconds, episodes)
    return dataclasses.replace(one, **changes)


def nothing(model: str, quant: str) -> Sequence[WalkTime]:
    return ()


def test_earlier_walks_on_this_machine_with_these_settings_tell_the_time(grid: Grid) -> None:
    """Median of 0.1, 0.2 and 0.4 s an episode, for 20 clean and 50 fault episodes."""
    walks = [earlier(7, 70), earlier(10, 50), earlier(8, 20), earlier(900, 1, host="elsewhere"),
             earlier(900, 1, streams=4), earlier(900, 1, n_threads=2)]  # fmt: skip
    first, second = expected(grid, {}, (), lambda model, quant: walks if quant == "Q8_0" else ())
    assert first.seconds == pytest.approx(0.2 * 70)
    assert "3 earlier walks" in first.basis
    assert (second.name, second.seconds) == ("ref_llama q4_k_m", None)


def test_what_is_finished_takes_no_time(grid: Grid) -> None:
    done = {grid.cells[0].design.clean_design_id: "FINISHED", grid.cells[1].design.design_id: "FAILED"}
    first, second = expected(grid, done, (), lambda model, quant: [earlier(1, 1)])
    assert (first.seconds, second.seconds) == (50, 70)
    done |= {cell.design.design_id: "FINISHED" for cell in grid.cells}
    done |= {cell.design.clean_design_id: "FINISHED" for cell in grid.cells}
    assert expected(grid, done, (), nothing) == ()


def test_a_measured_speed_serves_where_nothing_was_played(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    fast = Measured("ref_llama", "Q8_0", 1, 1, Speed(1e12, 100.0, 10.0))
    slow = dataclasses.replace(fast, speed=Speed(1e12, 50.0, 10.0))
    other = dataclasses.replace(fast, streams=8)
    by_fast = expected(grid, {}, (fast, other), nothing)[0]
    by_slow = expected(grid, {}, (fast, slow), nothing)[0]
    assert by_fast.seconds is not None
    # 20 clean episodes of 4.5 turns and 50 of 4 after a fault, 40 tokens each.
    assert by_fast.seconds == pytest.approx((20 * 4.5 + 50 * 4) * 40 / 100)
    assert by_slow.seconds == pytest.approx(2 * by_fast.seconds)
    assert "measured speed" in by_fast.basis
    # Workers share what is to be played.
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(4)))
    shared = expected(grid, {}, (fast, other), nothing)[0]
    assert shared.seconds == pytest.approx(by_fast.seconds / 4)
    assert shared.basis.endswith(", 4 workers")


def test_the_plan_says_what_to_do_where_nothing_is_known(grid: Grid, tmp_path: Path) -> None:
    tracking = dataclasses.replace(grid.cells[0].config.tracking, root=str(tmp_path))
    (line,) = hours_lines(grid, {}, tracking)
    assert "ref_llama q8_0, ref_llama q4_k_m" in line
    assert "qfr doctor --speed model=ref_llama quant=q8_0 engine.n_threads=1" in line


@pytest.mark.parametrize("streams", [1, 3])
def test_a_measurement_counts_tokens_and_is_remembered(streams: int, tmp_path: Path) -> None:
    config = engine_config(streams=streams)
    model = open_model(write_model(tmp_path / "tiny.gguf", MODELS["chatml"]), tmp_path)
    engine = WorkerEngine(model, config, 1024)
    found = measure(engine, streams, seconds=0.2)
    assert found.prefill > 0
    assert found.decode > 0
    cell = dataclasses.replace(compose_cell("model=ref_llama", "quant=q8_0"), engine=config)
    place = remember(tmp_path, cell, engine, found)
    assert place.parent.name == FOLDER
    (tmp_path / FOLDER / "broken.json").write_text("[]")
    (tmp_path / FOLDER / "cut.json").write_text('{"prefill"')
    assert remembered(tmp_path) == (Measured("ref_llama", "Q8_0", streams, 1, found),)
    engine.close()


def test_doctor_tries_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["doctor", "--root", str(tmp_path), "model=ref_llama", "quant=f16", "engine.streams=2"]
    assert main([*command, "--seconds", "0.2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "bit-equal" in shown
    assert "tokens/s decode" in shown
    (kept,) = (tmp_path / "exactness").glob("*.json")
    assert json.loads(kept.read_text())["exact"] is True
    assert len(remembered(tmp_path)) == 1


def test_doctor_asks_for_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--exactness"]) == 2
    assert "no model is named" in capsys.readouterr().err
    assert main(["doctor", "--speed", "model=scripted"]) == 2
    assert "evaluates no tokens" in capsys.readouterr().err
