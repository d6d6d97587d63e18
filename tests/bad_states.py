"""States that a user may find himself in, each made in a working folder of its own with a real store."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qfr.cli import main
from tests.registering import quiet_logging
from tests.tiny_models import LLAMA3, TinyModel, write_model

ONE = ("run", "model=scripted", "suite=orders6", "prompt=P0", "quant=q4_k_m")
SMALL = (
    *("run", "model=local", "quant=f16", "suite.families={base:2,shipping:0}", "suite.step_budget=2"),
    *("executor.max_tokens=8", "engine.n_threads=1", "engine.n_threads_batch=1"),
)
Command = tuple[str, ...]
TINY = TinyModel(context=4096)


@dataclass
class Place:
    """The working folder of a row, with a store in mlruns/."""

    folder: Path
    empty: Path
    # An MLflow database without anything in it.

    @property
    def root(self) -> Path:
        return self.folder / "mlruns"

    def runs(self) -> list[Path]:
        """Folders of the artifacts of finished runs, fault cells last."""
        found = (self.root / "artifacts" / "qfr").glob("*/artifacts/episodes.parquet")
        return sorted(
            (path.parent for path in found), key=lambda path: (path / "config.yaml").stat().st_mtime
        )

    def run_of(self, fault: str) -> Path:
        """Artifacts of the run of a fault kind."""
        return next(path for path in self.runs() if f"kind: {fault}\n" in (path / "config.yaml").read_text())

    def model(self, made: TinyModel = TINY) -> str:
        """`model.path=…` of a tiny model."""
        return f'model.path="{write_model(self.folder / "tiny.gguf", made)}"'

    def sql(self, statement: str) -> None:
        with closing(sqlite3.connect(self.root / "mlflow.db")) as connection, connection:
            connection.execute(statement)


State = Callable[[Place], Command]
# Makes the state and returns what the user types.


def typed(*words: str) -> State:
    """Nothing but a command."""
    return lambda _: words


# --- states -------------------------------------------------------------------------------------------


def newer_database(place: Place) -> Command:
    place.sql("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    return ONE


def mode(path: str, bits: int, *words: str) -> State:
    """A file or folder with other permissions."""

    def change(place: Place) -> Command:
        (place.folder / path).chmod(bits)
        return words

    return change


def unreadable_model(place: Place) -> Command:
    path = place.model()
    (place.folder / "tiny.gguf").chmod(0)
    return (*SMALL, path)


def unreadable_prompt(place: Place) -> Command:
    (place.folder / "mine.md").write_text("You are an agent.")
    (place.folder / "mine.md").chmod(0)
    return (*ONE, "prompt.file=mine.md", "prompt.name=mine")


def closed_folder(place: Place) -> Command:
    shutil.rmtree(place.root)
    place.folder.chmod(0o500)
    return ONE


def closed_report_folder(place: Place) -> Command:
    (place.folder / "closed").mkdir(mode=0o500)
    return ("report", "--out", "closed/report")


def closed_archive_folder(place: Place) -> Command:
    (place.folder / "closed").mkdir(mode=0o500)
    sweep = next((place.root / "reports").iterdir()).name
    return ("export", sweep, "closed/out.tar.zst")


def deleted_artifacts(place: Place) -> Command:
    shutil.rmtree(place.run_of("et"))
    return ("report",)


def deleted_clean_run(place: Place) -> Command:
    place.sql(
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid IN "
        "(SELECT run_uuid FROM tags WHERE key = 'qfr.kind' AND value = 'cell' AND run_uuid IN "
        "(SELECT run_uuid FROM params WHERE key = 'fault' AND value = 'none'))"
    )
    return ("report",)


def halved_log(*words: str) -> State:
    def cut(place: Place) -> Command:
        log = place.run_of("et") / "episodes.jsonl.gz"
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        return words

    return cut


def journal_of(place: Place, change: Callable[[bytes], bytes]) -> Command:
    """A journal of a killed cell, damaged, in a store that has no finished run of it."""
    log = gzip.decompress((place.run_of("none") / "episodes.jsonl.gz").read_bytes())
    shutil.rmtree(place.root)
    folder = place.root / "journal" / str(json.loads(log.splitlines()[0])["cell_id"])
    folder.mkdir(parents=True)
    shutil.copy(place.empty, place.root / "mlflow.db")
    (folder / "journal.jsonl").write_bytes(change(log))
    return (*ONE, "fault=none")


def journal_with_a_hole(place: Place) -> Command:
    return journal_of(place, lambda log: log.replace(b'"turns":', b'"tur', 1))


def journal_of_another_schema(place: Place) -> Command:
    return journal_of(place, lambda log: log.replace(b'"schema":1', b'"schema":9'))


def torn_journal(place: Place) -> Command:
    return journal_of(place, lambda log: log[: len(log) // 2])


def two_suites(place: Place) -> Command:
    with quiet_logging():
        assert main([*ONE, "suite.seed=7", "quant=q8_0"]) == 0
    return ("report",)


def not_finite(place: Place) -> Command:
    with np.errstate(invalid="ignore"):
        return (*SMALL, place.model(dataclasses.replace(TINY, scale=float("nan"))))


def template_with_a_date(place: Place) -> Command:
    return (*SMALL, place.model(dataclasses.replace(TINY, template=LLAMA3)))


def template_that_calls_out(place: Place) -> Command:
    evil = "{{ ''.__class__.__mro__[1].__subclasses__() }}" + LLAMA3
    return (*SMALL, place.model(dataclasses.replace(TINY, template=evil)))


def prompt_with_placeholders(place: Place) -> Command:
    (place.folder / "mine.md").write_text("You have {{ tools }} and ${secret}. Answer {name}.")
    return (*ONE, "prompt.file=mine.md", "prompt.name=mine", "prompt.sha256=null")


def backward_clock(place: Place) -> Command:
    return ONE


def odd_folder(place: Place) -> Command:
    """Blanks, signs and letters of other alphabets in every path."""
    folder = place.folder / "mein Ordner, ü=1 #ж 模型"
    folder.mkdir()
    shutil.move(place.root, folder / "läufe hier")
    (folder / "my prompt é.md").write_text("You are an agent. Tools may fail and may be retried.")
    return (
        *ONE,
        f'tracking.root="{folder}/läufe hier"',
        f'prompt.file="{folder}/my prompt é.md"',
        "prompt.name=mine",
        "prompt.sha256=null",
        f'report.out="{folder}/mein Bericht"',
    )
