"""Served models: a real server on loopback, servers that misbehave, and what records say of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qfr.cell import Track, key_of, walk, walk_at_once
from qfr.config import CellConfig, EngineKind, ExecutorKind, Gate, ServerConfig
from qfr.engine.openai.client import Client
from qfr.engine.openai.engine import OpenAIEngine
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules
from qfr.errors import ConfigError, EngineError
from qfr.front.main import main
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world
from qfr.grid.design import design_of
from qfr.journal import decode, encode
from qfr.play import job
from qfr.play.cell_group import _timing
from qfr.play.repeats import UNKNOWN, repeat_of
from qfr.records import Ending, Episode, FaultKind, StopReason
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store
from qfr.world import orders
from qfr.world.demonstrate import Habits, next_turn
from tests.chat_server import Odd, Reply, completion, llama_server, odd_server
from tests.engine_builders import server_config

KEY = "sk-very-secret-0123456789"
RULES = Rules(ExecutorKind.tolerant, 12, 10, 160, "service_unavailable", "No answer.", 0)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QFR_TEST_KEY", KEY)


def settings(odd: Odd, **changes: Any) -> ServerConfig:
    return server_config(base_url=odd.url, **changes)


def engine(odd: Odd, **changes: Any) -> OpenAIEngine:
    """An engine whose pauses between tries take no time."""
    wanted = settings(odd, **changes)
    return OpenAIEngine(wanted, 1, Client(wanted, pause=lambda seconds: None))


def scripted(request: dict[str, Any]) -> Reply:
    """Answer as the scripted agent does."""
    messages = request["messages"]
    if len(messages) == 1:
        return completion("Hello", "length")
    texts = [one["content"] for one in messages[2:]]
    transcript = tuple(zip(texts[::2], texts[1::2], strict=True))
    return completion(next_turn(messages[1]["content"], transcript, Habits(attempts=3)))


class Then:
    """The given replies to the first real requests, then well-formed ones."""

    def __init__(self, *first: Reply) -> None:
        self.first = list(first)

    def __call__(self, request: dict[str, Any]) -> Reply:
        if len(request["messages"]) == 1 or not self.first:
            return completion("fine")
        return self.first.pop(0)


# --- a real server -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("server")) as url:
        yield url


def test_a_grid_on_a_real_server(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference agent behind llama-cpp-python's server does what it does in process, and says so."""
    monkeypatch.chdir(tmp_path)
    common = ["suite=orders6", "suite.grid=round", "prompt=P0", "fault=et", "report.transcripts=0"]
    served = ["engine=openai", "model=local", "model.name=ref", "quant=f16", "engine.server.concurrency=2"]
    served += [f"engine.server.base_url={address}", "engine.server.api_key_env=QFR_TEST_KEY"]
    assert main([*served, *common, "tracking.root=a"]) == 0
    assert main(["model=ref_llama", "quant=f16", *common, "tracking.root=b"]) == 0
    job._SHELF.clear()
    stores = [open_store(None, tmp_path / name, "qfr") for name in "ab"]
    cells = [{one.facts.fault: one for one in read_cells(store).cells} for store in stores]
    texts: list[list[list[str]]] = []
    for store, by_fault in zip(stores, cells, strict=True):
        logs = [read_episodes(store, by_fault[fault]) for fault in ("none", "et")]
        texts.append([[turn.generation.text for turn in one.turns] for log in logs for one in log])
    # Another way of batching may turn a near-tie; most episodes are the same, or another model answered.
    same = sum(one == other for one, other in zip(*texts, strict=True)) / len(texts[0])
    assert same > 0.8
    facts = cells[0]["et"].facts
    told = json.loads(facts.server)
    assert (told["address"], told["model"], told["sampling"]["temperature"]) == (address, "ref", 0)
    assert told["template"].startswith("the server's own")
    assert facts.repeat.startswith("2 repetitions of the first episode agreed")
    assert (facts.engine, facts.model_source, facts.device, facts.rewind) == (
        *("openai", "server", "server"),
        False,
    )
    metrics = cells[0]["et"].metrics
    assert metrics["work.tokens_generated"] > 0
    assert not {
        "work.tokens_evaluated",
        "work.tokens_tree",
        "episode.min_margin",
        "episode.tokens_out",
    } & set(metrics)
    assert cells[0]["et"].episodes["min_margin"].isna().all()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_a_context_that_is_full_ends_the_episode_and_not_the_cell(address: str) -> None:
    player = OpenAIEngine(server_config(base_url=address), 1)
    found = player.begin("Use the tools. " * 3000, "Find the total.", 10)
    assert (found.text, found.stop) == ("", StopReason.context)
    player.close()


# --- servers that misbehave ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(503, b"{}"),
        Reply(429, b"{}", {"Retry-After": "1"}),
        replace(completion("never"), cut=20),
        replace(completion("never"), cut=0),
        replace(completion("late"), slow=1.0),
    ],
    ids=["overloaded", "too many", "cut in the middle", "cut at once", "slow"],
)
def test_a_failed_transport_is_tried_again(trouble: Reply) -> None:
    with odd_server(Odd(Then(trouble, trouble))) as odd:
        player = engine(odd, retries=2, timeout_s=0.3)
        assert player.begin("s", "t", 5).text == "fine"
        # The greeting, two failures, the answer.
        assert len(odd.asked) == 4
        player.close()


def test_tries_are_counted_and_pauses_grow() -> None:
    pauses: list[float] = []
    trouble = Reply(503, b"{}", {"Retry-After": "7"})
    with odd_server(Odd(Then(*[trouble] * 9))) as odd:
        wanted = settings(odd, retries=3)
        player = OpenAIEngine(wanted, 1, Client(wanted, pause=pauses.append))
        with pytest.raises(EngineError, match=r"did not answer: HTTP 503 \(4 tries\)"):
            player.begin("s", "t", 5)
        assert pauses == [7.0, 7.0, 7.0]
        assert len(odd.asked) == 1 + 4
        player.close()
    pauses.clear()
    wanted = server_config(base_url=odd.url, retries=4)
    with pytest.raises(EngineError, match="did not answer"):
        OpenAIEngine(wanted, 1, Client(wanted, pause=pauses.append))
    assert pauses == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(500, b'{"error": {"message": "it broke"}}'), "refused with HTTP 500: .*it broke"),
        (Reply(400, b'{"error": {"message": "no such field"}}'), "HTTP 400: .*no such field"),
        (Reply(401, f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode()), r"bad key \*\*\*"),
        (Reply(404, b"<html>not here</html>"), "HTTP 404"),
        (Reply(body=b'{"choices": [{"message": '), "cannot be read"),
        (Reply(body=b"<html>welcome</html>"), "cannot be read"),
        (Reply(body=b"[]"), "cannot be read"),
        (Reply(body=b'{"choices": []}'), "no choices"),
        (Reply(body=b'{"choices": [{"index": 0}]}'), "holds no text"),
        (Reply(body=b'{"choices": [{"message": {"content": 17}}]}'), "holds no text"),
        (Reply(body=b"\xff\xfe\x00"), "cannot be read"),
        (Reply(body=b""), "cannot be read"),
    ],
    ids=str,
)
def test_an_answer_that_is_none_is_a_machinery_failure_and_not_tried_again(reply: Reply, told: str) -> None:
    with odd_server(Odd(Then(reply))) as odd:
        player = engine(odd, retries=3)
        with pytest.raises(EngineError, match=told) as caught:
            player.begin("s", "t", 5)
        assert len(odd.asked) == 2
        assert KEY not in str(caught.value)
        assert odd.keys == [f"Bearer {KEY}"] * 2
        player.close()


def test_what_is_asked_is_greedy_and_holds_the_further_fields() -> None:
    with odd_server(Odd(Then())) as odd:
        player = engine(odd, request='{"top_k": 1}', limit_key="max_completion_tokens")
        player.begin("sys", "task", 5)
        player.reply("seen", 6)
        player.close()
    asked = odd.asked[-1]
    told = ["sys", "task", "fine", "seen"]
    roles = ["system", "user", "assistant", "user"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, told, strict=True)]
    assert asked["messages"] == messages
    assert (asked["temperature"], asked["top_p"], asked["seed"], asked["top_k"]) == (0.0, 1.0, 1, 1)
    assert asked["max_completion_tokens"] == 6
    assert "max_tokens" not in asked
    assert "stream" not in asked


def test_a_turn_without_tokens_says_so() -> None:
    with odd_server(Odd(Then(completion("abc", "length"), completion(None)))) as odd:
        player = engine(odd)
        first, second = player.begin("s", "t", 3), player.reply("o", 3)
        assert (first.text, first.stop) == ("abc", StopReason.max_tokens)
        assert (first.token_ids, first.margins, first.logits_sha256, first.prompt_tokens) == ((), (), "", 0)
        assert (second.text, second.stop) == ("", StopReason.end_of_generation)
        assert player.counters().generated == 6
        with pytest.raises(EngineError, match="cannot be made to write"):
            player.reply("o", 3, forced="x")
        player.close()


def test_the_server_names_itself() -> None:
    entry: dict[str, object] = {"id": "m", "created": 1, "meta": {"n_params": 8, "path": "/home/x/m.gguf"}}
    props: dict[str, object] = {
        "build_info": "b6000-abc",
        "chat_template": "{{ x }}",
        "default_generation_settings": {"n_ctx": 2048},
    }
    pages = {"/props": props, "/version": {"version": "0.9"}}
    with odd_server(Odd(Then(), models=(entry,), pages=pages)) as odd:
        first = engine(odd).info
        entry["created"] = 2
        assert engine(odd).info == first
        props["build_info"] = "b6001-abc"
        assert engine(odd).info.library_sha256 != first.library_sha256
        entry["meta"] = {"n_params": 9}
        assert engine(odd).info.model_sha256 != first.model_sha256
    told = json.loads(first.system_info)
    assert told["build"] == {"llama-server": "b6000-abc", "version": "0.9"}
    assert told["entry"]["meta"] == {"n_params": 8, "path": "m.gguf"}
    assert (first.n_ctx, told["template"]) == (2048, "the server's own")


@pytest.mark.parametrize(
    ("models", "model", "told"),
    [
        (("a", "b"), None, r"serves 2 models \(a, b\)"),
        (("alpha", "b"), "alpa", "did you mean 'alpha'"),
        ((), None, "serves 0 models"),
    ],
)
def test_which_model_is_meant(models: tuple[str, ...], model: str | None, told: str) -> None:
    with (
        odd_server(Odd(Then(), models=tuple({"id": one} for one in models))) as odd,
        pytest.raises(EngineError, match=told),
    ):
        engine(odd, model=model)


# --- repeating, and several conversations at a time -----------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_repeated_episode_agrees_or_the_record_says_no(concurrency: int) -> None:
    world = orders.build({"base": 2}, 1, "round")
    with odd_server(Odd(scripted)) as odd:
        player = engine(odd, concurrency=concurrency)
        assert re.match(r"\d repetitions .* agreed", repeat_of(player, concurrency, world, "p", RULES))
        answers = iter(range(10_000))

        def another_each_time(request: dict[str, Any]) -> Reply:
            return completion(f"I have no idea {next(answers)}")

        odd.answer = another_each_time
        found = repeat_of(player, concurrency, world, "p", RULES)
        assert found.startswith(f"{UNKNOWN}: turn 0")
        player.close()


def episodes_of(players: list[Episodes], at_once: bool) -> dict[tuple[str, str, int], Episode]:
    played: dict[tuple[str, str, int], Episode] = {}

    def record(track: Track, episode: Episode, seconds: float) -> None:
        played[(track.kind, *key_of(episode))] = episode

    clean = Track("c", FaultKind.none, Gate.certified, {})
    faults = tuple(Track(kind, kind, Gate.certified, {}) for kind in (FaultKind.et, FaultKind.ep))
    if at_once:
        walk_at_once(players, clean, faults, record)
    else:
        walk(players[0], clean, faults, record)
    return played


def test_several_conversations_at_once_play_the_same_episodes() -> None:
    world = orders.build({"base": 3, "shipping": 3}, 1, "round")
    with odd_server(Odd(scripted)) as odd:
        one = engine(odd)
        several = [Episodes(one.another(), world, "p", RULES) for _ in range(4)]
        at_once = episodes_of(several, at_once=True)
        assert at_once == episodes_of([Episodes(one, world, "p", RULES)], at_once=False)
        assert len({episode.ending for episode in at_once.values()}) > 1
        one.close()


def test_the_first_error_ends_all_conversations() -> None:
    world = orders.build({"base": 6}, 1, "round")

    def policy(system: str, task: str, turns: tuple[tuple[str, str], ...]) -> str:
        return next_turn(task, turns, Habits(attempts=3))

    players = [
        Episodes(ScriptedEngine(policy, fail_at=7 if n == 1 else None), world, "p", RULES) for n in range(2)
    ]
    with pytest.raises(EngineError, match="told to fail at turn 7"):
        episodes_of(players, at_once=True)


def test_a_full_context_is_an_ending() -> None:
    full = Reply(400, b'{"error": {"code": "context_length_exceeded", "message": "too long"}}')
    world = orders.build({"base": 1}, 1, "round")
    with odd_server(Odd(Then(completion("{}"), full))) as odd:
        player = engine(odd)
        episode = Episodes(player, world, "p", RULES).play("c", world.tasks[0], FaultKind.none, None)
        assert (episode.ending, len(episode.turns)) == (Ending.out_of_context, 1)
        player.close()


# --- configuration and identity -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"base_url": "http://me:hunter22@host/v1"}, "holds a user name"),
        ({"base_url": "http://host/v1?key=hunter22"}, "holds a user name, a password or a query"),
        ({"base_url": "ftp://host/v1"}, "not an http"),
        ({"base_url": "http://host:hunter22/v1"}, "not an address"),
        ({"api_key_env": "sk-hunter22"}, "not the name of an environment variable"),
        ({"request": '{"temperature": 1}'}, "names 'temperature'"),
        ({"request": '{"stream": true}'}, "names 'stream'"),
        ({"request": "[1]"}, "not a JSON object"),
        ({"request": "{'a': 1}"}, "not JSON"),
        ({"request": '{"a": NaN}'}, "not JSON"),
        ({"limit_key": "tokens"}, "limit_key"),
        ({"concurrency": 0}, "too small"),
        ({"timeout_s": 0.0}, "seconds above 0"),
    ],
)
def test_settings_are_checked_and_secrets_not_repeated(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        server_config(**changes)
    assert "hunter22" not in str(caught.value)


def served(**changes: Any) -> CellConfig:
    cell = compose_cell("engine=openai", "model=local", "quant=fp8", "prompt=P0")
    assert cell.engine.kind is EngineKind.openai
    return replace(cell, engine=replace(cell.engine, server=replace(cell.engine.server, **changes)))


def test_a_server_is_known_by_its_address_or_by_the_name_that_it_is_given() -> None:
    def design(**changes: Any) -> str:
        return design_of(served(**changes)).design_id

    here, there = "http://a:8000/v1", "http://b:8000/v1"
    assert design(base_url=here) == design(base_url=here, concurrency=4, retries=1, timeout_s=1.0)
    assert design(base_url=here) != design(base_url=there)
    assert design(base_url=here, name="box") == design(base_url=there, name="box")
    assert design(base_url=here, model="a") != design(base_url=here, model="b")
    assert design(base_url=here, request='{"top_k": 1}') != design(base_url=here)


def test_how_this_process_would_evaluate_is_no_part_of_a_served_cell() -> None:
    cell = served(base_url="http://a/v1")
    other = replace(cell, engine=replace(cell.engine, n_threads=7, n_batch=64, n_ubatch=64))
    assert design_of(cell).design_id == design_of(other).design_id


# --- what comes in other fields than the text --------------------------------------------------------------

CALLS = [
    {"id": "c", "type": "function", "function": {"name": "get_order", "arguments": '{"order_id":"O-1"}'}}
]


def beside(finish: str = "stop", text: str | None = None, **fields: object) -> Reply:
    """An answer with further fields in its message."""
    reply = json.loads(completion(text, finish).body)
    reply["choices"][0]["message"] |= fields
    return Reply(body=json.dumps(reply).encode())


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (beside("length", "", reasoning="I think"), r"reasoning holds: I think(?s:.*)enable_thinking"),
        (beside("length", None, reasoning_content="I think"), "reasoning_content holds: I think"),
        (beside("stop", " \n", thinking="I think"), "thinking holds: I think"),
        (
            beside("tool_calls", None, tool_calls=CALLS),
            r"tool_calls holds(?s:.*)get_order(?s:.*)parser of tool",
        ),
        (beside("stop", None, function_call=CALLS[0]["function"]), "function_call holds"),
        (beside("content_filter", None, refusal="I cannot"), r"refusal holds: I cannot(?s:.*)its own log"),
        (beside("content_filter", None), "finish_reason holds: content_filter"),
    ],
)
def test_a_model_whose_text_comes_elsewhere_is_not_scored(reply: Reply, told: str) -> None:
    with odd_server(Odd(lambda request: completion("hi") if len(request["messages"]) == 1 else reply)) as odd:
        player = engine(odd, model="m")
        cell = compose_cell("model=scripted", "quant=q8_0", "suite=orders6")
        with pytest.raises(EngineError, match=told):
            repeat_of(player, 1, build_world(cell.suite), "Use the tools.", RULES)
        player.close()


def test_what_came_beside_a_text_is_kept_with_the_episode_and_not_in_its_line() -> None:
    def answer(request: dict[str, Any]) -> Reply:
        body = json.loads(scripted(request).body)
        body["choices"][0]["message"] |= {"reasoning_content": "hm", "refusal": None}
        return Reply(body=json.dumps(body).encode())

    cell = compose_cell("model=scripted", "quant=q8_0", "suite=orders6")
    world = build_world(cell.suite)
    with odd_server(Odd(answer)) as odd:
        player = engine(odd)
        episode = Episodes(player, world, "p", RULES).play("", world.tasks[0], FaultKind.none, None)
        player.close()
    line = _timing(episode, 1.0)
    assert json.loads(str(line["beside"])) == [
        {"reasoning_content": "hm", "turn": index} for index in range(len(episode.turns))
    ]
    assert b"beside" not in encode(episode)
    assert b"hm" not in encode(episode)
    read_back = decode(encode(episode), where="x")
    assert "beside" not in _timing(read_back, 1.0)
    assert encode(read_back) == encode(episode)


def test_halves_of_characters_do_not_come_back_in_the_next_request() -> None:
    """A server may send them escaped; no UTF-8 can carry them back."""
    odd_text = 'x\ud83cy\x00z {"tool": "get_order", "arguments": {"order_id": "\\ud83c"}}'
    seen: list[str] = []

    def answer(request: dict[str, Any]) -> Reply:
        seen.extend(message["content"] for message in request["messages"])
        return completion(odd_text)

    with odd_server(Odd(answer)) as odd:
        player = engine(odd, model="m")
        first = player.begin("s\udfff", "t", 10)
        second = player.reply("No record for '\ud83c'.", 10)
        player.close()
    assert first.text == second.text == odd_text.replace("\ud83c", "\ufffd")
    assert seen[-4:] == ["s\ufffd", "t", first.text, "No record for '\ufffd'."]
