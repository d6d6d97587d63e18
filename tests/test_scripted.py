"""The engine without a model, and the floors that engines are counted against."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from engine_builders import Script, episodes, play

from qfr.engine.scripted import ScriptedEngine
from qfr.engine.tree import ROOT, Tally
from qfr.errors import EngineError
from qfr.records import StopReason


def test_tally_counts_nodes_once_and_shared_leading_tokens_once() -> None:
    tally = Tally()
    for path in ([(1, 2, 3), (7, 8)], [(1, 2, 3), (7, 9, 9)], [(1, 2, 4), (7, 8)], [(1, 2, 3), (7, 8)]):
        key = ROOT
        for tokens in path:
            key = tally.visit(key, tokens)
    counters = tally.counters()
    assert counters.fresh == 5 + 6 + 5 + 5
    assert counters.tree == 3 + 2 + 3 + 3 + 2
    # (1 2 4) shares two tokens with (1 2 3), (7 9 9) one with (7 8) below the same node.
    assert counters.trie == 3 + 2 + 2 + 1 + 2


def echo(_system: str, task: str, history: tuple[tuple[str, str], ...]) -> str:
    return f"{task} {len(history)} " + " ".join(observation for _, observation in history)


def test_scripted_turns_follow_the_policy_and_depend_on_the_transcript_alone() -> None:
    engine = ScriptedEngine(echo)
    scripts = episodes()
    bare = [
        Script(script.system, tuple(replace(step, forced=None, max_tokens=99) for step in script.steps))
        for script in scripts
    ]
    turns = [play(engine, script) for script in bare]
    assert turns[0][1].text.startswith("Task 0: find the total. 1 ")
    assert turns == [play(ScriptedEngine(echo), script) for script in bare]
    digests = [turn.logits_sha256 for turn in itertools.chain(*turns)]
    texts = {(index, turn.text) for script in turns for index, turn in enumerate(script)}
    assert len(set(digests)) >= len(texts)
    counters = engine.counters()
    assert counters.evaluated == counters.tree < counters.fresh


def test_scripted_turns_are_cut_by_limits() -> None:
    engine = ScriptedEngine(lambda *_: "one two three four", n_ctx=12)
    cut = engine.begin("s", "t", 2)
    assert (cut.text, cut.stop, len(cut.token_ids)) == ("one two", StopReason.max_tokens, 2)
    assert engine.begin("s", "t", 9, "x").text == "x"
    assert engine.reply("a b c d e f", 9).stop is StopReason.context
    assert engine.reply("a b c d e f g h i j k l", 9).token_ids == ()
    failing = ScriptedEngine(echo, fail_at=1)
    failing.begin("s", "t", 9)
    with pytest.raises(EngineError, match="told to fail"):
        failing.reply("o", 9)
