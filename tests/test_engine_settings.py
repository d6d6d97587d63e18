"""Settings as llama.cpp's parameters: offload, split and device, with and without a build that has them."""

from __future__ import annotations

import llama_cpp.llama_cpp as c
import pytest
from engine_builders import engine_config

from qfr.engine.llama import settings as llama_settings
from qfr.engine.llama.settings import context_parameters, model_parameters
from qfr.errors import ConfigError


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        ("none", c.LLAMA_SPLIT_MODE_NONE),
        ("layer", c.LLAMA_SPLIT_MODE_LAYER),
        ("row", c.LLAMA_SPLIT_MODE_ROW),
    ],
)
def test_offload_split_and_device_reach_llama_cpp(
    monkeypatch: pytest.MonkeyPatch, mode: str, number: int
) -> None:
    monkeypatch.setattr(llama_settings, "supports_offload", lambda: True)
    made = model_parameters(engine_config(n_gpu_layers=17, main_gpu=1, split_mode=mode))
    assert (made.n_gpu_layers, made.main_gpu, made.split_mode) == (17, 1, number)
    assert model_parameters(engine_config(n_gpu_layers=-1)).n_gpu_layers == -1


def test_a_build_without_offload_is_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_settings, "supports_offload", lambda: False)
    assert model_parameters(engine_config(n_gpu_layers=17)).n_gpu_layers == 0


# ggml's own numbers of its types (enum ggml_type).
@pytest.mark.parametrize(("name", "number"), [("f16", 1), ("BF16", 30), ("q8_0", 8), ("iq4_nl", 20)])
def test_every_cache_type_has_ggmls_number(name: str, number: int) -> None:
    made = context_parameters(engine_config(type_k=name, type_v=name), 512)
    assert (made.type_k, made.type_v) == (number, number)


def test_each_stream_has_the_whole_context() -> None:
    made = context_parameters(engine_config(streams=4), 512)
    assert (made.n_ctx, made.n_seq_max, made.kv_unified) == (2048, 4, False)


def test_an_unknown_cache_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="q8_0"):
        context_parameters(engine_config(type_k="q8"), 512)
