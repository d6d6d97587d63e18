"""The report: words, tables, files and page, on the reconstructed tables of Hu 2026 and on hard cases."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from qfr.analysis.cells import summarize
from qfr.analysis.contrast.contrasts import contrast_table
from qfr.analysis.levels import Axis
from qfr.analysis.results import COLUMNS
from qfr.analysis.tablefile import read_table
from qfr.errors import UserError
from qfr.facts import CellFacts
from qfr.records import FaultKind
from qfr.report.console import print_contrasts, print_report
from qfr.report.content.build import Gaps, Report, ReportOptions, build_report
from qfr.report.contrastfigures import difference_figure
from qfr.report.export import metrics, provenance_frame, result_frame, spreadsheet_safe, write_report
from qfr.report.layout import groups, interval
from qfr.report.notices import clipped, notices
from qfr.report.page import clip, render_page
from qfr.report.sections import figure_view
from qfr.report.tables.formats import p_value, signed, spelled
from qfr.report.words import answers, overview
from qfr.stats.intervals import Method
from tests.builders import Style, build_cell_episodes, make_facts, orders20, undelivered
from tests.logged import Logged, logged, logged_pair

GOLDEN = Path(__file__).parent / "fixtures" / "golden.json"
LEVELS = {"8": "Q8_0", "4": "Q4_K_M"}
HOSTILE = "</script><script>document.title='owned'</script><b>&\u202egnp\ud800"


def golden_cells() -> list[Logged]:
    cells = []
    for name, table in json.loads(GOLDEN.read_text())["tables"].items():
        model, level, prompt = name.split("/")
        cells += logged_pair(LEVELS[level], table, model=model, prompt=prompt)
    return cells


@pytest.fixture(scope="module")
def golden() -> Report:
    return build_report(golden_cells(), ReportOptions(command="qfr report --sweep s-1", made="2026"))


def changed(cell: Logged, **facts: str | bool | int) -> Logged:
    clean = None if cell.clean is None else changed(cell.clean, **facts)
    return replace(cell, facts=replace(cell.facts, **facts), clean=clean)


def table(report: Report, kind: str) -> pd.DataFrame:
    """The rows of one kind."""
    frame = result_frame(report.results)
    return frame[frame["kind"] == kind]


def terminal(report: Report, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- words ------------------------------------------------------------------------------------------------


def test_the_answer_says_who_is_ahead_and_where_the_sign_turns(golden: Report) -> None:
    llama, qwen = answers(golden)
    assert (llama.title, qwen.title) == ("Llama", "Qwen")
    assert llama.lines[0].text == (
        "Q4_K_M against Q8_0: worse under P0; not settled (points to worse) under P4 (full pipeline)."
    )
    # The interval that words rest on: the Bayesian bootstrap with half an imagined task at each end.
    assert "P0 +27.5 [9.0, 44.1]" in llama.lines[0].detail
    assert qwen.lines[0].text == (
        "Q4_K_M against Q8_0: worse under P0; better under P3; not settled (points to worse) under P4 "
        "(full pipeline)."
    )
    # Llama/P4: -17.5 on the own clean sets, +28.3 in the full pipeline (Hu 2026, table 4). By the gate's rule
    # neither is settled by so few tasks, so no turned sign is claimed.
    assert (llama.flag, llama.flags) == ("", ())
    assert qwen.flag == "The sign turns with the prompt."
    assert any("full pipeline: P0 +33.3 [8.8, 54.9], P3 −28.3" in flag for flag in qwen.flags)


def test_strict_scoring_can_turn_the_sign() -> None:
    table: list[int | None] = [2] * 10 + [3] * 10
    lower: list[int | None] = [1] * 10 + [1] * 10
    cells = logged_pair("Q8_0", table, Style(expression=True)) + logged_pair("Q4_K_M", [*lower[:-1], 2])
    (answer,) = answers(build_report(cells))
    assert answer.flag == "The sign turns with the scoring policy."


def test_overview_counts_and_says_when_nothing_is_estimable(golden: Report) -> None:
    assert overview(golden)[0].startswith("10 cells, ")
    none: list[int | None] = [None] * 20
    report = build_report(logged_pair("Q8_0", none) + logged_pair("Q4_K_M", none))
    lines = overview(report)
    assert "0 of 40 clean passes were certified, so no fault was injected anywhere" in lines[0]
    assert lines[1] == "Clean episodes: 40 submitted an answer."
    (answer,) = answers(report)
    assert answer.lines[0].text == "Q4_K_M against Q8_0: not comparable under P0 (full pipeline)."
    assert "Not estimable" in answer.lines[-1].text
    assert "empty matched set" in answer.lines[-1].text
    for text in (terminal(report), render_page(report)):
        assert "so no fault was injected anywhere" in text


def test_a_cell_without_certified_tasks_stands_beside_others() -> None:
    none: list[int | None] = [None] * 20
    report = build_report(logged_pair("Q8_0", [2] * 20) + logged_pair("Q4_K_M", none))
    page = render_page(report)
    own, _, full = figure_view(difference_figure(groups(report, "tolerant")[0], ""), False).panels
    assert json.loads(own.spec)["layout"]["annotations"][0]["text"] == "not estimable"
    assert "annotations" not in json.loads(full.spec)["layout"]
    assert "no certified task with a delivered fault at Q4_K_M" in page
    assert "Q4_K_M against Q8_0: worse by more than 5 points under P0 (full pipeline)." in page


def test_no_cells_and_one_level_are_reports_too(tmp_path: Path) -> None:
    empty = build_report([])
    assert overview(empty) == ("No finished cell was found.",)
    files = write_report(empty, tmp_path)
    assert files.page.exists()
    # A table without rows still says what its columns are.
    assert files.results_csv.read_text().splitlines() == [",".join(COLUMNS)]
    assert list(pd.read_parquet(files.results_parquet)) == list(COLUMNS)
    alone = build_report(logged_pair("Q8_0", [2] * 20))
    assert "no two finished cells differ in quant alone (found: Q8_0)" in overview(alone)[-1]
    assert "83.3 % [40/50]" in terminal(alone)


def test_a_clean_pass_alone_is_contrasted_on_certified_tasks() -> None:
    cells = [logged_pair("Q8_0", [2] * 20)[0], logged_pair("Q4_K_M", [None] * 5 + [2] * 15)[0]]
    frame = table(build_report(cells), "contrast")
    assert frame["target"].unique().tolist() == ["clean"]
    assert frame.query("policy == 'tolerant' and family.isna()")["points"].tolist() == [25.0]


# --- warnings ---------------------------------------------------------------------------------------------


def titles(report: Report) -> dict[str, str]:
    return {one.title: " | ".join((one.text, *one.items)) for one in notices(report)}


def test_few_certified_tasks_are_a_warning_and_no_filter(golden: Report) -> None:
    found = titles(golden)
    assert "Qwen q4_k_m P0 et: tolerant 5 of 20, strict 5 of 20" in found["Fewer than 8 certified tasks"]
    assert "Llama q8_0" not in found["Fewer than 8 certified tasks"]
    assert "Intervals that are too short" in found
    assert "degenerate" in found["Intervals that are too short"]


def test_gaps_and_alarms_are_shown() -> None:
    gaps = Gaps(("llama q3_k_m P4 et",), ("llama q2_k P0 et: worker died",), ("x: 2 runs",), ("a note",))
    found = titles(build_report(logged_pair("Q8_0", [2] * 20)[1:], gaps=gaps))
    assert "llama q3_k_m P4 et" in found["Missing cells"]
    assert "worker died" in found["Failed or unfinished cells"]
    assert "x: 2 runs" in found["Not deterministic"]
    assert "m q8_0 P0 et" in found["Clean pass missing"]
    assert "a note" in found["Notes"]


def test_undelivered_faults_are_bounded_in_words() -> None:
    clean, _ = logged_pair("Q8_0", [2] * 20)
    built = build_cell_episodes([2] * 10 + [3] * 10, orders20())
    shapes = {shape.id: shape for shape in orders20()}
    lost = [undelivered(e, shapes[e.task]) if e.task == "base-00" else e for e in built.faulted]
    cells = [clean, logged(make_facts("m", "Q8_0", "P0", "et"), lost)]
    found = titles(build_report(cells))["Faults that never fired"]
    assert "m q8_0 P0 et (tolerant): 2 of 50 faults never fired, on 1 tasks none did" in found
    assert "full pipeline between 95.0 % and 100.0 %" in found


def test_kept_apart_requantized_dirty_and_reference_agents_are_named() -> None:
    high = [changed(cell, llama_commit="aaaaaaaaaaaa") for cell in logged_pair("Q8_0", [2] * 20)]
    low = [
        changed(cell, model_source="requantized", git_dirty=True, reference_agent=True)
        for cell in logged_pair("Q4_K_M", [2] * 20)
    ]
    report = build_report(high + low)
    found = titles(report)
    assert "build.llama_commit differs (aaaaaaaaa" in found["Kept apart"]
    assert found["Requantized files"].endswith("m Q4_K_M")
    assert "Uncommitted code" in found
    assert next(iter(found)) == "Reference agents"
    assert "no two finished cells" in overview(report)[-1]


def test_lists_are_clipped_with_a_count() -> None:
    assert clipped(tuple("abcde"), 3) == ("a", "b", "c", "… and 2 more")
    assert clipped(("a",), 3) == ("a",)


# --- numbers as text --------------------------------------------------------------------------------------


def test_numbers_as_text() -> None:
    assert [signed(value) for value in (27.5, -3.333, 0.0, -0.001, None)] == [
        "+27.5",
        "−3.3",
        "0.0",
        "0.0",
        "–",
    ]
    assert [p_value(p) for p in (1e-9, 0.0039, 0.0625, 1.0, None)] == [
        "< 0.0001",
        "0.0039",
        "0.062",
        "1.000",
        "",
    ]


# --- terminal ---------------------------------------------------------------------------------------------


def test_the_terminal_shows_the_contrast_table(golden: Report) -> None:
    text = terminal(golden)
    for part in (
        "+20.2 [4.8, 39.3]~ n 14",
        "+27.5 [12.5, 44.2] n 20",
        "−47.6 [−62.3, −31.8]~ n 10/11",
        "37/44",
    ):
        assert part in text
    narrow = terminal(golden, 70)
    assert "+27.5 [12.5, 44.2]" in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 70


def test_control_characters_do_not_reach_the_terminal() -> None:
    cells = [changed(cell, model="m\x1b[2J\x07") for cell in logged_pair("Q8_0", [2] * 20)]
    text = terminal(build_report(cells))
    assert "\x1b" not in text
    assert "m\\x1b[2J\\x07" in text


def test_contrasts_of_a_table_file_on_the_terminal() -> None:
    table = read_table(GOLDEN)
    console = Console(file=io.StringIO(), width=130)
    print_contrasts(contrast_table(table.tables), summarize(table.tables), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "degenerate" in text
    assert "+20.2" in text
    assert "47.9 % [" not in text
    assert "37/44" in text


# --- files ------------------------------------------------------------------------------------------------


def test_files_agree_with_each_other_and_carry_units(golden: Report, tmp_path: Path) -> None:
    written = write_report(golden, tmp_path / "new" / "folder")
    assert sorted(written.by_name()) == [
        "provenance.csv", "report.html", "report.md", "results.csv", "results.json", "results.parquet",
    ]  # fmt: skip
    frame = result_frame(golden.results)
    csv = pd.read_csv(written.results_csv)
    parquet = pd.read_parquet(written.results_parquet)
    data = json.loads(written.results_json.read_text())
    assert list(csv) == list(parquet) == list(frame)
    for column in ("points", "low", "high", "rate_a", "sign_p", "detectable_points"):
        wanted = frame[column].astype(float).to_numpy()
        np.testing.assert_allclose(csv[column].to_numpy(), wanted)
        np.testing.assert_allclose(parquet[column].astype(float).to_numpy(), wanted)
        got = [np.nan if row[column] is None else row[column] for row in data["results"]]
        np.testing.assert_allclose(got, wanted)
    assert [one["id"] for one in data["results"]] == list(frame["id"])
    csv = csv[csv["kind"] == "contrast"]
    row = csv.query("model == 'Llama' and prompt == 'P0' and target == 'matched' and policy == 'tolerant'")
    assert row[row["family"].isna()]["points"].item() == pytest.approx(20.238095)
    assert data["warnings"]
    assert write_report(golden, tmp_path / "new" / "folder") == written


def test_adjusted_p_values_never_fall_below_the_plain_ones(golden: Report) -> None:
    frame = table(golden, "contrast")
    whole = frame[frame["family"].isna() & frame["sign_p"].notna()]
    assert (whole["sign_holm_p"] >= whole["sign_bh_p"] - 1e-12).all()
    assert (whole["sign_bh_p"] >= whole["sign_p"] - 1e-12).all()
    full = whole.query("target == 'full' and policy == 'tolerant' and vary == 'quant'")
    assert full["sign_holm_p"].min() == pytest.approx(5 * full["sign_p"].min())


def test_a_folder_that_cannot_be_made_is_a_clear_error(golden: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written") as caught:
        write_report(golden, tmp_path / "file" / "sub")
    assert "--out" in str(caught.value)


def test_spreadsheets_run_no_formula_and_surrogates_are_spelled() -> None:
    assert [spreadsheet_safe(text) for text in ("=1+1", "-2", "@x", "P0")] == ["'=1+1", "'-2", "'@x", "P0"]
    assert spelled("x\ud800\U0001f600") == "x\\ud800\U0001f600"


def test_hostile_texts_reach_the_files_as_text(tmp_path: Path) -> None:
    cells = [
        changed(cell, imatrix="=cmd()" + HOSTILE, tensor_types="x" * 1_000_000)
        for quant in ("Q8_0", "Q4_K_M")
        for cell in logged_pair(quant, [2] * 20)
    ]
    written = write_report(build_report(cells), tmp_path)
    assert pd.read_csv(written.provenance_csv)["imatrix"].str.startswith("'=cmd()").all()
    assert written.page.stat().st_size < 6_000_000


def test_tables_of_cells_processes_and_provenance(golden: Report) -> None:
    rates = table(golden, "rate").query("model == 'Llama' and level == 'Q8_0' and policy == 'tolerant'")
    rates = rates[rates["family"].isna() & (rates["prompt"] == "P0")].set_index(["target", "item"])
    own = rates.loc["own", ""]
    assert own["value"] == pytest.approx(0.87037)
    assert (own["count_a"], own["of_a"]) == (37, 44)
    assert rates.loc["own", "episodes"]["value"] == pytest.approx(37 / 44)
    went = table(golden, "count")
    went = went[(went["fault"] == "et") & went["policy"].isna()].set_index("item")
    assert went.loc["fired"]["count_a"].sum() == went.loc["episodes"]["count_a"].sum() > 0
    assert set(provenance_frame(golden)) == set(CellFacts.__dataclass_fields__) - {"config"}
    named = metrics(golden)
    assert len(named) <= 20
    assert named["full/tolerant/Llama P0 Q8_0-Q4_K_M points"] == pytest.approx(27.5)
    assert named["full/tolerant/Llama P0 Q8_0-Q4_K_M low"] == pytest.approx(12.5)


# --- page -------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """Collects whatever a browser might fetch, the headings and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.headings: list[str] = []
        self.in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        self.in_heading = tag in ("h1", "h2", "h3", "h4") or (self.in_heading and tag in ("bdi", "span"))
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        self.in_heading = self.in_heading and tag in ("bdi", "span")

    def handle_data(self, data: str) -> None:
        if self.in_heading:
            self.headings[-1] += data


def parsed(page: str) -> Links:
    parser = Links()
    parser.feed(page)
    return parser


def test_the_page_is_self_contained_and_complete(golden: Report) -> None:
    page = render_page(golden)
    links = parsed(page)
    assert all(link.startswith(("#", "data:")) for link in links.fetched)
    assert "default-src 'none'" in page
    for heading in (
        "Answer",
        "Warnings",
        "Llama",
        "Qwen",
        "Recovery by cell",
        "Episodes",
        "Provenance",
        "How to read",
    ):
        assert heading in links.headings
    for text in ("+20.2", "87.0 % [37/44]", "qfr report --sweep s-1", "prefers-color-scheme: dark"):
        assert text in page
    # Figure 1, decomposition and prompt × preset for two models and policies; one map of outcomes per model.
    # The models' files are of one size, so both presets are set against each other too, without a figure of
    # prompt × preset.
    assert page.count('class="spec"') == 2 * 2 * (3 + 1 + 2) + 2 + 2 * (3 + 2)
    assert len(page.encode()) < 15_000_000


def test_model_text_is_text_on_the_page() -> None:
    cells = [
        changed(cell, model="m" + HOSTILE, imatrix=HOSTILE)
        for quant in ("Q8_0", "Q4_K_M")
        for cell in logged_pair(quant, [2] * 20)
    ]
    page = render_page(build_report(cells))
    assert "<script>document" not in page
    assert "&lt;/script&gt;&lt;script&gt;document" in page
    assert "\\ud800" in page
    page.encode("utf-8")
    assert clip("x" * 1000).endswith("(1,000 characters)")


def test_reference_agents_are_marked_in_header_headings_and_captions() -> None:
    cells = [
        changed(cell, reference_agent=True)
        for quant in ("Q8_0", "Q4_K_M")
        for cell in logged_pair(quant, [2] * 20)
    ]
    page = render_page(build_report(cells))
    assert "Nothing on this page is evidence about any other model" in page
    headings = parsed(page).headings
    assert "m reference agent" in headings
    assert "Differences, tolerant scoring (reference agent)" in headings
    assert "a reference agent and no evidence about any other model" in page
    assert "reference agent" not in render_page(build_report(logged_pair("Q8_0", [2] * 20)))


def test_figure_panels_carry_points_intervals_and_numbers(golden: Report) -> None:
    llama = groups(golden, "tolerant")[0]
    own, matched, full = figure_view(difference_figure(llama, "exactly"), False).panels
    spec = json.loads(matched.spec)
    (trace,) = spec["data"]
    assert trace["x"] == [0.0, 1.0]
    assert trace["y"] == pytest.approx([20.238095, 0.0])
    assert trace["error_y"]["array"] == pytest.approx([39.285714 - 20.238095, 0.0])
    assert spec["layout"]["xaxis"]["ticktext"] == ["P0<br>n 14", "P4<br>n 9"]
    assert json.loads(own.spec)["layout"]["xaxis"]["ticktext"] == ["P0<br>18/14", "P4<br>19/10"]
    assert json.loads(full.spec)["data"][0]["marker"]["symbol"] == ["circle", "circle"]
    assert json.loads(own.spec)["data"][0]["marker"]["symbol"] == ["circle-open", "circle-open"]
    assert {json.dumps(json.loads(p.spec)["layout"]["yaxis"]["range"]) for p in (own, matched, full)} == {
        json.dumps(spec["layout"]["yaxis"]["range"])
    }
    assert "Q8_0 − Q4_K_M P0 n 14 20.2" in matched.label
    assert "<" not in matched.spec


def test_a_ladder_draws_the_highest_level_against_the_others() -> None:
    quants = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M")
    report = build_report([cell for quant in quants for cell in logged_pair(quant, [2] * 20)])
    (group,) = groups(report, "tolerant")
    assert len(group.pairs) == 10
    assert [pair[0] for pair in group.drawn_pairs] == ["Q8_0"] * 4
    assert "6 further pairs stand in the table" in render_page(report)


def test_prompts_can_be_contrasted_along_the_presets() -> None:
    cells = [
        cell
        for quant in ("Q8_0", "Q4_K_M")
        for prompt, table in (("P0", [2] * 20), ("P1", [1] * 20))
        for cell in logged_pair(quant, table, prompt=prompt)
    ]
    report = build_report(cells, ReportOptions(vary=Axis.prompt, method=Method.MONTECARLO, resamples=500))
    (group,) = groups(report, "tolerant")
    assert (group.rows, group.pairs) == (("Q8_0", "Q4_K_M"), (("P0", "P1"),))
    assert "500 Monte Carlo resamples, seed 0" in render_page(report)


def test_several_faults_make_several_groups_and_a_table_of_reports() -> None:
    cells = [
        cell
        for quant in ("Q8_0", "Q4_K_M")
        for fault in (FaultKind.et, FaultKind.ep)
        for cell in logged_pair(quant, [2] * 20 if quant == "Q8_0" else [1] * 20, fault=fault)
    ]
    distinct = {cell.facts.cell_id: cell for cell in cells}
    report = build_report(list(distinct.values()))
    assert [group.title for group in groups(report, "strict")] == ["m · et", "m · ep"]
    page = render_page(report)
    assert "reported after enough calls" in page
    assert [heading for heading in parsed(page).headings if heading.startswith("m · ")][:2] == [
        "m · et",
        "m · ep",
    ]


def test_intervals_are_left_out_where_there_are_none() -> None:
    one: list[int | None] = [2] + [None] * 19
    report = build_report(logged_pair("Q8_0", one) + logged_pair("Q4_K_M", one))
    matched = next(c for c in report.contrasts if (c.policy, c.target) == ("tolerant", "matched"))
    assert (matched.points, interval(matched)) == (0.0, "")
    assert "one task" in str(table(report, "contrast")["reason"].tolist())
