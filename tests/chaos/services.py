"""Services on loopback for the cluster checks: a one-node Slurm, PostgreSQL, an MLflow server.

Each stands in a scratch folder and is ended when its block ends. System packages:

    apt-get install slurmctld slurmd slurm-client munge postgresql
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


# Debian's packages of the programs that are looked for.
_PACKAGES = {
    "munged": "munge", "mungekey": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd",
    "sbatch": "slurm-client", "scontrol": "slurm-client", "runuser": "util-linux",
}  # fmt: skip


class Missing(Exception):
    """Something that the check needs is not there."""


def environment() -> dict[str, str]:
    """For sweeps: jobs on a cluster find this checkout, whether it is installed or not."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


def need(*programs: str) -> None:
    """See that programs are installed."""
    lacking = [name for name in programs if shutil.which(name, path=_path()) is None]
    if lacking:
        packages = sorted({_PACKAGES.get(name, "postgresql") for name in lacking})
        raise Missing(f"not installed: {', '.join(lacking)}. Debian: apt-get install {' '.join(packages)}")


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: str, true: Callable[[], bool], seconds: float = 60.0) -> float:
    """Wait until something holds; the seconds that it took. QFR_CHAOS_PATIENCE multiplies the limit."""
    seconds *= float(os.environ.get("QFR_CHAOS_PATIENCE", "1"))
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.2)
    return time.monotonic() - started


def _path() -> str:
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *map(str, postgres[-1:])])


def _program(name: str) -> str:
    found = shutil.which(name, path=_path())
    assert found is not None
    return found


@contextmanager
def started(
    arguments: Sequence[str], log: Path, more: Mapping[str, str] | None = None, end: int = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """A service in a process group of its own; ended by the signal `end`, then SIGKILL."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            arguments, stdout=file, stderr=file, env=os.environ | dict(more or {}), start_new_session=True
        )
    try:
        yield process
    finally:
        for how in (end, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
                break


# --- MLflow ------------------------------------------------------------------------------------------------


@contextmanager
def mlflow_server(
    folder: Path, store: str, port: int | None = None, end: int = signal.SIGTERM
) -> Iterator[str]:
    """An MLflow server over the database at the URI `store`, artifacts through the server; its address.

    At the port (None: a free one); ended by the signal `end`.
    """
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--backend-store-uri", store, "--artifacts-destination", (folder / "artifacts").as_uri()]
    arguments += ["--workers", "2"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with started(arguments, folder / "server.log", quiet, end) as process:

        def up() -> bool:
            assert process.poll() is None, (folder / "server.log").read_text("utf-8", "replace")[-2000:]
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5):
                    return True
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False

        until("the MLflow server", up, 240)
        yield url


# --- PostgreSQL --------------------------------------------------------------------------------------------


@contextmanager
def postgres(folder: Path, port: int | None = None, end: int = signal.SIGTERM) -> Iterator[str]:
    """A PostgreSQL server with a database `mlflow`, which is made when it is not there; its URI.

    At the port (None: a free one); ended by the signal `end`. Runs as the user `postgres` when we are root.
    """
    need("initdb", "postgres", "createdb", "pg_isready")
    data, port, root = folder / "pg", port or free_port(), os.getuid() == 0
    before = ["runuser", "-u", "postgres", "--"] if root else []
    new = not data.exists()
    if new:
        data.mkdir(parents=True)
        if root:
            shutil.chown(data, "postgres", "postgres")
            for part in (folder, *folder.parents):
                if part != Path("/") and not part.stat().st_mode & 0o001:
                    part.chmod(part.stat().st_mode | 0o011)
        make = [*before, _program("initdb"), "-D", str(data), "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd="/")
    server = [*before, _program("postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1"]
    with started([*server, "-k", str(data)], folder / "postgres.log", end=end):
        user = "postgres" if root else (os.environ.get("USER") or "postgres")
        there = ["-h", "127.0.0.1", "-p", str(port), "-U", user]
        ask = [_program("createdb"), *there, "mlflow"] if new else [_program("pg_isready"), *there]

        def up() -> bool:
            return subprocess.run([*before, *ask], capture_output=True, cwd="/").returncode == 0

        until("PostgreSQL", up, 60)
        # Without a driver in its name SQLAlchemy 2.1 asks for psycopg 3.
        yield f"postgresql+psycopg2://{user}@127.0.0.1:{port}/mlflow"


# --- Slurm -------------------------------------------------------------------------------------------------

_SLURM = """\
ClusterName=qfr
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
MinJobAge=86400
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10
"""

# submitit asks sacct, which needs an accounting database; here the controller itself answers.
_SACCT = """\
#!/bin/sh
echo "JobID|State|NodeList"
scontrol --oneliner show job | sed -nE \\
  -e 's/^JobId=([0-9]+) ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+) .*JobState=([A-Z_]+) .*/\\2_\\3|\\4|/p'
"""


@dataclass
class Slurm:
    """A running one-node Slurm."""

    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, *arguments: str) -> str:
        """Run one of Slurm's commands."""
        done = subprocess.run(
            arguments, env=dict(self.environment), capture_output=True, text=True, check=True
        )
        return done.stdout

    def jobs(self) -> dict[str, tuple[str, int]]:
        """Array tasks and jobs: id → (state, restarts)."""
        found: dict[str, tuple[str, int]] = {}
        for line in self.ask("scontrol", "--oneliner", "show", "job").splitlines():
            fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
            if "JobId" in fields:
                array = fields.get("ArrayJobId")
                name = f"{array}_{fields['ArrayTaskId']}" if array else fields["JobId"]
                found[name] = (fields["JobState"], int(fields.get("Restarts", "0")))
        return found

    def running(self) -> list[str]:
        return [name for name, (state, _) in self.jobs().items() if state == "RUNNING"]

    def end(self) -> None:
        """Cancel what waits and what runs, and wait until Slurm has killed it."""
        subprocess.run(["scancel", f"--user={os.getuid()}"], env=dict(self.environment), check=False)
        with contextlib.suppress(TimeoutError, subprocess.CalledProcessError):
            until("the end of Slurm's jobs", lambda: not self.ask("squeue", "--noheader"), 30)

    def requeues(self) -> int:
        """How often tasks and jobs were put back into the queue."""
        return sum(count for _, count in self.jobs().values())


@contextmanager
def slurm(folder: Path, cpus: int) -> Iterator[Slurm]:
    """A Slurm with one node of so many cores, two partitions, and requeueing preemption."""
    need("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "mungekey")
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    settings = _SLURM.format(
        host=socket.gethostname().partition(".")[0],
        user=os.environ.get("USER") or "root",
        control=free_port(),
        daemon=free_port(),
        folder=folder,
        cpus=cpus,
    )
    (folder / "slurm.conf").write_text(settings)
    shim = folder / "bin" / "sacct"
    shim.write_text(_SACCT)
    shim.chmod(0o755)
    subprocess.run([_program("mungekey"), "--create", "--keyfile", str(folder / "munge.key")], check=True)
    munge = [_program("munged"), "--foreground", "--force", f"--key-file={folder}/munge.key"]
    munge += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"]
    munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
    path = os.pathsep.join([str(folder / "bin"), _path()])
    settings_of = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
    found = Slurm(os.environ | {"PYTHONPATH": str(ROOT)} | settings_of)
    with contextlib.ExitStack() as stack:
        stack.enter_context(started(munge, folder / "munged.out"))
        until("munged", (folder / "munge.socket").exists, 30)
        for name in ("slurmctld", "slurmd"):
            stack.enter_context(started([_program(name), "-D"], folder / f"{name}.out", settings_of))

        def idle() -> bool:
            done = subprocess.run(
                ["sinfo", "-h", "-o", "%T"], env=dict(found.environment), capture_output=True, text=True
            )
            return "idle" in done.stdout

        until("the Slurm node", idle, 120)
        try:
            yield found
        finally:
            found.end()
