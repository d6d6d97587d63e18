"""SHA-256 of model files, computed once and remembered by path, size and modification time."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from qfr.engine.header import check_readable
from qfr.engine.parts import parts_of, total_bytes
from qfr.errors import ModelFileError

Progress = Callable[[str, int, int], None]
# Called with what is being done, bytes done and bytes in all.

_CHUNK = 1 << 22


def digest(path: Path, cache_dir: Path, progress: Progress | None = None) -> str:
    """SHA-256 over all parts of a GGUF in order, remembered by path, size and modification time."""
    parts = parts_of(path)
    stamps = [f"{part.resolve()} {check_readable(part)} bytes {part.stat().st_mtime_ns} ns" for part in parts]
    name = hashlib.sha256(json.dumps(str(parts[0].resolve())).encode("utf-8", "surrogatepass")).hexdigest()
    memory = cache_dir / "digests" / f"{name[:32]}.json"
    known = _recall(memory, stamps)
    if known is not None:
        return known
    running, done, total = hashlib.sha256(), 0, total_bytes(parts)
    for part in parts:
        with part.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                running.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(f"SHA-256 of {part.name}", done, total)
    value = running.hexdigest()
    write_atomically(memory, json.dumps({"files": stamps, "sha256": value}))
    return value


def _recall(memory: Path, stamps: list[str]) -> str | None:
    try:
        entry = json.loads(memory.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    known = entry.get("sha256") if isinstance(entry, dict) and entry.get("files") == stamps else None
    return known if isinstance(known, str) else None


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(temporary).replace(path)


def verify(path: Path, cache_dir: Path, pinned: str | None, progress: Progress | None = None) -> str:
    """Digest of a file, compared with the pinned one.

    Raises
    ------
    ModelFileError
        It is another file.
    """
    value = digest(path, cache_dir, progress)
    if pinned is not None and value != pinned:
        raise ModelFileError(
            f"has SHA-256 {value}, expected is {pinned}",
            where=str(path),
            hint="it is another file or was changed: delete it to fetch the pinned one, or change the pin",
        )
    return value
