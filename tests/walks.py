"""Plays a small walk of a reference agent into journals, also as a child process. Not a test file."""

from __future__ import annotations

import sys
from pathlib import Path

from engine_builders import engine_config

from qfr.cell import Record, Track, key_of, walk, walk_together
from qfr.config import ExecutorKind, Gate
from qfr.engine.base import Counters
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.streams import LlamaStreams
from qfr.episode import Episodes, Rules, Together
from qfr.journal import Journal, log_bytes
from qfr.records import Episode, FaultKind
from qfr.world import orders
from qfr.world.base import World

ROOT = Path(__file__).parent.parent
RULES = Rules(
    ExecutorKind.tolerant, 12, 10, 160, "service_unavailable", "The service did not answer the request.", 0
)
N_CTX = 2048


def reference_agent(name: str, folder: Path) -> ModelFile:
    return open_model(ROOT / "qfr" / "reference" / "models" / f"{name}-F16.gguf", folder)


def small_world(tasks: int = 3) -> World:
    return orders.build({"base": tasks, "shipping": tasks}, 2026, "round")


def prompt(name: str = "P0") -> str:
    return (ROOT / "prompts" / f"{name}.md").read_text("utf-8")


class Walked:
    """A walk in a folder: one journal per kind, resumed where they hold something."""

    def __init__(self, folder: Path, kinds: tuple[FaultKind, ...]) -> None:
        self._journals = {kind: Journal(folder / str(kind)) for kind in (FaultKind.none, *kinds)}
        self.done = {
            kind: {key_of(one): one for one in journal.episodes()} for kind, journal in self._journals.items()
        }
        self._left: int | None = None

    def tracks(self) -> tuple[Track, tuple[Track, ...]]:
        made = [Track(f"c-{kind}", kind, Gate.certified, done) for kind, done in self.done.items()]
        return made[0], tuple(made[1:])

    def record(self, stop_after: int | None = None) -> Record:
        self._left = stop_after

        def keep(track: Track, episode: Episode, seconds: float) -> None:
            if self._left == 0:
                raise InterruptedError
            self._journals[track.kind].append(episode, {"seconds": seconds})
            self.done[track.kind][key_of(episode)] = episode
            self._left = None if self._left is None else self._left - 1

        return keep

    def log(self, kind: FaultKind) -> bytes:
        return log_bytes(self.done[kind].values())


def play_streams(file: ModelFile, streams: int, walked: Walked, stop_after: int | None = None) -> Counters:
    engine = LlamaStreams(file, engine_config(streams=streams), N_CTX)
    try:
        together = Together(engine, streams, small_world(), prompt(), RULES)
        walk_together(together, *walked.tracks(), walked.record(stop_after))
        return engine.counters()
    finally:
        engine.close()


def play_one(file: ModelFile, walked: Walked) -> Counters:
    engine = LlamaEngine(file, engine_config(), N_CTX)
    try:
        walk(Episodes(engine, small_world(), prompt(), RULES), *walked.tracks(), walked.record())
        return engine.counters()
    finally:
        engine.close()


if __name__ == "__main__":
    # FOLDER MODEL STREAMS: a child that a test can kill.
    where = Path(sys.argv[1])
    play_streams(
        reference_agent(sys.argv[2], where), int(sys.argv[3]), Walked(where, (FaultKind.et, FaultKind.ep))
    )
