"""Reading a run's artifacts: straight from disk where they are local, over the store's client elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from qfr.errors import StoreAway, TrackingError
from qfr.tracking.environment import redact
from qfr.tracking.outage import may_pass
from qfr.tracking.store import Store, guard


def read_artifact(store: Store, run_id: str, artifact_uri: str, name: str) -> bytes:
    """Content of one artifact.

    Raises
    ------
    TrackingError
        It is missing or cannot be read; names the run.
    """
    folder = _local_folder(store, run_id, artifact_uri)
    where = f"run {run_id} in {store.shown}"
    try:
        if folder is not None:
            return (folder / name).read_bytes()
        with tempfile.TemporaryDirectory(prefix="qfr-") as target:
            # By the artifact's own address, which saves asking the server for the run each time.
            address = f"{artifact_uri.rstrip('/')}/{name}"
            return Path(
                download_artifacts(artifact_uri=address, dst_path=target, tracking_uri=store.tracking_uri)
            ).read_bytes()
    except FileNotFoundError:
        raise _missing(name, where) from None
    except (OSError, MlflowException) as error:
        # A failed download does not say why; the listing does.
        if folder is None and name not in list_artifacts(store, run_id, name.rpartition("/")[0]):
            raise _missing(name, where) from None
        text = redact(str(error).partition("\n")[0], store.tracking_uri)
        # A server that lists it and does not hand it over has trouble for now.
        kind = StoreAway if folder is None or may_pass(error) else TrackingError
        raise kind(f"the artifact {name} cannot be read ({text[:300]})", where=where) from None


def _missing(name: str, where: str) -> TrackingError:
    return TrackingError(
        f"the artifact {name} is missing",
        where=where,
        hint="deleted from under the run? Then delete the run in MLflow too and run the same command again",
    )


def _local_folder(store: Store, run_id: str, artifact_uri: str) -> Path | None:
    """Folder of a run's artifacts; None when they are not on this machine's disk."""
    parts = urlsplit(artifact_uri)
    if parts.scheme not in ("", "file"):
        return None
    folder = Path(unquote(parts.path) if parts.scheme == "file" else artifact_uri)
    if not folder.is_dir():
        # The whole store may have been moved: MLflow keeps absolute paths.
        moved = store.root / "artifacts" / store.experiment / run_id / "artifacts"
        if moved.is_dir():
            return moved
    return folder


def list_artifacts(store: Store, run_id: str, folder: str) -> tuple[str, ...]:
    """Paths of the artifacts in a folder of a run ("" = the top); empty when there is none."""
    with guard(store.shown, store.tracking_uri):
        local = _local_folder(store, run_id, store.client.get_run(run_id).info.artifact_uri)
        if local is None:
            return tuple(item.path for item in store.client.list_artifacts(run_id, folder))
        inside = local / folder
        return tuple(sorted(path.relative_to(local).as_posix() for path in inside.glob("*")))


def all_artifacts(store: Store, run_id: str, artifact_uri: str, folder: str = "") -> tuple[str, ...]:
    """Paths of all files of a run, in whatever folder, wherever the store has been moved."""
    with guard(store.shown, store.tracking_uri):
        local = _local_folder(store, run_id, artifact_uri)
        if local is not None:
            files = (path for path in local.rglob("*") if path.is_file())
            return tuple(sorted(path.relative_to(local).as_posix() for path in files))
        found: list[str] = []
        for item in store.client.list_artifacts(run_id, folder or None):
            if item.is_dir:
                found += all_artifacts(store, run_id, artifact_uri, item.path)
            else:
                found.append(item.path)
    return tuple(sorted(found))
