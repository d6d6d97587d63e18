"""A sweep out of a store into the files of an archive."""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from qfr.archive.layout import (
    ARTIFACTS,
    ENVIRONMENT,
    REGISTRATION,
    RUN_FILE,
    RUNS,
    SWEEP,
    check_log,
)
from qfr.archive.records import run_bytes
from qfr.archive.redaction import Redaction
from qfr.canonical import canonical, sha256_hex
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.registration.store import MARKDOWN_FILE, find_registrations, read_document
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.facts_io import load_facts, store_facts
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep import PLAN_FILE, read_plan
from qfr.tracking.writing.sweep_runs import RUNS_FILE
from qfr.tracking.writing.transfer import (
    IMPORTED_TAG,
    IMPORTING_TAG,
    PARENT_TAG,
    TakenRun,
    take_cells,
    take_sweep,
)
from qfr.tracking.writing.writer import LOG_FILE, MANIFEST_FILE

# Tags of a cell that are no facts of it and mean the same everywhere.
_TAGS = (
    "qfr.complete", "qfr.log_sha256", "qfr.log_bytes", "qfr.ep_min_calls", "qfr.clean_log_sha256",
    "mlflow.source.name", "mlflow.source.git.commit",
)  # fmt: skip
# Tags of a sweep's run that mean something on its own machine only.
_LOCAL = (
    "qfr.pid", "qfr.pid_started", "qfr.host", "qfr.machine", "qfr.lock_domain", "qfr.heartbeat",
    IMPORTED_TAG, IMPORTING_TAG,
)  # fmt: skip
_MESSAGES = ("failure.txt", "engine_log_tail.txt")
# What a run without a list of its artifacts holds.
_EARLIER = (
    LOG_FILE, "episodes.parquet", "calls.parquet", "prompt.md", "suite.json", "config.yaml", "timing.jsonl",
)  # fmt: skip


@dataclass(frozen=True)
class Collected:
    """What was put into the folder."""

    sweep: str
    facts: tuple[CellFacts, ...]
    # Of every run, redacted; oldest run first.
    finished: int
    unfinished: int
    # Runs.
    last_end: int
    # When the newest of them ended, in milliseconds since 1970.
    notes: tuple[str, ...]
    # What is not in the archive, one sentence each.


@dataclass(frozen=True)
class _Cell:
    run: TakenRun
    facts: CellFacts

    @property
    def complete(self) -> bool:
        return self.run.plain.tags.get("qfr.complete") == "true"


def collect(store: Store, sweep: str, folder: Path) -> Collected:
    """Put a sweep into an empty folder: its plan, all runs of its cells, its registrations, the environment.

    Every finished run is checked against its own digests on the way.

    Raises
    ------
    TrackingError
        There is no such sweep, or an artifact is missing.
    LogError
        An artifact is not the one that was logged.
    """
    parent = take_sweep(store, sweep)
    under = parent.plain.tags.get("qfr.registration")
    designs = {cell.design_id for cell in read_plan(store, sweep)}
    cells = [_Cell(run, _facts(run)) for run in take_cells(store, designs, under)]
    redaction = Redaction.of(
        (cell.facts.host for cell in cells),
        [*_home(), Path.cwd(), store.root, store.root.resolve(), Path(sys.prefix)],
    )
    for name, cell in zip(_folders(cells), cells, strict=True):
        _write(folder / RUNS / name, _run_files(cell, redaction, parent.run_id))
    _write(folder / SWEEP, _sweep_files(parent, redaction))
    used = {under or "", *(cell.facts.registration for cell in cells)} - {""}
    notes = _registrations(store, used, folder / REGISTRATION, redaction)
    _write(folder / ENVIRONMENT, _environment())
    done = sum(cell.complete for cell in cells)
    times = [cell.run.plain.ended or cell.run.plain.started for cell in cells]
    return Collected(
        sweep=sweep,
        facts=tuple(redaction.facts(cell.facts) for cell in cells),
        finished=done,
        unfinished=len(cells) - done,
        last_end=max(times, default=parent.plain.started),
        notes=tuple(notes),
    )


def _facts(run: TakenRun) -> CellFacts:
    return load_facts(run.plain.params, run.plain.tags, where=run.where, fetch=run.read)


def _folders(cells: Sequence[_Cell]) -> list[str]:
    """A folder for each run: its cell's id, with a number behind it from the cell's second run on."""
    seen: Counter[str] = Counter()
    names: list[str] = []
    for cell in cells:
        seen[cell.facts.cell_id] += 1
        count = seen[cell.facts.cell_id]
        names.append(cell.facts.cell_id + (f".{count}" if count > 1 else ""))
    return names


def _run_files(cell: _Cell, redaction: Redaction, parent: str) -> dict[str, bytes]:
    """`run.json` and the artifacts of one run."""
    run = cell.run
    stored = store_facts(redaction.facts(cell.facts))
    tags = {**{name: value for name, value in run.plain.tags.items() if name in _TAGS}, **stored.tags}
    if failure := run.plain.tags.get("qfr.failure"):
        tags["qfr.failure"] = redaction.text(failure)
    if run.plain.tags.get(PARENT_TAG) == parent:
        tags[PARENT_TAG] = SWEEP
    files = dict(stored.files)
    for name in _MESSAGES:
        if name in run.artifacts:
            files[name] = redaction.text(run.read(name).decode("utf-8", "replace")).encode("utf-8")
    if cell.complete:
        listed = _manifest(run)
        files |= {name: _redacted(name, data, redaction) for name, data in _logged(run, listed).items()}
        manifest = {name: sha256_hex(files[name]) for name in listed}
        files[MANIFEST_FILE] = canonical(manifest).encode("ascii")
        tags["qfr.manifest_sha256"] = sha256_hex(files[MANIFEST_FILE])
    plain = replace(run.plain, params=stored.params, tags=tags)
    return {RUN_FILE: run_bytes(plain), **{f"{ARTIFACTS}/{name}": data for name, data in files.items()}}


def _manifest(run: TakenRun) -> Mapping[str, str]:
    """Digests of the artifacts that were logged with a finished run, by name."""
    if MANIFEST_FILE not in run.artifacts:
        # Of an earlier version, which listed none.
        return {name: sha256_hex(run.read(name)) for name in run.artifacts if name in _EARLIER}
    data = run.read(MANIFEST_FILE)
    if sha256_hex(data) != run.plain.tags.get("qfr.manifest_sha256"):
        raise _changed(run, MANIFEST_FILE)
    return {str(name): str(digest) for name, digest in json.loads(data).items()}


def _logged(run: TakenRun, listed: Mapping[str, str]) -> dict[str, bytes]:
    """The artifacts of a finished run, each the one that was logged, and the scores that came later."""
    later = [name for name in run.artifacts if name.startswith("scores/") and name not in listed]
    files = {name: run.read(name) for name in (*listed, *later)}
    for name, digest in listed.items():
        if sha256_hex(files[name]) != digest:
            raise _changed(run, name)
    if LOG_FILE not in files:
        raise LogError(
            f"{LOG_FILE} is missing",
            where=run.where,
            hint="deleted from under the run? Then delete the run in MLflow too and run the cell again",
        )
    check_log(files[LOG_FILE], run.plain.tags.get("qfr.log_sha256", ""), where=f"{LOG_FILE} of {run.where}")
    return files


def _changed(run: TakenRun, name: str) -> LogError:
    return LogError(
        f"{name} is not the one that was logged",
        where=run.where,
        hint="it was changed after the run; restore it, or delete the run in MLflow and run the cell again",
    )


def _redacted(name: str, data: bytes, redaction: Redaction) -> bytes:
    """Logs, tables, prompt and suite stay as they are: they say nothing of the machine."""
    if name == "config.yaml":
        return redaction.config_yaml(data)
    return redaction.timing(data) if name == "timing.jsonl" else data


def _sweep_files(sweep: TakenRun, redaction: Redaction) -> dict[str, bytes]:
    """The sweep's own run: its plan, the list of its runs, its metrics; its report is made anew."""
    tags = {
        name: redaction.text(value)
        for name, value in sweep.plain.tags.items()
        if name == "mlflow.source.name" or (name.startswith("qfr.") and name not in _LOCAL)
    }
    # Each report logs its contrasts again: the last values count, and the times of reporting say nothing.
    last = {
        one.key: replace(one, time=sweep.plain.ended or sweep.plain.started) for one in sweep.plain.points
    }
    plain = replace(
        sweep.plain,
        name=redaction.text(sweep.plain.name),
        params={},
        tags=tags,
        points=tuple(last.values()),
    )
    files = {name: sweep.read(name) for name in (PLAN_FILE, RUNS_FILE) if name in sweep.artifacts}
    return {RUN_FILE: run_bytes(plain), **files}


def _registrations(store: Store, wanted: set[str], folder: Path, redaction: Redaction) -> list[str]:
    """Write the documents, byte for byte, and their renderings; says what a reader should know of them."""
    holder, known = find_registrations(store.tracking_uri, store.root) if wanted else (None, ())
    files: dict[str, bytes] = {}
    notes: list[str] = []
    for one in known:
        if holder is None or one.id not in wanted:
            continue
        files[f"{one.id}.json"] = read_document(holder, one)
        files[f"{one.id}.md"] = read_artifact(holder, one.run_id, one.artifact_uri, MARKDOWN_FILE)
        if redaction.names_machine(files[f"{one.id}.json"].decode("utf-8", "replace")):
            notes.append(
                f"registration {one.id} names this machine; its bytes are frozen and go in as they are"
            )
    _write(folder, files)
    lacking = sorted(one for one in wanted if f"{one}.json" not in files)
    return notes + [f"registration {one} is not in this store, and so not in the archive" for one in lacking]


def _home() -> list[Path]:
    try:
        return [Path.home()]
    except RuntimeError:
        # A user without an entry and without $HOME, as in some containers.
        return []


def _environment() -> dict[str, bytes]:
    """Python, system and every installed package of the machine that exports; no name of it."""
    packages = {one.name: one.version for one in metadata.distributions() if one.name}
    listed = "".join(f"{name}=={packages[name]}\n" for name in sorted(packages, key=str.casefold))
    machine = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
    }
    return {"packages.txt": listed.encode(), "machine.json": canonical(machine).encode("ascii") + b"\n"}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
