"""The report's further parts: ranking, several contrasts at once, ladder, maps, transcripts, replication."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace

import pytest

from qfr.analysis.contrast.family import families, selector
from qfr.analysis.contrast.groups import parse_groups
from qfr.analysis.diagnostics.divergence import divergences
from qfr.analysis.published import published
from qfr.errors import TableError, UserError
from qfr.records import Episode, FaultKind, Policy
from qfr.report.content.build import Material, Measured, Report, ReportOptions, build_report
from qfr.report.content.outcomes import MEANINGS, outcome_maps
from qfr.report.content.transcripts import Parting, Transcripts, fitting, pack
from qfr.report.contrastfigures import decomposition_figure, ladder_figure
from qfr.report.export import result_frame
from qfr.report.layout import groups, shortened
from qfr.report.markdown import escaped, render_markdown
from qfr.report.notices import notices
from qfr.report.page import page_of, render_page
from qfr.report.tables.contrasts import ladder_table
from qfr.report.tables.ranking import rankings
from qfr.report.tables.replication import replication
from qfr.tracking.reading.tables import call_table, to_frame
from tests.builders import build_cell_episodes, make_facts, orders20
from tests.diagnosed import episode as made_episode
from tests.diagnosed import good
from tests.logged import Logged, logged, logged_pair
from tests.test_report import golden_cells

ALL: list[int | None] = [2] * 10 + [3] * 10


def cells_of(tables: dict[tuple[str, str], list[int | None]], model: str = "m") -> list[Logged]:
    return [
        cell
        for (quant, prompt), table in tables.items()
        for cell in logged_pair(quant, table, model=model, prompt=prompt)
    ]


@pytest.fixture(scope="module")
def golden() -> Report:
    return build_report(golden_cells(), ReportOptions(against=published("hu2026")))


# --- ranking ----------------------------------------------------------------------------------------------


def test_presets_are_judged_prompt_by_prompt(golden: Report) -> None:
    llama, qwen = rankings(golden)
    assert (llama.title, qwen.title) == ("Llama", "Qwen")
    assert [row[0].text for row in llama.table.rows] == ["1. Q8_0", "2. Q4_K_M"]
    assert llama.table.rows[0][2].text == "the yardstick"
    assert llama.table.rows[1][2].text == "P0: worse; P4: not settled (points to worse)"
    # Qwen's prompts point both ways: nothing is named over all of them, and the prompt's own effect is said.
    assert qwen.advice.startswith("No preset is shown to be not worse than Q8_0 by more than 5 points under")
    assert "P3: Q4_K_M" in qwen.advice
    assert qwen.more[0] == "Tried on 20 tasks (orders20); et: a tool call fails once."
    assert "The prompt alone moves" in qwen.more[1]


def test_an_equal_preset_is_equivalent_only_with_enough_tasks() -> None:
    one: list[int | None] = [2, 1] * 5 + [3, 2] * 5
    other: list[int | None] = [2, 1] * 5 + [3, 2] * 4 + [2, 2]
    report = build_report(cells_of({("Q8_0", "P0"): one, ("Q4_K_M", "P0"): other}))
    (ranks,) = [r for r in report.ranks if r.policy == "tolerant"]
    # One task of twenty differs: that settles nothing within five points.
    assert [there.label for row in ranks.presets for there in row.prompts] == ["the yardstick", "not settled"]
    same = build_report(cells_of({("Q8_0", "P0"): one, ("Q4_K_M", "P0"): one}))
    full = next(c for c in same.contrasts if c.target == "full" and c.family is None)
    assert full.decision is not None
    assert "which by itself shows no equality" in full.decision.reason


def test_a_wide_margin_makes_a_preset_good_enough() -> None:
    one: list[int | None] = [2, 1, 0, 2, 1] * 2 + [3, 2, 1, 0, 3] * 2
    other: list[int | None] = [1, 2, 1, 2, 0] * 2 + [2, 3, 1, 1, 2] * 2
    cells = cells_of({("Q8_0", "P0"): one, ("Q4_K_M", "P0"): other})
    wide = build_report(cells, ReportOptions(margin=40.0))
    assert rankings(wide)[0].advice == (
        "Use Q4_K_M (4,920 MB): shown to be not worse than Q8_0 by more than 40 points under P0 "
        "(equivalent within 40 points)."
    )
    assert "equivalent within 40 points" in render_page(wide)
    narrow = build_report(cells, ReportOptions(margin=1.0))
    assert rankings(narrow)[0].advice.startswith("No preset is shown to be as good as Q8_0 within 1 points")
    full = next(c for c in wide.contrasts if c.target == "full" and c.family is None)
    assert full.equivalent
    assert full.equivalence_low_points is not None
    assert full.decision is not None
    assert full.decision.equivalence_high is not None
    assert full.equivalence_low_points == pytest.approx(-100 * full.decision.equivalence_high)


def test_costs_stand_beside_the_presets() -> None:
    cells = cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): [1] * 20})
    sized = [
        replace(
            cell, facts=replace(cell.facts, model_bytes=8_500_000 if "8" in cell.facts.quant else 4_900_000)
        )
        for cell in cells
    ]
    measured = {cell.facts.cell_id: Measured(2e9, 41.0) for cell in sized}
    report = build_report(sized, material=Material(measured=measured))
    row = rankings(report)[0].table.rows[0]
    assert [entry.text for entry in row[3:6]] == ["8.5", "2,000", "41"]


# --- several contrasts at once ----------------------------------------------------------------------------


def test_the_declared_family_is_adjusted_alone() -> None:
    options = ReportOptions(family=(selector({"a": "q8_0", "target": "full", "policy": "tolerant"}),))
    report = build_report(golden_cells(), options)
    (family,) = report.families
    assert family.declared
    assert {report.contrasts[one.place].target for one in family.members} == {"full"}
    tests = [one for one in family.members if one.sign_holm is not None]
    smallest = min(report.contrasts[one.place].sign_p or 1.0 for one in tests)
    assert min(one.sign_holm or 1.0 for one in tests) == pytest.approx(min(1.0, len(tests) * smallest))
    frame = result_frame(report.results)
    inside = frame["sign_holm_p"].notna()
    assert set(frame[inside]["target"]) == {"full"}
    assert frame[inside]["declared_family"].all()
    assert "The declared family" in render_page(report)


def test_a_family_that_names_nothing_is_told() -> None:
    report = build_report(cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): [1] * 20}))
    (family,) = families(report.contrasts, [selector({"b": "Q3_K_M,q2_k", "target": "full"})])
    assert family.declared
    assert not family.members
    assert family.unmatched == ("b=q2_k,q3_k_m; target=full",)
    with pytest.raises(TableError, match="did you mean 'target'"):
        selector({"tarjet": "full"})
    with pytest.raises(TableError, match="has no value"):
        selector({"a": " , "})


def test_simultaneous_intervals_cover_every_prompt_and_are_wider(golden: Report) -> None:
    one = next(t for t in golden.together if (t.model, t.target, t.policy) == ("Qwen", "full", "tolerant"))
    single = {
        c.prompt: c
        for c in golden.contrasts
        if (c.model, c.target, c.policy, c.family) == ("Qwen", "full", "tolerant", None)
    }
    assert one.critical is not None
    assert one.critical > 1.96
    for prompt, points, low, high in zip(one.prompts, one.points, one.lows, one.highs, strict=True):
        assert points == pytest.approx(single[prompt].points)
        assert low is not None
        assert high is not None
        assert low < (points or 0.0) < high


# --- ladder, interaction, groups --------------------------------------------------------------------------


def ladder_cells() -> list[Logged]:
    tables: dict[str, list[int | None]] = {"Q8_0": ALL, "Q6_K": [1] * 20, "Q4_K_M": [None] * 15 + [1] * 5}
    found = {
        cell.facts.cell_id: cell
        for quant, table in tables.items()
        for fault in (FaultKind.et, FaultKind.ep)
        for cell in logged_pair(quant, table, fault=fault)
    }
    return list(found.values())


def test_the_ladder_counts_episodes_of_each_presets_own_tasks() -> None:
    report = build_report(ladder_cells())
    ladder = next(one for one in report.ladders if one.policy == "tolerant")
    assert [rung.quant for rung in ladder.rungs] == ["Q8_0", "Q6_K", "Q4_K_M"]
    table = ladder_table(ladder)
    assert [entry.text for entry in table.rows[0]] == ["Q8_0", "20/20", "50/50", "50/50", "0"]
    assert [entry.text for entry in table.rows[2]][:3] == ["Q4_K_M", "5/20", "5/15"]
    assert table.rows[2][1].doubtful
    figure = ladder_figure(ladder)
    assert [series.name for series in figure.charts[0].series if series.marks] == [
        "temporary failure (et)",
        "dead tool, reported (ep)",
    ]
    assert "Ladder" in render_page(report)


def test_a_difference_of_differences_by_hand() -> None:
    # Under P0 the presets differ by half a site in each base task, under P1 not at all.
    report = build_report(
        cells_of(
            {
                ("Q8_0", "P0"): ALL,
                ("Q4_K_M", "P0"): [1] * 10 + [3] * 10,
                ("Q8_0", "P1"): ALL,
                ("Q4_K_M", "P1"): ALL,
            }
        )
    )
    full = next(one for one in report.interactions if one.policy == "tolerant" and one.target == "full")
    assert full.found.points == pytest.approx(25.0)
    assert (full.first, full.second, full.a, full.b) == ("P0", "P1", "Q8_0", "Q4_K_M")
    assert page_of(report).prompts[0].tables[0].rows[1][3].text == "+25.0"


def test_named_groups_are_contrasted_on_shared_tasks() -> None:
    report = build_report(ladder_cells(), ReportOptions(groups=parse_groups("high=q8_0,q6_k;low=q4_k_m")))
    one = next(g for g in report.grouped if g.policy == "tolerant" and g.key.fault == "et")
    assert len(one.found.tasks) == 5
    # Q8_0 3/3 and Q6_K 1/3 against 1/3 on five shipping tasks.
    assert one.found.points == pytest.approx(100 * (2 / 3 - 1 / 3))
    assert one.successes == (50 + 20, 5)
    assert "Named groups of presets" in render_page(report)
    options = ReportOptions(groups=parse_groups("high=q8_0;low=q2_k"), family=(selector({"b": "q2_k"}),))
    lacking = build_report(ladder_cells(), options)
    assert not lacking.grouped
    told = {one.title: one.items for one in notices(lacking)}
    assert told["Groups that are not contrasted"] == ("low: Q2_K",)
    assert told["Declared contrasts that are not here"] == ("b=q2_k",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("high=q8_0", "nothing to be set against"),
        ("a=q8_0;b=q8_0", "two groups"),
        ("high;low", "cannot be read"),
    ],
)
def test_groups_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        parse_groups(text)


def test_decomposition_bars_add_up_to_the_difference(golden: Report) -> None:
    figure = decomposition_figure(groups(golden, "tolerant")[0])
    assert figure is not None
    *parts, total = figure.charts[0].series
    for at, mark in enumerate(total.marks):
        assert sum(part.marks[at].value for part in parts) == pytest.approx(mark.value)


# --- maps and transcripts ---------------------------------------------------------------------------------


def test_a_map_has_a_square_per_site_and_says_how_it_ended() -> None:
    cells = cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): [None] * 5 + [1] * 15})
    report = build_report(cells)
    (one,) = report.maps
    assert one.columns == ("Q8_0 P0", "Q4_K_M P0")
    assert len(one.rows) == 50
    right = sum(row[0] == 0 for row in one.codes)
    assert right == 50
    missing = [row[1] for row in one.codes].count(MEANINGS.index("not run: clean pass failed"))
    assert missing == 5 * 2
    assert "Q8_0 P0: success\nsubmitted an answer" in one.hovers[0][0]


def test_large_maps_keep_the_tasks_on_which_cells_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qfr.report.content.outcomes.MOST_ROWS", 10)
    cells = cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): [*ALL[:-1], 0]})
    (one,) = outcome_maps(cells, build_report(cells).joined.tables, Policy.tolerant)
    assert len(one.rows) <= 12
    assert one.left_out == 20 - len(set(one.tasks))
    assert "shipping-09" in one.tasks


def unpacked(data: str) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(gzip.decompress(base64.b64decode(data)))
    return found


def test_transcripts_are_packed_whole_clipped_and_spelled() -> None:
    calls = [good(text="x" * 10_000), good("submit_answer", "1", text="a\ud800</script>")]
    one = made_episode("t", calls)
    packed = pack(make_facts("m", "Q8_0", "P0", "none"), [one, one], ep_min_calls=2)
    plain = unpacked(packed.data)
    assert len(plain["turns"]) == 2
    assert [row["turns"] for row in plain["episodes"]] == [[0, 1], [0, 1]]
    assert str(plain["turns"][0]["text"]).endswith("… (10,000 characters)")
    assert plain["turns"][1]["text"] == "a\\ud800</script>"
    assert fitting([packed, packed], len(packed.data)) == ((packed,), 1)


def test_the_page_holds_transcripts_and_where_they_part() -> None:
    episodes = {
        quant: build_cell_episodes(table, orders20())
        for quant, table in (("Q8_0", ALL), ("Q4_K_M", [0] * 20))
    }
    cells = [cell for quant in episodes for cell in logged_pair(quant, ALL if quant == "Q8_0" else [0] * 20)]
    facts = {quant: make_facts("m", quant, "P0", "et") for quant in episodes}
    pairs = divergences(episodes["Q8_0"].faulted, episodes["Q4_K_M"].faulted, same_tokenizer=True)
    given = Transcripts(
        cells=tuple(pack(facts[quant], episodes[quant].faulted, 2) for quant in episodes),
        partings=(Parting.of((facts["Q8_0"], facts["Q4_K_M"]), pairs),),
        left_out="3 episodes are left out.",
    )
    page = render_page(build_report(cells, material=Material(transcripts=given)))
    assert page.count('id="log-') == 2 + 1
    assert "3 episodes are left out." in page
    assert "Where episodes part" in page
    assert f"{pairs.parted} of {len(pairs.pairs)}" in page


# --- process ----------------------------------------------------------------------------------------------


def with_calls(quant: str, table: list[int | None]) -> tuple[list[Logged], dict[str, list[Episode]]]:
    built = build_cell_episodes(table, orders20())
    clean = logged(make_facts("m", quant, "P0", "none"), built.clean)
    cell = logged(make_facts("m", quant, "P0", "et"), built.faulted)
    episodes = {clean.facts.cell_id: list(built.clean), cell.facts.cell_id: list(built.faulted)}
    return [clean, replace(cell, clean=clean)], episodes


def test_the_process_of_every_preset_is_on_the_page() -> None:
    high, one = with_calls("Q8_0", ALL)
    low, other = with_calls("Q4_K_M", [1] * 20)
    logs = one | other
    report = build_report(
        [*high, *low], material=Material(calls=lambda cell: to_frame(call_table(logs[cell])))
    )
    assert report.diagnosed is not None
    assert [agent.key.quant for agent in report.diagnosed.agents] == ["Q8_0", "Q4_K_M"]
    (pair,) = report.diagnosed.compared
    assert pair.gap is not None
    full = next(c for c in report.contrasts if (c.policy, c.target) == ("tolerant", "full"))
    # At the run's own budget the recounted gap is the full-pipeline difference.
    assert 100 * (pair.gap.points[0].gap.value or 0.0) == pytest.approx(full.points)
    page = page_of(report)
    names = [figure.title for figure in page.process[0].figures]
    flat = ": flat, no budget shown changes anything"
    # Lines that no budget moves stand last.
    assert names[0] == "Gap to Q8_0 under a shrinking error budget"
    assert names[-2:] == [
        f"Success under a shrinking error budget, S(K){flat}",
        f"Success of the clean pass under a shrinking error budget, S(K){flat}",
    ]
    text = render_page(report)
    assert "What follows an error" in text
    # Marks and sentences lead to rows of the one table.
    known = {one.id for one in report.results}
    hovered = set(re.findall(r"row ([\w-]+-[0-9a-f]{8})", text))
    said = {
        one
        for found in re.findall(r'<(?:li|p class="advice") data-row="([^"]+)"', text)
        for one in found.split()
    }
    assert hovered <= known
    drawn = {one.kind for one in report.results if one.id in hovered}
    assert drawn >= {"budget", "gap", "contrast"}
    assert said <= known
    assert {one.kind for one in report.results if one.id in said} == {"contrast", "rank"}
    frame = result_frame(report.results).query("kind == 'budget' and level == 'Q4_K_M'")
    assert frame["value"].iloc[0] == pytest.approx((1 / 2 + 1 / 3) / 2)


# --- Markdown ---------------------------------------------------------------------------------------------


def test_markdown_says_the_answer_and_nothing_in_it_is_markup() -> None:
    wild = "a|b <img src=x> @someone #12 [x](http://e.vil) `c` www.e.vil \u202eok"
    cells = [
        replace(cell, facts=replace(cell.facts, model=wild), clean=None)
        for cell in cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): [1] * 20})
    ]
    text = render_markdown(build_report(cells, ReportOptions(command="qfr report --out x|y")))
    assert "**No preset is shown to be as good as Q8" in text
    assert "full-pipeline" in text.lower()
    for never in ("<img", "@someone", " #12", "[x](", "`c`", "www.e.vil", "\u202e", "x|y"):
        assert never not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    widths = {line.count(" | ") for line in rows[:2]}
    assert len(widths) == 1
    assert escaped("a_b*c") == "a\\_b\\*c"


# --- replication ------------------------------------------------------------------------------------------


def test_published_contrasts_stand_beside_ours(golden: Report) -> None:
    found = replication(golden)
    assert found is not None
    assert found.warning == ""
    row = next(
        r
        for r in found.contrasts.rows
        if r[0].text == "Llama" and r[1].text == "P0 tolerant" and r[1].small == "full pipeline"
    )
    assert (row[2].text, row[2].small) == ("+27.5", "[12.5, 44.2] n 20")
    assert (row[3].text, row[4].text, row[4].small) == ("+27.5", "same sign", "intervals overlap")
    assert "opposite" not in " ".join(r[4].text for r in found.contrasts.rows if "tolerant" in r[1].text)
    cell = next(r for r in found.cells.rows if r[0].text == "Llama q8_0 P0 et")
    assert [entry.text for entry in cell[1:]] == ["87.0 %", "87.0 %", "78.0 %", "78.3 %"]
    assert "Beside" in render_page(golden)


def test_other_models_are_said_to_be_others() -> None:
    cells = cells_of({("Q8_0", "P0"): [1] * 20, ("Q4_K_M", "P0"): ALL}, model="ref_llama")
    found = replication(build_report(cells, ReportOptions(against=published("hu2026"))))
    assert found is not None
    assert "These are not the models of Hu 2026" in found.warning
    assert "ref_llama beside Llama" in found.warning
    assert found.warning.endswith("agreement or not says nothing about the paper.")
    full = next(row for row in found.contrasts.rows if row[1].small == "full pipeline")
    assert full[4].text == "opposite sign"
    strangers = cells_of({("Q8_0", "P0"): ALL, ("Q4_K_M", "P0"): ALL}, model="x")
    nothing = replication(build_report(strangers, ReportOptions(against=published("hu2026"))))
    assert nothing is not None
    assert "nothing is set side by side" in nothing.warning
    assert not nothing.contrasts.rows


def test_the_published_numbers_are_complete_and_have_a_source() -> None:
    known = published("hu2026")
    assert len(known.contrasts) == 2 * 5 * 3 * 2
    assert len(known.cells) == 25
    assert "2610.07781" in known.source
    for cell in known.cells:
        assert 0 <= cell.successes <= cell.episodes
    with pytest.raises(UserError, match="did you mean 'hu2026'"):
        published("hu2025")


def test_titles_lose_what_they_share() -> None:
    assert shortened(["m · et · a", "n · et · b"]) == {"m · et · a": "m · a", "n · et · b": "n · b"}
    assert shortened(["m · et"]) == {"m · et": "m"}
    assert shortened(["m", "m · et"]) == {"m": "m", "m · et": "m · et"}


# --- long tables ------------------------------------------------------------------------------------------


def test_ranks_in_the_table_agree_with_the_page(golden: Report) -> None:
    frame = result_frame(golden.results)
    kinds = {"contrast", "rate", "rank", "simultaneous", "interaction", "count", "cost", "waste", "spread"}
    assert set(frame["kind"]) == kinds | {"published"}
    rows = frame.query("kind == 'rank' and model == 'Llama' and policy == 'tolerant'")
    rows = rows[rows["verdict"].isna()]
    (ranks,) = [r for r in golden.ranks if r.key.model == "Llama" and r.policy == "tolerant"]
    assert rows["value"].tolist() == pytest.approx([one.full.value for one in ranks.presets])
    assert set(rows["unit"]) == {"rate"}
