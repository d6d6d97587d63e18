"""Reading runs back: cells with their facts and episode tables, fault runs joined to their clean runs.

Reads the derived tables, never transcripts, and only what MLflow holds, never a sweep's local files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pandas as pd
from mlflow.entities import Run

from qfr.errors import LogError, TrackingError, did_you_mean
from qfr.records import FaultKind
from qfr.scoring import SCORER_VERSION
from qfr.tracking.reading.cells import LoggedCell, bare_cell, load_cell
from qfr.tracking.reading.joining import join_shards
from qfr.tracking.reading.search import candidates, carries, is_complete, search
from qfr.tracking.store import Store, guard
from qfr.tracking.writing.sweep import PlannedCell
from qfr.tracking.writing.sweep_runs import runs_of_sweep

_READERS = 8


@dataclass(frozen=True)
class Alarm:
    """Finished runs of one cell whose logs differ: the cell is not deterministic on this machine."""

    cell_id: str
    name: str
    runs: tuple[tuple[str, str], ...]
    # (run id, log digest), newest first.


@dataclass(frozen=True)
class Reading:
    """What was read."""

    cells: tuple[LoggedCell, ...]
    # Complete cells, each once (its newest run), in the order of model, quant, prompt, fault.
    unfinished: tuple[LoggedCell, ...]
    # Cells without a complete run: running, failed or killed.
    missing: tuple[PlannedCell, ...]
    # Planned cells without a complete run; empty unless a sweep was asked for.
    alarms: tuple[Alarm, ...]
    notes: tuple[str, ...]
    # What a reader of the result should know, one sentence each.


def read_cells(
    store: Store,
    *,
    experiments: Sequence[str] = (),
    condition: str = "",
    sweep: str | None = None,
    registration: str | None = None,
    score_version: str = str(SCORER_VERSION),
) -> Reading:
    """Read cells with their episode tables.

    Parameters
    ----------
    experiments : sequence of str
        Names of experiments; empty = the store's own.
    condition : str
        Further MLflow filter, for example `params.model = 'llama'`. Clean runs are found whatever it says.
    sweep : str or None
        Only the runs that this sweep made or used.
    registration : str or None
        Only runs under this registration ("" = under none).
    score_version : str
        Which logged scores are read (`scores/<policy>@<version>.parquet`).

    Raises
    ------
    TrackingError
        The store, experiment or sweep is not there; an artifact or a fault run's clean run is missing.
    LogError
        A table does not follow from its run's log, or no clean run has the log that a fault run names.
    """
    asked = None if sweep is None else runs_of_sweep(store, sweep)
    if asked is not None and registration is None:
        registration = asked.registration
    wanted = "tags.`qfr.kind` = 'cell'" + (f" AND {condition}" if condition else "")
    ids = _experiment_ids(store, experiments)
    held = [run for run in search(store, wanted, experiment_ids=ids) if carries(run, registration)]
    runs = held if asked is None else asked.of(held)
    done = [run for run in runs if is_complete(run)]
    chosen, alarms, notes = _newest(done)
    if asked is not None:
        # The sweep's runs are known; another run of one of its cells matters where it has another log.
        cells_of = {run.data.tags["qfr.cell_id"] for run in done}
        again = [run for run in held if is_complete(run) and run.data.tags["qfr.cell_id"] in cells_of]
        alarms, notes = _newest(again)[1], asked.notes
    with ThreadPoolExecutor(_READERS) as pool:
        cells = list(pool.map(lambda run: load_cell(store, run, score_version), chosen))
        clean = _clean_runs(store, ids, cells, done, registration)
        loaded = {cell.run_id: cell for cell in cells}
        extra = [run for run in clean.values() if run.info.run_id not in loaded]
        extra = list({run.info.run_id: run for run in extra}.values())
        loaded |= {
            cell.run_id: cell for cell in pool.map(lambda run: load_cell(store, run, score_version), extra)
        }
    joined = [
        replace(cell, clean=loaded[clean[cell.run_id].info.run_id]) if cell.run_id in clean else cell
        for cell in cells
    ]
    finished = {cell.facts.cell_id for cell in cells}
    finished_designs = {cell.facts.design_id for cell in cells}
    shards = join_shards(joined)
    return Reading(
        cells=tuple(sorted(shards.cells, key=_order)),
        unfinished=_unfinished(store, runs, finished),
        missing=() if asked is None else asked.missing(finished_designs),
        alarms=alarms,
        notes=(*notes, *shards.notes),
    )


def _newest(done: Sequence[Run]) -> tuple[list[Run], tuple[Alarm, ...], tuple[str, ...]]:
    """The newest complete run of each cell (`done` is newest first); what the older ones say."""
    by_cell: dict[str, list[Run]] = {}
    for run in done:
        by_cell.setdefault(run.data.tags["qfr.cell_id"], []).append(run)
    alarms: list[Alarm] = []
    notes: list[str] = []
    for cell_id, runs in by_cell.items():
        if len(runs) == 1:
            continue
        name = runs[0].info.run_name
        digests = [run.data.tags.get("qfr.log_sha256", "") for run in runs]
        if len(set(digests)) > 1:
            pairs = tuple((run.info.run_id, digest) for run, digest in zip(runs, digests, strict=True))
            alarms.append(Alarm(cell_id, name, pairs))
        else:
            notes.append(
                f"{name} ({cell_id}) was run {len(runs)} times with equal logs; the newest run is read."
            )
    return [runs[0] for runs in by_cell.values()], tuple(alarms), tuple(notes)


def _clean_runs(
    store: Store,
    ids: Sequence[str],
    cells: Iterable[LoggedCell],
    done: Iterable[Run],
    registration: str | None,
) -> dict[str, Run]:
    """For each complete fault cell's run id, the complete clean run whose log it names."""
    faulted = [cell for cell in cells if cell.facts.fault != FaultKind.none]
    by_cell: dict[str, list[Run]] = {}
    for run in done:
        by_cell.setdefault(run.data.tags["qfr.cell_id"], []).append(run)
    # A filter may have left the clean runs out, or left out the one that matches.
    lacking = {c.facts.clean_id for c in faulted if not _match(by_cell.get(c.facts.clean_id, []), c)}
    for run in candidates(store, "qfr.cell_id", lacking, finished=True, experiment_ids=ids):
        if carries(run, registration):
            by_cell.setdefault(run.data.tags["qfr.cell_id"], []).append(run)
    found: dict[str, Run] = {}
    for cell in faulted:
        runs = by_cell.get(cell.facts.clean_id, [])
        match = _match(runs, cell)
        if match is None:
            raise _no_clean(cell, runs)
        found[cell.run_id] = match
    return found


def _match(runs: Iterable[Run], cell: LoggedCell) -> Run | None:
    return next((run for run in runs if run.data.tags.get("qfr.log_sha256") == cell.clean_log_sha256), None)


def _no_clean(cell: LoggedCell, runs: Sequence[Run]) -> TrackingError | LogError:
    where = f"{cell.facts.name}, run {cell.run_id}"
    if not runs:
        return TrackingError(
            f"its clean run (cell {cell.facts.clean_id}) is not in the store",
            where=where,
            hint="was it deleted? Delete this run too, then run the same command again",
        )
    others = ", ".join(f"run {r.info.run_id}: {r.data.tags.get('qfr.log_sha256', '')[:12]}" for r in runs)
    return LogError(
        f"it names clean log {cell.clean_log_sha256[:12]}; clean cell {cell.facts.clean_id} has {others}",
        where=where,
        hint="clean and fault episodes of different runs never mix; delete the stale run and run again",
    )


def _unfinished(store: Store, runs: Iterable[Run], finished: set[str]) -> tuple[LoggedCell, ...]:
    newest: dict[str, Run] = {}
    for run in runs:
        cell_id = run.data.tags.get("qfr.cell_id", "")
        if not is_complete(run) and cell_id not in finished:
            newest.setdefault(cell_id, run)
    return tuple(sorted((bare_cell(store, run, pd.DataFrame()) for run in newest.values()), key=_order))


def _experiment_ids(store: Store, names: Sequence[str]) -> list[str]:
    ids: list[str] = []
    for name in names:
        with guard(store.shown, store.tracking_uri):
            found = store.client.get_experiment_by_name(name)
            known = [] if found else [e.name for e in store.client.search_experiments()]
        if found is None:
            raise TrackingError(
                f"no experiment {name!r}" + did_you_mean(name, known),
                where=store.shown,
                hint="known are " + ", ".join(known[:10]),
            )
        ids.append(found.experiment_id)
    return ids or [store.experiment_id]


def _order(cell: LoggedCell) -> tuple[str, ...]:
    facts = cell.facts
    return (facts.model, facts.quant, facts.prompt, facts.fault, facts.suite, facts.executor, facts.cell_id)
