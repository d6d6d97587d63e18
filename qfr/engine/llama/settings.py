"""The configuration of an engine as llama.cpp's parameters."""

from __future__ import annotations

import llama_cpp.llama_cpp as c
from gguf.constants import GGMLQuantizationType

from qfr.config import EngineConfig
from qfr.engine.llama.api import supports_offload
from qfr.errors import ConfigError, did_you_mean

_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_SPLIT_MODES = {
    "none": c.LLAMA_SPLIT_MODE_NONE,
    "layer": c.LLAMA_SPLIT_MODE_LAYER,
    "row": c.LLAMA_SPLIT_MODE_ROW,
}


def _cache_type(key: str, name: str) -> int:
    if name.lower() not in _CACHE_TYPES:
        raise ConfigError(
            f"engine.{key}={name!r} is no cache type" + did_you_mean(name, _CACHE_TYPES),
            hint="one of " + ", ".join(_CACHE_TYPES),
        )
    # llama-cpp-python names not all of ggml's types, `gguf` does.
    return int(GGMLQuantizationType[name.upper()])


def model_parameters(config: EngineConfig) -> c.llama_model_params:
    """How weights are loaded."""
    parameters: c.llama_model_params = c.llama_model_default_params()
    parameters.n_gpu_layers = config.n_gpu_layers if supports_offload() else 0
    parameters.split_mode = _SPLIT_MODES[config.split_mode]
    parameters.main_gpu = config.main_gpu
    return parameters


def context_parameters(config: EngineConfig, n_ctx: int, outputs: int = 1) -> c.llama_context_params:
    """A context of `n_ctx` tokens for each of `config.streams` sequences.

    Raises
    ------
    ConfigError
        Unknown type of cache.
    """
    parameters: c.llama_context_params = c.llama_context_default_params()
    parameters.n_ctx = n_ctx * config.streams
    parameters.n_batch, parameters.n_ubatch = config.n_batch, config.n_ubatch
    parameters.n_seq_max = config.streams
    # So many vectors of logits per sequence and decode are read; the default reserves one per token.
    parameters.n_outputs_max = config.streams * outputs
    parameters.n_threads, parameters.n_threads_batch = config.n_threads, config.n_threads_batch
    parameters.flash_attn_type = (
        c.LLAMA_FLASH_ATTN_TYPE_ENABLED if config.flash_attn else c.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    parameters.type_k = _cache_type("type_k", config.type_k)
    parameters.type_v = _cache_type("type_v", config.type_v)
    parameters.swa_full, parameters.kv_unified = config.swa_full, False
    parameters.no_perf = True
    return parameters
