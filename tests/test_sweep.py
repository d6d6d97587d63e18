"""Whole sweeps from the command line: resume, kill, a dying engine, failures that cost one cell."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_models import TinyModel, write_model

from qfr.config import CellConfig
from qfr.front.models import compose_cell
from qfr.grid.outcomes import JobOutcome, Status
from qfr.journal import Journal
from qfr.play import job
from qfr.tracking.reading.cells import read_finished
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import find_finished
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.sweep import find_sweep

ROOT = Path(__file__).resolve().parent.parent
SCRIPTED = ("experiment=smoke", "fault=et,it,ep", "prompt=P0")


@pytest.fixture(scope="module", autouse=True)
def _empty_shelf() -> Iterator[None]:
    """Jobs of one process share a loaded engine; the last one is closed here."""
    yield
    job._SHELF.clear()


def command(folder: Path, *overrides: str) -> list[str]:
    return [sys.executable, str(ROOT / "run.py"), *overrides, f"hydra.sweep.dir={folder}/multirun"]


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *overrides), cwd=folder, capture_output=True, text=True, check=False
    )


def logs(folder: Path) -> dict[str, bytes]:
    """The log of every finished cell, by the cell's name."""
    store = open_store(None, folder / "mlruns", "qfr")
    found: dict[str, bytes] = {}
    for cell in read_cells(store).cells:
        path = store.root / "artifacts" / "qfr" / cell.run_id / "artifacts" / "episodes.jsonl.gz"
        assert cell.facts.name not in found, "a cell was run twice"
        found[cell.facts.name] = gzip.decompress(path.read_bytes())
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An uninterrupted sweep and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    done = run(folder, *SCRIPTED)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_one_command_ends_with_contrasts_and_a_report(whole: tuple[Path, str]) -> None:
    folder, printed = whole
    # The terminal ends in the answer; the tables are one command, or one key, away.
    assert "scripted" in printed
    assert "Q8_0" in printed
    assert "Tables, contrasts and warnings: qfr report --sweep s-" in " ".join(printed.split())
    assert "Q8_0 − Q4_K_M" not in printed
    page = next((folder / "mlruns" / "reports").glob("*/report.html"))
    assert str(page) in printed
    assert "mlflow ui --backend-store-uri sqlite:///" in printed
    assert set(logs(folder)) == {
        f"scripted {quant} P0 {fault}" for quant in ("q8_0", "q4_k_m") for fault in ("none", "et", "it", "ep")
    }


def test_the_same_command_again_skips_what_is_finished(whole: tuple[Path, str]) -> None:
    folder, _ = whole
    before = logs(folder)
    again = run(folder, *SCRIPTED)
    assert again.returncode == 0, again.stderr
    assert "8 cells finished before" in again.stderr
    assert logs(folder) == before


def test_three_faults_share_one_clean_pass(whole: tuple[Path, str]) -> None:
    folder, _ = whole
    store = open_store(None, folder / "mlruns", "qfr")
    cells = read_cells(store).cells
    clean = {cell.facts.cell_id: cell.log_sha256 for cell in cells if cell.facts.fault == "none"}
    faulted = [cell for cell in cells if cell.facts.fault != "none"]
    assert len(clean) == 2
    assert {cell.clean_log_sha256 for cell in faulted} == set(clean.values())
    assert {cell.facts.clean_id for cell in faulted} == set(clean)
    assert all(cell.metrics["work.segment_ratio"] == 1.0 for cell in cells)


def test_the_sweeps_run_says_what_the_grid_spans(whole: tuple[Path, str]) -> None:
    folder, _ = whole
    store = open_store(None, folder / "mlruns", "qfr")
    (cell, *_) = read_cells(store).cells
    params = find_sweep(store, cell.facts.sweep).data.params
    assert (params["models"], params["presets"]) == ("scripted", "Q8_0, Q4_K_M")
    assert (params["faults"], params["cells"]) == ("et, it, ep", "6")


@pytest.mark.slow
def test_killed_sweeps_end_in_the_same_bytes(whole: tuple[Path, str], tmp_path: Path) -> None:
    """SIGKILL while episodes are played, then the same command until it is done."""
    expected = logs(whole[0])
    moments = random.Random(7)
    for _ in range(3):
        before = _journaled(tmp_path)
        process = subprocess.Popen(
            command(tmp_path, *SCRIPTED), cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        _until_it_plays(process, tmp_path, before)
        time.sleep(moments.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it had ended before the kill"
    done = run(tmp_path, *SCRIPTED)
    assert done.returncode == 0, done.stderr
    assert logs(tmp_path) == expected


@pytest.mark.slow
def test_a_termination_leaves_killed_runs_that_resume(tmp_path: Path) -> None:
    big = ("model=scripted", "suite.families={base:400}", "fault=et")
    process = subprocess.Popen(
        command(tmp_path, *big), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    journals = tmp_path / "mlruns" / "journal"
    _wait_for(lambda: any(path.stat().st_size > 20_000 for path in journals.glob("*/journal.jsonl")))
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    reading = read_cells(open_store(None, tmp_path / "mlruns", "qfr"))
    assert {cell.status for cell in reading.unfinished} == {"KILLED"}
    done = run(tmp_path, *big)
    assert done.returncode == 0, done.stderr
    assert "resumes after" in done.stderr


def _until_it_plays(process: subprocess.Popen[bytes], folder: Path, before: set[tuple[str, int]]) -> None:
    _wait_for(lambda: _journaled(folder) - before or process.poll() is not None, every=0.002)


def _journaled(folder: Path) -> set[tuple[str, int]]:
    """(cell, bytes) of the journals that hold something."""
    found: set[tuple[str, int]] = set()
    for path in (folder / "mlruns" / "journal").glob("*/journal.jsonl"):
        with suppress(FileNotFoundError):
            # A finished cell's journal goes.
            found.add((path.parent.name, path.stat().st_size))
    return {one for one in found if one[1]}


def _wait_for(condition: Callable[[], object], seconds: float = 60.0, every: float = 0.05) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(every)


# --- the real engine, with a tiny random model -----------------------------------------------------


def tiny_cell(folder: Path, model: Path, *more: str) -> CellConfig:
    return compose_cell(
        "model=local",
        f'model.path="{model}"',
        "quant=f16",
        "suite.families={base:3}",
        "suite.step_budget=3",
        "executor.max_tokens=8",
        "engine.n_threads=1",
        "engine.n_threads_batch=1",
        f"tracking.root={folder}/mlruns",
        *more,
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(
        tmp_path_factory.mktemp("tiny") / "tiny model, ünïcode=1.gguf", TinyModel(context=4096)
    )


def stored(store: Store, outcome: JobOutcome) -> list[bytes]:
    from qfr.journal import log_bytes

    found = find_finished(store, [cell.cell_id for cell in outcome.cells])
    return [log_bytes(read_finished(store, found[cell.cell_id])) for cell in outcome.cells]


def test_ungated_faults_run_and_resume_byte_for_byte(
    tiny: Path, tmp_path: Path, make_store: Callable[..., Store]
) -> None:
    """A resumed walk, the walk that was never interrupted, and one with every fault kind apart agree."""
    one = make_store("a/mlruns".replace("/", "_"))
    cell = tiny_cell(tmp_path, tiny, "suite.gate=none", "walk=[et,it,ep]", f"tracking.root={one.root}")
    outcome = job.run_job(cell)
    assert [c.status for c in outcome.cells] == [Status.finished] * 4, outcome
    expected = stored(one, outcome)

    two = make_store("b_mlruns")
    facts = {c.cell_id: log for c, log in zip(outcome.cells, expected, strict=True)}
    for cell_id, log in facts.items():
        journal = Journal(two.root / "journal" / cell_id)
        lines = log.splitlines(keepends=True)
        # Half of the cell was played, and the last line is torn.
        journal.path.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:50])
    cell = tiny_cell(tmp_path, tiny, "suite.gate=none", "walk=[et,it,ep]", f"tracking.root={two.root}")
    assert stored(two, job.run_job(cell)) == expected

    three = make_store("c_mlruns")
    parts = []
    for kind in ("ep", "it", "et"):
        cell = tiny_cell(tmp_path, tiny, "suite.gate=none", f"fault={kind}", f"tracking.root={three.root}")
        parts.append(job.run_job(cell).cells[-1])
    assert stored(three, JobOutcome((outcome.cells[0], *reversed(parts)))) == expected


def test_an_aborted_engine_costs_one_cell(
    tiny: Path, tmp_path: Path, make_store: Callable[..., Store]
) -> None:
    store = make_store()
    slow = ("suite.families={base:400}", "suite.step_budget=12", f"tracking.root={store.root}")
    killer = threading.Thread(target=_abort_worker_of, args=(os.getpid(), store.root / "journal"))
    killer.start()
    outcome = job.run_job(tiny_cell(tmp_path, tiny, *slow))
    killer.join()
    assert {cell.status for cell in outcome.cells} == {Status.failed}
    assert "SIGABRT" in outcome.cells[0].reason
    reading = read_cells(store)
    assert {cell.status for cell in reading.unfinished} == {"FAILED"}
    assert all("SIGABRT" in cell.failure for cell in reading.unfinished)
    # The next cell, of the very same file and engine settings, finds a fresh engine.
    fewer = ("suite.families={base:2}", *slow[1:], "prompt=P1")
    after = job.run_job(tiny_cell(tmp_path, tiny, *fewer))
    assert {cell.status for cell in after.cells} == {Status.finished}


def _abort_worker_of(parent: int, journals: Path) -> None:
    _wait_for(lambda: any(path.stat().st_size > 2_000 for path in journals.glob("*/journal.jsonl")))
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    workers = [pid for pid in children if b"worker_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in workers:
        os.kill(int(pid), signal.SIGABRT)


def test_a_damaged_model_file_is_one_clear_failure(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    shutil.copy(tiny, broken)
    with broken.open("r+b") as file:
        file.truncate(broken.stat().st_size // 2)
    done = run(tmp_path, "model=local", f'model.path="{broken}"', "quant=f16")
    assert done.returncode == 2
    assert "broken.gguf" in done.stderr
    assert "Traceback" not in done.stderr
