"""The world `agentdojo`: its checks are the verdict, every fault is delivered, a state is a value."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest

from qfr.canonical import canonical
from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules, Scripts
from qfr.errors import ConfigError
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.world import agentdojo
from qfr.world.authoring import arguments_of
from qfr.world.base import Found, Habits, Suite, Transcript, sites
from qfr.world.plain import native

INSTALLED = find_spec("agentdojo") is not None
needs_package = pytest.mark.skipif(not INSTALLED, reason=f"agentdojo is not installed: {agentdojo.INSTALL}")
RULES = Rules(ExecutorKind.tolerant, 60, 60, 4000, "down", "It is down.", 0)
KINDS = tuple(kind for kind in FaultKind if kind is not FaultKind.none)


@cache
def world() -> agentdojo.AgentDojoWorld:
    return agentdojo.of_suite(Suite({"banking": 3, "slack": 2, "travel": 2, "workspace": 3}))


def play(kind: FaultKind, habits: Habits) -> tuple[list[Episode], list[Episode]]:
    tasks = {task.text: task for task in world().tasks}
    clean: list[Episode] = []
    faulty: list[Episode] = []

    def policy(_system: str, text: str, transcript: Transcript) -> str:
        return world().next_turn(tasks[text], transcript, habits)

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
        agentdojo.of_suite(Suite({"slack": 1}))
    assert caught.value.hint == agentdojo.INSTALL


@needs_package
def test_verdicts_are_those_of_the_benchmark_on_gold_and_shortened_trajectories() -> None:
    """The benchmark's own side runs on its own environment, without a state that is frozen in between."""
    rng, seen = np.random.default_rng(3), set()
    for task in world().tasks:
        entry = world()._entries[task.id]
        for drop in (None, *rng.integers(len(task.gold_calls), size=3).tolist()):
            calls = [call for place, call in enumerate(task.gold_calls) if place != drop]
            env, state = agentdojo.environment(entry), world().start(task)
            for call in calls:
                given = native(dict(arguments_of(call.arguments)))
                result, error = agentdojo.run(entry, env, call.tool, given)
                state, outcome = world().call(task, state, call.tool, arguments_of(call.arguments))
                assert isinstance(outcome, Found) == (error is None)
                if isinstance(outcome, Found):
                    assert outcome.record == agentdojo.record_of(result)
            made = [[call.tool, call.arguments] for call in calls]
            theirs = agentdojo.utility(entry, str(task.answer), env, made)
            assert world().check(task, state, str(task.answer)).right == theirs
            assert theirs or drop is not None
            seen.add(theirs)
        assert not world().check(task, world().start(task), None).right
    assert seen == {True, False}


@needs_package
@pytest.mark.parametrize("kind", KINDS)
def test_the_gold_agent_is_right_and_every_fault_is_delivered_and_replays(kind: FaultKind) -> None:
    clean, faulty = play(kind, Habits(attempts=4))
    assert successes(clean) == len(world().tasks)
    assert len(faulty) == sum(len(sites(task, kind)) for task in world().tasks) > 0
    scripts = Scripts(world(), "system", RULES, lambda: ScriptedEngine(lambda *_: "").info)
    for one in faulty:
        assert score(one, Policy.tolerant).delivered
        task = next(task for task in world().tasks if task.id == one.task)
        assert one.trace is not None
        assert scripts.replay(one, sites(task, kind)[one.trace.site]) == one
    if kind is FaultKind.et:
        assert successes(faulty) == len(faulty)
        assert successes(play(kind, Habits(attempts=1))[1]) == 0


@needs_package
def test_calls_leave_the_state_they_are_given_as_it_was() -> None:
    for task in world().tasks:
        state = world().start(task)
        before = canonical(state)
        for call in task.gold_calls:
            world().call(task, state, call.tool, arguments_of(call.arguments))
        assert canonical(state) == before
