"""A grid on a real one-node Slurm: preempted, killed, stopped at its time limit, and complete in the end.

    python -m tests.chaos.slurm [--tasks 30] [--folder DIR]

Starts munge, slurmctld and slurmd (system packages), PostgreSQL and an MLflow server on loopback, and runs
`hydra/launcher=submitit_slurm` against them. At the end the logs have to be, byte for byte, those of a run
without Slurm. Takes some minutes; prints the figures of docs/cluster.md. Exit code 0: all held.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.journal import log_bytes
from qfr.tracking.cells import read_episodes
from qfr.tracking.reader import read_cells
from qfr.tracking.store import open_store
from tests.chaos.services import ROOT, Missing, Slurm, environment, mlflow_server, postgres, slurm, until

GRID = ("model=ref_llama", "suite=orders20_ref", "fault=et", "report.transcripts=0")


@dataclass(frozen=True)
class Place:
    """Where one sweep runs."""

    folder: Path
    uri: str | None
    # Of the MLflow server; None = SQLite under the folder.

    @property
    def root(self) -> Path:
        return self.folder / "mlruns"

    def command(self, overrides: Sequence[str]) -> list[str]:
        where = [f"tracking.root={self.root}", f"hydra.sweep.dir={self.folder}/multirun/${{sweep}}"]
        where += [f"tracking.uri={self.uri}"] if self.uri else []
        return [sys.executable, str(ROOT / "run.py"), *GRID, *overrides, *where]

    def logs(self) -> dict[str, bytes]:
        """The log of each finished cell."""
        store = open_store(self.uri, self.root, "qfr")
        return {one.facts.name: log_bytes(read_episodes(store, one)) for one in read_cells(store).cells}

    def episodes(self) -> int:
        """Lines in the journals now."""
        return sum(path.read_bytes().count(b"\n") for path in self.root.glob("journal/*/journal.jsonl"))


def start(
    place: Place, overrides: Sequence[str], log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            place.command(overrides), cwd=place.folder, stdout=file, stderr=file, env=environment,
            start_new_session=True,
        )  # fmt: skip


def on_slurm(place: Place, minutes: int, delay: int) -> list[str]:
    return [
        "hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=null",
        f"hydra.launcher.timeout_min={minutes}", f"hydra.launcher.signal_delay_s={delay}",
        "hydra.launcher.array_parallelism=2", f"hydra.launcher.submitit_folder={place.folder}/submitit/%j",
    ]  # fmt: skip


def preempted_and_killed(cluster: Slurm, place: Place, grid: Sequence[str]) -> list[str]:
    """Preempt the sweep's tasks, kill one for good, interrupt the sweep, and give the command again."""
    log, told, began = place.folder / "sweep.log", [], time.monotonic()
    overrides = [*grid, *on_slurm(place, 60, 60)]
    process = start(place, overrides, log, dict(cluster.environment))
    until("two tasks at work", lambda: len(cluster.running()) == 2 and place.episodes() > 20, 300)
    cluster.ask("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap", "sleep 5")
    until("a preempted task", lambda: any(again for _, again in cluster.jobs().values()), 120)
    kept = place.episodes()
    told.append(f"an urgent job preempted the sweep's tasks; {kept} episodes stood in their journals")
    until("the tasks again", lambda: len(cluster.running()) == 2 and place.episodes() > kept, 420)
    victim = cluster.running()[0]
    kept = place.episodes()
    cluster.ask("scancel", "--signal=KILL", "--full", victim)
    until("the killed task's end", lambda: cluster.jobs()[victim][0] not in ("RUNNING", "COMPLETING"), 120)
    told.append(f"task {victim} was killed for good ({cluster.jobs()[victim][0]}); {kept} episodes were kept")
    os.kill(process.pid, signal.SIGINT)
    code = process.wait(120)
    assert code == 130, f"interrupted: exit code {code}"
    again = start(place, overrides, log, dict(cluster.environment))
    code = again.wait(1800)
    assert code == 0, f"the same command again: exit code {code}; see {log}"
    restarts = sum(count for _, count in cluster.jobs().values())
    told.append(f"{restarts} requeues; the same command again ended with exit code 0")
    told.append(f"{time.monotonic() - began:.0f} s from the first command to the report")
    return told


def stopped_at_its_limit(cluster: Slurm, place: Place, tasks: int) -> list[str]:
    """One walk that takes longer than its time limit is put back by itself until it is through."""
    log, began = place.folder / "limit.log", time.monotonic()
    grid = ["quant=f16", "prompt=P1", f"suite.families={{base: {tasks}, shipping: {tasks}}}"]
    # One minute is the shortest limit of Slurm; the signal comes 45 seconds before it.
    process = start(place, [*grid, *on_slurm(place, 1, 45)], log, dict(cluster.environment))
    code = process.wait(1800)
    assert code == 0, f"exit code {code}; see {log}"
    restarts = max(count for _, count in cluster.jobs().values())
    return [
        f"a walk of {7 * tasks} episodes with a limit of one minute was put back {restarts} times and "
        f"finished after {time.monotonic() - began:.0f} s"
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=30, help="per family of the suite")
    parser.add_argument(
        "--limit-tasks", type=int, default=150, help="per family, for the time limit; 0 = leave out"
    )
    parser.add_argument("--folder", type=Path, help="scratch folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qfr-slurm-") as scratch:
        try:
            return check(arguments.folder or Path(scratch), arguments.tasks, arguments.limit_tasks)
        except Missing as error:
            print(error)
            return 2


def check(folder: Path, tasks: int, limit_tasks: int) -> int:
    grid = ["quant=f16,q8_0,q4_k_m", "prompt=P0,P4", f"suite.families={{base: {tasks}, shipping: {tasks}}}"]
    plain = Place(folder / "plain", None)
    plain.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # In a folder that was kept, its finished cells are skipped.
    code = start(plain, grid, plain.folder / "sweep.log", environment()).wait(3600)
    assert code == 0, f"without Slurm: exit code {code}"
    print(f"without Slurm: {len(plain.logs())} runs in {time.monotonic() - began:.0f} s", flush=True)
    (folder / "services").mkdir()
    with (
        postgres(folder / "services" / "postgres") as database,
        mlflow_server(folder / "services", database) as url,
        slurm(folder / "services" / "slurm", 2) as cluster,
    ):
        place = Place(folder / "slurm", url)
        place.folder.mkdir()
        for line in preempted_and_killed(cluster, place, grid):
            print(line, flush=True)
        same = place.logs() == plain.logs()
        print(
            f"{len(place.logs())} logs, byte for byte those without Slurm: {'yes' if same else 'NO'}",
            flush=True,
        )
        if limit_tasks:
            for line in stopped_at_its_limit(cluster, place, limit_tasks):
                print(line, flush=True)
    resumed = re.findall(r"resumes after (\d+) episodes", text_of(place.folder))
    print(f"cells that went on from their journal: {len(resumed)}")
    return 0 if same and resumed else 1


def text_of(folder: Path) -> str:
    files = [*folder.glob("*.log"), *folder.glob("submitit/*/*.out")]
    return "\n".join(path.read_text("utf-8", "replace") for path in files)


if __name__ == "__main__":
    sys.exit(main())
