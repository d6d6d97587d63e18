"""The llama.cpp library itself: its log, build, devices and quantizer.

This module and `llama_model` are the only ones that import `llama_cpp`.
"""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as c
import numpy as np
from numpy.typing import NDArray

# enum ggml_log_level. Debug is left out: a line per control token and graph input, thousands per load.
_DEBUG, _WARNING, _ERROR, _CONTINUED = 1, 3, 4, 5


# The library has one log and keeps a bare pointer to its callback: the callback's owner must not be freed.
_installed: list[LlamaLog] = []


class LlamaLog:
    """llama.cpp's log while this object is installed: the last lines, and a copy to `sink`."""

    def __init__(self, sink: Callable[[str], None] | None = None, keep: int = 400) -> None:
        self._sink = sink
        self._lines: deque[tuple[int, str]] = deque(maxlen=keep)
        self._open, self._level = "", _DEBUG
        self._callback = c.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes, _user_data: object) -> None:
        if level == _DEBUG:
            return
        piece = text.decode("utf-8", "replace")
        if self._sink is not None:
            self._sink(piece)
        if level != _CONTINUED:
            self._level = level
        *whole, self._open = (self._open + piece).split("\n")
        self._lines.extend((self._level, line) for line in whole if line.strip(" ."))

    def install(self) -> None:
        """Receive what llama.cpp logs from now on, in place of the log that was installed before."""
        c.llama_log_set(self._callback, ctypes.c_void_p(0))
        _installed[:] = [self]

    def lines(self) -> tuple[str, ...]:
        """The lines that were kept."""
        return tuple(line for _, line in self._lines)

    def errors(self) -> str:
        """The last lines logged as errors, else as warnings, else the last lines."""
        for least in (_ERROR, _WARNING):
            telling = [line for level, line in self._lines if level >= least]
            if telling:
                return "\n".join(telling[-4:])
        return "\n".join(self.lines()[-3:])

    def search(self, pattern: str) -> re.Match[str] | None:
        """The last line that matches."""
        for line in reversed(self.lines()):
            if found := re.search(pattern, line):
                return found
        return None


def reported_commit() -> str:
    """ggml's commit as the loaded library reports it, ``""`` when it reports none."""
    try:
        function = c._lib.ggml_commit
    except AttributeError:
        return ""
    function.restype = ctypes.c_char_p
    raw = function()
    return raw.decode("utf-8", "replace") if raw else ""


def system_info() -> str:
    """llama.cpp's line about the features that this build uses on this machine."""
    line: bytes = c.llama_print_system_info()
    return line.decode("utf-8", "replace").strip(" |")


def supports_offload() -> bool:
    """Whether this build can place layers on a GPU."""
    return bool(c.llama_supports_gpu_offload())


def _gpus() -> list[int]:
    """ggml's handles of the GPUs that this process sees."""
    lib = c._lib
    get, kind = lib.ggml_backend_dev_get, lib.ggml_backend_dev_type
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    kind.restype, kind.argtypes = ctypes.c_int, [ctypes.c_void_p]
    found = [get(index) for index in range(lib.ggml_backend_dev_count())]
    # enum ggml_backend_dev_type: 0 = CPU, 1 = GPU, 2 = integrated GPU, 3 = accelerator beside the CPU.
    return [device for device in found if kind(device) in (1, 2)]


def devices() -> tuple[str, ...]:
    """Names of the GPUs as ggml lists them: ``CUDA0 (NVIDIA L4)``. Empty on a CPU build."""
    name, description = c._lib.ggml_backend_dev_name, c._lib.ggml_backend_dev_description
    for text in (name, description):
        text.restype, text.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    return tuple(f"{name(device).decode()} ({description(device).decode()})" for device in _gpus())


def free_bytes() -> tuple[int, ...]:
    """Free memory of each GPU, in the order of `devices`."""
    ask = c._lib.ggml_backend_dev_memory
    ask.restype, ask.argtypes = None, [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    found = []
    for device in _gpus():
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        ask(device, ctypes.byref(free), ctypes.byref(total))
        found.append(int(free.value))
    return tuple(found)


def ftype_of(preset: str) -> int | None:
    """llama.cpp's number for a preset's name (``Q4_K_M``), None when this build has no such preset."""
    for name in (f"LLAMA_FTYPE_MOSTLY_{preset.upper()}", f"LLAMA_FTYPE_ALL_{preset.upper()}"):
        if hasattr(c, name):
            return int(getattr(c, name))
    return None


def presets() -> tuple[str, ...]:
    """Names of all presets that this build can write."""
    names = [re.fullmatch(r"LLAMA_FTYPE_(?:MOSTLY|ALL)_(\w+)", name) for name in dir(c)]
    return tuple(sorted(found.group(1) for found in names if found))


@dataclass(frozen=True)
class ImportanceRow:
    """Importance of one tensor's columns."""

    tensor: str
    # Tensor name in the model.
    values: NDArray[np.float32]
    # Mean squared activations, shape (experts * columns,).


@dataclass(frozen=True)
class ImportanceMatrix:
    """Importance of a model's tensors."""

    name: str
    # Name of its file, recorded in what is quantized with it.
    rows: tuple[ImportanceRow, ...]


def quantize(
    source: Path,
    target: Path,
    ftype: int,
    *,
    threads: int,
    allow_requantize: bool,
    matrix: ImportanceMatrix | None,
) -> int:
    """Write `target` from `source` with llama.cpp's own quantizer; its return code (0 = done)."""
    parameters = c.llama_model_quantize_default_params()
    parameters.ftype = ftype
    parameters.nthread = threads
    parameters.allow_requantize = allow_requantize
    if matrix is not None:
        # A table of rows that ends with an empty name; `arrays` keeps the buffers alive during the call.
        arrays = [np.ascontiguousarray(row.values, dtype=np.float32) for row in matrix.rows]
        table = (c.llama_model_imatrix_data * (len(arrays) + 1))()
        for entry, row, array in zip(table, matrix.rows, arrays, strict=False):
            entry.name = row.tensor.encode()
            entry.data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entry.size = array.size
        overrides = _imatrix_metadata(matrix)
        parameters.imatrix = ctypes.cast(table, ctypes.POINTER(c.llama_model_imatrix_data))
        parameters.kv_overrides = ctypes.cast(overrides, ctypes.POINTER(c.llama_model_kv_override))
    return int(c.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)))


def _imatrix_metadata(matrix: ImportanceMatrix) -> ctypes.Array[c.llama_model_kv_override]:
    """The keys by which llama.cpp's own tool marks a file made with an importance matrix."""
    # A text field holds 128 bytes, the closing zero included.
    name = c.llama_model_kv_override_value(val_str=matrix.name.encode("utf-8", "replace")[:127])
    count = c.llama_model_kv_override_value(val_i64=len(matrix.rows))
    return (c.llama_model_kv_override * 3)(
        c.llama_model_kv_override(c.LLAMA_KV_OVERRIDE_TYPE_STR, b"quantize.imatrix.file", name),
        c.llama_model_kv_override(c.LLAMA_KV_OVERRIDE_TYPE_INT, b"quantize.imatrix.entries_count", count),
    )
