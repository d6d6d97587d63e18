"""The data dictionary: current, whole, and about what is really written. The citation file beside it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml

import qfr
from qfr import facts, records
from qfr.analysis.results import COLUMNS, Kind
from qfr.cli import main
from qfr.commands import dictionary
from qfr.errors import QfrError
from qfr.journal import encode
from qfr.records import FaultKind
from qfr.report.content.build import build_report
from qfr.report.export import write_report
from qfr.tracking.reading.tables import CALLS, EPISODES, LOOPS, SCORES, call_table, episode_table, loop_table
from tests.builders import build_cell_episodes, make_work, orders20
from tests.logged import logged_pair

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "data_dictionary.md"
EPISODES_OF = build_cell_episodes([2, None, 1], orders20()[:3])


def sections() -> dict[str, list[str]]:
    """Heading → first column of its table."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("#"):
            found[line.lstrip("# ")] = []
        elif name := re.match(r"\| `([^`]+)` \|", line):
            found[list(found)[-1]].append(name[1])
    return found


def test_the_page_is_what_the_code_says_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dictionary"]) == 0
    assert capsys.readouterr().out == PAGE.read_text("utf-8"), "qfr dictionary > docs/data_dictionary.md"


def test_every_row_has_a_meaning() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    for row in rows:
        last = re.split(r"(?<!\\)\|", row)[-2].strip()
        assert last.endswith((".", '"')), row
        assert len(last.split()) > 1, row


def test_every_field_of_a_log_line_stands_in_it() -> None:
    said = sections()
    names = {
        "Episode": {}, "Turn": ["turns", 0], "Generation": ["turns", 0, "generation"],
        "ToolCall": ["turns", 0, "call"], "Observation": ["turns", 0, "observation"], "FaultTrace": ["trace"],
    }  # fmt: skip
    line = json.loads(encode(EPISODES_OF.faulted[0]))
    for record, path in names.items():
        value = line
        for step in path:
            value = value[step]
        assert set(value) <= set(said[record]), record
        # Later fields are written only where they say something.
        optional = {
            one.name
            for one in dataclasses.fields(getattr(records, record))
            if one.default is not dataclasses.MISSING
        }
        assert set(said[record]) - set(value) <= optional, record


def test_every_column_stands_in_it_in_order(tmp_path: Path) -> None:
    said = sections()
    episodes = EPISODES_OF.faulted
    assert said["episodes.parquet"] == EPISODES.names == episode_table(episodes).column_names
    assert said["calls.parquet"] == CALLS.names == call_table(episodes).column_names
    assert said["scores/POLICY@VERSION.parquet"] == SCORES.names
    assert said["scores/loops@1.parquet"] == LOOPS.names == loop_table(episodes).column_names
    cells = [
        cell
        for fault in (FaultKind.et, FaultKind.ep)
        for quant, table in (("Q8_0", [2] * 10 + [3] * 10), ("Q4_K_M", [1] * 10 + [None] * 10))
        for cell in logged_pair(quant, table, fault=fault)
    ]
    report = build_report(list({cell.facts.cell_id: cell for cell in cells}.values()))
    files = write_report(report, tmp_path)
    written = files.results_csv.read_text("utf-8").partition("\n")[0].split(",")
    assert written == list(COLUMNS) == said["results.csv, results.parquet"]
    assert said["Kinds of rows"] == [str(kind) for kind in Kind]
    written = files.provenance_csv.read_text("utf-8").partition("\n")[0].split(",")
    assert written == [name for name in said["Params and tags of a cell's run"] if name != "config"]


def test_every_fact_and_cost_stands_in_it() -> None:
    said = sections()
    assert said["Params and tags of a cell's run"] == [
        one.name for one in dataclasses.fields(facts.CellFacts)
    ]
    costs = [f"work.{one.name}" for one in dataclasses.fields(make_work())]
    assert said["Metrics work.…"] == [*costs, "work.segment_ratio"]


def test_a_field_without_a_meaning_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(str(records.__file__)).read_text("utf-8")
    less = source.replace("    # The task's family.\n", "")
    assert less != source
    monkeypatch.setattr("inspect.getsource", lambda module: less)
    with pytest.raises(QfrError, match=r"Episode\.family has no line under it"):
        dictionary.dictionary()


def test_a_ruled_line_is_no_meaning() -> None:
    assert dictionary.meanings(facts, "CellFacts")["trial"] == "Repetition of the cell, 0 for the first."


def test_the_citation_names_the_version_and_the_papers() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == qfr.__version__
    assert cited["license"] == "Apache-2.0"
    assert cited["authors"] == [{"name": "The qfr developers"}]
    ids = [one["identifiers"][0]["value"] for one in cited["references"]]
    assert ids == ["arXiv:2610.07781", "arXiv:2607.27275"]
    assert all(
        one["url"].endswith(id_.removeprefix("arXiv:"))
        for one, id_ in zip(cited["references"], ids, strict=True)
    )
