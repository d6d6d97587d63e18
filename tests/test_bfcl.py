"""The world `bfcl_multi_turn`: verdicts of the benchmark, every fault delivered, states that are values."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.stats import binomtest

from qfr.canonical import canonical
from qfr.cell import Track, walk
from qfr.commands.checks.world_checks import check_world
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules, Scripts
from qfr.errors import ConfigError
from qfr.protocol import read_turn
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world import bfcl
from qfr.world.authoring import arguments_of
from qfr.world.base import Found, Habits, Site, Suite, Task, Transcript, sites, task_tools
from qfr.world.bfcl import package
from qfr.world.bfcl.live import Live

INSTALLED = find_spec("bfcl_eval") is not None
needs_package = pytest.mark.skipif(
    not INSTALLED, reason=f"{package.PACKAGE} is not installed: {package.INSTALL}"
)
SUITE = Suite({"base": 5, "miss_func": 2, "miss_param": 2, "long_context": 1})
RULES = Rules(ExecutorKind.tolerant, 80, 40, 4000, "down", "It is down.", 0)
Choice = Callable[[Task, Transcript], Habits]


@cache
def world() -> bfcl.BfclWorld:
    return bfcl.of_suite(SUITE)


def play(kind: FaultKind, habits: Choice) -> tuple[list[Episode], list[Episode]]:
    """Clean episodes and fault episodes of an agent that follows the gold paths."""
    tasks = {task.text: task for task in world().tasks}
    clean: list[Episode] = []
    faulty: list[Episode] = []

    def policy(_system: str, text: str, transcript: Transcript) -> str:
        return world().next_turn(tasks[text], transcript, habits(tasks[text], transcript))

    walk(
        Episodes(ScriptedEngine(policy), world(), "system", RULES),
        Track("c-none", FaultKind.none, Gate.certified, {}),
        (Track("c", kind, Gate.certified, {}),),
        lambda track, episode, _: (clean if track.kind is FaultKind.none else faulty).append(episode),
    )
    return clean, faulty


def successes(episodes: list[Episode]) -> int:
    return sum(score(episode, Policy.strict).success for episode in episodes)


@pytest.mark.skipif(INSTALLED, reason="the package is installed")
def test_without_the_package_one_line_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError) as caught:
        bfcl.of_suite(SUITE)
    assert caught.value.hint == package.INSTALL


@needs_package
@pytest.mark.parametrize(
    ("suite", "told"),
    [
        (Suite({"bse": 1}), "did you mean 'base'"),
        (Suite({"base": 201}), "of which there are 200"),
        (Suite({"base": 1}, seed=-1), "negative"),
        (Suite({"base": 1}, options={"turns": Decimal(1)}), "no option 'turns'"),
    ],
)
def test_a_suite_that_cannot_be_is_refused(suite: Suite, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        bfcl.of_suite(suite)


@needs_package
def test_verdicts_are_those_of_the_benchmarks_own_checker() -> None:
    from benchmarks.bfcl_agreement import mutated, ours, theirs, trajectory

    rng, seen = np.random.default_rng(3), set()
    by_id = {
        f"{one.family}-{int(one.id.split('_')[-1]):03d}": one
        for f in bfcl.FAMILIES
        for one in package.entries(f)
    }
    for task in world().tasks:
        entry = by_id[task.id]
        gold = trajectory(entry)
        assert ours(world(), task, gold)
        assert theirs(entry, gold)
        for _ in range(6):
            _, turns = mutated(entry, rng)
            verdict = ours(world(), task, turns)
            assert verdict == theirs(entry, turns), (task.id, turns)
            seen.add(verdict)
    assert seen == {True, False}


@needs_package
def test_the_world_keeps_to_what_a_world_has_to_keep_to() -> None:
    found = check_world(bfcl.NAME, Suite({"base": 2, "miss_func": 1, "long_context": 1}))
    assert found.mistakes == ()
    again, larger = bfcl.of_suite(SUITE), bfcl.of_suite(Suite(dict.fromkeys(bfcl.FAMILIES, 8)))
    by_id = {task.id: task for task in larger.tasks}
    for task in again.tasks:
        assert by_id[task.id] == task
        assert larger.content(task) == world().content(task)


@needs_package
def test_tools_that_come_later_are_shown_later() -> None:
    task = next(task for task in world().tasks if task.family == "miss_func")
    entry = world()._entries[task.id]
    ((turn, names),) = entry.missed.items()
    for name in names:
        assert f"- {name}(" not in task.text
        assert f"- {name}(" in task.follow_ups[turn - 1]


@needs_package
def test_the_gold_agent_is_always_right_and_recovers_by_its_skill() -> None:
    rng = np.random.default_rng(5)
    clean, faulty = play(FaultKind.et, lambda *_: Habits())
    assert successes(clean) == len(world().tasks)
    assert (
        successes(faulty) == len(faulty) == sum(len(sites(task, FaultKind.et)) for task in world().tasks) > 5
    )
    assert all(score(one, Policy.tolerant).delivered for one in faulty)
    assert successes(play(FaultKind.et, lambda *_: Habits(attempts=1))[1]) == 0
    # One draw per fault episode: the agent gives up at the first error, or does not.
    draws: dict[str, bool] = {}

    def skilled(task: Task, transcript: Transcript) -> Habits:
        failed = next((at for at, turn in enumerate(transcript) if "It is down." in turn[1]), 0)
        key = f"{task.id} {failed}"
        return Habits(attempts=3 if draws.setdefault(key, bool(rng.random() < 0.6)) else 1)

    recovered = successes(play(FaultKind.et, skilled)[1])
    interval = binomtest(recovered, len(faulty)).proportion_ci(0.999)
    assert interval.low <= 0.6 <= interval.high


@needs_package
def test_a_blind_retry_writes_twice_where_the_benchmark_lets_it() -> None:
    """Counted apart from the world: each call of the ground truth is made twice on objects of its own."""
    expected = {
        (task.id, site.index): _twice(task, site)
        for task in world().tasks
        for site in sites(task, FaultKind.la)
    }
    _, blind = play(FaultKind.la, lambda *_: Habits(attempts=2))
    counted = {
        (one.task, one.trace.site): one.acts.duplicate_writes for one in blind if one.trace and one.acts
    }
    assert counted == expected
    assert 0 < sum(expected.values()) < len(expected)
    _, careful = play(FaultKind.la, lambda *_: Habits(attempts=2, reads_first=True))
    shown = {
        (task.id, site.index) for task in world().tasks for site in sites(task, FaultKind.la)
        if world().proofs(task)[site.call] is not None
    }  # fmt: skip
    for one in careful:
        assert one.trace is not None
        assert one.acts is not None
        place = (one.task, one.trace.site)
        assert one.acts.duplicate_writes == (0 if place in shown else expected[place])
        assert score(one, Policy.strict).success or place not in shown
    assert len(shown) > len(expected) / 4


def _twice(task: Task, site: Site) -> int:
    live = Live.start(world()._entries[task.id])
    for call in task.gold_calls[: site.call + 1]:
        live.call(call.tool, arguments_of(call.arguments))
    before = live.public()
    live.call(site.tool, arguments_of(site.arguments))
    return int(live.public() != before)


@needs_package
@pytest.mark.parametrize(
    "kind", [kind for kind in FaultKind if kind not in (FaultKind.none, FaultKind.et, FaultKind.la)]
)
def test_every_kind_is_delivered_and_replays_from_its_log(kind: FaultKind) -> None:
    _, faulty = play(kind, lambda *_: Habits(attempts=4))
    assert faulty
    scripts = Scripts(world(), "system", RULES, lambda: ScriptedEngine(lambda *_: "").info)
    for one in faulty:
        assert score(one, Policy.tolerant).delivered
        task = next(task for task in world().tasks if task.id == one.task)
        assert one.trace is not None
        assert scripts.replay(one, sites(task, kind)[one.trace.site]) == one


@needs_package
def test_no_value_of_a_model_breaks_a_tool_or_keeps_it_busy() -> None:
    rng = np.random.default_rng(7)
    odd = [None, True, "", "\ud800", "a/b", "..", "x" * 300, [], {}, ["a"], [Decimal(1)], {"a": None}]
    odd += [Decimal(text) for text in ("0", "-1", "1e300", "0.001", "9" * 17, "9" * 300, "1e4000")]
    for task in world().tasks[::3]:
        state, tools = world().start(task), task_tools(world(), task)
        gold = [value for call in task.gold_calls for value in arguments_of(call.arguments).values()]
        values = [*gold, *gold, *odd]
        for _ in range(150):
            tool = tools[int(rng.integers(len(tools)))]
            given = {p.name: values[int(rng.integers(len(values)))] for p in tool.parameters}
            parsed = read_turn(canonical({"tool": tool.name, "arguments": given}), tools, repair=True)
            if parsed.problem is None and tool.name != "report_failure":
                before = canonical(state)
                after, outcome = world().call(task, state, tool.name, parsed.arguments)
                assert canonical(state) == before
                canonical(after)
                canonical(outcome.record if isinstance(outcome, Found) else outcome.message)
                state = after
