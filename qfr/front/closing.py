"""After the last job: the closing table, the contrasts and their report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from qfr.config import CellConfig, TrackingConfig
from qfr.errors import QfrError, StoreAway
from qfr.front.design import design_of
from qfr.front.grid import name_of
from qfr.front.outcomes import CellOutcome, JobOutcome, Status
from qfr.front.patience import Patience
from qfr.front.reporting import ReportRequest, report_sweep
from qfr.front.show import console
from qfr.front.spent import REPORT, SPENT
from qfr.identity import clean_of
from qfr.shards import some_shards
from qfr.tracking import sweep as sweeps
from qfr.tracking.search import finished_designs
from qfr.tracking.store import Store, open_store, ui_command, ui_page

_DONE = (Status.finished, Status.skipped)


def planned(cells: Sequence[CellConfig]) -> list[sweeps.PlannedCell]:
    """The grid's cells and their clean passes, each once."""
    found: dict[str, sweeps.PlannedCell] = {}
    for cell in cells:
        for one in (clean_of(cell), cell):
            design = design_of(one).design_id
            found.setdefault(design, sweeps.PlannedCell(design, name_of(one)))
    return list(found.values())


def close_sweep(sweep: str, cells: Sequence[CellConfig], outcomes: Sequence[object]) -> int:
    """Say what became of every planned cell, print the contrasts, write the report.

    What MLflow holds decides, not what the jobs said: their outcomes only add the reasons.

    Returns
    -------
    int
        0 when every planned cell is finished, 1 otherwise.
    """
    tracking, wanted = cells[0].tracking, planned(cells)
    said = {cell.design_id: cell for job in outcomes if isinstance(job, JobOutcome) for cell in job.cells}
    out = console()
    patience = Patience(tracking.patience, _err)
    try:
        held = patience.call("closing the sweep", lambda: _look(tracking, sweep, wanted))
    except StoreAway as error:
        away = [one for one in wanted if one.design_id not in said or said[one.design_id].status not in _DONE]
        out.print(_failures(away, said, {}))
        out.print(f"no report: MLflow is away: {error}", markup=False, soft_wrap=True)
        _say_sync(out, tracking, said.values())
        return 1
    store, run_id = held.store, held.run_id
    lacking = [one for one in wanted if held.status.get(one.design_id) != "FINISHED"]
    if lacking:
        out.print(_failures(lacking, said, held.status))
        _say_sync(out, tracking, said.values())
    try:
        with SPENT.on(REPORT):
            report_sweep(store, ReportRequest.of(cells[0], sweep), out)
    except QfrError as error:
        # The runs are safe; a report can be made again at any time.
        # With no cell finished, the table above says what to do.
        told = error.what if len(lacking) == len(wanted) else error
        out.print(f"no report: {told}", markup=False, soft_wrap=True)
        if not some_shards([one.design_id for one in wanted]):
            lacking = list(wanted)
    try:
        patience.call("closing the sweep", lambda: sweeps.close_sweep(store, run_id, ok=not lacking))
    except StoreAway as error:
        out.print(f"the sweep's run still says RUNNING: {error}", markup=False, soft_wrap=True)
        return 1
    if lacking != list(wanted):
        _say_where(out, store)
    return 1 if lacking else 0


@dataclass(frozen=True)
class _Look:
    """What MLflow holds of a sweep."""

    store: Store
    run_id: str
    status: dict[str, str]
    # design_id → FINISHED, RUNNING, FAILED, KILLED.


def _look(tracking: TrackingConfig, sweep: str, wanted: Sequence[sweeps.PlannedCell]) -> _Look:
    store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
    run = sweeps.find_sweep(store, sweep)
    under = run.data.tags.get("qfr.registration")
    designs = [one.design_id for one in wanted]
    return _Look(store, run.info.run_id, finished_designs(store, designs, registration=under))


def _say_sync(out: Console, tracking: TrackingConfig, said: Iterable[CellOutcome]) -> None:
    """How cells that ran and are not logged get to MLflow."""
    count = sum(one.status is Status.not_logged for one in said)
    if count:
        root = "" if tracking.root == "mlruns" else f" --root {shlex.quote(tracking.root)}"
        out.print(
            f"{count} cells ran and are whole on disk. When MLflow is back:  qfr sync{root}",
            markup=False,
            soft_wrap=True,
        )


def _err(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)


def _failures(
    lacking: Sequence[sweeps.PlannedCell], said: dict[str, CellOutcome], status: dict[str, str]
) -> Table:
    table = Table(title=f"Not finished: {len(lacking)} cells", title_justify="left", title_style="bold red")
    for column in ("cell", "state", "why"):
        table.add_column(column, overflow="fold")
    for one in lacking:
        outcome = said.get(one.design_id)
        state = str(outcome.status) if outcome and outcome.status is not Status.finished else ""
        why = (
            outcome.reason.partition("\n")[0]
            if outcome
            else "its job did not come back (see its log under multirun/ in tracking.root)"
        )
        table.add_row(one.name, state or status.get(one.design_id, "never started").lower(), why)
    return table


def _say_where(out: Console, store: Store) -> None:
    out.print("\nThe same command again skips finished cells and resumes the others.", soft_wrap=True)
    out.print(f"Open the MLflow UI:  {ui_command(store)}", markup=False, soft_wrap=True)
    if not store.is_http:
        out.print(f"and in it the runs:  {ui_page(store)}", markup=False, soft_wrap=True)
