"""GPUs are dealt out to processes: one each, kept as long as the process lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

from qfr.errors import EngineError
from qfr.play import gpus

ROOT = Path(__file__).resolve().parent.parent


def other_process(devices: list[str], folder: Path) -> str:
    """What a process of its own takes."""
    script = (
        "import json, sys; from pathlib import Path; from qfr.play.gpus import take_gpu;"
        "print(take_gpu(json.loads(sys.argv[1]), print, Path(sys.argv[2])))"
    )
    words = [sys.executable, "-c", script, json.dumps(devices), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.fixture
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpus, "_HELD", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield
    for _, lock in gpus._HELD.values():
        lock.release()


@pytest.mark.usefixtures("nothing_held")
def test_each_process_takes_one_gpu_and_keeps_it(tmp_path: Path) -> None:
    assert gpus.take_gpu([], print, tmp_path) is None
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    # Device 0 is another worker's.
    with filelock.FileLock(tmp_path / "0.lock"):
        assert gpus.take_gpu(["0", "1"], print, tmp_path) == "1"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert gpus.take_gpu(["0", "1"], print, tmp_path) == "1"
    assert other_process(["0", "1"], tmp_path) == "0\n"


@pytest.mark.usefixtures("nothing_held")
def test_a_device_that_stands_twice_serves_two_processes(tmp_path: Path) -> None:
    assert gpus.take_gpu(["0", "0"], print, tmp_path) == "0"
    assert other_process(["0", "0"], tmp_path) == "0\n"
    with filelock.FileLock(tmp_path / "0+1.lock"):
        assert other_process(["0", "0", "2"], tmp_path) == "2\n"


@pytest.mark.usefixtures("nothing_held")
def test_more_workers_than_gpus_wait_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_SECONDS", 0.05)
    said: list[str] = []
    with (
        filelock.FileLock(tmp_path / "GPU-ab_c.lock"),
        pytest.raises(EngineError, match="taken by other processes"),
    ):
        gpus.take_gpu(["GPU-ab/c"], said.append, tmp_path)
    assert said == ["all of engine.gpus=[GPU-ab/c] are taken by other workers; waiting for one"]
