"""A cell that fails now is told as failed, whatever older success of the same design the store holds.

Each way of failing runs through the real front door, against a
store where the same command succeeded.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from qfr.cli import main
from qfr.play import job
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import search
from qfr.tracking.store import open_store
from tests.chat_server import Odd, Reply, completion, odd_server
from tests.registering import quiet_logging
from tests.tiny_models import TinyModel, write_model

ROOT = Path(__file__).resolve().parent.parent
TINY = TinyModel(context=4096)
SMALL = (
    *("model=local", 'model.path="m.gguf"', "quant=f16", "prompt=P0", "fault=et", "suite.gate=none"),
    *("suite.families={base:2,shipping:0}", "suite.step_budget=2", "executor.max_tokens=8"),
    *("engine.n_threads=1", "engine.n_threads_batch=1", "tracking.patience=1"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    job._SHELF.clear()


def grid(*overrides: str) -> int:
    with quiet_logging():
        return main(["run", *overrides])


def sweep_of(printed: str) -> str:
    return re.findall(r"sweep (s-\S+):", printed)[-1]


def unloadable() -> None:
    """Same header and templates, one tensor cut off."""
    path = Path("m.gguf")
    path.write_bytes(path.read_bytes()[:-4000])


def missing_tensor() -> None:
    path = Path("m.gguf")
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.9.ffn_up.weight"))


def unknown_architecture() -> None:
    path = Path("m.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"llomo"))


def no_gguf() -> None:
    Path("m.gguf").write_bytes(b"GGUF" + bytes(5000))


def not_finite() -> None:
    with np.errstate(invalid="ignore"):
        write_model(Path("m.gguf"), dataclasses.replace(TINY, scale=float("nan")))


def template_refused() -> None:
    write_model(Path("m.gguf"), dataclasses.replace(TINY, template="{{ messages[0]['content'] }}"))


def aborted() -> None:
    """Other weights, and a worker that is aborted as it plays."""
    write_model(Path("m.gguf"), dataclasses.replace(TINY, seed=5))
    known = set(Path("mlruns").glob("journal/*"))

    def abort() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            workers = [pid for pid in children if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            if workers and set(Path("mlruns").glob("journal/*")) - known:
                for pid in workers:
                    os.kill(int(pid), signal.SIGABRT)
                return
            time.sleep(0.001)

    threading.Thread(target=abort, daemon=True).start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (unloadable, "m.gguf"),
        (missing_tensor, "'blk.1.ffn_up.weight' not found"),
        (unknown_architecture, "unknown model architecture: 'llomo'"),
        (no_gguf, "m.gguf"),
        (not_finite, "not finite"),
        (template_refused, "template"),
        (aborted, "SIGABRT"),
    ],
)
def test_a_failure_is_not_hidden_by_an_older_success(
    change: Callable[[], None], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_model(Path("m.gguf"), TINY)
    more = ("suite.families={base:40,shipping:0}",) if change is aborted else ()
    assert grid(*SMALL, *more) == 0, capfd.readouterr().err
    first = sweep_of(capfd.readouterr().err)
    job._SHELF.clear()
    time.sleep(0.01)
    change()
    assert grid(*SMALL, *more) != 0
    said = capfd.readouterr()
    assert why in " ".join((said.out + said.err).replace("│", " ").split())
    assert "Traceback" not in said.out + said.err
    store = open_store(None, Path("mlruns"), "qfr")
    # The file may be refused before a sweep begins; if one began, its record says what failed.
    if (began := re.findall(r"sweep (s-\S+):", said.err)) != []:
        assert "Not finished: 2 cells" in said.out
        assert "no report: no cell of this sweep is finished" in said.out
        named = re.search(r"Every reason in full: (\S+)", said.out)
        assert named is not None
        assert why in Path(named[1]).read_text()
        assert read_cells(store, sweep=began[0]).cells == ()
    assert len(read_cells(store, sweep=first).cells) == 2


@pytest.mark.slow
def test_a_dead_server_is_not_hidden(capfd: pytest.CaptureFixture[str]) -> None:
    served = (
        *("engine=openai", "model=local", "model.name=ref", "quant=f16", "prompt=P0", "fault=et"),
        *("suite.families={base:1,shipping:0}", "suite.gate=none", "engine.server.model=m"),
        *("suite.step_budget=2", "engine.server.name=here", "engine.server.concurrency=1"),
    )

    def answer(request: dict[str, object]) -> Reply:
        return completion('{"tool": "submit_answer", "args": {"answer": 1}}')

    with odd_server(Odd(answer)) as odd:
        address = f"engine.server.base_url={odd.url}"
        assert grid(*served, address) == 0, capfd.readouterr().err
    job._SHELF.clear()
    capfd.readouterr()
    # The server has ended.
    assert grid(*served, address, "engine.server.retries=0") == 1
    said = capfd.readouterr()
    assert "Not finished: 2 cells" in said.out
    assert odd.url.removeprefix("http://").partition("/")[0] in said.out
    assert "2 of them finished in an earlier sweep" in said.out


@pytest.mark.slow
def test_weights_that_changed_are_played_and_the_old_run_stays_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A success now, of another file: the report holds it alone."""
    write_model(Path("m.gguf"), TINY)
    assert grid(*SMALL) == 0
    capfd.readouterr()
    time.sleep(0.01)
    write_model(Path("m.gguf"), dataclasses.replace(TINY, seed=3))
    assert grid(*SMALL) == 0
    second = sweep_of(capfd.readouterr().err)
    store = open_store(None, Path("mlruns"), "qfr")
    assert len(read_cells(store).cells) == 4
    reading = read_cells(store, sweep=second)
    assert {cell.facts.sweep for cell in reading.cells} == {second}
    # The same command again uses these, and neither the first sweep's nor what comes later.
    assert grid(*SMALL) == 0
    third = sweep_of(capfd.readouterr().err)
    used = {cell.run_id for cell in reading.cells}
    write_model(Path("m.gguf"), dataclasses.replace(TINY, seed=4))
    assert grid(*SMALL) == 0
    assert {cell.run_id for cell in read_cells(store, sweep=third).cells} == used


def test_a_run_deleted_under_the_sweep_is_missed(capfd: pytest.CaptureFixture[str]) -> None:
    write_model(Path("m.gguf"), TINY)
    assert grid(*SMALL) == 0
    shutil.rmtree(next(Path("mlruns/reports").iterdir()))
    store = open_store(None, Path("mlruns"), "qfr")
    sweep = sweep_of(capfd.readouterr().err)
    fault = next(cell for cell in read_cells(store).cells if cell.facts.fault == "et")
    store.client.delete_run(fault.run_id)
    assert [one.design_id for one in read_cells(store, sweep=sweep).missing] == [fault.facts.design_id]


def test_a_reader_that_goes_does_not_end_the_sweep(tmp_path: Path) -> None:
    """`python run.py … | head -0`: the sweep ends as it would, with its report, and without noise."""
    ours, theirs = os.pipe()
    os.close(ours)
    command = ("model=scripted", "suite=orders6", "prompt=P0", "quant=q4_k_m,q8_0", "fault=et")
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *command],
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Time:" in done.stderr
    assert "Broken" not in done.stderr
    assert "Exception ignored" not in done.stderr
    store = open_store(None, tmp_path / "mlruns", "qfr")
    (sweep,) = search(store, "tags.`qfr.kind` = 'sweep'")
    assert sweep.info.status == "FINISHED"
    assert (tmp_path / "mlruns/artifacts/qfr" / sweep.info.run_id / "artifacts/report/report.html").is_file()
