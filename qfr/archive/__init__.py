"""A sweep as one file that another machine can read: `qfr export` and `qfr import`.

`container` is the file (a compressed tar, checked member by member), `records` what stands in it, `redaction`
what must not, `collecting` fills it from a store and `restoring` brings it into one.
"""

from qfr.archive.container import Archive, read_archive
from qfr.archive.restoring import Restored, restore

__all__ = ["Archive", "Restored", "read_archive", "restore"]
