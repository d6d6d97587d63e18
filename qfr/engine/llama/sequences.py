"""Several sequences side by side in one loaded model: a transcript each, in a stream of the cache each."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp.llama_cpp as c

from qfr.engine.llama.greedy import Logits
from qfr.engine.llama.model import LoadedModel
from qfr.errors import EngineError


@dataclass(frozen=True)
class Row:
    """One token of a joint step."""

    sequence: int
    # Number of the sequence.
    token: int
    position: int
    # Tokens before it in the sequence.


@dataclass(frozen=True)
class Saved:
    """What a sequence held of the cache, copied out of it."""

    data: ctypes.Array[ctypes.c_uint8]


class Sequences:
    """The sequences of a loaded model.

    Parameters
    ----------
    model : LoadedModel
        Loaded with as many streams as there are sequences.
    n_batch : int
        Tokens of one batch at most.
    """

    def __init__(self, model: LoadedModel, n_batch: int) -> None:
        self._model, self._n_batch = model, n_batch
        # The buffers of a batch, filled anew for each.
        self._tokens = (c.llama_token * n_batch)()
        self._positions = (ctypes.c_int32 * n_batch)()
        self._counts = (ctypes.c_int32 * n_batch)(*[1] * n_batch)
        self._ids = (ctypes.c_int32 * n_batch)()
        places = [
            ctypes.addressof(self._ids) + index * ctypes.sizeof(ctypes.c_int32) for index in range(n_batch)
        ]
        number = ctypes.POINTER(ctypes.c_int32)
        self._pointers = (number * n_batch)(*[ctypes.cast(place, number) for place in places])
        self._outputs = (ctypes.c_int8 * n_batch)()

    def segment(self, sequence: int, tokens: Sequence[int], position: int) -> Logits:
        """Append tokens to one sequence, alone, in batches of `n_batch`; logits after the last one.

        The array of shape (n_vocab,) is llama.cpp's own memory: valid until the next call.
        """
        for start in range(0, len(tokens), self._n_batch):
            chunk = tokens[start : start + self._n_batch]
            rows = [Row(sequence, token, position + start + index) for index, token in enumerate(chunk)]
            self._decode(rows, first_output=len(rows) - 1)
        return self._model.logits(-1)

    def step(self, rows: Sequence[Row]) -> tuple[Logits, ...]:
        """Append one token each to several sequences in one batch; their logits, in the order of the rows.

        The arrays of shape (n_vocab,) are llama.cpp's own memory: valid until the next call.
        """
        self._decode(rows, first_output=0)
        return tuple(self._model.logits(index) for index in range(len(rows)))

    def _decode(self, rows: Sequence[Row], first_output: int) -> None:
        count = len(rows)
        self._tokens[:count] = [row.token for row in rows]
        self._positions[:count] = [row.position for row in rows]
        self._ids[:count] = [row.sequence for row in rows]
        self._outputs[:count] = [int(index >= first_output) for index in range(count)]
        batch = c.llama_batch(
            count, self._tokens, None, self._positions, self._counts, self._pointers, self._outputs
        )
        self._model.require_decoded(int(c.llama_decode(self._model.require_open(), batch)))

    def rewind(self, sequence: int, length: int) -> bool:
        """Take back a sequence's tokens from position `length` on; False where the cache cannot do that."""
        return bool(c.llama_memory_seq_rm(self._model.memory, sequence, length, -1))

    def save(self, sequence: int) -> Saved:
        """Copy what a sequence holds of the cache."""
        context = self._model.require_open()
        size = int(c.llama_state_seq_get_size(context, sequence))
        data = (ctypes.c_uint8 * size)()
        if int(c.llama_state_seq_get_data(context, data, size, sequence)) != size:
            raise EngineError("llama.cpp did not copy a sequence's cache", where=str(self._model.path))
        return Saved(data)

    def restore(self, sequence: int, saved: Saved) -> None:
        """Put a copy into a sequence, in place of what it holds."""
        context, size = self._model.require_open(), len(saved.data)
        if int(c.llama_state_seq_set_data(context, saved.data, size, sequence)) != size:
            raise EngineError("llama.cpp did not take back a sequence's cache", where=str(self._model.path))
