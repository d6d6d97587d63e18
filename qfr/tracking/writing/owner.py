"""Which process a run belongs to, and whether that process still lives. Imports nothing heavy.

A run that says RUNNING may belong to a process that was killed. On the same machine the process's id and
start time decide, and for runs under the same root the lock of the walk. Of a process on another machine
nothing can be asked: its heartbeat decides.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qfr.canonical import canonical, sha256_hex

HEARTBEAT = "qfr.heartbeat"
# Of `stale_after`: so many signs of life may be missed.
BEATS = 10
_DOMAIN_FILE = "domain"
_START_FIELD = 19
# Of /proc/PID/stat behind the name in brackets: field 22 of the manual.


@dataclass(frozen=True)
class Owner:
    """A process, told from every other one."""

    host: str
    machine: str
    # Boot and process-id namespace: where an id means the same process. Empty where the system does not say.
    pid: int
    started: int
    # Clock ticks from boot to the process's start; tells it from a later process of the same id.
    domain: str
    # Id of the root whose locks it uses.

    @property
    def key(self) -> str:
        """Short name, for tags."""
        return sha256_hex(canonical(dataclasses.asdict(self)).encode("ascii"))[:10]

    @property
    def tags(self) -> dict[str, str]:
        """As tags of a run, the heartbeat included."""
        return {
            "qfr.host": self.host,
            "qfr.machine": self.machine,
            "qfr.pid": str(self.pid),
            "qfr.pid_started": str(self.started),
            "qfr.lock_domain": self.domain,
            HEARTBEAT: beat(),
        }

    @property
    def shown(self) -> str:
        """`process 4711 on gpu-1`."""
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class Verdict:
    """Whether a run's process lives."""

    alive: bool
    own: bool
    # It is this very process.
    who: str
    # `process 4711 on gpu-1`.
    why: str
    # `which ended`, `last sign of life 8 s ago`.


def source_tags(commit: str) -> dict[str, str]:
    """The tags by which MLflow's own pages say who ran what: user, source, and the commit of the checkout."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A process without a name in the system's list of users, as in some containers.
        user = f"uid {os.getuid()}"
    tags = {"mlflow.user": user, "mlflow.source.name": "qfr", "mlflow.source.type": "LOCAL"}
    return tags | ({"mlflow.source.git.commit": commit} if commit else {})


def this_process(root: Path) -> Owner:
    """The running process, using the locks under `root` (which exists)."""
    pid = os.getpid()
    return Owner(socket.gethostname(), _machine(), pid, start_of(pid) or 0, _domain(root))


def beat() -> str:
    """A heartbeat: seconds since 1970."""
    return f"{time.time():.3f}"


def owner_of(tags: Mapping[str, str]) -> Owner | None:
    """The process that a run's tags name; None where they name none."""
    if not tags.get("qfr.pid", "").isdigit():
        return None
    started = tags.get("qfr.pid_started", "")
    return Owner(
        host=tags.get("qfr.host", ""),
        machine=tags.get("qfr.machine", ""),
        pid=int(tags["qfr.pid"]),
        started=int(started) if started.isdigit() else 0,
        domain=tags.get("qfr.lock_domain", ""),
    )


def verdict(
    run_id: str, tags: Mapping[str, str], run_started: float, me: Owner, *, stale_after: float, locked: bool
) -> Verdict:
    """Judge the process of a run that says RUNNING.

    Parameters
    ----------
    run_id : str
    tags : mapping
        Of the run.
    run_started : float
        Its start in seconds since 1970.
    me : Owner
        This process.
    stale_after : float
        Seconds without a sign of life after which a process on another machine counts as dead.
    locked : bool
        This process holds the lock of the run's walk, so no other one of its domain can play it.
    """
    owner = owner_of(tags)
    if owner is None:
        return Verdict(False, False, "an unknown process", "which left no name")
    if owner == me:
        return Verdict(False, True, owner.shown, "this process")
    if (owner.machine and owner.machine == me.machine) or (not owner.machine and owner.host == me.host):
        if locked and owner.domain and owner.domain == me.domain:
            return Verdict(False, False, owner.shown, "which let go of it")
        lives = _lives(owner, run_started)
        return Verdict(lives, False, owner.shown, "which runs" if lives else "which ended")
    return _by_heartbeat(run_id, tags, owner, run_started, stale_after)


# Heartbeats of other machines as they were first seen: (heartbeat, seconds of the own clock).
_SEEN: dict[tuple[Owner, str], tuple[str, float]] = {}


def _by_heartbeat(
    run_id: str, tags: Mapping[str, str], owner: Owner, run_started: float, stale_after: float
) -> Verdict:
    text = tags.get(HEARTBEAT, "")
    try:
        age = time.time() - float(text or run_started)
    except ValueError:
        age = time.time() - run_started
    now = time.monotonic()
    seen, since = _SEEN.setdefault((owner, run_id), (text, now))
    if seen != text:
        _SEEN[owner, run_id] = (text, now)
    elif now - since > stale_after:
        # Clocks of two machines may differ: a heartbeat that stood still that long is none, whatever it says.
        age = max(age, now - since)
    stale = age > stale_after
    limit = f", more than {span(stale_after)}" if stale else ""
    return Verdict(not stale, False, owner.shown, f"last sign of life {span(max(age, 0.0))} ago{limit}")


def _lives(owner: Owner, run_started: float) -> bool:
    started = start_of(owner.pid)
    if started is None:
        return False
    if owner.started:
        return started == owner.started
    # A run of before start times were kept: a process that began later is another one.
    try:
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return True
    return boot + started / os.sysconf("SC_CLK_TCK") <= run_started + 1.0


def start_of(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return _asked_by_signal(pid)
    return None if fields[0] in ("Z", "X") else int(fields[_START_FIELD])


def _asked_by_signal(pid: int) -> int | None:
    """Without /proc: whether there is such a process, as a start of 0."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


def span(seconds: float) -> str:
    """`8 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:13]}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _domain(root: Path) -> str:
    """Random id of a root, made once. Whoever reads the same id uses the same locks."""
    path = root / "locks" / _DOMAIN_FILE
    draft = path.with_name(f".{_DOMAIN_FILE}.{os.getpid()}")
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(secrets.token_hex(8))
            with suppress(FileExistsError):
                path.hardlink_to(draft)
            draft.unlink()
        return path.read_text().strip()
    except OSError:
        # On a full disk no id can be made: then only processes themselves are compared.
        return ""
