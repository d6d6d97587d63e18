"""A million calls with hostile arguments over all built-in worlds: none raises, none changes a given state.

    python benchmarks/hostile_calls.py [CALLS]

Prints calls, the slowest call in milliseconds of its thread and how many were carried out.
"""

from __future__ import annotations

import sys
import time
from decimal import Decimal

import numpy as np

from qfr.canonical import Json, canonical
from qfr.protocol import read_turn
from qfr.records import Role
from qfr.world.authoring import arguments_of
from qfr.world.base import Found, Suite, task_tools
from qfr.world.finding import BUILT_IN

FAMILIES = {
    "orders": {"base": 3, "shipping": 3, "two_order": 3, "distractor": 3},
    "ledger": {"pay": 4, "split": 4, "refund": 4},
}
ODD: list[Json] = [None, True, "", "\ud800", "x" * 200, [], {}, ["a"], {"a": None}]
ODD += [Decimal(text) for text in ("0", "-1", "1e300", "0.001", "12.50", "1" * 300)]


def main(calls: int) -> None:
    rng = np.random.default_rng(1)
    worlds = [BUILT_IN[name](Suite(families)) for name, families in FAMILIES.items()]
    slowest = done = found = 0.0
    while done < calls:
        world = worlds[int(rng.integers(len(worlds)))]
        task = world.tasks[int(rng.integers(len(world.tasks)))]
        tools = task_tools(world, task)
        gold = [value for call in task.gold_calls for value in arguments_of(call.arguments).values()]
        values, state = [*gold, *gold, *ODD], world.start(task)
        for _ in range(20):
            tool = tools[int(rng.integers(len(tools)))]
            given = {p.name: values[int(rng.integers(len(values)))] for p in tool.parameters}
            started = time.thread_time()
            parsed = read_turn(canonical({"tool": tool.name, "arguments": given}), tools, repair=True)
            if parsed.tool is not None and parsed.tool.role in (Role.lookup, Role.write):
                before = canonical(state)
                after, outcome = world.call(task, state, tool.name, parsed.arguments)
                assert canonical(state) == before
                canonical(after)
                state, found = after, found + isinstance(outcome, Found)
            slowest = max(slowest, time.thread_time() - started)
            done += 1
    print(f"{done:,.0f} calls, {found:,.0f} carried out, the slowest in {slowest * 1000:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
