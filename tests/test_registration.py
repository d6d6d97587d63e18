"""Registering, running what was registered, deviating from it, as a user meets them; scripted engine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_models import TinyModel, write_model

from qfr.errors import RegistrationError
from qfr.front.models import compose_cell
from qfr.journal import Journal
from qfr.play import job
from qfr.registration.differences import Deviation, Difference, deviation_text, read_deviation
from qfr.registration.record import Label, Relation
from qfr.registration.run_under import find_record
from qfr.registration.store import find_registrations, read_document
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import search
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.writer import start_cell
from tests.registering import GRID, TITLE, command, git, make_checkout, record_of, register
from tests.tracked import CLEAN, log_pair

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture
def checkout(
    tmp_path: Path, migrated_database: Path, monkeypatch: pytest.MonkeyPatch, make_store: Callable[..., Store]
) -> Iterator[Path]:
    """The working folder: a checkout with an empty store."""
    folder = make_checkout(tmp_path / "checkout")
    make_store("checkout/mlruns")
    monkeypatch.chdir(folder)
    return folder


def runs(experiment: str = "qfr") -> list[tuple[str, str, str]]:
    """(name, registration, deviation) of every cell run, oldest first."""
    store = open_store(None, Path("mlruns"), experiment)
    found = list(search(store, "tags.`qfr.kind` = 'cell'"))[::-1]
    return [
        (r.info.run_name, r.data.tags.get("qfr.registration", ""), r.data.tags.get("qfr.deviation", ""))
        for r in found
    ]


def test_a_grid_is_frozen_before_it_runs(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = register()
    said = capsys.readouterr().out
    data = (checkout / "registrations" / f"{name}.json").read_bytes()
    assert name == f"r-{hashlib.sha256(data).hexdigest()[:16]}"
    assert f"python run.py experiment=smoke prompt=P0 registration.use={name}" in said
    record = record_of(name)
    assert record.label is Label.replication
    assert [cell.name for cell in record.asked] == ["scripted q8_0 P0 et", "scripted q4_k_m P0 et"]
    assert len(record.cells) == 4
    assert record.hypotheses is not None
    assert record.hypotheses.text == (checkout / "plan.md").read_text()
    assert record.prompts[0].text.encode() == (checkout / "prompts" / "P0.md").read_bytes()
    assert hashlib.sha256(record.suites[0].content.encode()).hexdigest() == record.suites[0].sha256
    assert record.code.commit == git(checkout, "rev-parse", "HEAD").strip()
    assert not record.code.dirty
    assert "qfr/scoring.py" in record.code.files
    (contrast,) = record.analysis.contrasts
    assert (contrast.a, contrast.b, contrast.quant, contrast.prompt) == ("Q8_0", "Q4_K_M", None, "P0")
    assert record.analysis.policies == ("tolerant", "strict")
    assert runs() == []
    # In the store: a write-once digest, and the very bytes.
    store, (kept,) = find_registrations(None, Path("mlruns"))
    assert store is not None
    assert kept.digest == hashlib.sha256(data).hexdigest()
    assert read_document(store, kept) == data
    # For people.
    page = (checkout / "registrations" / f"{name}.md").read_text(encoding="utf-8")
    assert "# Does Q4 recover?" in page
    assert record.hypotheses.text in page
    # Registered again it is the same grid at another moment.
    assert record_of(register("registration.allow_dirty=true")).cells == record.cells


def test_code_that_is_not_committed_is_refused_or_frozen_with_its_difference(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = checkout / "prompts" / "P4.md"
    prompt.write_text(prompt.read_text() + "Be brief.\n", encoding="utf-8")
    assert command(*GRID, "mode=register", TITLE) == 2
    told = capsys.readouterr().err
    assert "prompts/P4.md" in told
    assert "registration.allow_dirty=true" in told
    assert not (checkout / "registrations").exists()
    record = record_of(register("registration.allow_dirty=true"))
    assert record.code.dirty
    # The diff alone turns the commit into what registered.
    git(checkout, "stash", "--quiet")
    patch = subprocess.run(["git", "apply"], input=record.code.diff, text=True, cwd=checkout, check=False)
    assert patch.returncode == 0
    assert prompt.read_text().endswith("Be brief.\n")


def test_a_registered_grid_runs_anew_and_resumes_as_itself(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*GRID) == 0
    name = register()
    record = record_of(name)
    assert record.label is Label.extension
    assert {run.relation for run in record.existing} == {Relation.grid}
    assert len(record.existing) == 4
    # Committing the registration makes another commit, and no other code.
    git(checkout, "add", "registrations")
    git(checkout, "commit", "--quiet", "--message", "registered")
    capsys.readouterr()
    assert command(*GRID, f"registration.use={name[:10]}") == 0
    said = capsys.readouterr()
    assert f"registration {name} (extension" in said.err
    assert "finished before" not in said.err
    assert [registration for _, registration, _ in runs()] == [""] * 4 + [name] * 4
    assert {deviation for *_, deviation in runs()} == {""}
    assert command(*GRID, f"registration.use={name}") == 0
    assert "4 cells finished before" in capsys.readouterr().err
    assert command(*GRID, f"registration.use={name}", "mode=plan") == 0
    assert capsys.readouterr().out.count("FINISHED") == 2
    # The report of a registered sweep reads the registered runs alone.
    store = open_store(None, Path("mlruns"), "qfr")
    sweeps = list(search(store, "tags.`qfr.kind` = 'sweep'"))
    assert [run.data.tags.get("qfr.registration", "") for run in sweeps] == [name, name, ""]
    reading = read_cells(store, sweep=sweeps[0].data.tags["qfr.sweep"])
    assert {cell.facts.registration for cell in reading.cells} == {name}
    assert len(reading.cells) == 4
    assert reading.missing == reading.alarms == reading.notes == ()


def test_an_exploratory_journal_is_no_part_of_a_registered_run(checkout: Path) -> None:
    """Episodes that were played before the registration never enter a run under it."""
    assert command(*GRID, "quant=q8_0") == 0
    store = open_store(None, Path("mlruns"), "qfr")
    clean = next(cell for cell in read_cells(store).cells if cell.facts.fault == "none")
    log = store.root / "artifacts" / "qfr" / clean.run_id / "artifacts" / "episodes.jsonl.gz"
    from gzip import decompress

    journal = Journal(store.root / "journal" / clean.facts.cell_id)
    journal.path.write_bytes(decompress(log.read_bytes()))
    name = register("quant=q8_0")
    assert command(*GRID, "quant=q8_0", f"registration.use={name}") == 0
    # It was neither read nor removed.
    assert journal.path.exists()
    again = read_cells(store, registration=name)
    timing = store.root / "artifacts" / "qfr"
    for cell in again.cells:
        lines = (timing / cell.run_id / "artifacts" / "timing.jsonl").read_text().splitlines()
        assert len(lines) == len(cell.episodes)


def test_what_is_not_frozen_does_not_run_unless_a_reason_is_given(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = register()
    use = f"registration.use={name}"
    for change, told in (
        ("suite.step_budget=11", "suite.step_budget: found 11, frozen 12"),
        ("fault.message=Sorry", "fault.message: found Sorry, frozen The service"),
        ("trial=1", "trial: found 1, frozen 0"),
        ("prompt=P1", "prompt_sha256: found"),
        ("quant=q8_0,q2_k", "quant.preset: Q2_K is outside the frozen grid (Q4_K_M, Q8_0)"),
        ("report.method=montecarlo", "the analysis: report.method: found montecarlo, frozen exact"),
        ("scorer=strict", "scorer.policy: found strict, frozen tolerant"),
    ):
        assert command(*GRID, use, change) == 2, change
        err = capsys.readouterr().err
        assert told in err
        assert "registration.deviation=" in err
    assert runs() == []
    # A part of the grid is no deviation.
    assert command(*GRID, use, "quant=q8_0") == 0
    assert command(*GRID, use, "suite.step_budget=11", "registration.deviation='twelve, was too long'") == 0
    assert (
        "DEVIATES (twelve, was too long): suite.step_budget: found 11, frozen 12" in capsys.readouterr().err
    )
    deviations = [read_deviation(text) for *_, text in runs()]
    assert deviations[:2] == [None, None]
    for one in deviations[2:]:
        assert one is not None
        assert one.reason == "twelve, was too long"
        assert [str(key) for key in one.differences] == ["suite.step_budget: found 11, frozen 12"]
    store = open_store(None, Path("mlruns"), "qfr")
    tags = next(iter(search(store, "tags.`qfr.kind` = 'sweep'"))).data.tags
    assert json.loads(tags["qfr.deviation"])["reason"] == "twelve, was too long"


def test_each_job_checks_its_cells_before_a_model_loads(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = register()
    monkeypatch.setattr(job._SHELF, "take", lambda *_: pytest.fail("a model would be loaded"))
    cell = compose_cell(
        "model=scripted", "suite=orders6", "quant=q8_0", "prompt=P0", "trial=1", f"registration.use={name}"
    )
    with pytest.raises(RegistrationError, match=r"P0 et: trial: found 1, frozen 0"):
        job.run_job(cell)


def test_deleted_runs_and_other_experiments_count_as_seen(checkout: Path) -> None:
    assert command(*GRID, "quant=q8_0", "tracking.experiment=elsewhere") == 0
    store = open_store(None, Path("mlruns"), "elsewhere")
    for run in search(store, "tags.`qfr.kind` = 'cell'"):
        store.client.delete_run(run.info.run_id)
    record = record_of(register())
    assert record.label is Label.extension
    assert {(run.experiment, run.deleted) for run in record.existing} == {("elsewhere", True)}


def test_a_sibling_counts_as_seen_and_other_tasks_do_not(checkout: Path) -> None:
    assert command(*GRID, "quant=q2_k", "suite.seed=7") == 0
    assert record_of(register()).label is Label.replication
    assert command(*GRID, "quant=q2_k") == 0
    record = record_of(register("registration.allow_dirty=true"))
    assert record.label is Label.extension
    assert {(run.relation, run.name) for run in record.existing} == {
        (Relation.sibling, "scripted q2_k P0 none"),
        (Relation.sibling, "scripted q2_k P0 et"),
    }


def test_a_registration_travels_as_a_file(
    checkout: Path, tmp_path: Path, make_store: Callable[..., Store], capsys: pytest.CaptureFixture[str]
) -> None:
    """To a machine with another store: the run carries it there; a changed file is refused."""
    name = register()
    make_store("other")
    root = f"tracking.root={tmp_path / 'other'}"
    path = checkout / "registrations" / f"{name}.json"
    assert command(*GRID, "quant=q8_0", f"registration.use='{path}'", root) == 0
    store, (kept,) = find_registrations(None, tmp_path / "other")
    assert store is not None
    assert kept.id == name
    # Without the file the store's copy serves.
    data = path.read_bytes()
    path.unlink()
    assert find_record(name[:9], None, Path("mlruns")).data == data
    path.write_bytes(data.replace(b"Does Q4 recover?", b"Does Q8 recover?"))
    capsys.readouterr()
    assert command(*GRID, f"registration.use={name}") == 2
    assert "it was changed after registering: its digest is r-" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hypotheses", "told"),
    [
        ("pla.md", "did you mean 'plan.md'"),
        ("empty.md", "is empty"),
        ("latin.md", "not UTF-8 (byte 1)"),
        ("prompts", "cannot be read"),
    ],
)
def test_hypotheses_that_cannot_be_frozen(
    checkout: Path, hypotheses: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "empty.md").write_text("\n")
    (checkout / "latin.md").write_bytes(b"H\xe4")
    assert command(*GRID, "mode=register", TITLE, f"registration.hypotheses={hypotheses}") == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


def test_a_model_file_that_was_exchanged_does_not_run(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The design knows the file's name; the registration its digest."""
    model = write_model(checkout / "mine.gguf", TinyModel(context=4096))
    grid = ["model=local", "model.path=mine.gguf", "quant=f16", "fault=et", "suite=orders6"]
    assert command(*grid, "mode=register", TITLE) == 0
    (path,) = Path("registrations").glob("*.json")
    (file,) = record_of(path.stem).files
    assert (file.filename, file.present, file.pinned) == ("mine.gguf", True, False)
    assert file.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    data = model.read_bytes()
    model.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    capsys.readouterr()
    assert command(*grid, f"registration.use={path.stem}") == 2
    told = capsys.readouterr().err
    assert "mine f16 P0 et: model file (SHA-256): found " in told
    assert "Traceback" not in told
    assert runs() == []


def test_a_run_that_began_with_a_deviation_keeps_it(store: Store) -> None:
    """Its first episodes deviate, whatever the process that finishes it finds."""
    text = deviation_text(Deviation("a hurry", (Difference("trial", "1", "0"),)))
    facts = dataclasses.replace(CLEAN, registration="r-0123456789abcdef", code_sha256="new")
    first = start_cell(store, dataclasses.replace(facts, deviation=text, code_sha256="old"), None)
    # Neither an exploratory run nor one under another registration goes on in it.
    for other in ("", "r-fedcba9876543210"):
        assert not start_cell(store, dataclasses.replace(facts, registration=other), None).resumed
    again = start_cell(store, facts, None)
    assert again.resumed
    assert again.run_id == first.run_id
    tags = store.client.get_run(first.run_id).data.tags
    assert (tags["qfr.deviation"], tags["qfr.code_sha256"]) == (text, "old")


def test_a_run_from_before_registrations_reads_as_exploratory(store: Store) -> None:
    log_pair(store)
    for run in search(store, "tags.`qfr.kind` = 'cell'"):
        for tag in ("qfr.registration", "qfr.deviation", "qfr.code_sha256"):
            store.client.delete_tag(run.info.run_id, tag)
    cells = read_cells(store).cells
    assert [(cell.facts.registration, cell.facts.deviation) for cell in cells] == [("", "")] * 2
    assert len(read_cells(store, registration="").cells) == 2
    assert read_cells(store, registration="r-1").cells == ()
