"""Shards: parts of a cell played apart are, line for line, the whole cell, or are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfr.errors import ConfigError
from qfr.front.main import main
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world, tasks_of
from qfr.grid.design import design_of
from qfr.journal import log_bytes
from qfr.play import job
from qfr.shards import Shard, read_shards, shard_of, some_shards, whole_id, with_shard
from qfr.tracking.reading.cells import LoggedCell, read_calls, read_episodes
from qfr.tracking.reading.reader import Reading, read_cells
from qfr.tracking.store import Store, open_store
from tests.builders import make_facts
from tests.tracked import BUILT, cell, log_cell

REAL = (
    "model=ref_llama",
    "quant=f16",
    "suite=orders6",
    "suite.grid=round",
    "prompt=P0",
    "fault=et",
    "report.transcripts=0",
)
QUICK = ("experiment=smoke", "quant=q8_0", "prompt=P0", "fault=et")


@given(st.integers(1, 60), st.data())
def test_shards_are_a_partition_in_order(n: int, data: st.DataObject) -> None:
    tasks = list(range(n))
    count = data.draw(st.integers(1, n))
    shards = read_shards(f"all/{count}", n)
    assert len(shards) == (count if count > 1 else 0)
    parts = [shard.of(tasks) for shard in shards] or [tuple(tasks)]
    assert sorted(task for part in parts for task in part) == tasks
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(list(part) == sorted(part) for part in parts)
    for shard in shards:
        assert read_shards(str(shard), n) == (shard,)
        named = with_shard("c-0123456789abcdef", shard)
        assert (whole_id(named), shard_of(named)) == ("c-0123456789abcdef", shard)


@pytest.mark.parametrize(
    "text", ["3", "0/3", "4/3", "-1/3", "1/0", "a/3", "1/21", "1/3/4", "1 /3", "", "all"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"suite\.shard="):
        read_shards(text, 20)


def test_a_sweep_of_some_shards_is_told_from_one_of_all() -> None:
    ids = [with_shard("d-1", Shard(index, 3)) for index in (1, 2, 3)]
    assert not some_shards(ids)
    assert some_shards(ids[:2])
    assert some_shards([*ids, with_shard("d-2", Shard(1, 2))])
    assert not some_shards(["d-1", "d-2"])


def test_a_shard_is_the_same_design_with_its_part_behind_it() -> None:
    whole = design_of(compose_cell("model=scripted", "quant=q8_0"))
    part = design_of(compose_cell("model=scripted", "quant=q8_0", "suite.shard=2/4"))
    assert (part.design_id, part.clean_design_id) == (
        f"{whole.design_id}@2of4",
        f"{whole.clean_design_id}@2of4",
    )
    suite = compose_cell("suite=orders20", "suite.shard=2/4").suite
    tasks = tasks_of(suite)
    assert [task.id for task in tasks] == [task.id for task in build_world(suite).tasks[1::4]]
    assert {task.family for task in tasks} == {"base", "shipping"}


# --- joined ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real model's cell, whole in one store and in three shards in another."""
    here = tmp_path_factory.mktemp("shards")
    for root, more in (("whole", ()), ("parts", ("suite.shard=all/3",))):
        given_ = (*REAL, *more, f"tracking.root={here / root}", f"hydra.sweep.dir={here}/multirun-{root}")
        assert main(given_) == 0
    yield here
    job._SHELF.clear()


def read(folder: Path, name: str) -> tuple[Store, Reading]:
    store = open_store(None, folder / name, "qfr")
    return store, read_cells(store)


def fault_cell(reading: Reading) -> LoggedCell:
    (cell,) = [one for one in reading.cells if one.facts.fault == "et"]
    return cell


def test_joined_shards_are_the_whole_cell_byte_for_byte(folder: Path) -> None:
    """Text, tokens and the digests of all logits included; the tables that reports read as well."""
    (store, whole), (parted, joined) = read(folder, "whole"), read(folder, "parts")
    assert len(whole.cells) == len(joined.cells) == 2
    for one, other in zip(whole.cells, joined.cells, strict=True):
        assert log_bytes(read_episodes(store, one)) == log_bytes(read_episodes(parted, other))
        pd.testing.assert_frame_equal(one.episodes, other.episodes)
        pd.testing.assert_frame_equal(read_calls(store, one), read_calls(parted, other))
        assert (one.facts.cell_id, one.facts.design_id, one.facts.name) == (
            *(other.facts.cell_id, other.facts.design_id),
            other.facts.name,
        )
        assert [shard_of(part.facts.cell_id) for part in other.parts] == [Shard(n, 3) for n in (1, 2, 3)]
    cell = fault_cell(joined)
    assert cell.clean is not None
    assert cell.clean.facts.cell_id == cell.facts.clean_id
    assert cell.metrics["work.peak_memory_bytes"] > 0
    tasks = frozenset({cell.episodes["task"].iloc[0]})
    assert {one.task for one in read_episodes(parted, cell, tasks=tasks)} == tasks


def test_the_runs_say_which_part_they_are(folder: Path) -> None:
    _, joined = read(folder, "parts")
    assert [part.facts.name for part in fault_cell(joined).parts] == [
        f"ref_llama f16 P0 {n}/3 et" for n in (1, 2, 3)
    ]


def log_shards(store: Store, quant: str, *shards: Shard | None) -> None:
    """Log the given parts of a made-up cell of four tasks (None = all of it), each with its clean pass."""
    for shard in shards:
        clean, fault = (make_facts("llama", quant, "P0", kind) for kind in ("none", "et"))
        clean = replace(
            clean, cell_id=with_shard(clean.cell_id, shard), clean_id=with_shard(clean.clean_id, shard)
        )
        fault = replace(fault, cell_id=with_shard(fault.cell_id, shard), clean_id=clean.cell_id)
        tasks = [one.task for one in BUILT.clean]
        mine = tasks if shard is None else shard.of(tasks)
        screen = tuple(one for one in BUILT.clean if one.task in mine)
        log_cell(store, cell(clean, screen, screen))
        log_cell(store, cell(fault, tuple(one for one in BUILT.faulted if one.task in mine), screen))


def test_a_missing_shard_is_named_and_the_cell_refused(store: Store) -> None:
    """A whole cell beside it is read; the parted one comes with its last part."""
    log_shards(store, "Q8_0", Shard(2, 3))
    log_shards(store, "Q4_K_M", None)
    reading = read_cells(store)
    assert {one.facts.quant for one in reading.cells} == {"Q4_K_M"}
    (note,) = [note for note in reading.notes if note.startswith("llama q8_0 P0 et")]
    assert note.startswith(
        "llama q8_0 P0 et: shards 1/3, 3/3 of the cell are missing, 1 of 3 are there; the cell is left out"
    )
    log_shards(store, "Q8_0", Shard(1, 3))
    assert any("shard 3/3 of the cell is missing" in note for note in read_cells(store).notes)
    log_shards(store, "Q8_0", Shard(3, 3))
    reading = read_cells(store)
    assert reading.notes == ()
    parted, whole = (
        next(one for one in reading.cells if (one.facts.quant, one.facts.fault) == (quant, "et"))
        for quant in ("Q8_0", "Q4_K_M")
    )
    pd.testing.assert_frame_equal(parted.episodes, whole.episodes)
    assert parted.clean is not None
    assert whole.clean is not None
    pd.testing.assert_frame_equal(parted.clean.episodes, whole.clean.episodes)


def test_other_divisions_and_a_whole_run_do_not_mix(store: Store) -> None:
    log_shards(store, "Q8_0", Shard(1, 2), Shard(2, 3))
    assert read_cells(store).cells == ()
    log_shards(store, "Q8_0", None)
    reading = read_cells(store)
    assert all(not one.parts for one in reading.cells)
    assert any("was run whole and in shards" in note for note in reading.notes)


def test_a_sweep_of_one_shard_is_no_failure_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, "suite.shard=2/3"]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "no report" in out
    assert "shards 1/3, 3/3 of the cell are missing" in out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["mode=register", "registration.title=x", "suite.shard=1/2"], "whole cells"),
        (["suite.shard=1/7"], "6 tasks make 1 to 6 shards"),
        (["suite.shard=3/2"], "numbered from 1 to 2"),
    ],
)
def test_what_cannot_be_sharded_is_refused_before_anything_runs(
    more: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, *more]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "mlruns").exists()


def test_the_plan_shows_shards_as_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*QUICK, "suite.shard=all/3", "mode=plan"]) == 0
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "3 cells in 3 walks, at most 21 episodes (6 clean, 15 with a fault)" in shown
    # The contrast rests on all tasks of the joined cell.
    assert "Smallest difference that 6 tasks detect" in shown
