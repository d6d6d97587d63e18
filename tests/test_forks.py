"""Forked, fresh and reordered episodes are bit-equal, and every node of the tree is evaluated once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_builders import TALK, Script, Step, episodes, play
from tiny_models import MODELS, TinyModel, write_model

from qfr.config import QuantConfig
from qfr.engine.files.quantize import derive
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.model import LoadedModel

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "window kept short": ("window", {"swa_full": False}),
    "flash attention": ("chatml", {"flash_attn": True}),
    "q8_0 cache": ("chatml", {"flash_attn": True, "type_k": "q8_0", "type_v": "q8_0"}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_forked_fresh_and_reordered_runs_are_bit_equal(
    variant: str, load: Callable[..., LlamaEngine]
) -> None:
    name, changes = VARIANTS[variant]
    scripts = episodes()
    fresh = []
    for script in scripts:
        engine = load(name, **changes)
        fresh.append(play(engine, script))
        engine.close()
    engine = load(name, **changes)
    assert [play(engine, script) for script in scripts] == fresh
    counters = engine.counters()
    if engine.info.rewind and name != "moves":
        assert counters.evaluated == counters.tree
    else:
        # Where the system text moves to the newest message, the cache has let go of it as a fork needs it.
        assert counters.evaluated > counters.tree
    assert (counters.rewritten > 0) == bool(engine.info.rewrites)
    assert counters.trie <= counters.tree < counters.fresh
    assert counters.evaluated == counters.prefill_tokens + counters.decode_tokens
    order = list(range(len(scripts)))
    random.Random(5).shuffle(order)
    assert [play(engine, scripts[index]) for index in order] == [fresh[index] for index in order]
    assert engine.info.rewind == (variant not in ("recurrent", "thinks_recurrent", "window kept short"))


@pytest.mark.parametrize("preset", ["Q8_0", "Q4_K_M", "Q3_K_M", "Q2_K", "IQ4_XS"])
def test_forks_are_bit_equal_for_every_preset(
    preset: str, tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    source = write_model(tmp_path / "wide.gguf", TinyModel(width=256))
    file = derive(source, QuantConfig(preset, None), tmp_path, allow_requantize=False)
    engine = load(file)
    scripts = episodes(depth=2, tasks=2)
    forked = [play(engine, script) for script in scripts]
    assert engine.counters().evaluated == engine.counters().tree
    for script, turns in zip(scripts, forked, strict=True):
        fresh = load(file)
        assert play(fresh, script) == turns
        fresh.close()


def test_forks_are_bit_equal_on_a_real_model(load: Callable[..., LlamaEngine]) -> None:
    scripts = episodes(depth=1, tasks=1)
    engine = load("smollm2")
    forked = [play(engine, script) for script in scripts]
    counters = engine.counters()
    assert counters.evaluated == counters.tree
    for index in range(1, len(scripts)):
        assert play(load("smollm2"), scripts[index]) == forked[index]
    assert play(engine, scripts[0]) == forked[0]


def test_repeating_an_episode_evaluates_nothing(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    first = play(engine, TALK)
    before = engine.counters()
    assert play(engine, TALK) == first
    after = engine.counters()
    assert (after.evaluated, after.generated, after.tree) == (before.evaluated, before.generated, before.tree)
    assert after.fresh == 2 * before.fresh


def test_another_token_limit_forks_at_the_turn(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    short, long = Script("s", (Step("t", 4), Step("o", 4))), Script("s", (Step("t", 9), Step("o", 4)))
    expected = play(load("chatml"), long)
    assert play(engine, short)[0].token_ids == expected[0].token_ids[:4]
    assert play(engine, long) == expected
    counters = engine.counters()
    assert counters.evaluated == counters.tree


def test_reset_counters_counts_only_what_follows(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    play(engine, Script("the same system message", (Step("first", 4),)))
    engine.reset_counters()
    assert engine.counters().evaluated == engine.counters().tree == engine.counters().fresh == 0
    play(engine, Script("the same system message", (Step("second", 4),)))
    counters = engine.counters()
    # The system message is still in the cache: it did not have to be evaluated.
    assert counters.evaluated == counters.tree < counters.fresh


def test_an_interrupted_turn_leaves_no_trace(
    load: Callable[..., LlamaEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load("chatml")
    expected = play(engine, TALK)
    decode = LoadedModel.decode
    calls = itertools.count()

    def interrupted(self: LoadedModel, tokens: tuple[int, ...]) -> Any:
        logits = decode(self, tokens)
        if next(calls) == 4:
            raise KeyboardInterrupt
        return logits

    with monkeypatch.context() as patch:
        patch.setattr(LoadedModel, "decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.begin("another system message", "t", 9)
    assert play(engine, TALK) == expected
