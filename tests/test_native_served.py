"""Native calls of served models: what is sent, what comes back, and servers that send odd calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from walks import RULES, small_world

from qfr.config import ExecutorKind
from qfr.engine.openai.client import Client
from qfr.engine.openai.engine import OpenAIEngine
from qfr.episode import Episodes
from qfr.journal import decode, encode
from qfr.records import Channel, Ending, Episode, FaultKind, ParseKind, StopReason
from tests.chat_server import Odd, Reply, completion, llama_server, odd_server
from tests.engine_builders import server_config

NATIVE = replace(RULES, executor=ExecutorKind.native)
WORLD = small_world(1)
Call = tuple[str | None, object, object]
# Id, name, arguments.


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QFR_TEST_KEY", "sk-test")


def calls(*made: Call, text: str | None = None, finish: str = "tool_calls", **usage: object) -> Reply:
    """An answer with calls, as servers write it."""
    sent = [
        ({} if one is None else {"id": one})
        | {"type": "function", "function": {"name": name, "arguments": arguments}}
        for one, name, arguments in made
    ]
    body = json.loads(completion(text, finish).body)
    body["choices"][0]["message"]["tool_calls"] = sent
    body["usage"] |= usage
    return Reply(body=json.dumps(body).encode())


def play(*replies: Reply) -> tuple[Episode, list[dict[str, Any]]]:
    """An episode against given answers, and the requests of its turns."""
    left = list(replies)

    def answer(request: dict[str, object]) -> Reply:
        messages = request["messages"]
        assert isinstance(messages, list)
        return completion("Hello", "length") if len(messages) == 1 else left.pop(0)

    with odd_server(Odd(answer)) as odd:
        settings = server_config(base_url=odd.url)
        engine = OpenAIEngine(settings, 1, Client(settings, pause=lambda _seconds: None))
        episode = Episodes(engine, WORLD, "Be good.", NATIVE).play("c", WORLD.tasks[0], FaultKind.none, None)
        engine.close()
    assert encode(decode(encode(episode).strip(), where="log")) == encode(episode)
    return episode, [one for one in odd.asked if "tools" in one]


GOLD = WORLD.tasks[0].gold_calls[0]
GOOD: Call = ("a", GOLD.tool, GOLD.arguments)
END: Call = ("z", "submit_answer", '{"answer": 1}')


def test_tools_are_sent_and_each_call_gets_its_result() -> None:
    episode, asked = play(calls(GOOD, ("b", "get_oder", "{}"), text="Let me see."), calls(END))
    assert asked[0]["tool_choice"] == "auto"
    assert {one["function"]["name"] for one in asked[0]["tools"]} == set(WORLD.tasks[0].tools)
    assistant, *results = asked[1]["messages"][2:]
    assert assistant["content"] == "Let me see."
    assert [one["id"] for one in assistant["tool_calls"]] == ["a", "b"]
    assert [(one["role"], one["tool_call_id"]) for one in results] == [("tool", "a"), ("tool", "b")]
    assert results[0]["content"] == episode.turns[0].observation.text
    assert [step.observation.channel for step in episode.turns[0].steps] == [None, Channel.tool_name]
    assert (episode.turns[0].parse, episode.turns[1].parse) == (ParseKind.tolerant, ParseKind.strict)
    assert (episode.ending, episode.answer, episode.schema) == (Ending.submitted, "1", 3)


@pytest.mark.parametrize("arguments", ['{"order_id": ', "not json", "", "[1]", '"text"', None])
def test_malformed_arguments_are_the_agents_error_and_every_call_is_answered(arguments: object) -> None:
    episode, asked = play(calls(GOOD, ("b", "get_order", arguments)), calls(END))
    assert not episode.turns[0].observation.ok
    assert episode.turns[0].observation.channel is Channel.form
    assistant, *results = asked[1]["messages"][2:]
    assert [one["tool_call_id"] for one in results] == ["a", "b"]
    # A server could not show it again.
    assert json.loads(assistant["tool_calls"][1]["function"]["arguments"]) == {}
    assert episode.ending is Ending.submitted


def test_calls_without_ids_get_some_and_arguments_may_be_an_object() -> None:
    episode, asked = play(calls((None, GOLD.tool, json.loads(GOLD.arguments))), calls(END))
    assert episode.turns[0].observation.ok
    assistant, result = asked[1]["messages"][2:]
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] != ""


def test_a_cut_answer_and_a_plain_message_and_odd_names() -> None:
    odd = calls(("b", "no such name", "{}"), ("c", None, "{}"))
    cut = calls(("b", "get_order", '{"order_id": "O'), finish="length")
    episode, asked = play(cut, odd, completion("I think it is 3."), completion("It is 3."))
    assert episode.turns[0].generation.stop is StopReason.max_tokens
    assert [turn.observation.channel for turn in episode.turns] == [Channel.form, Channel.form, None, None]
    assert asked[3]["messages"][-1]["role"] == "user"
    assert episode.ending is Ending.stopped_talking


def test_tokens_of_thought_are_those_that_the_server_tells() -> None:
    told = {"completion_tokens_details": {"reasoning_tokens": 2}}
    episode, _ = play(calls(END, **told))
    assert episode.turns[0].generation.thought_tokens == 2


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(tmp_path_factory.mktemp("server")) as url:
        yield url


def test_a_real_server_takes_tools(address: str) -> None:
    """Its template shows none, so the agent writes plain text, is reminded, and has stopped talking."""
    engine = OpenAIEngine(server_config(base_url=address), 1)
    rules = replace(NATIVE, max_tokens=12)
    episode = Episodes(engine, WORLD, "Be good.", rules).play("c", WORLD.tasks[0], FaultKind.none, None)
    assert (episode.ending, len(episode.turns)) == (Ending.stopped_talking, 2)
    assert all(turn.generation.text for turn in episode.turns)
