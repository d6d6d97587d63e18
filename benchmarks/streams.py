"""Episodes per second with 1, 2, 4, 8 and 16 streams: what lockstep wins on this machine.

``python -m benchmarks.streams [--model ref_llama] [--quant q4_k_m] [--streams 1,2,4,8,16] [--rounds 3]``.
A walk (clean pass and transient faults) is played with each number of streams, one after the other, and that
is repeated: ratios are taken within a round. Threads are fixed. Episodes whose text or score differs from one
stream are counted, and the system message is timed against a copy of its part of the cache.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.composing import compose_cell, model_file
from qfr.audit.replay import compare
from qfr.cell import Track, key_of, walk, walk_together
from qfr.config import CellConfig, EngineConfig, Gate
from qfr.engine.base import Counters
from qfr.engine.files.gguf import ModelFile
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.opened import open_file
from qfr.engine.llama.path import EpisodePath
from qfr.engine.llama.sequences import Sequences
from qfr.engine.llama.streams import LlamaStreams
from qfr.episode import Episodes, Together
from qfr.grid.checks import build_world
from qfr.places import prompt_path
from qfr.play.engine_cache import context_need, rules_of
from qfr.prompts import load_prompt
from qfr.records import Episode, FaultKind


@dataclass(frozen=True)
class Played:
    """One walk."""

    episodes: tuple[Episode, ...]
    seconds: float
    # Wall time, loading left out.
    cpu: float
    # Processor time.
    work: Counters


def play_walk(cell: CellConfig, file: ModelFile, prompt: str, n_ctx: int) -> Played:
    """Clean pass and transient faults in this process."""
    world, rules, config = build_world(cell.suite), rules_of(cell), cell.engine
    found: list[Episode] = []

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        found.append(episode)

    clean = Track("clean", FaultKind.none, Gate.certified, {})
    faults = (Track("et", FaultKind.et, cell.suite.gate, {}),)
    engine = LlamaEngine(file, config, n_ctx) if config.streams == 1 else LlamaStreams(file, config, n_ctx)
    wall, cpu = time.perf_counter(), time.process_time()
    if isinstance(engine, LlamaStreams):
        walk_together(Together(engine, config.streams, world, prompt, rules), clean, faults, record)
    else:
        walk(Episodes(engine, world, prompt, rules), clean, faults, record)
    played = Played(tuple(found), time.perf_counter() - wall, time.process_time() - cpu, engine.counters())
    engine.close()
    return played


def system_message(config: EngineConfig, file: ModelFile, prompt: str, n_ctx: int) -> str:
    """What the system message costs, and what a copy of its part of the cache would."""
    opened = open_file(file, config, n_ctx, None)
    sequences = Sequences(opened.model, config.n_batch)
    tokens = EpisodePath(opened.tokenizer, prompt, "The task.").opening().segments[0]
    costs: list[tuple[float, float, float]] = []
    for _ in range(5):
        marks = [time.perf_counter()]
        sequences.segment(0, tokens, 0)
        marks.append(time.perf_counter())
        saved = sequences.save(0)
        marks.append(time.perf_counter())
        sequences.restore(0, saved)
        marks.append(time.perf_counter())
        costs.append((marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]))
        sequences.rewind(0, 0)
    size = len(saved.data)
    opened.model.close()
    evaluate, save, restore = (1000 * min(one[place] for one in costs) for place in range(3))
    return (
        f"system message: {len(tokens)} tokens, {evaluate:.1f} ms to evaluate; its state: "
        f"{size / 1e6:.2f} MB, {save:.2f} ms to save, {restore:.2f} ms to restore"
    )


def measure(cell: CellConfig, streams: tuple[int, ...], rounds: int) -> None:
    """Print a table row per number of streams."""
    prompt = load_prompt(prompt_path(cell.prompt.file), cell.prompt.sha256).text
    file, n_ctx = model_file(cell), context_need(cell, build_world(cell.suite), prompt)
    runs: dict[int, list[Played]] = {count: [] for count in streams}
    for _ in range(rounds):
        for count, played in runs.items():
            engine = dataclasses.replace(cell.engine, streams=count)
            played.append(play_walk(dataclasses.replace(cell, engine=engine), file, prompt, n_ctx))
    first = runs[streams[0]]
    flash = ", flash attention" if cell.engine.flash_attn else ""
    print(f"\n{cell.model.name} {cell.quant.preset} {cell.prompt.name}, {len(first[0].episodes)} episodes, "
          f"{cell.engine.n_threads} thread(s){flash}, {rounds} rounds")  # fmt: skip
    print("| streams | walk, s | CPU, s | times as fast | by CPU time | decode, tokens/s | evaluated/tree "
          "| texts differ | scores differ |\n" + "|---" * 9 + "|")  # fmt: skip
    for count, played in runs.items():
        wall, cpu = (_ratio(first, played, view) for view in (lambda p: p.seconds, lambda p: p.cpu))
        decode = statistics.median(one.work.decode_tokens / one.work.decode_seconds for one in played)
        found = compare(_plain(first[0]), _plain(played[0]))
        work = played[0].work
        print(
            f"| {count} | {statistics.median(one.seconds for one in played):.2f} "
            f"| {statistics.median(one.cpu for one in played):.2f} "
            f"| {wall} | {cpu} | {decode:,.0f} "
            f"| {work.evaluated / work.tree:.2f} "
            f"| {len(found.texts)} of {found.episodes} | {len(found.scores)} of {found.episodes} |"
        )
        if any(_plain(one) != _plain(played[0]) for one in played):
            raise SystemExit(f"{count} streams: two rounds did not give the same bytes")
    print(system_message(cell.engine, file, prompt, n_ctx))


def _ratio(first: list[Played], played: list[Played], view: Callable[[Played], float]) -> str:
    """Median and range over the rounds of how many times as fast it is."""
    ratios = sorted(view(a) / view(b) for a, b in zip(first, played, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _plain(played: Played) -> list[Episode]:
    return sorted(played.episodes, key=lambda one: (str(one.fault), *key_of(one)))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="ref_llama")
    parser.add_argument("--quant", default="q4_k_m")
    parser.add_argument("--suite", default="orders20_ref")
    parser.add_argument("--prompt", default="P0")
    parser.add_argument("--streams", default="1,2,4,8,16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", default=str(Path("mlruns")), help="where derived files go")
    parser.add_argument("overrides", nargs="*", help="more settings: engine.flash_attn=true …")
    given = parser.parse_args()
    cell = compose_cell(
        [
            f"model={given.model}",
            f"quant={given.quant}",
            f"suite={given.suite}",
            f"prompt={given.prompt}",
            f"engine.n_threads={given.threads}",
            f"engine.n_threads_batch={given.threads}",
            f"tracking.root={given.root}",
            *given.overrides,
        ]
    )
    measure(cell, tuple(int(count) for count in given.streams.split(",")), given.rounds)


if __name__ == "__main__":
    main()
