"""Agreement of the orders of presets, and the spread along an axis."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from qfr.analysis.contrast.agreement import agreements, spreads, tau_b
from qfr.analysis.frames import join
from tests.logged import logged_pair


def test_tau_is_that_of_scipy_row_by_row() -> None:
    rng = np.random.default_rng(3)
    first, second = (rng.integers(0, 4, size=(50, 5)).astype(float) for _ in range(2))
    for one, other, tau in zip(first, second, tau_b(first, second), strict=True):
        assert tau == pytest.approx(stats.kendalltau(one, other).statistic, nan_ok=True)


def test_a_prompt_that_turns_the_order_round_has_tau_minus_one() -> None:
    table = {"Q8_0": [2] * 10 + [3] * 10, "Q4_K_M": [1] * 10 + [2] * 10, "Q3_K_M": [0] * 10 + [1] * 10}
    turned = dict(zip(table, reversed(table.values()), strict=True))
    cells = [
        cell
        for prompt, rates in (("P0", table), ("P4", turned))
        for quant, row in rates.items()
        for cell in logged_pair(quant, row, prompt=prompt)
    ]
    tables = join({cell.facts.cell_id: cell for cell in cells}.values()).tables
    found = agreements(tables, seed=1)
    across = {(one.across, one.tau) for one in found}
    assert ("prompt", -1.0) in across
    assert ("target", 1.0) in across
    turn = next(one for one in found if one.across == "prompt")
    assert turn.tops == ("Q8_0", "Q3_K_M")
    assert turn.rho == pytest.approx(-1.0)
    assert turn.tau_low is not None
    wide = {(one.axis, one.target, one.policy): one for one in spreads(tables)}
    # The prompts move two presets as far as the presets lie apart, and the third one not at all.
    assert wide["quant", "full", "tolerant"].places == 2
    assert wide["prompt", "full", "tolerant"].places == 3
    assert wide["prompt", "full", "tolerant"].mean == pytest.approx(
        wide["quant", "full", "tolerant"].mean * 2 / 3
    )
