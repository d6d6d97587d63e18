"""`qfr verify`: everything as frozen passes; one changed byte anywhere is found and named."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from qfr.cli import main
from qfr.registration.findings import Verdict
from qfr.registration.store import find_registrations
from qfr.registration.verify import Verification, verify
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store
from tests.registering import GRID, command, make_checkout, register

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> tuple[Path, str]:
    """A checkout with an exploratory grid, its registration, and the registered grid; and the id."""
    folder = make_checkout(tmp_path_factory.mktemp("verified") / "checkout")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert command(*GRID) == 0
        name = register()
        assert command(*GRID, f"registration.use={name}") == 0
    return folder, name


@pytest.fixture
def name(swept: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The registration's id; the working folder is the checkout."""
    monkeypatch.chdir(swept[0])
    return swept[1]


def verified(use: str, root: Path = Path("mlruns")) -> Verification:
    return verify(use, None, root, other_code=False)


def problems(found: Verification) -> list[str]:
    return [f"{one.subject}: {one.text}" for one in found.problems]


def registered_run(name: str, fault: str) -> tuple[str, Path]:
    """Run id and artifact folder of the registered Q8_0 run of a kind."""
    store = open_store(None, Path("mlruns"), "qfr")
    (cell,) = (
        cell
        for cell in read_cells(store, registration=name).cells
        if cell.facts.fault == fault and cell.facts.quant == "Q8_0"
    )
    return cell.run_id, store.root / "artifacts" / "qfr" / cell.run_id / "artifacts"


@contextmanager
def changed(path: Path, at: int) -> Iterator[None]:
    """One bit of one byte flipped."""
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        yield
    finally:
        path.write_bytes(data)


def test_everything_as_frozen_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", name]) == 0
    out = capsys.readouterr().out
    assert "Verified: everything is as frozen." in out
    assert "PROBLEM" not in out
    assert "all 4 planned cells are there, each once" in out
    assert out.count("equal") >= 4
    assert main(["verify", f"registrations/{name}.json"]) == 0


def test_the_registered_cells_are_set_beside_the_earlier_ones(name: str) -> None:
    found = verified(name)
    assert [(one.name, one.earlier, one.equal) for one in found.against] == [
        ("scripted q8_0 P0 none", 1, True),
        ("scripted q8_0 P0 et", 1, True),
        ("scripted q4_k_m P0 none", 1, True),
        ("scripted q4_k_m P0 et", 1, True),
    ]
    assert found.against[3].text == "successes: 12 tolerant, 12 strict, of 15"


ARTIFACTS = (
    ("et", "episodes.jsonl.gz"),
    ("none", "episodes.jsonl.gz"),
    ("et", "scores/tolerant@1.parquet"),
    ("none", "scores/strict@1.parquet"),
    ("et", "episodes.parquet"),
    ("et", "calls.parquet"),
    ("et", "prompt.md"),
    ("none", "suite.json"),
    ("et", "config.yaml"),
    ("et", "timing.jsonl"),
    ("et", "manifest.json"),
)


@pytest.mark.parametrize(("fault", "file"), ARTIFACTS)
def test_one_changed_byte_of_an_artifact_is_found_and_named(name: str, fault: str, file: str) -> None:
    run_id, folder = registered_run(name, fault)
    path = folder / file
    at = random.Random(file + fault).randrange(path.stat().st_size)
    with changed(path, at):
        told = problems(verified(name))
    assert any(run_id in one and file in one for one in told), (at, told)


def test_one_changed_byte_of_the_record_is_found_and_named(name: str) -> None:
    path = Path("registrations") / f"{name}.json"
    inside = path.read_bytes().index(b"Q8_0 recovers")
    with changed(path, inside):
        told = problems(verified(name))
        assert any(f"{name}.json: changed" in one for one in told)
        assert any("differs from the unchanged copy in hypotheses" in one for one in told)
        # The same by its file.
        assert problems(verified(str(path)))
    for at in random.Random(5).sample(range(path.stat().st_size), 3):
        with changed(path, at):
            assert any(f"{name}.json" in one for one in problems(verified(name))), at
    page = path.with_suffix(".md")
    with changed(page, page.stat().st_size // 2):
        assert any(f"{name}.md is not the record's rendering" in one for one in problems(verified(name)))
    assert not problems(verified(name))


def test_one_changed_byte_of_the_stores_copy_is_found_and_named(name: str) -> None:
    _, (kept,) = find_registrations(None, Path("mlruns"))
    folder = Path(kept.artifact_uri.removeprefix("file://"))
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        with changed(path, path.stat().st_size // 3):
            told = problems(verified(name))
        word = "store, run" if path.name == "record.json" else path.name
        assert any(kept.run_id in one and word in one for one in told), (path, told)


def test_a_changed_prompt_of_today_is_found_and_named(name: str) -> None:
    with changed(Path("prompts") / "P0.md", 17):
        assert problems(verified(name)) == ["prompt P0.md: not the frozen bytes, from byte 17 on"]


def test_prompts_that_are_made_from_a_file_are_as_frozen(name: str) -> None:
    made = ("prompt=P2", "prompt.rewrites=[],[numbering]", "prompt.retry_allowed=true,false", "suite=orders6")
    grid = [one for one in GRID if not one.startswith(("prompt", "suite"))] + list(made)
    earlier = set(Path("registrations").glob("*.json"))
    assert (
        command(*grid, "mode=register", "registration.title='Made texts'", "registration.allow_dirty=true")
        == 0
    )
    (path,) = set(Path("registrations").glob("*.json")) - earlier
    try:
        assert command(*grid, f"registration.use={path.stem}") == 0
        assert not problems(verified(path.stem))
        with changed(Path("prompts") / "P2.md", 17):
            told = problems(verified(path.stem))
        assert "prompt P2_numbering.0: made from P2.md, which is not the frozen file" in told
        assert "prompt P2.md: not the frozen bytes, from byte 17 on" in told
    finally:
        path.unlink()
        path.with_suffix(".md").unlink()


def test_other_code_is_a_problem_unless_it_is_allowed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from qfr.registration import source_code as code
    from qfr.registration import verify as verifying

    other = {**code.code_files(), "qfr/scoring.py": "0" * 64}
    monkeypatch.setattr(verifying, "code_files", lambda: other)
    (told,) = problems(verified(name))
    assert told.startswith("code: the code that verifies is not the frozen one")
    assert "qfr/scoring.py" in told
    assert not problems(verify(name, None, Path("mlruns"), other_code=True))


# --- the store itself -----------------------------------------------------------------------------------


@pytest.fixture
def copy(swept: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """The id and a copy of the store's database, which brings the artifacts along when it is opened."""
    monkeypatch.chdir(swept[0])
    (tmp_path / "copy").mkdir()
    with (
        closing(sqlite3.connect("mlruns/mlflow.db")) as source,
        closing(sqlite3.connect(tmp_path / "copy" / "mlflow.db")) as target,
    ):
        source.backup(target)
    return swept[1], tmp_path / "copy"


def edit(root: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


Copy = tuple[str, Path]


def test_a_metric_that_the_log_does_not_give(copy: Copy) -> None:
    name, root = copy
    run_id, _ = registered_run(name, "et")
    where = "WHERE run_uuid = ? AND key = 'tolerant.own'"
    for table in ("latest_metrics", "metrics"):
        edit(root, f"UPDATE {table} SET value = value - 0.01 {where}", run_id)
    (told,) = problems(verified(name, root))
    assert run_id in told
    assert "metric tolerant.own is" in told


def test_a_run_from_before_the_registration(copy: Copy) -> None:
    name, root = copy
    run_id, _ = registered_run(name, "et")
    edit(root, "UPDATE runs SET start_time = start_time - 86400000 WHERE run_uuid = ?", run_id)
    (told,) = problems(verified(name, root))
    assert f"run {run_id}: was started before the registration" in told


def test_an_exploratory_run_in_the_place_of_a_registered_one(copy: Copy) -> None:
    name, root = copy
    store = open_store(None, root, "qfr")
    cells = [
        cell for cell in read_cells(store, registration="").cells if cell.facts.name == "scripted q8_0 P0 et"
    ]
    store.client.set_tag(cells[0].run_id, "qfr.registration", name)
    told = problems(verified(name, root))
    assert any("scripted q8_0 P0 et: there 2 times under this registration" in one for one in told)
    run_id, _ = registered_run(name, "et")
    store.client.delete_run(run_id)
    told = problems(verified(name, root))
    assert any("was started before the registration" in one for one in told)
    assert any("played before the registration" in one or "before the registration" in one for one in told)


def test_a_missing_cell_and_a_stranger(copy: Copy) -> None:
    name, root = copy
    run_id, _ = registered_run(name, "et")
    store = open_store(None, root, "qfr")
    store.client.set_tag(run_id, "qfr.design_id", "d-0123456789abcdef")
    told = problems(verified(name, root))
    assert any(one == "scripted q8_0 P0 et: missing: never run under this registration" for one in told)
    assert any("carries the registration and is no planned cell" in one for one in told)
    # Its artifacts are looked at all the same; the copy has its own.
    with changed(root / "artifacts" / "qfr" / run_id / "artifacts" / "calls.parquet", 100):
        assert any(
            f"run {run_id}: calls.parquet was changed" in one for one in problems(verified(name, root))
        )


def test_other_code_of_a_run(copy: Copy) -> None:
    name, root = copy
    run_id, _ = registered_run(name, "none")
    store = open_store(None, root, "qfr")
    store.client.set_tag(run_id, "qfr.code_sha256", "ab" * 32)
    (told,) = problems(verified(name, root))
    assert "played by other code (digest abababababab" in told
    store.client.set_tag(run_id, "qfr.deviation", '{"reason":"a mended typo","differences":[]}')
    found = verified(name, root)
    assert not found.problems
    notes = [one.text for one in found.findings if one.verdict is Verdict.declared]
    assert any("(declared: a mended typo)" in one for one in notes)


def test_a_store_that_never_saw_the_registration(
    name: str, tmp_path: Path, make_store: Callable[..., Store]
) -> None:
    make_store("empty")
    told = problems(verified(name, tmp_path / "empty"))
    assert told == ["record: the store holds no run of this registration"]
    elsewhere = tmp_path / "renamed.json"
    data = (Path("registrations") / f"{name}.json").read_bytes()
    elsewhere.write_bytes(data)
    assert not problems(verified(str(elsewhere)))
    elsewhere.write_bytes(data.replace(b"Does Q4 recover?", b"Does Q9 recover?"))
    assert "record: the store holds no run of this registration" in problems(verified(str(elsewhere)))


def test_too_few_digits_name_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", name[:6]]) == 2
    assert "give r- and at least 6 digits" in capsys.readouterr().err


@pytest.mark.parametrize("use", ["r-ffffffffffff", "nowhere.json"])
def test_an_unknown_registration_is_the_users_error(
    name: str, use: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", use]) == 2
    assert f"there is no registration {use}" in capsys.readouterr().err


def test_a_verification_with_declared_deviations_says_so(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    name, root = copy
    run_id, _ = registered_run(name, "none")
    store = open_store(None, root, "qfr")
    store.client.set_tag(run_id, "qfr.code_sha256", "ab" * 32)
    store.client.set_tag(run_id, "qfr.deviation", '{"reason":"a mended typo","differences":[]}')
    assert main(["verify", name, "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "Verified, with 1 declared deviation: all else is as frozen." in out
    assert "everything is as frozen" not in out
    assert "all 4 planned cells are there, each once" in out
