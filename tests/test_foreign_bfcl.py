"""Results of BFCL multi-turn, in the form that bfcl-eval writes them, and logs of Inspect AI."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qfr.archive.neutral import cells_of
from qfr.cli import main
from qfr.errors import LogError
from qfr.foreign.bfcl import read_bfcl
from qfr.foreign.inspect import Told, _failure, _line, _value
from qfr.records import Policy
from qfr.scoring import score

NAME = "BFCL_v4_multi_turn_base"


def step(*calls: tuple[str, str]) -> list[dict[str, Any]]:
    """One step of an inference log: calls with what the tools returned."""
    return [
        {"role": "assistant", "content": "as the model wrote it"},
        {
            "role": "handler_log",
            "content": "Successfully decoded model response.",
            "model_response_decoded": [call for call, _ in calls],
        },
        *({"role": "tool", "content": result} for _, result in calls),
    ]


def entry(at: int, *steps: list[dict[str, Any]]) -> dict[str, Any]:
    state = [{"role": "state_info", "class_name": "GorillaFileSystem", "content": {}}]
    said = [{"role": "handler_log", "content": "Error decoding the model response.", "error": "x"}]
    turn = {"begin_of_turn_query": [{"role": "user", "content": "do it"}]}
    turn |= {f"step_{n}": each for n, each in enumerate([*steps, said])}
    return {
        "id": f"multi_turn_base_{at}",
        "result": [[["cd"]]],
        "inference_log": [state, turn, state],
        "input_token_count": [[100, 120]],
        "output_token_count": [[7, 5]],
        "latency": [[0.5, 0.5]],
    }


GOOD = entry(0, step(("cd(folder='a')", '{"current_working_directory": "a"}'), ("ls(a=True)", '["x", "y"]')))
BAD = entry(
    1,
    step(("cd(folder='b')", '{"error": "cd: b: No such directory. You cannot use path"}')),
    step(("fly(to='x')", "Error during execution: name 'fly' is not defined")),
    step(("mv(source='a')", "Error during execution: mv() missing 1 required positional argument: 'target'")),
)
LOST = {"id": "multi_turn_base_2", "result": "Error during inference: connection", "traceback": "…"}
FAILED = {"id": "multi_turn_base_1", "model_name": "m", "valid": False, "error": {}, "model_result": []}


def write(folder: Path, entries: list[Any], scores: list[Any] | None) -> Path:
    """Results and scores in the folders that bfcl-eval makes."""
    places = [folder / kind / "m-7b-FC" / "multi_turn" for kind in ("result", "score")]
    for place, kind, lines in zip(places, ("result", "score"), (entries, scores), strict=True):
        place.mkdir(parents=True, exist_ok=True)
        if lines is not None:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (place / f"{NAME}_{kind}.json").write_text(text, encoding="utf-8")
    return places[0] / f"{NAME}_result.json"


def head(total: int, right: int) -> dict[str, Any]:
    return {"accuracy": right / total, "correct_count": right, "total_count": total}


def test_a_result_file_with_its_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {**FAILED, "id": "multi_turn_base_2"}
    path = write(tmp_path, [GOOD, BAD, LOST], [head(3, 1), FAILED, lost])
    found = read_bfcl(path, None, "BF16")
    (cell,) = cells_of(found)
    assert (cell.facts.model, cell.facts.quant, cell.facts.suite) == (
        "m-7b-FC",
        "BF16",
        "bfcl multi_turn_base",
    )
    assert [score(one, Policy.strict).success for one in cell.episodes] == [True, False]
    calls = [(t.call.tool, t.observation.channel) for e in cell.episodes for t in e.turns if t.call]
    assert calls == [("cd", None), ("ls", None), ("cd", "entity"), ("fly", "tool_name"), ("mv", "arguments")]
    assert [one.task for one in found.left_out] == ["multi_turn_base_2"]
    assert main(["import", str(path), "--quant", "BF16", "--root", str(tmp_path / "mlruns")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 simulations scored" in shown
    assert "between 33.3 % and 66.7 % with the excluded ones" in shown
    assert "1 the server failed" in shown


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (None, "the scores of these results are not there"),
        ([head(3, 2), FAILED], "these are the scores of other results"),
        ([head(2, 1), {**FAILED, "id": "multi_turn_base_9"}], "these are the scores of other results"),
        ([{"valid": False}], "holds no total_count"),
    ],
)
def test_scores_that_do_not_belong_are_refused(tmp_path: Path, scores: list[Any] | None, said: str) -> None:
    with pytest.raises(LogError, match=said):
        read_bfcl(write(tmp_path, [GOOD, BAD], scores), None, None)


def test_a_sample_of_inspect_carries_a_studys_fault() -> None:
    call = SimpleNamespace(id="c", function="look", arguments={"key": 1}, parse_error=None)
    error = SimpleNamespace(type="parsing", message="Tool look not found")
    sample = SimpleNamespace(
        id="s1", epoch=2, limit=None, model_usage={}, metadata={"qfr": {"fault": "et", "fired": 0}},
        messages=[
            SimpleNamespace(role="user", text="q", tool_calls=None),
            SimpleNamespace(role="assistant", text="hm", tool_calls=[call]),
            SimpleNamespace(role="tool", tool_call_id="c", text="", error=error),
        ],
    )  # fmt: skip
    log = SimpleNamespace(eval=SimpleNamespace(model="vendor/m", task="demo"))
    line = _line(log, sample, Told(preset="BF16"), True)
    assert (line["task"], line["trial"], line["fault"], line["fired"]) == ("s1", 1, "et", 0)
    assert line["calls"] == [
        {
            "tool": "look", "arguments": {"key": 1}, "ok": False, "channel": "tool_name", "text": "hm",
            "result": "Tool look not found",
        }
    ]  # fmt: skip


def test_trials_without_faults_nest_in_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"model": "m", "preset": "BF16", "task": task, "trial": trial, "success": trial < wins}
        for task, wins in (("a", 2), ("b", 1))
        for trial in range(2)
    ]
    path = tmp_path / "epochs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert main(["import", str(path), "--no-log"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 of 4 simulations scored" in shown
    assert "2 50.0 % 2" in shown
    assert "success under an error budget: not observable: the file lists no calls" in shown


def format_log(path: Path, failed: str) -> Path:
    """Two trials of two tasks, each with one turn that is no call and one failing call."""
    calls = [{"ok": False, "channel": "format", "text": "?"}, {"tool": "get", "ok": False, "channel": failed}]
    lines = [
        {
            "model": "m",
            "preset": path.stem,
            "task": task,
            "trial": trial,
            "success": trial == 0,
            "calls": calls,
        }
        for task in "ab"
        for trial in range(2)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_format_errors_of_a_neutral_log_keep_their_channel(
    tmp_path: Path, migrated_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(migrated_database, tmp_path / "mlflow.db")
    paths = [
        str(format_log(tmp_path / name, failed))
        for name, failed in (("BF16.jsonl", "entity"), ("INT4.jsonl", "policy"))
    ]
    assert main(["import", *paths, "--contrast", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"format +4 +8 +50.00 %", shown)
    assert re.search(r"arguments +0 +8 +0.00 %", shown)
    assert "BF16 (reference, A) against INT4 (B)" in shown
    out = str(tmp_path / "out")
    assert main(["report", "--root", str(tmp_path), "--experiment", "qfr-foreign", "--out", out]) == 0
    page = (tmp_path / "out" / "results.csv").read_text("utf-8")
    (row,) = (
        one for one in csv.DictReader(io.StringIO(page))
        if [one[key] for key in ("item", "level", "target")] == ["format", "BF16", "per call"]
    )  # fmt: skip
    assert (row["count_a"], row["of_a"], float(row["value"])) == ("4", "8", 0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "3"], "--tasks does not apply to"),
        (["--release", "since"], "--release does not apply to"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    path = format_log(tmp_path / "BF16.jsonl", "entity")
    assert main(["import", str(path), "--no-log", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_excluded_episode_is_in_no_rate_and_bounds_count_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = format_log(tmp_path / "BF16.jsonl", "entity")
    gone = {"model": "m", "preset": "BF16", "task": "c", "trial": 1, "excluded": "the server failed"}
    path.write_text(path.read_text("utf-8") + json.dumps(gone) + "\n", encoding="utf-8")
    assert main(["import", str(path), "--no-log"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 of 5 simulations scored" in shown
    assert "between 40.0 % and 60.0 % with the excluded ones" in shown
    path.write_text(path.read_text("utf-8") + json.dumps(gone | {"success": True}) + "\n", encoding="utf-8")
    assert main(["import", str(path), "--no-log"]) == 2
    assert "line 6: success: an excluded episode has no success" in " ".join(capsys.readouterr().err.split())


def sample(**more: Any) -> Any:
    """A sample as Inspect's reader gives it."""
    return SimpleNamespace(**({"scores": {}, "id": 1} | more))


def test_a_scorer_of_several_values_is_chosen_by_its_key() -> None:
    values = sample(
        scores={"many": SimpleNamespace(value={"a": 1, "b": 0.5}), "m": SimpleNamespace(value="C")}
    )
    assert [_value(values, name, "x") for name in ("many.a", "many.b", "m")] == [True, False, True]
    with pytest.raises(LogError, match=r"several scores \(many.a, many.b, m\)"):
        _value(values, None, "x")


@pytest.mark.parametrize(
    ("kind", "said", "found"),
    [
        ("parsing", "Found 2 validation errors parsing tool input arguments:", "arguments"),
        ("parsing", "Tool fetch not found", "tool_name"),
        ("file_not_found", "x", "entity"),
        ("permission", "x", "policy"),
        ("unknown", "Order not found", "entity"),
    ],
)
def test_inspects_own_kinds_of_error_tell_the_channel(kind: str, said: str, found: str) -> None:
    assert _failure(SimpleNamespace(error=SimpleNamespace(type=kind, message=said)), said) == found


def test_without_its_package_a_log_of_inspect_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "inspect_ai.log", None)
    path = tmp_path / "a.eval"
    path.write_bytes(b"PK")
    assert main(["import", str(path), "--no-log"]) == 2
    assert "need the package inspect-ai" in capsys.readouterr().err
