"""SIGKILL at chosen and random moments of a sweep, then the same command again, until it is done.

    python -m tests.chaos.kills --kills 50

First the grid runs without a kill. Then it runs in a fresh folder and is killed again and again: at a random
time, or as soon as something happens on disk (the database is made, a preset is derived, a journal grows, a
run's files are logged, a report is written) and a little later. A sweep that ends before its kill closes a
round: its episodes, tables, scores and contrasts must equal the first run's byte for byte, each cell finished
once, and no engine process may be left. Rounds go on until there were as many kills as asked for.

Exit code: 0 everything equal, 1 something differs (named), 2 wrong options.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store

ROOT = Path(__file__).resolve().parents[2]
GRID = (
    "model=ref_llama",
    "quant=q8_0,q4_k_m",
    "prompt=P0,P4",
    "fault=et,ep",
    "suite=orders20_ref",
    "suite.families={base: 3, shipping: 3}",
)
# Parts of a run that follow from its episodes alone.
_TABLES = ("episodes.parquet", "calls.parquet", "scores/tolerant@1.parquet", "scores/strict@1.parquet")
_REPORTS = ("results.csv", "results.parquet")
_LONGEST = 900.0
# Seconds that one start of a sweep may take.

Marker = Callable[[Path], int]


def _files(pattern: str) -> Marker:
    return lambda root: sum(1 for _ in root.glob(pattern))


def _bytes(pattern: str) -> Marker:
    return lambda root: sum(_size(path) for path in root.glob(pattern))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# What is watched below the store's root: the kill comes when the number has grown by one to `most`.
MARKERS: Mapping[str, tuple[Marker, int]] = {
    "store": (_files("**/*mlflow.db*"), 2),
    "derive": (_bytes("models/**/*"), 4_000_000),
    "journal": (_bytes("journal/*/journal.jsonl"), 60_000),
    "logging": (_files("artifacts/qfr/*/artifacts/**/*"), 24),
    "scores": (_files("artifacts/qfr/*/artifacts/scores/*"), 4),
    "report": (_files("reports/*/*"), 9),
    "report logged": (_files("artifacts/qfr/*/artifacts/report/*"), 9),
}


@dataclass
class Result:
    """What came out."""

    kills: Counter[str] = field(default_factory=Counter)
    # By moment.
    rounds: int = 0
    # Finished sweeps that were compared.
    starts: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def run_kills(
    folder: Path, kills: int, seed: int, grid: Sequence[str] = GRID, moments: Sequence[str] | None = None
) -> Result:
    """Kill sweeps until there were `kills`, and finish the last one.

    Parameters
    ----------
    folder : Path
        Empty; everything is written below it.
    kills, seed : int
    grid : sequence of str
        Overrides of the sweep.
    moments : sequence of str, optional
        Names of `MARKERS`, or "time"; left out = all of them in turn.
    """
    began, chance, result = time.monotonic(), Random(seed), Result()
    started = time.monotonic()
    code = _start(folder / "whole", grid).wait(_LONGEST)
    usual = time.monotonic() - started
    if code != 0:
        result.problems.append(f"the sweep without a kill ended with exit code {code}")
        return result
    expected = state(folder / "whole")
    names = list(moments or ("time", *MARKERS))
    while sum(result.kills.values()) < kills and not result.problems:
        result.rounds += 1
        if result.rounds > 3 * kills + 3:
            result.problems.append(f"{result.rounds} sweeps ended before their kill: the moments never come")
            break
        here = folder / f"round-{result.rounds}"
        while True:
            result.starts += 1
            left = kills - sum(result.kills.values())
            moment = names[result.starts % len(names)] if left else ""
            if not _killed(here, grid, moment, chance, usual, result):
                break
        _compare(here, expected, result)
    result.seconds = time.monotonic() - began
    return result


def _start(folder: Path, grid: Sequence[str]) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "run.py"), "-m", *grid, f"hydra.sweep.dir={folder}/multirun"]
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, stdin=subprocess.DEVNULL)


def _killed(
    folder: Path, grid: Sequence[str], moment: str, chance: Random, usual: float, result: Result
) -> bool:
    """Start the sweep and kill it at the moment; False when it ended before."""
    root = folder / "mlruns"
    marker, most = MARKERS.get(moment, (None, 1))
    wanted, before = chance.randint(1, most), marker(root) if marker and root.exists() else 0
    at = time.monotonic() + chance.uniform(0.1, 1.2 * usual)
    end = time.monotonic() + _LONGEST
    process = _start(folder, grid)
    while process.poll() is None:
        if time.monotonic() > end:
            result.problems.append(f"a sweep did not end within {_LONGEST:.0f} s")
            process.kill()
        if moment == "time" and time.monotonic() >= at:
            break
        if marker is not None and marker(root) >= before + wanted:
            time.sleep(chance.expovariate(1 / 0.04))
            break
        time.sleep(0.004)
    if process.poll() is not None:
        if process.returncode != 0:
            result.problems.append(
                f"a sweep ended with exit code {process.returncode}: see {folder}/said.txt"
            )
        return False
    workers = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    result.kills[moment] += 1
    result.problems += [f"the engine process {pid} outlived its parent" for pid in workers if _lives(pid)]
    return True


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _lives(pid: int) -> bool:
    """Whether an engine process is still there a while after its parent was killed."""
    for _ in range(200):
        try:
            if b"qfr" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return True


def state(folder: Path) -> dict[str, bytes]:
    """What a finished sweep holds: each cell's log, tables and scores, and its last report's contrasts."""
    store = open_store(None, folder / "mlruns", "qfr")
    found: dict[str, bytes] = {}
    reading = read_cells(store)
    for cell in reading.cells:
        inside = store.root / "artifacts" / "qfr" / cell.run_id / "artifacts"
        found[f"{cell.facts.name}: log"] = gzip.decompress((inside / "episodes.jsonl.gz").read_bytes())
        for name in _TABLES:
            found[f"{cell.facts.name}: {name}"] = (inside / name).read_bytes()
    for note in (*reading.alarms, *reading.unfinished, *reading.notes):
        found[f"left over: {note}"] = b""
    for journal in (store.root / "journal").glob("*/journal.jsonl"):
        found[f"left over: {journal}"] = b""
    reports = sorted((store.root / "reports").glob("*"), key=lambda path: path.stat().st_mtime)
    for name in _REPORTS:
        found[f"report: {name}"] = (reports[-1] / name).read_bytes() if reports else b""
    return found


def _compare(folder: Path, expected: Mapping[str, bytes], result: Result) -> None:
    if result.problems:
        return
    got = state(folder)
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            what = "differs" if name in expected and name in got else "is there once only"
            result.problems.append(f"{folder.name}: {name} {what}")


def main(argv: Sequence[str] | None = None) -> int:
    """Kill, compare, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moment", action="append", choices=["time", *MARKERS], help="may be repeated")
    parser.add_argument("--folder", type=Path, help="left out = a temporary one")
    parser.add_argument("grid", nargs="*", help=f"overrides of the sweep (left out = {' '.join(GRID)})")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="qfr-kills-") as temporary:
        folder = given.folder or Path(temporary)
        result = run_kills(folder, given.kills, given.seed, given.grid or GRID, given.moment)
    for moment, count in result.kills.most_common():
        print(f"{count:4} kills: {moment}")
    for line in result.problems:
        print(f"PROBLEM: {line}")
    total = sum(result.kills.values())
    print(json.dumps({"kills": total, "starts": result.starts, "rounds": result.rounds,
                      "problems": len(result.problems), "seconds": round(result.seconds)}))  # fmt: skip
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
