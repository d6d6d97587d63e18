"""Memory that a process holds on NVIDIA GPUs, as the driver's own tool tells it."""

from __future__ import annotations

import subprocess

# Seconds after which the tool's answer is not waited for any longer: a metric must not stop a run.
_PATIENCE = 10.0
_MIB = 1 << 20


def process_bytes(pid: int) -> int | None:
    """GPU memory of a process in bytes, over all GPUs.

    Where the tool does not tell processes apart (a container sees other process ids than the driver) it is
    what all processes hold together on the GPUs that it lists; None where there is no such tool or no GPU.
    """
    apps = _ask("--query-compute-apps=pid,used_memory")
    own = [int(used) for app, used in apps if app == str(pid) and used.isdigit()]
    if own:
        return sum(own) * _MIB
    all_used = [int(used) for _, used in _ask("--query-gpu=index,memory.used") if used.isdigit()]
    return sum(all_used) * _MIB if all_used else None


def _ask(query: str) -> list[tuple[str, str]]:
    """Rows of two columns that nvidia-smi answers with; none where it is missing or fails."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (FileNotFoundError, PermissionError, subprocess.SubprocessError):
        return []
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) == 2]
