"""Child processes of our own interpreter: how they are started and how their end is told.

`multiprocessing` would import the parent's main module into each child; here a child runs one module of
ours and nothing else, under any front end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

_LOG_BYTES = 1 << 18
_LOG_LINES = 20


def command(module: str, *arguments: str) -> list[str]:
    """Command line that runs one of our modules in a child."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Environment for a child that finds the modules that this process finds."""
    inherited = dict(os.environ)
    inherited["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    # llama.cpp's abort would otherwise start a debugger to print a backtrace.
    inherited["GGML_NO_BACKTRACE"] = "1"
    # At each barrier OpenMP's threads spin for milliseconds before they sleep. Where another process wants
    # the same cores, that made two threads thirty times slower than with this bound; it changes no bit.
    if "OMP_WAIT_POLICY" not in inherited:
        inherited.setdefault("GOMP_SPINCOUNT", "10000")
    return inherited


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    # The kernel gives no other sign of it.
    return name + (", as when memory runs out" if name == "SIGKILL" else "")


def last_lines(log: bytes, count: int = _LOG_LINES) -> str:
    """The last lines of a log that tell something."""
    lines = log.decode("utf-8", "replace").splitlines()
    telling = [line for line in lines if line.strip() and not line.startswith("Extension modules:")]
    return "\n".join(telling[-count:])


class BoundedLog:
    """Appends to a file that starts over when it has grown too long."""

    def __init__(self, descriptor: int, limit: int = _LOG_BYTES) -> None:
        self._descriptor, self._limit, self._written = descriptor, limit, 0

    def write(self, text: str) -> None:
        """Append a text."""
        data = text.encode("utf-8", "replace")
        if self._written + len(data) > self._limit:
            os.ftruncate(self._descriptor, 0)
            self._written = 0
        self._written += os.write(self._descriptor, data)


def outlive_signals_not_parent(parent: int) -> None:
    """Leave Ctrl-C and SIGTERM to the parent, and end when it is gone, however it went.

    Terminals and batch systems signal the whole process group: the parent decides what becomes of the child.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()
