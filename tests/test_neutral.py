"""The neutral format: what a sweep exports gives the same contrasts again; bad lines are one clear error."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qfr.archive.neutral import cells_of
from qfr.cli import main
from qfr.foreign.jsonl import read_lines
from qfr.records import FaultKind, Policy
from qfr.scoring import score
from qfr.tracking.store import open_store
from qfr.tracking.writing.sweep import PlannedCell, close_sweep, open_sweep
from tests.builders import Style, build_cell_episodes, make_facts, orders20, undelivered
from tests.tracked import cell, log_cell

SWEEP = "s-20260101-000000-abcdef"
SHAPES = orders20()[4:16]
TABLES = {
    ("Q8_0", "P0"): [2, 1, 2, None, 0, 2, 3, 2, 3, 1, 3, 3],
    ("Q8_0", "P4"): [2, 2, None, 2, 1, 2, 3, 0, 3, 1, 2, 3],
    ("Q4_K_M", "P0"): [1, None, 2, 2, 0, 1, 2, 2, None, 1, 0, 3],
    ("Q4_K_M", "P4"): [0, 1, 2, 2, None, 1, 0, 2, 2, 1, 0, 2],
}


def log_grid(root: Path) -> None:
    """Two presets, prompts and faults; some answers are expressions, one fault of a cell never fired."""
    store = open_store(None, root, "qfr")
    finished = []
    for (quant, prompt), table in TABLES.items():
        for fault in (FaultKind.et, FaultKind.ep):
            style = Style(expression=quant == "Q4_K_M", bad_call=prompt == "P4")
            clean, facts = (make_facts("m", quant, prompt, kind) for kind in ("none", fault.value))
            built = build_cell_episodes(
                table, SHAPES, clean_id=clean.cell_id, cell_id=facts.cell_id, fault=fault, style=style
            )
            faulted = (undelivered(built.faulted[0], SHAPES[0]), *built.faulted[1:])
            if fault is FaultKind.et:
                finished.append(cell(replace(clean, sweep=SWEEP), built.clean, built.clean))
            finished.append(cell(replace(facts, sweep=SWEEP), faulted, built.clean))
    planned = [PlannedCell(one.facts.design_id, one.facts.name) for one in finished]
    parent = open_sweep(store, SWEEP, name="grid", tags={}, planned=planned)
    for one in finished:
        log_cell(store, one, parent)
    close_sweep(store, parent, ok=True)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> tuple[Path, Path, Path]:
    """The report of a sweep, that of its export after an import elsewhere, and the exported file."""
    place = tmp_path_factory.mktemp("neutral")
    for name in ("ours", "theirs"):
        (place / name).mkdir()
        shutil.copy(migrated_database, place / name / "mlflow.db")
    log_grid(place / "ours")
    ours, file = ["--root", str(place / "ours")], place / "sweep.jsonl"
    assert main(["report", *ours, "--sweep", SWEEP, "--out", str(place / "a")]) == 0
    assert main(["export", SWEEP, str(file), "--format", "jsonl", *ours]) == 0
    theirs = ["--root", str(place / "theirs"), "--experiment", "other"]
    assert main(["import", str(file), *theirs]) == 0
    assert main(["report", *theirs, "--out", str(place / "b")]) == 0
    return place / "a", place / "b", file


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


COMPUTED = ("contrast", "rate", "rank", "simultaneous", "interaction", "ladder", "budget")
DRAWN = ("gap", "amplification", "recovery", "channel", "novelty")


@pytest.mark.parametrize("kind", [*COMPUTED, *DRAWN])
def test_an_export_gives_the_same_numbers_digit_for_digit(places: tuple[Path, Path, Path], kind: str) -> None:
    # The cells are others, and so are the ids of their rows.
    left_out = {"id", "cells"}
    if kind in DRAWN:
        # These intervals are drawn by chance, after draws for the margins.
        left_out |= {"low", "high", "reason", "reliable", "degenerate", "critical"}
    ours, theirs = (
        [
            {name: text for name, text in row.items() if name not in left_out}
            for row in table(place / "results.csv")
            # Tokens are no part of the format.
            if row["kind"] == kind and row["target"] != "tokens"
        ]
        for place in places[:2]
    )
    assert len(ours) > 3
    assert ours == theirs


def test_tokens_that_the_format_does_not_hold_are_no_zeros(places: tuple[Path, Path, Path]) -> None:
    theirs = table(places[1] / "results.csv")
    tokens = [row for row in theirs if "tokens" in row["item"] or row["target"] == "tokens"]
    assert len(tokens) > 10
    assert {row["value"] for row in tokens} == {""}
    assert not [row for row in tokens if row["count_a"] == "0" and row["kind"] == "count"]


def test_importing_twice_adds_nothing(
    places: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = places[2].parent / "theirs"
    assert main(["import", str(places[2]), "--root", str(root), "--experiment", "other"]) == 0
    assert "0 runs put into experiment other" in capsys.readouterr().out


# --- other programs' logs ---------------------------------------------------------------------------------

CLEAN: dict[str, Any] = {"model": "m", "preset": "Q4", "task": "t1", "success": True}
FAULT: dict[str, Any] = {**CLEAN, "fault": "et", "fired": True}


def write(folder: Path, *lines: dict[str, Any] | str) -> Path:
    path = folder / "log.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("fault", [str(kind) for kind in FaultKind if kind is not FaultKind.none])
@pytest.mark.parametrize("ending", ["submitted", "reported_failure", "out_of_steps"])
@pytest.mark.parametrize("calls", [None, [{"tool": "a"}]])
@pytest.mark.parametrize("success", [(True, True), (True, False), (False, False)])
def test_the_score_says_what_the_line_says(
    tmp_path: Path, fault: str, ending: str, calls: object, success: tuple[bool, bool]
) -> None:
    said = {"tolerant": success[0], "strict": success[1]}
    line = FAULT | {"fault": fault, "success": said, "ending": ending, "dead_calls": 3, "calls": calls}
    (_, cell) = cells_of(read_lines(write(tmp_path, CLEAN, line)))
    (episode,) = cell.episodes
    assert tuple(score(episode, policy).success for policy in Policy) == success
    assert score(episode, Policy.tolerant).delivered


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((CLEAN, "{"), ("no JSON", "log.jsonl, line 2")),
        ((CLEAN, "[]"), ("an object is expected", "line 2")),
        (({**CLEAN, "sucess": True},), ("no key 'sucess'", "did you mean 'success'", "line 1")),
        (({"model": "m", "task": "t"},), ("'success' is missing", "line 1")),
        (
            ({**CLEAN, "fault": "timeout"},),
            ("'timeout' is none of the known", "one of none, et", "line 1"),
        ),
        (({**CLEAN, "fault": "et"},), ("'fired' is missing", "line 1")),
        ((FAULT,), ("no clean pass", "line 1")),
        ((CLEAN, FAULT | {"task": "t2"}), ("'t2' has an episode with a fault but no clean one", "line 2")),
        ((CLEAN, CLEAN), ("stands twice", "line 2", "line 1")),
        (({**CLEAN, "success": {"tolerant": False, "strict": True}},), ("strict success", "line 1: success")),
        (({**CLEAN, "calls": [{"tool": "a", "ok": False}]},), ("names its channel", "line 1: calls[0]")),
        ((CLEAN, FAULT | {"fired": 4, "calls": []}), ("call 4 is not in the line", "line 2: fired")),
        (({**CLEAN, "calls": [{"tool": "a", "parse": "tolerant"}]},), ("contradicts", "line 1")),
        (({**CLEAN, "executor": "foreign"},), ("the name is taken", "line 1: executor")),
        ((), ("holds no episode",)),
    ],
)
def test_a_bad_line_is_one_error_with_its_number(
    tmp_path: Path, lines: tuple[Any, ...], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, *lines)
    assert main(["import", str(path), "--no-log"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    for part in said:
        assert part in error


def test_settings_tell_cells_apart_and_the_clean_pass_serves_all_faults(tmp_path: Path) -> None:
    lines = [CLEAN]
    lines += [FAULT | {"settings": {"fault.message": text}} for text in ("busy", "down")]
    cells = cells_of(read_lines(write(tmp_path, *lines)))
    assert [one.facts.fault for one in cells] == ["none", "et", "et"]
    assert len({one.facts.cell_id for one in cells}) == 3
    assert {one.facts.clean_id for one in cells} == {cells[0].facts.cell_id}


def test_two_texts_of_one_cell_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text(json.dumps(CLEAN) + "\n")
    second.write_text(json.dumps(CLEAN | {"success": False}) + "\n")
    assert main(["import", str(first), str(second), "--no-log"]) == 2


def test_the_converter_of_the_document_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = (Path(__file__).parents[1] / "docs" / "import.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    (sample,) = re.findall(r"```json\n(.*?)```", document, flags=re.DOTALL)
    assert len(program.splitlines()) <= 32
    (tmp_path / "convert.py").write_text(program, encoding="utf-8")
    (tmp_path / "runs.json").write_text(sample, encoding="utf-8")
    made = subprocess.run(
        [sys.executable, "convert.py", "runs.json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / "runs.jsonl").write_text(made.stdout, encoding="utf-8")
    assert main(["import", str(tmp_path / "runs.jsonl"), "--root", str(tmp_path / "mlruns")]) == 0
    assert "1 faults fired" in capsys.readouterr().out
