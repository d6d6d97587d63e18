"""Several streams in lockstep: exact forks, batches that follow from the cell, waves that survive a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_builders import Script, engine_config, episodes, play
from tiny_models import MODELS, write_model
from walks import ROOT, RULES, Walked, play_one, play_streams, reference_agent, small_world

from qfr.audit.replay import compare
from qfr.cell import Track, walk, walk_together
from qfr.config import ExecutorKind, Gate
from qfr.engine.base import Answered, Ask, StreamEngine
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.streams import LlamaStreams
from qfr.engine.scripted import ScriptedEngine, ScriptedStreams
from qfr.engine.worker import WorkerEngine
from qfr.episode import Episodes, Piece, Rules, Together
from qfr.errors import EngineError
from qfr.records import Episode, FaultKind, Generation
from qfr.world.demonstrate import Habits, next_turn

KINDS = (FaultKind.et, FaultKind.ep)


def together(engine: StreamEngine, scripts: Sequence[Script]) -> list[list[Generation]]:
    """Play scripts side by side, each in a stream of its own."""
    turns: list[list[Generation]] = [[] for _ in scripts]
    asks = [_ask(script, stream, 0) for stream, script in enumerate(scripts)]
    while any(len(done) < len(script.steps) for done, script in zip(turns, scripts, strict=True)):
        answered = engine.advance(tuple(asks))
        asks = []
        for answer in answered:
            done, script = turns[answer.stream], scripts[answer.stream]
            done.append(answer.generation)
            if len(done) < len(script.steps):
                asks.append(_ask(script, answer.stream, len(done)))
    return turns


def _ask(script: Script, stream: int, turn: int) -> Ask:
    step = script.steps[turn]
    return Ask(stream, None if turn else script.system, step.message, step.max_tokens, step.forced)


def alone(engine: StreamEngine, script: Script, stream: int) -> list[Generation]:
    """Play one script in one stream, the others idle."""
    answers: list[Answered] = []
    for turn in range(len(script.steps)):
        answers += engine.advance((_ask(script, stream, turn),))
    return [answer.generation for answer in answers]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")

    def get(name: str) -> ModelFile:
        path = folder / f"{name}.gguf"
        return open_model(path if path.exists() else write_model(path, MODELS[name]), folder)

    return get


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return reference_agent("ref_llama", tmp_path_factory.mktemp("agent"))


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "window kept short": ("window", {"swa_full": False}),
    "flash attention": ("chatml", {"flash_attn": True}),
    "q8_0 cache": ("chatml", {"flash_attn": True, "type_k": "q8_0", "type_v": "q8_0"}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_stream_alone_and_every_fork_equal_the_engine_of_one_stream(variant: str, model: Any) -> None:
    """Bit for bit: the digests of all logits. The forks are copies out of kept transcripts, and rewinds."""
    name, changes = VARIANTS[variant]
    scripts = episodes(depth=2, tasks=2)
    one = LlamaEngine(model(name), engine_config(**changes), 1024)
    wanted = [play(one, script) for script in scripts]
    one.close()
    engine = LlamaStreams(model(name), engine_config(streams=3, **changes), 1024)
    clean = [index for index in range(len(scripts)) if index % (len(scripts) // 2) == 0]
    for stream, index in enumerate(clean):
        assert alone(engine, scripts[index], stream) == wanted[index]
    engine.keep()
    before = engine.counters()
    for index, script in enumerate(scripts):
        assert alone(engine, script, (index + 1) % 3) == wanted[index]
    after = engine.counters()
    if engine.info.rewind:
        # A kept transcript is what the template shows at its end: rewritten history is hardly shared.
        shared = after.fresh - after.evaluated
        assert after.tree <= after.evaluated
        assert shared > 0 or name == "moves"
    else:
        assert after.evaluated - before.evaluated > before.evaluated
    engine.close()


def test_a_wave_gives_the_same_bytes_each_time_and_forgets_what_was_before(model: Any) -> None:
    scripts = [replace(one, steps=(*one.steps[:-1], replace(one.steps[-1], max_tokens=20 + index)))
               for index, one in enumerate(episodes(depth=1, tasks=3)[:4])]  # fmt: skip
    engine = LlamaStreams(model("chatml"), engine_config(streams=4), 1024)
    first = together(engine, scripts)
    engine.forget()
    alone(engine, episodes()[7], 2)
    engine.keep()
    engine.forget()
    assert together(engine, scripts) == first
    engine.close()


def test_wrong_questions_and_logits_that_are_not_finite(model: Any, tmp_path: Path) -> None:
    engine = LlamaStreams(model("chatml"), engine_config(streams=2), 256)
    with pytest.raises(EngineError, match="no stream has a turn"):
        engine.advance(())
    with pytest.raises(EngineError, match="no stream 2"):
        engine.advance((Ask(2, "s", "t", 4),))
    with pytest.raises(EngineError, match="before an episode"):
        engine.advance((Ask(1, None, "t", 4),))
    full = engine.advance((Ask(0, "s " * 300, "t", 4),))
    assert [one.generation.stop for one in full] == ["context"]
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.advance(())
    broken = write_model(tmp_path / "broken.gguf", replace(MODELS["chatml"], scale=float("nan")))
    engine = LlamaStreams(open_model(broken, tmp_path), engine_config(streams=2), 256)
    with pytest.raises(EngineError, match="not finite"):
        engine.advance((Ask(0, "s", "t", 4),))
    engine.close()


def test_a_worker_plays_streams_and_refuses_questions_of_one_stream(model: Any) -> None:
    script = episodes(depth=1, tasks=1)[0]
    engine = LlamaStreams(model("chatml"), engine_config(streams=2), 512)
    wanted = together(engine, [script, script])
    engine.close()
    worker = WorkerEngine(model("chatml"), engine_config(streams=2), 512)
    assert isinstance(worker, StreamEngine)
    assert together(worker, [script, script]) == wanted
    worker.keep()
    worker.forget()
    with pytest.raises(EngineError, match="several streams"):
        worker.begin("s", "t", 4)
    worker.close()


@pytest.fixture(scope="module")
def whole(agent: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    walked = Walked(tmp_path_factory.mktemp("whole"), KINDS)
    counters = play_streams(agent, 4, walked)
    # ET and EP episodes of a site share their next turn, but no wave takes a token from another cell's.
    assert 1.0 <= counters.evaluated / counters.tree < 1.25
    return walked


@pytest.mark.parametrize("after", [0, 3, 7, 9, 16])
def test_a_walk_that_broke_off_anywhere_ends_in_the_same_bytes(
    after: int, whole: Walked, agent: ModelFile, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedError):
        play_streams(agent, 4, Walked(tmp_path, KINDS), stop_after=after)
    resumed = Walked(tmp_path, KINDS)
    assert sum(map(len, resumed.done.values())) == after
    play_streams(agent, 4, resumed)
    assert [resumed.log(kind) for kind in (FaultKind.none, *KINDS)] == [
        whole.log(kind) for kind in (FaultKind.none, *KINDS)
    ]


@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_bytes(whole: Walked, tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(ROOT / "tests" / "walks.py"), str(tmp_path), "ref_llama", "4"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths}
    child = subprocess.Popen(command, env=environment)
    journal = tmp_path / "none" / "journal.jsonl"
    while not (journal.exists() and journal.stat().st_size) and child.poll() is None:
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    subprocess.run(command, env=environment, check=True)
    resumed = Walked(tmp_path, KINDS)
    assert [resumed.log(kind) for kind in resumed.done] == [whole.log(kind) for kind in whole.done]


def test_a_cell_does_not_depend_on_the_faults_that_are_played_with_it(
    whole: Walked, agent: ModelFile, tmp_path: Path
) -> None:
    """EP episodes after ET ones in a walk equal those of a walk of their own on a finished clean pass."""
    only = Walked(tmp_path, (FaultKind.ep,))
    only.done[FaultKind.none].update(whole.done[FaultKind.none])
    play_streams(agent, 4, only)
    assert only.log(FaultKind.ep) == whole.log(FaultKind.ep)


def test_scores_agree_with_one_stream_on_the_reference_agent(
    whole: Walked, agent: ModelFile, tmp_path: Path
) -> None:
    one = Walked(tmp_path, KINDS)
    counters = play_one(agent, one)
    assert counters.evaluated == counters.tree
    for kind in (FaultKind.none, *KINDS):
        found = compare(list(one.done[kind].values()), list(whole.done[kind].values()))
        assert found.episodes > 4
        assert found.scores == ()


def test_a_recorded_episode_that_the_wave_does_not_give_again_is_an_error(
    whole: Walked, agent: ModelFile, tmp_path: Path
) -> None:
    other = Walked(tmp_path, KINDS)
    done = dict(whole.done[FaultKind.none])
    key = sorted(done)[1]
    done[key] = replace(done[key], errors=done[key].errors + 1)
    other.done[FaultKind.none].update(done)
    with pytest.raises(EngineError, match="another episode"):
        play_streams(agent, 4, other)


def _agent(system: str, task: str, past: tuple[tuple[str, str], ...]) -> str:
    return next_turn(task, past, Habits(attempts=3))


@pytest.mark.parametrize("streams", [2, 5, 64])
def test_waves_of_any_width_hold_every_episode_once(streams: int) -> None:
    """Against the walk of one stream: same episodes, whatever the number of tasks left for the last group."""
    rules = Rules(ExecutorKind.tolerant, 12, 10, 160, "down", "It is down.", 0)
    found: dict[bool, list[Episode]] = {True: [], False: []}
    faults = (FaultKind.et, FaultKind.it, FaultKind.ep)
    for lockstep in (True, False):
        clean = Track("c", FaultKind.none, Gate.none, {})
        tracks = tuple(Track(f"c-{kind}", kind, Gate.none, {}) for kind in faults)

        def record(track: Track, episode: Episode, seconds: float, into: bool = lockstep) -> None:
            found[into].append(episode)

        if lockstep:
            engine = ScriptedStreams(_agent, streams)
            walk_together(
                Together(engine, streams, small_world(), "You fetch orders.", rules), clean, tracks, record
            )
        else:
            walk(
                Episodes(ScriptedEngine(_agent), small_world(), "You fetch orders.", rules),
                clean, tracks, record,
            )  # fmt: skip
    assert sorted(found[True], key=repr) == sorted(found[False], key=repr)
    assert len(found[True]) == 6 + 15 + 12 + 15


def test_an_empty_wave_is_no_wave() -> None:
    engine = ScriptedStreams(_agent, 2)
    assert Together(engine, 2, small_world(), "", RULES).play("c", FaultKind.et, list[Piece]()) == ()
