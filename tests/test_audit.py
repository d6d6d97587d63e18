"""`qfr audit`: finished cells are played again, every byte is compared, and nothing is written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from qfr.audit.recorded_cell import recall
from qfr.audit.replay import Finished, compare, finished_run, first_difference, rerun
from qfr.cell import key_of
from qfr.cli import main
from qfr.commands.checks.audit import choose
from qfr.config import EngineConfig
from qfr.errors import ConfigError, LogError
from qfr.front.models import compose_cell
from qfr.play import job
from qfr.play.engine_cache import Shelf
from qfr.records import Ending, Episode, Turn
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell
from tests.tiny_models import TinyModel, write_model

SCRIPTED = ("model=scripted", "quant=q4_k_m", "suite=orders6", "walk=[et,ep]")


def play(store: Store, *overrides: str) -> None:
    """Run a walk into a store."""
    job.run_job(compose_cell(*overrides, f'tracking.root="{store.root}"'))
    job._SHELF.clear()


@pytest.fixture
def played(store: Store) -> Store:
    play(store, *SCRIPTED)
    return store


def audit(store: Store, *words: str) -> int:
    return main(["audit", "--root", str(store.root), "--cells", "9", *words])


def state(store: Store) -> tuple[str, str]:
    """Digests of the database's content and of every artifact and journal."""
    with closing(sqlite3.connect(store.root / "mlflow.db")) as connection:
        rows = hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()
    files = hashlib.sha256()
    for path in sorted((store.root / "artifacts").rglob("*")):
        files.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return rows, files.hexdigest()


def finished(store: Store, fault: str) -> Finished:
    cell = next(cell for cell in read_cells(store).cells if cell.facts.fault == fault)
    return finished_run(store, cell)


def log_again(store: Store, one: Finished, episodes: tuple[Episode, ...]) -> str:
    """A second finished run of a cell, with these episodes; its run id."""
    cell = FinishedCell(
        facts=one.cell.facts,
        episodes=episodes,
        clean=one.clean,
        work=None,
        prompt=one.prompt.text.encode(),
        suite=b"{}",
        config_yaml="",
        timing=b"",
        ep_min_calls=2,
    )
    handle = start_cell(store, one.cell.facts, None)
    finish_cell(store, handle, cell)
    return handle.run_id


def test_finished_cells_are_the_same_and_nothing_is_written(
    played: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(played)
    assert audit(played, "--seed", "1") == 0
    said = capsys.readouterr().out
    assert "playing 3 of 3 finished cells again (--seed 1)" in said
    assert "The same: all 3 cells, byte for byte." in said
    assert audit(played, "--episodes", "2") == 0
    assert state(played) == before
    assert not list((played.root / "journal").iterdir())


def test_a_cell_of_shards_is_played_whole(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for shard in ("1/2", "2/2"):
        play(store, "model=scripted", "quant=q4_k_m", "suite=orders6", "walk=[et]", f"suite.shard={shard}")
    assert audit(store, "--seed", "1") == 0
    assert "The same: all 2 cells" in capsys.readouterr().out


def test_the_choice_follows_the_seed(played: Store) -> None:
    cells = read_cells(played).cells

    def picked(seed: int) -> list[str]:
        return [cell.facts.name for cell in choose(cells, 1, np.random.default_rng(seed))]

    assert picked(3) == picked(3)
    assert len({picked(seed)[0] for seed in range(20)}) == 3


def test_a_real_model_comes_out_the_same_and_a_changed_engine_is_counted(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "tiny.gguf", TinyModel(context=4096))
    small = (
        "suite.families={base:2,shipping:0}",
        "suite.step_budget=2",
        "executor.max_tokens=8",
        "suite.gate=none",
    )
    one_thread = ("engine.n_threads=1", "engine.n_threads_batch=1")
    play(store, "model=local", f'model.path="{model}"', "quant=f16", *small, *one_thread, "walk=[et]")
    assert audit(store, "--seed", "1") == 0
    assert "The same: all 2 cells" in capsys.readouterr().out

    def quantized_cache(engine: EngineConfig) -> EngineConfig:
        return dataclasses.replace(engine, type_k="q8_0")

    shelf = Shelf()
    try:
        found = rerun(finished(store, "et"), shelf, change=quantized_cache)
    finally:
        shelf.clear()
    assert found.comparison.episodes == 4
    assert len(found.comparison.bytes) == 4, "a quantized cache moves every logit"
    assert set(found.comparison.scores) <= set(found.comparison.texts) <= set(found.comparison.bytes)

    model.write_bytes(model.read_bytes()[:-1] + b"\x00")
    assert audit(store, "--seed", "1") == 2
    said = capsys.readouterr().out
    assert "model_sha256" in said
    assert "could not be played here" in said
    model.unlink()
    assert audit(store) == 2
    assert "tiny.gguf" in capsys.readouterr().out


def test_runs_of_one_cell_that_disagree_raise_the_alarm(
    played: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    one = finished(played, "et")
    bent = (dataclasses.replace(one.episodes[0], ending=Ending.out_of_steps), *one.episodes[1:])
    run = log_again(played, one, bent)
    assert audit(played, "--seed", "1") == 1
    said = capsys.readouterr().out
    assert "Not deterministic: finished runs of scripted q4_k_m P0 et" in said
    assert f"(run {run}): {bent[0].task}, site 0: the same turns, another ending or record" in said
    assert "NOT the same: 1 of 3 cells differ." in said
    out = played.root / "r"
    assert main(["report", "--root", str(played.root), "--out", str(out)]) == 0
    assert "Not deterministic" in capsys.readouterr().out
    assert "Finished runs of one cell disagree" in (out / "report.html").read_text("utf-8")


def test_a_log_that_was_changed_is_named(played: Store, capsys: pytest.CaptureFixture[str]) -> None:
    one = finished(played, "ep").cell
    path = played.root / "artifacts" / "qfr" / one.run_id / "artifacts" / "episodes.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    assert audit(played) == 1
    said = capsys.readouterr().out
    assert "log damaged" in said
    assert one.run_id in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--filter", "params.model = 'llama'"), "no finished cell to play again"),
        (("--sweep", "s-nowhere"), "s-nowhere"),
        (("--seed", "-1"), "--seed -1 is too small"),
    ],
)
def test_user_errors(
    played: Store, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(played, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error


def test_a_comparison_counts_texts_and_scores_apart(played: Store) -> None:
    one = finished(played, "et").episodes
    turn = one[0].turns[0]
    other_logits = dataclasses.replace(
        turn, generation=dataclasses.replace(turn.generation, logits_sha256="")
    )
    other_text = dataclasses.replace(turn, generation=dataclasses.replace(turn.generation, token_ids=(1,)))

    def with_turn(new: Turn) -> Episode:
        return dataclasses.replace(one[0], turns=(new, *one[0].turns[1:]))

    def counts(first: Episode) -> tuple[int, int, int]:
        found = compare(one, (first, *one[1:]))
        return len(found.bytes), len(found.texts), len(found.scores)

    right = dataclasses.replace(one[0], answer=one[0].gold, ending=Ending.submitted)
    assert counts(dataclasses.replace(one[0], cell_id="c-other")) == (0, 0, 0)
    assert counts(with_turn(other_logits)) == (1, 0, 0)
    assert counts(with_turn(other_text)) == (1, 1, 0)
    assert counts(dataclasses.replace(right, answer=None, ending=Ending.out_of_steps)) in (
        (1, 0, 0),
        (1, 0, 1),
    )
    assert compare(one, one[1:]).scores == (key_of(one[0]),)
    assert first_difference(one[0], with_turn(other_logits)) == "turn 0: the same text, other logits"
    assert first_difference(one[0], with_turn(other_text)) == "turn 0: another text"
    assert first_difference(one[0], one[0]) == ""
    assert first_difference(one[0], None) == "not played again"


# --- configurations as runs recorded them ------------------------------------------------------------


@pytest.fixture
def recorded() -> Callable[..., str]:
    cell = dataclasses.asdict(compose_cell("model=ref_llama", "quant=q4_k_m", "exclude=[{model: qwen}]"))

    def make(**changes: object) -> str:
        return json.dumps({**cell, **changes})

    return make


def test_a_recorded_configuration_comes_back_whole(recorded: Callable[..., str]) -> None:
    cell = recall(recorded(), where="run 1")
    assert cell == compose_cell("model=ref_llama", "quant=q4_k_m", "exclude=[{model: qwen}]")


def test_nothing_in_a_recorded_configuration_is_resolved(recorded: Callable[..., str]) -> None:
    raw = json.loads(recorded())
    raw["prompt"]["file"] = "${oc.env:HOME}"
    assert recall(json.dumps(raw), where="run 1").prompt.file == "${oc.env:HOME}"


def test_keys_that_came_later_get_their_value(recorded: Callable[..., str]) -> None:
    raw = json.loads(recorded())
    del raw["report"], raw["tracking"]["traces"]
    assert recall(json.dumps(raw), where="run 1") == compose_cell(
        "model=ref_llama", "quant=q4_k_m", "exclude=[{model: qwen}]"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"later": 1}, "'later' is unknown"),
        ({"engine": 1}, "engine is no object"),
        ({"trial": "0"}, "trial is not of type int"),
        ({"mode": "walk"}, "mode is 'walk'"),
    ],
)
def test_a_configuration_of_another_version_is_one_error(
    recorded: Callable[..., str], changes: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        recall(recorded(**changes), where="run 1")
    assert said in str(caught.value)
    assert "run 1" in str(caught.value)


def test_another_prompt_under_the_run_is_damage(played: Store) -> None:
    one = finished(played, "et").cell
    path = played.root / "artifacts" / "qfr" / one.run_id / "artifacts" / "prompt.md"
    path.write_text("Be kind.")
    with pytest.raises(LogError, match=r"prompt\.md"):
        finished_run(played, one)
