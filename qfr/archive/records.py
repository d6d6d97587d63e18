"""What stands in an archive: its manifest and its runs, as canonical JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from qfr.canonical import canonical, quote
from qfr.errors import LogError
from qfr.tracking.writing.transfer import PlainRun
from qfr.typed_json import build

FORMAT = "qfr archive"
ARCHIVE_VERSION = 1
MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*(/[A-Za-z0-9_][A-Za-z0-9_.@+-]*)*")
_LONGEST_NAME = 240
_STATUSES = ("FINISHED", "FAILED", "KILLED", "RUNNING", "SCHEDULED")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")
_SWEEP = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(frozen=True)
class Member:
    """A file of the archive."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """The archive's first member: what else belongs in it."""

    sweep: str
    # Id of the sweep.
    qfr_version: str
    # That wrote it.
    members: tuple[Member, ...]
    # Sorted by name.


def plain_name(name: str) -> bool:
    """Whether a name is relative, ASCII, without blanks, and stays inside: no part begins with a dot."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest's canonical bytes."""
    return _bytes({"format": FORMAT, "version": ARCHIVE_VERSION, **dataclasses.asdict(manifest)})


def read_manifest(data: bytes, *, where: str) -> Manifest:
    """Read a manifest.

    Raises
    ------
    LogError
        It is none, of another version, or damaged.
    """
    raw = dict(_object(data, where))
    if raw.pop("format", None) != FORMAT:
        raise LogError("this is no archive of qfr", where=where, hint="give a file that `qfr export` wrote")
    version = raw.pop("version", None)
    if version != ARCHIVE_VERSION:
        raise LogError(
            f"an archive of version {quote(str(version))}, but this qfr reads {ARCHIVE_VERSION}",
            where=where,
            hint="read it with the qfr version that wrote it",
        )
    found = _built(Manifest, raw, where)
    for member in found.members:
        if not plain_name(member.name):
            raise LogError(f"{quote(member.name)} is no name of a member", where=where)
        if member.bytes < 0 or not _DIGEST.fullmatch(member.sha256):
            raise LogError(f"size or digest of {quote(member.name)} is none", where=where)
    if len({member.name for member in found.members}) < len(found.members):
        raise LogError("it lists a member twice", where=where)
    if not _SWEEP.fullmatch(found.sweep):
        raise LogError(f"{quote(found.sweep)} is no id of a sweep", where=where)
    return found


def run_bytes(run: PlainRun) -> bytes:
    """A run's canonical bytes."""
    return _bytes(dataclasses.asdict(run))


def read_run(data: bytes, *, where: str) -> PlainRun:
    """Read a run.

    Raises
    ------
    LogError
        It is damaged.
    """
    found = _built(PlainRun, _object(data, where), where)
    if found.status not in _STATUSES:
        raise LogError(f"{quote(found.status)} is no status of a run", where=where)
    # MLflow keeps 64 bits.
    numbers = (found.started, found.ended or 0, *(n for one in found.points for n in (one.time, one.step)))
    if any(abs(number) >= 1 << 63 for number in numbers):
        raise LogError("a time or step is beyond 64 bits", where=where)
    return found


def _bytes(value: object) -> bytes:
    return canonical(value).encode("ascii") + b"\n"


def _object(data: bytes, where: str) -> Mapping[str, object]:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LogError(f"not JSON ({quote(str(error))})", where=where) from None
    if not isinstance(raw, dict):
        raise LogError("not a JSON object", where=where)
    return raw


def _built(kind: type[_T], raw: Mapping[str, object], where: str) -> _T:
    try:
        return build(kind, raw)
    except (TypeError, ValueError) as error:
        raise LogError(f"damaged: {error}", where=where) from None
