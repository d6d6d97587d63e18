"""Sweeps of the small reference agent for the cluster checks, and what is checked of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from qfr.journal import log_bytes
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store
from tests.chaos.services import ROOT, Missing, environment

GRID = ("model=ref_llama", "suite=orders20_ref", "fault=et", "report.transcripts=0")
_LIMIT = 2400.0
# Seconds that a sweep may take.
_STARTED: list[subprocess.Popen[bytes]] = []
# Sweeps of this check; whatever is left of them ends with it.


@dataclass(frozen=True)
class Place:
    """Where one sweep runs."""

    folder: Path
    uri: str | None = None
    # Of the MLflow server; None = SQLite under the folder.
    experiment: str = "qfr"

    @property
    def root(self) -> Path:
        return self.folder / "mlruns"

    @property
    def log(self) -> Path:
        """What its sweeps printed."""
        return self.folder / "sweep.log"

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def command(self, overrides: Sequence[str]) -> list[str]:
        where = [f"tracking.root={self.root}", f"hydra.sweep.dir={self.folder}/multirun/${{sweep}}"]
        where += [f"tracking.experiment={self.experiment}"]
        where += [f"tracking.uri={self.uri}"] if self.uri else []
        return [sys.executable, str(ROOT / "run.py"), *GRID, *overrides, *where]

    def start(
        self, overrides: Sequence[str], settings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a sweep in a process group of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as file:
            process = subprocess.Popen(
                self.command(overrides), cwd=self.folder, stdout=file, stderr=file,
                env=dict(settings or environment()), start_new_session=True,
            )  # fmt: skip
        _STARTED.append(process)
        return process

    def run(self, overrides: Sequence[str]) -> tuple[int, float]:
        """Run a sweep to its end: (exit code, seconds)."""
        began = time.monotonic()
        return self.start(overrides).wait(_LIMIT), time.monotonic() - began

    def logs(self) -> dict[str, bytes]:
        """The log of each finished cell, which has one run."""
        store = open_store(self.uri, self.root, self.experiment)
        cells = read_cells(store).cells
        found = {one.facts.name: log_bytes(read_episodes(store, one)) for one in cells}
        assert len(found) == len(cells), "two runs of one cell"
        return found

    def episodes(self) -> int:
        """Lines in the journals now."""
        return sum(lines_of(path.parent) for path in self.root.glob("journal/*/journal.jsonl"))

    def newest(self) -> tuple[Path, int]:
        """(journal, process) of the episode that was written last; (., 0) when there is none."""
        found: tuple[float, Path, int] = (0.0, Path(), 0)
        for path in self.root.glob("journal/*/timing.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                pids = re.findall(r'"pid":(\d+)', path.read_text())
                if pids and path.stat().st_mtime > found[0]:
                    found = (path.stat().st_mtime, path.parent, int(pids[-1]))
        return found[1:]


def lines_of(journal: Path) -> int:
    """Episodes in a journal; 0 when it is gone, since its cell is finished."""
    try:
        return (journal / "journal.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@dataclass
class Facts:
    """What a check found, a line each, and its exit code."""

    began: float = field(default_factory=time.monotonic)
    wrong: int = 0

    def note(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def check(self, what: str, held: bool) -> None:
        """Print a fact that has to hold."""
        self.wrong += not held
        print(f"{'ok' if held else 'NO':<3} {what}", flush=True)

    def end(self) -> int:
        took = time.monotonic() - self.began
        print(f"{'all held' if not self.wrong else f'{self.wrong} did NOT hold'}; {took:.0f} s", flush=True)
        return 1 if self.wrong else 0


def grid_of(presets: str, prompts: str, tasks: int) -> list[str]:
    """Overrides of a grid whose suite has so many tasks of each family."""
    return [f"quant={presets}", f"prompt={prompts}", f"suite.families={{base: {tasks}, shipping: {tasks}}}"]


def played_plain(place: Place, grid: Sequence[str], facts: Facts) -> dict[str, bytes]:
    """Play the grid in one process with SQLite: what all others have to equal."""
    code, took = place.run(grid)
    logs = place.logs()
    facts.check(f"one process, SQLite: {len(logs)} logs in {took:.0f} s", code == 0)
    return logs


def packages(**needed: str) -> None:
    """See that Python packages are installed: module = what pip installs it as."""
    for module, name in needed.items():
        if find_spec(module.replace("__", ".")) is None:
            raise Missing(f"not installed: pip install '{name}'")


def checked(check: Callable[[Path, Facts], None], folder: Path | None) -> int:
    """Run a check in a folder, print its facts, end what it started; the exit code.

    0: all held; 1: something did not; 2: something is missing, which is named.
    """
    signal.signal(signal.SIGTERM, _end)
    with _folder(folder) as place:
        facts = Facts()
        try:
            if any(place.iterdir()):
                raise Missing(f"{place} is not empty: name a new folder")
            check(place, facts)
            return facts.end()
        except Missing as error:
            print(error)
            return 2
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            facts.check(f"{error}; logs are in {place} (give --folder to keep them)", False)
            return facts.end()
        finally:
            _end_sweeps()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="qfr-chaos-") as made:
        yield Path(made)


def _end_sweeps() -> None:
    for process in _STARTED:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
