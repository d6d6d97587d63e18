"""The report of a registered sweep: planned, deviated and exploratory contrasts, and what is missing."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qfr.cli import main
from qfr.report.content.build import build_report
from qfr.report.content.registration_status import best
from qfr.report.page import page_of, render_page
from tests.logged import logged_pair
from tests.registering import command, make_checkout, quiet_logging

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")

WHOLE = ("experiment=smoke", "prompt=P0,P1,P4", "report.family=[{a: q8_0, b: q4_k_m, target: full}]")


@dataclass(frozen=True)
class Swept:
    """A checkout whose grid was registered, and the folder of the report of its store."""

    folder: Path
    name: str
    report: Path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Iterator[Swept]:
    """Three prompts are registered: P0 runs as frozen, P4 with a declared deviation, P1 not at all. A fourth
    prompt runs without a registration."""
    folder = make_checkout(tmp_path_factory.mktemp("standing") / "checkout")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        title = "registration.title='Does Q4 recover?'"
        assert command(*WHOLE, "mode=register", title, "registration.hypotheses=plan.md") == 0
        (path,) = Path("registrations").glob("r-*.json")
        use = f"registration.use={path.stem}"
        assert command(*WHOLE, "prompt=P0", use) == 0
        cut = ("suite.step_budget=10", "registration.deviation='the server cut turns'")
        assert command(*WHOLE, "prompt=P4", use, *cut) == 0
        assert command("experiment=smoke", "prompt=P2") == 0
        with quiet_logging():
            assert main(["report", "--out", "out"]) == 0
        yield Swept(folder, path.stem, folder / "out")


def test_the_machine_files_say_how_every_contrast_stands(swept: Swept) -> None:
    with (swept.report / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "contrast"]
    # S* of each pair holds the cells of every prompt, the unregistered P2 among them.
    shared = {row["prompt"]: row["standing"] for row in rows if row["target"] == "s_star"}
    assert shared == {"P0": "exploratory", "P2": "exploratory", "P4": "deviated"}
    rows = [row for row in rows if row["target"] != "s_star"]
    found = {(row["prompt"], row["standing"], row["registration"]) for row in rows}
    assert found == {
        ("P0", "planned", swept.name),
        ("P4", "deviated", swept.name),
        ("P2", "exploratory", swept.name),
    }
    reasons = {row["prompt"]: row["standing_reason"] for row in rows}
    assert reasons["P0"] == ""
    assert "the server cut turns (suite.step_budget: found 10, frozen 12)" in reasons["P4"]
    assert f"not run under {swept.name}: scripted q8_0 P2 et" in reasons["P2"]
    data = json.loads((swept.report / "results.json").read_text(encoding="utf-8"))
    (one,) = data["registrations"]
    missing = [f"scripted {quant} P1 {fault}" for quant in ("q8_0", "q4_k_m") for fault in ("none", "et")]
    assert sorted(one["missing_cells"]) == sorted(missing)
    assert [(c["prompt"], c["a"], c["b"]) for c in one["missing_contrasts"]] == [("P1", "Q8_0", "Q4_K_M")]
    assert sorted(name.split()[2] for name in one["cells_run_otherwise"]) == ["P4"] * 4


@pytest.mark.parametrize("file", ["report.html", "report.md"])
def test_page_and_markdown_have_the_section(swept: Swept, file: str) -> None:
    text = (swept.report / file).read_text(encoding="utf-8").replace("\\_", "_")
    for part in (
        "Planned, deviated, exploratory",
        f"{swept.name}: Does Q4 recover?",
        "the server cut turns",
        "4 of 12 planned cells are missing",
        "scripted q4_k_m P1 et",
        "planned, missing",
        "Missing planned cells",
    ):
        assert part in text, part


def test_the_closing_report_of_a_sweep_has_it_too(swept: Swept) -> None:
    planned = []
    for path in swept.folder.glob("mlruns/reports/s-*/results.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        contrasts = [row for row in data["results"] if row["kind"] == "contrast"]
        if contrasts[0]["prompt"] == "P0":
            assert {one["standing"] for one in contrasts} == {"planned"}
            planned += data["registrations"]
    (one,) = planned
    # When the first sweep ended, nothing of P1 and P4 had run.
    assert len(one["missing_cells"]) == 8


def test_a_registration_that_was_changed_is_told(swept: Swept) -> None:
    path = swept.folder / "registrations" / f"{swept.name}.json"
    kept = path.read_bytes()
    path.write_bytes(kept.replace(b"Does Q4 recover?", b"Did Q4 recover??"))
    try:
        assert main(["report", "--out", "gone"]) == 0
    finally:
        path.write_bytes(kept)
    text = Path("gone/report.md").read_text(encoding="utf-8")
    assert "Registrations that cannot be read" in text
    assert "changed after registering" in text


def test_along_another_axis_nothing_is_called_missing(swept: Swept) -> None:
    assert main(["report", "--vary", "prompt", "--out", "prompts"]) == 0
    data = json.loads(Path("prompts/results.json").read_text(encoding="utf-8"))
    (one,) = data["registrations"]
    assert one["missing_contrasts"] == []
    assert "The plan contrasts quant, this report prompt" in one["summary"]
    assert {row["standing"] for row in data["results"] if row["kind"] == "contrast"} == {"exploratory"}


def test_without_a_registration_everything_is_exploratory() -> None:
    table: list[int | None] = [2] * 20
    report = build_report(logged_pair("Q8_0", table) + logged_pair("Q4_K_M", table))
    assert page_of(report).unregistered.startswith("No cell of this report ran under a registration")
    assert best(report.followed, 0)[1].standing == "exploratory"
    assert "every contrast is exploratory" in render_page(report)
