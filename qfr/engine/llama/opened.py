"""A GGUF in memory together with what turns messages into its tokens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from qfr.canonical import canonical
from qfr.config import EngineConfig
from qfr.engine.base import EngineInfo, Native
from qfr.engine.files import memory
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama import provenance
from qfr.engine.llama.api import LlamaLog, free_bytes, supports_offload
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.tokens import Tokenizer
from qfr.engine.llama.transcript import Layout
from qfr.engine.native.check import call_form
from qfr.engine.native.conversation import NativeLayout
from qfr.engine.native.form import CallForm
from qfr.errors import ModelFileError


@dataclass(frozen=True)
class Opened:
    """A loaded GGUF."""

    model: LoadedModel
    # Weights, vocabulary, cache.
    tokenizer: Tokenizer
    # Segments of its transcripts.
    native: NativeTokenizers
    # The same for conversations with the template's own tool calls.
    info: EngineInfo
    # Where it came from and what evaluates it.


class NativeTokenizers:
    """Segments of one model's native transcripts, by tools."""

    def __init__(self, model: LoadedModel, layout: Layout) -> None:
        self._model, self._layout = model, layout
        self._ends = tuple(special.text for special in model.specials if model.is_end(special.token))
        self._known: dict[Native, Tokenizer] = {}
        self.form: CallForm | None = None
        self.reason = ""
        try:
            self.form = call_form(layout.template, ends=self._ends)
        except ModelFileError as error:
            self.reason = error.what

    def of(self, native: Native) -> Tokenizer:
        """The tokenizer for a set of tools.

        Raises
        ------
        ModelFileError
            The template has no form of calls, or loses a part of such a conversation.
        """
        if self.form is None:
            raise ModelFileError(
                self.reason,
                where=self._layout.template.file,
                hint="executor=tolerant plays the text protocol, which needs no tools in the template",
            )
        if native not in self._known:
            layout = NativeLayout(self._layout, self.form, native, self._ends)
            self._known[native] = Tokenizer(self._model, layout)
        return self._known[native]


def open_file(
    file: ModelFile, config: EngineConfig, n_ctx: int, log: LlamaLog | None, outputs: int = 1
) -> Opened:
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
    model = LoadedModel(file.path, config, n_ctx, log or LlamaLog(), outputs)
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
    native = NativeTokenizers(model, layout)
    form = "" if native.form is None else canonical(asdict(native.form))
    info = replace(info, call_form=form, no_form=native.reason)
    return Opened(model, Tokenizer(model, layout), native, info)
