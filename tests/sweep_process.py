"""A sweep in a process of its own, for tests that stop, kill or disturb it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Sweep:
    """`python run.py …` in a process and a folder of its own."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._said = folder / f"said-{time.monotonic_ns()}.txt"
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "run.py"), *overrides],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    def said(self) -> str:
        return self._said.read_text()

    def played(self) -> list[str]:
        """Titles of the walks that it played."""
        return re.findall(r"^(scripted \S+ \S+): \d+ of \d+ tasks certified", self.said(), re.MULTILINE)

    def end(self) -> int:
        """Wait for its exit code."""
        return self.process.wait(480)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that happens while it runs."""
        end = time.monotonic() + 480
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.02)


def holds(folder: Path) -> bool:
    """An episode stands in a journal of a sweep's folder."""
    return any((folder / "mlruns" / "journal").glob("*/journal.jsonl"))
