"""Workers of one cell group: the bytes of one worker, whatever their number, and however some of them die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_builders import engine_config
from walks import N_CTX, RULES, Walked, play_one, prompt, reference_agent, small_world

from qfr.cell import Record, Track, walk_at_once
from qfr.config import EngineKind
from qfr.engine.files.gguf import ModelFile
from qfr.engine.pool import SIDE_BY_SIDE, WorkerPool, tell_jobs, workers_for
from qfr.episode import Episodes
from qfr.errors import ConfigError, WorkerDied
from qfr.front.load import Workers, side_by_side
from qfr.front.models import compose_cell
from qfr.records import Episode, FaultKind

KINDS = (FaultKind.et, FaultKind.it)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return reference_agent("ref_llama", tmp_path_factory.mktemp("workers"))


@pytest.fixture(scope="module")
def alone(file: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> dict[FaultKind, bytes]:
    """Logs of one engine without workers."""
    walked = Walked(tmp_path_factory.mktemp("alone"), KINDS)
    play_one(file, walked)
    return {kind: walked.log(kind) for kind in (FaultKind.none, *KINDS)}


@pytest.fixture
def pool(file: ModelFile) -> Iterator[Callable[[int], WorkerPool]]:
    opened: list[WorkerPool] = []

    def make(workers: int) -> WorkerPool:
        opened.append(WorkerPool(file, engine_config(), N_CTX))
        opened[-1].grow(workers, pytest.fail)
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def play(pool: WorkerPool, walked: Walked, record: Record) -> None:
    world, system = small_world(), prompt()
    players = [Episodes(one, world, system, RULES) for one in pool.members]
    walk_at_once(players, *walked.tracks(), record)


def logs(walked: Walked) -> dict[FaultKind, bytes]:
    return {kind: walked.log(kind) for kind in (FaultKind.none, *KINDS)}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_leaves_the_same_bytes(
    workers: int, pool: Callable[[int], WorkerPool], alone: dict[FaultKind, bytes], tmp_path: Path
) -> None:
    one, walked = pool(workers), Walked(tmp_path, KINDS)
    assert len({member.pid for member in one.members}) == workers
    one.reset_counters()
    play(one, walked, walked.record())
    assert logs(walked) == alone
    count = one.counters()
    assert count.evaluated == count.tree > 0
    again = Walked(tmp_path, KINDS)
    assert logs(again) == alone


def test_broken_off_with_two_workers_and_resumed_with_three(
    pool: Callable[[int], WorkerPool], alone: dict[FaultKind, bytes], tmp_path: Path
) -> None:
    first = Walked(tmp_path, KINDS)
    with pytest.raises(InterruptedError):
        play(pool(2), first, first.record(stop_after=7))
    second = Walked(tmp_path, KINDS)
    assert sum(len(done) for done in second.done.values()) == 7
    play(pool(3), second, second.record())
    assert logs(second) == alone


def test_a_worker_that_dies_costs_its_running_episode(
    pool: Callable[[int], WorkerPool], alone: dict[FaultKind, bytes], tmp_path: Path
) -> None:
    one, walked = pool(2), Walked(tmp_path, KINDS)
    keep, victims = walked.record(), [one.members[1].pid]

    def record(track: Track, episode: Episode, seconds: float) -> None:
        keep(track, episode, seconds)
        if victims and sum(len(done) for done in walked.done.values()) == 3:
            os.kill(victims.pop(), signal.SIGKILL)

    play(one, walked, record)
    assert not victims
    assert not one.whole
    assert len(one.members) == 1
    assert logs(walked) == alone


def test_when_the_last_worker_dies_what_was_recorded_stays(
    pool: Callable[[int], WorkerPool], alone: dict[FaultKind, bytes], tmp_path: Path
) -> None:
    one, walked = pool(2), Walked(tmp_path, KINDS)
    keep = walked.record()

    def record(track: Track, episode: Episode, seconds: float) -> None:
        keep(track, episode, seconds)
        if sum(len(done) for done in walked.done.values()) == 4:
            for member in one.members:
                os.kill(member.pid, signal.SIGKILL)

    with pytest.raises(WorkerDied):
        play(one, walked, record)
    resumed = Walked(tmp_path, KINDS)
    assert sum(len(done) for done in resumed.done.values()) >= 4
    play(pool(1), resumed, resumed.record())
    assert logs(resumed) == alone


def test_how_many_workers_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    config = engine_config(n_threads=2, workers=0)
    monkeypatch.setenv(SIDE_BY_SIDE, "1")
    assert (workers_for(config, 20), workers_for(config, 3)) == (4, 3)
    tell_jobs(2)
    assert workers_for(config, 20) == 2
    tell_jobs(0)
    assert workers_for(config, 20) == 1
    tell_jobs(1)
    assert workers_for(engine_config(n_threads=16, workers=0), 20) == 1
    assert workers_for(engine_config(n_threads=2, workers=6), 20) == 6
    assert workers_for(engine_config(streams=2, workers=0), 20) == 1
    assert workers_for(engine_config(kind=EngineKind.scripted, workers=0), 20) == 1
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert workers_for(config, 20) == 1
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert workers_for(config, 20) == 2


def test_jobs_side_by_side_are_known_where_the_launcher_says_so() -> None:
    def told(launcher: str, count: int | None, *, elsewhere: bool = False) -> int:
        return side_by_side(Workers(launcher, count, elsewhere, fresh=False), 5)

    assert (told("basic", 1), told("joblib", 2), told("joblib", 16)) == (1, 2, 5)
    assert told("submitit_slurm", 8, elsewhere=True) == 1
    assert (told("ray", None), told("submitit_local", None)) == (0, 0)


def test_workers_on_the_command_line() -> None:
    assert compose_cell("model=ref_llama").engine.workers == 0
    assert compose_cell("model=ref_llama", "engine.workers=auto").engine.workers == 0
    assert compose_cell("model=ref_llama", "engine.workers=3").engine.workers == 3
    with pytest.raises(ConfigError, match=r"engine\.workers"):
        compose_cell("model=ref_llama", "engine.workers=-1")
    with pytest.raises(ConfigError, match=r"engine\.workers='many' is not possible"):
        compose_cell("model=ref_llama", "engine.workers=many")
    with pytest.raises(ConfigError, match="exclude each other"):
        compose_cell("model=ref_llama", "engine.workers=2", "engine.streams=2")
