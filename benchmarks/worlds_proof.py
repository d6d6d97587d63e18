"""A world without a model: an agent that plays the gold paths, with a known skill, through every site.

    python benchmarks/worlds_proof.py WORLD FAMILY=COUNT,… [SKILL]

Prints clean successes (all), ET recoveries at the skill with their 99.9 % interval and at skill 0, and the
duplicate writes under LA of an agent that always retries and of one that looks first. Exit code 1: something
is not as it has to be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy.stats import binomtest

from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world.base import Habits, Suite, Transcript, World
from qfr.world.finding import build_world

MESSAGE = "The service did not answer the request."
RULES = Rules(ExecutorKind.tolerant, 200, 200, 100_000, "service_unavailable", MESSAGE, 0)
Chosen = Callable[[str, Transcript], Habits]


def play(world: World, kind: FaultKind, habits: Chosen) -> tuple[list[Episode], list[Episode]]:
    """Clean episodes and those with a fault."""
    tasks = {task.text: task for task in world.tasks}
    clean: list[Episode] = []
    faulty: list[Episode] = []

    def policy(_system: str, text: str, transcript: Transcript) -> str:
        return world.next_turn(tasks[text], transcript, habits(tasks[text].id, transcript))

    walk(
        Episodes(ScriptedEngine(policy), world, "system", RULES),
        Track("clean", FaultKind.none, Gate.certified, {}),
        (Track("faulty", kind, Gate.certified, {}),),
        lambda track, episode, _: (clean if track.kind is FaultKind.none else faulty).append(episode),
    )
    return clean, faulty


def good(episodes: list[Episode]) -> int:
    """Successes."""
    return sum(score(one, Policy.strict).success for one in episodes)


def skilled(skill: float, rng: np.random.Generator) -> Chosen:
    """An agent that retries in this share of the episodes: one draw per place where a fault is met."""
    draws: dict[str, bool] = {}

    def habits(task: str, transcript: Transcript) -> Habits:
        failed = next((at for at, turn in enumerate(transcript) if MESSAGE in turn[1]), -1)
        retries = draws.setdefault(f"{task} {failed}", bool(rng.random() < skill))
        return Habits(attempts=3 if retries else 1)

    return habits


def written(episodes: list[Episode]) -> int:
    """Duplicate writes."""
    return sum(one.acts.duplicate_writes for one in episodes if one.acts is not None)


def main(name: str, families: dict[str, int], skill: float) -> int:
    world, rng = build_world(name, Suite(families)), np.random.default_rng(1)
    clean, faulty = play(world, FaultKind.et, skilled(skill, rng))
    recovered = good(faulty)
    limits = binomtest(recovered, len(faulty)).proportion_ci(0.999)
    none = good(play(world, FaultKind.et, lambda *_: Habits(attempts=1))[1])
    lost = play(world, FaultKind.la, lambda *_: Habits(attempts=2))[1]
    looked = play(world, FaultKind.la, lambda *_: Habits(attempts=2, reads_first=True))[1]
    print(f"clean {good(clean)} of {len(world.tasks)}")
    share = f"{recovered} of {len(faulty)} [{limits.low:.3f}, {limits.high:.3f}]"
    print(f"ET at skill {skill}: {share}; at 0: {none}")
    print(f"LA: {len(lost)} sites, duplicate writes {written(lost)}; looking first {written(looked)}")
    right = good(clean) == len(world.tasks) and none == 0 and limits.low <= skill <= limits.high
    return int(not right)


if __name__ == "__main__":
    counts = dict(one.split("=") for one in sys.argv[2].split(","))
    sys.exit(
        main(
            sys.argv[1],
            {name: int(count) for name, count in counts.items()},
            float(sys.argv[3]) if len(sys.argv) > 3 else 0.7,
        )
    )
