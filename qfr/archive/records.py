"""What stands in an archive: its manifest and its runs, as canonical JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from qfr.canonical import canonical, quote
from qfr.errors import LogError
from qfr.tracking.writing.transfer import PlainRun, Point

FORMAT = "qfr archive"
ARCHIVE_VERSION = 1
MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*(/[A-Za-z0-9_][A-Za-z0-9_.@+-]*)*")
_LONGEST_NAME = 240
_STATUSES = ("FINISHED", "FAILED", "KILLED", "RUNNING", "SCHEDULED")
_DIGEST = re.compile(r"[0-9a-f]{64}")
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
    raw = _object(data, where)
    if raw.get("format") != FORMAT:
        raise LogError("this is no archive of qfr", where=where, hint="give a file that `qfr export` wrote")
    if raw.get("version") != ARCHIVE_VERSION:
        raise LogError(
            f"an archive of version {quote(str(raw.get('version')))}, but this qfr reads {ARCHIVE_VERSION}",
            where=where,
            hint="read it with the qfr version that wrote it",
        )
    members = tuple(
        Member(_text(one, "name", where), _text(one, "sha256", where), _integer(one, "bytes", where))
        for one in _objects(raw, "members", where)
    )
    for member in members:
        if not plain_name(member.name):
            raise LogError(f"{quote(member.name)} is no name of a member", where=where)
        if member.bytes < 0 or not _DIGEST.fullmatch(member.sha256):
            raise LogError(f"size or digest of {quote(member.name)} is none", where=where)
    if len({member.name for member in members}) < len(members):
        raise LogError("it lists a member twice", where=where)
    sweep = _text(raw, "sweep", where)
    if not _SWEEP.fullmatch(sweep):
        raise LogError(f"{quote(sweep)} is no id of a sweep", where=where)
    return Manifest(sweep, _text(raw, "qfr_version", where), members)


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
    raw = _object(data, where)
    points = tuple(
        Point(
            _text(one, "key", where),
            _real(one, "value", where),
            _integer(one, "time", where),
            _integer(one, "step", where),
        )
        for one in _objects(raw, "points", where)
    )
    status = _text(raw, "status", where)
    if status not in _STATUSES:
        raise LogError(f"{quote(status)} is no status of a run", where=where)
    return PlainRun(
        name=_text(raw, "name", where),
        status=status,
        started=_integer(raw, "started", where),
        ended=None if raw.get("ended") is None else _integer(raw, "ended", where),
        params=_texts(raw, "params", where),
        tags=_texts(raw, "tags", where),
        points=points,
    )


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


def _text(raw: Mapping[str, object], key: str, where: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str):
        raise LogError(f"{key!r} is missing or no text", where=where)
    return value


def _integer(raw: Mapping[str, object], key: str, where: str) -> int:
    value = raw.get(key)
    # bool is an int to Python, not to us; MLflow keeps 64 bits.
    if type(value) is not int or abs(value) >= 1 << 63:
        raise LogError(f"{key!r} is missing or no integer", where=where)
    return value


def _real(raw: Mapping[str, object], key: str, where: str) -> float:
    value = raw.get(key)
    if type(value) not in (int, float) or not math.isfinite(float(str(value))):
        raise LogError(f"{key!r} is missing or no finite number", where=where)
    return float(str(value))


def _texts(raw: Mapping[str, object], key: str, where: str) -> Mapping[str, str]:
    value = raw.get(key)
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise LogError(f"{key!r} is missing or no map of texts", where=where)
    return value


def _objects(raw: Mapping[str, object], key: str, where: str) -> list[Mapping[str, object]]:
    value = raw.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise LogError(f"{key!r} is missing or no list of objects", where=where)
    return value
