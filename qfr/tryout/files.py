"""GGUF files as arms: read by their headers, grouped by model, told apart, refused with one line each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.config import PRESET_BITS
from qfr.engine.files.gguf import GgufFacts, inspect
from qfr.engine.files.parts import parts_of, total_bytes
from qfr.errors import ModelFileError, UserError
from qfr.front.naming import name_of_model

_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class Arm:
    """One file that may be named."""

    path: Path
    facts: GgufFacts
    bytes: int
    preset: str
    label: str
    # The preset; with what tells the file from others of the same preset.

    @property
    def gigabytes(self) -> float:
        return self.bytes / 1e9


@dataclass(frozen=True)
class Family:
    """The files of one model, the largest first: that is the reference."""

    name: str
    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Refused:
    """A file that is left out, and why in one line."""

    path: Path
    why: str


def files_in(words: Sequence[str]) -> tuple[Path, ...]:
    """The GGUF files that paths name: files as they are, folders by what lies in them.

    Raises
    ------
    UserError
        A path is not there, or a folder holds no GGUF.
    """
    found: dict[Path, None] = {}
    for word in words:
        path = Path(word).expanduser()
        if path.is_dir():
            inside = [one for one in sorted(path.rglob("*.gguf")) if is_first_part(one.name)]
            if not inside:
                raise UserError("holds no .gguf file", where=str(path), hint="name files, or their folder")
            found |= dict.fromkeys(inside)
        elif path.exists():
            found[path] = None
        else:
            raise UserError("is not there", where=str(path), hint="qfr try FILE… | FOLDER | hf:OWNER/REPO")
    return tuple(found)


def families(paths: Iterable[Path]) -> tuple[tuple[Family, ...], tuple[Refused, ...]]:
    """Group files by model; what cannot be played is refused.

    Files are of one model when they bear one name (the file's, without its preset) or one `general.name`, and
    have one architecture, number of blocks and vocabulary.
    """
    arms: list[Arm] = []
    refused: list[Refused] = []
    for path in paths:
        try:
            facts = inspect(path)
            parts = parts_of(path)
        except ModelFileError as error:
            refused.append(Refused(path, error.what))
            continue
        if facts.file_type not in PRESET_BITS:
            said = f"calls itself {facts.file_type!r}" if facts.file_type else "does not say its preset"
            refused.append(Refused(path, f"{said}: no preset of llama.cpp that can be compared"))
            continue
        arms.append(Arm(path, facts, total_bytes(parts), facts.file_type, facts.file_type))
    grouped: dict[tuple[str, ...], list[Arm]] = defaultdict(list)
    for arm in arms:
        grouped[_model(arm)].append(arm)
    made = [_family(members) for members in _by_general_name(grouped)]
    return tuple(_named(made)), tuple(refused)


def is_first_part(name: str) -> bool:
    """Whether a file stands for itself or is the first part of a split one."""
    found = _PART.search(name)
    return found is None or int(found[1]) == 1


def _shape(arm: Arm) -> tuple[str, ...]:
    values = dict(arm.facts.metadata)
    return (
        arm.facts.arch,
        values.get(f"{arm.facts.arch}.block_count", ""),
        values.get("tokenizer.ggml.model", ""),
    )


def _model(arm: Arm) -> tuple[str, ...]:
    name = name_of_model({"path": str(arm.path)}, None)
    return (re.sub(r"[^a-z0-9]", "", name.casefold()), *_shape(arm))


def _by_general_name(grouped: dict[tuple[str, ...], list[Arm]]) -> list[list[Arm]]:
    """Join groups whose files call themselves the same: publishers name files their own way."""
    joined: dict[tuple[str, ...], list[Arm]] = {}
    for key, members in grouped.items():
        names = {re.sub(r"[^a-z0-9]", "", one.facts.name.casefold()) for one in members} - {""}
        same = next(
            (
                other
                for other, held in joined.items()
                if other[1:] == key[1:]
                and names & {re.sub(r"[^a-z0-9]", "", one.facts.name.casefold()) for one in held}
            ),
            key,
        )
        joined.setdefault(same, []).extend(members)
    return list(joined.values())


def _family(members: Sequence[Arm]) -> Family:
    ordered = sorted(members, key=lambda one: (-one.bytes, str(one.path)))
    name = name_of_model({"path": str(ordered[0].path)}, None)
    counts = Counter(one.preset for one in ordered)
    twins = {
        preset: [one for one in ordered if one.preset == preset]
        for preset, count in counts.items()
        if count > 1
    }
    labelled = [
        replace(one, label=f"{one.preset} ({_told(one, twins[one.preset])})") if one.preset in twins else one
        for one in ordered
    ]
    return Family(name, tuple(labelled))


def _told(arm: Arm, twins: Sequence[Arm]) -> str:
    """What tells a file from others of its preset: importance matrix, publisher, tensor types, else its
    name.
    """
    ways = (
        lambda one: "imatrix" if one.facts.imatrix else "static",
        lambda one: dict(one.facts.metadata).get("general.quantized_by", ""),
        lambda one: ", ".join(f"{name} {count}" for name, count in one.facts.tensor_types),
    )
    for way in ways:
        values = [way(one) for one in twins]
        if len(set(values)) == len(values) and all(values):
            return str(way(arm))
    return arm.path.name


def _named(made: Sequence[Family]) -> list[Family]:
    """Two models of one name keep apart by number."""
    seen: Counter[str] = Counter()
    out = []
    for one in made:
        seen[one.name] += 1
        count = seen[one.name]
        out.append(one if count == 1 else Family(f"{one.name}-{count}", one.arms))
    return out
