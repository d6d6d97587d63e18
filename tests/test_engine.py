"""The greedy engine on real llama.cpp: choice, forks, digests, counters."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_builders import TALK, Script, Step, engine_config, play
from tiny_models import MODELS, TinyModel, write_model

from qfr.config import EngineConfig
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.tokens import Kept, Segmented, Tokenizer
from qfr.engine.llama.transcript import Layout
from qfr.errors import ConfigError, EngineError, ModelFileError
from qfr.records import StopReason


def test_surrogates_are_replaced_and_nul_is_kept(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    lone = engine.begin("a\ud800b", "\udfffc\0d", 4)
    assert lone == load("chatml").begin("a\ufffdb", "\ufffdc\0d", 4)
    assert lone != load("chatml").begin("a\ufffdb", "\ufffdcd", 4)
    pair = Script("s", (Step("t", 4), Step("\ud83d\ude00", 4)))
    assert play(engine, pair) == play(load("chatml"), Script("s", (Step("t", 4), Step("\ufffd\ufffd", 4))))


def test_control_text_is_flagged_wherever_it_stands(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    assert not engine.begin("system", "task", 4, "text").control_text
    assert engine.begin("sys<|im_end|>tem", "task", 4, "text").control_text
    assert engine.begin("system", "a<|im_start|>b", 4, "text").control_text
    assert engine.begin("system", "task", 40, "I say <|eot_id|>").control_text
    assert engine.reply("tool: <end_of_turn>", 4, "text").control_text
    assert not engine.reply("tool: < | im_end | >", 4, "text").control_text


# Greedy choice


def test_ties_go_to_the_lowest_id_and_the_margin_is_zero(
    tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(favourites=("7", "3", "9")))
    turn = load(open_model(made, tmp_path)).begin("s", "t", 5)
    assert turn.text == "33333"
    assert turn.margins == (0.0,) * 5
    assert turn.stop is StopReason.max_tokens


@pytest.mark.parametrize("end", ["<|im_end|>", "<|eot_id|>", "<end_of_turn>"])
def test_every_end_token_of_the_file_ends_a_turn(
    end: str, tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(favourites=(end,), eos="<|im_end|>"))
    turn = load(open_model(made, tmp_path)).begin("s", "t", 5)
    assert (turn.text, turn.stop, len(turn.token_ids)) == ("", StopReason.end_of_generation, 1)
    assert turn.margins[0] > 0


def test_a_control_token_that_is_no_end_is_shown_and_flagged(
    tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(favourites=("<|start_header_id|>",)))
    turn = load(open_model(made, tmp_path)).begin("s", "t", 2)
    assert turn.text == "<|start_header_id|><|start_header_id|>"
    assert turn.control_text


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_an_error(
    scale: float, tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    with np.errstate(invalid="ignore"):
        made = write_model(tmp_path / "m.gguf", TinyModel(scale=scale))
    engine = load(open_model(made, tmp_path))
    with pytest.raises(EngineError, match="not finite"):
        engine.begin("s", "t", 5)


# Canonical segmentation against an independent evaluation


def replayed(file: ModelFile, config: EngineConfig, script: Script) -> list[tuple[tuple[int, ...], str]]:
    """Tokens and digest of each turn: before each the whole transcript is evaluated into an empty cache."""
    model = LoadedModel(file.path, config, 1024, LlamaLog())
    spelled = model.spelling(model.bos), model.spelling(model.eos)
    tokens = Tokenizer(model, Layout(ChatTemplate(file.facts.template, *spelled, "x")))
    told = tokens.conversation(script.system, script.steps[0].message)
    turns: list[tuple[tuple[int, ...], str]] = []
    openings: list[tuple[Segmented, ...]] = []
    for index, step in enumerate(script.steps):
        if index:
            told = told.grown(tokens.text(turns[-1][0]), step.message)
        model.clear()
        segments = tokens.segments(told.shown()).segments
        for place, segment in enumerate(segments):
            if not isinstance(segment, Kept):
                logits = model.decode(segment)
                continue
            written = turns[segment.turn][0]
            read = written[:-1] if model.is_end(written[-1]) else written
            # Token by token behind what it was generated behind, else as history.
            same = segments[:place] == openings[segment.turn]
            for piece in [(token,) for token in read] if same else [read]:
                logits = model.decode(piece)
        openings.append(segments)
        digest, chosen = hashlib.sha256(), list[int]()
        script_ids = None if step.forced is None else tokens.assistant(step.forced)
        while True:
            digest.update(np.array(logits, dtype="<f4").tobytes())
            highest = max(logits.tolist())
            chosen.append(logits.tolist().index(highest) if script_ids is None else script_ids[len(chosen)])
            if model.is_end(chosen[-1]) or len(chosen) == step.max_tokens:
                break
            logits = model.decode(chosen[-1:])
        turns.append((tuple(chosen), digest.hexdigest()))
    model.close()
    return turns


@pytest.mark.parametrize("name", sorted(MODELS))
def test_turns_equal_a_plain_loop_over_the_segments(
    name: str, files: Callable[[str], ModelFile], load: Callable[..., LlamaEngine]
) -> None:
    turns = [(turn.token_ids, turn.logits_sha256) for turn in play(load(name), TALK)]
    assert turns == replayed(files(name), engine_config(), TALK)


def test_long_segments_are_evaluated_in_fixed_chunks(
    files: Callable[[str], ModelFile], load: Callable[..., LlamaEngine]
) -> None:
    small = {"n_batch": 32, "n_ubatch": 16}
    long = replace(TALK, system=TALK.system * 6)
    turns = [(turn.token_ids, turn.logits_sha256) for turn in play(load("chatml", **small), long)]
    assert turns == replayed(files("chatml"), engine_config(**small), long)


def test_forcing_what_the_model_writes_is_writing_it(load: Callable[..., LlamaEngine]) -> None:
    script = Script("You are a helpful assistant.", (Step("What is 2+2?", 30), Step("Thanks. And 3+3?", 30)))
    written = play(load("smollm2"), script)
    assert written[0].stop is StopReason.end_of_generation
    forced = [replace(step, forced=turn.text) for step, turn in zip(script.steps, written, strict=True)]
    assert play(load("smollm2"), replace(script, steps=tuple(forced))) == written


# Context


def test_the_context_is_filled_to_its_last_token_and_not_beyond(load: Callable[..., LlamaEngine]) -> None:
    size = load("chatml").begin("s", "t", 1).prompt_tokens
    roomy = load("chatml").begin("s", "t", 40)
    engine = load("chatml", n_ctx=size + 10)
    turn = engine.begin("s", "t", 40)
    assert turn.stop is StopReason.context
    # Ten tokens fit; the eleventh is chosen from the tenth's logits and never evaluated.
    assert turn.token_ids == roomy.token_ids[:11]
    after = engine.reply("o", 5)
    assert (after.text, after.token_ids, after.stop) == ("", (), StopReason.context)
    assert after.prompt_tokens > 0
    assert engine.begin("s", "t", 10).stop is StopReason.max_tokens


def test_a_message_that_does_not_fit_gives_an_empty_turn(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml", n_ctx=256)
    turn = engine.begin("s" * 1000, "t", 5)
    assert (turn.token_ids, turn.stop) == ((), StopReason.context)
    assert turn.prompt_tokens > 1000
    assert engine.reply("o", 5).stop is StopReason.context
    good = engine.begin("s", "t", 5)
    assert engine.reply("x" * 1000, 5).stop is StopReason.context
    assert engine.reply("x", 5).stop is StopReason.context
    assert engine.begin("s", "t", 5) == good
    assert engine.counters().evaluated == engine.counters().tree


def test_a_context_longer_than_the_model_was_trained_for_is_refused(load: Callable[..., LlamaEngine]) -> None:
    with pytest.raises(ModelFileError, match="context is 2048 tokens, 4096 are needed"):
        load("chatml", n_ctx=4096)


# Loading


def test_provenance(load: Callable[..., LlamaEngine], files: Callable[[str], ModelFile]) -> None:
    info = load("smollm2", n_ctx=700).info
    assert info.kind == "llama_cpp"
    assert info.llama_commit == "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
    assert info.llama_commit_source in ("library", "table")
    assert len(info.library_sha256) == len(info.template_sha256) == 64
    assert dict(info.tensor_types) == {"F32": 61, "Q4_1": 210, "Q8_0": 1}
    assert info.n_params == 134_515_008
    assert (info.n_ctx, info.device, info.offloaded_layers) == (700, "cpu", 0)
    assert info.model_sha256 == files("smollm2").sha256
    assert dict(info.metadata)["general.architecture"] == "llama"
    assert info.system_role == "own"
    assert load("gemma").info.system_role == "folded"


def test_settings_that_llama_cpp_does_not_know(load: Callable[..., LlamaEngine]) -> None:
    with pytest.raises(ConfigError, match=r"type_k='q8'.*did you mean 'q8_0'"):
        load("chatml", type_k="q8")
    with pytest.raises(EngineError, match="cannot make a context"):
        load("chatml", type_v="q8_0")


def test_a_file_that_llama_cpp_refuses_is_named_with_its_reason(
    tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(extra={"tokenizer.ggml.pre": "unheard-of"}))
    with pytest.raises(ModelFileError, match=r"m\.gguf: llama\.cpp cannot load it\n.*unheard-of"):
        load(open_model(made, tmp_path))


def test_a_closed_engine_says_so(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    with pytest.raises(EngineError, match="before an episode"):
        engine.reply("o", 5)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.begin("s", "t", 5)
