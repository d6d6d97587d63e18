"""A played cell on disk, whole: what MLflow has not taken yet can be logged later, without any model.

It lies in the folder of the cell's journal, beside the episodes. `cell.json` is written last and renamed into
place, so a folder that has it is complete.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from qfr.canonical import sha256_hex
from qfr.config import Traces
from qfr.errors import LogError, StoreAway
from qfr.facts import CellFacts, Work
from qfr.journal import JOURNAL_FILE, TIMING_FILE, log_bytes, read_log
from qfr.records import Episode, FaultKind
from qfr.tracking.reading.search import find_finished
from qfr.tracking.store import Store
from qfr.tracking.writing.claims import Claimant, Held, drop_strays, take_cell
from qfr.tracking.writing.sweep import sweep_run
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell

T = TypeVar("T", CellFacts, Work)

VERSION = 1
CELL_FILE = "cell.json"
_LOOKS = 3
# At the store, while others finish the cell in between.
_CLEAN_FILE = "clean.jsonl"
_TEXTS = ("prompt.md", "suite.json", "config.yaml")
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "float | None": (float, int, type(None)),
    "int | None": (int, type(None)),
}


@dataclass(frozen=True)
class Address:
    """Where a cell is to be logged."""

    uri: str | None
    # Without user and password; None = SQLite under the root that holds the parcel.
    experiment: str
    clean_design: str
    # Names the lock of the cell's walk.
    stale_after: float
    # As `Claimant`.


@dataclass(frozen=True)
class Parcel:
    """A played cell that MLflow has not confirmed."""

    folder: Path
    address: Address
    cell: FinishedCell


def write_parcel(folder: Path, cell: FinishedCell, address: Address) -> None:
    """Put everything that logging needs beside the cell's journal.

    Only the journal is forced to disk. What a power failure takes of the rest is found by its digest, and the
    cell goes on from the journal.

    Raises
    ------
    OSError
        The disk does not take it.
    """
    files = dict(zip(_TEXTS, _contents(cell), strict=True))
    if cell.facts.fault != FaultKind.none:
        files[_CLEAN_FILE] = log_bytes(cell.clean)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    plain = {
        "version": VERSION,
        "facts": dataclasses.asdict(cell.facts),
        "work": None if cell.work is None else dataclasses.asdict(cell.work),
        "ep_min_calls": cell.ep_min_calls,
        "traces": str(cell.traces),
        "address": dataclasses.asdict(address),
        "log_sha256": sha256_hex(log_bytes(cell.episodes)),
        "sha256": {name: sha256_hex(data) for name, data in files.items()},
    }
    draft = folder / f".{CELL_FILE}"
    draft.write_text(json.dumps(plain, sort_keys=True, allow_nan=False), encoding="utf-8")
    draft.replace(folder / CELL_FILE)


def waiting(root: Path) -> list[Path]:
    """Folders under a root that hold a played cell, clean passes first."""
    found = [path.parent for path in sorted((root / "journal").glob(f"*/{CELL_FILE}"))]
    return sorted(found, key=lambda folder: (folder / _CLEAN_FILE).exists())


def unfinished(root: Path) -> list[Path]:
    """Folders under a root whose cell was begun and not played to its end."""
    return [
        path.parent
        for path in sorted((root / "journal").glob(f"*/{JOURNAL_FILE}"))
        if not path.with_name(CELL_FILE).exists()
    ]


def read_parcel(folder: Path) -> Parcel:
    """Read a played cell back.

    Raises
    ------
    LogError
        It is damaged, or of another version.
    """
    path = folder / CELL_FILE
    try:
        plain = json.loads(path.read_bytes())
        if plain["version"] != VERSION:
            raise LogError(
                f"version {plain['version']!r}, but this qfr reads version {VERSION}",
                where=str(path),
                hint="log it with the qfr version that played it",
            )
        data = {name: (folder / name).read_bytes() for name in plain["sha256"]}
        for name, digest in plain["sha256"].items():
            if sha256_hex(data[name]) != digest:
                raise LogError("changed after the cell was played", where=str(folder / name))
        return Parcel(folder, Address(**plain["address"]), _cell(folder, plain, data))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(
            f"this played cell cannot be read ({error})",
            where=str(path),
            hint="delete the file; the same run command goes on from the journal beside it",
        ) from None


def log_played(store: Store, cell: FinishedCell, who: Claimant) -> str:
    """Log a cell that was played while MLflow was away. May be repeated.

    Returns
    -------
    str
        Id of its run: a new or resumed one, or the finished one that has the very same log already. Beside a
        finished run with another log it stands as a second one, which raises the determinism alarm.

    Raises
    ------
    StoreAway
        The store does not answer, or another live process has the cell.
    """
    facts = cell.facts
    for _ in range(_LOOKS):
        ref = find_finished(store, [facts.cell_id], registration=facts.registration or None).get(
            facts.cell_id
        )
        if ref is not None and ref.log_sha256 == sha256_hex(log_bytes(cell.episodes)):
            return ref.run_id
        sweep = sweep_run(store, facts.sweep)
        if ref is not None:
            handle = start_cell(store, facts, sweep, more_tags=who.me.tags)
        else:
            got = take_cell(store, facts, sweep, who)
            if isinstance(got, Held):
                if got.who:
                    raise StoreAway(f"another process has this cell: {got.who}", where=store.shown)
                continue
            handle = got.handle
        finish_cell(store, handle, cell)
        drop_strays(store, facts.cell_id, handle.run_id, who)
        return handle.run_id
    raise StoreAway("other processes finish this cell time and again", where=store.shown)


def _cell(folder: Path, plain: Any, data: dict[str, bytes]) -> FinishedCell:
    facts = _build(CellFacts, plain["facts"])
    episodes = read_log((folder / JOURNAL_FILE).read_bytes(), where=str(folder / JOURNAL_FILE))
    if sha256_hex(log_bytes(episodes)) != plain["log_sha256"]:
        raise LogError("changed after the cell was played", where=str(folder / JOURNAL_FILE))
    clean: tuple[Episode, ...] = episodes
    if facts.fault != FaultKind.none:
        clean = read_log(data[_CLEAN_FILE], where=str(folder / _CLEAN_FILE))
    timing = folder / TIMING_FILE
    return FinishedCell(
        facts=facts,
        episodes=episodes,
        clean=clean,
        work=None if plain["work"] is None else _build(Work, plain["work"]),
        prompt=data["prompt.md"],
        suite=data["suite.json"],
        config_yaml=data["config.yaml"].decode("utf-8"),
        timing=timing.read_bytes() if timing.exists() else b"",
        ep_min_calls=int(plain["ep_min_calls"]),
        traces=Traces(plain["traces"]),
    )


def _build(kind: type[T], raw: Any) -> T:
    names = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    if unknown := set(raw) - set(names):
        raise ValueError(f"{kind.__name__} does not know {sorted(unknown)[0]!r}")
    for name, value in raw.items():
        if type(value) not in _KINDS[names[name]]:
            raise TypeError(f"{kind.__name__}.{name} is not of type {names[name]}")
    return kind(**raw)


def _contents(cell: FinishedCell) -> tuple[bytes, bytes, bytes]:
    return cell.prompt, cell.suite, cell.config_yaml.encode("utf-8")
