"""Reading a run's artifacts: straight from disk where they are local, over the store's client elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mlflow.artifacts import download_artifacts
from mlflow.exceptions import MlflowException

from qfr.errors import TrackingError
from qfr.tracking.environment import redact
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
        raise TrackingError(f"the artifact {name} cannot be read ({text[:300]})", where=where) from None


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
        return tuple(item.path for item in store.client.list_artifacts(run_id, folder))
