"""SHA-256 of model files, computed once and remembered by path, size and times."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qfr.engine.files.header import check_readable
from qfr.engine.files.parts import parts_of, total_bytes
from qfr.errors import MachineryError, ModelFileError

Progress = Callable[[str, int, int], None]
# Called with what is being done, bytes done and bytes in all.

_CHUNK = 1 << 22


def digest(path: Path, cache_dir: Path, progress: Progress | None = None) -> str:
    """SHA-256 over all parts of a GGUF in order, remembered by path, size and times.

    The time of the last change of the file's state counts too: a modification time can be set back.
    """
    parts = parts_of(path)
    stamps = [_stamp(part) for part in parts]
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
    if stamps == [_stamp(part) for part in parts]:
        # Written to while it was read, it has no digest to be remembered.
        write_atomically(memory, json.dumps({"files": stamps, "sha256": value}))
    return value


@dataclass(frozen=True)
class Watched:
    """A model file as it was when it was loaded."""

    path: Path
    parts: tuple[tuple[int, int, int], ...]
    # (inode, bytes, modification time in nanoseconds) of each part.

    @classmethod
    def of(cls, path: Path) -> Watched:
        """The file as it is now."""
        return cls(path, tuple(_seen(part) for part in parts_of(path)))

    def check(self) -> None:
        """See that nobody has written to the loaded file. Removed or replaced, it stays as it was loaded.

        Raises
        ------
        MachineryError
            It was changed in place: what the engine reads of it now is another model.
        """
        for part, before in zip(parts_of(self.path), self.parts, strict=True):
            try:
                now = _seen(part)
            except FileNotFoundError:
                continue
            if now[0] == before[0] and now != before:
                raise MachineryError(
                    "the model file was changed while the cell ran",
                    where=str(part),
                    hint="what was played before is kept for the old file; the new one is another cell",
                )


def _seen(part: Path) -> tuple[int, int, int]:
    at = part.stat()
    return at.st_ino, at.st_size, at.st_mtime_ns


def _stamp(part: Path) -> str:
    size, at = check_readable(part), part.stat()
    return f"{part.resolve()} {size} bytes {at.st_mtime_ns} {at.st_ctime_ns} ns"


def _recall(memory: Path, stamps: list[str]) -> str | None:
    try:
        entry = json.loads(memory.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    known = entry.get("sha256") if isinstance(entry, dict) and entry.get("files") == stamps else None
    return known if isinstance(known, str) else None


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that readers see all of it or nothing.

    Raises
    ------
    ModelFileError
        The folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).replace(path)
    except OSError as error:
        raise ModelFileError(
            f"what is known of model files cannot be kept here ({error.strerror or error})",
            where=str(path.parent),
            hint="mend the folder's permissions or the full disk, or choose another tracking.root (--root)",
        ) from None


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
