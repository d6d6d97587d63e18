"""PostgreSQL and an MLflow server as the shared store: several workers, the server killed in the middle.

    python -m tests.chaos.postgres [--tasks 20] [--folder DIR]

Starts PostgreSQL (a system package) and `mlflow server` on loopback, runs a grid of the reference agent with
`hydra/launcher=joblib` against them, kills the server while cells are played and starts it again. The logs
have to be, byte for byte, those of a run that logs to SQLite. Prints the figures of docs/cluster.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.services import Missing, environment, mlflow_server, postgres, until
from tests.chaos.slurm import Place, start

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="per family of the suite")
    parser.add_argument("--folder", type=Path, help="scratch folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qfr-postgres-") as scratch:
        try:
            return check(arguments.folder or Path(scratch), arguments.tasks)
        except Missing as error:
            print(error)
            return 2


def check(folder: Path, tasks: int) -> int:
    grid = [
        "quant=f16,q4_k_m",
        "prompt=P0,P4",
        f"suite.families={{base: {tasks}, shipping: {tasks}}}",
        *JOBLIB,
    ]
    plain, shared = Place(folder / "plain", None), folder / "shared"
    plain.folder.mkdir(parents=True)
    shared.mkdir()
    took = run(plain, grid)
    print(f"SQLite: {len(plain.logs())} runs in {took:.0f} s", flush=True)
    (folder / "services").mkdir()
    with postgres(folder / "services" / "postgres") as database:
        with mlflow_server(folder / "services", database) as url:
            place = Place(shared, url)
            process = start(place, grid, shared / "sweep.log", environment())
            until("some episodes", lambda: place.episodes() > 20, 300)
            kept = place.episodes()
        # The server is gone now, in the middle; the cells go on into their journals.
        print(f"the server was ended with {kept} episodes in the journals", flush=True)
        time.sleep(5)
        with mlflow_server(folder / "services", database) as url:
            code = process.wait(1200)
            print(f"without its server the sweep ended with exit code {code}", flush=True)
            place = Place(shared, url)
            took = run(place, grid)
            logs = place.logs()
            same = logs == plain.logs()
            again = run(place, grid)
    print(f"the same command against the server again: {took:.0f} s, {len(logs)} runs")
    print(f"logs byte for byte those of SQLite: {'yes' if same else 'NO'}")
    print(f"once more, everything skipped: {again:.0f} s")
    return 0 if same else 1


def run(place: Place, grid: list[str]) -> float:
    """Run a sweep to its end; the seconds that it took."""
    began = time.monotonic()
    process: subprocess.Popen[bytes] = start(place, grid, place.folder / "sweep.log", environment())
    code = process.wait(2400)
    assert code == 0, f"exit code {code}; see {place.folder / 'sweep.log'}"
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
