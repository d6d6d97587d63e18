"""Runs a command and measures it: wall time, and the resident memory of all its processes together."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Seconds between two looks at the memory.
_EVERY = 0.2


@dataclass(frozen=True)
class Ran:
    """A command that ended well."""

    seconds: float
    # Wall time.
    cpu_seconds: float
    # User and system time of all its processes that were waited for.
    peak_bytes: int
    # Resident, summed over its processes at one moment, at most; shared pages count in each.


def run(command: Sequence[str], extra: Mapping[str, str] | None = None, log: Path | None = None) -> Ran:
    """Run a command to its end. Exits with its last lines when it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **(extra or {})}
    log = log or Path(os.devnull)
    with log.open("wb") as stream:
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
        peak, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(_EVERY):
                peak[0] = max(peak[0], tree_bytes(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        over.set()
        watcher.join()
    if code:
        tail = log.read_text("utf-8", "replace")[-4000:] if log.is_file() else ""
        sys.exit(f"{' '.join(command)}\nended with {code}\n{tail}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Ran(seconds, busy, peak[0])


def cpu_of(pid: int) -> float:
    """User and system seconds of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree_bytes(root: int) -> int:
    """Resident bytes of a process and all below it."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            status = (folder / "status").read_text("ascii", "replace")
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        parents[int(folder.name)] = int(fields["PPid"])
        sizes[int(folder.name)] = 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
    below = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            return sum(sizes.get(pid, 0) for pid in below)
        below |= more
