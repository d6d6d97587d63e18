"""From simulations to a run: trials numbered, what is missing found, episodes and exclusions told apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from qfr.errors import LogError
from qfr.foreign.common import Excluded, ForeignEpisode, Requestor
from qfr.foreign.conversation import Conversation, tools_of_user, with_roles
from qfr.foreign.node import shown
from qfr.records import SCHEMA_VERSION, Ending, Episode, FaultKind

LARGEST_PLAN = 1_000_000
# Planned simulations (tasks times trials).
TOLERANCE = 1e-6
# Of a reward against 1, as tau2-bench has it.


@dataclass(frozen=True)
class Simulation:
    """One simulation as its format's reader hands it over."""

    task: str
    trial: int | None
    # None where the log gives none.
    id: str
    where: str
    # Place in the log, for messages.
    reason: str
    ending: Ending
    reward: float | None
    # None exactly when the log does not score it; it is excluded then.
    conversation: Conversation | None
    # None exactly when it is excluded.
    completion_tokens: int | None


@dataclass(frozen=True)
class Plan:
    """What the log meant to hold."""

    tasks: tuple[str, ...]
    # Empty: those that the log holds.
    trials: int | None
    # None: as many as the log holds of a task at most.
    source: str
    # File or folder name, for messages.


@dataclass(frozen=True)
class Sorted:
    """Simulations as episodes and exclusions."""

    episodes: tuple[ForeignEpisode, ...]
    excluded: tuple[Excluded, ...]
    trials: int
    # Planned per task.
    user_tools: frozenset[str]
    warnings: tuple[str, ...]


def sort_out(
    simulations: list[Simulation], plan: Plan, *, domain: str, cell_id: str, user_tools: frozenset[str]
) -> Sorted:
    """Tell scored simulations from excluded ones and from those that are missing.

    Parameters
    ----------
    simulations : list of Simulation
        In the order of the log.
    plan : Plan
        Tasks and trials that the log meant to hold; simulations outside it count all the same.
    domain : str
        Becomes the family of every task.
    cell_id : str
        Of the episodes.
    user_tools : frozenset of str
        Tools of the user that are known beforehand; names that the user simulator called well are added.

    Raises
    ------
    LogError
        One simulation id stands twice, or the plan is beyond all measure.
    """
    _no_doubles(simulations)
    simulations, warnings = _uncopied(simulations)
    simulations, said = _renumbered(simulations, plan.trials)
    numbered, more = _numbered(simulations)
    warnings += said + more
    tasks = tuple(dict.fromkeys([*plan.tasks, *(each.task for each in simulations)]))
    trials = plan.trials or 1 + max(max(held) for held in numbered.values())
    # Where no trial has a number and none was planned, a task with fewer trials than another lacks none.
    expected = plan.trials or (0 if all(each.trial is None for each in simulations) else trials)
    if len(tasks) * trials > LARGEST_PLAN:
        raise LogError(f"{trials} trials of {len(tasks)} tasks are no plausible plan", where=plan.source)
    known = user_tools | tools_of_user(
        call for each in simulations if each.conversation is not None for call in each.conversation.calls
    )
    episodes: list[ForeignEpisode] = []
    excluded: list[Excluded] = []
    for task in tasks:
        held = numbered.get(task, {})
        for trial in sorted({*range(expected), *held}):
            found = held.get(trial)
            if found is None:
                excluded.append(Excluded(task, trial, "missing", ""))
            elif found.conversation is None or found.reward is None:
                excluded.append(Excluded(task, trial, found.reason, found.id))
            else:
                episodes.append(_episode(found, trial, (domain, cell_id), known))
    texts = [text for each in simulations if each.conversation for text in each.conversation.unrecognised]
    warnings += _exclusions(excluded, len(episodes)) + _oddities(episodes, texts)
    return Sorted(tuple(episodes), tuple(excluded), trials, known, tuple(warnings))


def _no_doubles(simulations: list[Simulation]) -> None:
    seen: set[str] = set()
    for each in simulations:
        if each.id and each.id in seen:
            raise LogError(
                f"the simulation {shown(each.id)} stands twice",
                where=each.where,
                hint="were two copies of one run put together?",
            )
        seen.add(each.id)


def _uncopied(simulations: list[Simulation]) -> tuple[list[Simulation], list[str]]:
    """Leave out entries that repeat another one in every field, its trial number included."""
    kept: list[Simulation] = []
    seen: dict[tuple[str, int], list[Simulation]] = defaultdict(list)
    for each in simulations:
        if each.trial is not None:
            same = seen[each.task, each.trial]
            if any(replace(each, where="") == replace(other, where="") for other in same):
                continue
            same.append(each)
        kept.append(each)
    lost = len(simulations) - len(kept)
    if not lost:
        return kept, []
    return kept, [f"{counted(lost, 'entry', 'entries')} repeat another one of the file and count once"]


def _renumbered(simulations: list[Simulation], planned: int | None) -> tuple[list[Simulation], list[str]]:
    """Trials from 0 on. A number that runs through the file says nothing of trials and is dropped."""
    tasks_of: dict[int, set[str]] = defaultdict(set)
    for each in simulations:
        if each.trial is not None:
            tasks_of[each.trial].add(each.task)
    if not tasks_of or (planned is not None and max(tasks_of) < planned):
        return simulations, []
    first, several = min(tasks_of), len({each.task for each in simulations}) > 1
    if several and len(tasks_of) > 1 and all(len(tasks) == 1 for tasks in tasks_of.values()):
        text = (
            "the field trial runs through the file and is no number of a trial: the trials of each task were "
            "counted in their order"
        )
        return [replace(each, trial=None) for each in simulations], [text]
    if first:
        moved = [
            each if each.trial is None else replace(each, trial=each.trial - first) for each in simulations
        ]
        return moved, [f"the trials of the file begin at {first}; they were counted from 0"]
    return simulations, []


def counted(n: int, one: str, many: str = "") -> str:
    """`1 call`, `2 calls`."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def _numbered(simulations: list[Simulation]) -> tuple[dict[str, dict[int, Simulation]], list[str]]:
    """Simulations by task and trial. One without a trial, or with a taken one, gets the lowest free one."""
    held: dict[str, dict[int, Simulation]] = defaultdict(dict)
    homeless: list[Simulation] = []
    for each in simulations:
        if each.trial is None or each.trial in held[each.task]:
            homeless.append(each)
        else:
            held[each.task][each.trial] = each
    lowest: dict[str, int] = defaultdict(int)
    for each in homeless:
        taken = held[each.task]
        while lowest[each.task] in taken:
            lowest[each.task] += 1
        taken[lowest[each.task]] = each
    if not homeless:
        return held, []
    first = homeless[0].where
    return held, [
        f"{len(homeless)} simulations have no trial number of their own and were numbered ({first})"
    ]


def _episode(
    found: Simulation, trial: int, named: tuple[str, str], user_tools: frozenset[str]
) -> ForeignEpisode:
    talk = found.conversation
    assert talk is not None
    assert found.reward is not None
    success = abs(found.reward - 1) <= TOLERANCE
    calls = with_roles(talk.calls, user_tools)
    family, cell_id = named
    return ForeignEpisode(
        episode=Episode(
            schema=SCHEMA_VERSION,
            cell_id=cell_id,
            task=found.task,
            family=family,
            fault=FaultKind.none,
            trial=trial,
            trace=None,
            turns=talk.turns,
            ending=found.ending,
            answer="1" if success else "0",
            gold="1",
            errors=sum(call.failure is not None and call.requestor is Requestor.agent for call in calls),
        ),
        success=success,
        reward=found.reward,
        termination_reason=found.reason,
        simulation=found.id,
        calls=calls,
        talk=talk.talk,
        agent_messages=talk.agent_messages,
        completion_tokens=found.completion_tokens,
        left_in_text=talk.left_in_text,
    )


def _exclusions(excluded: list[Excluded], scored: int) -> list[str]:
    if not excluded:
        return []
    reasons = Counter(gone.reason for gone in excluded)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return [
        f"{len(excluded)} of {len(excluded) + scored} simulations are in no rate ({listed}); "
        "results are bounded with them as failures and as successes"
    ]


def _oddities(episodes: list[ForeignEpisode], texts: list[str]) -> list[str]:
    said = []
    open_calls = sum(not call.answered for found in episodes for call in found.calls)
    if open_calls:
        said.append(f"{open_calls} calls have no result in the log; they count as asked for, not as failures")
    left = [found for found in episodes if found.left_in_text]
    if left:
        said.append(
            f"{counted(sum(found.left_in_text for found in left), 'message')} of the agent in {len(left)} of "
            f"{len(episodes)} simulations hold a call as text, which was never run: calls and errors of "
            "these simulations are lower bounds"
        )
    if texts:
        common = Counter(text[:120] for text in texts).most_common(3)
        listed = "; ".join(f"{count} x {shown(text, 80)}" for text, count in common)
        said.append(f"{len(texts)} failing calls fit no known form and count as policy/state: {listed}")
    return said
