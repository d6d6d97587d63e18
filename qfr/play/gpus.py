"""One GPU for each process that loads a model, of those that the configuration deals out.

Workers of one machine do not know each other. Each holds a file lock on its device for as long as it lives,
so a device is free again however its process ended.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import filelock

from qfr.errors import EngineError

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_SECONDS = 600.0
# Another worker may still be closing its model.

_HELD: dict[int, tuple[str, filelock.BaseFileLock]] = {}
# By process id: a forked child holds nothing of its parent's.


def take_gpu(gpus: Sequence[str], say: Callable[[str], None], folder: Path | None = None) -> str | None:
    """Take one of the devices for this process, once, and show its children that one alone.

    Parameters
    ----------
    gpus : sequence of str
        As in CUDA_VISIBLE_DEVICES: numbers or UUIDs; empty = nothing is dealt out. A device that stands
        there twice serves two processes.
    say : callable
        Takes a line for the user when this process has to wait.
    folder : Path or None
        Of the locks; None = this user's on this machine.

    Returns
    -------
    str or None
        The device; None when nothing is dealt out.

    Raises
    ------
    EngineError
        All are taken for minutes: there are more workers than devices.
    """
    if not gpus:
        return None
    held = _HELD.get(os.getpid())
    if held is not None and held[0] in gpus:
        return held[0]
    folder = folder or Path(tempfile.gettempdir()) / f"qfr-gpus-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    device, lock = _first_free(gpus, folder) or _wait(gpus, folder, say)
    _HELD[os.getpid()] = (device, lock)
    os.environ[_VARIABLE] = device
    return device


def _slots(gpus: Sequence[str], folder: Path) -> list[tuple[str, filelock.BaseFileLock]]:
    """Each entry with a lock of its own; the second of one device has another than the first."""
    slots: list[tuple[str, filelock.BaseFileLock]] = []
    for at, device in enumerate(gpus):
        nth = gpus[:at].count(device)
        name = re.sub(r"[^A-Za-z0-9-]", "_", device) + (f"+{nth}" if nth else "")
        slots.append((device, filelock.FileLock(folder / f"{name}.lock")))
    return slots


def _first_free(gpus: Sequence[str], folder: Path) -> tuple[str, filelock.BaseFileLock] | None:
    for device, lock in _slots(gpus, folder):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            continue
        return device, lock
    return None


def _wait(gpus: Sequence[str], folder: Path, say: Callable[[str], None]) -> tuple[str, filelock.BaseFileLock]:
    say(f"all of engine.gpus=[{','.join(gpus)}] are taken by other workers; waiting for one")
    device, lock = _slots(gpus, folder)[0]
    try:
        lock.acquire(timeout=_SECONDS, poll_interval=1.0)
    except filelock.Timeout:
        raise EngineError(
            f"all of engine.gpus=[{','.join(gpus)}] are taken by other processes",
            hint="give the launcher as many workers as there are devices; [0,0] lets two share one",
        ) from None
    return device, lock
