"""One table of results: every number of the page is a row of it, and a row's id leads to its tasks."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from qfr.analysis.contrast.groups import parse_groups
from qfr.analysis.diagnostics.divergence import divergences
from qfr.analysis.published import published
from qfr.analysis.results import COLUMNS, Kind
from qfr.errors import UserError
from qfr.records import FaultKind
from qfr.report.console import print_explained
from qfr.report.content.build import Material, Measured, Report, ReportOptions, build_report
from qfr.report.content.explain import explain
from qfr.report.content.transcripts import Parting, Transcripts
from qfr.report.export import write_report
from tests.builders import build_cell_episodes, make_facts, orders20
from tests.logged import Logged, logged_pair
from tests.test_report_budgets import Store

#: Sections whose tables hold no result: texts, ids, settings.
_NO_RESULTS = ("provenance", "planned")
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?")


def cells() -> list[Logged]:
    found = {}
    for fault in (FaultKind.et, FaultKind.ep):
        for prompt in ("P0", "P4"):
            for quant, table in (
                ("Q8_0", [2] * 10 + [3] * 10),
                ("Q4_K_M", [1] * 9 + [0, 2] + [None] * 4 + [1, 2, 3, 0, 1]),
                ("Q2_K", [0] * 12 + [None] * 8),
            ):
                for cell in logged_pair(quant, table, fault=fault, prompt=prompt, model="Llama"):
                    found[cell.facts.cell_id] = cell
    return list(found.values())


@pytest.fixture(scope="module")
def report() -> Report:
    given = cells()
    measured = {cell.facts.cell_id: Measured(1.5e9, 120.0 + at) for at, cell in enumerate(given)}
    runs = {cell.facts.cell_id: f"run{at}" for at, cell in enumerate(given)}
    return build_report(
        given,
        ReportOptions(groups=parse_groups("high=Q8_0;low=Q4_K_M,Q2_K"), against=published("hu2026")),
        material=Material(measured=measured, runs=runs),
    )


@pytest.fixture(scope="module")
def folder(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report, tmp_path_factory.mktemp("rows") / "out").page.parent


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with S(K), reruns, channels, recovery and lengths, and with where episodes part."""
    store = Store()
    for budget in (3, 1):
        store.add("Q8_0", budget, [0, 0, 1])
        store.add("Q4_K_M", budget, [0, 2, 3])
    built = [build_cell_episodes(table, orders20()).faulted for table in ([2] * 20, [0] * 20)]
    sides = [make_facts("m", quant, "P0", "et") for quant in ("Q8_0", "Q4_K_M")]
    parting = Parting.of((sides[0], sides[1]), divergences(*built, same_tokenizer=True))
    given = Material(calls=store.calls.get, transcripts=Transcripts((), (parting,), ""))
    return write_report(
        build_report(store.cells, material=given), tmp_path_factory.mktemp("process")
    ).page.parent


def lines(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return {line["id"]: line for line in csv.DictReader(file)}


class Tables(HTMLParser):
    """Every body cell of the page's tables: its section, whether it heads its line, its ids, its text."""

    def __init__(self) -> None:
        super().__init__()
        self.section = ""
        self.inside = self.skipped = 0
        self.cells: list[tuple[str, str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "section":
            self.section = given.get("id") or ""
        elif tag == "tbody":
            self.inside = 1
        elif tag in ("td", "th") and self.inside:
            self.cells.append((self.section, tag, given.get("data-row") or "", ""))
        elif tag == "code" and self.inside:
            self.skipped = 1
        elif tag == "small":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        self.inside &= tag != "tbody"
        self.skipped &= tag != "code"

    def handle_data(self, data: str) -> None:
        if self.inside and not self.skipped and self.cells:
            section, tag, ids, text = self.cells[-1]
            self.cells[-1] = (section, tag, ids, text + data)


def shown(folder: Path) -> list[tuple[str, str, str, str]]:
    page = (folder / "report.html").read_text(encoding="utf-8")
    parser = Tables()
    parser.feed(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL))
    return parser.cells


def numbers(text: str) -> Iterator[str]:
    for found in _NUMBER.findall(text.replace("−", "-")):
        yield found.replace(",", "").lstrip("+")


def written(line: Mapping[str, str]) -> set[str]:
    """Every way in which the page may write the columns of a line."""
    found: set[str] = set()
    for name, text in line.items():
        found |= {*numbers(text)}
        if name.startswith(("dropped_", "undelivered_")):
            found.add(str(len(text.split())))
        try:
            value = float(text)
        except ValueError:
            continue
        scaled = (value, 100 * value, value / 1e6)
        found |= {f"{round(one, n) + 0.0:.{n}f}" for one in scaled for n in range(5)}
        found |= {"0.0001"} if name.endswith("_p") else set()
    certified = [int(line[name] or 0) for name in ("dropped_a", "dropped_b") if line[name].isdigit()]
    lost = len(line["undelivered_a"].split()) + len(line["undelivered_b"].split())
    return found | {str(lost), *map(str, certified)}


def kinds_of_checked_numbers(folder: Path) -> set[str]:
    """Look every number of a page's tables up in its row; return the kinds of these rows."""
    rows, seen = lines(folder), set()
    for section, tag, ids, text in shown(folder):
        if section in _NO_RESULTS:
            continue
        if not ids:
            # Names of levels and tasks; a number without a row would be a second table.
            settings = section == "replication"
            assert tag == "th" or settings or not [*numbers(text)], (section, text)
            continue
        known = {number for one in ids.split() for number in written(rows[one])}
        assert {*numbers(text)} <= known, (section, ids, text, {*numbers(text)} - known)
        seen |= {rows[one]["kind"] for one in ids.split()}
    return seen


def test_every_number_of_the_tables_stands_in_the_row_of_its_id(folder: Path, diagnosed: Path) -> None:
    assert kinds_of_checked_numbers(folder) >= {
        Kind.contrast, Kind.rate, Kind.rank, Kind.simultaneous, Kind.interaction, Kind.group, Kind.ladder,
        Kind.counted, Kind.cost, Kind.published,
    }  # fmt: skip
    assert kinds_of_checked_numbers(diagnosed) >= {
        Kind.amplification, Kind.recovery, Kind.channel, Kind.budget, Kind.rerun, Kind.novelty, Kind.length,
        Kind.margin, Kind.divergence,
    }  # fmt: skip


def test_another_number_on_the_page_would_be_found(folder: Path) -> None:
    rows = lines(folder)
    (row,) = [one for one in rows.values() if one["item"] == "P0 P4" and one["a"] == "Q8_0"
              and one["policy"] == "tolerant" and one["fault"] == "et"]  # fmt: skip
    assert f"{100 * float(row['value']):.1f}" in written(row)
    assert f"{100 * float(row['value']) + 0.1:.1f}" not in written(row)


def test_files_have_the_same_rows_in_the_same_columns(report: Report, folder: Path) -> None:
    rows = lines(folder)
    data = json.loads((folder / "results.json").read_text("utf-8"))
    assert data["version"] == 2
    parquet = pd.read_parquet(folder / "results.parquet")
    assert list(parquet) == list(COLUMNS) == list(next(iter(rows.values()))) == list(data["results"][0])
    assert list(parquet["id"]) == list(rows) == [one["id"] for one in data["results"]]
    kinds = list(dict.fromkeys(parquet["kind"]))
    assert kinds == [kind for kind in Kind if kind in kinds]
    assert kinds[0] == Kind.contrast
    for one in data["results"]:
        assert re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)*-[0-9a-f]{8}", one["id"])
        assert one["points"] is None or one["value"] is None


def test_ids_stay_when_other_cells_join(report: Report) -> None:
    fewer = build_report([cell for cell in cells() if cell.facts.quant != "Q2_K"])
    mine = {one.id for one in fewer.results if one.kind == Kind.contrast and one.target != "s_star"}
    assert len(mine) > 20
    assert mine <= {one.id for one in report.results}
    assert len({one.id for one in report.results}) == len(report.results)


def test_a_row_is_taken_apart(report: Report) -> None:
    (row,) = [
        one for one in report.results
        if (one.kind, one.a, one.b, one.prompt, one.fault, one.target, one.policy, one.family)
        == ("contrast", "Q8_0", "Q4_K_M", "P0", "et", "matched", "tolerant", None)
    ]  # fmt: skip
    found = explain(report, row.id)
    assert found.tasks is not None
    entering = [line for line in found.tasks.rows if line[1].text != "–"]
    assert len(entering) == row.n_tasks == 16
    gaps = [float(line[3].text.replace("−", "-")) for line in entering]
    assert sum(gaps) / len(gaps) == pytest.approx(row.points, abs=0.1)
    left = {line[0].text: line[4].text for line in found.tasks.rows if line[1].text == "–"}
    assert left == dict.fromkeys(row.dropped_a, "Llama q4_k_m P0 et: clean pass failed")
    assert [line[2].text for line in found.cells.rows] == [report.material.runs[one] for one in row.cells]
    screen = Console(file=io.StringIO(), width=140)
    print_explained(found, screen)
    assert isinstance(screen.file, io.StringIO)
    assert "clean pass failed" in screen.file.getvalue()


def test_every_row_can_be_taken_apart(report: Report) -> None:
    for one in report.results:
        found = explain(report, one.id)
        assert found.cells.rows or one.kind == Kind.published
        if one.kind == Kind.contrast and found.tasks is not None and one.target != "own":
            entering = [line for line in found.tasks.rows if line[1].text != "–"]
            assert len(entering) == one.n_tasks, one.id
        if one.kind == Kind.rate and one.item != "episodes" and found.tasks is not None:
            assert sum(line[1].text != "–" for line in found.tasks.rows) == one.n_tasks, one.id


def test_an_unknown_row_is_a_clear_error(report: Report) -> None:
    name = report.results[0].id
    with pytest.raises(UserError) as caught:
        explain(report, name[:-1] + "x")
    assert caught.value.what == f"this report has no row {name[:-1] + 'x'!r} (did you mean {name!r}?)"
    assert "first column of results.csv" in str(caught.value)
