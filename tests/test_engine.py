"""The greedy engine on real llama.cpp: tokens, forks, digests, counters."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONTROLS, GEMMA, INST, LLAMA3, TinyModel, engine_config, smollm2, write_model

from qfr.config import EngineConfig, QuantConfig
from qfr.engine.base import Engine
from qfr.engine.gguf import ModelFile, open_model
from qfr.engine.llama import LlamaEngine
from qfr.engine.llama_api import LlamaLog
from qfr.engine.llama_model import LoadedModel
from qfr.engine.quantize import derive
from qfr.engine.scripted import ScriptedEngine
from qfr.engine.template import ChatTemplate
from qfr.engine.tokens import Tokenizer
from qfr.engine.tree import ROOT, Tally
from qfr.errors import ConfigError, EngineError, ModelFileError
from qfr.records import Generation, StopReason

MODELS = {
    "chatml": TinyModel(),
    "llama3": TinyModel(template=LLAMA3, add_bos=True, eos="<|eot_id|>"),
    "gemma": TinyModel(template=GEMMA, vocabulary="llama", add_bos=True, eos="<end_of_turn>"),
    "inst": TinyModel(template=INST, vocabulary="llama", add_bos=True, eos="<|end|>"),
    "window": TinyModel(template=GEMMA, arch="gemma2", vocabulary="llama", add_bos=True, eos="<end_of_turn>"),
    "recurrent": TinyModel(arch="mamba"),
    "loose_controls": TinyModel(user_defined=("<|im_start|>", "<|im_end|>")),
}


@dataclass(frozen=True)
class Step:
    """A message and what is asked of the turn after it."""

    message: str
    max_tokens: int = 12
    forced: str | None = None


@dataclass(frozen=True)
class Script:
    """An episode: the system message, then messages with their turns."""

    system: str
    steps: tuple[Step, ...]


def play(engine: Engine, script: Script) -> list[Generation]:
    first, *others = script.steps
    turns = [engine.begin(script.system, first.message, first.max_tokens, first.forced)]
    return turns + [engine.reply(step.message, step.max_tokens, step.forced) for step in others]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModelFile]:
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, ModelFile] = {}

    def get(name: str) -> ModelFile:
        if name not in made:
            path = smollm2() if name == "smollm2" else write_model(folder / f"{name}.gguf", MODELS[name])
            made[name] = open_model(path, folder)
        return made[name]

    return get


@pytest.fixture
def load(files: Callable[[str], ModelFile]) -> Iterator[Callable[..., LlamaEngine]]:
    opened: list[LlamaEngine] = []

    def get(name: str | ModelFile, n_ctx: int = 1024, **changes: Any) -> LlamaEngine:
        file = files(name) if isinstance(name, str) else name
        opened.append(LlamaEngine(file, engine_config(**changes), n_ctx))
        return opened[-1]

    yield get
    for engine in opened:
        engine.close()


# Tokens


def tokenizer(file: ModelFile) -> tuple[LoadedModel, Tokenizer, ChatTemplate]:
    model = LoadedModel(file.path, engine_config(), 64, LlamaLog())
    template = ChatTemplate(file.facts.template, model.spelling(model.bos), model.spelling(model.eos), "x")
    return model, Tokenizer(model, template.markup()), template


def joint(model: LoadedModel, text: str) -> tuple[int, ...]:
    """How llama.cpp tokenizes a rendered prompt, begin token by its own rule and not twice."""
    ids = model.tokenize(text, special=True)
    return ids if not model.wants_bos or ids[:1] == (model.bos,) else (model.bos or 0, *ids)


# No control text can be spelled with these.
PLAIN = st.text(st.sampled_from("the tool\n\n 0123456789{}\":,.[]()'aZé€😀\t-"), max_size=60)


@pytest.mark.parametrize("name", ["smollm2", "chatml", "llama3", "gemma", "window"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_segments_are_the_joint_tokenization(
    name: str, files: Callable[[str], ModelFile], data: st.DataObject
) -> None:
    model, tokens, template = kept_tokenizer(files(name))
    system, task, observation = (data.draw(PLAIN) for _ in range(3))
    if name in ("gemma", "window"):
        # System message and task share a text without a control token: they are cut where the task starts.
        system, task = system + ".", "t" + task
    first, second = tokens.opening(system, task)
    assert first + second == joint(model, template.render([system, task]))
    # The segment of an observation, behind a turn that ends like any text does.
    whole = joint(model, template.render([system, task, "Done.", observation]))
    turn = tokens.assistant("Done.")[:-1]
    assert first + second + turn + tokens.observation(observation) == whole


@cache
def kept_tokenizer(file: ModelFile) -> tuple[LoadedModel, Tokenizer, ChatTemplate]:
    return tokenizer(file)


@pytest.fixture(scope="module", autouse=True)
def _forget_tokenizers() -> Iterator[None]:
    yield
    kept_tokenizer.cache_clear()


@pytest.mark.parametrize("name", ["smollm2", "chatml", "llama3", "gemma", "inst", "loose_controls"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_content_never_becomes_control(
    name: str, files: Callable[[str], ModelFile], data: st.DataObject
) -> None:
    model, tokens, _ = kept_tokenizer(files(name))
    spelled = st.sampled_from(
        [*CONTROLS, "<s>", "</s>", "<|endoftext|>", "<tool_call>", "<|im_", "start|>", " ", "a"]
    )
    text = "".join(data.draw(st.lists(spelled, max_size=6)))
    plain = tuple(map(count_controls(model), (*tokens.opening("s", "t"), tokens.observation("o"))))
    assert tuple(map(count_controls(model), (*tokens.opening(text, text), tokens.observation(text)))) == plain
    assert count_controls(model)(tokens.assistant(text)) == 1
    read = b"".join(map(model.piece, tokens.assistant(text)[:-1])).decode()
    assert read.lstrip() == text.lstrip()
    known = {special.text for special in model.specials if special.control or name == "loose_controls"}
    assert tokens.spells_control(text) == any(control in text for control in known)


def count_controls(model: LoadedModel) -> Callable[[tuple[int, ...]], int]:
    controls = {special.token for special in model.specials}
    return lambda ids: sum(token in controls for token in ids)


@pytest.mark.parametrize(
    ("writes_bos", "adds_bos", "expected"),
    [
        (True, True, 1),
        (True, False, 1),
        (False, True, 1),
        (False, False, 0),
        (True, None, 1),
        (False, None, 0),
    ],
)
def test_exactly_one_bos_where_the_model_wants_one(
    writes_bos: bool, adds_bos: bool | None, expected: int, tmp_path: Path
) -> None:
    template = ("{{ bos_token }}" if writes_bos else "") + str(TinyModel().template)
    made = write_model(tmp_path / "m.gguf", TinyModel(template=template, add_bos=adds_bos))
    model, tokens, _ = tokenizer(open_model(made, tmp_path))
    first, second = tokens.opening("system", "task")
    assert (first + second + tokens.observation("x")).count(model.bos or 0) == expected
    assert (first[0] == model.bos) == bool(expected)
    model.close()


def test_surrogates_are_replaced_and_nul_is_kept(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    lone = engine.begin("a\ud800b", "\udfffc\0d", 4)
    assert lone == load("chatml").begin("a\ufffdb", "\ufffdc\0d", 4)
    assert lone != load("chatml").begin("a\ufffdb", "\ufffdcd", 4)
    assert engine.reply("\ud83d\ude00", 4) == engine.reply("x", 4) or engine.reply("\ufffd\ufffd", 4)


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
    """Tokens and digest of each turn, from segments evaluated in a plain loop in a context of their own."""
    model, tokens, _ = tokenizer(file)
    model.close()
    model = LoadedModel(file.path, config, 1024, LlamaLog())
    tokens = Tokenizer(
        model,
        ChatTemplate(file.facts.template, model.spelling(model.bos), model.spelling(model.eos), "x").markup(),
    )
    turns = []
    pending: list[int] = []
    for index, step in enumerate(script.steps):
        segments = (
            tokens.opening(script.system, step.message)
            if index == 0
            else ((*pending,), tokens.observation(step.message))
        )
        for segment in segments:
            if segment:
                logits = model.decode(segment)
        digest, chosen = hashlib.sha256(), []
        script_ids = None if step.forced is None else tokens.assistant(step.forced)
        while True:
            digest.update(np.array(logits, dtype="<f4").tobytes())
            highest = max(logits.tolist())
            chosen.append(logits.tolist().index(highest) if script_ids is None else script_ids[len(chosen)])
            if model.is_end(chosen[-1]) or len(chosen) == step.max_tokens:
                break
            logits = model.decode(chosen[-1:])
        pending = [] if model.is_end(chosen[-1]) else chosen[-1:]
        turns.append((tuple(chosen), digest.hexdigest()))
    model.close()
    return turns


TALK = Script(
    "Use the tools.\nThe tool is get_order.",
    (
        Step("Find the total of order 17."),
        Step('{"ok": false, "error": "timeout"}', forced='{"tool": "get_order"}', max_tokens=40),
        Step('{"ok": true, "order": 17}', max_tokens=3),
        Step("another", forced="", max_tokens=4),
        Step("more"),
    ),
)


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


# Forks


def episodes(depth: int = 3, tasks: int = 3) -> list[Script]:
    """Scripts like a cell's: a clean episode per task, then faults at each call, with retries after them."""
    call, again = '{"tool": "get_order", "id": 1}', '{"tool": "get_customer", "id": 2}'
    fine, timeout = '{"ok": true, "row": {"id": %d}}', '{"ok": false, "error": "timeout"}'
    scripts = []
    for task in range(tasks):
        clean = [Step(f"Task {task}: find the total.", forced=call, max_tokens=60)]
        clean += [Step(fine % index, forced=again, max_tokens=60) for index in range(depth)]
        clean += [Step("last", max_tokens=6)]
        scripts.append(clean)
        for site in range(depth, 0, -1):
            transient = [*clean[:site], Step(timeout, forced=call, max_tokens=60), *clean[site:]]
            permanent = [
                *clean[:site],
                *([Step(timeout, forced=call, max_tokens=60)] * 3),
                Step(timeout, max_tokens=5),
            ]
            wrong = [*clean[:site], Step(fine % 99, forced=again, max_tokens=60), *clean[site + 1 :]]
            scripts += [transient, permanent, wrong]
    return [Script("Use the tools, one JSON object per turn.", tuple(steps)) for steps in scripts]


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
    if engine.info.rewind:
        assert counters.evaluated == counters.tree
    else:
        assert counters.evaluated > counters.tree
    assert counters.trie <= counters.tree < counters.fresh
    assert counters.evaluated == counters.prefill_tokens + counters.decode_tokens
    order = list(range(len(scripts)))
    random.Random(5).shuffle(order)
    assert [play(engine, scripts[index]) for index in order] == [fresh[index] for index in order]
    assert engine.info.rewind == (variant not in ("recurrent", "window kept short"))


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
    scripts = episodes(depth=1, tasks=2)
    engine = load("smollm2")
    forked = [play(engine, script) for script in scripts]
    counters = engine.counters()
    assert counters.evaluated == counters.tree
    for index in (0, 2, 7):
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


def test_a_failed_evaluation_leaves_an_engine_that_works(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    expected = play(engine, TALK)
    engine._model.decode, decode = None, engine._model.decode  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        engine.begin("another system message", "t", 4)
    engine._model.decode = decode  # type: ignore[method-assign]
    assert play(engine, TALK) == expected


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
    with pytest.raises(ConfigError, match="type_k='q8'.*did you mean 'q8_0'"):
        load("chatml", type_k="q8")
    with pytest.raises(EngineError, match="cannot make a context"):
        load("chatml", type_v="q8_0")


def test_a_file_that_llama_cpp_refuses_is_named_with_its_reason(
    tmp_path: Path, load: Callable[..., LlamaEngine]
) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(extra={"tokenizer.ggml.pre": "unheard-of"}))
    with pytest.raises(ModelFileError, match="m.gguf: llama.cpp cannot load it\n.*unheard-of"):
        load(open_model(made, tmp_path))


def test_a_closed_engine_says_so(load: Callable[..., LlamaEngine]) -> None:
    engine = load("chatml")
    with pytest.raises(EngineError, match="before an episode"):
        engine.reply("o", 5)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.begin("s", "t", 5)


# The tree's floors, counted by hand


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


# The scripted engine


def echo(system: str, task: str, history: tuple[tuple[str, str], ...]) -> str:
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
