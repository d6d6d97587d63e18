"""The JSON format of `qfr contrast`: what is read, what is refused and how, what comes out."""

from __future__ import annotations

import contextlib
import json
import shutil
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.analysis.cells import summarize
from qfr.analysis.contrast import contrasts
from qfr.analysis.contrast.contrasts import Options, contrast_table
from qfr.analysis.levels import Axis
from qfr.analysis.tablefile import contrast_file, parse_table, read_table, to_json
from qfr.errors import TableError

GOLDEN = Path(__file__).parent / "fixtures" / "golden.json"


def text(**changes: object) -> str:
    good: dict[str, object] = {
        "sites": [2, 2, 3],
        "tables": {"Llama/Q8_0/P0": [2, None, 3], "Llama/Q4_K_M/P0": [1, 2, None]},
    }
    return json.dumps({key: value for key, value in (good | changes).items() if value != "gone"}, indent=1)


def test_json_has_the_documented_keys() -> None:
    table = read_table(GOLDEN)
    data = json.loads(to_json(contrast_table(table.tables), summarize(table.tables)))
    assert len(data["contrasts"]) == 5 * 3
    first = data["contrasts"][0]
    assert (first["model"], first["prompt"], first["a"], first["b"]) == ("Llama", "P0", "8", "4")
    for key in (
        "target",
        "n_tasks",
        "n_tasks_a",
        "n_tasks_b",
        "points",
        "low",
        "high",
        "method",
        "sign_p",
        "reason",
    ):
        assert key in first
    assert {row["target"] for row in data["contrasts"]} == {"own", "matched", "full"}
    assert {row["target"] for row in data["further"]} == {"clean", "s_star"}
    assert len(data["cells"]) == 10


def test_not_estimable_is_null_with_a_reason() -> None:
    table = parse_table(text(tables={"L/8/P0": [2, None, None], "L/4/P0": [None, None, 1]}))
    rows = {row["target"]: row for row in json.loads(to_json(contrast_table(table.tables)))["contrasts"]}
    assert (rows["matched"]["points"], rows["matched"]["low"]) == (None, None)
    assert rows["matched"]["reason"] == "empty matched set"
    assert rows["full"]["points"] == pytest.approx(100 * (1 - 1 / 3) / 3)


def test_more_than_two_levels_and_prompts() -> None:
    tables = {f"m/{q}/{p}": [1, 1, 1] for q in ("8", "4", "3", "16") for p in ("P0", "P1", "P2")}
    table = parse_table(text(tables=tables))
    by_level = contrast_table(table.tables, Options(order=table.levels))
    assert len([c for c in by_level if c.target == "full"]) == 3 * 6
    assert {(c.a, c.b) for c in by_level} == {
        ("16", "8"), ("16", "4"), ("16", "3"), ("8", "4"), ("8", "3"), ("4", "3"),
    }  # fmt: skip
    by_prompt = contrast_table(table.tables, Options(vary=Axis.prompt))
    assert {(c.a, c.b) for c in by_prompt} == {("P0", "P1"), ("P0", "P2"), ("P1", "P2")}
    row = json.loads(to_json(by_prompt))["contrasts"][0]
    assert (row["prompt"], row["level"]) == (None, "8")


def test_a_model_name_may_hold_a_slash_and_names_are_trimmed() -> None:
    (table,) = parse_table(text(tables={"meta / Llama / 8 / P0": [1, 1, 1]})).tables
    assert (table.key.model, table.key.quant, table.key.prompt) == ("meta / Llama", "8", "P0")


def test_families_task_names_levels_and_policy_are_optional() -> None:
    table = parse_table(
        text(
            families=["base", "base", "ship"],
            task_names=["x", "y", "z"],
            levels=["bf16", "awq"],
            policy="strict",
            tables={"m/awq/P0": [1, 1, 1], "m/bf16/P0": [2, 2, None]},
        )
    )
    found = contrast_table(table.tables, Options(order=table.levels))
    assert {(c.a, c.b) for c in found} == {("bf16", "awq")}
    assert {c.family for c in found} == {None, "base", "ship"}
    assert {c.policy for c in found} == {"strict"}
    matched = next(c for c in found if c.target == "matched" and c.family is None)
    assert matched.dropped_b == ("z",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "no JSON"),
        ("[]", "must hold one JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"sites": [1e999]}', "no count|missing"),
        ('{"sites": [1], "tables": {"a/8/P0": [NaN]}}', "NaN is no JSON number"),
        ('{"sites": [1], "tables": {"a/8/P0": [1], "a/8/P0": [0]}}', "stands twice"),
        ('{"sites": [' + "9" * 5000 + '], "tables": {}}', "digits|count"),
        (text(sites="gone", site=[1]), r"'site' \(did you mean 'sites'\?\)"),
        (text(familes=["a", "b", "c"]), r"'familes' \(did you mean 'families'\?\)"),
        (text(tables="gone"), "the key 'tables' is missing"),
        (text(sites=[]), "no tasks"),
        (text(sites=[2, 0, 3]), r"sites\[1\]: 0 sites"),
        (text(sites=[2, 2.5, 3]), r"2\.5 is no count"),
        (text(sites=[2, True, 3]), "true is no count"),
        (text(sites="2"), "must be a list of integers"),
        (text(tables={}), "at least one table"),
        (text(tables={"Llama/8": [1, 1, 1]}), "use Model/level/prompt"),
        (text(tables={"Llama//P0": [1, 1, 1]}), "use Model/level/prompt"),
        (text(tables={"L/8/P0": [1, 1]}), "2 tasks, but sites lists 3"),
        (text(tables={"L/8/P0": {"a": 1}}), "must be a list of successes"),
        (text(tables={"L/8/P0": [1, 1, 4]}), r"line \d+: L/8/P0\[2\]: 4 successes at 3 sites"),
        (text(tables={"L/8/P0": [-1, 1, 1]}), "-1 successes"),
        (text(tables={"L/8/P0": ["1", 1, 1]}), "is no count"),
        (text(families=["a"]), "1 names for 3 tasks"),
        (text(families=["a", "b", 3]), "must be a list of names"),
        (text(task_names=["a", "b", "b"]), "named twice"),
        (text(policy=3), "must be a name"),
        (text(levels=["Q8_0", "Q4_KM"]), r"'Q4_K_M' is missing \(did you mean 'Q4_KM'\?\)"),
    ],
)
def test_a_wrong_table_is_refused_by_name(given: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        parse_table(given, "t.json")


def test_levels_without_an_order_are_refused_with_the_way_out() -> None:
    table = parse_table(text(tables={"m/mine/P0": [1, 1, 1], "m/other/P0": [1, 1, 1]}))
    with pytest.raises(TableError, match="levels") as caught:
        contrast_table(table.tables)
    assert caught.value.hint is not None
    assert "high to low" in caught.value.hint


def test_a_file_is_contrasted_along_the_axes_that_it_has() -> None:
    table = parse_table(text(levels=["bf16", "awq"], tables={"m/awq/P0": [1, 1, 1], "m/bf16/P1": [2, 2, 3]}))
    assert contrast_file(table) == ()
    assert contrast_file(table, Options(vary=Axis.prompt)) == ()
    other = parse_table(
        text(levels=["b", "a"], tables={"m/a/P0": [1, 1, 1], "n/a/P0": [2, 2, 3], "m/b/P0": [0, 0, 0]})
    )
    assert {(c.a, c.b) for c in contrast_file(other)} == {("b", "a")}
    assert {(c.a, c.b, c.model, c.quant) for c in contrast_file(other, Options(vary=Axis.model))} == {
        ("m", "n", None, "a")
    }
    with pytest.raises(TableError, match="no axis 'fault'"):
        contrast_file(table, Options(vary=Axis.fault))


def test_the_documented_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copy(GOLDEN, tmp_path / "published.json")
    monkeypatch.chdir(tmp_path)
    example = textwrap.dedent((contrasts.__doc__ or "").split("::\n", 1)[1])
    assert len(example.splitlines()) <= 22
    exec(compile(example, "example", "exec"), {})
    printed = capsys.readouterr().out
    assert "Llama P0 8 - 4 matched +20.2 points [+4.8, +39.3], n = 14 (unreliable" in printed


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.5", "NaN", "true", '"3"', "null"])
def test_a_count_that_is_none_is_refused_in_words(number: str) -> None:
    text = f'{{"sites": [{number}, 2], "tables": {{"L/8/P0": [1, 1], "L/4/P0": [1, 1]}}}}'
    with pytest.raises(TableError):
        parse_table(text)


@pytest.mark.parametrize("number", ["1e999", "0", "-3", "1" + "0" * 400, "true"])
def test_a_size_that_is_none_is_refused_in_words(number: str) -> None:
    table = '"sites": [2], "tables": {"L/8/P0": [1], "L/4/P0": [1]}'
    with pytest.raises(TableError, match="no size in bytes"):
        parse_table(f'{{{table}, "file_bytes": {{"L/8": {number}}}}}')


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "none.json")
    with pytest.raises(TableError, match="directory"):
        read_table(tmp_path)
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(TableError, match="not UTF-8"):
        read_table(tmp_path / "latin.json")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["sites", "tables", "families", "L/8/P0", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(_JSON)
def test_any_json_is_read_or_refused_in_words(value: object) -> None:
    with contextlib.suppress(TableError):
        assert parse_table(json.dumps(value)).tables
