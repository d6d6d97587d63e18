"""After the last job: the closing table, the contrasts and their report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from qfr.config import CellConfig
from qfr.errors import QfrError
from qfr.front.design import design_of
from qfr.front.outcomes import CellOutcome, JobOutcome, Status
from qfr.front.reporting import ReportRequest, report_sweep
from qfr.front.show import console
from qfr.identity import clean_of
from qfr.tracking import sweep as sweeps
from qfr.tracking.search import finished_designs
from qfr.tracking.store import Store, open_store, ui_command, ui_page


def planned(cells: Sequence[CellConfig]) -> list[sweeps.PlannedCell]:
    """The grid's cells and their clean passes, each once."""
    found: dict[str, sweeps.PlannedCell] = {}
    for cell in cells:
        for one in (clean_of(cell), cell):
            design = design_of(one).design_id
            found.setdefault(design, sweeps.PlannedCell(design, name_of(one)))
    return list(found.values())


def name_of(cell: CellConfig) -> str:
    """`llama q8_0 P0 et`."""
    return f"{cell.model.name} {cell.quant.preset.lower()} {cell.prompt.name} {cell.fault.kind}"


def close_sweep(sweep: str, cells: Sequence[CellConfig], outcomes: Sequence[object]) -> int:
    """Say what became of every planned cell, print the contrasts, write the report.

    What MLflow holds decides, not what the jobs said: their outcomes only add the reasons.

    Returns
    -------
    int
        0 when every planned cell is finished, 1 otherwise.
    """
    tracking = cells[0].tracking
    store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
    wanted = planned(cells)
    run = sweeps.find_sweep(store, sweep)
    under = run.data.tags.get("qfr.registration")
    status = finished_designs(store, [one.design_id for one in wanted], registration=under)
    lacking = [one for one in wanted if status.get(one.design_id) != "FINISHED"]
    said = {cell.design_id: cell for job in outcomes if isinstance(job, JobOutcome) for cell in job.cells}
    out = console()
    if lacking:
        out.print(_failures(lacking, said, status))
    run_id = run.info.run_id
    try:
        report_sweep(store, ReportRequest.of(cells[0], sweep), out)
    except QfrError as error:
        # The runs are safe; a report can be made again at any time.
        out.print(f"no report: {error}", markup=False, soft_wrap=True)
        sweeps.close_sweep(store, run_id, ok=False)
        return 1
    sweeps.close_sweep(store, run_id, ok=not lacking)
    _say_where(out, store)
    return 1 if lacking else 0


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
            else "its job did not come back (see its log under multirun/)"
        )
        table.add_row(one.name, state or status.get(one.design_id, "never started").lower(), why)
    return table


def _say_where(out: Console, store: Store) -> None:
    out.print("\nThe same command again skips finished cells and resumes the others.", soft_wrap=True)
    out.print(f"Open the MLflow UI:  {ui_command(store)}", markup=False, soft_wrap=True)
    if not store.is_http:
        out.print(f"and in it the runs:  {ui_page(store)}", markup=False, soft_wrap=True)
