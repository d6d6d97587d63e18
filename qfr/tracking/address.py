"""Addresses of stores: which are understood, and whether anybody answers there."""

from __future__ import annotations

import http.client
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from qfr.errors import StoreAway, TrackingError, did_you_mean
from qfr.tracking import database
from qfr.tracking.environment import redact

SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql")

_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_PROBE_SECONDS = 5.0
_EXPERIMENT_NAME = re.compile(r"[^\W_][\w.+ -]*")


def checked(uri: str | None, root: Path, experiment: str) -> tuple[Path, str]:
    """Absolute root and full URI of what the configuration asks for.

    Raises
    ------
    TrackingError
        The experiment is no plain name, or the URI is none that MLflow understands.
    """
    if not _EXPERIMENT_NAME.fullmatch(experiment):
        raise TrackingError(
            f"tracking.experiment={experiment!r} is no plain name",
            hint="start with a letter or digit; then letters, digits, blanks, '_', '-', '.', '+'",
        )
    if str(root).startswith("file:"):
        raise TrackingError(
            f"tracking.root={str(root)!r} is an address, not a folder",
            hint="give the folder: tracking.root=" + unquote(str(root).removeprefix("file:")),
        )
    root = root.expanduser().absolute()
    if uri is None:
        return root, database.uri_of(root / "mlflow.db")
    scheme = _scheme(uri)
    if "://" not in uri or scheme not in SCHEMES:
        gone = scheme == "file" or "://" not in uri
        raise TrackingError(
            f"tracking.uri={redact(uri, uri)!r} is no address of a store" + did_you_mean(scheme, SCHEMES),
            hint="MLflow gave up its file store; leave tracking.uri empty for SQLite under tracking.root"
            if gone
            else "one of " + ", ".join(f"{name}://…" for name in SCHEMES),
        )
    if scheme == "sqlite":
        return root, database.uri_of(database.path_of(uri))
    return root, uri


def is_http(uri: str) -> bool:
    """A server stands between us and the database."""
    return _scheme(uri) in ("http", "https")


def artifact_location(uri: str, root: Path, experiment: str) -> str | None:
    """URI for the experiment's artifacts; None = the server decides and takes the files over HTTP."""
    return None if is_http(uri) else "file://" + quote(str(root / "artifacts" / experiment))


def probe(uri: str) -> None:
    """Knock once at a server or a database server, so that a wrong address is told within seconds.

    Raises
    ------
    StoreAway
        Nobody answers.
    TrackingError
        The address is malformed.
    """
    if _scheme(uri) == "sqlite":
        return
    try:
        if is_http(uri):
            _ask_health(uri)
        else:
            parts = urlsplit(uri)
            port = parts.port or _PORTS[_scheme(uri)]
            if parts.hostname:  # Without one the driver connects through a local socket.
                socket.create_connection((parts.hostname, port), timeout=_PROBE_SECONDS).close()
    except ValueError:
        raise TrackingError(
            "the address is malformed", where=redact(uri, uri), hint="special characters in a password as %XX"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise StoreAway(
            f"nobody answers ({redact(str(reason), uri)})",
            where=redact(uri, uri),
            hint="start the server (`mlflow server --host …`) or mend tracking.uri",
        ) from None


def _ask_health(uri: str) -> None:
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    if parts.port is None and parts.hostname is None:
        raise ValueError(uri)
    try:
        health = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/health", "", ""))
        with urllib.request.urlopen(health, timeout=_PROBE_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        error.close()  # Any answer at all means that a server is there; MLflow's own call says more.
    except TimeoutError:
        pass  # It took the connection: a slow server, to which MLflow's own call gives more time.


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].casefold()
