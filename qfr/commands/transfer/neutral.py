"""`qfr import` and `qfr export` of the neutral format (JSON Lines), and of formats read as such lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.analysis.imported import Comparison
from qfr.archive.foreign_logs import MOST_K, Log, check_store, log_import
from qfr.archive.neutral import NeutralCell, Stored, cells_of, lines_of, log_cells
from qfr.archive.neutral_runs import split
from qfr.canonical import sha256_hex
from qfr.errors import ConfigError, LogError, TrackingError
from qfr.faults import FAULTS
from qfr.foreign.bfcl import is_bfcl, read_bfcl
from qfr.foreign.inspect import Told, convert, is_inspect
from qfr.foreign.jsonl import Lines, is_jsonl, lines_from, read_lines
from qfr.grid.show import console
from qfr.records import Ending, FaultKind
from qfr.report.logs import plain, print_comparison, print_log
from qfr.scope import scope_of, varying
from qfr.tracking.reading.cells import LoggedCell, read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store

#: Episodes in no rate that are named.
_MOST_NAMED = 10


def all_neutral(paths: Sequence[str]) -> bool:
    """Whether the files are of a format that becomes cells line by line, by their names.

    Raises
    ------
    ConfigError
        Some are and some are not.
    """
    found = [path for path in paths if is_jsonl(path) or is_bfcl(path) or is_inspect(path)]
    if found and len(found) < len(paths):
        raise ConfigError(
            f"{Path(found[0]).name} and logs of other formats in one command",
            hint="import them one after the other",
        )
    return bool(found)


@dataclass(frozen=True)
class Named:
    """A file, and what it does not say."""

    path: str
    model: str | None
    preset: str | None
    scorer: str | None


def _lines(given: Named) -> Lines:
    """A file as lines."""
    path = Path(given.path)
    if is_bfcl(path):
        return read_bfcl(path, given.model, given.preset)
    if is_inspect(given.path):
        made = convert(path, Told(given.scorer, given.model, given.preset))
        raw = [line.encode("ascii") for line in made.lines]
        return lines_from(enumerate(raw, 1), path.name, sha256_hex(b"".join(raw)))
    if given.model is not None or given.preset is not None:
        raise ConfigError(
            "--model and --quant do not apply to the neutral format", where=given.path,
            hint="each line says its model and preset",
        )  # fmt: skip
    return read_lines(path)


def import_neutral(
    files: Sequence[Named],
    *,
    uri: str | None,
    root: str,
    experiment: str,
    dry: bool,
    contrasted: Callable[[Sequence[Log]], tuple[Comparison, ...]] | None,
) -> int:
    """Read files, then put their cells into a store (`dry`: read only).

    Raises
    ------
    ConfigError
        Logs are to be `contrasted`, and there are cells with faults among them.
    """
    read: list[tuple[str, tuple[NeutralCell, ...]]] = []
    logs: list[Log] = []
    remarks: dict[str, list[str]] = {}
    for file in files:
        lines, found_logs = split(_lines(file))
        logs += found_logs
        if lines is not None:
            read.append((file.path, cells_of(lines)))
            remarks[file.path] = [f"{one.task}, trial {one.trial}: {one.reason}" for one in lines.left_out]
    cells: dict[str, NeutralCell] = {}
    for path, found in read:
        for cell in found:
            _refuse_twin(path, cell, cells)
            cells[cell.facts.cell_id] = cell
    if contrasted is not None and read:
        raise ConfigError(
            "--contrast is for logs without faults", where=read[0][0],
            hint="import the file without it; qfr report and qfr compare contrast its cells",
        )  # fmt: skip
    comparisons = () if contrasted is None else contrasted(logs)
    out = console()
    for path, found in read:
        total = sum(len(cell.episodes) for cell in found)
        out.print(plain(f"{path}: {len(found)} cells, {total} episodes", "bold"), soft_wrap=True)
        for cell in found:
            out.print(plain(f"  {_told(cell)}"), soft_wrap=True)
        if gone := remarks[path]:
            told = f"{len(gone)} episodes are in no rate and in no bound: {'; '.join(gone[:_MOST_NAMED])}"
            out.print(plain(f"  ⚠ {told}{' …' * (len(gone) > _MOST_NAMED)}", "yellow"), soft_wrap=True)
    for log in logs:
        print_log(log.run, f"{log.facts.model} {log.facts.quant}", MOST_K, out)
    for one in comparisons:
        print_comparison(one, out)
        out.print()
    if not dry:
        store = open_store(uri, Path(root), experiment)
        check_store(store, logs)
        done = log_cells(store, cells.values())
        new = [log_import(store, log).new for log in logs]
        done = Stored(done.made + sum(new), done.present + len(new) - sum(new))
        there = f"; {done.present} were there already" if done.present else ""
        said = f"{done.made} runs put into experiment {store.experiment} in {store.shown}{there}"
        out.print(plain(said), soft_wrap=True)
    return 0


def _refuse_twin(path: str, cell: NeutralCell, known: dict[str, NeutralCell]) -> None:
    """Two cells of one name and setting with different episodes would count as one."""
    for other in known.values():
        if other.facts.design_id == cell.facts.design_id and other.facts.cell_id != cell.facts.cell_id:
            raise LogError(
                f"the cell {cell.facts.name} is there twice, with other episodes",
                where=path,
                hint="number repetitions by trial; tell treatments apart by settings",
            )


def _told(cell: NeutralCell) -> str:
    facts, n = cell.facts, len(cell.episodes)
    if facts.fault == FaultKind.none:
        return f"{facts.name}: {n} clean episodes"
    fired = sum(one.trace is not None and one.trace.fired is not None for one in cell.episodes)
    reports = sum(one.ending is Ending.reported_failure for one in cell.episodes)
    what = FAULTS[FaultKind(facts.fault)].sentence
    return f"{facts.name} ({what}): {n} episodes, {fired} faults fired, {reports} reported failure"


def export_neutral(store: Store, sweep: str, out: Path) -> int:
    """Write the finished cells of a sweep as lines.

    Raises
    ------
    TrackingError
        There is no finished cell.
    """
    reading = read_cells(store, sweep=sweep)
    if not reading.cells:
        raise TrackingError(
            "no finished cell to export", where=f"sweep {sweep}", hint="run its command again first"
        )
    cells: dict[str, LoggedCell] = {}
    for cell in reading.cells:
        for one in (cell.clean, cell):
            if one is not None:
                cells.setdefault(one.facts.cell_id, one)
    scopes = {cell_id: scope_of(one.facts) for cell_id, one in cells.items()}
    # The gate follows from the episodes; a clean pass has none.
    told = [key for key, _ in varying(scopes.values()) if key not in ("suite.gate", "trial")]
    partial, lines = out.with_name(out.name + ".part"), 0
    with partial.open("w", encoding="utf-8") as file:
        for cell_id, one in cells.items():
            episodes = read_episodes(store, one)
            file.writelines(lines_of(one.facts, scopes[cell_id], told, episodes, one.ep_min_calls))
            lines += len(episodes)
    partial.replace(out)
    console().print(plain(f"{out}: sweep {sweep}, {len(cells)} cells, {lines} episodes"), soft_wrap=True)
    return 0
