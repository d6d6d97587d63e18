"""How the agent's calls of an imported run went: error rates by channel, recovery, length.

Rates are of the agent's calls; the user simulator's are in none. Trials nest in tasks, so intervals come from
resampling tasks; `task_counts` gives numerators and denominators per task for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfr.foreign.common import FailureKind, ForeignEpisode, ForeignRun, Release, Requestor

ANY = "any"
ROLE_CONFUSION = "role_confusion"
# A part of tool_name: the agent called a tool of the user's.
CHANNELS = (*(kind.value for kind in FailureKind), ROLE_CONFUSION, ANY)


@dataclass(frozen=True)
class TaskCounts:
    """Calls of one task that failed in one channel."""

    task: str
    events: int
    calls: int
    # The agent's calls.
    episodes_with: int
    # Simulations with at least one event.
    episodes: int


@dataclass(frozen=True)
class ChannelRate:
    """How often the agent's calls failed in one channel, over all scored simulations."""

    channel: str
    # A `FailureKind`, `role_confusion` (a part of tool_name) or `any`.
    events: int
    calls: int
    rate: float | None
    # Events per call of the agent, 0..1; loops dominate it. None without a call.
    episodes_with: int
    episodes: int
    share: float | None
    # Of simulations with at least one event; None without a simulation.
    note: str | None
    # Why there is no rate, or why it is not the whole truth.


@dataclass(frozen=True)
class Recovery:
    """What follows a failing call of the agent."""

    within: int
    # The agent's next calls that are looked at.
    errors: int
    recovered: int
    # Failing calls with a good call among those.
    last: int
    # Failing calls that the simulation ended with; they count as not recovered.
    share: float | None


@dataclass(frozen=True)
class Lengths:
    """How long simulations are, means over the scored ones; None without one."""

    episodes: int
    agent_calls: float | None
    agent_messages: float | None
    user_calls: float | None


def task_counts(run: ForeignRun, channel: str) -> tuple[TaskCounts, ...]:
    """Return one channel's failing calls per task with a scored simulation, in the order of the log.

    Raises
    ------
    ValueError
        If the channel is none of `CHANNELS`.
    """
    if channel not in CHANNELS:
        raise ValueError(f"{channel!r} is no channel; known are {', '.join(CHANNELS)}")
    rows: dict[str, list[tuple[int, int]]] = {}
    for found in run.episodes:
        row = (_events(found, channel), found.asked(Requestor.agent))
        rows.setdefault(found.episode.task, []).append(row)
    return tuple(
        TaskCounts(
            task=task,
            events=sum(events for events, _ in row),
            calls=sum(calls for _, calls in row),
            episodes_with=sum(events > 0 for events, _ in row),
            episodes=len(row),
        )
        for task, row in rows.items()
    )


def channel_rates(run: ForeignRun) -> tuple[ChannelRate, ...]:
    """Return the error rate of every channel of `CHANNELS`.

    Role confusion has no rate where no tool of the user simulator is known, since it cannot be told then.
    """
    return tuple(_rate(run, channel) for channel in CHANNELS)


def recovery(run: ForeignRun, within: int = 3) -> Recovery:
    """Return how often a good call follows a failing one among the agent's next `within` calls."""
    errors = recovered = last = 0
    for found in run.episodes:
        good = [
            call.answered and call.failure is None
            for call in found.calls
            if call.requestor is Requestor.agent
        ]
        for call in found.calls:
            if call.turn is None or call.failure is None:
                continue
            following = good[call.turn + 1 : call.turn + 1 + within]
            errors += 1
            recovered += any(following)
            last += not following
    return Recovery(within, errors, recovered, last, recovered / errors if errors else None)


def lengths(run: ForeignRun) -> Lengths:
    """Return mean lengths of the scored simulations."""
    n = len(run.episodes)

    def mean(total: int) -> float | None:
        return total / n if n else None

    return Lengths(
        episodes=n,
        agent_calls=mean(sum(found.asked(Requestor.agent) for found in run.episodes)),
        agent_messages=mean(sum(found.agent_messages for found in run.episodes)),
        user_calls=mean(sum(found.asked(Requestor.user) for found in run.episodes)),
    )


def _events(found: ForeignEpisode, channel: str) -> int:
    if channel == ANY:
        return found.errors(Requestor.agent)
    return found.role_confusions if channel == ROLE_CONFUSION else found.failures(FailureKind(channel))


def _rate(run: ForeignRun, channel: str) -> ChannelRate:
    counts = task_counts(run, channel)
    events, calls = sum(each.events for each in counts), sum(each.calls for each in counts)
    within, episodes = sum(each.episodes_with for each in counts), sum(each.episodes for each in counts)
    blind = channel == ROLE_CONFUSION and not run.info.user_tools
    note = "no tool of the user simulator is known" if blind else None
    if channel == FailureKind.tool_name and run.info.release in (Release.before, Release.unknown):
        note = f"censored: simulations with invented names may be missing ({run.info.release})"
    if not calls:
        note = "the agent asked for no call"
    return ChannelRate(
        channel=channel,
        events=events,
        calls=calls,
        rate=events / calls if calls and not blind else None,
        episodes_with=within,
        episodes=episodes,
        share=within / episodes if episodes and not blind else None,
        note=note,
    )
