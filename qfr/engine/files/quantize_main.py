"""The quantizer's child process: one file in, one file out, the outcome as JSON on standard output."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

from qfr.engine import child
from qfr.engine.files.imatrix import read_imatrix
from qfr.engine.files.quantize import BAD_IMATRIX, Outcome
from qfr.engine.llama.api import LlamaLog, ftype_of, quantize
from qfr.errors import ModelFileError

_FALLBACK = re.compile(r"required for type\s+(\S+?)\) -> falling back to\s+(\S+)")


def run(source: Path, target: Path, preset: str, threads: int, imatrix: Path | None) -> Outcome:
    """Quantize; requantizing has been decided on by the parent."""
    number = ftype_of(preset)
    if number is None:
        return Outcome(1, (), f"unknown preset {preset}")
    try:
        matrix = None if imatrix is None else read_imatrix(imatrix)
    except ModelFileError as error:
        return Outcome(BAD_IMATRIX, (), error.what)
    log = LlamaLog(keep=100_000)
    log.install()
    code = quantize(source, target, number, threads=threads, allow_requantize=True, matrix=matrix)
    found = [_FALLBACK.search(line) for line in log.lines()]
    fallbacks = tuple(f"{hit.group(1).upper()} to {hit.group(2).upper()}" for hit in found if hit)
    return Outcome(code, fallbacks, "" if code == 0 else log.errors())


if __name__ == "__main__":
    child.outlive_signals_not_parent(os.getppid())
    outcome = run(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        Path(sys.argv[5]) if sys.argv[5] else None,
    )
    print(json.dumps(asdict(outcome)))
