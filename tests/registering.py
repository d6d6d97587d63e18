"""A checkout of data with a git history, and a small grid registered and run in it, in this process."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qfr.front.main import main
from qfr.registration.record import Record
from qfr.registration.record_reader import read_record

ROOT = Path(__file__).resolve().parent.parent
GRID = ("experiment=smoke", "prompt=P0")
TITLE = "registration.title='Does Q4 recover?'"


def git(folder: Path, *arguments: str) -> str:
    """Run git as a person of the tests."""
    who = ("-c", "user.name=Tester", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def make_checkout(folder: Path) -> Path:
    """A git checkout that holds run.py, conf/ and prompts/: the front door takes it for its own."""
    folder.mkdir()
    for name in ("conf", "prompts"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "run.py", folder)
    (folder / ".gitignore").write_text("mlruns/\nmultirun/\n")
    (folder / "plan.md").write_text("H1: Q8_0 recovers more often than Q4_K_M.\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "the plan")
    return folder


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Hydra sets up logging for the process; give it back."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def command(*arguments: str) -> int:
    """What `python run.py …` does, in this process and in the working folder."""
    with quiet_logging():
        return main(list(arguments))


def register(*arguments: str) -> str:
    """Register the grid in the working folder; the new registration's id."""
    before = set(Path("registrations").glob("r-*.json"))
    # A record holds its time in seconds: the same grid twice within one second is one record.
    while before and int(time.time()) <= int(max(path.stat().st_mtime for path in before)):
        time.sleep(0.05)
    assert command(*GRID, "mode=register", TITLE, "registration.hypotheses=plan.md", *arguments) == 0
    (new,) = set(Path("registrations").glob("r-*.json")) - before
    return new.stem


def record_of(name: str) -> Record:
    """A registration of the working folder."""
    path = Path("registrations") / f"{name}.json"
    return read_record(path.read_bytes(), where=str(path))
