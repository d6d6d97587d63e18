"""A grid on a real one-node Slurm: preempted, killed, stopped at its time limit, and complete in the end.

    python -m tests.chaos.slurm [--tasks 30] [--limit-tasks 150] [--folder DIR]

Starts munge, slurmctld, slurmd and PostgreSQL (system packages) and an MLflow server on loopback, and runs
`hydra/launcher=submitit_slurm` against them. First half: an urgent job preempts the sweep's tasks, one task
is killed for good, the sweep is interrupted and the command given again. Second half: a walk takes longer
than its time limit. The logs have to be, byte for byte, those of a run without Slurm. A line for each fact;
exit code 0: all held.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.services import Slurm, mlflow_server, need, postgres, slurm, until
from tests.chaos.sweeps import Facts, Place, checked, grid_of, lines_of, packages, played_plain


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=30, help="per family of the suite")
    parser.add_argument("--limit-tasks", type=int, default=150, help="per family, for the time limit")
    parser.add_argument("--folder", type=Path, help="new folder, kept; left out = a temporary one")
    arguments = parser.parse_args()
    tasks, limit_tasks = arguments.tasks, arguments.limit_tasks
    return checked(lambda folder, facts: check(folder, tasks, limit_tasks, facts), arguments.folder)


def check(folder: Path, tasks: int, limit_tasks: int, facts: Facts) -> None:
    packages(hydra_plugins__hydra_submitit_launcher="qfr[slurm]", psycopg2="psycopg2-binary")
    need("munged", "slurmctld", "slurmd", "sbatch", "initdb", "postgres", "createdb", "pg_isready")
    grid, long = grid_of("f16,q8_0,q4_k_m", "P0,P4", tasks), grid_of("f16", "P1", limit_tasks)
    expected = played_plain(Place(folder / "plain"), grid, facts)
    expected_long = played_plain(Place(folder / "plain-long"), long, facts)
    services = folder / "services"
    services.mkdir()
    with (
        postgres(services / "postgres") as database,
        mlflow_server(services, database) as url,
        slurm(services / "slurm", 2) as cluster,
    ):
        place = Place(folder / "slurm", url, "preempted")
        preempted_and_killed(cluster, place, grid, facts)
        logs = place.logs()
        facts.check(f"{len(logs)} logs, one run each, byte for byte those without Slurm", logs == expected)
        place = Place(folder / "limit", url, "limit")
        stopped_at_its_limit(cluster, place, long, facts)
        logs = place.logs()
        facts.check(
            f"{len(logs)} logs, one run each, byte for byte those without Slurm", logs == expected_long
        )


def on_slurm(place: Place, minutes: int, delay: int) -> list[str]:
    return [
        "hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=null",
        f"hydra.launcher.timeout_min={minutes}", f"hydra.launcher.signal_delay_s={delay}",
        "hydra.launcher.array_parallelism=2", f"hydra.launcher.submitit_folder={place.folder}/submitit/%j",
    ]  # fmt: skip


def preempted_and_killed(cluster: Slurm, place: Place, grid: Sequence[str], facts: Facts) -> None:
    """Preempt the sweep's tasks, kill one for good, interrupt the sweep, and give the command again."""
    began, overrides = time.monotonic(), [*grid, *on_slurm(place, 60, 60)]
    sweep = place.start(overrides, cluster.environment)
    until("two tasks at work", lambda: len(cluster.running()) == 2 and place.episodes() > 20, 300)
    cluster.ask("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap", "sleep 5")
    until("preempted tasks", lambda: cluster.requeues() > 1, 120)
    facts.check(f"an urgent job preempted both tasks; their journals hold {place.episodes()} episodes", True)
    # Slurm lets what it put back wait for two minutes; the others play meanwhile.
    until("a task that goes on", lambda: bool(resumes(place)) and at_work(cluster, place) != "", 420)
    facts.check(f"put back by Slurm, cells went on after {', '.join(resumes(place))} episodes", True)
    victim, (journal, _) = at_work(cluster, place), place.newest()
    cluster.ask("scancel", "--signal=KILL", "--full", victim)
    until("the killed task's end", lambda: cluster.jobs()[victim][0] not in ("RUNNING", "COMPLETING"), 120)
    kept = lines_of(journal)
    state = cluster.jobs()[victim][0]
    facts.check(f"task {victim} was killed for good ({state}) with {kept} episodes of its cell", kept > 0)
    os.kill(sweep.pid, signal.SIGINT)
    code = sweep.wait(120)
    facts.check(f"Ctrl-C ended the waiting with exit code {code}", code == 130)
    before = len(resumes(place))
    code = place.start(overrides, cluster.environment).wait(1800)
    facts.check(f"the same command again ended with exit code {code}", code == 0)
    resumed = resumes(place)[before:]
    facts.check(
        f"cells went on after {', '.join(resumed) or 'no'} episodes, that of the killed task too; "
        f"{time.monotonic() - began:.0f} s from the first command to the report",
        str(kept) in resumed,
    )


def at_work(cluster: Slurm, place: Place) -> str:
    """The running task that wrote an episode last; empty when it does not run any more."""
    try:
        settings = Path(f"/proc/{place.newest()[1]}/environ").read_bytes().split(b"\0")
    except FileNotFoundError:
        return ""
    named = dict(part.decode().split("=", 1) for part in settings if part.startswith(b"SLURM_ARRAY_"))
    task = f"{named.get('SLURM_ARRAY_JOB_ID')}_{named.get('SLURM_ARRAY_TASK_ID')}"
    return task if task in cluster.running() else ""


def stopped_at_its_limit(cluster: Slurm, place: Place, grid: Sequence[str], facts: Facts) -> None:
    """A walk that takes longer than its time limit is put back by itself until it is through."""
    began, before = time.monotonic(), cluster.requeues()
    # One minute is the shortest limit of Slurm; the signal comes 45 seconds before it.
    code = place.start([*grid, *on_slurm(place, 1, 45)], cluster.environment).wait(1800)
    back, resumed = cluster.requeues() - before, resumes(place)
    facts.check(
        f"a walk with a limit of one minute was put back {back} times and ended with exit code {code} after "
        f"{time.monotonic() - began:.0f} s",
        code == 0 and back > 0,
    )
    facts.check(f"its cells went on after {', '.join(resumed) or 'no'} episodes", bool(resumed))


def resumes(place: Place) -> list[str]:
    """After how many episodes cells went on, as the tasks' logs say."""
    files = [place.log, *sorted(place.folder.glob("submitit/*/*.out"))]
    text = "\n".join(path.read_text("utf-8", "replace") for path in files)
    return re.findall(r"resumes after (\d+) episodes", text)


if __name__ == "__main__":
    sys.exit(main())
