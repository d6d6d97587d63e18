"""Bad input and bad states, in one table: what a user typed or has, the exit code, and the message he reads.

Every row runs as the user would run it, in a folder of its own with a real store; permissions bind root too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from qfr.cli import main
from qfr.play import job
from tests.bad_states import (
    ONE,
    SMALL,
    Command,
    Place,
    State,
    backward_clock,
    closed_archive_folder,
    closed_folder,
    closed_report_folder,
    deleted_artifacts,
    deleted_clean_run,
    halved_log,
    journal_of_another_schema,
    journal_with_a_hole,
    mode,
    newer_database,
    not_finite,
    odd_folder,
    prompt_with_placeholders,
    template_that_calls_out,
    template_with_a_date,
    torn_journal,
    two_suites,
    typed,
    unreadable_model,
    unreadable_prompt,
)
from tests.registering import quiet_logging
from tests.tiny_models import TinyModel
from tests.unprivileged import as_a_user


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    state: State
    code: int
    says: tuple[str, ...]
    # Parts of what he reads, on stdout or stderr.
    stored: bool = False
    # The store already holds a finished sweep of the scripted engine.
    bound: bool = False
    # Permissions bind.


ZEROS = "0" * 64
TABLE = (
    Row(
        "wrong override",
        typed("run", "quant=q4_k"),
        2,
        ("quant=q4_k: there is no such choice (did you mean 'q4_k_",),
    ),
    Row("missing group", typed("run", "promt=P0"), 2, ("no key 'promt' (did you mean 'prompt'?)",)),
    Row("no such command", typed("reprot"), 2, ("no command 'reprot' (did you mean 'report'?)",)),
    Row(
        "missing model file",
        typed(*SMALL, "model.path=models/none.gguf"),
        2,
        ("'models/none.gguf' does not exist", "no folder 'models'"),
    ),
    Row("missing prompt", typed(*ONE, "prompt.file=P7.md"), 2, ("no prompt file 'P7.md'", "P0.md, P1.md")),
    Row("missing table", typed("contrast", "none.json"), 2, ("none.json",)),
    Row("missing archive", typed("import", "none.tar.zst"), 2, ("there is no such file", "qfr export")),
    Row("no store", lambda p: ("report", "--root", "none"), 2, ("there is no store", "run a grid first")),
    Row(
        "wrong digest of a prompt",
        typed(*ONE, f"prompt.sha256={ZEROS}"),
        2,
        (f"pinned is {ZEROS}", "P0.md", "a changed prompt is a new prompt"),
    ),
    Row(
        "wrong digest of a model",
        lambda p: (
            *SMALL[:1],
            *SMALL[3:],
            "quant=f16",
            "model=ref_llama",
            f"model.files.F16.sha256={ZEROS}",
        ),
        1,
        (f"expected is {ZEROS}", "ref_llama-F16.gguf"),
    ),
    Row("digest that is none", typed(*ONE, "prompt.sha256=abc"), 2, ("prompt.sha256", "64")),
    Row(
        "mlruns read-only",
        mode("mlruns", 0o500, *ONE),
        2,
        ("mlruns: the folder of the store cannot be written (Permission denied)", "another tracking.root"),
        bound=True,
    ),
    Row(
        "mlruns unreadable, a run",
        mode("mlruns", 0, *ONE),
        2,
        ("mlruns: the folder of the store cannot be written", "another tracking.root"),
        bound=True,
    ),
    Row(
        "mlruns unreadable, a plan",
        mode("mlruns", 0, *ONE, "mode=plan"),
        0,
        ("cannot be read", "the folder of the database cannot be read (Permission denied)"),
        bound=True,
    ),
    Row(
        "mlruns unreadable, a report",
        mode("mlruns", 0, "report"),
        2,
        ("mlruns: the folder of the database cannot be read (Permission denied)", "mend its permissions"),
        bound=True,
    ),
    Row(
        "database read-only",
        mode("mlruns/mlflow.db", 0o400, *ONE),
        2,
        ("mlflow.db: this user may not read and write the database", "mend its permissions"),
        bound=True,
    ),
    Row("database newer", newer_database, 2, ("newer MLflow (schema ffffffffffff", "another tracking.root")),
    Row(
        "no write permission here",
        closed_folder,
        2,
        ("mlruns: the folder of the store cannot be written (Permission denied)",),
        bound=True,
    ),
    Row(
        "no write permission for the report",
        closed_report_folder,
        2,
        ("closed/report", "cannot be written"),
        stored=True,
        bound=True,
    ),
    Row(
        "no write permission for an archive",
        closed_archive_folder,
        2,
        ("closed/out.tar.zst", "cannot be written"),
        stored=True,
        bound=True,
    ),
    Row("model unreadable", unreadable_model, 2, ("tiny.gguf: no permission to read it",), bound=True),
    Row("prompt unreadable", unreadable_prompt, 2, ("mine.md: the prompt file cannot be read",), bound=True),
    Row(
        "artifacts deleted from under a run",
        deleted_artifacts,
        2,
        ("episodes.parquet is missing", "deleted from under the run?", "run the same command again"),
        stored=True,
    ),
    Row(
        "clean run deleted",
        deleted_clean_run,
        2,
        ("its clean run", "is not in the store", "run the same command again"),
        stored=True,
    ),
    Row("log cut in half, an audit", halved_log("audit"), 1, ("not a whole gzip file",), stored=True),
    Row("log cut in half, a rescore", halved_log("rescore"), 2, ("not a whole gzip file",), stored=True),
    Row(
        "journal damaged in the middle",
        journal_with_a_hole,
        2,
        ("journal.jsonl, line 1", "the log is damaged", "move its folder away"),
        stored=True,
    ),
    Row(
        "journal torn at its end", torn_journal, 0, ("cut off a torn last line", "resumes after"), stored=True
    ),
    Row(
        "journal of another schema",
        journal_of_another_schema,
        2,
        ("schema version '9', but this qfr reads versions 1, 2, 3", "the qfr version that wrote it"),
        stored=True,
    ),
    Row("two suites in one report", two_suites, 0, ("suite",), stored=True),
    Row("NaN logits", not_finite, 1, ("Not finished: 2 cells", "not finite")),
    Row(
        "context of the run too small",
        lambda p: (*SMALL, p.model(), "engine.n_ctx=64"),
        1,
        ("Not finished: 2 cells", "do not fit into the context of 64 tokens"),
    ),
    Row(
        "context of the model too small",
        lambda p: (*SMALL, p.model(TinyModel(context=128))),
        1,
        ("the model's context is 128 tokens, 1536 are needed",),
    ),
    Row(
        "prompt with unknown placeholders",
        prompt_with_placeholders,
        0,
        ("prompt mine holds '{{ tools }}', '${secret}', '{name}': nothing is filled in",),
    ),
    Row("template that prints the date", template_with_a_date, 0, ("of 2 tasks certified",)),
    Row("template that leaves its sandbox", template_that_calls_out, 2, ("template",)),
    Row("0 tasks", typed(*ONE, "suite.families={base:0,shipping:0}"), 2, ("the suite has no tasks",)),
    Row("fewer than 0 tasks", typed(*ONE, "suite.families={base:-1}"), 2, ("suite.families.base=-1",)),
    Row("0 certified tasks", lambda p: (*SMALL, p.model()), 0, ("0 of 2 tasks certified",)),
    Row("preset with a slash", typed(*ONE, "quant.preset=Q4/K"), 2, ("'Q4/K' is not a preset", "one of F32")),
    Row("name with a slash", typed(*ONE, "model.name=../x"), 2, ("model.name",)),
    Row("non-ASCII paths with blanks", odd_folder, 0, ("mein Bericht/report.html",)),
    Row("clock going backwards", backward_clock, 0, ("6 of 6 tasks certified",)),
)


# --- how they run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """A store with a finished sweep, moved away from where it was made: its copies are read as moved ones."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    with quiet_logging():
        assert main([*ONE, f"tracking.root={folder}/mlruns", f"hydra.sweep.dir={folder}/multirun"]) == 0
    return (folder / "mlruns").rename(folder / "kept")


@pytest.fixture
def place(tmp_path: Path, migrated_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = tmp_path / "work"
    (folder / "mlruns").mkdir(parents=True)
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    monkeypatch.chdir(folder)
    yield Place(folder, migrated_database)
    job._SHELF.clear()
    for path in (folder, *folder.rglob("*")):
        with suppress(OSError):
            path.chmod(0o700)


@pytest.mark.parametrize("row", TABLE, ids=[row.what for row in TABLE])
def test_the_user_reads(
    row: Row, place: Place, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if row.stored:
        shutil.rmtree(place.root)
        shutil.copytree(request.getfixturevalue("finished"), place.root)
    words = row.state(place)
    capfd.readouterr()
    if row.state is backward_clock:
        monkeypatch.setattr(time, "time", _backwards(time.time()))
    code = _typed(words, bound=row.bound)
    out, err = capfd.readouterr()
    told = " ".join((out + err).replace("│", " ").split())
    assert code == row.code, out + err
    assert "Traceback" not in told
    for part in row.says:
        assert part in told, out + err
    if code == 2:
        assert any(line.startswith("error: ") for line in err.splitlines())


def _typed(words: Command, *, bound: bool) -> int:
    with quiet_logging():
        try:
            if bound:
                with as_a_user():
                    return main(list(words))
            return main(list(words))
        except SystemExit as leaving:
            return int(str(leaving.code))


def _backwards(start: float) -> Callable[[], float]:
    """A clock that loses a minute with every look at it."""
    looks = 0

    def now() -> float:
        nonlocal looks
        looks += 1
        return start - 60.0 * looks

    return now


def test_every_row_of_the_table_has_a_name_of_its_own() -> None:
    assert len({row.what for row in TABLE}) == len(TABLE)


def test_permissions_bind_in_these_tests(tmp_path: Path) -> None:
    """Otherwise the rows above would prove nothing when root runs them."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with as_a_user():
        assert not os.access(closed, os.W_OK)
        with pytest.raises(PermissionError):
            (closed / "file").write_text(json.dumps(1))
    closed.chmod(0o700)
