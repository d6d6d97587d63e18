"""What the check of a GPU finds, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.exact import Exactness
from qfr.engine.base import EngineInfo

# The paper's grid (Hu 2026): 15 Llama cells and 10 Qwen cells, transient faults.
_CELLS = 25


@dataclass(frozen=True)
class Speeds:
    """Of one stream."""

    prefill: float
    # Tokens per second in batches of 512.
    decode: float
    # Tokens per second, one by one, behind 1,024 tokens.
    floor: float | None
    # Decoding if reading the weights and the cache at the memory's bandwidth were all; None = not known.
    floor_source: str


@dataclass(frozen=True)
class Streams:
    """One `engine.streams` through run.py."""

    streams: int
    walk_seconds: float
    episodes: int
    generated: int
    rate: float
    # Tokens written per second of decoding, all streams together.
    device_bytes: float | None
    refused: str
    # The end of what the command said when it failed; then the rest is 0.


@dataclass(frozen=True)
class Paper:
    """Tokens of a cell of the paper's size, clean pass included, as an able agent writes it."""

    prefill: int
    decode: int
    episodes: int


@dataclass(frozen=True)
class Found:
    """Everything."""

    model: str
    model_bytes: int
    info: EngineInfo
    exactness: Exactness
    speeds: Speeds
    streams: tuple[Streams, ...]
    left_out: tuple[int, ...]
    # Numbers of streams for which no time was left.
    paper: Paper
    seconds: float


def hours(paper: Paper, prefill: float, decode: float) -> float:
    """Hours of the paper's cells at these speeds, in tokens per second."""
    return _CELLS * (paper.prefill / prefill + paper.decode / decode) / 3600


def describe(found: Found) -> str:
    """As Markdown."""
    exact, speed = found.exactness, found.speeds
    lines = [
        f"{found.model}, {found.model_bytes / 1e9:.2f} GB, on {found.info.device} "
        f"({found.info.offloaded_layers} layers offloaded), llama.cpp {found.info.llama_commit[:7]}",
        "",
        f"- fork = fresh: {exact.fork_is_fresh} of {exact.episodes} episodes, every logit",
        f"- rerun = rerun: {exact.rerun_is_rerun} of {exact.episodes} episodes, every logit; "
        f"{exact.written_again} of {exact.written} turns of its own, every character",
        f"- one stream: {speed.prefill:,.0f} tokens/s read, {speed.decode:,.1f} tokens/s written",
        "- memory-bandwidth floor: "
        + (
            f"{speed.floor:,.1f} tokens/s ({speed.floor_source}), reached {speed.decode / speed.floor:.0%}"
            if speed.floor
            else speed.floor_source
        ),
        f"- a cell of the paper's size: {found.paper.episodes} episodes, {found.paper.prefill:,} tokens read "
        f"and {found.paper.decode:,} written in the tree",
        "",
        "| streams | walk, s | episodes | written/s | against 1 | cells per hour | 25 cells, h | GPU, GB |",
        "|" + "---|" * 8,
    ]
    lines += [_stream_row(found, one) for one in found.streams]
    if found.left_out:
        lines += ["", f"No time was left for {', '.join(map(str, found.left_out))} streams."]
    return "\n".join([*lines, "", f"{found.seconds:.0f} s in all"])


def _stream_row(found: Found, one: Streams) -> str:
    if one.refused:
        return f"| {one.streams} | refused: {one.refused} |" + " |" * 6
    first = next((other for other in found.streams if other.streams == 1 and not other.refused), None)
    gain = f"{one.rate / first.rate:.2f}" if first else ""
    # The prompt is read as fast as one stream reads it: segments are evaluated one by one in any case.
    took = hours(found.paper, found.speeds.prefill, one.rate)
    memory = f"{one.device_bytes / 1e9:.1f}" if one.device_bytes else ""
    return (
        f"| {one.streams} | {one.walk_seconds:.1f} | {one.episodes} | {one.rate:,.0f} | {gain} "
        f"| {_CELLS / took:,.0f} | {took:.2f} | {memory} |"
    )
