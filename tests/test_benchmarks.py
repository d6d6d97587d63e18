"""The check of a GPU, for real on a processor with a tiny model of random weights, and what it is made of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
from engine_builders import engine_config

from benchmarks import random_gguf
from benchmarks.exact import Setup
from benchmarks.floor import Call, at_once
from benchmarks.forced import Counting, Forced
from benchmarks.gpu import one_sweep
from benchmarks.gpu_table import Paper, hours
from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.opened import open_file
from qfr.episode import Rules
from qfr.records import Ending, Episode, FaultKind
from qfr.world import orders

ROOT = Path(__file__).resolve().parent.parent
RULES = Rules(ExecutorKind.tolerant, 12, 10, 160, "down", "Try again.", 0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    path = tmp_path_factory.mktemp("random") / "tiny.gguf"
    random_gguf.write(path, random_gguf.SHAPES["tiny"], "Q4_K_M", 1)
    return open_model(path, path.parent)


def test_the_large_shape_is_llama_8b() -> None:
    shape = random_gguf.SHAPES["8b"]
    matrices = list(random_gguf.tensors(shape, "Q4_K_M"))
    weights = sum(one.rows * one.columns for one in matrices) + len(random_gguf._norms(shape)) * shape.width
    # The published number of weights of Llama-3.1-8B.
    assert weights == 8_030_261_248
    blocks = [(one.rows * one.columns, *gguf.GGML_QUANT_SIZES[one.kind]) for one in matrices]
    size = sum(count // block * of_block for count, block, of_block in blocks)
    # The pinned file in conf/model/llama.yaml, but for its header and norms.
    assert size == pytest.approx(4_920_739_232, rel=0.003)


@pytest.mark.parametrize("preset", ["Q4_K_M", "Q8_0"])
def test_random_weights_give_the_same_file_and_finite_sensible_logits(tmp_path: Path, preset: str) -> None:
    for name in ("a", "b"):
        random_gguf.write(tmp_path / f"{name}.gguf", random_gguf.SHAPES["tiny"], preset, 7)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    file = open_model(tmp_path / "a.gguf", tmp_path)
    assert file.facts.file_type == preset
    opened = open_file(file, engine_config(), 512, None)
    logits = opened.model.decode([5, 6, 7]).copy()
    opened.model.close()
    assert 0.2 < float(logits.std()) < 5


def test_counting_agrees_with_what_an_engine_evaluates(tiny: ModelFile) -> None:
    setup = Setup(orders.build({"base": 1, "shipping": 2}, 2026, "round"), "Use the tools.", RULES)
    clean = Track("", FaultKind.none, Gate.certified, {})
    faults = (Track("", FaultKind.et, Gate.certified, {}),)
    played: list[Episode] = []

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        played.append(episode)

    engine = LlamaEngine(tiny, engine_config(), 4096)
    walk(setup.episodes(Forced(engine)), clean, faults, record)
    counted = engine.counters()
    engine.close()
    opened = open_file(tiny, engine_config(), 4096, None)
    counting = Counting(opened.tokenizer, opened.info)
    walk(setup.episodes(Forced(counting)), clean, faults, record)
    opened.model.close()
    assert (counting.prefill, counting.decode) == (counted.prefill_tokens, counted.decode_tokens)
    # The demonstrator solves every task and recovers from every fault: 3 clean, 2 + 3 + 3 with one.
    assert len(played) == 2 * (3 + 8)
    assert all(one.ending is Ending.submitted for one in played)


def test_hours_of_the_papers_cells() -> None:
    # 25 cells of 100 s of reading and 44 s of writing.
    assert hours(Paper(prefill=8000, decode=4400, episodes=70), 80.0, 100.0) == pytest.approx(1.0)


def test_the_whole_check_runs_on_a_processor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--shape", "tiny", "--layers", "0", "--streams", "1,2"]
    command += ["--json", str(tmp_path / "found.json"), "--folder", str(tmp_path), "--seconds", "400"]
    command += ["engine.n_threads=1", "engine.n_threads_batch=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    exact = found["exactness"]
    # 2 clean episodes, 2 + 3 with a fault.
    assert exact["episodes"] == exact["fork_is_fresh"] == exact["rerun_is_rerun"] == 7
    assert found["info"]["device"] == "cpu"
    assert found["speeds"]["floor_source"] == "bandwidth measured"
    assert [one["streams"] for one in found["streams"]] == [1, 2]
    for one in found["streams"]:
        # 2 clean episodes of two turns, 5 with a fault, on tasks that random weights do not pass.
        assert (one["refused"], one["episodes"]) == ("", 7)
        assert one["device_bytes"] is None
        assert one["rate"] > 0
    assert found["paper"]["episodes"] == 70
    assert "fork = fresh: 7 of 7 episodes" in done.stdout


def test_a_refusal_is_told_not_hidden(tmp_path: Path) -> None:
    told = one_sweep(["model=scripted", "engine=scripted", "quant.preset=Q9_9"], 1, tmp_path)
    assert "Q9_9" in told.refused
    assert told.episodes == 0


def test_turns_at_once_are_the_same_tokens_in_fewer_calls() -> None:
    first = [Call(0, (1, 2)), Call(2, (3,)), Call(3, (4,)), Call(4, (5, 6)), Call(6, (7,))]
    # A fork: the next turn starts where an earlier one did.
    second = [Call(2, (8,)), Call(3, (9,))]
    assert at_once([*first, *second]) == [
        Call(0, (1, 2)),
        Call(2, (3, 4)),
        Call(4, (5, 6)),
        Call(6, (7,)),
        Call(2, (8, 9)),
    ]
