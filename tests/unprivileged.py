"""Permissions that bind root too: its right to pass them by is laid down for a while."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522
_GET_SECUREBITS, _SET_SECUREBITS = 27, 28
_NO_SETUID_FIXUP = 4
# Otherwise access(2) looks at what root may take up again.
_OVERRIDE_AND_SEARCH = 0b110
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.


class _Head(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def as_a_user() -> Iterator[None]:
    """Within it permissions bind this thread, and threads that it starts, whoever runs the test."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    data = (_Data * 2)()
    _call(libc.capget, data)
    before, bits = data[0].effective, libc.prctl(_GET_SECUREBITS, 0, 0, 0, 0)
    if libc.prctl(_SET_SECUREBITS, bits | _NO_SETUID_FIXUP, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    data[0].effective = before & ~_OVERRIDE_AND_SEARCH
    _call(libc.capset, data)
    try:
        yield
    finally:
        data[0].effective = before
        _call(libc.capset, data)
        libc.prctl(_SET_SECUREBITS, bits, 0, 0, 0)


def _call(function: object, data: object) -> None:
    assert callable(function)
    if function(ctypes.byref(_Head(_VERSION, 0)), data):
        raise OSError(ctypes.get_errno(), "capabilities")
