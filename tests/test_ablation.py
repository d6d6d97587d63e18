"""The ablation finds an effect where one was built in, at its size, and none where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from qfr.analysis.contrast.ablation import Ablation, ablations
from qfr.analysis.frames import join
from qfr.analysis.targets import TaskTable
from qfr.clauses import Clause
from qfr.scope import Scope
from tests.logged import logged_pair

ALL, HALF, NONE = [2] * 10 + [3] * 10, [1] * 20, [0] * 20


def _tables(quant: str, name: str, base: str, on: bool, row: Sequence[int | None]) -> list[TaskTable]:
    states = {"prompt.base": base, "prompt.retry_required": "true" if on else "false"}
    return [
        dataclasses.replace(table, facts=Scope({**table.facts, **states}))
        for table in join(logged_pair(quant, row, prompt=name)).tables
    ]


def _found(*cells: list[TaskTable]) -> dict[tuple[str, str], Ablation]:
    return {(one.base, one.policy): one for one in ablations([table for cell in cells for table in cell])}


def test_effect_and_difference_of_differences() -> None:
    found = _found(
        _tables("Q8_0", "P1+retry_required", "P1", True, ALL),
        _tables("Q8_0", "P1", "P1", False, NONE),
        _tables("Q4_K_M", "P1+retry_required", "P1", True, HALF),
        _tables("Q4_K_M", "P1", "P1", False, NONE),
        _tables("Q8_0", "P0", "P0", True, ALL),
        _tables("Q8_0", "P0-retry_required", "P0", False, ALL),
    )
    built = found["P1", "tolerant"]
    assert built.clause is Clause.retry_required
    assert [step.quant for step in built.presets] == ["Q8_0", "Q4_K_M"]
    high, low = built.presets
    full = {effect.target: effect for effect in high.effects}["full"]
    assert (full.a, full.b, full.points) == ("true", "false", 100.0)
    assert high.differences == ()
    expected = {effect.target: (effect.points or 0) - 100.0 for effect in low.effects}
    for difference in low.differences:
        assert difference.estimate.value == pytest.approx(expected[difference.target] / 100)
        assert (difference.sign_p is None) == (difference.target == "own")
    none = found["P0", "tolerant"].presets[0].effects
    assert {effect.points for effect in none} == {0.0}


def test_one_base_is_never_set_against_another() -> None:
    found = _found(
        _tables("Q8_0", "P0", "P0", True, ALL),
        _tables("Q8_0", "P1", "P1", False, NONE),
    )
    assert found == {}


def test_own_sets_draw_the_same_tasks_for_all_four_cells() -> None:
    # The clause and the preset move the same tasks, so the effects differ by nothing, whatever is drawn.
    mixed: list[int | None] = [2, 0] * 10
    found = _found(
        *(_tables(quant, "P1+retry_required", "P1", True, mixed) for quant in ("Q8_0", "Q4_K_M")),
        *(_tables(quant, "P1", "P1", False, NONE) for quant in ("Q8_0", "Q4_K_M")),
    )
    own = found["P1", "tolerant"].presets[1].differences[0]
    assert (own.target, own.estimate.value) == ("own", 0.0)
    assert (own.estimate.low, own.estimate.high, own.estimate.degenerate) == (0.0, 0.0, True)
