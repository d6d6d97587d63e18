"""The same readers under atheris, which seeks inputs that reach new code. Optional: `pip install atheris`.

    python -m tests.chaos.guided log -max_total_time=300

The first word names the reader; everything after it goes to libFuzzer. Reads are judged as in
`tests.chaos.fuzz`: anything raised but one of our own errors ends the run with a traceback and a file that
holds the input.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

# How a reader's input is made of libFuzzer's bytes.
READERS: dict[str, Callable[[bytes], Any]] = {
    "turn": lambda data: data.decode("utf-8", "surrogateescape"),
    "answer": lambda data: data.decode("utf-8", "surrogateescape"),
    "log": lambda data: data,
    "tau": lambda data: data,
    "table": lambda data: data,
    "gguf": lambda data: data,
    "archive": lambda data: (("manifest", "run", "gzip", "file")[data[0] % 4] if data else "run", data[1:]),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Hand over to libFuzzer; it ends the process itself."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in READERS:
        print(f"error: name a reader: {', '.join(READERS)}", file=sys.stderr)
        return 2
    try:
        atheris = importlib.import_module("atheris")
    except ModuleNotFoundError:
        print("error: atheris is not installed\n  → pip install atheris (Python 3.11)", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["qfr"]):
        from tests.chaos.targets import targets
    with tempfile.TemporaryDirectory(prefix="qfr-fuzz-") as scratch:
        target = next(one for one in targets(Path(scratch)) if one.name == words[0])
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        for number in range(50):
            made = target.make(Random(number))
            data = made[1] if isinstance(made, tuple) else made
            data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
            (corpus / str(number)).write_bytes(data)
        atheris.Setup(
            ["guided", *words[1:], str(corpus)], lambda data: target.check(READERS[words[0]](data)) and 0
        )
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
