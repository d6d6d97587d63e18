"""Every kind of fault in every world: what is answered, what counts as recovery, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import pytest

from qfr.canonical import read_json
from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules, Scripts
from qfr.faults import FAULTS, FaultKind, Reach, Recovery, Reply, Where
from qfr.journal import decode, encode
from qfr.records import Ending, Episode, Policy, Score
from qfr.scoring import score
from qfr.world.base import Habits, Suite, Transcript, World, sites
from qfr.world.finding import build_world

KINDS = tuple(kind for kind in FaultKind if kind is not FaultKind.none)
SUITES = {
    "orders": Suite({"base": 3, "shipping": 3, "two_order": 2}),
    "ledger": Suite({"pay": 3, "split": 3, "refund": 3}),
}
WRITES = {"orders": 0, "ledger": 12}
BLIND, PATIENT = Habits(attempts=1), Habits(attempts=4)


@cache
def world_of(name: str) -> World:
    return build_world(name, SUITES[name])


def rules(times: int = 2, retry_after: int = 2) -> Rules:
    code, message = "service_unavailable", "The service did not answer the request."
    return Rules(ExecutorKind.tolerant, 20, 10, 400, code, message, 0, times, retry_after)


def play(name: str, habits: Habits, kind: FaultKind, played_by: Rules | None = None) -> list[Episode]:
    """The fault episodes of a kind by the world's scripted agent."""
    world = world_of(name)
    tasks = {task.text: task for task in world.tasks}

    def policy(_system: str, task: str, transcript: Transcript) -> str:
        return world.next_turn(tasks[task], transcript, habits)

    done: list[Episode] = []
    walk(
        Episodes(ScriptedEngine(policy), world, "system", played_by or rules()),
        Track("c-none", FaultKind.none, Gate.certified, {}),
        (Track("c", kind, Gate.certified, {}),),
        lambda track, episode, seconds: done.append(episode) if track.kind is kind else None,
    )
    return done


def scores(episodes: Sequence[Episode]) -> list[Score]:
    return [score(episode, Policy.tolerant) for episode in episodes]


def test_every_kind_has_a_record_and_none_has_a_site_too_many() -> None:
    assert set(FAULTS) == set(FaultKind)
    for name in SUITES:
        writes = sum(call.writes for task in world_of(name).tasks for call in task.gold_calls)
        found = sum(len(sites(task, FaultKind.la)) for task in world_of(name).tasks)
        assert found == writes
        assert name not in WRITES or writes == WRITES[name]


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_gold_agent_is_certified_and_every_fault_is_delivered(name: str, kind: FaultKind) -> None:
    world = world_of(name)
    episodes = play(name, PATIENT, kind)
    assert len(episodes) == sum(len(sites(task, kind)) for task in world.tasks)
    for episode, judged in zip(episodes, scores(episodes), strict=True):
        assert judged.delivered
        assert episode.trace is not None
        assert episode.trace.witnessed is not None
        injected = [turn for turn in episode.turns if turn.observation.injected]
        assert len(injected) == episode.trace.dead_calls > 0
        assert injected[0].index == episode.trace.fired
        assert episode.errors == 0, "an injected fault is no error of the agent"


# Successes of an agent that tries again, and of one that gives up at the first error.
RECOVERS = {FaultKind.et, FaultKind.ep, FaultKind.er, FaultKind.rl, FaultKind.ch, FaultKind.tr}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("kind", KINDS)
def test_recovery_follows_from_the_skill(name: str, kind: FaultKind) -> None:
    patient, blind = scores(play(name, PATIENT, kind)), scores(play(name, BLIND, kind))
    assert not any(one.success for one in blind)
    if kind in RECOVERS:
        assert all(one.success for one in patient)
    if FAULTS[kind].reply is Reply.other_record:
        assert not any(one.success for one in patient), "it believes what it is told"
        careful = scores(play(name, Habits(attempts=4, checks_ids=True), kind))
        assert all(one.success and one.requeried for one in careful)
        permanent = FAULTS[kind].recovery is Recovery.either
        assert {one.reported_after for one in careful} == {permanent}


def test_blind_trust_is_counted_where_wrong_data_last() -> None:
    assert all(one.blind_trust for one in scores(play("orders", PATIENT, FaultKind.ip)))
    careful = Habits(attempts=4, checks_ids=True)
    assert not any(one.blind_trust for one in scores(play("orders", careful, FaultKind.ip)))
    assert not any(one.blind_trust for one in scores(play("orders", PATIENT, FaultKind.it)))


@pytest.mark.parametrize(("times", "successes"), [(1, True), (2, True), (3, True), (4, False)])
def test_a_repeated_failure_asks_for_persistence(times: int, successes: bool) -> None:
    episodes = play("orders", PATIENT, FaultKind.er, rules(times=times))
    judged = scores(episodes)
    assert {one.success for one in judged} == {successes}
    assert {one.wasted_calls for one in judged} == {times - 1}
    assert {episode.trace.dead_calls for episode in episodes if episode.trace} == {times}


def test_a_repeated_failure_of_one_is_a_transient_failure() -> None:
    def texts(episodes: Sequence[Episode]) -> list[list[str]]:
        return [[turn.observation.text for turn in one.turns] for one in episodes]

    once = play("orders", PATIENT, FaultKind.er, rules(times=1))
    assert texts(once) == texts(play("orders", PATIENT, FaultKind.et))


@pytest.mark.parametrize("wait", [1, 2, 4])
def test_a_rate_limit_lifts_when_the_tool_was_left_alone(wait: int) -> None:
    for episode in play("orders", PATIENT, FaultKind.rl, rules(retry_after=wait)):
        trace = episode.trace
        assert trace is not None
        assert trace.fired is not None
        assert trace.recovered == trace.fired + wait + 1
        told = read_json(episode.turns[trace.fired].observation.text.removeprefix("Observation: "))
        assert isinstance(told, dict)
        assert told["retry_after_turns"] == Decimal(wait)


def test_a_retry_that_does_not_wait_never_gets_through_a_rate_limit() -> None:
    world = world_of("orders")
    task = world.tasks[0]

    def stubborn(_system: str, _task: str, transcript: Transcript) -> str:
        place = min(len(transcript), 1)
        return world.next_turn(task, transcript[:place], PATIENT)

    episodes = Episodes(ScriptedEngine(stubborn), world, "system", rules())
    episode = episodes.play("c", task, FaultKind.rl, sites(task, FaultKind.rl)[0])
    assert episode.ending is Ending.out_of_steps
    assert score(episode, Policy.tolerant).wasted_calls == 18


def test_a_changed_state_shows_the_outdated_record_once() -> None:
    for name in SUITES:
        for episode in play(name, PATIENT, FaultKind.ch):
            trace = episode.trace
            assert trace is not None
            assert trace.fired is not None
            assert trace.recovered is not None
            old = read_json(episode.turns[trace.fired].observation.text.removeprefix("Observation: "))
            new = read_json(episode.turns[trace.recovered].observation.text.removeprefix("Observation: "))
            assert isinstance(old, dict)
            assert isinstance(new, dict)
            before, after = old["last_known_result"], new["result"]
            asked = read_json(trace.arguments)
            assert isinstance(before, dict)
            assert isinstance(after, dict)
            assert isinstance(asked, dict)
            assert before.keys() == after.keys()
            assert before != after
            assert {key: before[key] for key in asked} == asked


def test_an_answer_from_the_outdated_record_is_stale() -> None:
    world = world_of("orders")
    task = world.tasks[0]

    def hasty(_system: str, _task: str, transcript: Transcript) -> str:
        believed = [
            (text, told.replace('"ok": false', '"ok": true').replace("last_known_result", "result"))
            for text, told in transcript
        ]
        return world.next_turn(task, believed, PATIENT)

    player = Episodes(ScriptedEngine(hasty), world, "system", rules())
    judged = scores([player.play("c", task, FaultKind.ch, site) for site in sites(task, FaultKind.ch)])
    assert all(one.stale_answer and not one.success for one in judged)
    assert not any(one.stale_answer for one in scores(play("orders", PATIENT, FaultKind.ch)))


def test_a_cut_answer_ends_in_the_middle() -> None:
    for episode in play("ledger", PATIENT, FaultKind.tr):
        trace = episode.trace
        assert trace is not None
        assert trace.fired is not None
        assert trace.recovered is not None
        cut, whole = (episode.turns[turn].observation.text for turn in (trace.fired, trace.recovered))
        assert cut == whole[: len(whole) // 2]


def test_a_lost_acknowledgement_is_booked_twice_by_whoever_only_repeats() -> None:
    blind, careful = (
        play("ledger", PATIENT, FaultKind.la),
        play("ledger", Habits(reads_first=True), FaultKind.la),
    )
    assert all(one.success for one in scores(careful))
    assert sum(one.duplicate_writes for one in scores(careful)) == 0
    for episode, judged in zip(blind, scores(blind), strict=True):
        # A refund carries a key, and the same key books once.
        keyed = episode.family == "refund"
        assert (judged.duplicate_writes, judged.success) == ((0, True) if keyed else (1, False))
        assert episode.acts is not None
        assert episode.trace is not None
        assert episode.trace.fired is not None
        states = (episode.acts.start, *episode.acts.states)
        assert states[episode.trace.fired] != states[episode.trace.fired + 1], "the write happened"
    plain = scores(play("ledger", PATIENT, FaultKind.et))
    assert sum(one.duplicate_writes for one in plain) == 0


SILENT = ScriptedEngine(lambda *_: "")


@pytest.mark.parametrize("kind", KINDS)
def test_logs_are_read_back_and_played_again_from_their_turns(kind: FaultKind) -> None:
    for name in SUITES:
        world = world_of(name)
        scripts = Scripts(world, "system", rules(), lambda: SILENT.info)
        of_task = {task.id: task for task in world.tasks}
        for episode in play(name, PATIENT, kind):
            assert (episode.acts is None) == (episode.schema == 1) == world.plain
            assert decode(encode(episode), where="log") == episode
            assert episode.trace is not None
            site = sites(of_task[episode.task], kind)[episode.trace.site]
            assert scripts.replay(episode, site) == episode


def test_faults_that_show_an_error_show_the_same_first() -> None:
    """An agent cannot know at its first look whether a failure passes, lasts, or hides an effect."""
    alike = [k for k, f in FAULTS.items() if f.reply is Reply.error and f.reach is not Reach.turns]
    assert len(alike) >= 4
    first = {
        episode.turns[episode.trace.fired].observation.text
        for kind in alike
        for episode in play("ledger", PATIENT, kind)
        if episode.trace is not None and episode.trace.fired is not None
    }
    assert len(first) == 1
    assert {FAULTS[kind].where for kind in alike} >= {Where.dependent, Where.writes}
