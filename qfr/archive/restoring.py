"""An archive into a store: the same cells, params, tags, artifacts and logs, each once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.archive.container import Archive
from qfr.archive.layout import ARTIFACTS, REGISTRATION, REPORT, RUN_FILE, RUNS, SWEEP, check_log
from qfr.archive.records import read_run
from qfr.canonical import quote
from qfr.errors import LogError, TrackingError
from qfr.facts import CellFacts
from qfr.registration.record import digest_of, id_of
from qfr.registration.record_reader import read_record
from qfr.registration.store import log_registration
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.facts_io import load_facts
from qfr.tracking.store import Store, hold_lock
from qfr.tracking.writing.sweep import PLAN_FILE, find_sweep
from qfr.tracking.writing.sweep_runs import RUNS_FILE
from qfr.tracking.writing.transfer import PARENT_TAG, HeldRun, PlainRun, held, held_sweep, put_run
from qfr.tracking.writing.writer import LOG_FILE

_FOLDER = re.compile(r"(c-[0-9a-f]{16}(?:@[0-9]+of[0-9]+)?)(?:\.([0-9]{1,6}))?")
_TAG = re.compile(
    r"qfr\.(?:config\.[a-z_.]{1,60}|\w{1,60})|mlflow\.source\.(name|git\.commit)|" + re.escape(PARENT_TAG)
)


@dataclass(frozen=True)
class Restored:
    """What a store gained."""

    sweep: str
    made: int
    # Runs that were put in.
    present: int
    # Runs that were there already, with the same logs.
    registrations: tuple[str, ...]
    # Ids.


@dataclass(frozen=True)
class _Run:
    folder: str
    plain: PlainRun
    facts: CellFacts

    @property
    def complete(self) -> bool:
        return self.plain.tags.get("qfr.complete") == "true"

    @property
    def log_sha256(self) -> str:
        return self.plain.tags.get("qfr.log_sha256", "")


def restore(archive: Archive, store: Store) -> Restored:
    """Put a sweep into a store; a second time changes nothing, an interrupted time is taken up again.

    Raises
    ------
    LogError
        A run of the archive contradicts itself, or the store holds other episodes for one of its cells.
        Nothing was put in then.
    TrackingError
        The store does not take it.
    """
    runs = [_run(archive, folder) for folder in _folders(archive)]
    with hold_lock(store.root, f"sweep-{archive.sweep}"):
        wanted = _lacking(runs, store, archive)
        registrations = _registrations(archive, store)
        parent = _sweep(archive, store)
        for one, into in wanted:
            _put(archive, store, one, into, parent)
    return Restored(archive.sweep, len(wanted), len(runs) - len(wanted), registrations)


def _folders(archive: Archive) -> list[str]:
    """The runs' folders, oldest run of a cell first."""
    numbers: dict[str, tuple[str, int]] = {}
    for name in archive.below(RUNS):
        folder = name.partition("/")[0]
        found = _FOLDER.fullmatch(folder)
        if found is None:
            raise LogError(
                f"member {RUNS}/{quote(name)} belongs to no run", where=str(archive.path), hint=_AGAIN
            )
        numbers[folder] = (found[1], int(found[2] or 1))
    return sorted(numbers, key=numbers.__getitem__)


def _run(archive: Archive, folder: str) -> _Run:
    """A run of the archive, checked against itself."""
    name = f"{RUNS}/{folder}/{RUN_FILE}"
    where = f"{archive.path}, {name}"
    plain = read_run(archive.read(name), where=where)

    def fetch(artifact: str) -> bytes:
        return archive.read(f"{RUNS}/{folder}/{ARTIFACTS}/{artifact}")

    try:
        facts = load_facts(plain.params, plain.tags, where=where, fetch=fetch)
    except TrackingError as error:
        raise LogError(error.what, where=where, hint=_AGAIN) from None
    one = _Run(folder, plain, facts)
    _check_tags(plain, where)
    if folder.partition(".")[0] != facts.cell_id or plain.tags.get("qfr.kind") != "cell":
        raise LogError(f"it is a run of cell {quote(facts.cell_id)}, not of its folder's", where=where)
    if one.complete:
        log = f"{RUNS}/{folder}/{ARTIFACTS}/{LOG_FILE}"
        check_log(archive.read(log), one.log_sha256, where=f"{archive.path}, {log}")
    return one


def _check_tags(run: PlainRun, where: str) -> None:
    """Only our own tags come in: others steer what MLflow's pages show."""
    for name in run.tags:
        if not _TAG.fullmatch(name):
            raise LogError(f"it has a tag {quote(name)} that no run of qfr has", where=where)


_AGAIN = "it was made by another program or version; export it again"


def _lacking(runs: Sequence[_Run], store: Store, archive: Archive) -> list[tuple[_Run, str | None]]:
    """The runs that the store lacks, each with the half-made run to go on with.

    Runs are the same when cell, registration and log are, wherever and whenever they were made.
    """
    cells: dict[tuple[str, str], list[_Run]] = defaultdict(list)
    for one in runs:
        cells[one.facts.cell_id, one.facts.registration].append(one)
    wanted: list[tuple[_Run, str | None]] = []
    for (cell_id, registration), mine in cells.items():
        there = held(store, cell_id, registration)
        half = {run.importing: run.run_id for run in there if run.importing}
        logs = [run.log_sha256 for run in there if run.complete]
        known = {one.log_sha256 for one in mine if one.complete}
        if known and (other := set(logs) - known):
            raise _contradiction(mine[0], other.pop(), there, archive.path)
        for one in mine:
            if one.complete and one.log_sha256 in logs:
                logs.remove(one.log_sha256)
            elif one.complete or all(run.importing for run in there):
                wanted.append((one, half.get(_origin(archive, one.folder))))
    return wanted


def _contradiction(one: _Run, log: str, there: Sequence[HeldRun], path: Path) -> LogError:
    run = next(run.run_id for run in there if run.log_sha256 == log)
    return LogError(
        f"{one.facts.name} (cell {one.facts.cell_id}) has log {one.log_sha256[:12]} in the archive, but the"
        f" store's run {run} of that cell has {log[:12]}: it is not deterministic, or one was changed",
        where=str(path),
        hint="nothing was imported; import it into a store of its own: --root FOLDER",
    )


def _registrations(archive: Archive, store: Store) -> tuple[str, ...]:
    found: list[str] = []
    for name, member in archive.below(REGISTRATION).items():
        if not name.endswith(".json"):
            continue
        data = archive.read(member)
        record = read_record(data, where=f"{archive.path}, {member}")
        id_ = id_of(digest_of(data))
        if name != f"{id_}.json":
            raise LogError(
                f"it is registration {id_}, not the one of its name", where=f"{archive.path}, {member}"
            )
        shown = archive.read(member.removesuffix(".json") + ".md").decode("utf-8", "replace")
        log_registration(store.tracking_uri, store.root, data, record, shown, origin="carried")
        found.append(id_)
    return tuple(found)


def _sweep(archive: Archive, store: Store) -> str:
    """The sweep's own run in the store; its MLflow id."""
    where = f"{archive.path}, {SWEEP}/{RUN_FILE}"
    plain = read_run(archive.read(f"{SWEEP}/{RUN_FILE}"), where=where)
    plan = archive.read(f"{SWEEP}/{PLAN_FILE}")
    if plain.tags.get("qfr.sweep") != archive.sweep or plain.tags.get("qfr.kind") != "sweep":
        raise LogError(f"it is not the run of sweep {archive.sweep}", where=where, hint=_AGAIN)
    _check_tags(plain, where)
    there = held_sweep(store, archive.sweep)
    if there is not None and not there.importing:
        run = find_sweep(store, archive.sweep)
        if read_artifact(store, there.run_id, run.info.artifact_uri, PLAN_FILE) != plan:
            raise LogError(
                f"the store has a sweep {archive.sweep} with another plan",
                where=where,
                hint="import it into a store of its own: --root FOLDER",
            )
        return there.run_id
    files = {name: archive.read(member) for name, member in _reports(archive).items()} | {PLAN_FILE: plan}
    if (listed := archive.below(SWEEP).get(RUNS_FILE)) is not None:
        files[RUNS_FILE] = archive.read(listed)
    return put_run(store, plain, files, origin=archive.sweep, into=there.run_id if there else None)


def _reports(archive: Archive) -> Mapping[str, str]:
    return {f"{REPORT}/{name}": member for name, member in archive.below(REPORT).items()}


def _put(archive: Archive, store: Store, one: _Run, into: str | None, parent: str) -> None:
    inside = archive.below(f"{RUNS}/{one.folder}/{ARTIFACTS}")
    files = {name: archive.read(member) for name, member in inside.items()}
    tags = dict(one.plain.tags)
    if tags.pop(PARENT_TAG, "") == SWEEP:
        tags[PARENT_TAG] = parent
    facts = one.facts if one.complete else None
    put_run(
        store,
        replace(one.plain, tags=tags),
        files,
        origin=_origin(archive, one.folder),
        facts=facts,
        into=into,
    )


def _origin(archive: Archive, folder: str) -> str:
    return f"{archive.sweep}/{folder}"
