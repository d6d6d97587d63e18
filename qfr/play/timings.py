"""Where the wall time of a sweep went, in seconds by what it was spent on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

MODELS, ENGINE, EPISODES, STORE, REPORT = "model files", "llama.cpp", "episodes", "MLflow", "report"
_WORDS = {
    MODELS: "deriving and loading models",
    ENGINE: "evaluating tokens",
    EPISODES: "reading turns, tools, journal",
    STORE: "MLflow",
    REPORT: "report",
}


class Spent:
    """Adds up seconds. Jobs hand theirs to the sweep with `take`, since a launcher may run them elsewhere."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def begin(self) -> None:
        """A command begins."""
        self._seconds = {}
        self._began = time.perf_counter()

    @property
    def wall(self) -> float:
        """Seconds since the command began."""
        return time.perf_counter() - self._began

    def add(self, what: str, seconds: float) -> None:
        """Count some seconds."""
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the seconds inside."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(what, time.perf_counter() - started)

    def take(self) -> dict[str, float]:
        """What was counted so far; counting starts anew."""
        taken, self._seconds = self._seconds, {}
        return taken


# Of this process: jobs of one process follow each other.
SPENT = Spent()


def time_line(parts: Iterable[Mapping[str, float]], total: float, *, engine: str = "llama.cpp") -> str:
    """`Time: 84 s. evaluating tokens (llama.cpp) 51 s, …, Hydra and the rest 6 s.`

    Parameters
    ----------
    parts
        Seconds by what, of jobs and of the sweep itself.
    total : float
        Wall seconds. Where jobs ran side by side, the parts may add up to more; the rest is left out then.
    engine : str
        What answered, for its words.
    """
    sums: dict[str, float] = {}
    for part in parts:
        for what, seconds in part.items():
            sums[what] = sums.get(what, 0.0) + seconds
    rest = total - sum(sums.values())
    words = [
        f"{_WORDS[what]}{f' ({engine})' if what == ENGINE else ''} {_seconds(sums[what])}"
        for what in _WORDS
        if what in sums
    ]
    words += [f"Hydra, Python and the rest {_seconds(rest)}"] if rest >= 0 else ["(jobs side by side)"]
    return f"Time: {_seconds(total)}: {', '.join(words)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
