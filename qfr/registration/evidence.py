"""A logged run read back for verification: every artifact against its digest, every table against the log."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
from mlflow.entities import Run

from qfr.canonical import sha256_hex
from qfr.errors import LogError, TrackingError
from qfr.journal import read_log
from qfr.records import Episode, FaultKind, Policy
from qfr.registration.findings import Finding, RanCell, note, problem
from qfr.registration.store import LoggedRun
from qfr.scoring import SCORER_VERSION, score
from qfr.shards import whole_id
from qfr.tracking.reading.artifacts import list_artifacts, read_artifact
from qfr.tracking.reading.cells import LoggedCell, bare_cell
from qfr.tracking.reading.measures import measure
from qfr.tracking.reading.tables import (
    LOOP_FILE,
    call_table,
    episode_table,
    loop_table,
    read_parquet,
    score_table,
)
from qfr.tracking.store import Store
from qfr.tracking.writing.writer import LOG_FILE, MANIFEST_FILE


@dataclass
class _Reading:
    """One run while it is read."""

    store: Store
    cell: LoggedCell
    findings: list[Finding]

    @property
    def subject(self) -> str:
        return f"{self.cell.facts.name}, run {self.cell.run_id}"

    def wrong(self, text: str) -> None:
        self.findings.append(problem(self.subject, text))

    def fetch(self, name: str) -> bytes | None:
        """An artifact; None when it is not there, which is a finding."""
        try:
            return read_artifact(self.store, self.cell.run_id, self.cell.artifact_uri, name)
        except TrackingError as error:
            self.wrong(error.what)
            return None


def read_evidence(logged: LoggedRun, clean: Sequence[Episode] | None) -> tuple[RanCell, tuple[Episode, ...]]:
    """Read a run and compute again what was stored of it.

    Parameters
    ----------
    logged : LoggedRun
        A cell's run.
    clean : sequence of Episode or None
        The clean pass of a fault cell, for the metrics that need it; None when there is none.

    Returns
    -------
    tuple of (RanCell, episodes)
        What was found, and the episodes of the log (empty when it cannot be read).

    Raises
    ------
    TrackingError
        The run's own params and tags are damaged.
    """
    store, run = logged.store, logged.run
    cell = bare_cell(store, run, pd.DataFrame())
    reading = _Reading(store, cell, [])
    if not cell.complete:
        return _ran(reading, run, "", (), {}), ()
    manifest = _manifest(reading, run.data.tags.get("qfr.manifest_sha256", ""))
    files = {name: reading.fetch(name) for name in (LOG_FILE, "prompt.md", "suite.json", "timing.jsonl")}
    _compare_manifest(reading, manifest, files)
    digest, episodes = _log(reading, files[LOG_FILE])
    if episodes:
        _tables(reading, episodes)
        screen = episodes if cell.facts.fault == FaultKind.none else clean
        if screen is not None:
            _metrics(reading, episodes, screen)
    return _ran(reading, run, digest, episodes, files), episodes


def _ran(
    reading: _Reading, run: Run, digest: str, episodes: tuple[Episode, ...], files: dict[str, bytes | None]
) -> RanCell:
    cell = reading.cell
    passed: dict[str, tuple[str, ...]] = {}
    successes: dict[str, int] = {}
    for policy in Policy:
        good = [e for e in episodes if score(e, policy, ep_min_calls=max(cell.ep_min_calls, 1)).success]
        successes[policy] = len(good)
        passed[policy] = tuple(e.task for e in good) if cell.facts.fault == FaultKind.none else ()
    return RanCell(
        run_id=cell.run_id,
        facts=cell.facts,
        complete=cell.complete,
        status=cell.status,
        started=run.info.start_time,
        first_ended=_first_ended(files.get("timing.jsonl")),
        log_sha256=digest,
        clean_log_sha256=cell.clean_log_sha256,
        prompt=files.get("prompt.md"),
        suite=files.get("suite.json"),
        played=tuple((e.task, -1 if e.trace is None else e.trace.site) for e in episodes),
        certified=passed,
        successes=successes,
        findings=tuple(reading.findings),
    )


def _manifest(reading: _Reading, digest: str) -> dict[str, str]:
    if not digest:
        reading.findings.append(note(reading.subject, "was logged before artifacts had a manifest"))
        return {}
    data = reading.fetch(MANIFEST_FILE)
    if data is None:
        return {}
    if sha256_hex(data) != digest:
        reading.wrong(f"{MANIFEST_FILE} was changed")
        return {}
    return {str(name): str(value) for name, value in json.loads(data).items()}


def _compare_manifest(reading: _Reading, manifest: dict[str, str], files: dict[str, bytes | None]) -> None:
    for name, digest in manifest.items():
        data = files[name] if name in files else reading.fetch(name)
        if data is not None and sha256_hex(data) != digest:
            reading.wrong(
                f"{name} was changed: its SHA-256 is {sha256_hex(data)[:12]}…, logged was {digest[:12]}…"
            )


def _log(reading: _Reading, data: bytes | None) -> tuple[str, tuple[Episode, ...]]:
    if data is None:
        return "", ()
    cell = reading.cell
    try:
        log = gzip.decompress(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        reading.wrong(f"{LOG_FILE} is no whole gzip file ({error})")
        return "", ()
    digest = sha256_hex(log)
    if digest != cell.log_sha256:
        reading.wrong(
            f"{LOG_FILE}: the log's SHA-256 is {digest[:12]}…, the run says {cell.log_sha256[:12]}…"
        )
    try:
        episodes = read_log(log, where=LOG_FILE)
    except LogError as error:
        reading.wrong(f"{error.where}: {error.what}")
        return digest, ()
    strangers = [episode for episode in episodes if episode.cell_id != whole_id(cell.facts.cell_id)]
    if strangers:
        reading.wrong(f"{LOG_FILE} holds {len(strangers)} episodes of another cell ({strangers[0].cell_id})")
    return digest, episodes


def _tables(reading: _Reading, episodes: Sequence[Episode]) -> None:
    """The stored tables and scores against those that follow from the log."""
    calls = max(reading.cell.ep_min_calls, 1)
    wanted = {"episodes.parquet": episode_table(episodes), "calls.parquet": call_table(episodes)}
    for policy in Policy:
        name = f"scores/{policy}@{SCORER_VERSION}.parquet"
        wanted[name] = score_table(episodes, policy, ep_min_calls=calls)
    held = list_artifacts(reading.store, reading.cell.run_id, "scores")
    if LOOP_FILE in held:
        wanted[LOOP_FILE] = loop_table(episodes)
    for name, table in wanted.items():
        data = reading.fetch(name)
        if data is None:
            continue
        try:
            stored = read_parquet(data, where=name, log_sha256=reading.cell.log_sha256)
        except LogError as error:
            reading.wrong(f"{error.where}: {error.what}")
            continue
        if not stored.equals(table):
            reading.wrong(f"{name} is not what the log gives: {_table_difference(stored, table)}")
    own = set(wanted)
    later = [name for name in held if name not in own]
    if later:
        reading.findings.append(note(reading.subject, f"rescored later: {', '.join(sorted(later))}"))


def _table_difference(stored: pa.Table, table: pa.Table) -> str:
    """The first value that differs, or what else does."""
    if stored.schema.names != table.schema.names:
        return "other columns"
    if stored.num_rows != table.num_rows:
        return f"{stored.num_rows} rows, {table.num_rows} expected"
    for row, (mine, wanted) in enumerate(zip(stored.to_pylist(), table.to_pylist(), strict=True)):
        for name in table.schema.names:
            if mine[name] != wanted[name]:
                return (
                    f"row {row} ({wanted['task']}), {name}: {mine[name]!r} stored, {wanted[name]!r} expected"
                )
    return "other types"


def _metrics(reading: _Reading, episodes: Sequence[Episode], clean: Sequence[Episode]) -> None:
    calls = max(reading.cell.ep_min_calls, 1)
    wanted = measure(episodes, clean, work=None, ep_min_calls=calls).scalars
    for name, value in wanted.items():
        stored = reading.cell.metrics.get(name)
        if stored is None or not math.isclose(stored, value, rel_tol=1e-9, abs_tol=1e-12):
            reading.wrong(f"metric {name} is {stored}, the log gives {value}")


def _first_ended(timing: bytes | None) -> float | None:
    ended = []
    for line in (timing or b"").splitlines():
        try:
            ended.append(float(json.loads(line)["ended"]))
        except (ValueError, KeyError, TypeError):
            # A torn line: times are not forced to disk, the log is.
            continue
    return min(ended, default=None)
