"""Model files in Hugging Face repositories: the local cache, and downloads into it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from qfr.errors import ModelFileError


@dataclass(frozen=True)
class HubFile:
    """A file at a revision of a repository."""

    repo_id: str
    filename: str
    revision: str | None
    # Commit, tag or branch; None = main.

    def __str__(self) -> str:
        return f"{self.filename} of {self.repo_id} at revision {self.revision or 'main (not pinned)'}"


def cached(file: HubFile) -> Path | None:
    """The file in the local cache, None when it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(file.repo_id, file.filename, revision=file.revision)
    return Path(found) if isinstance(found, str) else None


def commit_of(path: Path) -> str | None:
    """Commit of a cached file: the cache keeps each commit's files in a folder of that name."""
    parts = path.parts
    if "snapshots" not in parts[:-1]:
        return None
    return parts[len(parts) - 1 - parts[::-1].index("snapshots") + 1]


def download(file: HubFile, folder: str | None) -> Path:
    """Fetch a file into the cache, with the hub's progress bar, going on where an earlier try broke off.

    `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE` and the hub's token are honoured.

    Raises
    ------
    ModelFileError
        No network, offline mode, no such repository, revision or file, no access, no space.
    """
    from huggingface_hub import errors, hf_hub_download

    # The hub's HTTP errors share this base; which HTTP client it belongs to depends on the hub's version.
    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    try:
        return Path(
            hf_hub_download(
                file.repo_id, file.filename, revision=file.revision, endpoint=os.environ.get("HF_ENDPOINT")
            )
        )
    except errors.GatedRepoError:
        reason = "the repository is gated: accept its terms on its page and log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "there is no such repository, or it is private and no token is set"
    except errors.RevisionNotFoundError:
        reason = "the repository has no such revision"
    except errors.LocalEntryNotFoundError as error:
        offline = isinstance(error.__cause__, errors.OfflineModeIsEnabled) or bool(
            os.environ.get("HF_HUB_OFFLINE")
        )
        reason = "offline mode is on (HF_HUB_OFFLINE)" if offline else "the hub cannot be reached"
    except errors.EntryNotFoundError:
        reason = "the repository has no such file at this revision"
    except (http_error, OSError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
    place = f"into {folder}" if folder else "anywhere and give model.folder=<its folder>"
    raise ModelFileError(
        f"cannot be downloaded: {reason}",
        where=str(file),
        hint=f"put the file {place}, or give model.path=<the file>",
    )
