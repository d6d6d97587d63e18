"""The aggregation of thousands of cells from a real MLflow store, on synthetic logs.

    python -m benchmarks.scale [--models 100] [--presets 10] [--prompts 5] [--tasks 20] [--reports 3]

Some cells are written by the tracking room; their runs are then copied under other models, presets and
prompts by SQL, and their artifacts linked, since only reading is measured. Every cell has a clean run and an
ET run. A fresh process then looks the designs up as a resumed sweep does, reads all cells back, and makes the
report of a few models; the report of all follows from theirs. Sizes of the store stand beside.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from qfr.canonical import digest
from qfr.choices import PRESET_BITS
from qfr.facts import CellFacts
from qfr.records import Episode, FaultKind
from qfr.report.content.build import build_report
from qfr.report.export import write_report
from qfr.tracking.environment import settle
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import finished_designs
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell
from tests.builders import build_cell_episodes, make_facts, make_suite, make_work

_TEMPLATES = 8
# Distinct logs that the cells share.
_TABLES = ("tags", "params", "latest_metrics", "metrics")
PRESETS = tuple(PRESET_BITS)


def write_templates(store: Store, tasks: int, seed: int) -> list[tuple[str, str]]:
    """(run of the clean pass, run of the ET cell) of each distinct log."""
    rng, written = Random(seed), []
    shapes = make_suite([2 if at % 2 else 3 for at in range(tasks)])
    for at in range(_TEMPLATES):
        table = [None if rng.random() < 0.1 else rng.randint(0, len(s.sites(FaultKind.et))) for s in shapes]
        clean, fault = (make_facts("m", "Q8_0", f"T{at}", kind) for kind in ("none", "et"))
        built = build_cell_episodes(table, shapes, clean_id=clean.cell_id, cell_id=fault.cell_id)
        runs = []
        for facts, episodes in ((clean, built.clean), (fault, built.faulted)):
            handle = start_cell(store, facts, None)
            finish_cell(store, handle, finished(facts, episodes, built.clean))
            runs.append(handle.run_id)
        written.append((runs[0], runs[1]))
    return written


def finished(facts: CellFacts, episodes: tuple[Episode, ...], clean: tuple[Episode, ...]) -> FinishedCell:
    return FinishedCell(
        facts=facts, episodes=episodes, clean=clean, work=make_work(), prompt=b"p", suite=b"{}",
        config_yaml="mode: run\n", timing=b"", ep_min_calls=2,
    )  # fmt: skip


def names_of(arguments: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(model, preset, prompt) of every cell."""
    return [
        (f"model{m:03}", PRESETS[q], f"P{p}")
        for m in range(arguments.models)
        for q in range(arguments.presets)
        for p in range(arguments.prompts)
    ]


def copy_cells(
    store: Store, templates: Sequence[tuple[str, str]], names: Sequence[tuple[str, str, str]]
) -> None:
    """A clean and an ET run for each name, as copies of the templates' runs."""
    root = store.root / "artifacts" / store.experiment
    with closing(sqlite3.connect(store.root / "mlflow.db")) as base:
        base.execute("PRAGMA synchronous=OFF")
        for at, (model, quant, prompt) in enumerate(names):
            clean_id = "c-" + digest([model, quant, prompt, "none"])[:16]
            for kind, source in zip(("none", "et"), templates[at % len(templates)], strict=True):
                run = digest([model, quant, prompt, kind])[:32]
                _copy(base, source, run)
                new = {
                    "qfr.cell_id": "c-" + digest([model, quant, prompt, kind])[:16], "qfr.clean_id": clean_id,
                    "qfr.design_id": "d-" + digest([model, quant, prompt, kind])[:16],
                    "qfr.model_sha256": digest([model, quant]), "qfr.prompt_sha256": digest(prompt),
                    "mlflow.runName": f"{model} {quant.lower()} {prompt} {kind}",
                }  # fmt: skip
                for key, value in new.items():
                    base.execute("UPDATE tags SET value=? WHERE run_uuid=? AND key=?", (value, run, key))
                for key, value in (("model", model), ("quant", quant), ("prompt", prompt)):
                    base.execute("UPDATE params SET value=? WHERE run_uuid=? AND key=?", (value, run, key))
                (root / run).mkdir()
                (root / run / "artifacts").symlink_to(root / source / "artifacts")
        base.commit()


def _copy(base: sqlite3.Connection, source: str, run: str) -> None:
    new = {"run_uuid": ":run", "artifact_uri": "replace(artifact_uri, :source, :run)"}
    for table in ("runs", *_TABLES):
        columns = [str(row[1]) for row in base.execute(f"PRAGMA table_info({table})")]
        chosen = ", ".join(new.get(name, name) for name in columns)
        base.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"SELECT {chosen} FROM {table} WHERE run_uuid = :source",
            {"run": run, "source": source},
        )


@dataclass
class Watch:
    """Wall and processor seconds between starts and stops."""

    wall: float = 0.0
    cpu: float = 0.0

    def start(self) -> None:
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()

    def stop(self) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()

    def took(self) -> str:
        return f"{self.wall:.1f} s (CPU {self.cpu:.1f} s)"


def measure(root: Path, arguments: argparse.Namespace) -> None:
    """Read everything back in this process and print what it took."""
    names, watch = names_of(arguments), Watch()
    store = open_store(None, root, "scale")
    watch.start()
    designs = ["d-" + digest([*name, "et"])[:16] for name in names]
    held = finished_designs(store, designs)
    watch.stop()
    assert len(held) == len(names)
    print(f"| look up {len(names):,} designs (resume) | {watch.took()} |", flush=True)
    watch = Watch()
    watch.start()
    reading = read_cells(store, condition="params.model != 'm'")
    watch.stop()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cells = [cell for cell in reading.cells if cell.facts.model != "m"]
    print(f"| read {len(cells):,} runs with their episodes | {watch.took()}, {peak:.2f} GB |", flush=True)
    report_models(cells, root, arguments.reports)


def report_models(cells: Sequence[LoggedCell], root: Path, count: int) -> None:
    """Make the reports of the first models, one after the other, and print what they took together."""
    made, wrote, size, most = Watch(), Watch(), 0.0, 0
    for model in range(count):
        mine = [cell for cell in cells if cell.facts.model == f"model{model:03}"]
        most = max(most, len(mine) // 2)
        made.start()
        built = build_report(mine)
        made.stop()
        wrote.start()
        size += write_report(built, root / f"report-{model}").page.stat().st_size / 1e6
        wrote.stop()
    if count:
        what = f"reports of {count} models ({most} cells each): compute; write"
        print(f"| {what} | {made.took()}; {wrote.took()}, pages {size:.1f} MB |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"| memory at most | {peak:.2f} GB |", flush=True)


def sizes(root: Path, runs: int) -> None:
    """Rows and bytes of the store."""
    database = root / "mlflow.db"
    with closing(sqlite3.connect(database)) as base:
        counts = {
            name: base.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("runs", *_TABLES)
        }
    per_run = ", ".join(
        f"{count / counts['runs']:.0f} {name}" for name, count in counts.items() if name != "runs"
    )
    print(f"| rows of the store | {sum(counts.values()):,}: per run {per_run} |")
    size = database.stat().st_size
    print(f"| database | {size / 1e6:.0f} MB, {size / runs / 1e3:.0f} kB per run |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--presets", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--reports", type=int, default=3, help="models whose report is made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, help="store that was written before (used by itself)")
    arguments = parser.parse_args()
    settle()
    if arguments.store is not None:
        measure(arguments.store, arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        root, names = Path(folder), names_of(arguments)
        store = open_store(None, root, "scale")
        started = time.perf_counter()
        templates = write_templates(store, arguments.tasks, arguments.seed)
        written = time.perf_counter() - started
        copying = Watch()
        copying.start()
        copy_cells(store, templates, names)
        copying.stop()
        runs = 2 * len(names)
        print(f"{len(names):,} cells of {arguments.tasks} tasks, {runs:,} runs; cores: {os.cpu_count()}\n")
        print("| what | measured |\n|---|---|")
        print(f"| write one run | {1000 * written / (2 * _TEMPLATES):.0f} ms |")
        print(f"| copy them to {runs:,} runs by SQL (not a user's cost) | {copying.took()} |")
        sizes(root, runs)
        files = [one for one in (root / "artifacts" / "scale" / templates[0][1]).rglob("*") if one.is_file()]
        size = sum(one.stat().st_size for one in files) / 1e3
        print(f"| artifacts of one ET run | {size:.0f} kB in {len(files)} files |", flush=True)
        again = [sys.executable, "-m", "benchmarks.scale", *sys.argv[1:], "--store", str(root)]
        subprocess.run(again, check=True)
        shutil.rmtree(root / "artifacts", ignore_errors=True)


if __name__ == "__main__":
    main()
