"""`qfr contrast` beyond pairs of presets: groups (Hu 2026, appendix A), prompts, interactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qfr.cli import main

SITES = [2] * 6 + [3] * 5


def contrast(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["contrast", str(path), "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    """Eleven tasks that four levels pass: on five of them the higher pair does better, on six they tie."""
    high: list[int | None] = [*SITES]
    low: list[int | None] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 3, 3]
    tables: dict[str, list[int | None]] = {"L/8/P0": high, "L/6/P0": high, "L/4/P0": low, "L/3/P0": low}
    tables |= {"L/8/P1": low, "L/6/P1": high, "L/4/P1": low, "L/3/P1": [0, None, *low[2:]]}
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps({"sites": SITES, "tables": tables, "policy": "strict"}))
    return path


def test_named_groups_on_shared_tasks(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = contrast(ladder, capsys, "--groups", "high=8,6;low=4,3")
    one = next(row for row in found["groups"] if row["prompt"] == "P0")
    assert (one["a"], one["b"], one["a_levels"], one["policy"]) == ("high", "low", ["8", "6"], "strict")
    assert (one["n_tasks"], one["favour_a"], one["ties"], one["favour_b"]) == (11, 5, 6, 0)
    # Hu 2026, appendix A: 5 of 11 favour the higher group, none the lower: sign test p = 0.063.
    assert one["sign_p"] == pytest.approx(0.0625)
    assert one["points"] == pytest.approx(100 * (1 / 2 + 1 / 2 + 1 / 3 + 1 / 3 + 2 / 3) / 11)
    assert one["low"] < one["points"] < one["high"]
    assert (one["a_successes"], one["a_episodes"]) == (54, 54)
    assert (one["b_successes"], one["b_episodes"]) == (42, 54)
    assert "not independent" in one["fisher_warning"]


def test_a_group_without_its_level_is_told(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contrast", str(ladder), "--groups", "high=8;low=2"]) == 2
    told = capsys.readouterr().err
    assert "low: 2" in told
    assert "the file has 8, 6, 4, 3" in told


def test_differences_of_differences(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = contrast(ladder, capsys)["interactions"]
    one = next(row for row in found if (row["b"], row["target"]) == ("4", "matched"))
    assert (one["a"], one["first_prompt"], one["second_prompt"], one["n_tasks"]) == ("8", "P0", "P1", 11)
    # 8 and 4 bits are alike under P1.
    assert one["points"] == pytest.approx(100 * (1 / 2 + 1 / 2 + 1 / 3 + 1 / 3 + 2 / 3) / 11)


def test_targets_methods_and_margin(ladder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--vary", "prompt", "--target", "matched", "--target", "s_star", "--method", "montecarlo")
    found = contrast(ladder, capsys, *words, "--resamples", "500", "--seed", "7", "--margin", "40")
    assert {row["target"] for row in found["contrasts"]} == {"matched"}
    assert {row["target"] for row in found["further"]} == {"s_star"}
    row = next(row for row in found["contrasts"] if row["level"] == "8")
    assert (row["a"], row["b"], row["method"], row["resamples"], row["seed"]) == (
        "P0",
        "P1",
        "montecarlo",
        500,
        7,
    )
    assert row["margin_points"] == 40
    # The gate's bounds for eleven tasks are wider than forty points.
    assert row["equivalent"] is False
    assert row["equivalence_high_points"] > 40
    tests = [one for one in found["contrasts"] if one["sign_p"] is not None]
    smallest = min(tests, key=lambda one: one["sign_p"])
    assert smallest["sign_holm_p"] == pytest.approx(min(1.0, len(tests) * smallest["sign_p"]))


def test_levels_by_name_have_interactions_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = {f"L/{level}/{prompt}": [1, 2] for level in ("awq", "bf16") for prompt in ("P0", "P1")}
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"sites": [2, 2], "levels": ["bf16", "awq"], "tables": tables}))
    found = contrast(path, capsys)
    assert {(one["a"], one["b"]) for one in found["interactions"]} == {("bf16", "awq")}
    assert {one["degenerate"] for one in found["interactions"]} == {True}


@pytest.mark.parametrize(
    "words", [("--margin", "0"), ("--margin", "nan"), ("--target", "ful"), ("--vary", "fault")]
)
def test_wrong_options_are_refused(
    ladder: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["contrast", str(ladder), *words])
    assert caught.value.code == 2
    assert words[0] in capsys.readouterr().err
