"""A GGUF in memory together with what turns messages into its tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass

from qfr.config import EngineConfig
from qfr.engine.base import EngineInfo
from qfr.engine.files import memory
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama import provenance
from qfr.engine.llama.api import LlamaLog, free_bytes, supports_offload
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.tokens import Tokenizer
from qfr.engine.llama.transcript import Layout
from qfr.errors import ModelFileError


@dataclass(frozen=True)
class Opened:
    """A loaded GGUF."""

    model: LoadedModel
    # Weights, vocabulary, cache.
    tokenizer: Tokenizer
    # Segments of its transcripts.
    info: EngineInfo
    # Where it came from and what evaluates it.


def open_file(file: ModelFile, config: EngineConfig, n_ctx: int, log: LlamaLog | None) -> Opened:
    """Load a GGUF and its chat template.

    Raises
    ------
    ModelFileError
        llama.cpp cannot load the file, its context is too short, or its chat template does not serve.
    EngineError
        The model does not fit into this machine, or there is no memory for the context.
    """
    needed = memory.need(file.path, config, n_ctx, offload=supports_offload())
    room = memory.room_here(free_bytes(), config)
    if needed is not None and room is not None:
        memory.require_room(file.path, needed, room)
    model = LoadedModel(file.path, config, n_ctx, log or LlamaLog())
    try:
        spell = model.spelling
        options = json.loads(file.facts.template_options)
        template = ChatTemplate(
            file.facts.template, spell(model.bos), spell(model.eos), str(file.path), options
        )
        layout = Layout(template)
        if model.eot is None:
            raise ModelFileError("it has no token that ends a turn", where=str(file.path))
    except ModelFileError:
        model.close()
        raise
    rewind = model.rewindable and (model.window == 0 or config.swa_full)
    info = provenance.engine_info(model, file, layout, rewind=rewind)
    return Opened(model, Tokenizer(model, layout), info)
