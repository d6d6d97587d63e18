"""Time and memory as tasks grow, and the share of overhead on a slower model.

    python -m benchmarks.tasks --out benchmarks/tasks.svg

Each size is one whole `run.py` of one preset and prompt with transient faults in a store of its own: with the
scripted engine, where everything is overhead, and with a reference agent. The curve shows seconds and memory
per task; linear growth is a level line. The overhead of a model a hundred times slower is what the agent's
runs cost outside `llama_decode`, against a hundred times their time inside.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.composing import make_job
from benchmarks.processes import run
from benchmarks.sweeping import read_sweep, share_files
from benchmarks.tasks_curve import Point, curve

_SLOWER = 100


def measure(model: str, suite: str, tasks: int, kept: Path) -> Point:
    """One size."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        share_files(root, kept)
        command = [sys.executable, "-m", "qfr", "run", f"model={model}", f"suite={suite}", "quant=q8_0"]
        command += [f"suite.families.base={tasks // 2}", f"suite.families.shipping={tasks - tasks // 2}"]
        command += ["prompt=P0", "fault=et", f"tracking.root={root}", f"hydra.sweep.dir={root}/multirun"]
        ran = run(command, log=Path(folder) / "log")
        swept = read_sweep(root)
        left = sum(file.lstat().st_size for file in root.rglob("*") if not file.is_symlink())
    return Point(
        model=model,
        tasks=tasks,
        episodes=len(swept.outcomes),
        command_seconds=ran.seconds,
        cpu_seconds=ran.cpu_seconds,
        walk_seconds=swept.walk_seconds,
        engine_seconds=swept.engine_seconds,
        peak_bytes=ran.peak_bytes,
        store_bytes=left,
    )


def table(points: Sequence[Point]) -> str:
    """As Markdown."""
    head = "model | tasks | episodes | command, s | CPU, s | walk, s | engine, s | walk per task, ms | "
    head += f"peak, MB | store, MB | overhead of the walk | if {_SLOWER} x slower"
    lines = [f"| {head} |", "|" + "---|" * 12]
    for one in points:
        engine = one.engine_seconds > 0
        cells = [
            one.model,
            f"{one.tasks:,}",
            f"{one.episodes:,}",
            f"{one.command_seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.walk_seconds:.2f}",
            f"{one.engine_seconds:.2f}" if engine else "none",
            f"{1e3 * one.walk_seconds / one.tasks:.1f}",
            f"{one.peak_bytes / 1e6:.0f}",
            f"{one.store_bytes / 1e6:.1f}",
            f"{one.outside / one.walk_seconds:.1%}" if engine else "all",
            f"{one.slower(_SLOWER):.2%}" if engine else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", default="ref_llama")
    parser.add_argument("--suite", default="orders20_ref")
    parser.add_argument("--sizes", default="20,100,300,2000")
    parser.add_argument("--out", type=Path, help="SVG of the curve")
    parser.add_argument("--kept", type=Path, default=Path("mlruns"), help="store with the derived files")
    arguments = parser.parse_args()
    overrides = [f"model={arguments.agent}", f"suite={arguments.suite}", f"tracking.root={arguments.kept}"]
    make_job(overrides, ["q8_0"], ["P0"])  # Derives the file once.
    points = []
    for model in ("scripted", arguments.agent):
        for tasks in map(int, arguments.sizes.split(",")):
            points.append(measure(model, arguments.suite, tasks, arguments.kept))
            print(f"{model}, {tasks} tasks: {points[-1].command_seconds:.1f} s", file=sys.stderr, flush=True)
    print(table(points))
    if arguments.out is not None:
        arguments.out.write_text(curve(points), encoding="utf-8")


if __name__ == "__main__":
    main()
