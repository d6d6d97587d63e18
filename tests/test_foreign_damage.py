"""Damaged, unknown and hostile logs: one clear error each, and nothing but that error whatever is read."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qfr.errors import LogError
from qfr.foreign import FailureKind, ForeignRun, Release, Requestor, read_foreign
from qfr.foreign.conversation import classify

FIXTURES = Path(__file__).parent / "fixtures"
RETAIL = FIXTURES / "tau2" / "retail_before.json"
TELECOM = FIXTURES / "tau2" / "telecom_since"
V1 = FIXTURES / "tau1" / "gpt-4o-retail.json"

Data = Any
Edit = Callable[[Callable[[Data], object]], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """`edited(change)`: the single tau2-bench file with a change made to its content."""

    def make(change: Callable[[Data], object]) -> Path:
        data = json.loads(RETAIL.read_text("utf-8"))
        change(data)
        path = tmp_path / "results.json"
        path.write_text(json.dumps(data), "utf-8")
        return path

    return make


def complaint(path: Path) -> str:
    """The message of the error that reading raises."""
    with pytest.raises(LogError) as caught:
        read_foreign(path)
    return str(caught.value)


def messages(data: Data, simulation: int = 0) -> Data:
    return data["simulations"][simulation]["messages"]


# --- one clear error each ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            lambda data: data["simulations"][2].update(termination_reason="user_stp"),
            ("simulations[2].termination_reason", "did you mean 'user_stop'?"),
        ),
        (
            lambda data: data["simulations"][0].update(task_ids=data["simulations"][0].pop("task_id")),
            ("simulations[0]", "the key 'task_id' is missing (did you mean 'task_ids'?)"),
        ),
        (
            lambda data: messages(data)[2].update(role="asistant"),
            ("simulations[0].messages[2].role", "did you mean 'assistant'?"),
        ),
        (
            lambda data: messages(data)[2]["tool_calls"][1].pop("name"),
            ("simulations[0].messages[2].tool_calls[1]", "the key 'name' is missing"),
        ),
        (
            lambda data: messages(data)[2]["tool_calls"][0].update(arguments='{"order_id": 1}'),
            ("tool_calls[0].arguments", "must be an object"),
        ),
        (
            lambda data: messages(data)[3].update(id="other"),
            ("simulations[0].messages[3]", "'other' answers no open call of the agent"),
        ),
        (
            lambda data: messages(data)[3].update(requestor="user"),
            ("simulations[0].messages[3]", "answers no open call of the user"),
        ),
        (
            lambda data: messages(data)[3].update(requestor="agent"),
            ("messages[3].requestor", "'agent' is no requestor"),
        ),
        (
            lambda data: data["simulations"][0]["reward_info"].update(reward="1.0"),
            ("simulations[0].reward_info.reward", "a number is expected here, not a string"),
        ),
        (
            lambda data: data["simulations"][0]["reward_info"].update(reward=True),
            ("reward_info.reward", "not a boolean"),
        ),
        (
            lambda data: data["simulations"].append(copy.deepcopy(data["simulations"][0])),
            ("simulations[3]", "the simulation 's-00' stands twice"),
        ),
        (lambda data: data["info"].update(num_trials=10**9), ("info.num_trials", "not between 0 and 10000")),
        (lambda data: data.update(simulations=[]), ("results.json", "holds no simulation")),
        (lambda data: data.update(simulations={}), ("simulations", "a list is expected here, not an object")),
        (lambda data: data.pop("info"), ("the key 'info' is missing",)),
        (
            lambda data: data.update(simulation=data.pop("simulations")),
            ("the key 'simulations' is missing (did you mean 'simulation'?)",),
        ),
    ],
)
def test_a_damaged_key_is_named(
    edited: Edit, change: Callable[[Data], object], parts: tuple[str, ...]
) -> None:
    said = complaint(edited(change))
    for part in parts:
        assert part in said


def test_a_cut_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    text = RETAIL.read_text("utf-8")
    path.write_text(text[: len(text) // 2], "utf-8")
    said = complaint(path)
    assert f"line {text[: len(text) // 2].count(chr(10)) + 1}," in said
    assert "cut off" in said


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe\x00", "line 1: not UTF-8 text"),
        (b"\x1f\x8b\x08", "not UTF-8 text"),
        (b'{"a": 1}\n{"a": 2}\n', "is this JSON Lines?"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "holds no trajectory"),
        (b"3", "neither an object nor a list"),
        (b'{"sites": [2], "tables": {}}', "no results of tau2-bench"),
        (b'{"simulatons": []}', "did you mean 'simulations'?"),
        (b'[{"task_id": 0, "reward": 1, "trajj": []}]', "the key 'traj' is missing (did you mean 'trajj'?)"),
        (b'[{"task": 0}]', "no trajectory of tau-bench v1"),
        (
            b'[{"task_id": "0", "termination_reason": "user_stop", "messages": []}]',
            "give the whole results.json",
        ),
        (b'{"task_id": "0", "termination_reason": "user_stop", "messages": []}', "this is one simulation"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    assert part in complaint(path)


def test_places_without_a_log(tmp_path: Path) -> None:
    assert "holds no results.json" in complaint(tmp_path)
    (tmp_path / "results.json").mkdir()
    assert "holds no results.json" in complaint(tmp_path)
    shutil.copy(RETAIL, tmp_path / "retail.json")
    assert "did you mean 'retail.json'?" in complaint(tmp_path / "retial.json")
    assert "no such file" in complaint(tmp_path / "no" / "such.json")


def test_folder_with_a_file_missing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(TELECOM, folder)
    (folder / "simulations" / "t-10.json").unlink()
    said = complaint(folder)
    assert "simulation_index[2].id" in said
    assert "'t-10'" in said


def test_folder_with_a_damaged_simulation(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(TELECOM, folder)
    file = folder / "simulations" / "t-10.json"
    file.write_text(file.read_text("utf-8")[:-30], "utf-8")
    assert "simulations/t-10.json, line" in complaint(folder)


# --- what is odd but no damage -----------------------------------------------------------------------


def test_older_files_lack_fields(edited: Edit) -> None:
    def change(data: Data) -> None:
        data.pop("timestamp")
        data.pop("tasks")
        data["info"] = {"agent_info": {"llm": "m"}, "environment_info": None}
        for simulation in data["simulations"]:
            for key in ("trial", "seed", "start_time", "timestamp", "id"):
                simulation.pop(key)
            for message in simulation["messages"]:
                for key in ("requestor", "turn_idx", "timestamp", "usage", "raw_data", "error"):
                    message.pop(key, None)
                for call in message.get("tool_calls") or ():
                    call.pop("requestor")

    run = read_foreign(edited(change))
    assert (run.info.max_errors, run.info.trials, run.info.domain) == (10, 2, "")
    assert [found.episode.errors for found in run.episodes] == [2, 1]
    assert [(gone.task, gone.reason) for gone in run.excluded] == [("0", "infrastructure_error")]
    assert run.info.release is Release.before
    assert "'mode'" in run.info.release_reason
    assert any("were numbered" in text for text in run.warnings)
    assert run.episodes[0].completion_tokens is None


def test_a_file_without_date_may_be_of_either_release(edited: Edit) -> None:
    def change(data: Data) -> None:
        data.pop("timestamp")
        for simulation in data["simulations"]:
            simulation.pop("start_time")
            simulation["mode"] = "half_duplex"

    run = read_foreign(edited(change))
    assert run.info.release is Release.unknown
    assert any("may be censored" in text for text in run.warnings)


def test_fields_tell_the_release_before_dates_do(edited: Edit) -> None:
    def change(data: Data) -> None:
        data["timestamp"] = "2026-05-24T23:43:03"
        for simulation in data["simulations"]:
            simulation.pop("mode", None)
            simulation["start_time"] = "2026-05-24T23:43:03"

    run = read_foreign(edited(change))
    assert run.info.release is Release.before
    assert "yet the run began on 2026-05-24" in run.info.release_reason
    assert any("censored" in text for text in run.warnings)


def test_survivors_are_told_of(edited: Edit) -> None:
    def change(data: Data) -> None:
        call, result = messages(data)[2]["tool_calls"][0], messages(data)[3]
        call["name"], result["content"] = "find_order", "Error: Tool 'find_order' not found."

    run = read_foreign(edited(change))
    assert run.info.release is Release.before
    assert "1 scored simulations hold such a name" in run.warnings[0]
    assert run.episodes[0].failures(FailureKind.tool_name) == 1


def test_a_given_history_is_nobodys_work(edited: Edit) -> None:
    def change(data: Data) -> None:
        # Everything up to the first two results was given by the task.
        data["tasks"][0]["initial_state"] = {"message_history": messages(data)[:4]}

    found = read_foreign(edited(change)).episodes[0]
    # The result of the second call stands outside the history and still finds it.
    assert [turn.call.tool for turn in found.episode.turns if turn.call] == ["cancel_pending_order"] * 2
    assert found.agent_messages == 4


def test_unanswered_calls_are_asked_for_but_no_failures(edited: Edit) -> None:
    run = read_foreign(edited(lambda data: messages(data).pop(4)))
    found = run.episodes[0]
    assert [call.answered for call in found.calls] == [True, False, True, True]
    assert found.episode.turns[1].observation.ok is False
    assert found.episode.errors == 2
    assert any("1 calls have no result" in text for text in run.warnings)


def test_limits_need_no_reward_and_other_ends_do(edited: Edit) -> None:
    def change(data: Data) -> None:
        data["simulations"][0].update(termination_reason="max_steps", reward_info=None)
        data["simulations"][2].update(termination_reason="user_stop", reward_info=None)

    run = read_foreign(edited(change))
    assert [(found.termination_reason, found.reward) for found in run.episodes] == [("max_steps", 0.0)]
    assert [gone.reason for gone in run.excluded] == ["infrastructure_error", "user_stop", "missing"]


def test_taken_trial_numbers_are_replaced(edited: Edit) -> None:
    def change(data: Data) -> None:
        data["simulations"][1].update(trial=0, reward_info={"reward": 1}, termination_reason="user_stop")

    run = read_foreign(edited(change))
    assert [(found.simulation, found.episode.trial) for found in run.episodes[:2]] == [
        ("s-00", 0),
        ("s-01", 1),
    ]


def test_full_duplex_recordings_give_their_calls(edited: Edit) -> None:
    def change(data: Data) -> None:
        simulation = data["simulations"][0]
        asks, answers = simulation["messages"][5], simulation["messages"][6]
        simulation["messages"] = None
        simulation["ticks"] = [
            {"tick_id": 0, "agent_chunk": {"role": "assistant", "content": "Let"}, "user_tool_calls": []},
            {"tick_id": 1, "agent_tool_calls": asks["tool_calls"], "agent_tool_results": []},
            {"tick_id": 2, "agent_tool_calls": [], "agent_tool_results": [answers]},
        ]

    run = read_foreign(edited(change))
    assert [call.failure for call in run.episodes[0].calls] == [FailureKind.policy]
    assert any("full-duplex" in text for text in run.warnings)


def test_disagreements_with_the_programs_rules_are_told(edited: Edit) -> None:
    def change(data: Data) -> None:
        data["info"]["max_errors"] = 2
        data["simulations"][2].update(termination_reason="too_many_errors")

    warnings = " ".join(read_foreign(edited(change)).warnings)
    assert "1 simulations ended by too_many_errors with fewer failing calls than 2" in warnings
    assert "1 simulations succeeded with 2 failing calls or more" in warnings


def test_v1_arguments_are_the_models_own_text(tmp_path: Path) -> None:
    data = json.loads(V1.read_text("utf-8"))
    calls = [message["tool_calls"][0] for message in data[0]["traj"] if message.get("tool_calls")]
    calls[0]["function"]["arguments"] = '{"b": 1.50, "a": "\\ud800"}'
    calls[1]["function"]["arguments"] = "not json"
    calls[2]["function"]["arguments"] = "[" * 50_000
    path = tmp_path / "m.json"
    path.write_text(json.dumps(data), "utf-8")
    turns = read_foreign(path).episodes[0].episode.turns
    written = [turn.call.arguments for turn in turns if turn.call]
    assert written[:2] == ['{"a":"\\ud800","b":1.50}', '"not json"']
    assert json.loads(written[2]) == "[" * 50_000


def test_v1_a_call_left_in_the_text_is_told_of(tmp_path: Path) -> None:
    data = json.loads(V1.read_text("utf-8"))
    data[3]["traj"][2]["content"] = 'Thought: look.\nAction:\n{"name": "get_order_details", "arguments": {}}'
    path = tmp_path / "m.json"
    path.write_text(json.dumps(data), "utf-8")
    assert any("hold a call as text" in text for text in read_foreign(path).warnings)


def test_hostile_values_are_carried_and_shown_harmlessly(edited: Edit) -> None:
    def change(data: Data) -> None:
        call = messages(data)[2]["tool_calls"][0]
        call["name"] = "\x1b[2J\u202e<script>"
        call["arguments"] = {"n": 10**400, "x": float("nan"), "deep": {"role": "user", "raw_data": {"k": 1}}}
        messages(data)[3]["content"] = "Error: \x1b[31m\ud800 no rule of ours"

    run = read_foreign(edited(change))
    turn = run.episodes[0].episode.turns[0]
    assert turn.call is not None
    assert turn.call.tool == "\x1b[2J\u202e<script>"
    assert json.loads(turn.call.arguments) == {
        "n": str(10**400),
        "x": None,
        "deep": {"role": "user", "raw_data": {"k": 1}},
    }
    assert run.episodes[0].calls[0].recognised is False
    assert all(text.isprintable() for text in run.warnings)
    bad = edited(lambda data: data["simulations"][0].update(termination_reason="\x1b[2J\u202e"))
    assert complaint(bad).replace("\n", "").isprintable()


# --- whatever is read, only that error ---------------------------------------------------------------

_BASES = [json.loads(path.read_text("utf-8")) for path in (RETAIL, V1)]
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.sampled_from(["", "user", "assistant", "tool", "user_stop", "Error: x", "a1", "\ud800", "0"]),
    st.text(max_size=5),
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["role", "content", "id", "tool_calls", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)


def _places(value: Data, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        found += _places(item, (*path, key))
    return found


_PLACES = [_places(base) for base in _BASES]


def _put(log: Data, place: tuple[str | int, ...], value: Data) -> None:
    """Change one place, unless an earlier change took it away."""
    try:
        for key in place[:-1]:
            log = log[key]
        log[place[-1]] = value
    except (KeyError, IndexError, TypeError):
        return


def _attempt(path: Path) -> ForeignRun | LogError:
    try:
        return read_foreign(path)
    except LogError as error:
        return error


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_value_gives_a_run_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(_BASES) - 1))
    log = copy.deepcopy(_BASES[which])
    for place in data.draw(st.lists(st.sampled_from(_PLACES[which]), min_size=1, max_size=3)):
        _put(log, place, data.draw(_values))
    path = tmp_path / "log.json"
    path.write_text(json.dumps(log), "utf-8")
    run = _attempt(path)
    if isinstance(run, LogError):
        assert run.where
        return
    for found in run.episodes:
        assert len(found.episode.turns) == found.asked(Requestor.agent)
        assert found.errors() == found.errors(Requestor.agent) + found.errors(Requestor.user)
        assert found.episode.errors == sum(found.failures(kind) for kind in FailureKind)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 3000), st.integers(0, 60))
def test_bytes_give_a_run_or_a_clear_error(tmp_path: Path, junk: bytes, at: int, cut: int) -> None:
    base = V1.read_bytes()
    path = tmp_path / "log.json"
    path.write_bytes(base[:at] + junk + base[at + cut :])
    read = _attempt(path)
    assert isinstance(read, ForeignRun) or read.where


@given(st.text(max_size=200))
def test_every_text_has_one_kind(text: str) -> None:
    assert classify(text).kind in FailureKind
