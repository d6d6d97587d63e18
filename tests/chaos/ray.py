"""A grid on Ray on this machine: complete, equal to a run without Ray, and resumed after a worker was killed.

    python -m tests.chaos.ray [--tasks 20] [--folder DIR]

Needs the extra [ray] in this environment. Ray has no preemption of its own; `max_retries=0` in the preset
keeps it from playing a lost walk silently again. Prints the figures of docs/cluster.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.services import environment, until
from tests.chaos.slurm import Place, start

RAY = (
    "hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2", "hydra.launcher.ray.remote.num_cpus=1",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="per family of the suite")
    parser.add_argument("--folder", type=Path, help="scratch folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qfr-ray-") as scratch:
        return check(arguments.folder or Path(scratch), arguments.tasks)


def check(folder: Path, tasks: int) -> int:
    grid = ["quant=f16,q4_k_m", "prompt=P0,P4", f"suite.families={{base: {tasks}, shipping: {tasks}}}"]
    plain, place = Place(folder / "plain", None), Place(folder / "ray", None)
    for one in (plain, place):
        one.folder.mkdir(parents=True)
    code = start(plain, grid, plain.folder / "sweep.log", environment()).wait(2400)
    assert code == 0, f"without Ray: exit code {code}"
    began = time.monotonic()
    process = start(place, [*grid, *RAY], place.folder / "sweep.log", environment())
    until("some episodes", lambda: place.episodes() > 20, 600)
    worker = worker_of(place)
    os.kill(worker, signal.SIGKILL)
    code = process.wait(1200)
    print(f"a worker was killed: the sweep ended with exit code {code}", flush=True)
    text = (place.folder / "sweep.log").read_text("utf-8", "replace")
    assert code == 1, "a lost walk has to be told"
    assert "the launcher lost a worker or a job" in text, "it has to be said in words"
    code = start(place, [*grid, *RAY], place.folder / "sweep.log", environment()).wait(2400)
    took = time.monotonic() - began
    same = place.logs() == plain.logs()
    resumed = re.findall(r"resumes after \d+", (place.folder / "sweep.log").read_text("utf-8", "replace"))
    print(f"the same command again: exit code {code}, {len(resumed)} cells went on from their journals")
    print(
        f"{len(place.logs())} logs, byte for byte those without Ray: {'yes' if same else 'NO'}; {took:.0f} s"
    )
    return 0 if same and code == 0 and resumed else 1


def worker_of(place: Place) -> int:
    """The process that wrote an episode last."""
    newest = max(place.root.glob("journal/*/timing.jsonl"), key=lambda path: path.stat().st_mtime)
    found = re.findall(r'"pid":(\d+)', newest.read_text())
    return int(found[-1])


if __name__ == "__main__":
    sys.exit(main())
