"""A local store that was moved, copied, linked, or may not be written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from qfr.cli import main
from qfr.config import Traces
from qfr.errors import TrackingError
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store, peek_store
from qfr.tracking.writing.traces import log_traces
from tests.builders import make_facts
from tests.registering import quiet_logging
from tests.tracked import BUILT, cell, log_cell, log_pair
from tests.unprivileged import as_a_user

pytestmark = pytest.mark.slow

OTHER = make_facts("llama", "Q4_K_M", "P0", "none")
ONE = ("run", "model=scripted", "suite=orders6", "prompt=P0", "quant=q4_k_m", "fault=et")


def opened(root: Path) -> Store:
    return open_store(None, root, "qfr")


def files(root: Path) -> dict[str, bytes]:
    """Everything below a folder but locks, and what SQLite keeps while it is open."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "locks" not in path.parts and not path.name.startswith("mlflow.db-")
    }


def add(root: Path) -> str:
    """Log a further cell; its run's id."""
    return log_cell(opened(root), cell(OTHER, BUILT.clean)).run_id


def locations(root: Path) -> list[str]:
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        found = [row[0] for row in connection.execute("SELECT artifact_location FROM experiments")]
        for query in (
            "SELECT artifact_uri FROM runs",
            "SELECT artifact_location FROM logged_models",
            "SELECT value FROM trace_tags WHERE key = 'mlflow.artifactLocation'",
        ):
            found += [row[0] for row in connection.execute(query)]
    return found


@pytest.fixture
def root(make_store: Callable[..., Store]) -> Path:
    """A store with two cells and a trace, in a folder with odd characters."""
    store = make_store("läufe #1 100%?")
    _, fault = log_pair(store)
    log_traces(store, fault.run_id, BUILT.faulted[:1], Traces.all, ep_min_calls=2)
    return store.root


def test_a_moved_store_leaves_its_old_place_alone(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "deep" / "ж 模型"
    new.parent.mkdir()
    shutil.move(root, new)
    run_id = add(new)
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if "the store stood at" in line] == [
        f"the store stood at {root} and stands at {new} now: 2 runs are read and written here"
    ]
    assert not root.exists()
    assert (new / "artifacts" / "qfr" / run_id / "artifacts" / "episodes.parquet").is_file()
    assert len(read_cells(opened(new)).cells) == 3
    assert not [line for line in locations(new) if "l%C3%A4ufe" in line]
    assert "stood" not in capfd.readouterr().err
    # And once more.
    again = tmp_path / "again"
    shutil.move(new, again)
    assert len(read_cells(opened(again)).cells) == 3
    assert not new.exists()


def test_a_copy_does_not_write_into_the_original(root: Path, tmp_path: Path) -> None:
    before = files(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    run_id = add(copy)
    assert files(root) == before
    assert (copy / "artifacts" / "qfr" / run_id).is_dir()
    shutil.rmtree(root)
    assert len(read_cells(opened(copy)).cells) == 3


def test_a_resumed_run_of_a_copy_is_written_in_the_copy(root: Path, tmp_path: Path) -> None:
    from qfr.tracking.writing.writer import finish_cell, start_cell

    handle = start_cell(opened(root), OTHER, None)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    before = files(root)
    again = start_cell(opened(copy), OTHER, None)
    assert again.run_id == handle.run_id
    finish_cell(opened(copy), again, cell(OTHER, BUILT.clean))
    assert files(root) == before
    assert len(read_cells(opened(copy)).cells) == 3


def test_reading_a_copy_reads_the_copy(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for table in copy.rglob("episodes.parquet"):
        table.write_bytes(b"damaged here")
    store = peek_store(None, copy, "qfr")
    assert store is not None
    with pytest.raises(Exception, match=r"episodes\.parquet"):
        read_cells(store)


def test_runs_that_an_earlier_version_wrote_to_the_old_place_are_fetched(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The database was moved, and a run was logged to the old folder afterwards."""
    new = tmp_path / "new"
    shutil.copytree(root, new)
    run = next((new / "artifacts" / "qfr").glob("*/artifacts/calls.parquet")).parent
    shutil.rmtree(run)
    assert len(read_cells(opened(new)).cells) == 2
    assert "files of 1 were copied from the old place" in capfd.readouterr().err
    shutil.rmtree(root)
    assert len(read_cells(opened(new)).cells) == 2


def test_a_link_to_the_same_folder_changes_nothing(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(root, target_is_directory=True)
    before = locations(root)
    assert len(read_cells(opened(link)).cells) == 2
    assert locations(root) == before
    assert "stood" not in capfd.readouterr().err
    # A store made through a link that is gone: it stands where it is reached now.
    link.unlink()
    moved = tmp_path / "moved"
    root.rename(moved)
    link.symlink_to(moved, target_is_directory=True)
    run_id = add(link)
    assert (moved / "artifacts" / "qfr" / run_id).is_dir()
    assert not root.exists()


def test_a_relative_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.move(root, tmp_path / "elsewhere" / "mlruns")
    monkeypatch.chdir(tmp_path / "elsewhere")
    run_id = add(Path("mlruns"))
    assert Path("mlruns/artifacts/qfr", run_id).is_dir()


def test_two_roots_on_one_database_stay_apart(tmp_path: Path, migrated_database: Path) -> None:
    """An own address beside two roots: the second is no place that the first was moved to."""
    path = tmp_path / "shared.db"
    shutil.copy(migrated_database, path)
    one = open_store(f"sqlite:///{path}", tmp_path / "one", "qfr")
    log_pair(one)
    two = open_store(f"sqlite:///{path}", tmp_path / "two", "qfr")
    open_store(f"sqlite:///{path}", tmp_path / "two", "second")
    again = open_store(f"sqlite:///{path}", tmp_path / "two", "qfr")
    assert one.artifact_location == two.artifact_location == again.artifact_location


def test_experiments_that_were_put_elsewhere_stay_there(root: Path, tmp_path: Path) -> None:
    own = (tmp_path / "own" / "place").as_uri()
    opened(root).client.create_experiment("mine", own)
    shutil.move(root, tmp_path / "new")
    opened(tmp_path / "new")
    assert own in locations(tmp_path / "new")


def _open_and_count(root: Path) -> int:
    return len(read_cells(opened(root)).cells)


def test_processes_that_find_it_moved_together(root: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    shutil.move(root, new)
    with ProcessPoolExecutor(3) as pool:
        assert list(pool.map(_open_and_count, [new] * 3)) == [2, 2, 2]
    assert not root.exists()


def test_a_root_that_is_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="is an address, not a folder") as caught:
        open_store(None, Path(f"file://{tmp_path}"), "qfr")
    assert str(tmp_path) in str(caught.value)


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a sweep of the scripted engine over two presets."""
    monkeypatch.chdir(tmp_path)
    with quiet_logging():
        assert main([*ONE, "quant=q4_k_m,q8_0"]) == 0
    return tmp_path / "mlruns"


def read_only(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)


@pytest.mark.parametrize("moved", [False, True])
def test_what_reads_works_on_a_store_that_may_not_be_written(
    grid: Path, tmp_path: Path, moved: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep = next((grid / "reports").iterdir()).name
    writer = sqlite3.connect(grid / "mlflow.db")
    # What stands in the write-ahead log alone must be read too.
    writer.execute("UPDATE runs SET name = name || ' marked'")
    writer.commit()
    there = tmp_path / "arch ive é"
    shutil.copytree(grid, there)
    writer.close()
    assert (there / "mlflow.db-wal").stat().st_size > 0
    if moved:
        shutil.rmtree(grid)
    (there / "mlflow.db-shm").unlink(missing_ok=True)
    read_only(there)
    before = files(there)
    store = ["--root", str(there)]
    margin = ["--margin", "50"]
    try:
        with as_a_user():
            assert main(["report", *store]) == 2
            assert "--out FOLDER" in capfd.readouterr().err
            assert main(["report", *store, "--out", "page"]) == 0
            assert main(["report", *store, "--sweep", sweep, "--out", "of-sweep"]) == 0
            assert main(["export", sweep, "out.tar.zst", *store]) == 0
            capfd.readouterr()
            # Their exit codes are verdicts; what they could not do would be said on stderr.
            main(["compare", *store, "--baseline", "q8_0", "--candidate", "q4_k_m", *margin])
            main(["pick", *store, "--max-gb", "9", *margin])
            said = capfd.readouterr()
            assert said.err == ""
            assert "q4_k_m" in said.out
            assert main(["rescore", *store]) == 2
            assert "rescore a copy of it" in capfd.readouterr().err
            held = peek_store(None, there, "qfr")
            assert held is not None
            runs = held.client.search_runs([held.experiment_id])
    finally:
        for path in [there, *there.rglob("*")]:
            path.chmod(0o755)
    assert all(run.info.run_name.endswith(" marked") for run in runs)
    assert files(there) == before
    assert Path("page/report.html").is_file()
