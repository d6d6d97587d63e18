"""`run.py` as one of the ways: run in a store of its own, then read back what that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlflow.entities import Run

from benchmarks.job import Cell, Outcome, outcome
from qfr.tracking.reading.cells import read_finished
from qfr.tracking.reading.search import find_finished, search
from qfr.tracking.store import Store, open_store


@dataclass(frozen=True)
class Swept:
    """What a sweep's store says of it."""

    walk_seconds: float
    # Sum over walks, from the start of their runs to the end: journal and MLflow included, loading left out.
    engine_seconds: float
    # In `llama_decode`.
    evaluated: int
    generated: int
    tree: int
    # Tokens of the segment tree.
    trie: int
    # Tokens of the finer token trie.
    decode_rate: float | None
    # Tokens written per second of decoding, of the last walk; None without any.
    device_bytes: float | None
    # GPU memory of the engine's process; None without one.
    outcomes: tuple[Outcome, ...]


def share_files(root: Path, kept: Path) -> None:
    """Give a new store what another one has learnt: derived model files, and which forks are exact."""
    root.mkdir(parents=True)
    for name in ("models", "exactness"):
        (kept / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to((kept / name).resolve())


def read_sweep(root: Path) -> Swept:
    """All walks in a store."""
    store = open_store(None, root, "qfr")
    walks: dict[str, list[Run]] = {}
    for run in search(store, "tags.`qfr.kind` = 'cell'"):
        walks.setdefault(run.data.tags["qfr.clean_id"], []).append(run)
    walk_ms, engine, totals = 0, 0.0, [0.0, 0.0, 0.0, 0.0]
    rate: float | None = None
    device: float | None = None
    for runs in walks.values():
        walk_ms += max(run.info.end_time for run in runs) - min(run.info.start_time for run in runs)
        work = runs[0].data.metrics
        engine += work["work.engine_seconds"]
        rate = work.get("work.decode_tokens_per_second", rate)
        device = work.get("work.device_memory_bytes", device)
        for at, name in enumerate(("evaluated", "generated", "tree", "trie")):
            totals[at] += work[f"work.tokens_{name}"]
    evaluated, generated, tree, trie = (int(total) for total in totals)
    outcomes = tuple(_outcomes(store, [run for runs in walks.values() for run in runs]))
    return Swept(walk_ms / 1e3, engine, evaluated, generated, tree, trie, rate, device, outcomes)


def _outcomes(store: Store, runs: Sequence[Run]) -> list[Outcome]:
    cells = [run.data.tags["qfr.cell_id"] for run in runs]
    found: list[Outcome] = []
    for run, ref in zip(runs, (find_finished(store, [cell])[cell] for cell in cells), strict=True):
        params = run.data.params
        cell = Cell(params["quant"], params["prompt"], "", "")
        found += [outcome(cell, episode) for episode in read_finished(store, ref)]
    return found
