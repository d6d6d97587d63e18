"""The file: a zstd-compressed tar whose first member is a manifest with the digest of every other one.

Equal contents are equal files: sorted names, no times, no owners. Reading takes nothing on trust: plain files
only, plain relative names only, exactly the members, sizes and digests that the manifest lists. So an archive
can neither write outside its folder nor be larger than it says.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from qfr.archive.records import MANIFEST, Manifest, Member, manifest_bytes, plain_name, read_manifest
from qfr.canonical import quote, sha256_hex
from qfr.errors import LogError, TrackingError

SUFFIX = ".tar.zst"

# Of one member, of its manifest, and of all together, in bytes.
LARGEST_MEMBER, LARGEST_MANIFEST, LARGEST_ARCHIVE = 2 << 30, 64 << 20, 64 << 30

_BLOCK = 512
_CHUNK = 1 << 20
_AGAIN = "it was damaged on the way or made by another program; export it again"


class _Stream(Protocol):
    def read(self, size: int) -> bytes: ...


@dataclass(frozen=True)
class Archive:
    """An archive that was unpacked and checked."""

    folder: Path
    # Its members, under their own names.
    manifest: Manifest
    digest: str
    # SHA-256 of the manifest, and so of everything.
    path: Path
    # The file that it was read from.

    @property
    def sweep(self) -> str:
        """Id of the sweep that it holds."""
        return self.manifest.sweep

    def read(self, name: str) -> bytes:
        """Content of one member.

        Raises
        ------
        LogError
            The archive has no such member.
        """
        if name not in {member.name for member in self.manifest.members}:
            raise LogError(f"the archive lacks {name}", where=str(self.path), hint=_AGAIN)
        return (self.folder / name).read_bytes()

    def below(self, folder: str) -> dict[str, str]:
        """Members in a folder: their names from there → their whole names."""
        start = folder + "/"
        names = (member.name for member in self.manifest.members)
        return {name.removeprefix(start): name for name in names if name.startswith(start)}


def pack(folder: Path, path: Path, *, sweep: str, qfr_version: str) -> str:
    """Write the files of a folder as an archive, in one step (a kill leaves no half file); its digest.

    Raises
    ------
    TrackingError
        The file cannot be written.
    """
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    members = [_member(name, files[name]) for name in sorted(files)]
    manifest = manifest_bytes(Manifest(sweep, qfr_version, tuple(members)))
    draft = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            pa.OSFile(str(draft), "wb") as raw,
            pa.CompressedOutputStream(raw, "zstd") as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
        ):
            tar.addfile(_header(MANIFEST, len(manifest)), io.BytesIO(manifest))
            for member in members:
                with files[member.name].open("rb") as file:
                    tar.addfile(_header(member.name, member.bytes), file)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise TrackingError(
            f"the archive cannot be written ({error.strerror or error})",
            where=str(path),
            hint="is the folder there, writable, and the disk not full?",
        ) from None
    return sha256_hex(manifest)


def read_archive(path: Path, folder: Path) -> Archive:
    """Unpack an archive into an empty folder and check every member.

    Raises
    ------
    LogError
        It is damaged, of another version, or holds what no archive of ours does; names the member.
    """
    if not path.is_file():
        raise LogError("there is no such file", where=str(path), hint="give a file that `qfr export` wrote")
    try:
        with _opened(path) as stream:
            headers = _headers(stream, path)
            data = _manifest(headers, stream, path)
            manifest = read_manifest(data, where=f"{path}, {MANIFEST}")
            _check_sizes(manifest, path, folder)
            expected = {member.name: member for member in manifest.members}
            for name, size in headers:
                member = expected.pop(name, None)
                if member is None:
                    raise _bad(path, name, "it stands in the archive twice or not in the manifest")
                if size != member.bytes:
                    raise _bad(path, name, f"it has {size:,} bytes, the manifest says {member.bytes:,}")
                _unpack(stream, member, folder, path)
    except (OSError, pa.ArrowException) as error:
        # Arrow reports a damaged stream as an OSError without a number.
        raise LogError(f"no readable archive ({_words(error)})", where=str(path), hint=_AGAIN) from None
    if expected:
        raise _bad(path, min(expected), "it is missing")
    return Archive(folder, manifest, sha256_hex(data), path)


@contextmanager
def _opened(path: Path) -> Iterator[_Stream]:
    with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
        yield stream


def _manifest(headers: Iterator[tuple[str, int]], stream: _Stream, path: Path) -> bytes:
    name, size = next(headers, ("", 0))
    if name != MANIFEST:
        raise LogError(
            f"this is no archive of qfr: it does not begin with {MANIFEST}",
            where=str(path),
            hint="give a file that `qfr export` wrote",
        )
    if size > LARGEST_MANIFEST:
        raise _bad(path, name, f"{size:,} bytes are too many")
    return _exactly(stream, size, path, name)


def _check_sizes(manifest: Manifest, path: Path, folder: Path) -> None:
    for member in manifest.members:
        if member.bytes > LARGEST_MEMBER:
            raise _bad(path, member.name, f"{member.bytes:,} bytes are more than {LARGEST_MEMBER:,}")
    total = sum(member.bytes for member in manifest.members)
    free = shutil.disk_usage(folder).free
    if total > min(LARGEST_ARCHIVE, free):
        why = f"{free:,} bytes are free here" if total > free else f"{LARGEST_ARCHIVE:,} are the most"
        raise LogError(f"its members come to {total:,} bytes, and {why}", where=str(path))


def _headers(stream: _Stream, path: Path) -> Iterator[tuple[str, int]]:
    """Name and size of each member; the caller reads its content before asking for the next."""
    while True:
        block = _exactly(stream, _BLOCK, path, "its end")
        if not any(block):
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as error:
            raise LogError(f"no readable archive ({error})", where=str(path), hint=_AGAIN) from None
        if info.type != tarfile.REGTYPE:
            raise _bad(
                path, info.name, "it is a link, folder, device or extension, and only files belong here"
            )
        if not plain_name(info.name):
            raise _bad(path, info.name, "its name leads out of the archive or is no plain name")
        yield info.name, info.size
        _exactly(stream, -info.size % _BLOCK, path, info.name)


def _unpack(stream: _Stream, member: Member, folder: Path, path: Path) -> None:
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    left, found = member.bytes, hashlib.sha256()
    with target.open("xb") as file:
        while left:
            chunk = _exactly(stream, min(left, _CHUNK), path, member.name)
            found.update(chunk)
            file.write(chunk)
            left -= len(chunk)
    if found.hexdigest() != member.sha256:
        raise _bad(path, member.name, "its content is not the one whose digest the manifest lists")


def _exactly(stream: _Stream, size: int, path: Path, name: str) -> bytes:
    parts: list[bytes] = []
    left = size
    while left > 0:
        part = stream.read(left)
        if not part:
            raise _bad(path, name, "the archive ends before it")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _member(name: str, file: Path) -> Member:
    if not plain_name(name):
        raise ValueError(f"{name!r} is no name of a member")
    with file.open("rb") as content:
        return Member(name, hashlib.file_digest(content, "sha256").hexdigest(), file.stat().st_size)


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def _bad(path: Path, name: str, what: str) -> LogError:
    return LogError(f"member {quote(name, 120)}: {what}", where=str(path), hint=_AGAIN)


def _words(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition("\n")[0][:200]
