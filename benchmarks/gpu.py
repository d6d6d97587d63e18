"""The whole check of a GPU in under eight minutes on one card.

    python -m benchmarks.gpu --gguf MODEL.gguf
    python -m benchmarks.gpu                     # random weights of the 8B shape, written here

Needs a llama-cpp-python that was built for the card. Tells whether forked episodes have the bits of fresh
ones and reruns those of the first run, how fast the card reads prompts and writes, how far that is from its
memory bandwidth, what 1 to 32 streams gain, and how many cells of the paper's size an hour holds. Stages that
would not fit into `--seconds` are left out, and said to be. `--layers 0` runs everything on the processor.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import bandwidth, random_gguf
from benchmarks.composing import compose_cell
from benchmarks.exact import Setup, check
from benchmarks.forced import Counting, Forced
from benchmarks.gpu_table import Found, Paper, Speeds, Streams, describe
from benchmarks.processes import run
from benchmarks.sweeping import read_sweep, share_files
from qfr.cell import Track, walk
from qfr.config import CellConfig, EngineConfig, Gate
from qfr.engine.base import EngineInfo
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.files.memory import need
from qfr.engine.llama.opened import open_file
from qfr.episode import Episodes, Rules
from qfr.grid.checks import build_world
from qfr.places import prompt_path
from qfr.play.engine_cache import context_need
from qfr.prompts import load_prompt
from qfr.records import FaultKind

# Tokens in the cache when speeds are taken: about the middle of an episode.
_DEPTH, _PROMPT, _STEPS = 1024, 512, 64
# Store whose derived files and digests all sweeps share.
_KEPT = "kept"
# A cell of the paper's size.
_PAPER = {"base": 10, "shipping": 10}


def setup_of(cell: CellConfig, families: dict[str, int]) -> Setup:
    """Prompt, rules and a suite of other size for a cell."""
    text = load_prompt(prompt_path(cell.prompt.file), cell.prompt.sha256).text
    suite = dataclasses.replace(cell.suite, families=families)
    rules = Rules(
        executor=cell.executor.kind,
        step_budget=cell.suite.step_budget,
        error_budget=cell.suite.error_budget,
        max_tokens=cell.executor.max_tokens,
        fault_code=cell.fault.code,
        fault_message=cell.fault.message,
        trial=0,
    )
    return Setup(build_world(suite), text, rules)


def speeds(file: ModelFile, config: EngineConfig, n_ctx: int) -> tuple[Speeds, EngineInfo]:
    """Prefill and decode speed of one stream, and the floor of the latter."""
    opened = open_file(file, config, n_ctx, None)
    model, info = opened.model, opened.info
    tokens = [int(token) for token in np.random.default_rng(1).integers(100, 900, _DEPTH)]
    model.decode(tokens[:_PROMPT])
    prefill = 0.0
    for _ in range(3):
        model.clear()
        started = time.perf_counter()
        model.decode(tokens[:_PROMPT])
        prefill = max(prefill, _PROMPT / (time.perf_counter() - started))
    model.decode(tokens[_PROMPT:])
    started = time.perf_counter()
    for token in tokens[:_STEPS]:
        model.decode([token])
    decode = _STEPS / (time.perf_counter() - started)
    model.close()
    wide = bandwidth.of_device(info.device)
    needed = need(file.path, config, _DEPTH, offload=info.offloaded_layers > 0)
    if wide is None or needed is None:
        return Speeds(prefill, decode, None, "bandwidth not known"), info
    # The input embedding is looked up, not read whole; it is what a full offload leaves in main memory.
    whole = need(file.path, dataclasses.replace(config, n_gpu_layers=-1), _DEPTH, offload=True)
    read = (whole or needed).device_weights + needed.cache
    return Speeds(prefill, decode, wide.bytes_per_second / read, f"bandwidth {wide.source}"), info


def paper_cell(file: ModelFile, config: EngineConfig, n_ctx: int, setup: Setup) -> Paper:
    """Count the tokens of a whole cell with this model's tokenizer; nothing is evaluated."""
    opened = open_file(file, config, n_ctx, None)
    counting = Counting(opened.tokenizer, opened.info)
    played = 0

    def record(*_: object) -> None:
        nonlocal played
        played += 1

    clean = Track("", FaultKind.none, Gate.certified, {})
    faults = (Track("", FaultKind.et, Gate.certified, {}),)
    walk(Episodes(Forced(counting), setup.world, setup.system, setup.rules), clean, faults, record)
    opened.model.close()
    return Paper(counting.prefill, counting.decode, played)


def one_sweep(overrides: Sequence[str], streams: int, folder: Path) -> Streams:
    """`run.py` with that many streams, in a store of its own."""
    root = folder / f"streams-{streams}"
    share_files(root, folder / _KEPT)
    # As many tasks as fill the streams: rates are compared, not sums.
    half = -(-streams // 2)
    own = [f"suite.families.base={half}", f"suite.families.shipping={half}", f"engine.streams={streams}"]
    own += [f"tracking.root={root}", f"hydra.sweep.dir={root}/multirun"]
    log = root / "log"
    try:
        run([sys.executable, "-m", "qfr", "run", *overrides, *own], log=log)
    except SystemExit:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        told = " ".join(lines[-3:])[:400].replace("|", "/")
        return Streams(streams, 0.0, 0, 0, 0.0, None, told or "no word")
    swept = read_sweep(root)
    return Streams(
        streams=streams,
        walk_seconds=swept.walk_seconds,
        episodes=len(swept.outcomes),
        generated=swept.generated,
        rate=swept.decode_rate or 0.0,
        device_bytes=swept.device_bytes,
        refused="",
    )


def all_streams(
    overrides: Sequence[str], numbers: Sequence[int], folder: Path, end: float
) -> tuple[tuple[Streams, ...], tuple[int, ...]]:
    """Each number of streams, as long as the one before would fit into what time is left."""
    done: list[Streams] = []
    longest = 0.0
    for at, number in enumerate(numbers):
        if time.perf_counter() + longest > end:
            return tuple(done), tuple(numbers[at:])
        started = time.perf_counter()
        done.append(one_sweep(overrides, number, folder))
        longest = max(longest, time.perf_counter() - started)
    return tuple(done), ()


def check_card(arguments: argparse.Namespace, folder: Path) -> Found:
    """All stages."""
    started = time.perf_counter()
    path = arguments.gguf
    if path is None:
        path = folder / f"random-{arguments.shape}.gguf"
        random_gguf.write(path, random_gguf.SHAPES[arguments.shape], arguments.preset, 1)
        say(started, f"random weights written: {path.stat().st_size / 1e9:.2f} GB")
    file = open_model(path, folder / _KEPT / "models")
    preset = (file.facts.file_type or arguments.preset).lower()
    overrides = [
        *("model=local", f"model.path={path}", f"quant={preset}", f"suite={arguments.suite}"),
        f"engine.n_gpu_layers={arguments.layers}",
        f"engine.flash_attn={str(arguments.flash).lower()}",
        # Random weights pass no task; faults are then played on all, and turns are cut short.
        *(() if arguments.gguf else ("suite.gate=none", "suite.step_budget=2", "executor.max_tokens=32")),
        *arguments.overrides,
    ]
    cell = compose_cell(overrides)
    setup = setup_of(cell, {"base": 1, "shipping": 1})
    n_ctx = cell.engine.n_ctx or context_need(cell, setup.world, setup.system)
    one = dataclasses.replace(cell.engine, streams=1)
    # Whole episodes, whatever the budget of the sweeps below.
    whole = dataclasses.replace(setup, rules=dataclasses.replace(setup.rules, step_budget=12, max_tokens=160))
    n_ctx = max(n_ctx, 4096)
    speed, info = speeds(file, one, n_ctx)
    say(started, f"{speed.prefill:,.0f} tokens/s read, {speed.decode:,.1f} tokens/s written")
    exactness = check(file, one, n_ctx, whole)
    say(started, f"fork = fresh in {exactness.fork_is_fresh} of {exactness.episodes} episodes")
    paper = paper_cell(file, one, n_ctx, dataclasses.replace(whole, world=setup_of(cell, _PAPER).world))
    numbers = [int(number) for number in arguments.streams.split(",")]
    streams, left_out = all_streams(overrides, numbers, folder, started + arguments.seconds)
    return Found(
        model=file.facts.name or path.name,
        model_bytes=file.bytes,
        info=info,
        exactness=exactness,
        speeds=speed,
        streams=streams,
        left_out=left_out,
        paper=paper,
        seconds=time.perf_counter() - started,
    )


def say(started: float, line: str) -> None:
    """Progress, to the standard error."""
    print(f"[{time.perf_counter() - started:5.0f} s] {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Check the card."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gguf", type=Path, help="model file; without one random weights are written")
    parser.add_argument("--shape", choices=tuple(random_gguf.SHAPES), default="8b", help="of random weights")
    parser.add_argument("--preset", choices=("Q4_K_M", "Q8_0"), default="Q4_K_M", help="of random weights")
    parser.add_argument("--layers", type=int, default=-1, help="engine.n_gpu_layers")
    parser.add_argument("--flash", action="store_true", help="engine.flash_attn=true")
    parser.add_argument("--streams", default="1,2,4,8,16,32")
    parser.add_argument("--suite", default="orders6")
    parser.add_argument("--seconds", type=float, default=450.0, help="no stage is begun that would end later")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one by default")
    parser.add_argument("--json", type=Path, help="write everything found there too")
    parser.add_argument("overrides", nargs="*", help="further overrides, KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = check_card(arguments, arguments.folder or Path(temporary))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(dataclasses.asdict(found), indent=1), encoding="utf-8")
    print(describe(found))
    sys.exit(0 if found.exactness.whole else 1)


if __name__ == "__main__":
    main()
