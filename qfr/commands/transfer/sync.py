"""Log what ran while MLflow was away. Runs no model.

A cell that MLflow did not take lies whole under <root>/journal/. This logs it to the store that it was
played for, into the run that it began where there is one, and removes it from the disk once MLflow has all of
it. What MLflow holds already, with the same log, is not logged again.
Exit code 0: nothing is left to log; 1: something is.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from qfr.commands.common import not_negative
from qfr.errors import LogError, QfrError, TrackingError
from qfr.grid.show import console
from qfr.play.sharing import walk_lock
from qfr.play.waiting import Patience
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.claims import Claimant
from qfr.tracking.writing.outbox import Parcel, log_played, read_parcel, unfinished, waiting
from qfr.tracking.writing.owner import Owner, this_process
from qfr.tracking.writing.sweep import close_sweep, find_sweep, read_plan
from qfr.tracking.writing.sweep_runs import UsedRun, settle_again

_STALE = float("inf")
# A sweep on another machine may be at work however old its last sign of life is: its run is left alone.


@dataclass(frozen=True)
class _Result:
    """What became of a played cell."""

    name: str
    cell_id: str
    state: str
    # logged, or still to be logged.
    why: str
    # The run's id, or what kept it back.
    done: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("store")
    group.add_argument("--root", default="mlruns", help="folder of the journals")
    group.add_argument(
        "--uri",
        help="MLflow tracking URI; left out = the one that each cell was played for (without password)",
    )
    parser.add_argument(
        "--wait",
        type=not_negative,
        default=0,
        metavar="SECONDS",
        help="how long a store that is away is waited for",
    )


def run(arguments: argparse.Namespace) -> int:
    """Log every played cell under the root."""
    out = console()
    root = Path(arguments.root).expanduser().absolute()
    if not root.is_dir():
        raise TrackingError(
            "there is no such folder", where=str(root), hint="--root FOLDER: as tracking.root"
        )
    folders = waiting(root)
    sync = _Sync(root, arguments.uri, Patience(arguments.wait, _err))
    results = [sync.log(folder) for folder in folders]
    if results:
        out.print(_table(results))
    else:
        out.print("Nothing is waiting to be logged.")
    for one in results:
        if not one.done:
            out.print(f"{one.name}: {one.why}", markup=False, soft_wrap=True)
    begun = unfinished(root)
    if begun:
        out.print(
            f"{len(begun)} cells were begun and not played to their end; the run command goes on with them.",
            soft_wrap=True,
        )
    for line in sync.close_sweeps():
        out.print(line, markup=False, soft_wrap=True)
    return 0 if all(one.done for one in results) else 1


class _Sync:
    """Logs parcels, one store per address."""

    def __init__(self, root: Path, uri: str | None, patience: Patience) -> None:
        self._root, self._uri, self._patience = root, uri, patience
        self._stores: dict[tuple[str | None, str], Store] = {}
        self._sweeps: dict[str, tuple[Store, list[UsedRun]]] = {}
        self._me = this_process(root)

    def log(self, folder: Path) -> _Result:
        """Log one parcel and remove it from the disk."""
        try:
            parcel = read_parcel(folder)
        except LogError as error:
            return _Result(folder.name, folder.name, "still to be logged", str(error), False)
        facts = parcel.cell.facts
        try:
            with walk_lock(self._root, parcel.address.clean_design) as holder:
                if holder:
                    return _Result(facts.name, facts.cell_id, "still to be logged", holder, False)
                if not folder.exists():
                    # The process that played it has logged it in this moment.
                    return _Result(facts.name, facts.cell_id, "logged", "by the process that played it", True)
                what = f"{facts.name}: logging to MLflow"
                run_id = self._patience.call(what, lambda: self._log(parcel))
                shutil.rmtree(folder)
        except QfrError as error:
            return _Result(facts.name, facts.cell_id, "still to be logged", str(error), False)
        return _Result(facts.name, facts.cell_id, "logged", run_id, True)

    def _log(self, parcel: Parcel) -> str:
        facts = parcel.cell.facts
        store = self._open(parcel)
        who = Claimant(self._me, parcel.address.stale_after)
        run_id = log_played(store, parcel.cell, who)
        if facts.sweep:
            logged = self._sweeps.setdefault(facts.sweep, (store, []))[1]
            logged.append(UsedRun(facts.design_id, facts.cell_id, run_id))
        return run_id

    def _open(self, parcel: Parcel) -> Store:
        uri = self._uri or parcel.address.uri
        key = (uri, parcel.address.experiment)
        if key not in self._stores:
            if uri is not None and "***" in uri:
                raise TrackingError(
                    "the address was kept without its password", where=uri, hint="give it: --uri URI"
                )
            self._stores[key] = open_store(uri, self._root, parcel.address.experiment)
        return self._stores[key]

    def close_sweeps(self) -> list[str]:
        """End the runs of sweeps all of whose cells are finished now. Returns how to see their reports."""
        lines: list[str] = []
        for sweep, (store, logged) in sorted(self._sweeps.items()):
            close = partial(_close, store, sweep, logged, self._me)
            try:
                lines.append(self._patience.call(f"sweep {sweep}", close))
            except TrackingError as error:
                lines.append(f"sweep {sweep}: {error}")
        return lines


def _close(store: Store, sweep: str, logged: Sequence[UsedRun], me: Owner) -> str:
    run = find_sweep(store, sweep)
    planned = [cell.design_id for cell in read_plan(store, sweep)]
    held = settle_again(store, store.root, sweep, logged)
    lacking = sum(design not in held for design in planned)
    if lacking:
        return f"sweep {sweep}: {lacking} of {len(planned)} cells are not finished: run its command again"
    if not Claimant(me, _STALE).judge(run, locked=False).alive:
        close_sweep(store, run.info.run_id, ok=True)
    command = ["qfr", "report", "--sweep", sweep]
    for flag, value, usual in (
        ("--uri", store.shown if store.is_http else None, None),
        ("--root", str(store.root), str(Path("mlruns").absolute())),
        ("--experiment", store.experiment, "qfr"),
    ):
        command += [flag, value] if value is not None and value != usual else []
    return f"sweep {sweep}: all {len(planned)} cells are finished. Its report:  {shlex.join(command)}"


def _table(results: Sequence[_Result]) -> Table:
    table = Table(title="Played cells", title_justify="left", title_style="bold")
    for name in ("cell", "cell_id", "state", "run"):
        table.add_column(name, overflow="fold")
    for one in results:
        table.add_row(*map(escape, (one.name, one.cell_id, one.state, one.why if one.done else "–")))
    return table


def _err(line: str) -> None:
    console(stderr=True).print(line, markup=False, soft_wrap=True)
