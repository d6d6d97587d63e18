"""Tries once per combination of file, build, device and settings whether forks are exact; remembers it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from qfr.canonical import digest
from qfr.config import EngineConfig
from qfr.engine.base import EngineInfo, Exactness
from qfr.engine.worker import WorkerEngine
from qfr.identity import identity_fields

Say = Callable[[str], None]

FOLDER = "exactness"
# Of the trial: another one asks anew.
_VERSION = 1


def assure(
    engine: WorkerEngine, config: EngineConfig, root: Path, say: Say, *, anew: bool = False
) -> Exactness:
    """Make sure that the engine forks only where that leaves the very bits.

    Parameters
    ----------
    engine : WorkerEngine
        Just loaded. Where forks are not exact it evaluates every episode afresh from now on.
    config : EngineConfig
        What it was loaded with.
    root : Path
        Folder of the store; what the trial showed is kept in a file below it.
    say : callable
        Takes a line about a trial that was made.
    anew : bool
        Try it even where an earlier trial is remembered.

    Raises
    ------
    EngineError
        The trial broke.
    WorkerDied
        The engine's process ended.
    """
    place = root / FOLDER / f"{combination(engine.info, config)}.json"
    found = None if anew else _read(place)
    if found is None:
        found = engine.examine()
        problem = _write(place, found, engine.info)
        say(f"{told(found)} ({found.turns} turns compared in {found.seconds:.1f} s)")
        if problem:
            say(f"this is not remembered: {problem}")
    if engine.info.rewind and not found.exact:
        engine.evaluate_afresh()
    engine.note(told(found))
    return found


def told(found: Exactness) -> str:
    """What a trial showed, in one line."""
    if found.exact:
        return "forks are bit-equal to fresh evaluation"
    if not found.turns:
        return f"every episode is evaluated afresh: {found.difference}"
    return f"forks are NOT bit-equal ({found.difference}): every episode is evaluated afresh"


def combination(info: EngineInfo, config: EngineConfig) -> str:
    """24 hexadecimal digits that stand for file, build, device and settings."""
    settings = {key: value for key, value in identity_fields(config).items() if not key.startswith("server.")}
    parts = {
        "version": _VERSION,
        "model_sha256": info.model_sha256,
        "library_sha256": info.library_sha256,
        "system_info": info.system_info,
        "device": info.device,
        "offloaded_layers": info.offloaded_layers,
        "n_ctx": info.n_ctx,
        "settings": settings,
    }
    return digest(parts)[:24]


def _read(place: Path) -> Exactness | None:
    """What was remembered; None where nothing is, or nothing that can be read: then it is tried again."""
    try:
        raw = json.loads(place.read_text("utf-8"))
        found = Exactness(
            bool(raw["exact"]), int(raw["turns"]), str(raw["difference"]), float(raw["seconds"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found


def _write(place: Path, found: Exactness, info: EngineInfo) -> str:
    """Remember it; what kept it from being remembered, "" for nothing."""
    about = {
        "model_sha256": info.model_sha256,
        "library_sha256": info.library_sha256,
        "device": info.device,
    }
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(dataclasses.asdict(found) | about, file, sort_keys=True, indent=1)
            Path(name).replace(place)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
    except OSError as error:
        return f"{error.filename or place}: {error.strerror}"
    return ""
