"""One verdict: the page, the terminal, Markdown, JUnit, the gate and the pick say the same of every pair."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.contrast.ranking import rank
from qfr.analysis.decisions.cells import match, tables_of
from qfr.analysis.decisions.files import Gate, to_junit, to_markdown
from qfr.analysis.decisions.verdict import Decision, Direction, Outcome, Rule, decide
from qfr.analysis.frames import join
from qfr.analysis.pairing import together
from qfr.analysis.tablefile import read_table
from qfr.analysis.targets import Target
from qfr.records import Policy
from qfr.report.console import print_report
from qfr.report.content.build import Report, ReportOptions, build_report
from qfr.report.markdown import render_markdown
from qfr.report.page import render_page
from qfr.report.tables.ranking import rankings
from qfr.report.words import answers
from tests.builders import build_cell_episodes, make_facts, make_suite
from tests.logged import Logged, logged

PRESETS = ("Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M")
MARGINS = (1.0, 5.0, 7.5, 20.0, 60.0)


def random_store(seed: int) -> tuple[list[Logged], float]:
    """Cells of two to four presets under one to three prompts: floors, ceilings, failed cells."""
    rng = np.random.default_rng(seed)
    shapes = make_suite([2] * int(rng.integers(3, 9)) + [3] * int(rng.integers(0, 6)))
    presets = PRESETS[: int(rng.integers(2, 4))]
    prompts = [f"P{at}" for at in range(int(rng.integers(1, 4)))]
    cells = []
    for prompt in prompts:
        skill = float(rng.choice([0.0, 0.3, 0.7, 0.95, 1.0]))
        for preset in presets:
            if preset != presets[0] and rng.random() < 0.15:
                continue
            level = min(1.0, max(0.0, skill + float(rng.choice([-1.0, -0.3, 0.0, 0.0, 0.1]))))
            passed = float(rng.choice([1.0, 1.0, 0.8, 0.0]))
            table = [
                int(rng.binomial(len(shape.path) - 1, level)) if rng.random() < passed else None
                for shape in shapes
            ]
            played = build_cell_episodes(table, shapes)
            clean = logged(make_facts("m", preset, prompt, "none"), played.clean)
            cells += [clean, logged(make_facts("m", preset, prompt, "et"), played.faulted)]
    return cells, float(rng.choice(MARGINS))


def gate_of(cells: list[Logged], pair: tuple[str, str], margin: float) -> Gate:
    """What `qfr compare` decides."""
    joined = {cell.facts.cell_id: cell for cell in cells}
    whole = [
        Logged(cell.facts, cell.episodes, joined[cell.facts.clean_id])
        for cell in cells
        if cell.facts.fault != "none"
    ]
    sides = [
        tables_of([one for one in whole if one.facts.quant == quant], Policy.tolerant, Target.full)
        for quant in pair
    ]
    found = match(*sides)
    counts = Counter(together(one.baseline, one.candidate) for one in found.pairs)
    rules = [
        Rule(Target.full, margin / 100).shared(counts[together(one.baseline, one.candidate)])
        for one in found.pairs
    ]
    decided = tuple(
        decide(one.baseline, one.candidate, rule, one.remarks)
        for one, rule in zip(found.pairs, rules, strict=True)
    )
    return Gate("gate", decided, found.apart)


def prompt_of(one: Decision) -> str:
    return one.candidate.split()[2]


@pytest.mark.parametrize("block", range(10))
def test_every_place_says_the_same(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        cells, margin = random_store(seed)
        tables = [one for one in join(cells).tables if one.policy == "tolerant"]
        contrasts = contrast_table(tables, Options(margin=margin, families=False))
        quants = [quant for quant in PRESETS if any(cell.facts.quant == quant for cell in cells)]
        full = [one for one in contrasts if one.target == "full"]
        (ranks,) = rank(tables, {}, margin=margin)
        reference = quants[0]
        for at, a in enumerate(quants):
            for b in quants[at + 1 :]:
                gate = gate_of(cells, (a, b), margin)
                said = {prompt_of(one): one for one in gate.decisions}
                mine = {c.prompt: c.decision for c in full if (c.a, c.b) == (a, b)}
                assert {prompt: one.label for prompt, one in said.items()} == {
                    prompt: one.label for prompt, one in mine.items() if one is not None
                }, (seed, a, b)
                assert {p: (v.outcome, v.reason) for p, v in said.items()} == {
                    p: (v.outcome, v.reason) for p, v in mine.items() if v is not None
                }
                if a == reference:
                    (row,) = [one for one in ranks.presets if one.name == b]
                    assert {one.prompt: one.label for one in row.prompts} == {
                        prompt: one.label for prompt, one in said.items()
                    }, (seed, b)
                    # The pick's sequence names nothing that the gate does not let pass.
                    for there in row.prompts:
                        assert not there.shown or said[there.prompt].outcome is Outcome.NOT_WORSE
                markdown, junit = to_markdown(gate), ElementTree.fromstring(to_junit(gate))
                for one in gate.decisions:
                    assert one.label in markdown
                failed = len(junit.findall(".//failure")) + len(junit.findall(".//error"))
                passes = [one for one in gate.decisions if one.outcome is Outcome.NOT_WORSE]
                assert failed == len(gate.decisions) - len(passes) + len(gate.apart)
        if seed % 10 == 0:
            _shown_alike(build_report(cells, ReportOptions(margin=margin)))


def _shown_alike(report: Report) -> None:
    """Terminal, Markdown and page carry the same sentences."""
    out = io.StringIO()
    print_report(report, Console(file=out, width=4000))
    terminal = " ".join(out.getvalue().split())
    markdown = " ".join(render_markdown(report).replace("\\", "").split())
    page = " ".join(render_page(report).replace("&gt;", ">").replace("&#39;", "'").split())
    told = [line.text for answer in answers(report) for line in answer.lines]
    texts = [text for text in told if not text.startswith("Not estimable")]
    for one in rankings(report):
        texts += [one.advice, *one.more, *(row[2].text for row in one.table.rows)]
    for text in texts:
        for place in (terminal, markdown, page):
            assert " ".join(text.replace("_", "_").split()) in place, text


def test_a_total_loss_is_said_with_the_exact_test() -> None:
    shapes = make_suite([2] * 10 + [3] * 10)
    cells = []
    for quant, level in (("F16", 1), ("Q2_K", 0)):
        played = build_cell_episodes([level * (len(s.path) - 1) for s in shapes], shapes)
        cells += [
            logged(make_facts("m", quant, "P0", "none"), played.clean),
            logged(make_facts("m", quant, "P0", "et"), played.faulted),
        ]
    report = build_report(cells)
    (full,) = [c for c in report.contrasts if c.target == "full" and not c.family and c.policy == "tolerant"]
    assert full.decision is not None
    assert full.degenerate
    assert full.decision.label == "worse by more than 5 points"
    assert "every one of 20 tasks differs by −100 points (exact p < 0.0001)" in full.decision.reason
    (one,) = rankings(report)
    assert one.advice == (
        "No preset is shown to be as good as F16 within 5 points under P0; Q2_K is worse by more than that."
    )


def test_ahead_needs_what_the_gate_needs() -> None:
    """Three or five tasks that all point one way have p = .25 and .0625: no direction."""
    for n, direction in ((3, Direction.NEITHER), (5, Direction.NEITHER), (7, Direction.BETTER)):
        shapes = make_suite([2] * n)
        low, high = build_cell_episodes([0] * n, shapes), build_cell_episodes([2] * n, shapes)
        cells = []
        for quant, played in (("Q8_0", low), ("Q4_K_M", high)):
            cells += [
                logged(make_facts("m", quant, "P0", "none"), played.clean),
                logged(make_facts("m", quant, "P0", "et"), played.faulted),
            ]
        report = build_report(cells)
        (full,) = [
            c for c in report.contrasts if c.target == "full" and not c.family and c.policy == "tolerant"
        ]
        assert full.decision is not None
        assert full.decision.direction is direction
        assert full.decision.p == full.signflip_p


def test_the_published_qwen_prompts_are_no_equivalence() -> None:
    """Hu 2026, table 2: the prompts are +33, -2, -8, -28 and +18 points apart and cancel in their average."""
    golden = json.loads((Path(__file__).parent / "fixtures" / "golden.json").read_text(encoding="utf-8"))
    assert golden["tables"]
    table = read_table(str(Path(__file__).parent / "fixtures" / "golden.json"))
    qwen = [t for t in table.tables if t.key.model == "Qwen"]
    faulted = [replace(one, key=replace(one.key, fault="et")) for one in qwen]
    (ranks,) = rank(faulted, {}, margin=7.5)
    assert ranks.everywhere is None
    labels = {one.label for preset in ranks.presets for one in preset.prompts}
    assert not any("equivalent" in label for label in labels)
    whole = contrast_table(qwen, Options(order=table.levels, margin=7.5))
    assert not any(c.decision is not None and c.decision.equivalent for c in whole)
