"""What is kept of a try: a folder with the record and the drawing of all looks, and a run in MLflow."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from qfr.analysis.decisions.sequential import Look, Sequential
from qfr.canonical import canonical
from qfr.config import TrackingConfig
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.tries import LookPoint, close_try, log_looks, open_try
from qfr.tryout import answer as words
from qfr.tryout.drawing import svg
from qfr.tryout.files import Family
from qfr.tryout.plan import Question
from qfr.tryout.sequence import Answer, Tried


class Looks:
    """Keeps the looks of one question that is asked of the same files: the same folder and run each time.

    Parameters
    ----------
    question : Question
    families : sequence of Family
    tracking : TrackingConfig
        Of the cells.
    """

    def __init__(self, question: Question, families: Sequence[Family], tracking: TrackingConfig) -> None:
        names = ("margin", "max_gb", "suite", "tasks", "prompt", "fault", "executor", "kv")
        self._settings: dict[str, object] = {name: getattr(question, name) for name in names}
        self._names = [one.name for one in families]
        files = [str(arm.path) for one in families for arm in one.arms]
        whole = canonical({**self._settings, "files": files}).encode("ascii")
        self._key = hashlib.sha256(whole).hexdigest()[:12]
        self._folder = Path(question.root) / "tries" / self._key
        self._tracking = tracking
        self._run: tuple[Store, str] | None = None

    def add(self, family: Family, tried: Tried) -> None:
        """Log the looks of a file so far; those that the run holds are left alone."""
        points = [LookPoint(_series(family, tried), one.tasks, _values(one)) for one in tried.looks]
        log_looks(*self._open(), points)

    def close(self, answers: Sequence[Answer], rule: Sequential) -> list[Path]:
        """Write record and drawing, here and on the run; where they are."""
        curves = [
            (f"{one.family.name}: {tried.arm.label} − {one.reference.label}", tried.looks)
            for one in answers
            for tried in one.tried
            if tried.looks
        ]
        files = {"looks.json": words.record(answers, self._settings).encode("utf-8")}
        if curves:
            files["looks.svg"] = svg(curves, rule).encode("utf-8")
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (self._folder / name).write_bytes(data)
        if curves:
            named = {one.family.name: one.named for one in answers}
            tags = {
                f"qfr.named.{name}": "none" if arm is None else str(arm.path) for name, arm in named.items()
            }
            close_try(*self._open(), tags, files)
        return [self._folder / name for name in files]

    def _open(self) -> tuple[Store, str]:
        if self._run is None:
            store = open_store(self._tracking.uri, Path(self._tracking.root), self._tracking.experiment)
            tags = {f"qfr.{name}": str(value) for name, value in self._settings.items() if value is not None}
            name = f"try {', '.join(self._names)}"
            self._run = store, open_try(store, self._key, name=name, tags=tags)
        return self._run


def _series(family: Family, tried: Tried) -> str:
    return f"{family.name}/{tried.arm.label}"


def _values(look: Look) -> dict[str, float]:
    return {
        "estimate": look.estimate,
        "low": look.low,
        "high": look.high,
        "evidence_not_worse": look.not_worse,
        "evidence_worse": look.worse,
    }
