"""The code that runs: digests of its files, its commit, and what differs from the commit."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import qfr
from qfr.canonical import digest, sha256_hex
from qfr.registration.record import FrozenCode

# The folders of a checkout whose untracked files count as uncommitted code.
CODE_FOLDERS = ("qfr", "hydra_plugins", "conf", "prompts")

# What computes, plays and records.
_PACKAGES = ("llama-cpp-python", "numpy", "scipy", "pandas", "pyarrow", "hydra-core", "omegaconf", "mlflow")


@dataclass(frozen=True)
class GitState:
    """A checkout as git sees it; all empty where there is none."""

    commit: str
    changed: tuple[str, ...]
    # Tracked files that differ from the commit, and untracked ones in CODE_FOLDERS.
    diff: str
    # What differs, as a patch.


@cache
def code_files() -> Mapping[str, str]:
    """SHA-256 of every Python file of qfr and its Hydra plugin, by path from the folder that holds both.

    The same for a checkout and for an installed package. What this process runs: read once.
    """
    return files_below(Path(qfr.__file__).resolve().parent.parent)


def files_below(home: Path) -> Mapping[str, str]:
    """As `code_files`, of the qfr in a folder."""
    found = [*sorted((home / "qfr").rglob("*.py")), home / "hydra_plugins" / "qfr_sweeper.py"]
    return {
        path.relative_to(home).as_posix(): sha256_hex(path.read_bytes()) for path in found if path.is_file()
    }


def code_sha256() -> str:
    """One digest over `code_files`."""
    return digest(code_files())


def git_state(folder: Path) -> GitState:
    """What git says of the checkout in a folder.

    Files outside the code that git does not know (a registration, a plan) are no change of the code.
    """
    if not (folder / ".git").exists():
        return GitState("", (), "")
    try:
        commit = _git(folder, "rev-parse", "HEAD").strip()
        tracked = _names(_git(folder, "diff", "HEAD", "--name-only", "-z"))
        new = _names(_git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE_FOLDERS))
        diff = _git(folder, "diff", "HEAD", "--binary", "--no-color", "--no-ext-diff")
    except (FileNotFoundError, subprocess.CalledProcessError):
        # No git, or a checkout that git refuses (another owner, no commit yet).
        return GitState("", (), "")
    diff += "".join(_added(folder, name) for name in new)
    return GitState(commit, (*tracked, *new), diff)


def freeze(git: GitState, files: Mapping[str, str]) -> FrozenCode:
    """The code as a registration freezes it."""
    return FrozenCode(
        commit=git.commit,
        dirty=bool(git.changed),
        diff=git.diff,
        sha256=digest(files),
        files=dict(files),
        qfr_version=qfr.__version__,
        python=platform.python_version(),
        packages={name: version for name in _PACKAGES if (version := _version(name))},
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name for name in listed.split("\0") if name)


def _added(folder: Path, name: str) -> str:
    """The patch that adds a file; git ends with 1 because the two sides differ."""
    arguments = ["diff", "--no-index", "--binary", "--no-color", "--no-ext-diff", "--", "/dev/null", name]
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "backslashreplace")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "backslashreplace")
