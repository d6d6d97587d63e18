"""A second, ten-line world runs through a whole cell, and walks visit every site in forking order."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from qfr.canonical import read_json
from qfr.cell import Track, certified, most_episodes, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import Policy as Script
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules
from qfr.errors import EngineError
from qfr.records import Ending, Episode, FaultKind, Kind, Parameter, Policy, Role, Tool
from qfr.scoring import score
from qfr.world.authoring import BaseWorld, Record, lookup
from qfr.world.base import NotFound, State, Suite, Task, sites

Transcript = tuple[tuple[str, str], ...]


class Rooms(BaseWorld):
    """Find the seat count of the room of a building: building -> room -> seats. No order-management word."""

    name, plain = "rooms", True
    ends = (
        Tool("submit", Role.submit, (Parameter("seats", Kind.number, ""),), ""),
        Tool("give_up", Role.report, (Parameter("why", Kind.string, ""),), ""),
    )

    def __init__(self) -> None:
        super().__init__(Suite({"only": 3}), tuple(self._task(i, b) for i, b in enumerate("xyz")))

    def _task(self, i: int, building: str) -> Task:
        gold = (self.gold("find_room", building=building), self.gold("count_seats", 0, room=f"r{i}"))
        return self.task(f"only-{i}", f"Seats in {building}?", gold, Decimal(10 * i + 7))

    def start(self, task: Task) -> State:
        return None

    @lookup
    def find_room(self, state: State, building: str) -> Record | NotFound:
        known = building in {"x", "y", "z"}
        return {"building": building, "room": f"r{'xyz'.index(building)}"} if known else NotFound("no such")

    @lookup
    def count_seats(self, state: State, room: str) -> Record | NotFound:
        known = room in {"r0", "r1", "r2"}
        return {"room": room, "seats": Decimal(10 * int(room[1]) + 7)} if known else NotFound("no such")


def turn(tool: str, **arguments: object) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def agent(attempts: int, requery: bool = False) -> Script:
    """Follows the path, calls an erring tool `attempts` times, and re-asks a wrong echo where `requery`."""

    def policy(system: str, task: str, past: Transcript) -> str:
        building = task.removesuffix("?")[-1]
        call = turn("find_room", building=building)
        fails = 0
        for text, observation in past:
            answer = read_json(observation.removeprefix("Observation: "))
            assert isinstance(answer, dict)
            result = answer.get("result")
            if not isinstance(result, dict):
                fails += 1
                if fails >= attempts:
                    return turn("give_up", why="dead")
                call = text
            elif "seats" in result:
                return turn("submit", seats=int(str(result["seats"])))
            elif requery and result["building"] != building:
                call = text
            else:
                call = turn("count_seats", room=result["room"])
        return call

    return policy


def play(
    policy: Script, kinds: tuple[FaultKind, ...], gate: Gate = Gate.certified, done: int = 0
) -> dict[str, list[Episode]]:
    engine = ScriptedEngine(policy)
    rules = Rules(ExecutorKind.tolerant, 12, 10, 160, "down", "It is down.", 0)
    episodes = Episodes(engine, Rooms(), "You find seats.", rules)
    found: dict[str, list[Episode]] = {kind: [] for kind in ("none", *kinds)}
    walk(
        episodes,
        Track("c-none", FaultKind.none, gate, {}),
        tuple(Track(f"c-{kind}", kind, gate, {}) for kind in kinds),
        lambda track, episode, seconds: found[track.kind].append(episode),
    )
    return found


FAULTS = (FaultKind.et, FaultKind.it, FaultKind.ep)


def test_a_second_world_runs_through_a_whole_cell() -> None:
    played = play(agent(attempts=3), FAULTS)
    assert [len(played[kind]) for kind in ("none", "et", "it", "ep")] == [3, 3, 3, 3]
    assert all(certified(episode) for episode in played["none"])
    assert most_episodes(Rooms(), FAULTS) == 12
    for episode in played["et"]:
        assert score(episode, Policy.tolerant).success
        assert episode.trace is not None
        assert (episode.trace.fired, episode.trace.witnessed, episode.trace.retried) == (1, 2, 2)
        assert episode.trace.recovered == 2
        assert episode.errors == 0, "an injected fault is not the agent's error"
    for episode in played["ep"]:
        assert episode.ending is Ending.reported_failure
        assert episode.trace is not None
        assert episode.trace.dead_calls == 3
        assert score(episode, Policy.strict).success
        assert not score(episode, Policy.strict, ep_min_calls=4).success
    for episode in played["it"]:
        verdict = score(episode, Policy.tolerant)
        assert (verdict.success, verdict.requeried, verdict.reason) == (False, False, "wrong_answer")


def test_requeried_is_apart_from_the_right_answer() -> None:
    for episode in play(agent(attempts=3, requery=True), (FaultKind.it,))["it"]:
        verdict = score(episode, Policy.tolerant)
        assert (verdict.success, verdict.requeried) == (True, True)


def test_giving_up_at_once_is_no_recovery_and_an_early_report() -> None:
    played = play(agent(attempts=1), FAULTS)
    assert {score(e, Policy.tolerant).reason for e in played["et"]} == {"gave_up"}
    for episode in played["ep"]:
        verdict = score(episode, Policy.tolerant)
        assert (verdict.reported, verdict.reported_after, verdict.success) == (True, False, False)
        assert verdict.reason == "reported_early"


def test_only_certified_tasks_get_faults_unless_the_gate_is_open() -> None:
    def wrong(system: str, task: str, past: Transcript) -> str:
        return turn("submit", seats=1)

    assert play(wrong, FAULTS)["et"] == []
    ungated = play(wrong, FAULTS, Gate.none)
    assert len(ungated["et"]) == 3
    assert not any(score(e, Policy.tolerant).delivered for e in ungated["et"])


@pytest.mark.parametrize("number", ['"17"', "10 + 7", '"10 + 7"'])
def test_expressions_count_for_the_tolerant_policy_only(number: str) -> None:
    def policy(system: str, task: str, past: Transcript) -> str:
        return f'{{"tool": "submit", "arguments": {{"seats": {number}}}}}'

    second = play(policy, ())["none"][1]
    assert score(second, Policy.tolerant).success
    verdict = score(second, Policy.strict)
    assert (verdict.success, verdict.expression) == (False, True)
    assert verdict.reason == "not_literal"


def test_a_strictly_certified_task_is_tolerantly_certified() -> None:
    for policy in (agent(3), agent(1)):
        for episodes in play(policy, FAULTS).values():
            for episode in episodes:
                assert score(episode, Policy.tolerant).success or not score(episode, Policy.strict).success


def test_a_broken_engine_is_no_failed_episode() -> None:
    def broken(system: str, task: str, past: Transcript) -> str:
        if past:
            raise EngineError("logits are not finite")
        return turn("find_room", building="x")

    with pytest.raises(EngineError, match="finite"):
        play(broken, FAULTS)


def test_budgets_end_an_episode() -> None:
    def lost(system: str, task: str, past: Transcript) -> str:
        return turn("find_room", building="nowhere")

    rules = Rules(ExecutorKind.tolerant, 12, 3, 160, "down", "", 0)
    episode = Episodes(ScriptedEngine(lost), Rooms(), "", rules).play(
        "c", Rooms().tasks[0], FaultKind.none, None
    )
    assert (episode.ending, episode.errors, len(episode.turns)) == (Ending.out_of_errors, 4, 4)
    rules = Rules(ExecutorKind.tolerant, 2, 3, 160, "down", "", 0)
    episode = Episodes(ScriptedEngine(lost), Rooms(), "", rules).play(
        "c", Rooms().tasks[0], FaultKind.none, None
    )
    assert (episode.ending, len(episode.turns)) == (Ending.out_of_steps, 2)


def test_strict_feedback_answers_instead_of_repairing() -> None:
    def wordy(system: str, task: str, past: Transcript) -> str:
        if not past:
            return f"Sure! {turn('submit', seats=7)}"
        return turn("submit", seats=7)

    rules = Rules(ExecutorKind.strict_feedback, 12, 10, 160, "down", "", 0)
    episode = Episodes(ScriptedEngine(wordy), Rooms(), "", rules).play(
        "c", Rooms().tasks[0], FaultKind.none, None
    )
    assert [turn.observation.ok for turn in episode.turns] == [False, True]
    assert episode.errors == 1
    assert score(episode, Policy.tolerant).success
    assert not score(episode, Policy.strict).success


def test_the_sites_follow_from_the_argument_graph() -> None:
    task = Rooms().tasks[0]
    assert [site.tool for site in sites(task, FaultKind.et)] == ["count_seats"]
    assert [site.tool for site in sites(task, FaultKind.it)] == ["find_room"]
    assert sites(task, FaultKind.none) == ()
