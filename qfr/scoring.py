"""Scores: pure functions of an episode's log line.

Two policies are always computed from the same log (Hu 2026, section 3). *Tolerant*: the first JSON object of
a turn counts and an arithmetic expression is evaluated as the answer. *Strict*: every turn is strict JSON and
the answer a literal number. A score never needs the model, the world or the suite: what a world's own check
says of a final state stands in the log (`Episode.acts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from qfr.faults import FAULTS, Fault, Recovery, Reply
from qfr.journal import PLAIN_NUMBER
from qfr.protocol import read_answer
from qfr.records import Ending, Episode, ParseKind, Policy, Score

SCORER_VERSION = 1


@dataclass(frozen=True)
class _Judged:
    """An episode's answer under one policy."""

    given: bool
    # There is an answer that can be right.
    equal: bool
    # It is right.
    expression: bool
    # It is an arithmetic expression or a numeric string.
    accepted: bool
    # The policy accepts its form and that of all turns.

    @property
    def right(self) -> bool:
        return self.equal and self.accepted


def score(episode: Episode, policy: Policy, *, ep_min_calls: int = 2) -> Score:
    """Judge one episode.

    Parameters
    ----------
    episode : Episode
    policy : Policy
    ep_min_calls : int
        Faults without end (EP, IP): calls that the fault answered before `report_failure` counts as correct.
        The paper counts insufficient retries as failure but does not say how many suffice; 2 is our choice.

    Returns
    -------
    Score
        For a fault that was never delivered `delivered` is False and `success` says how the episode ended;
        the targets take such episodes out of the denominator.
    """
    strict_throughout = all(turn.parse is ParseKind.strict for turn in episode.turns)
    answer = _judge(episode, policy, strict_throughout)
    fault, trace = FAULTS[episode.fault], episode.trace
    fired = trace is not None and trace.fired is not None
    recovery = fault.recovery if fired else Recovery.task
    calls = 0 if trace is None else trace.dead_calls
    reported = recovery is not Recovery.task and episode.ending is Ending.reported_failure
    enough = calls >= ep_min_calls
    reported_after = reported and enough and answer.accepted
    # The answer was given without another look at what the fault had answered.
    untold = fired and answer.given and trace is not None and trace.retried is None
    unread = fired and answer.given and trace is not None and trace.recovered is None
    return Score(
        success=reported_after or (answer.right and recovery is not Recovery.report),
        right_answer=answer.right,
        reason=_submitted(recovery, answer)
        if episode.ending is Ending.submitted
        else _unsubmitted(episode, reported, reported_after, enough),
        delivered=fault.reply is Reply.nothing or fired,
        reported=reported,
        reported_after=reported_after,
        invented=recovery is Recovery.report and answer.given,
        requeried=fault.reply is Reply.other_record and trace is not None and trace.retried is not None,
        expression=answer.expression,
        strict_throughout=strict_throughout,
        blind_trust=untold and _counts(fault, "blind_trust"),
        stale_answer=unread and _counts(fault, "stale_answer"),
        wasted_calls=max(0, calls - 1) if _counts(fault, "wasted_calls") else 0,
        duplicate_writes=0 if episode.acts is None else episode.acts.duplicate_writes,
    )


def longest_repeat(episode: Episode) -> int:
    """Return how often in a row the agent made one and the same call and got one and the same answer.

    1 when no call was repeated so, 0 without a call. An agent with `scorer.stuck_after` of them is *stuck*. A
    turn in which no call could be read ends a row.
    """
    longest = row = 0
    before: tuple[str, str, str] | None = None
    for turn in episode.turns:
        call = turn.call
        now = None if call is None else (call.tool, call.arguments, turn.observation.text)
        row = 0 if now is None else row + 1 if now == before else 1
        longest, before = max(longest, row), now
    return longest


def _counts(fault: Fault, column: str) -> bool:
    return column in fault.columns


def _judge(episode: Episode, policy: Policy, strict_throughout: bool) -> _Judged:
    read = None
    if episode.answer is not None and PLAIN_NUMBER.fullmatch(episode.gold):
        read = read_answer(episode.answer)
    expression = read is not None and read.expression
    accepted = policy is Policy.tolerant or (strict_throughout and not expression)
    if episode.acts is not None:
        return _Judged(episode.answer is not None, episode.acts.right, expression, accepted)
    value = None if read is None else read.value
    return _Judged(value is not None, value == Fraction(episode.gold), expression, accepted)


def _submitted(recovery: Recovery, answer: _Judged) -> str:
    if not answer.given:
        return "no_number"
    if recovery is Recovery.report:
        return "invented"
    if not answer.equal:
        return "wrong_answer"
    if answer.right:
        return "right_answer"
    return "not_literal" if answer.expression else "not_strict"


def _unsubmitted(episode: Episode, reported: bool, reported_after: bool, enough: bool) -> str:
    if episode.ending is not Ending.reported_failure:
        return str(episode.ending)
    if not reported:
        return "gave_up"
    if reported_after:
        return "reported"
    return "not_strict" if enough else "reported_early"
