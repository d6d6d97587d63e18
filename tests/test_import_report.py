"""`qfr report` on a store of imported logs: diagnostics of clean-only runs, on the page and in the files."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from qfr.cli import main
from qfr.foreign import Options, Requestor, read_foreign
from qfr.foreign.measures import BudgetRule, budget_curve, channel_rates
from tests.foreign_files import Simulated, write_tau2
from tests.test_foreign_honest import entry

# The same number of scored trials everywhere: the mean over tasks is the share of simulations.
HIGH = [tuple(Simulated((at + k) % 3 > 0, ("entity",) * (at % 4), k) for k in range(3)) for at in range(6)]
LOW = [tuple(Simulated((at + k) % 2 > 0, ("arguments",) * (at % 3), 0) for k in range(3)) for at in range(6)]

CALL = {"type": "function", "function": {"name": "get_it", "arguments": "{}"}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
FAILING = [ASKED, {"role": "tool", "name": "get_it", "content": "Error: it not found"}]
GOOD = [ASKED, {"role": "tool", "name": "get_it", "content": "ok"}]
LEFT = {"role": "assistant", "content": '<tool_call>{"name": "get_it"}</tool_call>'}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """Two logs of one model, a third of another, imported and reported."""
    place = tmp_path_factory.mktemp("imported")
    shutil.copy(migrated_database, place / "mlflow.db")
    paths = [
        str(write_tau2(place / name, rows, errors=4)) for name, rows in (("h.json", HIGH), ("l.json", LOW))
    ]
    words = ("--model", "m", "--quant", "BF16", "--quant", "INT4", "--root", str(place))
    assert main(["import", *paths, *words]) == 0
    other = str(write_tau2(place / "o.json", HIGH, model="vendor/other", errors=4))
    assert main(["import", other, "--root", str(place)]) == 0
    out = place / "out"
    assert main(["report", "--root", str(place), "--experiment", "qfr-foreign", "--out", str(out)]) == 0
    return place


def rows(folder: Path, **wanted: str) -> list[dict[str, str]]:
    with (folder / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        return [
            row for row in csv.DictReader(file) if all(row[name] == value for name, value in wanted.items())
        ]


@pytest.mark.parametrize("whose", [None, Requestor.agent])
@pytest.mark.parametrize("rule", list(BudgetRule))
def test_every_way_to_count_a_budget_agrees_with_the_log_itself(
    folder: Path, whose: Requestor | None, rule: BudgetRule
) -> None:
    side = "failed calls of both sides" if whose is None else "the agent's failed calls"
    told = {BudgetRule.allow: "allow K", BudgetRule.stop_at: "stop at K"}[rule]
    mine = rows(folder, model="m", level="BF16", kind="budget", target=f"{told}, {side}")
    found = {row["item"]: float(row["value"]) for row in mine}
    curve = budget_curve(read_foreign(folder / "h.json"), rule, whose)
    assert found == {f"K={point.budget}": pytest.approx(point.success.share) for point in curve}
    assert len(set(found.values())) > 2


def test_channels_recovery_and_length_are_there(folder: Path) -> None:
    (rate,) = rows(folder, model="m", level="BF16", kind="channel", item="entity", target="per call")
    calls = sum(len(one.failing) + 1 for row in HIGH for one in row)
    failed = sum(len(one.failing) for row in HIGH for one in row)
    assert float(rate["value"]) == pytest.approx(failed / calls)
    assert rows(folder, model="m", kind="amplification", item="arguments", a="BF16", b="INT4")
    assert rows(folder, model="m", kind="gap", a="BF16", b="INT4")
    (turns,) = rows(folder, model="m", level="BF16", kind="length", item="turns", target="all")
    assert float(turns["value"]) == pytest.approx(calls / 18)


def test_the_page_speaks_of_logs_and_not_of_faults(folder: Path) -> None:
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    text = text[text.index('id="process"') : text.index('id="provenance"')]
    for part in (
        "Success under a shrinking error budget, S(K)",
        "Success in % of n = 6 tasks",
        "Counting rule: allow K, the agent&#39;s failed calls",
        "stop at K, failed calls of both sides",
        "Gap to BF16 under a shrinking error budget",
        "precision not stated",
        "m BF16 retail",
    ):
        assert part in text, part
    assert "m bf16 - none" not in text
    assert "Full-pipeline success in %" not in text


CASES = {
    "many": [entry(at, said=FAILING * 4 + GOOD) for at in range(6)],
    "none": [entry(at, said=GOOD) for at in range(5)],
    "left": [entry(at, said=[LEFT], reward=float(at)) for at in range(2)],
}


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """Three logs of one model: many failing calls, none, and calls that were left in the text."""
    place = tmp_path_factory.mktemp("v1")
    shutil.copy(migrated_database, place / "mlflow.db")
    for (name, entries), quant in zip(CASES.items(), ("BF16", "INT8", "INT4"), strict=True):
        path = place / f"{name}.json"
        path.write_text(json.dumps(entries), encoding="utf-8")
        words = ["--model", "m", "--quant", quant, "--root", str(place)]
        assert main(["import", str(path), *words]) == 0
    out = str(place / "out")
    assert main(["report", "--root", str(place), "--experiment", "qfr-foreign", "--out", out]) == 0
    return place


def test_all_curves_of_a_setting_have_one_range_and_the_gap_is_over_shared_tasks(v1: Path) -> None:
    target = "allow K, the agent's failed calls"
    high, low = (
        [r["item"] for r in rows(v1, level=level, kind="budget", target=target)] for level in ("BF16", "INT8")
    )
    assert high == low == ["K=4", "K=3", "K=2", "K=1", "K=0"]
    gaps = {r["item"]: r["points"] for r in rows(v1, b="INT8", kind="gap")}
    assert [float(gaps[f"K={k}"]) for k in (4, 3)] == [0.0, -100.0]


def test_what_a_log_cannot_show_has_no_value_in_the_files(v1: Path) -> None:
    hidden = rows(v1, level="INT4", kind="budget") + rows(v1, level="INT4", kind="channel", item="entity")
    # Messages with a call as text are seen in the third log alone.
    hidden += [row for row in rows(v1, kind="channel", item="format") if row["level"] != "INT4"]
    hidden += rows(v1, kind="channel", item="premature_give_up")
    hidden += rows(v1, kind="length", item="tokens_in") + rows(v1, kind="length", item="tokens_out")
    assert len(hidden) > 40
    assert {(row["value"], row["count_a"]) for row in hidden} == {("", "")}
    assert all(row["reason"].startswith("not observable") for row in hidden)
    assert not rows(v1, kind="count", item="format errors")


def test_the_page_says_what_limits_each_number(v1: Path) -> None:
    page = (v1 / "out" / "report.html").read_text(encoding="utf-8")
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for part in (
        "<h1><bdi>Imported logs: success, and how calls fail",
        "m INT4 retail (left.json): success 50.0 %",
        "2 messages of the agent in 2 of 2 simulations hold a call as text",
        "No curve of INT4: not observable: 2 messages hold a call as text, and none was run",
    ):
        assert part in text, part
    strange = (
        "Recovery from tool failures",
        "Own clean sets",
        "own clean sets",
        "tolerant scoring",
        "strict scoring",
        "Fault episodes",
        "None of",
    )
    for word in strange:
        assert word not in text, word
    kept = rows(v1, level="INT4", kind="imported", target="warning")
    assert any("hold a call as text" in row["reason"] for row in kept)


def test_a_counted_row_is_taken_apart_by_task(v1: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(v1, level="BF16", kind="channel", item="entity", target="per call")
    words = ["--root", str(v1), "--experiment", "qfr-foreign", "--explain", row["id"]]
    assert main(["report", *words]) == 0
    shown = capsys.readouterr().out
    assert "Failed as entity" in shown
    # Six tasks of five calls, four of which fail.
    assert len(re.findall(r"^\d .*1/1 +1 +5 +4 +4", shown, flags=re.MULTILINE)) == 6
    assert (row["count_a"], row["of_a"]) == ("24", "30")


ODD = [ASKED, {"role": "tool", "name": "get_it", "content": "Error: the stars say otherwise"}]
PHONE = {"type": "function", "function": {"name": "reset_phone", "arguments": "{}"}}
CONFUSED = [
    {"role": "assistant", "content": None, "tool_calls": [PHONE]},
    {"role": "tool", "name": "reset_phone", "content": "Error: Tool 'reset_phone' not found."},
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """Two logs of one name, one with role confusion and unknown texts; the highest preset shows no call."""
    place = tmp_path_factory.mktemp("odd")
    shutil.copy(migrated_database, place / "mlflow.db")
    said = [CONFUSED + ODD + GOOD if at < 2 else GOOD for at in range(4)]
    cases = {
        "blind": ("BF16", [entry(at, said=[LEFT]) for at in range(4)]),
        "seen": ("INT4", [entry(at, said=one) for at, one in enumerate(said)]),
        "again": ("INT4", [entry(at, said=GOOD, reward=0.0) for at in range(4)]),
    }
    for name, (quant, entries) in cases.items():
        path = place / f"{name}.json"
        path.write_text(json.dumps(entries), encoding="utf-8")
        words = ["--model", "m", "--quant", quant, "--root", str(place), "--user-tools", "reset_phone"]
        assert main(["import", str(path), *words]) == 0
    out = str(place / "out")
    assert main(["report", "--root", str(place), "--experiment", "qfr-foreign", "--out", out]) == 0
    return place


def test_role_confusion_and_unknown_texts_stand_on_the_page_and_in_the_files(odd: Path) -> None:
    run = read_foreign(odd / "seen.json", Options(user_tools=frozenset({"reset_phone"})))
    terminal = {rate.channel: rate for rate in channel_rates(run)}
    for item in ("role_confusion", "tool_name", "policy"):
        for target, share in (("per call", terminal[item].rate), ("per episode", terminal[item].share)):
            found = [
                r
                for r in rows(odd, level="INT4", kind="channel", item=item, target=target)
                if r["count_a"] != "0"
            ]
            assert [float(one["value"]) for one in found] == [pytest.approx(share)]
    policy = rows(odd, level="INT4", kind="channel", item="policy", target="per call", count_a="2")
    assert [one["remarks"] for one in policy] == ["2 of them only because their text fits no known form"]
    page = (odd / "out" / "report.html").read_text(encoding="utf-8")
    assert "role confusion" in page
    assert "2 of them only because their text fits no known form" in page


def test_logs_of_one_name_are_told_apart_by_their_files(odd: Path) -> None:
    page = (odd / "out" / "report.html").read_text(encoding="utf-8")
    for name in ("seen.json", "again.json"):
        assert f"m INT4 retail {name}" in page
        assert f"INT4 [{name}]" in page


def test_what_a_log_cannot_show_is_one_line_of_the_table(odd: Path) -> None:
    hidden = rows(odd, level="BF16", kind="channel")
    assert {(row["value"], row["count_a"]) for row in hidden if row["item"] != "format"} == {("", "")}
    left = rows(odd, level="BF16", kind="channel", item="format", target="per episode")
    assert [(row["count_a"], float(row["value"])) for row in left] == [("4", 1.0)]
    text = (odd / "out" / "report.html").read_text(encoding="utf-8")
    assert text.count("4 messages hold a call as text, and none was run") >= 1
