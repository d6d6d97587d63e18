"""The front door: from a command line to a finished sweep and its exit code.

This module loads nothing heavy, so that a wrong platform or Python is named before anything else breaks.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence

# Exit codes: 0 all cells finished; 1 a cell failed; 2 the user can mend it; 130 interrupted.
USER_ERROR = 2
INTERRUPTED = 130
FAILED = 1

_OLDEST, _NEWEST = (3, 11), (3, 13)


def unsupported(platform: str, version: tuple[int, int]) -> str | None:
    """Say why qfr does not run here; None when it does.

    Parameters
    ----------
    platform : str
        As `sys.platform`.
    version : tuple of int
        Python's major and minor version.
    """
    if platform in ("win32", "cygwin"):
        return "qfr does not run on Windows\n  → use Linux, for example under WSL 2"
    if not _OLDEST <= version <= _NEWEST:
        have = ".".join(map(str, version))
        return f"Python {have} is not supported\n  → use Python 3.11, 3.12 or 3.13"
    return None


# What a full disk and missing permissions raise, wherever it happens.
_USERS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def told(error: OSError) -> str | None:
    """Say what the system refused when the user can mend it; None when it is no such error."""
    if error.errno not in _USERS:
        return None
    where = f"{error.filename}: " if error.filename else ""
    hint = (
        "make room on the disk; nothing played is lost: the same command goes on"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "mend the permissions, or work in a folder that you may write"
    )
    return f"error: {where}{(error.strerror or str(error)).lower()}\n  → {hint}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, plan or register the grid that the command line asks for.

    Parameters
    ----------
    argv : sequence of str, optional
        Hydra's arguments without the program's name; None = `sys.argv[1:]`.

    Returns
    -------
    int
        Exit code. Errors of the user are printed as one message on stderr, without a traceback. With
        ``HYDRA_FULL_ERROR=1`` in the environment they are raised instead.
    """
    problem = unsupported(sys.platform, sys.version_info[:2])
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        return USER_ERROR
    from qfr.play.timings import SPENT

    SPENT.begin()
    # Composing and importing make many objects that stay: looking through them again and again for garbage
    # takes a sixth of the start-up.
    gc.set_threshold(50_000, 20, 50)
    from qfr.errors import QfrError, UserError
    from qfr.front.hydra_app import run_hydra
    from qfr.tracking.environment import settle

    settle()
    # A stopped job (kill, a cluster's time limit) ends as one that Ctrl-C interrupts: in a state to resume.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_hydra(sys.argv[1:] if argv is None else list(argv))
    except QfrError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR if isinstance(error, UserError) else FAILED
    except OSError as error:
        if (text := told(error)) is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(text, file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return INTERRUPTED
