"""Finding runs: which cells are finished, which run of a cell is to be resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mlflow.entities import Run, ViewType

from qfr.tracking.store import Store, guard

# MLflow's client ends silently after one page of 1,000 runs.
PAGE = 1000

# From this many ids on, one pass over all cells is cheaper than a query for each.
_FEW = 40


@dataclass(frozen=True)
class FinishedRef:
    """A finished run of a cell."""

    cell_id: str
    design_id: str
    run_id: str
    log_sha256: str
    clean_log_sha256: str
    # Digest of the clean run's log; empty for fault=none.
    started: int
    # Milliseconds since 1970.


def search(
    store: Store, condition: str, *, experiment_ids: Sequence[str] | None = None, deleted: bool = False
) -> Iterator[Run]:
    """All runs that meet an MLflow filter, newest first, however many pages; on demand deleted ones too.

    Raises
    ------
    TrackingError
        The store does not answer, or the filter is malformed.
    """
    ids = list(experiment_ids or [store.experiment_id])
    view = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    token: str | None = None
    while True:
        with guard(store.shown, store.tracking_uri):
            page = store.client.search_runs(ids, condition, view, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def runs_of_cell(store: Store, cell_id: str) -> list[Run]:
    """Every run of one cell, newest first."""
    return list(search(store, f"tags.`qfr.cell_id` = '{_plain(cell_id)}'"))


def is_complete(run: Run) -> bool:
    """All artifacts, metrics and tags are there; MLflow's status alone cannot say so."""
    return bool(run.data.tags.get("qfr.complete") == "true")


def carries(run: Run, registration: str | None) -> bool:
    """Whether a run was made under a registration ("" = under none); None = it does not matter."""
    return registration is None or run.data.tags.get("qfr.registration", "") == registration


def find_finished(
    store: Store, cell_ids: Iterable[str], *, registration: str | None = None
) -> dict[str, FinishedRef]:
    """The newest finished run of each cell that has one, of those that carry the registration."""
    wanted = set(cell_ids)
    found: dict[str, FinishedRef] = {}
    for run in candidates(store, "qfr.cell_id", wanted, finished=True):
        if not carries(run, registration):
            continue
        tags = run.data.tags
        found.setdefault(
            tags["qfr.cell_id"],
            FinishedRef(
                cell_id=tags["qfr.cell_id"],
                design_id=tags.get("qfr.design_id", ""),
                run_id=run.info.run_id,
                log_sha256=tags.get("qfr.log_sha256", ""),
                clean_log_sha256=tags.get("qfr.clean_log_sha256", ""),
                started=run.info.start_time,
            ),
        )
    return found


def finished_cells(store: Store, design_ids: Iterable[str], *, registration: str | None = None) -> list[str]:
    """Ids of the finished cells of some designs."""
    runs = candidates(store, "qfr.design_id", set(design_ids), finished=True)
    return sorted({run.data.tags["qfr.cell_id"] for run in runs if carries(run, registration)})


def finished_designs(
    store: Store | None, design_ids: Iterable[str], *, registration: str | None = None
) -> dict[str, str]:
    """What the store holds of planned cells: design_id → FINISHED, RUNNING, FAILED or KILLED.

    A design with several runs is FINISHED when any is, else it has its newest run's status. FINISHED means
    complete. `store` may be None (there is no store yet): then nothing is held. With a registration only the
    runs that carry it count.
    """
    if store is None:
        return {}
    status: dict[str, str] = {}
    for run in candidates(store, "qfr.design_id", set(design_ids), finished=False):
        if not carries(run, registration):
            continue
        design = run.data.tags["qfr.design_id"]
        if is_complete(run):
            status[design] = "FINISHED"
        else:
            # A run that was closed without being complete is resumed like a killed one.
            status.setdefault(design, "KILLED" if run.info.status == "FINISHED" else run.info.status)
    return status


def candidates(
    store: Store,
    tag: str,
    wanted: set[str],
    *,
    finished: bool,
    experiment_ids: Sequence[str] | None = None,
) -> Iterator[Run]:
    """Cell runs whose tag is among `wanted`, newest first for each value."""
    complete = " AND tags.`qfr.complete` = 'true'" if finished else ""
    if len(wanted) <= _FEW:
        for value in sorted(wanted):
            yield from search(
                store, f"tags.`{tag}` = '{_plain(value)}'{complete}", experiment_ids=experiment_ids
            )
        return
    for run in search(store, f"tags.`qfr.kind` = 'cell'{complete}", experiment_ids=experiment_ids):
        if run.data.tags.get(tag) in wanted:
            yield run


def _plain(value: str) -> str:
    """An id inside a filter string: ids hold no quotes, and none may come in."""
    if "'" in value or "`" in value:
        raise ValueError(f"{value!r} is no id")
    return value
