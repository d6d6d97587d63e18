"""What `llama_decode` reaches by size of batch: prompts in one piece, and streams in lockstep.

    python -m benchmarks.batches --model ref_llama --suite orders20_ref --quant q8_0

Speeds in tokens per second behind a prefix of `--depth` tokens, the best of several rounds that are
interleaved over the sizes.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np

from benchmarks.composing import compose_cell, model_file
from qfr.config import CellConfig
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.sequences import Row, Sequences

_PREFILLS = (8, 32, 128, 512)
_STREAMS = (1, 2, 4, 8, 16)
_STEPS = 48


def prefill(model: LoadedModel, size: int, depth: int, tokens: list[int]) -> float:
    """Tokens per second of one segment behind the prefix."""
    model.rewind(depth)
    started = time.perf_counter()
    model.decode(tokens[:size])
    return size / (time.perf_counter() - started)


def lockstep(sequences: Sequences, streams: int, depth: int, tokens: list[int]) -> float:
    """Tokens per second of all streams together."""
    for stream in range(streams):
        sequences.rewind(stream, depth)
    started = time.perf_counter()
    for step in range(_STEPS):
        sequences.step([Row(stream, tokens[step], depth + step) for stream in range(streams)])
    return streams * _STEPS / (time.perf_counter() - started)


def measure(
    cell: CellConfig, path: Path, depth: int, rounds: int
) -> tuple[dict[int, float], dict[int, float]]:
    """Best speeds by size of segment and by number of streams."""
    tokens = [int(token) for token in np.random.default_rng(1).integers(100, 900, max(depth, max(_PREFILLS)))]
    n_ctx = depth + max(*_PREFILLS, _STEPS) + 1
    alone = LoadedModel(path, dataclasses.replace(cell.engine, streams=1), n_ctx, LlamaLog())
    alone.decode(tokens[:depth])
    together = {}
    for streams in _STREAMS:
        model = LoadedModel(path, dataclasses.replace(cell.engine, streams=streams), n_ctx, LlamaLog())
        together[streams] = Sequences(model, cell.engine.n_batch)
        for stream in range(streams):
            together[streams].segment(stream, tokens[:depth], 0)
    read, written = dict.fromkeys(_PREFILLS, 0.0), dict.fromkeys(_STREAMS, 0.0)
    for _ in range(rounds):
        for size in _PREFILLS:
            read[size] = max(read[size], prefill(alone, size, depth, tokens))
        for streams in _STREAMS:
            written[streams] = max(written[streams], lockstep(together[streams], streams, depth, tokens))
    return read, written


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ref_llama")
    parser.add_argument("--suite", default="orders20_ref")
    parser.add_argument("--quant", default="q8_0")
    parser.add_argument("--depth", type=int, default=700, help="tokens in the cache before each batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("overrides", nargs="*", help="further overrides, KEY=VALUE")
    arguments = parser.parse_args()
    overrides = [f"model={arguments.model}", f"suite={arguments.suite}", f"quant={arguments.quant}"]
    cell = compose_cell([*overrides, *arguments.overrides])
    read, written = measure(cell, model_file(cell).path, arguments.depth, arguments.rounds)
    print(f"{arguments.model} {arguments.quant}, {cell.engine.n_threads} thread(s), depth {arguments.depth}")
    print("| segment, tokens | tokens/s |\n|---|---|")
    print("\n".join(f"| {size} | {speed:,.0f} |" for size, speed in read.items()))
    print("\n| streams | tokens/s | against 1 |\n|---|---|---|")
    print("\n".join(f"| {n} | {speed:,.0f} | {speed / written[1]:.2f} |" for n, speed in written.items()))


if __name__ == "__main__":
    main()
