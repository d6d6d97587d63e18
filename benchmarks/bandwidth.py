"""Memory bandwidth: what bounds decoding, since every token reads all weights once."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np

_CUDA = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
_DEVICE_TO_DEVICE = 3
# Published figures in GB/s, by a part of the device's name, for machines where none can be measured.
_PUBLISHED = {
    "H200": 4800.0,
    "H100": 3350.0,
    "A100": 1555.0,
    "L40S": 864.0,
    "4090": 1008.0,
    "3090": 936.0,
    "A10": 600.0,
    "L4": 300.0,
    "T4": 320.0,
}


@dataclass(frozen=True)
class Bandwidth:
    """Bytes that can be read in a second."""

    bytes_per_second: float
    source: str
    # measured or published.


def of_device(name: str) -> Bandwidth | None:
    """Of the GPU of that name ("cpu" = this machine's main memory); None when it is not known."""
    if name == "cpu":
        return Bandwidth(_main_memory(1 << 26), "measured")
    measured = _cuda(1 << 30)
    if measured is not None:
        return Bandwidth(measured, "measured")
    for part, figure in _PUBLISHED.items():
        if part in name:
            return Bandwidth(figure * 1e9, "published")
    return None


def _main_memory(size: int) -> float:
    """Copying one array onto another, the best of several times: each byte is read and written."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    best = 1e9
    for _ in range(5):
        started = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - started)
    return 2 * size / best


def _cuda(size: int) -> float | None:
    """The same on the first GPU that this process sees, by the CUDA runtime that llama.cpp has loaded."""
    library = _runtime()
    if library is None:
        return None
    source, target = ctypes.c_void_p(), ctypes.c_void_p()
    for pointer in (source, target):
        if library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)):
            return None
    best = 1e9
    for _ in range(5):
        library.cudaDeviceSynchronize()
        started = time.perf_counter()
        library.cudaMemcpy(target, source, ctypes.c_size_t(size), _DEVICE_TO_DEVICE)
        library.cudaDeviceSynchronize()
        best = min(best, time.perf_counter() - started)
    for pointer in (source, target):
        library.cudaFree(pointer)
    return 2 * size / best


def _runtime() -> ctypes.CDLL | None:
    for name in _CUDA:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
