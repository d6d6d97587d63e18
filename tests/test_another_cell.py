"""What makes another cell: a changed file, prompt, seed, thread count or build is never resumed or pooled."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tiny_models import TinyModel, write_model

from qfr.cli import main as qfr
from qfr.front.models import compose_cell
from qfr.grid import design
from qfr.grid.design import design_of
from qfr.grid.outcomes import Status
from qfr.journal import Journal, log_bytes
from qfr.play import job
from qfr.play.run_facts import gather, measured_ids
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store

SMALL = ("suite.families={base:2}", "suite.step_budget=2", "executor.max_tokens=4", "suite.gate=none")


@pytest.fixture(scope="module", autouse=True)
def _empty_shelf() -> Iterator[None]:
    """Jobs of one process share a loaded engine; the last one is closed here."""
    yield
    job._SHELF.clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "mine.gguf", TinyModel(context=4096))


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    path = tmp_path / "mine.md"
    path.write_text("You look up orders. Answer in JSON.\n", encoding="utf-8")
    return path


Play = Callable[..., Mapping[str, tuple[str, str]]]


@pytest.fixture
def play(store: Store, model: Path, prompt: Path) -> Play:
    """Run the walk; what became of its cells: fault → (status, cell_id)."""

    def run(*changes: str) -> Mapping[str, tuple[str, str]]:
        cell = compose_cell(
            *("model=local", f'model.path="{model}"', "quant=f16", "fault=et", *SMALL),
            *(f'prompt.file="{prompt}"', "prompt.name=mine", "prompt.sha256=null"),
            *("engine.n_threads=1", "engine.n_threads_batch=1", f"tracking.root={store.root}", *changes),
        )
        found = job.run_job(cell).cells
        return {one.name.rpartition(" ")[2]: (str(one.status), one.cell_id) for one in found}

    return run


def flip_last_byte(path: Path) -> None:
    """Change a file in place, and set its size and its time back to what they were."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = ("file", "prompt", "suite.seed=7", "engine.n_threads=2", "build")


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_another_cell_neither_resumed_nor_pooled(
    change: str,
    play: Play,
    store: Store,
    model: Path,
    prompt: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = play()
    assert {status for status, _ in first.values()} == {Status.finished}
    logs = {cell.facts.cell_id: read_episodes(store, cell) for cell in read_cells(store).cells}
    # The same again is skipped; so it is the change alone that makes the difference below.
    assert {status for status, _ in play().values()} == {Status.skipped}
    # Half of the old cells lies about as if it had been killed.
    for cell_id, episodes in logs.items():
        journal = Journal(store.root / "journal" / cell_id)
        journal.path.write_bytes(log_bytes(episodes[:1]))
    if change == "file":
        flip_last_byte(model)
    elif change == "prompt":
        prompt.write_text(prompt.read_text() + "\n", encoding="utf-8")
    elif change == "build":
        monkeypatch.setattr(design, "declared_commit", lambda: ("f" * 40, "table"))
        of_build = {"llama_commit": "f" * 40}
        monkeypatch.setattr(job, "gather", lambda *all_: dataclasses.replace(gather(*all_), **of_build))
    capsys.readouterr()
    second = play(*([change] if "=" in change else []))
    assert {status for status, _ in second.values()} == {Status.finished}
    assert not {cell_id for _, cell_id in first.values()} & {cell_id for _, cell_id in second.values()}
    said = capsys.readouterr().err
    assert "resumes" not in said
    assert "finished before" not in said
    # Both stand in the store, each fault cell with the clean pass of its own, and the report shows both.
    reading = read_cells(store)
    assert len(reading.cells) == 4
    assert (reading.alarms, reading.notes) == ((), ())
    for cell in reading.cells:
        if cell.facts.fault == "et":
            pair = first if cell.facts.cell_id == first["et"][1] else second
            assert cell.clean is not None
            assert (cell.facts.cell_id, cell.clean.facts.cell_id) == (pair["et"][1], pair["none"][1])
    assert qfr(["report", "--root", str(store.root), "--format", "md"]) == 0
    shown = capsys.readouterr().out
    # The page names what differs and pools nothing.
    told = {"file": "file 1 of 2", "prompt": "prompt 1 of 2", "build": "build.llama_commit"}
    assert told.get(change, change.partition("=")[0]) in shown.replace("\\", "")
    assert "across builds" not in shown


def test_a_file_that_is_written_to_while_its_cell_runs(
    play: Play, store: Store, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that the changed file played is kept under the old cell."""
    journals = store.root / "journal"

    def change() -> None:
        while not any(journals.glob("*/journal.jsonl")):
            time.sleep(0.005)
        data = bytearray(model.read_bytes())
        data[-1] ^= 1
        with model.open("r+b") as file:
            file.write(data)

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    longer = "suite.families={base:40}"
    first = play(longer)
    changing.join()
    assert {status for status, _ in first.values()} == {Status.failed}
    assert "the model file was changed while the cell ran" in capsys.readouterr().err
    kept = [len(Journal(path).episodes()) for path in journals.iterdir()]
    assert 0 < sum(kept) < 120
    second = play(longer)
    assert {status for status, _ in second.values()} == {Status.finished}
    assert not {cell_id for _, cell_id in first.values()} & {cell_id for _, cell_id in second.values()}
    assert "resumes" not in capsys.readouterr().err


def test_what_is_measured_where_it_runs_is_part_of_the_cell(play: Play, store: Store) -> None:
    """The same design with another library, device, offload or context."""
    play()
    (taken,) = job._SHELF._held.values()
    cell = compose_cell("model=smollm2", "fault=et")
    planned, info = design_of(cell), taken.info
    ids = {measured_ids(planned, info)}
    for change in (
        {"library_sha256": "0" * 64},
        {"model_sha256": "0" * 64},
        {"device": "CUDA0"},
        {"offloaded_layers": 7},
        {"n_ctx": 8192},
    ):
        ids.add(measured_ids(planned, dataclasses.replace(info, **change)))
    assert len(ids) == 6
    assert len({own for own, _ in ids}) == len({clean for _, clean in ids}) == 6
