"""A scripted agent for any world: follows a task's gold path and meets faults as its habits say.

It knows the task and the world, unlike an agent that is measured: it rehearses a grid and proves a world.
Wrong data that it does not check send it to a wrong end, as they would send an agent that believes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from qfr.canonical import Json, read_json, readable
from qfr.world.base import (
    Answer,
    Found,
    GoldCall,
    Habits,
    Outcome,
    Role,
    State,
    Task,
    Transcript,
    World,
    task_tools,
)

PREFIX = "Observation: "


def read_observation(observation: str) -> dict[str, Json]:
    """What an observation's line tells, empty when it cannot be read."""
    try:
        told = read_json(observation.removeprefix(PREFIX).partition("\n")[0])
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def turns_to_wait(transcript: Transcript, failed: int) -> int:
    """Turns that the tool of the failed call has still to be left alone, as its error asked for.

    Parameters
    ----------
    transcript
        Turns and observations so far.
    failed : int
        Place of the failed call.
    """
    asked = read_observation(transcript[failed][1]).get("retry_after_turns")
    if not isinstance(asked, Decimal):
        return 0
    passed = sum("retry_after_turns" not in read_observation(said) for _, said in transcript[failed:])
    return max(0, int(asked) - passed)


@dataclass(frozen=True)
class _Place:
    """Where on the gold path the agent stands."""

    call: int
    # Index of the next gold call.
    state: State
    # The world's, when everything so far went as the agent believes.
    user: int = 0
    # Follow-up messages that the user has written.
    failures: int = 0
    # Failed calls of the next gold call, in a row.
    wait: int = 0
    # Turns that its tool has still to be left alone.
    fooled: bool = False
    # A wrong record was believed.
    looked: bool = False
    # After the last failure it was looked whether the write happened: it did not.


def next_turn(
    world: World, task: Task, transcript: Transcript, habits: Habits, proofs: Sequence[GoldCall | None] = ()
) -> str:
    """The next turn of the gold path.

    Parameters
    ----------
    world, task
        What is played.
    transcript
        Turns and observations so far.
    habits : Habits
    proofs : sequence of GoldCall or None
        Per gold call, a lookup whose record shows whether it happened (`Habits.reads_first`).
    """
    place = _Place(0, world.start(task))
    for at in range(len(transcript)):
        place = _after(world, task, habits, proofs, place, transcript, at)
    due = task.gold_calls[place.call] if place.call < len(task.gold_calls) else None
    if place.failures >= habits.attempts:
        return _give_up(world, task, due)
    if due is None or place.fooled or due.user > place.user:
        return _end(world, task, place)
    text = call_text(world, task, due, place.call)
    if place.wait:
        return _elsewhere(transcript, due.tool) or text
    if place.failures and habits.reads_first and not place.looked and (proof := _proof(proofs, place)):
        return call_text(world, task, proof, place.call)
    return habits.prose + text if place.failures else text


def call_text(world: World, task: Task, call: GoldCall, place: int) -> str:
    """A gold call as a turn; a value of the agent's own choice is made of the task's id and the place."""
    arguments = read_json(call.arguments)
    assert isinstance(arguments, dict)
    tool = world.tool(call.tool)
    for parameter in tool.parameters if tool is not None else ():
        if parameter.free and parameter.required:
            arguments[parameter.name] = f"{task.id}-{place}"
    return readable({"tool": call.tool, "arguments": arguments})


def _after(
    world: World,
    task: Task,
    habits: Habits,
    proofs: Sequence[GoldCall | None],
    place: _Place,
    transcript: Transcript,
    at: int,
) -> _Place:
    """Where the agent stands after one more turn."""
    text, observation = transcript[at]
    due = task.gold_calls[place.call] if place.call < len(task.gold_calls) else None
    if "{" not in text:
        return replace(place, user=place.user + 1, state=world.heard(task, place.state))
    turn, told = text.removeprefix(habits.prose), read_observation(observation)
    if due is None:
        return place
    state, outcome = _carried_out(world, task, place.state, due)
    proof = _proof(proofs, place)
    if proof is not None and place.failures and turn == call_text(world, task, proof, place.call):
        _, wanted = _carried_out(world, task, state, proof)
        happened = isinstance(wanted, Found) and told.get("result") == dict(wanted.record)
        return _Place(place.call + 1, state, place.user) if happened else replace(place, looked=True)
    if turn != call_text(world, task, due, place.call):
        # A turn that only passed the time.
        return place
    record = told.get("result")
    # What a write answers is not known beforehand to an agent: it may have been made twice.
    true = due.writes or (isinstance(outcome, Found) and record == dict(outcome.record))
    if not isinstance(record, dict) or (habits.checks_ids and not true):
        wait = turns_to_wait(transcript, at)
        return replace(place, failures=place.failures + 1, wait=wait, looked=False)
    return _Place(place.call + 1, state, place.user, fooled=place.fooled or not true)


def _elsewhere(transcript: Transcript, tool: str) -> str | None:
    """A turn that was answered and called another tool: repeating it passes the time."""
    for text, observation in transcript:
        if "result" in read_observation(observation) and read_observation(text).get("tool") != tool:
            return text
    return None


def _proof(proofs: Sequence[GoldCall | None], place: _Place) -> GoldCall | None:
    return proofs[place.call] if place.call < len(proofs) else None


def _carried_out(world: World, task: Task, state: State, call: GoldCall) -> tuple[State, Outcome]:
    arguments = read_json(call.arguments)
    assert isinstance(arguments, dict)
    return world.call(task, state, call.tool, arguments)


def _give_up(world: World, task: Task, due: GoldCall | None) -> str:
    what = "the task" if due is None else due.tool
    tool = next((tool for tool in task_tools(world, task) if tool.role is Role.report), None)
    if tool is None:
        return f"{what} is unavailable."
    return readable({"tool": tool.name, "arguments": {tool.parameters[0].name: f"{what} is unavailable"}})


def _end(world: World, task: Task, place: _Place) -> str:
    """Submit, or end the user's turn."""
    ends = [tool for tool in task_tools(world, task) if tool.role is Role.submit]
    tool = next((one for one in ends if bool(one.parameters) == (task.answer is not None)), None)
    if tool is None or place.user < len(task.follow_ups):
        return "Done."
    value = _wrong(task.answer) if place.fooled else task.answer
    answer: Json = [*sorted(value)] if isinstance(value, tuple) else value
    return readable(
        {"tool": tool.name, "arguments": {tool.parameters[0].name: answer} if tool.parameters else {}}
    )


def _wrong(answer: Answer) -> Answer:
    """What an agent submits that followed wrong data."""
    if isinstance(answer, Decimal):
        return answer + 1
    return () if isinstance(answer, tuple) else "unknown"
