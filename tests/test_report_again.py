"""A report made again is the one that the sweep printed; with other options it is another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qfr.cli import main as qfr
from qfr.front.main import main as run
from qfr.tracking.store import open_store
from qfr.tracking.writing.sweep import find_sweep

GRID = (
    *("-m", "model=scripted", "engine=scripted", "suite=orders6", "fault=et", "prompt=P0"),
    *("quant=q8_0,q4_k_m", "scorer=strict", "report.margin=7.5", "report.vary=quant"),
    "report.family=[{a: q8_0, b: q4_k_m, target: full}]",
)


def contents(folder: Path) -> dict[str, str]:
    """Every file of a report, without the lines that say when and how it was made."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in (".html", ".md", ".csv", ".json"):
            text = re.sub(r"qfr report [^<\n\"]*", "COMMAND", path.read_text(encoding="utf-8"))
            found[path.name] = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", text)
    return found


def test_the_same_report_again_and_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "runs"
    monkeypatch.chdir(tmp_path)
    assert run([*GRID, f"tracking.root={root}"]) == 0
    (folder,) = (root / "reports").iterdir()
    sweep, first = folder.name, contents(folder)
    assert "within 7.5 points" in first["report.html"]
    store = open_store(None, root, "qfr")
    logged = dict(find_sweep(store, sweep).data.metrics)
    for path in folder.iterdir():
        path.unlink()
    words = ["report", "--root", str(root), "--sweep", sweep]
    monkeypatch.setattr("sys.argv", ["qfr", *words])
    assert qfr(words) == 0
    assert contents(folder) == first
    capsys.readouterr()
    assert qfr([*words, "--margin", "20"]) == 0
    assert "its own report stays as it is" in capsys.readouterr().err
    assert contents(folder) == first
    (other,) = (path for path in (root / "reports").iterdir() if path != folder)
    assert "within 20 points" in contents(other)["report.html"]
    assert dict(find_sweep(store, sweep).data.metrics) == logged


def test_where_nothing_changed_the_report_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "runs"
    monkeypatch.chdir(tmp_path)

    def made(*more: str) -> tuple[list[Path], str]:
        """Reports that the sweep wrote, and what it said of one that stands."""
        before = set((root / "reports").glob("*"))
        assert run([*GRID, f"tracking.root={root}", *more]) == 0
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Nothing changed")]
        return sorted(set((root / "reports").glob("*")) - before), "".join(said)

    (first,), _ = made()
    none, said = made()
    assert not none
    assert said == f"Nothing changed since sweep {first.name}; its report stands: {first / 'report.html'}"
    # The next one names the report, not the sweep that wrote none.
    assert made() == ([], said)
    # Another setting, or a page that is gone: each is a report of its own.
    (_,), said = made("report.margin=20")
    assert not said
    (first / "report.html").unlink()
    (_,), said = made()
    assert not said
