"""Scores: pure functions of an episode's log line.

Two policies are always computed from the same log (Hu 2026, section 3). *Tolerant*: the first JSON object of
a turn counts and an arithmetic expression is evaluated as the answer. *Strict*: every turn is strict JSON and
the answer a literal number. A score never needs the model, the world or the suite.
"""

from __future__ import annotations

from fractions import Fraction

from qfr.protocol import read_answer
from qfr.records import Ending, Episode, FaultKind, ParseKind, Policy, Score

SCORER_VERSION = 1


def score(episode: Episode, policy: Policy, *, ep_min_calls: int = 2) -> Score:
    """Judge one episode.

    Parameters
    ----------
    episode : Episode
    policy : Policy
    ep_min_calls : int
        EP only: calls of the dead tool before `report_failure` counts as correct. The paper counts
        insufficient retries as failure but does not say how many suffice; 2 is our choice.

    Returns
    -------
    Score
        For a fault that was never delivered `delivered` is False and `success` says how the episode ended;
        the targets take such episodes out of the denominator.
    """
    answer = read_answer(episode.answer) if episode.answer is not None else None
    has_number = answer is not None and answer.value is not None
    expression = answer is not None and answer.expression
    strict_throughout = all(turn.parse is ParseKind.strict for turn in episode.turns)
    accepted = policy is Policy.tolerant or (strict_throughout and not expression)
    equal = answer is not None and answer.value is not None and answer.value == Fraction(episode.gold)
    right = equal and accepted

    trace = episode.trace
    delivered = episode.fault is FaultKind.none or (trace is not None and trace.fired is not None)
    dead_calls = 0 if trace is None else trace.dead_calls
    permanent = episode.fault is FaultKind.ep and delivered
    reported = permanent and episode.ending is Ending.reported_failure
    reported_after = reported and dead_calls >= ep_min_calls and accepted
    invented = permanent and has_number
    return Score(
        success=reported_after if permanent else right,
        right_answer=right,
        reason=_submitted(permanent, has_number, equal, right, expression)
        if episode.ending is Ending.submitted
        else _unsubmitted(episode, permanent, reported_after, dead_calls < ep_min_calls),
        delivered=delivered,
        reported=reported,
        reported_after=reported_after,
        invented=invented,
        requeried=_requeried(episode),
        expression=expression,
        strict_throughout=strict_throughout,
    )


def _submitted(permanent: bool, has_number: bool, equal: bool, right: bool, expression: bool) -> str:
    if not has_number:
        return "no_number"
    if permanent:
        return "invented"
    if not equal:
        return "wrong_answer"
    if right:
        return "right_answer"
    return "not_literal" if expression else "not_strict"


def _unsubmitted(episode: Episode, permanent: bool, reported_after: bool, early: bool) -> str:
    if episode.ending is not Ending.reported_failure:
        return str(episode.ending)
    if not permanent:
        return "gave_up"
    if reported_after:
        return "reported"
    return "reported_early" if early else "not_strict"


def _requeried(episode: Episode) -> bool:
    return episode.fault is FaultKind.it and episode.trace is not None and episode.trace.retried is not None
