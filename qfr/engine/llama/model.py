"""A GGUF in memory with one sequence: tokens and logits, nothing of messages or episodes.

Decoding is greedy, so no sampler of llama.cpp is ever made and no seed is ever drawn.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as c
import numpy as np
from numpy.typing import NDArray

from qfr.config import EngineConfig
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.settings import context_parameters, model_parameters
from qfr.errors import EngineError, ModelFileError

# enum llama_vocab_type: SentencePiece, where words carry their leading blank and a text may get one in front.
_SENTENCEPIECE = 1


@dataclass(frozen=True)
class SpecialToken:
    """A token that is not plain text for the tokenizer."""

    token: int
    # Id.
    text: str
    # As a template spells it.
    control: bool
    # Steers the model (roles, ends of turns); False for user-defined and unknown tokens.
    strips_left: bool
    # Swallows the blanks before it.
    strips_right: bool
    # Swallows the blanks after it.


class LoadedModel:
    """Weights, vocabulary and the key-value cache of one sequence.

    Parameters
    ----------
    path : Path
        The GGUF (the first part of a split one).
    config : EngineConfig
        How tokens are evaluated.
    n_ctx : int
        Context length in tokens.
    log : LlamaLog
    outputs : int
        Vectors of logits that are read of one decode at most.

    Raises
    ------
    ModelFileError
        llama.cpp cannot load the file, or the file's own context is shorter than `n_ctx`.
    EngineError
        No memory for the context.
    """

    def __init__(self, path: Path, config: EngineConfig, n_ctx: int, log: LlamaLog, outputs: int = 1) -> None:
        self.path, self.n_ctx, self.log = path, n_ctx, log
        self._n_batch = config.n_batch
        log.install()
        c.llama_backend_init()
        of_context = context_parameters(config, n_ctx, outputs)
        model = c.llama_model_load_from_file(bytes(path), model_parameters(config))
        if not model:
            raise ModelFileError(f"llama.cpp cannot load it\n{log.errors()}", where=str(path))
        self._model = model
        self._context: c.llama_context_p | None = None
        try:
            self._check(n_ctx)
            context = c.llama_init_from_model(model, of_context)
            if not context:
                raise EngineError(
                    f"llama.cpp cannot make a context of {n_ctx} tokens\n{log.errors()}",
                    where=str(path),
                    hint="less memory is needed with a smaller engine.n_ctx or engine.n_ubatch",
                )
        except (ModelFileError, EngineError):
            c.llama_model_free(model)
            raise
        self._context = context
        memory: c.llama_memory_t | None = c.llama_get_memory(context)
        if memory is None:
            raise EngineError("the context has no memory to decode with", where=str(path))
        self.memory: c.llama_memory_t = memory
        # The key-value cache.
        vocab = c.llama_model_get_vocab(model)
        if vocab is None:
            raise ModelFileError("it has no vocabulary", where=str(path))
        self._vocab = vocab
        self.n_vocab = int(c.llama_vocab_n_tokens(vocab))
        self._vector = ctypes.c_float * self.n_vocab
        # What is asked for at each generated token, kept from the first time on.
        self._ends: dict[int, bool] = {}
        self._pieces: dict[int, bytes] = {}
        self.specials = self._find_specials()

    def _check(self, n_ctx: int) -> None:
        if c.llama_model_has_encoder(self._model) or not c.llama_model_has_decoder(self._model):
            raise ModelFileError("it is no decoder-only language model", where=str(self.path))
        trained = int(c.llama_model_n_ctx_train(self._model))
        if n_ctx > trained:
            raise ModelFileError(
                f"the model's context is {trained} tokens, {n_ctx} are needed",
                where=str(self.path),
                hint="fewer steps or tokens per turn, a shorter prompt, or engine.n_ctx set by hand",
            )

    def _find_specials(self) -> tuple[SpecialToken, ...]:
        wanted = c.LLAMA_TOKEN_ATTR_CONTROL | c.LLAMA_TOKEN_ATTR_USER_DEFINED | c.LLAMA_TOKEN_ATTR_UNKNOWN
        found = []
        for token in range(self.n_vocab):
            attributes = c.llama_vocab_get_attr(self._vocab, token)
            if attributes & wanted and (text := self.token_text(token)):
                found.append(
                    SpecialToken(
                        token,
                        text,
                        control=bool(attributes & c.LLAMA_TOKEN_ATTR_CONTROL),
                        strips_left=bool(attributes & c.LLAMA_TOKEN_ATTR_LSTRIP),
                        strips_right=bool(attributes & c.LLAMA_TOKEN_ATTR_RSTRIP),
                    )
                )
        return tuple(found)

    # Facts

    @property
    def sentencepiece(self) -> bool:
        """Whether the vocabulary is of the SentencePiece kind."""
        return bool(c.llama_vocab_type(self._vocab) == _SENTENCEPIECE)

    @property
    def bos(self) -> int | None:
        """Id of the beginning-of-sequence token."""
        return self._named("bos", int(c.llama_vocab_bos(self._vocab)))

    @property
    def wants_bos(self) -> bool:
        """Whether a text starts with the beginning-of-sequence token."""
        return bool(c.llama_vocab_get_add_bos(self._vocab))

    @property
    def eos(self) -> int | None:
        """Id of the end-of-sequence token, which templates know as `eos_token`."""
        return self._named("eos", int(c.llama_vocab_eos(self._vocab)))

    def _named(self, kind: str, token: int) -> int | None:
        """A token that the file names; llama.cpp has an id for each kind where the file names none.

        Such an id counts where it is a control token: in other vocabularies it is some text.
        """
        if token < 0:
            return None
        key = f"tokenizer.ggml.{kind}_token_id".encode()
        named = int(c.llama_model_meta_val_str(self._model, key, ctypes.create_string_buffer(32), 32)) >= 0
        control = c.llama_vocab_get_attr(self._vocab, token) & c.LLAMA_TOKEN_ATTR_CONTROL
        return token if named or control else None

    @property
    def eot(self) -> int | None:
        """Id of the end-of-turn token as llama.cpp found it, else of the end-of-sequence token."""
        token = int(c.llama_vocab_eot(self._vocab))
        return token if token >= 0 else self.eos

    @property
    def rewindable(self) -> bool:
        """Whether the cache keeps every token apart, so that some can be taken back: no recurrent state."""
        return not (c.llama_model_is_recurrent(self._model) or c.llama_model_is_hybrid(self._model))

    @property
    def window(self) -> int:
        """Width of the sliding attention window in tokens, 0 without one."""
        return int(c.llama_model_n_swa(self._model))

    def offloaded(self) -> int:
        """Layers on a GPU, as llama.cpp logged them."""
        found = self.log.search(r"offloaded (\d+)/\d+ layers to GPU")
        return int(found.group(1)) if found else 0

    # Tokens

    def is_end(self, token: int) -> bool:
        """Whether the token ends a generation (any of the file's end tokens)."""
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = bool(c.llama_vocab_is_eog(self._vocab, token))
        return known

    def token_text(self, token: int) -> str:
        """The token's entry in the vocabulary."""
        entry: bytes = c.llama_vocab_get_text(self._vocab, token)
        return entry.decode("utf-8", "replace")

    def spelling(self, token: int | None) -> str:
        """As templates spell the token, "" for none."""
        return "" if token is None else self.token_text(token)

    def piece(self, token: int) -> bytes:
        """The bytes that the token stands for; control tokens as they are spelled."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._piece(token)
        return known

    def _piece(self, token: int) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            written = int(c.llama_token_to_piece(self._vocab, token, buffer, size, 0, True))
            if written >= 0:
                return buffer.raw[:written]
            size = -written

    def tokenize(self, text: str, *, special: bool = False, opening: bool = False) -> tuple[int, ...]:
        """Token ids of a text.

        `special` lets spelled control tokens become ids, `opening` adds what the model wants in front of
        a text. Neither is used for contents.
        """
        data = text.encode("utf-8")
        size = len(data) + 16
        buffer = (c.llama_token * size)()
        count = int(c.llama_tokenize(self._vocab, data, len(data), buffer, size, opening, special))
        if count < 0:
            raise EngineError(f"a text of {len(data)} bytes cannot be tokenized", where=str(self.path))
        return tuple(buffer[:count])

    # Evaluation

    def length(self) -> int:
        """Tokens in the cache."""
        return int(c.llama_memory_seq_pos_max(self.memory, 0)) + 1

    def decode(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens in batches of `n_batch` from their start; logits after the last one.

        The array of shape (n_vocab,) is llama.cpp's own memory: valid until the next call.
        """
        context = self.require_open()
        for start in range(0, len(tokens), self._n_batch):
            chunk = tokens[start : start + self._n_batch]
            array = (c.llama_token * len(chunk))(*chunk)
            code = int(c.llama_decode(context, c.llama_batch_get_one(array, len(chunk))))
            self.require_decoded(code)
        return self.logits(-1)

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits of a row of the last batch, -1 for the last: llama.cpp's own memory."""
        pointer = c.llama_get_logits_ith(self.require_open(), row)
        vector = self._vector.from_address(ctypes.addressof(pointer.contents))
        return np.frombuffer(memoryview(vector), np.float32)

    def require_decoded(self, code: int) -> None:
        """Raise what the return code of a decode stands for, if it is an error."""
        if code != 0:
            reason = "no room left in the key-value cache" if code == 1 else "llama_decode failed"
            raise EngineError(f"{reason} (code {code})\n{self.log.errors()}", where=str(self.path))

    def rewind(self, length: int) -> bool:
        """Take back all tokens from position `length` on; False where the cache cannot do that."""
        return bool(c.llama_memory_seq_rm(self.memory, 0, length, -1))

    def clear(self) -> None:
        """Empty the cache."""
        c.llama_memory_clear(self.memory, True)

    def close(self) -> None:
        """Free context and weights. Safe to call twice."""
        if self._context is not None:
            c.llama_free(self._context)
            self._context = None
            c.llama_model_free(self._model)

    def require_open(self) -> c.llama_context_p:
        """The context.

        Raises
        ------
        EngineError
            The model has been closed.
        """
        if self._context is None:
            raise EngineError("the model has been closed", where=str(self.path))
        return self._context
