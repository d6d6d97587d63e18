"""`qfr card` and `qfr verify CARD BUNDLE`: every number of a card follows from its bundle, or is found."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from qfr.cli import main
from qfr.errors import ConfigError
from qfr.report.card import CardRequest, badge, figure, files_of, markdown
from qfr.report.content.build import Report, ReportOptions, build_report
from tests.registering import command
from tests.test_report_parts import cells_of

ALL: list[int | None] = [2] * 10 + [3] * 10
# Ten tasks of two sites, ten of three.
REQUEST = CardRequest("s-1", "m", "tolerant", 5.0)


def report(*lower: list[int | None], margin: float = 5.0) -> Report:
    """Q8_0, which always recovers, against Q4_K_M: recovered sites of 20 tasks for each prompt."""
    tables: dict[tuple[str, str], list[int | None]] = {}
    for at, one in enumerate(lower):
        tables["Q8_0", f"P{at}"] = ALL
        tables["Q4_K_M", f"P{at}"] = one
    return build_report(cells_of(tables), ReportOptions(margin=margin))


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """A card of a small sweep, with hub entries and its bundle."""
    folder = tmp_path_factory.mktemp("card")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    assert command("experiment=smoke", "prompt=P0", f"tracking.root={folder}/mlruns") == 0
    (sweep,) = (path.name for path in (folder / "mlruns" / "reports").iterdir())
    out = folder / "card"
    options = ["--root", f"{folder}/mlruns", "--out", str(out), "--dataset", "someone/orders"]
    assert main(["card", sweep, *options]) == 0
    return out


def test_a_card_follows_from_its_bundle(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(card / "card.md"), str(card / "bundle.tar.zst")]) == 0
    assert "Verified: card.md, card.svg, .eval_results/qfr.yaml of scripted" in capsys.readouterr().out


def test_a_changed_digit_is_found_and_named(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (card / "card.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| Q4_K_M |"))
    changed = re.sub(r"\d", lambda found: str((int(found[0]) + 1) % 10), row.partition(" | ")[2], count=1)
    (card / "changed.md").write_text(text.replace(row, f"| Q4_K_M | {changed}", 1), "utf-8")
    assert main(["verify", str(card / "changed.md"), str(card / "bundle.tar.zst")]) == 1
    told = capsys.readouterr().out
    assert "PROBLEM  card.md, line" in told
    assert row in told.replace("\n", "")
    assert "NOT verified: 1 line" in told


def test_what_is_no_card_and_a_card_without_a_bundle_are_errors_of_the_user(
    card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.md"
    other.write_text("# Mine\n")
    assert main(["verify", str(other), str(card / "bundle.tar.zst")]) == 2
    assert "this is no card of qfr" in capsys.readouterr().err
    assert main(["verify", str(card / "card.md")]) == 2
    assert "a card is checked against its bundle" in capsys.readouterr().err
    assert main(["card", "s-1", "--root", str(card.parent / "mlruns"), "--out", str(card)]) == 2
    assert "a card is there already" in capsys.readouterr().err


def test_the_hub_reads_the_entries(card: Path) -> None:
    raw = yaml.safe_load((card / ".eval_results" / "qfr.yaml").read_text("utf-8"))
    entries = parse_eval_result_entries(raw)
    assert len(entries) == 2
    assert {one.dataset_id for one in entries} == {"someone/orders"}
    assert {one.task_id for one in entries} == {"orders6.et.P0"}
    assert all(0 <= one.value <= 100 for one in entries)
    assert all("suite SHA-256" in (one.notes or "") for one in entries)


def test_a_badge_needs_one_settled_verdict_and_no_flag() -> None:
    worse = report([0, 1] * 10, [1, 0] * 10)
    (ranks,) = (one for one in worse.ranks if one.policy == "tolerant")
    lower = next(one for one in ranks.presets if one.name == "Q4_K_M")
    made = badge(worse, ranks, lower)
    assert made == {
        "schemaVersion": 1,
        "label": "Q4_K_M against Q8_0, tools that fail",
        "message": "worse by more than 5 points (20 tasks)",
        "color": "red",
    }
    assert json.loads(files_of(worse, REQUEST)[Path("badge-Q4_K_M.json")]) == made
    for other in (
        report([*ALL[:18], 2, 2]),  # not settled
        report([0] * 20),  # every task differs alike: the interval is flagged
        report([0, 1] * 10, ALL),  # settled under one prompt only
    ):
        assert not [path for path in files_of(other, REQUEST) if path.name.startswith("badge-")]


def test_the_words_and_numbers_of_a_card_are_those_of_the_page() -> None:
    made = report([0, 1] * 10, [*ALL[:15], 1, 1, 1, 1, 1])
    text = markdown(made, REQUEST)
    (ranks,) = (one for one in made.ranks if one.policy == "tolerant")
    for one in ranks.presets:
        for there in one.prompts:
            assert re.search(rf"^\| {one.name} \| {100 * there.rate:.1f} %.*\| {there.label} \|$", text, re.M)
    assert "| 0 / 20 |" in text
    assert "| 0 / 5 |" in text
    drawn = ET.fromstring(figure(made, ranks))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == 2
    with pytest.raises(ConfigError, match="no model 'n' in that sweep"):
        markdown(made, CardRequest("s-1", "n", "tolerant", 5.0))
