"""How fast a model file evaluates here: prefill and decode, measured in about ten seconds, and remembered."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from qfr.config import CellConfig
from qfr.engine.base import Ask
from qfr.engine.worker import WorkerEngine
from qfr.play.exactness import combination

FOLDER = "speed"
SECONDS = 10.0

# A paragraph of about 60 tokens, and a turn of about 30.
_TEXT = (
    "In each turn write exactly one JSON object with the keys tool and arguments, and nothing else. A tool "
    "may fail; a call may be repeated. The answer is a number. Amounts are in euros, rates between 0 and 1. "
)
_TURN = '{"tool": "get_order", "arguments": {"order_id": "ORD-4711"}}'
_MOST_PARAGRAPHS = 16


@dataclass(frozen=True)
class Speed:
    """Tokens per second of one file, build, device and engine configuration."""

    prefill: float
    # Evaluated in segments.
    decode: float
    # One by one, of all streams together.
    seconds: float
    # The measurement took.


def measure(engine: WorkerEngine, streams: int, seconds: float = SECONDS) -> Speed:
    """Evaluate new texts and write turns by force until the time is over.

    The first round warms up and is not counted; texts grow while a round is short, so that a slow machine is
    done in time too.

    Raises
    ------
    MachineryError
        The engine broke.
    """
    began = time.perf_counter()
    paragraphs, rounds = 1, 0
    while True:
        started = time.perf_counter()
        _round(engine, streams, f"Round {rounds}. " + _TEXT * paragraphs)
        rounds += 1
        if rounds == 1:
            engine.reset_counters()
        elif time.perf_counter() - began > seconds:
            break
        if time.perf_counter() - started < seconds / 10:
            paragraphs = min(2 * paragraphs, _MOST_PARAGRAPHS)
    found = engine.counters()
    return Speed(
        prefill=found.prefill_tokens / found.prefill_seconds,
        decode=found.decode_tokens / found.decode_seconds,
        seconds=time.perf_counter() - began,
    )


def _round(engine: WorkerEngine, streams: int, system: str) -> None:
    if streams == 1:
        engine.begin(system, "The task.", 64, forced=_TURN)
        engine.reply("The observation.", 64, forced=_TURN)
        return
    open_turns = len(engine.advance(tuple(Ask(n, system, f"Task {n}.", 64, _TURN) for n in range(streams))))
    while open_turns < streams:
        open_turns += len(engine.advance(()))


def remember(root: Path, cell: CellConfig, engine: WorkerEngine, speed: Speed) -> Path:
    """Keep a measurement for `mode=plan`; its file.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    place = root / FOLDER / f"{combination(engine.info, cell.engine)}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    about = {"model": cell.model.name, "quant": cell.quant.preset, "streams": cell.engine.streams,
             "n_threads": cell.engine.n_threads, "device": engine.info.device}  # fmt: skip
    draft = place.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(speed) | about, sort_keys=True, indent=1) + "\n", "utf-8")
    draft.replace(place)
    return place


@dataclass(frozen=True)
class Measured:
    """A remembered measurement."""

    model: str
    quant: str
    streams: int
    n_threads: int
    speed: Speed


def remembered(root: Path) -> tuple[Measured, ...]:
    """All measurements of a store's folder that can be read, the newest last."""
    found = []
    try:
        files = sorted((root / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)
    except OSError:
        # A folder that may not be read holds nothing for us; opening the store says what is wrong.
        return ()
    for path in files:
        try:
            raw = json.loads(path.read_text("utf-8"))
            speed = Speed(float(raw["prefill"]), float(raw["decode"]), float(raw["seconds"]))
            one = Measured(
                str(raw["model"]), str(raw["quant"]), int(raw["streams"]), int(raw["n_threads"]), speed
            )
        except (OSError, ValueError, KeyError, TypeError):
            # Another program's file, or one cut short: a plan does without it.
            continue
        found.append(one)
    return tuple(found)
