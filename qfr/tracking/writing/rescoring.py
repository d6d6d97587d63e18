"""Scores computed anew from the logs and stored beside the old ones, never over them."""

from __future__ import annotations

from dataclasses import dataclass

from qfr.errors import TrackingError
from qfr.records import Policy
from qfr.tracking.reading.artifacts import list_artifacts, read_artifact
from qfr.tracking.reading.cells import LoggedCell, read_episodes
from qfr.tracking.reading.tables import LOOP_FILE, loop_table, parquet_bytes, score_table
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.batches import log_files


@dataclass(frozen=True)
class Rescored:
    """What rescoring did to one cell's table."""

    cell: LoggedCell
    policy: Policy
    artifact: str
    # scores/<policy>@<version>.parquet
    new: bool
    # False when the very table stood there already.
    episodes: int
    successes: int


def add_loops(store: Store, cell: LoggedCell) -> bool:
    """Store the table of repeated calls of a run that has none yet; False when it stood there.

    Raises
    ------
    LogError
        The log is damaged or not the one whose digest the run carries.
    """
    if LOOP_FILE in list_artifacts(store, cell.run_id, "scores"):
        return False
    data = parquet_bytes(loop_table(read_episodes(store, cell)), log_sha256=cell.log_sha256)
    with guard(store.shown, store.tracking_uri):
        log_files(store, cell.run_id, {LOOP_FILE: data})
    return True


def rescore(store: Store, cell: LoggedCell, policy: Policy, version: str, *, ep_min_calls: int) -> Rescored:
    """Score a cell's episodes from its log alone and store the table under `version`.

    Raises
    ------
    TrackingError
        Another table stands under that version already.
    LogError
        The log is damaged or not the one whose digest the run carries.
    """
    episodes = read_episodes(store, cell)
    table = score_table(episodes, policy, ep_min_calls=ep_min_calls)
    data = parquet_bytes(table, log_sha256=cell.log_sha256, facts={"qfr.ep_min_calls": str(ep_min_calls)})
    name = f"scores/{policy}@{version}.parquet"
    present = name in list_artifacts(store, cell.run_id, "scores")
    if present and read_artifact(store, cell.run_id, cell.artifact_uri, name) != data:
        raise TrackingError(
            f"{name} holds other scores already, and scores are never overwritten",
            where=f"{cell.facts.name}, run {cell.run_id}",
            hint="give the new scores a version of their own: --policy-version NAME",
        )
    if not present:
        with guard(store.shown, store.tracking_uri):
            log_files(store, cell.run_id, {name: data})
    good = sum(bool(value) for value in table.column("success").to_pylist())
    return Rescored(cell, policy, name, not present, len(episodes), good)
