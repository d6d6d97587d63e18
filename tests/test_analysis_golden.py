"""The estimators on the reconstructed tables of Hu 2026: every expected figure of the fixture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qfr.analysis.cells import summarize
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.groups import pooled_test
from qfr.analysis.levels import Axis
from qfr.analysis.results import Contrast
from qfr.analysis.tablefile import read_table
from qfr.analysis.targets import Target, TaskTable
from qfr.stats.intervals import Method

GOLDEN = Path(__file__).parent / "fixtures" / "golden.json"
DATA: dict[str, Any] = json.loads(GOLDEN.read_text())
EXPECTED: dict[str, dict[str, Any]] = DATA["expected"]
FAMILIES = ("base",) * 10 + ("shipping",) * 10
HEADLINE = (Target.own, Target.matched, Target.full)


def golden_tables() -> tuple[TaskTable, ...]:
    return tuple(replace(table, families=FAMILIES) for table in read_table(GOLDEN).tables)


EXACT = contrast_table(golden_tables())
PAPERS_WAY = contrast_table(golden_tables(), Options(method=Method.MONTECARLO, resamples=20_000, seed=3))


def pick(contrasts: tuple[Contrast, ...], cell: str, target: Target, family: str | None = None) -> Contrast:
    model, prompt = cell.split("/")
    (found,) = (
        c for c in contrasts if (c.model, c.prompt, c.target, c.family) == (model, prompt, target, family)
    )
    return found


def lattice_step(contrast: Contrast) -> float:
    """Points between neighbouring values: sixths over the tasks of each side."""
    sizes = {contrast.n_tasks_a, contrast.n_tasks_b}
    return 100 / 6 / min(sizes) if len(sizes) == 1 else 100 / 6 / max(sizes)


@pytest.mark.parametrize("cell", EXPECTED)
@pytest.mark.parametrize("target", HEADLINE)
def test_points_and_exact_interval(cell: str, target: Target) -> None:
    found = pick(EXACT, cell, target)
    assert (found.a, found.b) == ("8", "4")
    assert found.points == pytest.approx(EXPECTED[cell][target], abs=1e-4)
    assert [found.low, found.high] == pytest.approx(EXPECTED[cell][f"{target}_ci"]["exact"], abs=1e-3)
    assert (found.method, found.resamples, found.seed) == ("exact", None, None)


@pytest.mark.parametrize("cell", EXPECTED)
@pytest.mark.parametrize("target", HEADLINE)
def test_monte_carlo_as_in_the_paper(cell: str, target: Target) -> None:
    found = pick(PAPERS_WAY, cell, target)
    assert found.points == pytest.approx(EXPECTED[cell][target], abs=1e-4)
    assert (found.method, found.resamples, found.seed) == ("montecarlo", 20_000, 3)
    step = lattice_step(found) + 1e-3
    assert found.low is not None
    assert found.high is not None
    for end, (least, most) in zip(
        (found.low, found.high), EXPECTED[cell][f"{target}_ci"]["mc20000_range"], strict=True
    ):
        assert least - step <= end <= most + step


@pytest.mark.parametrize("cell", EXPECTED)
def test_task_counts_and_who_was_dropped(cell: str) -> None:
    want = EXPECTED[cell]
    own, matched, full = (pick(EXACT, cell, target) for target in HEADLINE)
    assert (own.n_tasks_a, own.n_tasks_b) == (want["clean8"], want["clean4"])
    assert (own.certified_a, own.certified_b) == (want["clean8"], want["clean4"])
    assert matched.n_tasks == want["matched_n"]
    assert len(matched.dropped_a) == want["clean8"] - want["matched_n"]
    assert len(matched.dropped_b) == want["clean4"] - want["matched_n"]
    assert full.n_tasks == 20
    assert full.dropped_a == full.dropped_b == ()


@pytest.mark.parametrize("cell", EXPECTED)
def test_exact_tests(cell: str) -> None:
    for target in (Target.matched, Target.full):
        found, want = pick(EXACT, cell, target), EXPECTED[cell][f"sign_{target}"]
        assert (found.favour_a, found.favour_b, found.ties) == (
            want["favour8"],
            want["favour4"],
            want["ties"],
        )
        assert found.sign_p == pytest.approx(want["p"], abs=1e-12)
        assert found.signflip_p == pytest.approx(EXPECTED[cell][f"signflip_p_{target}"], abs=1e-12)
        untied = want["favour8"] + want["favour4"]
        assert found.smallest_p == (2.0 ** (1 - untied) if untied else 1.0)
    assert pick(EXACT, cell, Target.own).sign_p is None


@pytest.mark.parametrize("cell", EXPECTED)
def test_families_and_decomposition(cell: str) -> None:
    for family, want in EXPECTED[cell]["families"].items():
        full = pick(EXACT, cell, Target.full, family)
        matched = pick(EXACT, cell, Target.matched, family)
        assert (full.certified_a, full.certified_b) == (want["clean8"], want["clean4"])
        assert full.points == pytest.approx(want["full"], abs=1e-4)
        if want["matched"] is None:
            assert (matched.points, matched.low, matched.high) == (None, None, None)
            assert matched.reason == "empty matched set"
        else:
            assert matched.points == pytest.approx(want["matched"], abs=1e-4)
    full = pick(EXACT, cell, Target.full)
    parts, want = (full.shared_points, full.only_a_points, full.only_b_points), EXPECTED[cell]
    split = want["decomposition_points"]
    assert parts == pytest.approx((split["shared"], split["only8"], split["only4"]), abs=1e-4)
    assert sum(parts) == pytest.approx(full.points, abs=1e-9)
    assert full.screening_points + full.own_rates_points == pytest.approx(full.points, abs=1e-9)


@pytest.mark.parametrize("cell", EXPECTED)
@pytest.mark.parametrize("level", ["8", "4"])
def test_cell_summaries(cell: str, level: str) -> None:
    model, prompt = cell.split("/")
    (found,) = (
        one
        for one in summarize(golden_tables())
        if (one.key.model, one.key.quant, one.key.prompt, one.family) == (model, level, prompt, None)
    )
    want = EXPECTED[cell]
    assert [found.successes, found.episodes] == want[f"episodes{level}"]
    assert [found.episode_rate.low, found.episode_rate.high] == pytest.approx(
        want[f"wilson{level}"], abs=1e-6
    )
    assert found.full.value == pytest.approx(want[f"full_rate{level}"], abs=1e-6)
    assert found.n_certified == want[f"clean{level}"]
    assert found.few == (want[f"clean{level}"] < 8)


def test_published_figures_of_table_4() -> None:
    for cell, printed in DATA["published"].items():
        for target in HEADLINE:
            found = pick(EXACT, cell, target)
            assert found.points is not None
            assert round(found.points, 1) == pytest.approx(printed[target], abs=0.051)


def test_all_ties_are_flagged_and_never_silently_zero() -> None:
    found = pick(EXACT, "Llama/P4", Target.matched)
    assert (found.points, found.low, found.high) == (0.0, 0.0, 0.0)
    assert found.degenerate
    assert not found.reliable
    assert found.reason is not None
    assert "degenerate" in found.reason
    assert found.sign_p == 1.0


def test_s_star_of_two_presets_over_the_prompts() -> None:
    # Tasks that Llama passes at both presets under P0 and P4: 0-8. Qwen under P0, P3, P4: 0, 1 and 10.
    for cell in EXPECTED:
        found = pick(EXACT, cell, Target.s_star)
        assert found.n_tasks == (9 if cell.startswith("Llama") else 3)
    found = pick(EXACT, "Qwen/P3", Target.s_star)
    assert found.points == pytest.approx(100 * ((0.5 - 1) + (0.5 - 1) + (1 / 3 - 1 / 3)) / 3)


def test_prompts_against_each_other() -> None:
    by_prompt = contrast_table(golden_tables(), Options(vary=Axis.prompt))
    (found,) = (
        c for c in by_prompt if (c.model, c.quant, c.target, c.family) == ("Llama", "8", Target.matched, None)
    )
    assert (found.a, found.b, found.prompt) == ("P0", "P4", None)
    p0, p4 = DATA["tables"]["Llama/8/P0"], DATA["tables"]["Llama/8/P4"]
    rates = [
        x / s - y / s
        for x, y, s in zip(p0, p4, DATA["sites"], strict=True)
        if x is not None and y is not None
    ]
    assert found.n_tasks == len(rates)
    assert found.points == pytest.approx(100 * sum(rates) / len(rates), abs=1e-9)
    assert {(c.a, c.b) for c in by_prompt if c.model == "Qwen"} == {("P0", "P3"), ("P0", "P4"), ("P3", "P4")}


def test_adding_a_contrast_changes_no_other() -> None:
    some = tuple(table for table in golden_tables() if table.key.model == "Qwen")
    alone = contrast_table(some, Options(method=Method.MONTECARLO, resamples=500, seed=9))
    together = contrast_table(golden_tables(), Options(method=Method.MONTECARLO, resamples=500, seed=9))
    assert alone == tuple(c for c in together if c.model == "Qwen")


def test_pooled_groups_warn_that_episodes_depend() -> None:
    high = [table for table in golden_tables() if table.key.quant == "8" and table.key.model == "Qwen"]
    low = [table for table in golden_tables() if table.key.quant == "4" and table.key.model == "Qwen"]
    result = pooled_test(high, low)
    assert (result.n_first, result.n_second) == (24 + 21 + 21, 13 + 24 + 21)
    assert "not independent" in result.warning
