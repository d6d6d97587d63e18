"""Importance matrices: how much each column of a tensor matters, as llama.cpp's imatrix tool writes it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from gguf import GGUFReader

from qfr.engine.llama.api import ImportanceMatrix, ImportanceRow
from qfr.errors import ModelFileError

_SUMS, _COUNTS = ".in_sum2", ".counts"


def read_imatrix(path: Path) -> ImportanceMatrix:
    """An importance matrix in either of llama.cpp's formats.

    Raises
    ------
    ModelFileError
        The file is no importance matrix.
    """
    with path.open("rb") as stream:
        magic = stream.read(4)
    try:
        rows = _from_gguf(path) if magic == b"GGUF" else _from_legacy(path.read_bytes())
    except (struct.error, ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise ModelFileError(f"is no importance matrix: {error}", where=str(path)) from None
    if not rows:
        raise ModelFileError("is no importance matrix: it names no tensors", where=str(path))
    return ImportanceMatrix(path.name, rows)


def _from_gguf(path: Path) -> tuple[ImportanceRow, ...]:
    """Sums of squares of shape (matrices, columns) over counts of shape (matrices, 1)."""
    tensors = {tensor.name: np.array(tensor.data, dtype=np.float32) for tensor in GGUFReader(path).tensors}
    rows = []
    for name, sums in tensors.items():
        if not name.endswith(_SUMS):
            continue
        tensor = name.removesuffix(_SUMS)
        counts = tensors[tensor + _COUNTS].reshape(-1, 1)
        sums = sums.reshape(counts.shape[0], -1)
        # A matrix (of an expert) that was never used counts all columns alike, as llama.cpp's tool has it.
        means = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
        rows.append(ImportanceRow(tensor, means.astype(np.float32).ravel()))
    return tuple(rows)


def _from_legacy(data: bytes) -> tuple[ImportanceRow, ...]:
    """Entries of name, number of calls and sums: the older binary format."""
    (count,) = struct.unpack_from("<i", data, 0)
    if not 0 < count < 1 << 20:
        raise ValueError("it starts with no sensible number of entries")
    at, rows = 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<i", data, at)
        name = data[at + 4 : at + 4 + length].decode("utf-8")
        calls, size = struct.unpack_from("<ii", data, at + 4 + length)
        at += 12 + length
        values = np.frombuffer(data, dtype="<f4", count=size, offset=at)
        rows.append(ImportanceRow(name, values / calls if calls > 0 else values))
        at += 4 * size
    return tuple(rows)
