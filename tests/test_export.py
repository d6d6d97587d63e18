"""Archives of sweeps: what goes in, what must not, what comes out elsewhere, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import posixpath
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfr.archive.collecting import collect
from qfr.archive.container import Archive, pack, read_archive
from qfr.archive.layout import check_log
from qfr.archive.records import MANIFEST, plain_name, read_run, run_bytes
from qfr.archive.redaction import Redaction
from qfr.archive.restoring import restore
from qfr.canonical import canonical, sha256_hex
from qfr.cli import main
from qfr.errors import LogError, TrackingError
from qfr.facts import CellFacts
from qfr.journal import log_bytes
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing import transfer
from qfr.tracking.writing.batches import log_files
from qfr.tracking.writing.sweep import PlannedCell, close_sweep, open_sweep
from qfr.tracking.writing.transfer import PlainRun, Point
from qfr.tracking.writing.writer import fail_cell, start_cell
from tests.builders import build_cell_episodes, make_facts
from tests.registering import GRID, command, make_checkout, register
from tests.tracked import BUILT, CLEAN, FAULT, SHAPES, cell, log_cell

SWEEP = "s-20260101-000000-abcdef"
# What a run may know of its machine and an archive must not.
SECRETS = ("labbox-17", "/home/alice", "alice", "s3cret-word", "db.example.org")
CONFIG = {
    "model": {"path": "/home/alice/models/Llama 3.gguf", "name": "llama"},
    "tracking": {"uri": "postgresql://alice:s3cret-word@db.example.org/mlflow", "root": "/home/alice/mlruns"},
    "report": {"out": "../../alice/out", "vary": "quant"},
    "registration": {"deviation": "ran on labbox-17 below '/home/alice/my files/x'"},
}


def known(facts: CellFacts) -> CellFacts:
    """The facts as a machine with a name and folders gives them."""
    return dataclasses.replace(facts, host="labbox-17", config=canonical(CONFIG), sweep=SWEEP)


def log_sweep(store: Store, *, failed: bool = True) -> None:
    """A sweep of a clean cell, its ET cell, and a cell that failed."""
    clean, fault, bad = (known(one) for one in (CLEAN, FAULT, make_facts("llama", "Q4_K_M", "P0", "none")))
    planned = [PlannedCell(one.design_id, one.name) for one in (clean, fault, bad)]
    parent = open_sweep(store, SWEEP, name=f"grid {SWEEP}", tags={"host": "labbox-17"}, planned=planned)
    for facts, episodes in ((clean, BUILT.clean), (fault, BUILT.faulted)):
        finished = cell(facts, episodes)
        timing = b'{"ended":1.5,"host":"labbox-17","pid":4711,"seconds":0.5,"task":"base-08"}\n'
        log_cell(store, dataclasses.replace(finished, config_yaml=json.dumps(CONFIG), timing=timing), parent)
    if failed:
        handle = start_cell(store, bad, parent)
        fail_cell(
            store, handle, "cannot read /home/alice/models/x.gguf on labbox-17", "at /home/alice/a.cpp:7"
        )
    close_sweep(store, parent, ok=not failed)


def archive_of(store: Store, folder: Path) -> Path:
    """The sweep of a store as a file."""
    inside = folder / "collected"
    inside.mkdir(parents=True)
    collect(store, SWEEP, inside)
    pack(inside, folder / "out.tar.zst", sweep=SWEEP, qfr_version="0.1.0")
    return folder / "out.tar.zst"


def unpacked(path: Path, folder: Path) -> Archive:
    folder.mkdir()
    return read_archive(path, folder)


@pytest.fixture
def original(make_store: Callable[..., Store]) -> Store:
    store = make_store("original")
    log_sweep(store)
    return store


@pytest.fixture
def archive(original: Store, tmp_path: Path) -> Archive:
    return unpacked(archive_of(original, tmp_path / "a"), tmp_path / "in")


def every_run(store: Store) -> list[tuple[str, ...]]:
    """What a store holds, apart from MLflow's own ids."""
    reading = read_cells(store, sweep=SWEEP)
    return sorted(
        (c.facts.cell_id, c.status, c.log_sha256, c.failure, str(c.started), str(c.seconds), str(c.metrics))
        for c in (*reading.cells, *reading.unfinished)
    )


# --- a real sweep, from the command line -----------------------------------------------------------


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> tuple[Path, str, str]:
    """A checkout with a registered grid that ran; its sweep and its registration."""
    folder = make_checkout(tmp_path_factory.mktemp("smoke") / "checkout")
    with contextlib.chdir(folder):
        with_database(folder, migrated_database)
        name = register()
        assert command(*GRID, f"registration.use={name}") == 0
    return folder, next((folder / "mlruns" / "reports").iterdir()).name, name


def with_database(folder: Path, migrated: Path) -> None:
    """An empty store in a folder; migrating one takes seconds, copying it milliseconds."""
    (folder / "mlruns").mkdir(parents=True)
    shutil.copy(migrated, folder / "mlruns" / "mlflow.db")


def qfr(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    """A command as a user types it in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["qfr", *words])
    assert main(list(words)) == 0


def undated(page: str, host: str) -> list[str]:
    """A report's page without its line of version and date, and without the host."""
    return [line.replace(host, "machine-1") for line in page.splitlines() if "qfr 0." not in line]


def test_an_imported_sweep_gives_the_same_report(
    smoke: tuple[Path, str, str],
    tmp_path: Path,
    migrated_database: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, sweep, registration = smoke
    qfr(monkeypatch, folder, "export", sweep, "out.tar.zst")
    assert "4 finished runs" in capsys.readouterr().out
    there = tmp_path / "elsewhere"
    with_database(there, migrated_database)
    path = (folder / "out.tar.zst").rename(there / "out.tar.zst")
    qfr(monkeypatch, there, "import", "out.tar.zst", "--no-log")
    assert "4 runs, every digest as listed" in capsys.readouterr().out
    qfr(monkeypatch, there, "import", "out.tar.zst")
    said = capsys.readouterr().out
    assert f"qfr report --sweep {sweep}" in said
    assert registration in said
    qfr(monkeypatch, there, "report", "--sweep", sweep)
    before, after = (where / "mlruns" / "reports" / sweep for where in (folder, there))
    inside = unpacked(path, tmp_path / "in")
    written = [file for file in after.iterdir() if file.name != "runs.csv"]
    assert {file.name for file in written} == set(inside.below("report"))
    for file in written:
        data = file.read_bytes()
        if file.name not in ("report.html", "provenance.csv"):
            assert data == (before / file.name).read_bytes(), file.name
        if file.name != "report.html":
            assert inside.read(f"report/{file.name}") == data, file.name
    host = read_cells(open_store(None, folder / "mlruns", "qfr")).cells[0].facts.host
    pages = [undated((where / "report.html").read_text("utf-8"), host) for where in (before, after)]
    assert pages[0] == pages[1]
    assert len(pages[0]) > 1000
    # What was registered stands elsewhere too, and all of it can be derived again.
    qfr(monkeypatch, there, "verify", registration)
    # An export of the import is the first file again.
    qfr(monkeypatch, there, "export", sweep, "again.tar.zst")
    assert (there / "again.tar.zst").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "s-none", "x.tar.zst", "--root", "{root}"], "no sweep 's-none'"),
        (["export", SWEEP, "x.zip", "--root", "{root}"], "end it in .tar.zst"),
        (["export", SWEEP, "there.tar.zst", "--root", "{root}"], "--force"),
        (["import", "nowhere.tar.zst", "--root", "{root}"], "nowhere.tar.zst"),
        (["import", "there.tar.zst", "results.json", "--root", "{root}"], "one after the other"),
        (["import", "there.tar.zst", "--root", "{root}"], "no readable archive"),
    ],
)
def test_mistakes_are_one_message(
    original: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.tar.zst").write_bytes(b"no archive at all")
    assert main([word.format(root=original.root) for word in words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


# --- what goes in ------------------------------------------------------------------------------------


def test_nothing_of_the_machine_goes_in(archive: Archive, tmp_path: Path) -> None:
    for member in archive.manifest.members:
        data = archive.read(member.name)
        if member.name.endswith(".gz"):
            data = gzip.decompress(data)
        for secret in (*SECRETS, str(tmp_path), "4711"):
            assert secret.encode() not in data, (member.name, secret)
    fault = json.loads(archive.read(f"runs/{FAULT.cell_id}/run.json"))
    assert fault["tags"]["qfr.host"] == "machine-1"
    assert json.loads(fault["tags"]["qfr.config"])["model"]["path"] == "Llama 3.gguf"
    assert archive.read(f"runs/{FAULT.cell_id}/artifacts/timing.jsonl") == (
        b'{"ended":1.5,"seconds":0.5,"task":"base-08"}\n'
    )


def test_logs_tables_prompt_and_suite_go_in_as_they_are(original: Store, archive: Archive) -> None:
    for one in read_cells(original, sweep=SWEEP).cells:
        folder = original.root / "artifacts" / "qfr" / one.run_id / "artifacts"
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        inside = archive.below(f"runs/{one.facts.cell_id}/artifacts")
        assert set(inside) == names
        for name in names - {"config.yaml", "timing.jsonl", "manifest.json"}:
            assert archive.read(inside[name]) == (folder / name).read_bytes(), name


@pytest.mark.parametrize(
    "name", ["episodes.jsonl.gz", "episodes.parquet", "scores/strict@1.parquet", "prompt.md"]
)
def test_an_artifact_that_was_changed_is_not_exported(original: Store, tmp_path: Path, name: str) -> None:
    run = next(one.run_id for one in read_cells(original, sweep=SWEEP).cells)
    path = original.root / "artifacts" / "qfr" / run / "artifacts" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(LogError, match=f"{name} is not the one that was logged"):
        archive_of(original, tmp_path / "a")


def test_a_registration_that_is_not_there_is_told(make_store: Callable[..., Store], tmp_path: Path) -> None:
    store, frozen = make_store("original"), "r-0123456789abcdef"
    facts = dataclasses.replace(known(CLEAN), registration=frozen)
    planned = [PlannedCell(facts.design_id, facts.name)]
    parent = open_sweep(store, SWEEP, name="grid", tags={"registration": frozen}, planned=planned)
    log_cell(store, cell(facts, BUILT.clean), parent)
    found = collect(store, SWEEP, tmp_path / "in")
    assert found.notes == (f"registration {frozen} is not in this store, and so not in the archive",)
    assert (found.finished, found.unfinished) == (1, 0)


def test_machines_keep_their_differences() -> None:
    redaction = Redaction.of(["box", "node-a", "box", "node-b"], [Path("/srv/lab")])
    assert dict(redaction.machines) == {"box": "machine-1", "node-a": "machine-2", "node-b": "machine-3"}
    assert (
        redaction.text("node-a: no /srv/lab/x/y.gguf; see node-ab") == "machine-2: no …/y.gguf; see node-ab"
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("open '/home/bob smith/a b.gguf' failed", "open '…/a b.gguf' failed"),
        ("C:\\Users\\bob\\m.gguf is cut", "…/m.gguf is cut"),
        ("at http://bob:pw@host:5000/api: refused", "at (address): refused"),
        ("sqlite:////srv/x/mlflow.db is locked", "sqlite:…/mlflow.db is locked"),
        ("mail bob@example.org", "mail (name)"),
        ("ratio 3/4, and/or, tokens/s, 2026-01-01", "ratio 3/4, and/or, tokens/s, 2026-01-01"),
        ("GGML_ASSERT(n > 0) failed", "GGML_ASSERT(n > 0) failed"),
    ],
)
def test_messages_lose_places_and_nothing_else(text: str, left: str) -> None:
    assert Redaction.of([], []).text(text) == left


# --- what comes out ----------------------------------------------------------------------------------


def test_a_restored_store_holds_the_same_runs(
    original: Store, archive: Archive, make_store: Callable[..., Store]
) -> None:
    target = make_store("target")
    done = restore(archive, target)
    assert (done.made, done.present) == (3, 0)
    restored = every_run(target)
    assert [row[:3] + row[4:] for row in restored] == [row[:3] + row[4:] for row in every_run(original)]
    old, new = (read_cells(store, sweep=SWEEP) for store in (original, target))
    assert new.missing == old.missing
    for one, other in zip(old.cells, new.cells, strict=True):
        assert log_bytes(read_episodes(original, one)) == log_bytes(read_episodes(target, other))
        assert one.episodes.equals(other.episodes)
        same = dataclasses.replace(one.facts, host="machine-1", config=other.facts.config)
        assert same == other.facts
    runs = {run.info.run_name: run for run in target.client.search_runs([target.experiment_id])}
    assert runs[FAULT.name].data.tags["mlflow.parentRunId"] == runs[f"grid {SWEEP}"].info.run_id
    assert series(target) == series(original)
    assert len(series(target)) == len(BUILT.faulted)


def series(store: Store) -> list[tuple[int, float, int]]:
    """One metric of the fault cell, episode by episode."""
    runs = store.client.search_runs([store.experiment_id], f"tags.`qfr.cell_id` = '{FAULT.cell_id}'")
    found = store.client.get_metric_history(runs[0].info.run_id, "episode.tolerant_success")
    return sorted((one.step, one.value, one.timestamp) for one in found)


def test_a_second_import_changes_nothing(archive: Archive, make_store: Callable[..., Store]) -> None:
    target = make_store("target")
    restore(archive, target)
    before = every_run(target)
    done = restore(archive, target)
    assert (done.made, done.present) == (0, 3)
    assert every_run(target) == before
    assert len(target.client.search_runs([target.experiment_id])) == 4


def test_importing_at_home_changes_nothing(original: Store, archive: Archive) -> None:
    before = every_run(original)
    assert restore(archive, original).made == 0
    assert every_run(original) == before


@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_interrupted_import_is_taken_up(
    archive: Archive, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Stopped while files are sent; what is half there counts for nothing, and nothing comes in twice."""
    target, calls = make_store("target"), iter(range(100))

    def stop(store: Store, run_id: str, files: Mapping[str, bytes]) -> None:
        if next(calls) == step:
            raise KeyboardInterrupt
        log_files(store, run_id, files)

    monkeypatch.setattr(transfer, "log_files", stop)
    with pytest.raises(KeyboardInterrupt):
        restore(archive, target)
    assert len(read_cells(target, sweep=SWEEP).cells) == min(step - 1, 2)
    monkeypatch.setattr(transfer, "log_files", log_files)
    restore(archive, target)
    assert len(target.client.search_runs([target.experiment_id])) == 4
    fresh = make_store("fresh")
    restore(archive, fresh)
    assert every_run(target) == every_run(fresh)


def test_a_cell_with_other_episodes_is_refused(archive: Archive, make_store: Callable[..., Store]) -> None:
    target = make_store("target")
    other = build_cell_episodes([1, None, 0, 0], SHAPES)
    log_cell(target, cell(known(CLEAN), other.clean, other.clean))
    log_cell(target, cell(known(FAULT), other.faulted, other.clean))
    before = len(target.client.search_runs([target.experiment_id]))
    with pytest.raises(LogError, match=f"(?s){FAULT.name}.*nothing was imported"):
        restore(archive, target)
    assert len(target.client.search_runs([target.experiment_id])) == before


def test_runs_that_disagree_both_come_through(make_store: Callable[..., Store], tmp_path: Path) -> None:
    """A determinism alarm at home is one elsewhere."""
    store, target = make_store("original"), make_store("target")
    log_sweep(store, failed=False)
    other = build_cell_episodes([1, None, 3, 1], SHAPES)
    assert other.clean == BUILT.clean
    log_cell(store, cell(known(FAULT), other.faulted))
    archive = unpacked(archive_of(store, tmp_path / "a"), tmp_path / "in")
    assert f"runs/{FAULT.cell_id}.2/run.json" in {one.name for one in archive.manifest.members}
    restore(archive, target)
    restore(archive, target)
    here, there = (read_cells(one, sweep=SWEEP).alarms for one in (store, target))
    assert [[log for _, log in alarm.runs] for alarm in here] == [
        [log for _, log in one.runs] for one in there
    ]
    assert len(there[0].runs) == 2


def test_a_run_as_json_and_back() -> None:
    run = PlainRun("a b", "FINISHED", 5, None, {"p": "\ud800"}, {"t": "1"}, (Point("x", 0.1 + 0.2, 7, 3),))
    assert read_run(run_bytes(run), where="here") == run


# --- what is refused ---------------------------------------------------------------------------------


Entry = tuple[str, bytes]


def hostile(path: Path, entries: list[Entry], listed: list[Entry] | None = None, **over: object) -> Path:
    """An archive of these members; its manifest lists them (or others), with some of its keys replaced."""
    members = [
        {"name": name, "sha256": sha256_hex(data), "bytes": len(data)}
        for name, data in (entries if listed is None else listed)
    ]
    manifest = {
        "format": "qfr archive", "version": 1, "sweep": SWEEP, "qfr_version": "0", "members": members, **over,
    }  # fmt: skip
    return packed(path, [(tarfile.TarInfo(MANIFEST), canonical(manifest).encode()), *map(_entry, entries)])


def _entry(entry: Entry) -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(entry[0]), entry[1]


def packed(
    path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], kind: int = tarfile.USTAR_FORMAT
) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as tar:
        for info, data in entries:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(buffer.getvalue())
    return path


def linked(path: Path, kind: bytes) -> Path:
    info = tarfile.TarInfo("runs/x")
    info.type, info.linkname = kind, "/etc/passwd"
    manifest = {"format": "qfr archive", "version": 1, "sweep": SWEEP, "qfr_version": "0", "members": []}
    return packed(path, [(tarfile.TarInfo(MANIFEST), canonical(manifest).encode()), (info, b"")])


HUGE = [{"name": "runs/x", "sha256": "0" * 64, "bytes": 3 << 30}]
MANY = [{"name": f"runs/x{n}", "sha256": "0" * 64, "bytes": 1 << 30} for n in range(100)]
NEGATIVE = [{"name": "a", "sha256": "0" * 64, "bytes": -1}]
HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (lambda p: packed(p, []), "no archive of qfr"),
    "other tar": (lambda p: packed(p, [_entry(("a", b"x"))]), "no archive of qfr"),
    "version": (lambda p: hostile(p, [], version=2), "version '2', but this qfr reads 1"),
    "format": (lambda p: hostile(p, [], format="zip"), "no archive of qfr"),
    "sweep": (lambda p: hostile(p, [], sweep="x' OR '1"), "no id of a sweep"),
    "no list": (lambda p: hostile(p, [], members="x"), "Manifest.members is not a list"),
    "climbs": (lambda p: hostile(p, [("../evil", b"x")]), "'../evil' is no name"),
    "climbs unlisted": (lambda p: hostile(p, [("a/../../evil", b"x")], []), "'a/../../evil'.*leads out"),
    "absolute": (lambda p: hostile(p, [("/etc/evil", b"x")], []), "'/etc/evil'.*leads out"),
    "hidden": (lambda p: hostile(p, [(".ssh/key", b"x")], []), "'.ssh/key'.*leads out"),
    "symbolic link": (lambda p: linked(p, tarfile.SYMTYPE), "'runs/x': it is a link"),
    "hard link": (lambda p: linked(p, tarfile.LNKTYPE), "'runs/x': it is a link"),
    "device": (lambda p: linked(p, tarfile.CHRTYPE), "'runs/x': it is a link, folder, device"),
    "long name": (
        lambda p: packed(p, [(tarfile.TarInfo("x" * 300), b"")], tarfile.GNU_FORMAT), "extension"
    ),
    "huge": (lambda p: hostile(p, [], members=HUGE), "'runs/x': 3,221,225,472 bytes are more than"),
    "huge in all": (lambda p: hostile(p, [], members=MANY), "come to 107,374,182,400 bytes"),
    "larger": (lambda p: hostile(p, [("a", b"xy")], [("a", b"x")]), "'a': it has 2 bytes, the manifest says"),
    "other": (lambda p: hostile(p, [("a", b"x")], [("a", b"y")]), "'a': its content is not the one"),
    "missing": (lambda p: hostile(p, [], [("a", b"y")]), "'a': it is missing"),
    "unlisted": (lambda p: hostile(p, [("a", b"x")], []), "'a': it stands in the archive twice or not in"),
    "twice": (lambda p: hostile(p, [("a", b"x")] * 2, [("a", b"x")]), "'a': it stands in the archive twice"),
    "listed twice": (lambda p: hostile(p, [("a", b"x")] * 2), "lists a member twice"),
    "negative": (lambda p: hostile(p, [], members=NEGATIVE), "size or digest of 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("make", list(HOSTILE))
def test_hostile_archives_are_refused(make: str, tmp_path: Path) -> None:
    build, said = HOSTILE[make]
    path = build(tmp_path / "x.tar.zst")
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(LogError, match=said):
        read_archive(path, folder)
    assert {one.name for one in tmp_path.iterdir()} == {"x.tar.zst", "in"}


def test_a_cut_or_changed_archive_is_refused(archive: Archive, tmp_path: Path) -> None:
    data = archive.path.read_bytes()
    for number, at in enumerate(range(0, len(data), max(1, len(data) // 40))):
        for name, damaged in (
            ("cut", data[:at]),
            ("bit", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]),
        ):
            path = tmp_path / f"{name}{number}.tar.zst"
            path.write_bytes(damaged)
            try:
                found = unpacked(path, tmp_path / f"{name}{number}")
            except LogError:
                continue
            # A bit of the compressed frame that carries no content.
            assert (name, found.manifest) == ("bit", archive.manifest)


def rewritten(archive: Archive, tmp_path: Path, name: str, change: Callable[[bytes], bytes]) -> Archive:
    """The archive with one member changed and every digest put right again."""
    entries = [(one.name, archive.read(one.name)) for one in archive.manifest.members]
    entries = [(one, change(data) if one == name else data) for one, data in entries]
    return unpacked(hostile(tmp_path / "changed.tar.zst", entries), tmp_path / "changed")


RUN = f"runs/{FAULT.cell_id}/run.json"
CHANGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "log": (
        f"runs/{FAULT.cell_id}/artifacts/episodes.jsonl.gz",
        lambda data: gzip.compress(gzip.decompress(data) + b"{}\n", mtime=0),
        "but its run says",
    ),
    "log cut": (
        f"runs/{FAULT.cell_id}/artifacts/episodes.jsonl.gz",
        lambda data: data[:-9],
        "not a whole gzip",
    ),
    "cell": (
        RUN,
        lambda data: data.replace(FAULT.cell_id.encode(), b"c-0000000000000000"),
        "not of its folder's",
    ),
    "tag": (RUN, lambda data: data.replace(b'"qfr.gate"', b'"mlflow.note.content"'), "qfr.gate|mlflow.note"),
    "no JSON": (RUN, lambda data: data[:-5], "not JSON"),
    "infinite": (RUN, lambda data: re.sub(rb'"value":[^,}]+', b'"value":1e999', data, count=1), "no finite"),
    "status": (RUN, lambda data: data.replace(b'"FINISHED"', b'"DONE"'), "no status of a run"),
    "sweep": (
        "sweep/run.json",
        lambda data: data.replace(SWEEP.encode(), b"s-other"),
        "not the run of sweep",
    ),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_an_archive_that_contradicts_itself_is_refused(
    archive: Archive, tmp_path: Path, make_store: Callable[..., Store], change: str
) -> None:
    """Every digest is right, and yet it is not what qfr exports."""
    name, how, said = CHANGES[change]
    target = make_store("target")
    with pytest.raises(LogError, match=said):
        restore(rewritten(archive, tmp_path, name, how), target)
    assert not [
        run for run in target.client.search_runs([target.experiment_id]) if "qfr.cell_id" in run.data.tags
    ]


def test_a_bomb_in_a_log_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qfr.archive.layout.LARGEST_LOG", 1 << 20)
    bomb = gzip.compress(bytes(50 << 20))
    assert len(bomb) < 1 << 17
    with pytest.raises(LogError, match="more than 1,048,576 bytes"):
        check_log(bomb, sha256_hex(bytes(50 << 20)), where="here")


@given(st.text(max_size=40))
def test_plain_names_stay_inside(name: str) -> None:
    if plain_name(name):
        assert posixpath.normpath(f"/in/{name}") == f"/in/{name}"
        assert not any(part.startswith(".") for part in name.split("/"))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_run_or_a_clear_error(data: bytes) -> None:
    with pytest.raises(LogError, match="here"):
        read_run(data, where="here")


def test_an_archive_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="cannot be written"):
        pack(tmp_path / "in", tmp_path / "file" / "x.tar.zst", sweep=SWEEP, qfr_version="0")
    assert not list(tmp_path.rglob(".*.new"))
