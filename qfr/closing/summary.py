"""After the last job: the closing table, the contrasts and their report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.closing.unchanged import KEY_TAG, report_key, standing_report
from qfr.config import CellConfig, TrackingConfig
from qfr.errors import QfrError, StoreAway
from qfr.grid.design import design_of
from qfr.grid.grid import name_of
from qfr.grid.outcomes import CellOutcome, JobOutcome, Status
from qfr.grid.show import console
from qfr.identity import clean_of
from qfr.play.timings import REPORT, SPENT
from qfr.play.waiting import Patience
from qfr.shards import some_shards
from qfr.tracking.reading.search import finished_designs
from qfr.tracking.store import Store, open_store, ui_command, ui_page
from qfr.tracking.writing import sweep as sweeps
from qfr.tracking.writing.sweep_runs import UsedRun, note, settle_runs

_DONE = (Status.finished, Status.skipped)
_MOST_LINES = 12
# Of a reason in the table; the whole goes to a file.
_LOST = "its job did not come back (see its log under multirun/ in tracking.root)"
_LOST_BROKEN = "its job ended with an error, which is said below"


def planned(cells: Sequence[CellConfig]) -> list[sweeps.PlannedCell]:
    """The grid's cells and their clean passes, each once."""
    found: dict[str, sweeps.PlannedCell] = {}
    for cell in cells:
        for one in (clean_of(cell), cell):
            design = design_of(one).design_id
            found.setdefault(design, sweeps.PlannedCell(design, name_of(one)))
    return list(found.values())


def close_sweep(
    sweep: str, cells: Sequence[CellConfig], outcomes: Sequence[object], *, broken: bool = False
) -> int:
    """Say what became of every planned cell, print the contrasts, write the report.

    A cell is finished when MLflow holds a run of it that this sweep made, or found finished and used: of the
    very same file, build and device. An older success of the same design changes nothing.

    Parameters
    ----------
    broken : bool
        Some jobs ended with an error that is said after this.

    Returns
    -------
    int
        0 when every planned cell is finished, 1 otherwise.
    """
    tracking, wanted = cells[0].tracking, planned(cells)
    said = {cell.design_id: cell for job in outcomes if isinstance(job, JobOutcome) for cell in job.cells}
    used = [UsedRun(one.design_id, one.cell_id, one.run_id) for one in said.values() if one.status in _DONE]
    out = console()
    root = Path(tracking.root).expanduser().absolute()
    patience = Patience(tracking.patience, _err)
    lost = _LOST_BROKEN if broken else _LOST
    try:
        held = patience.call("closing the sweep", lambda: _look(tracking, sweep, wanted, used))
    except StoreAway as error:
        note(root, sweep, used)
        away = [one for one in wanted if one.design_id not in said or said[one.design_id].status not in _DONE]
        _say_failures(out, Failures(away, said, {}, lost), root, sweep)
        out.print(f"no report: MLflow is away: {error}", markup=False, soft_wrap=True)
        _say_sync(out, tracking, said.values())
        return 1
    store, run_id = held.store, held.run_id
    lacking = [one for one in wanted if one.design_id not in held.used]
    if lacking:
        _say_failures(out, Failures(lacking, said, held.status, lost), root, sweep)
        _say_sync(out, tracking, said.values())
    designs = [one.design_id for one in wanted]
    unchanged = not lacking and not broken and all(one.status is Status.skipped for one in said.values())
    before = standing_report(store, cells[0], designs, held.used.values()) if unchanged else None
    if before is not None:
        sweeps.link_report(store, run_id, before.run_id, before.sweep)
        _say_line(out, f"Nothing changed since sweep {before.sweep}; its report stands: {before.page}")
    elif not _report(store, cells[0], sweep, out, held, designs) and not some_shards(designs):
        lacking = list(wanted)
    try:
        patience.call("closing the sweep", lambda: sweeps.close_sweep(store, run_id, ok=not lacking))
    except StoreAway as error:
        out.print(f"the sweep's run still says RUNNING: {error}", markup=False, soft_wrap=True)
        return 1
    if lacking != list(wanted):
        _say_where(out, store, again=before is None)
    return 1 if lacking else 0


@dataclass(frozen=True)
class _Look:
    """What MLflow holds of a sweep."""

    store: Store
    run_id: str
    used: Mapping[str, UsedRun]
    # design_id → the finished run that the sweep made or used.
    status: Mapping[str, str]
    # design_id → FINISHED, RUNNING, FAILED, KILLED: of any run of the design.


def _report(
    store: Store, cell: CellConfig, sweep: str, out: Console, held: _Look, planned: Sequence[str]
) -> bool:
    """Print and write the sweep's report. Returns whether there is one."""
    if not held.used:
        out.print("no report: no cell of this sweep is finished", soft_wrap=True)
        return False
    try:
        with SPENT.on(REPORT):
            # pandas, Plotly and the analysis are loaded for a report only.
            from qfr.closing.reporting import ReportRequest, report_sweep

            report_sweep(store, ReportRequest.of(cell, sweep), out)
            sweeps.link_report(store, held.run_id, held.run_id, sweep)
            sweeps.tag_sweep(store, held.run_id, {KEY_TAG: report_key(cell, planned, held.used.values())})
    except QfrError as error:
        # The runs are safe; a report can be made again at any time.
        out.print(f"no report: {error}", markup=False, soft_wrap=True)
        return False
    return True


def _look(
    tracking: TrackingConfig, sweep: str, wanted: Sequence[sweeps.PlannedCell], used: Sequence[UsedRun]
) -> _Look:
    store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
    run = sweeps.find_sweep(store, sweep)
    found = settle_runs(store, sweep, used)
    lacking = [one.design_id for one in wanted if one.design_id not in found]
    under = run.data.tags.get("qfr.registration")
    return _Look(store, run.info.run_id, found, finished_designs(store, lacking, registration=under))


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
    _say_line(console(stderr=True), line)


def _say_line(out: Console, line: str) -> None:
    out.print(line, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Failures:
    """The cells that are not finished now, and what is known of each."""

    cells: Sequence[sweeps.PlannedCell]
    said: Mapping[str, CellOutcome]
    # design_id → what its job said.
    status: Mapping[str, str]
    # design_id → state of its runs in MLflow.
    lost: str
    # Why a cell failed whose job said nothing.

    def state(self, one: sweeps.PlannedCell) -> str:
        """`failed`, `ran, not yet logged`, …; never `finished`."""
        outcome = self.said.get(one.design_id)
        if outcome is not None and outcome.status not in _DONE:
            return str(outcome.status)
        held = self.status.get(one.design_id, "")
        return "never started" if held in ("", "FINISHED") else held.lower()

    def why(self, one: sweeps.PlannedCell) -> str:
        """The whole reason."""
        outcome = self.said.get(one.design_id)
        if outcome is not None and outcome.status in _DONE:
            return "its run is not in MLflow any more"
        return self.lost if outcome is None else outcome.reason

    def older(self) -> int:
        """How many have a finished run from before, of another file, build or device."""
        return sum(self.status.get(one.design_id) == "FINISHED" for one in self.cells)

    def text(self) -> str:
        """All of it, for a file."""
        return "\n\n".join(f"{one.name}: {self.state(one)}\n{self.why(one)}" for one in self.cells) + "\n"


def _say_failures(out: Console, failures: Failures, root: Path, sweep: str) -> None:
    count = len(failures.cells)
    table = Table(
        title=f"Not finished: {count} cell{'' if count == 1 else 's'}",
        title_justify="left",
        title_style="bold red",
    )
    for column in ("cell", "state", "why"):
        table.add_column(column, overflow="fold")
    before = ""
    for one in failures.cells:
        why = failures.why(one)
        shown = "as above" if why == before else _cut(why)
        table.add_row(*map(escape, (one.name, failures.state(one), shown)))
        before = why
    out.print(table)
    if older := failures.older():
        out.print(
            f"{older} of them finished in an earlier sweep; those runs are not in this report.",
            soft_wrap=True,
        )
    path = root / "failures" / f"{sweep}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(failures.text(), encoding="utf-8", errors="replace")
    except OSError as error:
        line = f"The reasons could not be written to {path} ({error.strerror})."
        out.print(line, markup=False, soft_wrap=True)
        return
    out.print(f"Every reason in full: {path}", markup=False, soft_wrap=True)


def _cut(text: str) -> str:
    lines = text.splitlines()
    return text if len(lines) <= _MOST_LINES else "\n".join([*lines[:_MOST_LINES], "…"])


def _say_where(out: Console, store: Store, *, again: bool) -> None:
    if again:
        out.print("\nThe same command again skips finished cells and resumes the others.", soft_wrap=True)
    out.print(f"Open the MLflow UI:  {ui_command(store)}", markup=False, soft_wrap=True)
    if not store.is_http:
        out.print(f"and in it the runs:  {ui_page(store)}", markup=False, soft_wrap=True)
