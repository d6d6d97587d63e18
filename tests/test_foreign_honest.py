"""What a log cannot show is told and is no 0; what it does show is read, whichever way it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qfr.cli import main
from qfr.foreign import FailureKind, ForeignRun, Options, Requestor, read_foreign, read_logs
from qfr.foreign.conversation import call_in_text
from qfr.foreign.measures import BudgetRule, budget_curve, channel_rates

Traj = dict[str, Any]
OK, STOP = "ok", {"role": "user", "content": "###STOP###"}


def entry(
    task: int, *, trial: int | None = 0, reward: float = 1.0, domain: str = "Retail", said: Sequence[Any] = ()
) -> Traj:
    """A trajectory of tau-bench v1."""
    head = [{"role": "system", "content": f"# {domain} agent policy\n"}, {"role": "user", "content": "hi"}]
    found = {"task_id": task, "reward": reward, "info": {}, "traj": [*head, *said, STOP]}
    return found if trial is None else found | {"trial": trial}


def acts(name: str, answer: str | None, **arguments: str) -> list[dict[str, str]]:
    """A text agent's action and what the program answers."""
    text = "Thought:\nwell.\nAction:\n" + json.dumps({"name": name, "arguments": arguments})
    action = {"role": "assistant", "content": text}
    return [action] if answer is None else [action, {"role": "user", "content": f"API output: {answer}"}]


def write(folder: Path, *entries: Traj) -> Path:
    path = folder / "log.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def rate(run: ForeignRun, channel: str) -> tuple[int | None, str | None]:
    (found,) = [each for each in channel_rates(run) if each.channel == channel]
    return found.events, found.note


def test_a_text_agents_calls_are_read_from_its_messages(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        entry(0, said=[*acts("get_it", "Error: it not found", id="x"), *acts("get_it", OK, id="y")]),
        entry(1, said=[*acts("make_it", "Unknown action make_it"), *acts("respond", None, content="bye")]),
        entry(2, said=[{"role": "assistant", "content": 'Action:\n{"name": "get_it", "arguments": {'}]),
        entry(3, said=[*acts("get_it", OK, id="y")]),
    )
    run = read_foreign(path)
    asked = [[(c.tool, c.failure) for c in found.calls] for found in run.episodes]
    assert asked == [
        [("get_it", FailureKind.entity), ("get_it", None)],
        [("make_it", FailureKind.tool_name)],
        [],
        [("get_it", None)],
    ]
    assert run.episodes[1].talk[-2].text == "bye"
    assert [p.success.share for p in budget_curve(run, BudgetRule.allow, Requestor.agent)][-1] == 0.5
    # The program drops nothing here: the action that is no JSON is the one error of its kind.
    assert rate(run, "format") == (1, "messages that hold a call as text, which was not run")


def test_calls_left_in_the_text_make_the_counts_unobservable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {"role": "assistant", "content": '<tool_call>\n{"name": "get_it", "arguments": {"}}\n</tool_call>'}
    path = write(tmp_path, entry(0, said=[left, left]), entry(1, said=[left], reward=0.0))
    run = read_foreign(path)
    assert run.blind.startswith("not observable: 3 messages")
    assert rate(run, "any")[0] is None
    assert rate(run, "format")[0] == 3
    assert main(["import", str(path), "--no-log"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "success under an error budget: not observable: 3 messages hold a call as text" in shown


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "a"}',
        "<function=get_it>",
        '[TOOL_CALLS][{"name": "a"}]',
        '<|python_tag|>get_it.call(x="1")',
        'Sure.\n```json\n{"name": "get_it", "parameters": {"x": 1}}\n```',
        "<｜tool▁calls▁begin｜>",
        "<|channel|>commentary to=functions.get_it",
        "get_it(order_id='#W1')",
    ],
)
def test_the_ways_to_leave_a_call_in_the_text(text: str) -> None:
    assert call_in_text(text)


@pytest.mark.parametrize("text", ["", "I called the tool (twice).", "Your name is {x}.", "a function = b"])
def test_words_are_no_calls(text: str) -> None:
    assert not call_in_text(text)


def test_a_program_that_drops_malformed_calls_shows_no_zero(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_it", "arguments": "{}"}}
    said = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "get_it", "content": "Error: strange thing"},
    ]
    run = read_foreign(write(tmp_path, entry(0, said=said)))
    assert rate(run, "format") == (None, "not observable: the program keeps no call that it could not read")
    assert rate(run, "policy") == (1, "1 of them only because their text fits no known form")


def test_domains_of_one_file_are_suites_of_their_own(tmp_path: Path) -> None:
    crashed = {"task_id": 1, "reward": 0.0, "info": {"error": "boom"}, "traj": [], "trial": 0}
    path = write(tmp_path, entry(0), crashed, entry(0, domain="Airline", reward=0.0), entry(1, trial=1))
    runs = read_logs(path)
    assert [(r.info.domain, len(r.episodes), len({r.info.sha256 for r in runs})) for r in runs] == [
        ("retail", 2, 2),
        ("airline", 1, 2),
    ]
    assert [(gone.task, gone.reason) for gone in runs[0].excluded if gone.reason == "crashed"] == [
        ("1", "crashed")
    ]
    # Task 0 of one domain is not task 0 of the other.
    assert main(["import", str(path), "--no-log", "--contrast"]) == 2


def test_a_running_number_is_no_trial(tmp_path: Path) -> None:
    run = read_foreign(write(tmp_path, *(entry(at, trial=at) for at in range(40))))
    assert (len(run.episodes), run.excluded, run.info.trials) == (40, (), 1)
    assert any("runs through the file" in text for text in run.warnings)
    assert any("states no plan" in text for text in run.warnings)


def test_the_plan_can_be_told(tmp_path: Path) -> None:
    path = write(tmp_path, entry(0), entry(1))
    run = read_foreign(path, Options(tasks=("0", "1", "2"), trials=2))
    assert len(run.excluded) == 4
    assert not any("states no plan" in text for text in run.warnings)
    assert main(["import", str(path), "--no-log", "--tasks", "3", "--trials", "2"]) == 0
    assert main(["import", str(path), "--no-log", "--tasks", "0,0"]) == 2


def test_an_entry_that_stands_twice_counts_once(tmp_path: Path) -> None:
    run = read_foreign(write(tmp_path, entry(0), entry(0), entry(1), entry(0, trial=1, reward=0.0)))
    assert [found.episode.task for found in run.episodes] == ["0", "0", "1"]
    assert any("count once" in text for text in run.warnings)
