"""One run of a cell, loaded: facts from params and tags, episodes and scores from the derived tables."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd
import pyarrow as pa
from mlflow.entities import Run

from qfr.canonical import canonical, sha256_hex
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.journal import read_log, sort_key
from qfr.records import Episode, Policy
from qfr.tracking.reading.artifacts import list_artifacts, read_artifact
from qfr.tracking.reading.facts_io import load_facts
from qfr.tracking.reading.search import FinishedRef, is_complete
from qfr.tracking.reading.tables import LOOP_FILE, read_parquet, to_frame
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.writer import LOG_FILE

# Columns of a score that depend on the policy; the others are the same under both.
POLICY_COLUMNS = ("success", "right_answer", "reason", "reported_after")

# Canonical JSON: within a text a quote is escaped, so the first such spelling is the episode's own key.
_TASK = re.compile(rb'"task":("(?:[^"\\\\]|\\\\.)*")')

_KEYS = ["task", "fault", "site", "trial"]


@dataclass(frozen=True, eq=False)
class LoggedCell:
    """One run of a cell as MLflow holds it."""

    facts: CellFacts
    run_id: str
    status: str
    # MLflow's: RUNNING, FINISHED, FAILED, KILLED.
    complete: bool
    # Everything of the cell is there.
    started: int
    # Milliseconds since 1970.
    seconds: float | None
    # Between the first start and the end; None while it runs.
    failure: str
    # Why it FAILED; empty otherwise.
    log_sha256: str
    # Empty while incomplete.
    clean_log_sha256: str
    # Digest of the clean run's log; empty for fault=none.
    ep_min_calls: int
    # EP: calls of the dead tool that the logged scores ask for.
    artifact_uri: str
    metrics: Mapping[str, float] = field(repr=False)
    # Latest values, as MLflow shows them.
    episodes: pd.DataFrame = field(repr=False)
    # One row per episode: the columns of `tables.EPISODES`, then delivered, reported, invented, requeried,
    # expression, strict_throughout, then `tolerant_` and `strict_` with each of POLICY_COLUMNS.
    # No rows while incomplete.
    clean: LoggedCell | None
    # The clean run that the fault episodes belong to; None for fault=none and for incomplete cells.
    parts: tuple[LoggedCell, ...] = ()
    # The shards that it was joined from, each a run of its own; empty for a cell that was run whole.


def load_cell(store: Store, run: Run, version: str) -> LoggedCell:
    """A complete run with its tables. Errors as `reader.read_cells`."""
    digest = run.data.tags.get("qfr.log_sha256", "")
    run_id, uri = run.info.run_id, run.info.artifact_uri
    table = _read_table(store, run_id, uri, "episodes.parquet", digest)
    keys = table.select(_KEYS)
    for policy in Policy:
        name = f"scores/{policy}@{version}.parquet"
        scores = _read_table(store, run_id, uri, name, digest)
        if not scores.select(_KEYS).equals(keys):
            raise LogError("its rows are not those of episodes.parquet", where=f"{name} of run {run_id}")
        for column in scores.schema:
            if column.name in POLICY_COLUMNS:
                table = table.append_column(column.with_name(f"{policy}_{column.name}"), scores[column.name])
            elif column.name not in table.column_names:
                table = table.append_column(column, scores[column.name])
    if LOOP_FILE in list_artifacts(store, run_id, "scores"):
        loops = _read_table(store, run_id, uri, LOOP_FILE, digest)
        if not loops.select(_KEYS).equals(keys):
            raise LogError("its rows are not those of episodes.parquet", where=f"{LOOP_FILE} of run {run_id}")
        table = table.append_column("repeats", loops["repeats"])
    return bare_cell(store, run, to_frame(table))


def _read_table(store: Store, run_id: str, artifact_uri: str, name: str, digest: str) -> pa.Table:
    data = read_artifact(store, run_id, artifact_uri, name)
    return read_parquet(data, where=f"{name} of run {run_id}", log_sha256=digest)


def bare_cell(store: Store, run: Run, episodes: pd.DataFrame) -> LoggedCell:
    """A run with the given episode table; a run without tables gets an empty one."""
    info, tags = run.info, run.data.tags

    def fetch(name: str) -> bytes:
        return read_artifact(store, info.run_id, info.artifact_uri, name)

    return LoggedCell(
        facts=load_facts(run.data.params, tags, where=f"run {info.run_id} ({info.run_name})", fetch=fetch),
        run_id=info.run_id,
        status=info.status,
        complete=is_complete(run),
        started=info.start_time,
        seconds=None if info.end_time is None else (info.end_time - info.start_time) / 1000,
        failure=tags.get("qfr.failure", ""),
        log_sha256=tags.get("qfr.log_sha256", ""),
        clean_log_sha256=tags.get("qfr.clean_log_sha256", ""),
        ep_min_calls=int(tags.get("qfr.ep_min_calls", "0")),
        artifact_uri=info.artifact_uri,
        metrics=dict(run.data.metrics),
        episodes=episodes,
        clean=None,
    )


def read_episodes(
    store: Store, cell: LoggedCell, *, tasks: frozenset[str] | None = None
) -> tuple[Episode, ...]:
    """The cell's episodes with their transcripts, from the log itself.

    Parameters
    ----------
    store : Store
    cell : LoggedCell
    tasks : frozenset of str or None
        Only the episodes of these tasks; the others are not decoded. None = all.

    Raises
    ------
    TrackingError
        The log is missing.
    LogError
        It is damaged, of another schema version, or not the one whose digest the run carries.
    """
    if cell.parts:
        found = [episode for part in cell.parts for episode in read_episodes(store, part, tasks=tasks)]
        return tuple(sorted(found, key=sort_key))
    where = f"{LOG_FILE} of run {cell.run_id}"
    try:
        data = gzip.decompress(read_artifact(store, cell.run_id, cell.artifact_uri, LOG_FILE))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LogError(
            f"not a whole gzip file ({error})", where=where, hint="the artifact is damaged"
        ) from None
    if sha256_hex(data) != cell.log_sha256:
        raise LogError(
            f"digest {sha256_hex(data)[:12]}, but the run says {cell.log_sha256[:12]}",
            where=where,
            hint="the log was changed after the run",
        )
    return read_log(data if tasks is None else _of_tasks(data, tasks), where=where)


def _of_tasks(data: bytes, tasks: frozenset[str]) -> bytes:
    wanted = {canonical(task).encode("ascii") for task in tasks}
    found = []
    for line in data.splitlines(keepends=True):
        task = _TASK.search(line)
        # A line without the key is kept, so that decoding says what is wrong with it.
        if task is None or task.group(1) in wanted:
            found.append(line)
    return b"".join(found)


def read_calls(store: Store, cell: LoggedCell) -> pd.DataFrame:
    """One row per model turn: the columns of `tables.CALLS`. Errors as `read_cells`."""
    if cell.parts:
        frame = pd.concat([read_calls(store, part) for part in cell.parts], ignore_index=True)
        keys = ["task", "site", "trial", "turn"]
        return frame.sort_values(keys, kind="stable", na_position="first", ignore_index=True)
    return to_frame(_read_table(store, cell.run_id, cell.artifact_uri, "calls.parquet", cell.log_sha256))


def read_finished(store: Store, ref: FinishedRef) -> tuple[Episode, ...]:
    """The episodes of a finished run with their transcripts. Errors as `read_episodes`."""
    with guard(store.shown, store.tracking_uri):
        run = store.client.get_run(ref.run_id)
    return read_episodes(store, bare_cell(store, run, pd.DataFrame()))
