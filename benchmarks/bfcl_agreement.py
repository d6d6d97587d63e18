"""Our verdict on BFCL trajectories against the benchmark's own checker: gold, and mutations of it.

    python benchmarks/bfcl_agreement.py [MUTATIONS] [SEED]

Plays every gold trajectory of all 800 tasks, and as many mutated ones as asked for, through the world
`bfcl_multi_turn` and through bfcl-eval's `multi_turn_checker`, and prints the disagreements. The checker's
classes are given the clock of ours (`qfr.world.plain.Clock`). Exit code 1: they disagree.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from qfr.canonical import Json
from qfr.world import bfcl
from qfr.world.base import Suite, Task
from qfr.world.bfcl.live import Live
from qfr.world.bfcl.package import Entry, entries, root
from qfr.world.bfcl.tasks import read_call
from qfr.world.plain import native, stand_still

Call = tuple[str, dict[str, Json]]
Turns = list[list[Call]]
Change = Callable[[Turns, np.random.Generator], None]
_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_fresh = count()


def trajectory(entry: Entry) -> Turns:
    """The gold calls of an entry, by turn, with named arguments."""
    live = Live.start(entry)
    read = [[read_call(text) for text in calls] for calls in entry.gold]
    return [[(name, live.arguments(name, given, named)) for name, given, named in calls] for calls in read]


def ours(world: bfcl.BfclWorld, task: Task, turns: Turns) -> bool:
    """The verdict of our world."""
    state = world.start(task)
    for number, calls in enumerate(turns):
        state = world.heard(task, state) if number else state
        for name, arguments in calls:
            state, _ = world.call(task, state, name, arguments)
    return world.check(task, state, None).right


def theirs(entry: Entry, turns: Turns) -> bool:
    """The verdict of the benchmark."""
    written = [
        [[f"{name}({', '.join(f'{key}={native(value)!r}' for key, value in arguments.items())})"]
         for name, arguments in calls]
        for calls in turns
    ]  # fmt: skip
    row = {"id": entry.id, "initial_config": entry.config, "involved_classes": list(entry.classes)}
    gold = [list(calls) for calls in entry.gold]
    # The checker keeps its objects in its module under this name.
    name = f"model{next(_fresh)}"
    judged: dict[str, Any] = checker().multi_turn_checker(written, gold, row, "multi_turn", name)
    return bool(judged["valid"])


def checker() -> Any:
    """The benchmark's checker, whose classes use the clock that stands still."""
    root()
    for name in ("travel_booking", "trading_bot"):
        stand_still(importlib.import_module(f"{_SOURCES}.{name}"))
    return importlib.import_module(_CHECKER)


def drop(turns: Turns, rng: np.random.Generator) -> None:
    """Leave a call out."""
    calls = _some(turns, rng)
    calls.pop(int(rng.integers(len(calls))))


def double(turns: Turns, rng: np.random.Generator) -> None:
    """Make a call twice."""
    calls = _some(turns, rng)
    place = int(rng.integers(len(calls)))
    calls.insert(place, calls[place])


def swap(turns: Turns, rng: np.random.Generator) -> None:
    """Exchange two calls of a turn."""
    calls = _some(turns, rng)
    one, other = rng.integers(len(calls), size=2)
    calls[one], calls[other] = calls[other], calls[one]


def shift(turns: Turns, rng: np.random.Generator) -> None:
    """Make a call in another turn."""
    calls = _some(turns, rng)
    call = calls.pop(int(rng.integers(len(calls))))
    turns[int(rng.integers(len(turns)))].append(call)


def lend(turns: Turns, rng: np.random.Generator) -> None:
    """Give a call another one's value."""
    calls = _some(turns, rng)
    place = int(rng.integers(len(calls)))
    name, arguments = calls[place]
    values = [value for turn in turns for _, given in turn for value in given.values()]
    if arguments:
        key = list(arguments)[int(rng.integers(len(arguments)))]
        arguments = {**arguments, key: values[int(rng.integers(len(values)))]}
    calls[place] = (name, arguments)


def cut(turns: Turns, rng: np.random.Generator) -> None:
    """Do nothing from a turn on."""
    for calls in turns[int(rng.integers(len(turns))) :]:
        calls.clear()


CHANGES: tuple[Change, ...] = (drop, double, swap, shift, lend, cut)


def _some(turns: Turns, rng: np.random.Generator) -> list[Call]:
    full = [calls for calls in turns if calls]
    return full[int(rng.integers(len(full)))]


def mutated(entry: Entry, rng: np.random.Generator) -> tuple[str, Turns]:
    """A trajectory with one change, and the change's name."""
    turns = trajectory(entry)
    change = CHANGES[int(rng.integers(len(CHANGES)))]
    change(turns, rng)
    return change.__name__, turns


def main(mutations: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    world = bfcl.of_suite(Suite(dict.fromkeys(bfcl.FAMILIES, 200)))
    by_id = {one.id: one for family in bfcl.FAMILIES for one in entries(family)}
    pairs = [(task, by_id[f"multi_turn_{task.family}_{int(task.id[-3:])}"]) for task in world.tasks]
    seen: Counter[str] = Counter()
    wrong = 0
    for task, entry in pairs:
        gold = trajectory(entry)
        verdicts = ours(world, task, gold), theirs(entry, gold)
        seen[f"gold, ours {verdicts[0]}, theirs {verdicts[1]}"] += 1
        wrong += verdicts != (True, True)
    for _ in range(mutations):
        task, entry = pairs[int(rng.integers(len(pairs)))]
        name, turns = mutated(entry, rng)
        verdicts = ours(world, task, turns), theirs(entry, turns)
        seen[f"{name}, ours {verdicts[0]}, theirs {verdicts[1]}"] += 1
        if verdicts[0] != verdicts[1]:
            wrong += 1
            print(f"{task.id} {name}: ours {verdicts[0]}, theirs {verdicts[1]}\n  {turns}")
    for what, times in sorted(seen.items()):
        print(f"{times:6d}  {what}")
    print(f"{wrong} disagreements")
    return int(wrong > 0)


if __name__ == "__main__":
    told = [int(one) for one in sys.argv[1:]]
    sys.exit(main(*(told + [1000, 1][len(told) :])))
