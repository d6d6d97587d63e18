"""The example of docs/worlds.md, taken from the page: it checks, runs, and its mistakes are found."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qfr.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "worlds.md").read_text("utf-8")
FILES = dict(
    zip(
        ("my_world.py", "library.md", "conf/suite/library.yaml", "conf/prompt/library.yaml"),
        (text for kind, text in re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL) if kind != "bash"),
        strict=True,
    )
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_database: Path) -> Iterator[Path]:
    """The documented folder, with an empty store."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (tmp_path / "mlruns").mkdir()
    shutil.copy(migrated_database, tmp_path / "mlruns" / "mlflow.db")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.modules.pop("my_world", None)
    with contextlib.chdir(tmp_path):
        yield tmp_path
    sys.modules.pop("my_world", None)


def test_the_example_is_short_and_without_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FILES["my_world.py"].splitlines()) <= 80
    assert main(["world", "check", "my_world:Library"]) == 0
    told = capsys.readouterr().out
    assert "6 tasks with 18 gold calls, nothing wrong found" in told
    assert "sites: 6 calls that depend on others, 12 lookups used later, 6 writes" in told


def test_the_example_runs_to_its_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = re.search(r"^qfr (run .*)$", PAGE, re.MULTILINE)
    assert command is not None
    assert main(command[1].split()) == 0
    told = capsys.readouterr()
    assert "16 of 16 tasks certified" in told.out + told.err
    assert (folder / "mlruns" / "reports").is_dir()
    sweep = next((folder / "mlruns" / "reports").iterdir()).name
    assert main(["export", sweep, "out.tar.zst"]) == 0


CHECK = """    def check(self, task, state, answer):
        from qfr.world.base import Verdict
        return Verdict(False)

"""
MISTAKES = {
    "an argument that the tool does not have": (
        "book_id=book, card=card)\n        else",
        "book=book, card=card)\n        else",
        r"my_world.py line \d+: .*lend_book has no argument 'book'",
    ),
    "a state that is mutated": (
        'return {"loans": [*state["loans"], loan]}, ',
        'state["loans"].append(loan)\n        return state, ',
        r"my_world.py line \d+: lend_book changes the state",
    ),
    "a record that JSON cannot hold": (
        '"shelf": book["shelf"]}',
        '"shelf": {1, 2}}',
        r"my_world.py line \d+: a record of find_book is no JSON",
    ),
    "an exception inside a tool": (
        "if member_id not in MEMBERS:",
        "if MEMBERS[member_id] is None:",
        r"my_world.py line \d+.*KeyError",
    ),
    "an exception in some states only": (
        'if loan not in state["loans"]',
        'if state["loans"][0] != loan',
        r"my_world.py line \d+.*IndexError",
    ),
    "a write marked as a lookup": (
        "@write\n    def lend_book",
        "@lookup\n    def lend_book",
        r"lend_book changes the state and is no write",
    ),
    "a check that fails on the gold path": (
        "    def start(self, task):\n",
        CHECK + "    def start(self, task):\n",
        r"my_world.py line \d+: the gold path of task back-02026 does not end right",
    ),
    "a suite that chance makes": ("i + suite.seed)", "i + suite.seed + id(object()) % 7)", "made twice"),
    "a type that no tool can show": (
        'card: str):\n        "Lend',
        'card: dict):\n        "Lend',
        "no tool can show",
    ),
}


@pytest.mark.parametrize(("right", "wrong", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_place(
    right: str, wrong: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILES["my_world.py"]
    assert right in text
    (folder / "my_world.py").write_text(text.replace(right, wrong), "utf-8")
    assert main(["world", "check", "my_world:Library"]) in (1, 2)
    said = capsys.readouterr()
    assert re.search(told, said.out + said.err, re.DOTALL), said
    assert "Traceback" not in said.err
