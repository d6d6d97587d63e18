"""The engine's process: the same answers, and what happens when it or its parent dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_builders import engine_config
from tiny_models import TinyModel, write_model

from qfr.engine import child
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.library import COMMITS, commit_of, facts_here, library_facts
from qfr.engine.worker import WorkerEngine
from qfr.errors import EngineError, ModelFileError, WorkerDied


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    folder = tmp_path_factory.mktemp("worker")
    return open_model(write_model(folder / "tiny.gguf", TinyModel()), folder)


@pytest.fixture
def worker(model: ModelFile) -> Iterator[WorkerEngine]:
    engine = WorkerEngine(model, engine_config(), 512)
    yield engine
    engine.close()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pid: int, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


def test_a_worker_answers_as_the_engine_does(model: ModelFile, worker: WorkerEngine) -> None:
    here = LlamaEngine(model, engine_config(), 512)
    for engine in (here, worker):
        engine.begin("system\ud800", "task\0", 6)
    assert worker.info == here.info
    for engine in (here, worker):
        engine.reset_counters()
    turns = [[engine.begin("s", "t", 6), engine.reply("o", 6, "forced text")] for engine in (here, worker)]
    assert turns[0] == turns[1]
    there, own = worker.counters(), here.counters()
    assert (there.evaluated, there.tree, there.trie, there.fresh) == (
        own.evaluated,
        own.tree,
        own.trie,
        own.fresh,
    )
    assert there.evaluated == there.tree > 0
    here.close()


def test_errors_of_the_engine_cross_the_process_border(model: ModelFile, worker: WorkerEngine) -> None:
    with pytest.raises(EngineError, match="before an episode"):
        worker.reply("o", 5)
    assert worker.begin("s", "t", 3).token_ids
    with pytest.raises(ModelFileError, match="context is 2048 tokens, 4096 are needed"):
        WorkerEngine(model, engine_config(), 4096)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_worker_is_told_and_the_next_one_works(model: ModelFile, sign: signal.Signals) -> None:
    engine = WorkerEngine(model, engine_config(), 512)
    expected = engine.begin("s", "t", 5)
    os.kill(engine.pid, sign)
    with pytest.raises(WorkerDied, match=f"tiny.gguf: the engine's process ended \\({sign.name}"):
        engine.begin("s", "t", 5)
    engine.close()
    assert wait_until_gone(engine.pid)
    again = WorkerEngine(model, engine_config(), 512)
    assert again.begin("s", "t", 5) == expected
    again.close()


def test_the_last_lines_of_a_dead_workers_log_are_shown(worker: WorkerEngine) -> None:
    os.kill(worker.pid, signal.SIGABRT)
    with pytest.raises(WorkerDied, match=r"(?s)last lines:.*Fatal Python error: Aborted") as caught:
        worker.begin("s", "t", 5)
    named = re.search(r"its log is (\S+),", str(caught.value))
    assert named is not None
    kept = Path(named[1])
    assert "Fatal Python error: Aborted" in kept.read_text()
    kept.unlink()


def test_a_worker_leaves_no_log_however_its_parent_ends(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel())
    code = (
        "import os, sys, pathlib\nsys.path.insert(0, 'tests')\n"
        "from engine_builders import engine_config\nfrom qfr.engine.files.gguf import open_model\n"
        "from qfr.engine.worker import WorkerEngine\n"
        f"engine = WorkerEngine(open_model(pathlib.Path({str(made)!r}), pathlib.Path({str(tmp_path)!r})), "
        "engine_config(), 512)\nos.kill(os.getpid(), 9)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(folder)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(folder.iterdir()) == []


def test_a_crash_inside_llama_cpp_costs_the_worker_alone(tmp_path: Path) -> None:
    made = open_model(write_model(tmp_path / "m.gguf", TinyModel()), tmp_path)
    engine = WorkerEngine(made, engine_config(), 512)
    # The weights are mapped from the file: taking them away makes reading them a bus error.
    os.truncate(made.path, 4096)
    with pytest.raises(WorkerDied, match=r"process ended \(SIG(BUS|SEGV)"):
        engine.begin("s", "t", 5)
    engine.close()


def test_interrupts_are_left_to_the_parent(worker: WorkerEngine) -> None:
    first = worker.begin("s", "t", 5)
    for sign in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker.pid, sign)
        assert worker.begin("s", "t", 5) == first


def test_a_closed_worker_is_gone_and_says_so(model: ModelFile) -> None:
    engine = WorkerEngine(model, engine_config(), 512)
    assert (engine.peak_memory_bytes() or 0) > 1 << 20
    engine.close()
    engine.close()
    assert not alive(engine.pid)
    assert engine.peak_memory_bytes() is None
    with pytest.raises(EngineError, match="closed"):
        engine.begin("s", "t", 5)


def test_an_interrupted_question_never_answers_a_later_one(model: ModelFile) -> None:
    engine = WorkerEngine(model, engine_config(), 2048)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def ask_for_ever() -> None:
        for number in range(1_000_000):
            engine.begin("s" * 1000, f"task {number}", 400)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            ask_for_ever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    # Turns take far longer than what lies between them, so the signal came while one was being written.
    assert engine.interrupted
    with pytest.raises(EngineError, match="interrupted"):
        engine.begin("s", "t", 5)
    engine.close()
    assert wait_until_gone(engine.pid)


# A front end without a main guard, as a user's own script may be.
SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from engine_builders import TALK, Script, Step, engine_config, episodes, model_config, play, preset, smollm2
from tiny_models import CHATML, CONTROLS, GEMMA, INST, LLAMA3, MODELS, TinyModel, write_model, write_split
from qfr.engine import child
from qfr.engine.files.gguf import open_model
from qfr.engine.worker import WorkerEngine
engine = WorkerEngine(open_model(Path({path!r}), Path({cache!r})), engine_config(), 512)
print(engine.begin("s", "t", 5).logits_sha256, engine.pid, flush=True)
{ending}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code"),
    [("engine.close()", 0), ("os.kill(os.getpid(), signal.SIGKILL)", -9), ("os._exit(3)", 3)],
)
def test_a_worker_ends_with_its_parent_however_that_ends(
    ending: str, code: int, model: ModelFile, worker: WorkerEngine, tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        SCRIPT.format(
            tests=str(Path(__file__).parent), path=str(model.path), cache=str(tmp_path), ending=ending
        )
    )
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert done.returncode == code, done.stderr
    digest, pid = done.stdout.split()
    # The script ran once (a child that imported it would have loaded a model of its own).
    assert digest == worker.begin("s", "t", 5).logits_sha256
    assert wait_until_gone(int(pid))


def test_threads_give_way_unless_the_user_decided_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert child.environment()["GOMP_SPINCOUNT"] == "10000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert child.environment()["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in child.environment()


def test_the_library_is_described_without_loading_it_here() -> None:
    facts = library_facts()
    assert facts == facts_here()
    assert facts.version in COMMITS
    assert facts.commit == COMMITS[facts.version]
    assert {"Q8_0", "Q4_K_M", "IQ4_XS", "F16"} <= set(facts.presets)


@pytest.mark.parametrize(
    ("version", "raw", "expected"),
    [
        ("0.3.36", "0c1e570-dirty", (COMMITS["0.3.36"], "library")),
        ("0.3.36", "0c1e570", (COMMITS["0.3.36"], "library")),
        ("0.3.36", "unknown", (COMMITS["0.3.36"], "table")),
        ("0.3.36", "", (COMMITS["0.3.36"], "table")),
        ("0.3.36", "abcdef0-dirty", ("abcdef0", "library")),
        ("9.9.9", "unknown", ("unknown", "none")),
    ],
)
def test_the_commit_is_told_by_the_library_else_by_the_table(
    version: str, raw: str, expected: tuple[str, str]
) -> None:
    assert commit_of(version, raw) == expected
