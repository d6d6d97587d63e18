"""What a folder of GGUF files holds: families of one model, their arms, and what cannot run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.config import PRESET_BITS
from qfr.engine.files.digests import digest
from qfr.engine.files.gguf import GgufFacts, inspect
from qfr.engine.files.parts import parts_of, total_bytes
from qfr.errors import ModelFileError
from qfr.front.naming import name_of_model

_LATER_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class Arm:
    """One file that can be tried."""

    label: str
    # Its preset; of several files of one preset also what tells them apart.
    path: Path
    # The file, or its first part.
    preset: str
    bytes: int
    # Of all parts.
    sha256: str
    facts: GgufFacts


@dataclass(frozen=True)
class Family:
    """Files of one model, from large to small."""

    name: str
    arms: tuple[Arm, ...]

    @property
    def reference(self) -> Arm:
        """The largest file."""
        return self.arms[0]


@dataclass(frozen=True)
class Refused:
    """A file that cannot run, and why, in one line."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """All files that were looked at."""

    families: tuple[Family, ...]
    refused: tuple[Refused, ...]


def listed(places: Iterable[str]) -> list[Path]:
    """Return the GGUF files that places name, each once; folders are searched with all that is in them.

    Raises
    ------
    ModelFileError
        A place does not exist, or a folder holds no GGUF.
    """
    found: dict[Path, None] = {}
    for place in places:
        path = Path(place).expanduser()
        if path.is_dir():
            held = sorted(one for one in path.rglob("*.gguf") if one.is_file())
            if not held:
                raise ModelFileError("no GGUF file is in this folder", where=place)
            found |= dict.fromkeys(held)
        elif path.exists():
            found[path] = None
        else:
            raise ModelFileError("there is no such file or folder", where=place)
    return list(found)


def sort_files(paths: Sequence[Path], cache_dir: Path, progress: Callable[[str], None]) -> Found:
    """Read every header and digest, and group what can run by model."""
    arms: dict[tuple[str, ...], list[Arm]] = defaultdict(list)
    refused: list[Refused] = []
    known: dict[str, Path] = {}
    for path in paths:
        part = _LATER_PART.search(path.name)
        if part and part[1] != "00001" and path.with_name(path.name.replace(part[1], "00001", 1)) in paths:
            continue
        try:
            facts = inspect(path)
            progress(f"reading {path.name}")
            sha256 = digest(path, cache_dir)
            if facts.file_type not in PRESET_BITS:
                told = facts.file_type or "no preset"
                raise ModelFileError(f"its header names {told}, which is not known here", where=str(path))
            if sha256 in known:
                raise ModelFileError(f"holds the same bytes as {known[sha256].name}", where=str(path))
        except ModelFileError as error:
            refused.append(Refused(path, error.what))
            continue
        known[sha256] = path
        arms[_model_key(path, facts)].append(
            Arm(facts.file_type, path, facts.file_type, total_bytes(parts_of(path)), sha256, facts)
        )
    families = [Family(_family_name(members), _labelled(members)) for members in arms.values()]
    return Found(_told_apart(sorted(families, key=lambda one: one.name)), tuple(refused))


def _told_apart(families: list[Family]) -> tuple[Family, ...]:
    """Two models of one name get a number."""
    names = [one.name for one in families]
    return tuple(
        replace(one, name=f"{one.name}-{names[: at + 1].count(one.name)}")
        if names.count(one.name) > 1
        else one
        for at, one in enumerate(families)
    )


def _model_key(path: Path, facts: GgufFacts) -> tuple[str, ...]:
    """What the files of one model share: architecture, shape and name."""
    values = dict(facts.metadata)
    shape = (values.get(f"{facts.arch}.{key}", "") for key in ("block_count", "embedding_length"))
    name = facts.name or name_of_model({"path": str(path)}, None)
    return facts.arch, *shape, re.sub(r"[^a-z0-9]", "", name.lower())


def _family_name(members: Sequence[Arm]) -> str:
    named = members[0].facts.name
    plain = re.sub(r"[^A-Za-z0-9_.+-]+", "-", named).strip("-_.+")
    return plain or name_of_model({"path": str(members[0].path)}, None)


def _labelled(members: Sequence[Arm]) -> tuple[Arm, ...]:
    """From large to small (importance matrix first where sizes are equal), with names that differ."""
    ordered = sorted(members, key=lambda one: (-one.bytes, not one.facts.imatrix, str(one.path)))
    out = []
    for one in ordered:
        alike = [other for other in ordered if other.preset == one.preset]
        told = _difference(one, alike) if len(alike) > 1 else ""
        out.append(replace(one, label=f"{one.preset} ({told})" if told else one.preset))
    return tuple(out)


def _difference(one: Arm, alike: Sequence[Arm]) -> str:
    """What tells a file from the others of its preset: as few words as suffice, its name at last."""
    words: list[str] = []
    for tell in (_matrix, _publisher, _types, lambda arm: arm.path.name, lambda arm: str(arm.path.parent)):
        if len({tell(other) for other in alike}) > 1:
            words.append(tell(one))
            kept = [other for other in alike if tell(other) == tell(one)]
            if len(kept) == 1:
                return ", ".join(words)
            alike = kept
    return ", ".join(words)


def _matrix(arm: Arm) -> str:
    return "imatrix" if arm.facts.imatrix else "static"


def _publisher(arm: Arm) -> str:
    values = dict(arm.facts.metadata)
    return values.get("general.quantized_by", values.get("general.author", "publisher unknown"))


def _types(arm: Arm) -> str:
    return " ".join(f"{name}:{count}" for name, count in arm.facts.tensor_types)
