"""Cells of equal names and other budgets: never pooled, each named, and a recount beside its real rerun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from qfr.analysis.contrast.contrasts import contrast_table
from qfr.analysis.frames import contexts, join, told_apart
from qfr.records import Channel, Episode, FaultKind
from qfr.report.content.build import Material, Report, build_report
from qfr.report.export import result_frame
from qfr.report.page import page_of, render_page
from qfr.report.tables.ranking import rankings
from qfr.tracking.reading.tables import call_table, to_frame
from tests.builders import make_facts
from tests.diagnosed import bad, episode, good, hit
from tests.logged import Logged, logged

RIGHT, ERROR, ET = good("submit_answer", "1"), bad(Channel.entity), FaultKind.et
TASKS = ("a", "b", "c")


class Store:
    """Cells and, by cell_id, their calls."""

    def __init__(self) -> None:
        self.cells: list[Logged] = []
        self.calls: dict[str, pd.DataFrame] = {}

    def add(self, quant: str, budget: int, errors: Sequence[int]) -> None:
        """An agent that fails so many calls in each task's fault episode; the budget cuts it."""
        clean = [episode(task, [RIGHT]) for task in TASKS]
        faulted = [cut(task, count, budget) for task, count in zip(TASKS, errors, strict=True)]
        none, et = (
            replace(
                make_facts("m", quant, "P0", fault),
                error_budget=budget,
                executor_sha256=f"{budget}" * 64,
                cell_id=f"c-{quant}-{budget}-{fault}",
                clean_id=f"c-{quant}-{budget}-none",
            )
            for fault in ("none", "et")
        )
        first = logged(none, clean)
        self.cells += [first, replace(logged(et, faulted), clean=first)]
        self.calls |= {none.cell_id: to_frame(call_table(clean)), et.cell_id: to_frame(call_table(faulted))}

    def report(self) -> Report:
        return build_report(self.cells, material=Material(calls=self.calls.get))


def cut(task: str, errors: int, budget: int) -> Episode:
    failed = [ERROR] * min(errors, budget + 1)
    return episode(task, [hit(), *failed] if errors > budget else [hit(), *failed, good(), RIGHT], ET)


@pytest.fixture(scope="module")
def report() -> Report:
    store = Store()
    for budget in (3, 1):
        store.add("Q8_0", budget, [0, 0, 1])
        store.add("Q4_K_M", budget, [0, 2, 3])
    return store.report()


def test_cells_of_one_run_carry_what_tells_it_from_another() -> None:
    wide = make_facts("m", "Q8_0", "P0", "et")
    tight = replace(wide, error_budget=2, executor_sha256="x", cell_id="c-tight")
    alone = make_facts("m", "Q8_0", "P1", "et")
    other = make_facts("n", "Q8_0", "P0", "et")
    assert contexts([wide, tight, alone, other]) == {
        wide.cell_id: "suite.error_budget=10",
        "c-tight": "suite.error_budget=2",
        # Without a twin, yet of the same run.
        alone.cell_id: "suite.error_budget=10",
        other.cell_id: "",
    }
    assert set(contexts([wide, alone, other]).values()) == {""}
    edited = replace(wide, prompt_sha256="ab" * 32, cell_id="c-edited")
    assert contexts([wide, edited])["c-edited"] == ""
    assert told_apart([wide, edited])["c-edited"] == "prompt 2 of 2"


def test_budgets_are_ranked_contrasted_and_listed_apart(report: Report) -> None:
    assert [(one.title, len(one.table.rows)) for one in rankings(report)] == [
        ("m · suite.error_budget=3", 2),
        ("m · suite.error_budget=1", 2),
    ]
    frame = result_frame(report.results)
    frame, cells = frame[frame["kind"] == "contrast"], frame[frame["kind"] == "rate"]
    full = frame[(frame["target"] == "full") & (frame["policy"] == "tolerant") & frame["family"].isna()]
    found = dict(zip(full["scope"], full["points"], strict=True))
    assert found == {
        "suite.error_budget=3": pytest.approx(0.0),
        "suite.error_budget=1": pytest.approx(200 / 3),
    }
    cells = cells[(cells["policy"] == "tolerant") & (cells["target"] == "full")]
    assert cells["scope"].value_counts().to_dict() == {
        "suite.error_budget=3": 2,
        "suite.error_budget=1": 2,
    }
    html = render_page(report)
    assert "m q4_k_m P0 et, suite.error_budget=1" in html


def test_no_pair_mixes_two_budgets(report: Report) -> None:
    contrasts = contrast_table(join([*report_cells()]).tables)
    assert {c.scope for c in contrasts} == {"suite.error_budget=3", "suite.error_budget=1"}
    assert all(c.n_tasks == 3 for c in contrasts if c.target == "s_star")


def report_cells() -> list[Logged]:
    store = Store()
    for budget in (3, 1):
        store.add("Q8_0", budget, [0, 0, 1])
        store.add("Q4_K_M", budget, [0, 2, 3])
    return store.cells


def test_a_real_rerun_stands_beside_its_recount(report: Report) -> None:
    table = page_of(report).reruns
    assert table is not None
    high, low = table.rows
    assert [entry.text for entry in high] == ["m q8_0 P0 et", "K = 1", "100.0 %", "100.0 %", "0.0", "0"]
    assert [entry.text for entry in low] == ["m q4_k_m P0 et", "K = 1", "33.3 %", "33.3 %", "0.0", "0"]
    frame = result_frame(report.results)
    rerun = frame[(frame["kind"] == "rerun") & (frame["unit"] == "rate") & (frame["level"] == "Q4_K_M")]
    assert list(rerun["item"]) == ["K=1 from 3"] * 2
    assert list(rerun["value"]) == pytest.approx([1 / 3, 1 / 3])
    assert "A real rerun under the tight budget beside its recount" in render_page(report)


def test_a_rerun_that_was_played_otherwise_is_named() -> None:
    store = Store()
    store.add("Q8_0", 3, [0, 0, 1])
    store.add("Q8_0", 1, [0, 2, 0])
    table = page_of(store.report()).reruns
    assert table is not None
    ((*_, difference, differing),) = table.rows
    assert (difference.text, differing.text, differing.small) == ("+33.3", "1", "b")


def test_every_counting_rule_is_shown(report: Report) -> None:
    assert report.diagnosed is not None
    (agent,) = (
        one
        for one in report.diagnosed.agents
        if one.key.quant == "Q4_K_M" and one.key.context == "suite.error_budget=3"
    )
    found = {
        one.rule: [round(3 * (point.success.value or 0.0)) for point in one.curve.points]
        for one in agent.curves
    }
    # Failed calls of the agent: 0, 2, 3; with the injected failure 1, 3, 4. K from 3 down to 0.
    assert found == {
        "allow K, injected failures not counted": [3, 2, 1, 1],
        "stop at K, injected failures not counted": [2, 1, 1, 0],
        "allow K, injected failures counted": [2, 1, 1, 0],
        "stop at K, injected failures counted": [1, 1, 0, 0],
        "clean pass, allow K": [3, 3, 3, 3],
    }
    html = render_page(report)
    assert "Counting rule: allow K, injected failures not counted" in html
    for rule in found:
        assert rule in html


def test_without_a_rerun_there_is_no_table() -> None:
    store = Store()
    store.add("Q8_0", 3, [0, 0, 1])
    assert page_of(store.report()).reruns is None
