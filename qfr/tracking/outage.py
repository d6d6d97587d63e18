"""Which failures of a store pass by themselves, so that waiting may help."""

from __future__ import annotations

import errno
import re

import sqlalchemy.exc
from mlflow.exceptions import MlflowException, RestException

# MLflow's names of what a later call may not meet.
_PASSING = {
    "TEMPORARILY_UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "REQUEST_LIMIT_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "CANCELLED",
    "ABORTED",
}
# A full disk, a quota, a file-size limit, a network or a network file system that stumbles.
_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ESTALE,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ENFILE,
    errno.EMFILE,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
}
_SERVER_ERROR = 500
_PASSING_STATUS = {408, 429}
# SQLite calls these operational too.
_LASTING = re.compile(r"readonly database|no such (table|column)")


def may_pass(error: BaseException) -> bool:
    """Whether the same call may work later: no answer, a time-out, a 5xx, a locked database, a full disk."""
    if isinstance(error, MlflowException):
        code, text = str(error.error_code), str(error)
        if code == "INTERNAL_ERROR":
            # Also MLflow's code for errors of its own client; those of a server or on the way to it count.
            cause = error.__cause__
            return (
                isinstance(error, RestException)
                or "API request to" in text
                or (isinstance(cause, Exception) and may_pass(cause))
            )
        return code in _PASSING and not _LASTING.search(text)
    if isinstance(error, sqlalchemy.exc.SQLAlchemyError):
        passing = isinstance(error, sqlalchemy.exc.OperationalError | sqlalchemy.exc.TimeoutError)
        return passing and not _LASTING.search(str(error))
    return isinstance(error, OSError) and _system_error_may_pass(error)


def _system_error_may_pass(error: OSError) -> bool:
    if type(error).__module__.partition(".")[0] == "requests":
        # What the HTTP client raises is an OSError without a number; an answer of the server has a status.
        status = getattr(getattr(error, "response", None), "status_code", None)
        return status is None or status >= _SERVER_ERROR or status in _PASSING_STATUS
    return isinstance(error, ConnectionError | TimeoutError) or error.errno in _ERRNOS
