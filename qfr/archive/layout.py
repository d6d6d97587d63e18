"""Where what stands in an archive, and the check of a log against its digest."""

from __future__ import annotations

import hashlib
import zlib

from qfr.errors import LogError

SWEEP, RUNS, REGISTRATION, REPORT, ENVIRONMENT = "sweep", "runs", "registration", "report", "environment"
# Folders. Each run has a folder of its own in RUNS, named after its cell.
RUN_FILE, ARTIFACTS = "run.json", "artifacts"
# In the folder of a run (and of the sweep).

LARGEST_LOG = 2 << 30
# Bytes of an uncompressed log.

_CHUNK = 1 << 20


def check_log(data: bytes, sha256: str, *, where: str) -> None:
    """See that a compressed log is the one of that digest, without unpacking it into memory.

    Raises
    ------
    LogError
        It is damaged, another one, or unpacks to more than LARGEST_LOG.
    """
    unpacking, found, size = zlib.decompressobj(wbits=31), hashlib.sha256(), 0
    rest = data
    try:
        while rest and not unpacking.eof:
            part = unpacking.decompress(rest, _CHUNK)
            rest = unpacking.unconsumed_tail
            size += len(part)
            if size > LARGEST_LOG:
                raise LogError(f"it unpacks to more than {LARGEST_LOG:,} bytes", where=where)
            found.update(part)
    except zlib.error as error:
        raise LogError(f"not a whole gzip file ({error})", where=where) from None
    if not unpacking.eof or unpacking.unused_data:
        raise LogError("not a whole gzip file", where=where, hint="the log was cut, or something was added")
    if found.hexdigest() != sha256:
        raise LogError(
            f"digest {found.hexdigest()[:12]}, but its run says {sha256[:12]}",
            where=where,
            hint="the log was changed after the run",
        )
