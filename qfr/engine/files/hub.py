"""Model files in Hugging Face repositories: the local cache, and downloads into it."""

from __future__ import annotations

import os
import re
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
    if "snapshots" not in parts[:-2]:
        return None
    return parts[len(parts) - parts[::-1].index("snapshots")]


def published_digest(path: Path) -> str | None:
    """SHA-256 that the hub gave for a cached file: it names the file that the cache's link leads to."""
    name = path.resolve().name
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None


def gguf_names(repo_id: str) -> tuple[str, ...]:
    """The .gguf files of a repository, split files part by part.

    Raises
    ------
    ModelFileError
        The hub does not answer, there is no such repository, or it holds no GGUF.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        names = HfApi().list_repo_files(repo_id)
    except RepositoryNotFoundError:
        raise ModelFileError(
            "there is no such repository, or it needs a token",
            where=f"hf:{repo_id}",
            hint="look at the spelling of OWNER/REPO; `hf auth login` for a gated one",
        ) from None
    except OfflineModeIsEnabled:
        raise ModelFileError(
            "HF_HUB_OFFLINE is set", where=f"hf:{repo_id}", hint="name local files or a folder instead"
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ModelFileError(
            f"its files cannot be listed ({first})", where=f"hf:{repo_id}", hint="name local files instead"
        ) from None
    # A vision projector is no language model.
    found = tuple(sorted(name for name in names if name.endswith(".gguf") and "mmproj" not in name.lower()))
    if not found:
        raise ModelFileError("holds no .gguf file", where=f"hf:{repo_id}")
    return found


def download(file: HubFile, folder: str | None) -> Path:
    """Fetch a file into the cache by the hub's own download, with its progress bar.

    A connection that breaks off is taken up again; after a killed process it starts anew.

    `HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE` and the hub's token are honoured. `folder` is where the
    user keeps files, named in the hint.

    Raises
    ------
    ModelFileError
        No network, offline mode, no such repository, revision or file, no access, no space.
    """
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_download, hf_hub_url

    # The hub's HTTP errors share this base; which HTTP client it belongs to depends on the hub's version.
    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        # What is not there, or nobody who answers, is said at once: the download tries for half a minute.
        url = hf_hub_url(file.repo_id, file.filename, revision=file.revision, endpoint=endpoint)
        get_hf_file_metadata(url)
        return Path(hf_hub_download(file.repo_id, file.filename, revision=file.revision, endpoint=endpoint))
    except errors.GatedRepoError:
        reason = "the repository is gated: accept its terms on its page and log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "there is no such repository, or it is private and no token is set"
    except errors.RevisionNotFoundError:
        reason = "the repository has no such revision"
    except errors.OfflineModeIsEnabled:
        reason = "offline mode is on (HF_HUB_OFFLINE)"
    except errors.EntryNotFoundError:
        reason = "the repository has no such file at this revision"
    except (http_error, OSError) as error:
        reason = "the hub cannot be reached, or broke off: " + " ".join(str(error).split())[:300]
    place = f"into {folder}" if folder else "anywhere and give model.folder=<its folder>"
    raise ModelFileError(
        f"cannot be downloaded: {reason}",
        where=str(file),
        hint=f"try again, or put the file {place}, or give model.path=<the file>",
    )
