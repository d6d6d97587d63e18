"""Whether the store can be shared by those who will write to it: never SQLite over a network."""

from __future__ import annotations

from pathlib import Path

from qfr.config import TrackingConfig
from qfr.errors import TrackingError
from qfr.front.load import Workers
from qfr.tracking.filesystem import network_kind

_HINT = "keep the store on a server: tracking.uri=http://HOST:PORT (docs/cluster.md)"


def check_store(tracking: TrackingConfig, workers: Workers) -> None:
    """Refuse an SQLite store on a network file system that workers on several machines would write to.

    Raises
    ------
    TrackingError
        Their writes would destroy it.
    """
    database = sqlite_file(tracking.uri, tracking.root)
    kind = network_kind(database) if database is not None and workers.elsewhere else None
    if kind is not None:
        raise TrackingError(
            f"an SQLite database on {kind} is not safe for workers on several machines "
            f"(hydra/launcher={workers.launcher})",
            where=str(database),
            hint=_HINT,
        )


def store_notes(tracking: TrackingConfig, workers: Workers) -> list[str]:
    """What to say of a store that is safe only as long as one machine writes to it."""
    database = sqlite_file(tracking.uri, tracking.root)
    if database is None:
        return []
    if kind := network_kind(database):
        return [
            f"The store is an SQLite database on {kind} ({database}): its locks hold on one machine at best. "
            f"Never let two machines write to it; {_HINT}."
        ]
    if workers.elsewhere:
        return [
            f"The store is an SQLite database on a disk of this machine ({database}), which workers on other "
            f"machines cannot reach (hydra/launcher={workers.launcher}); {_HINT}."
        ]
    return []


def sqlite_file(uri: str | None, root: str) -> Path | None:
    """The database file of a store that is SQLite; None for a server."""
    if uri is None:
        return Path(root).expanduser().absolute() / "mlflow.db"
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
