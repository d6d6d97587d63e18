"""Reads a GGUF's header without loading the file.

The `gguf` package's reader turns every token and merge of a vocabulary into an array of its own (seconds per
file) and does not say how a damaged file is damaged. Here arrays are stepped over, every length is checked
against the file, and what a user can mend gets its own message. Sizes of tensor types are the package's.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from qfr.errors import ModelFileError

Scalar = str | int | float | bool
_MAGIC: Final = b"GGUF"
_LFS: Final = b"version https://git-lfs"
_DEFAULT_ALIGNMENT: Final = 32
# GGUF value type: struct format (little-endian).
_FORMATS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
# Tensor types of the pinned llama.cpp that the `gguf` package may be too old for: (name, weights per block,
# bytes per block).
_NEWER: Final = {
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}
# What other files begin with, and what they are.
_OTHERS: Final = (
    (b"PK\x03\x04", "a ZIP archive (PyTorch weights are such)"),
    (b"\x80\x02", "a Python pickle (older PyTorch weights)"),
    (b"\x1f\x8b", "packed with gzip"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (b"FUGG", "a GGUF of a big-endian machine"),
    (b"ggml", "a GGML file from before GGUF"),
    (b"ggjt", "a GGML file from before GGUF"),
    (b"\x89HDF", "an HDF5 file"),
    (b"<", "a web page or XML"),
)


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    # Elements per dimension, fastest first.
    type_name: str
    # GGML type: F16, Q4_K …
    offset: int
    # Bytes from the start of the data section.
    size: int
    # Bytes.

    @property
    def elements(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What stands before the data."""

    path: Path
    metadata: tuple[tuple[str, Scalar], ...]
    # Scalars and strings in file order; arrays are left out.
    tensors: tuple[TensorInfo, ...]
    data_start: int
    # Byte where tensor data starts.

    def get(self, key: str) -> Scalar | None:
        """A metadata value, None where the file has none."""
        return dict(self.metadata).get(key)


def _fail(path: Path, what: str, hint: str | None = None) -> ModelFileError:
    return ModelFileError(what, where=str(path), hint=hint)


def check_readable(path: Path) -> int:
    """Size in bytes of a file that can be read.

    Raises
    ------
    ModelFileError
        Missing, a directory, empty, unreadable.
    """
    try:
        if path.is_dir():
            raise _fail(path, "is a directory, not a GGUF file", "give the file itself")
        with path.open("rb"):
            size = path.stat().st_size
    except FileNotFoundError:
        raise _fail(path, "there is no such file") from None
    except PermissionError:
        raise _fail(path, "no permission to read it", "chmod +r, or run as its owner") from None
    except OSError as error:
        raise _fail(path, f"cannot be read: {error.strerror}") from None
    if size == 0:
        raise _fail(path, "is empty (0 bytes)", "download it again")
    return size


class _Cursor:
    """Reads the header forwards, never beyond the file."""

    def __init__(self, stream: BinaryIO, path: Path, size: int) -> None:
        self._stream, self._path, self._size = stream, path, size

    def take(self, count: int) -> bytes:
        if count > self._size - self._stream.tell():
            raise _fail(
                self._path,
                f"is truncated: its header goes on after the file's end ({self._size} bytes)",
                "download it again",
            )
        return self._stream.read(count)

    def skip(self, count: int) -> None:
        if count > self._size - self._stream.tell():
            self.take(count)
        self._stream.seek(count, os.SEEK_CUR)

    def number(self, form: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0])

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def position(self) -> int:
        return self._stream.tell()

    def value(self, kind: int) -> Scalar | None:
        """A value; arrays are stepped over and give None."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            item, count = self.number("I"), self.number("Q")
            if item in _FORMATS:
                self.skip(count * struct.calcsize("<" + _FORMATS[item]))
            elif item == _STRING:
                for _ in range(count):
                    self.skip(self.number("Q"))
            else:
                for _ in range(count):
                    self.value(item)
            return None
        if kind not in _FORMATS:
            raise _fail(self._path, f"is damaged: metadata of unknown type {kind}", "download it again")
        form = "<" + _FORMATS[kind]
        value: Scalar = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value


def read_header(path: Path) -> Header:
    """Metadata and tensor table of a GGUF, checked against the file's size.

    Raises
    ------
    ModelFileError
        One clear message each: missing, a directory, empty, unreadable, a Git LFS pointer, no GGUF, of an
        unknown version, damaged, truncated.
    """
    size = check_readable(path)
    with path.open("rb") as stream:
        cursor = _Cursor(stream, path, size)
        _check_magic(path, stream.read(64))
        stream.seek(4)
        version = cursor.number("I")
        if version not in (2, 3):
            raise _fail(path, f"is a GGUF of version {version}; versions 2 and 3 can be read")
        n_tensors, n_values = cursor.number("Q"), cursor.number("Q")
        metadata = []
        for _ in range(n_values):
            key = cursor.text()
            value = cursor.value(cursor.number("I"))
            if value is not None:
                metadata.append((key, value))
        tensors = tuple(_tensor(cursor, path) for _ in range(n_tensors))
        end = cursor.position()
    given = dict(metadata).get("general.alignment", _DEFAULT_ALIGNMENT)
    alignment = given if isinstance(given, int) and given > 0 else _DEFAULT_ALIGNMENT
    start = -(-end // alignment) * alignment
    needed = max((start + tensor.offset + tensor.size for tensor in tensors), default=end)
    if needed > size:
        raise _fail(
            path,
            f"is truncated: its header wants {needed:,} bytes, the file has {size:,}",
            "the download or copy was interrupted; download it again",
        )
    return Header(path, tuple(metadata), tensors, start)


def _check_magic(path: Path, head: bytes) -> None:
    if head.startswith(_LFS):
        raise _fail(
            path,
            "is a Git LFS pointer, not the model itself",
            "fetch the file with `git lfs pull`, or download it from the repository's page",
        )
    if not head.startswith(_MAGIC):
        raise _fail(
            path,
            f"is not a GGUF file but {_kind(head)}",
            "give a file that ends in .gguf; a model in another format is converted by llama.cpp's "
            "convert_hf_to_gguf.py",
        )


def _kind(head: bytes) -> str:
    """What a file seems to be, by its first bytes."""
    if head[8:9] == b"{":
        return "a safetensors file"
    known = next((what for start, what in _OTHERS if head.lstrip().startswith(start)), None)
    if known is not None:
        return known
    text = head.decode("ascii", "replace")
    return "a text" if all(char.isprintable() or char.isspace() for char in text) else "something else"


def _tensor(cursor: _Cursor, path: Path) -> TensorInfo:
    name, dimensions = cursor.text(), cursor.number("I")
    if dimensions > 8:
        raise _fail(
            path, f"is damaged: tensor {name[:80]!r} has {dimensions} dimensions", "download it again"
        )
    shape = tuple(cursor.number("Q") for _ in range(dimensions))
    kind, offset = cursor.number("I"), cursor.number("Q")
    try:
        type_name = GGMLQuantizationType(kind).name
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        # A type that neither knows: its size is not known here, llama.cpp may load it.
        type_name, block, block_bytes = _NEWER.get(kind, (f"type {kind}", 1, 0))
    elements = math.prod(shape)
    if elements > 1 << 50:
        raise _fail(path, f"is damaged: tensor {name!r} has {elements} elements", "download it again")
    return TensorInfo(name, shape, type_name, offset, elements // block * block_bytes)
