"""Split GGUF files: ``name-00001-of-00003.gguf`` and its siblings are one model."""

from __future__ import annotations

import re
from pathlib import Path

from qfr.errors import ModelFileError

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def parts_of(path: Path) -> tuple[Path, ...]:
    """All parts of a GGUF, in order; the path itself when it is not split.

    Raises
    ------
    ModelFileError
        A part is missing.
    """
    found = _PART.search(path.name)
    if found is None:
        return (path,)
    stem, count = path.name[: found.start()], int(found.group(2))
    parts = tuple(path.with_name(f"{stem}-{index:05d}-of-{count:05d}.gguf") for index in range(1, count + 1))
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise ModelFileError(
            f"is split into {count} parts, of which {len(missing)} are missing: {', '.join(missing[:4])}",
            where=str(path),
            hint="put all parts into one folder",
        )
    return parts


def part_names(filename: str) -> tuple[str, ...]:
    """Names of all parts of a file name that names one of several parts."""
    found = _PART.search(filename)
    if found is None:
        return (filename,)
    stem, count = filename[: found.start()], int(found.group(2))
    return tuple(f"{stem}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1))


def total_bytes(parts: tuple[Path, ...]) -> int:
    """Size of all parts."""
    return sum(part.stat().st_size for part in parts)
