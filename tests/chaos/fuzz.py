"""Fuzzing by the million: nothing that reads foreign bytes may hang, crash, evaluate or reach outside.

    python -m tests.chaos.fuzz --inputs 1000000

Readers: a model's turn, an answer and its arithmetic, episode logs, logs of tau2-bench and tau-bench,
archives of sweeps, tables of results, headers of GGUF files. An input follows from seed, reader and number
alone, so a finding comes again by `--seed S --only NAME --first NUMBER --inputs 1`.

An input is a finding when its reader raises anything but one of our own errors, takes more than SECONDS of
processor time, or starts a process, compiles code, opens a socket, or opens a file for writing elsewhere.
Exit code: 0 no finding, 1 findings (written to the folder of `--out`), 2 wrong options.
"""

from __future__ import annotations

import argparse
import codecs
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from tests.chaos.targets import Target, targets

SECONDS = 2.0
MEMORY = 8 << 30
# Bytes of address space: a reader that wants more gets a MemoryError, which is a finding.
_WARM = 300
# Inputs of each reader before forbidden events count: libraries load parts of themselves at first use.
_FORBIDDEN = ("compile", "exec", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen")
_FORBIDDEN_TOO = ("socket.__new__", "ctypes.dlopen", "os.putenv", "os.symlink", "os.link", "os.chmod")


class Hang(BaseException):
    """A reader took too long. No `Exception`: nothing that is fuzzed may catch it."""


class Forbidden(BaseException):
    """A reader did what no reader does."""


@dataclass
class _Watch:
    """The audit hook's state: hooks cannot be taken away again."""

    on: bool = False
    scratch: str = ""

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            name, mode = str(arguments[0]), str(arguments[1] or "")
            if set(mode) & set("wax+") and not name.startswith(self.scratch):
                raise Forbidden(f"open({name!r}, {mode!r})")
        elif event in _FORBIDDEN or (event in _FORBIDDEN_TOO and not self._inside(arguments)):
            raise Forbidden(event)

    def _inside(self, arguments: tuple[object, ...]) -> bool:
        return bool(arguments) and str(arguments[0]).startswith(self.scratch)


_WATCH = _Watch()


@dataclass
class Outcome:
    """What became of one reader's inputs."""

    name: str
    inputs: int = 0
    read: int = 0
    # Inputs that were read; the others were refused by one of our own errors.
    slowest: float = 0.0
    # Processor seconds of the slowest input.
    slowest_input: int = 0
    seconds: float = 0.0
    # Wall time of all.
    findings: list[str] = field(default_factory=list)


def fuzz(inputs: int, seed: str, only: Sequence[str] = (), first: int = 0) -> list[Outcome]:
    """Throw inputs at all readers, each its share.

    Parameters
    ----------
    inputs : int
        All together.
    seed : str
    only : sequence of str
        Names of readers; empty = all.
    first : int
        Number of each reader's first input.
    """
    with tempfile.TemporaryDirectory(prefix="qfr-fuzz-", dir=_memory_folder()) as scratch, _guarded(scratch):
        chosen = [one for one in targets(Path(scratch)) if not only or one.name in only]
        whole = sum(one.share for one in chosen)
        return [_run(one, round(inputs * one.share / whole), seed, first) for one in chosen]


def _run(target: Target, inputs: int, seed: str, first: int) -> Outcome:
    outcome = Outcome(target.name)
    started = time.perf_counter()
    for number in range(min(_WARM, inputs)):
        _one(target, f"{seed}/{target.name}/warm-{number}", outcome, number)
    outcome = Outcome(target.name, findings=outcome.findings)
    for number in range(first, first + inputs):
        _WATCH.on = True
        _one(target, f"{seed}/{target.name}/{number}", outcome, number)
        _WATCH.on = False
        if sys.stderr.isatty() and number % 5000 == 0:
            print(f"\r{target.name}: {number - first:,} of {inputs:,}  ", end="", file=sys.stderr)
    outcome.seconds = time.perf_counter() - started
    return outcome


def _one(target: Target, seed: str, outcome: Outcome, number: int) -> None:
    made = target.make(Random(seed))
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        outcome.read += target.check(made)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        _WATCH.on = False
        lines = "".join(traceback.format_exception(error, limit=-8))
        outcome.findings.append(f"{seed}\n{lines}\n{made!r:.4000}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    used = time.process_time() - started
    outcome.inputs += 1
    if used > outcome.slowest:
        outcome.slowest, outcome.slowest_input = used, number


@contextmanager
def _guarded(scratch: str) -> Iterator[None]:
    def hang(_signal: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {SECONDS:g} s of processor time")

    before, limits = signal.signal(signal.SIGPROF, hang), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    for encoding in ("utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        codecs.lookup(encoding)  # Python loads these when a JSON text seems to be in one of them.
    if not _WATCH.scratch:
        sys.addaudithook(_WATCH)
    _WATCH.scratch = scratch
    try:
        yield
    finally:
        _WATCH.on = False
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz, print a table, keep what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", action="append", default=[], help="name of a reader; may be repeated")
    parser.add_argument("--first", type=int, default=0, help="number of each reader's first input")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    given = parser.parse_args(argv)
    outcomes = fuzz(given.inputs, given.seed, given.only, given.first)
    print(f"{'reader':<10}{'inputs':>12}{'read':>12}{'slowest':>12}{'at':>10}{'seconds':>10}{'findings':>10}")
    for one in outcomes:
        print(
            f"{one.name:<10}{one.inputs:>12,}{one.read:>12,}{one.slowest * 1000:>9.1f} ms"
            f"{one.slowest_input:>10}{one.seconds:>10.0f}{len(one.findings):>10}"
        )
        for number, text in enumerate(one.findings[:100]):
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"{one.name}-{number}.txt").write_text(text, "utf-8", "backslashreplace")
    total = sum(one.inputs for one in outcomes)
    found = sum(len(one.findings) for one in outcomes)
    print(json.dumps({"inputs": total, "findings": found, "seed": given.seed}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
