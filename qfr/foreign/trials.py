"""From simulations to a run: trials numbered, what is missing found, episodes and exclusions told apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

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
    trials: int
    source: str
    # File or folder name, for messages.


@dataclass(frozen=True)
class Sorted:
    """Simulations as episodes and exclusions."""

    episodes: tuple[ForeignEpisode, ...]
    excluded: tuple[Excluded, ...]
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
    numbered, warnings = _numbered(simulations)
    tasks = tuple(dict.fromkeys([*plan.tasks, *(each.task for each in simulations)]))
    if len(tasks) * plan.trials > LARGEST_PLAN:
        raise LogError(f"{plan.trials} trials of {len(tasks)} tasks are no plausible plan", where=plan.source)
    known = user_tools | tools_of_user(
        call for each in simulations if each.conversation is not None for call in each.conversation.calls
    )
    episodes: list[ForeignEpisode] = []
    excluded: list[Excluded] = []
    for task in tasks:
        held = numbered.get(task, {})
        for trial in sorted({*range(plan.trials), *held}):
            found = held.get(trial)
            if found is None:
                excluded.append(Excluded(task, trial, "missing", ""))
            elif found.conversation is None or found.reward is None:
                excluded.append(Excluded(task, trial, found.reason, found.id))
            else:
                episodes.append(_episode(found, trial, (domain, cell_id), known))
    texts = [text for each in simulations if each.conversation for text in each.conversation.unrecognised]
    warnings += _exclusions(excluded, len(episodes)) + _oddities(episodes, texts)
    return Sorted(tuple(episodes), tuple(excluded), known, tuple(warnings))


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
    if texts:
        common = Counter(text[:120] for text in texts).most_common(3)
        listed = "; ".join(f"{count} x {shown(text, 80)}" for text, count in common)
        said.append(f"{len(texts)} failing calls fit no known form and count as policy/state: {listed}")
    return said
