"""File systems that stand on another machine: SQLite's locks and its shared memory do not hold on them."""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")

# As the kernel names them.
NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "lustre",
            "gpfs",
            "beegfs",
            "ceph",
            "glusterfs",
            "afs",
            "coda",
        ),
        *("orangefs", "pvfs2", "panfs", "ocfs2", "gfs2", "9p", "virtiofs", "wekafs", "moosefs", "ncpfs"),
    }
)
_FUSE = re.compile(
    r"fuse\.(sshfs|glusterfs|ceph|s3fs|gcsfuse|rclone|juicefs|moosefs|lustre|weka|blobfuse2?|curlftpfs)"
)


def network_kind(path: Path, mounts: str | None = None) -> str | None:
    """The kind of network file system that a path stands on, or would be made on; None for a local one.

    Parameters
    ----------
    path : Path
        Need not exist.
    mounts : str or None
        Table of mounts in the kernel's form; None = this machine's.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
        except OSError:
            # No such table here: nothing can be said.
            return None
    where = path.absolute().resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda hit: chr(int(hit[1], 8)), fields[1]))
        # Of two mounts at one place the later one is seen.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind if kind in NETWORK or _FUSE.fullmatch(kind) else None
