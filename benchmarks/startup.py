"""Start-up: how long commands take that play next to nothing, beside the imports that they need.

python -m benchmarks.startup                    the rehearsal (`experiment=smoke`)
python -m benchmarks.startup --demo             the demo too: it is played once first
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import run

RUN = str(Path(__file__).resolve().parent.parent / "run.py")
IMPORTS = (
    ("hydra and omegaconf", "import hydra, omegaconf"),
    ("mlflow", "import mlflow"),
    ("mlflow and its SQL store", "import mlflow.store.tracking.sqlalchemy_store"),
    ("scipy.stats", "import scipy.stats"),
)


def commands(folder: Path, number: int, demo: bool) -> list[tuple[str, list[str]]]:
    """What is timed in one round, in order: the later ones rest on what the earlier ones left."""
    fresh, kept = f"tracking.root={folder}/{number}", f"tracking.root={folder}/demo"
    rows = [(f"`import`: {what}", [sys.executable, "-c", line]) for what, line in IMPORTS]
    rows += [
        ("`qfr --help`", [sys.executable, "-m", "qfr", "--help"]),
        (
            "`experiment=smoke mode=plan`, no store",
            [sys.executable, RUN, "experiment=smoke", "mode=plan", fresh],
        ),
        ("`experiment=smoke`", [sys.executable, RUN, "experiment=smoke", fresh]),
        ("the same, nothing to do", [sys.executable, RUN, "experiment=smoke", fresh]),
        ("its `mode=plan`, with the store", [sys.executable, RUN, "experiment=smoke", "mode=plan", fresh]),
    ]
    again = [sys.executable, RUN, "experiment=demo", kept]
    return [*rows, ("`experiment=demo`, nothing to do", again)] if demo else rows


def main() -> None:
    """Time the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--demo", action="store_true", help="also the demo with nothing to do")
    arguments = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="qfr-startup-") as name:
        folder = Path(name)
        if arguments.demo:
            played = run([sys.executable, RUN, "experiment=demo", f"tracking.root={folder}/demo"])
            taken["`experiment=demo`, once"] = [(played.seconds, played.cpu_seconds)]
        for number in range(arguments.rounds):
            for what, command in commands(folder, number, arguments.demo):
                ran = run(command)
                taken.setdefault(what, []).append((ran.seconds, ran.cpu_seconds))
    print("| what | wall, s | CPU, s |\n|---|---|---|")
    for what, rows in taken.items():
        wall, cpu = (statistics.median(row[at] for row in rows) for at in (0, 1))
        print(f"| {what} | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
