"""First divergence: where two episodes of one task and site part, token by token.

With greedy decoding two presets of one model (or two prompts) write the same tokens until one decision
flips. The token at which they part, with both margins, is the decision that quantization noise (or the
prompt) turned. Token ids compare only under one tokenizer; otherwise texts compare, and the token stays
unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from qfr.errors import TableError
from qfr.records import Episode, Turn


class Part(StrEnum):
    """What differs first."""

    nothing = "nothing"
    # The episodes are equal to the end.
    generation = "generation"
    # The model wrote something else.
    observation = "observation"
    # The same turn got another answer: another executor, fault text or budget.
    length = "length"
    # The same turns, but one episode goes on.


class Phase(StrEnum):
    """When they part, seen from the injected fault."""

    clean = "clean"
    # No fault was scheduled.
    before = "before the fault was seen"
    reaction = "in the turn that first sees the fault"
    after = "later"


@dataclass(frozen=True)
class Side:
    """One episode at the turn where they part."""

    text: str
    # What the model wrote in that turn; empty when the episode had ended.
    observation: str
    # The answer to it.
    margin: float | None
    # Margin of this side's token at the parting place, in logits; None where there is no token or none is
    # known.
    narrowest: float | None
    # Smallest margin of the turn, in logits.
    narrowest_token: int | None
    # Its token index.


@dataclass(frozen=True)
class Divergence:
    """Where two episodes of one task and site part."""

    task: str
    fault: str
    site: int | None
    trial: int
    part: Part
    phase: Phase | None
    # From the first episode's fault; None when nothing differs.
    turn: int | None
    # Index of the first turn that differs; None when nothing does.
    token: int | None
    # Index of the first generated token that differs; None when texts were compared or no token differs.
    character: int | None
    # Length of the common beginning of both texts of that turn.
    same_text: bool
    # The tokens differ but spell the same text.
    first: Side | None
    second: Side | None
    # None when nothing differs.


@dataclass(frozen=True)
class Divergences:
    """All pairs of two cells."""

    pairs: tuple[Divergence, ...]
    # In the order of the first cell's episodes.
    unpaired: int
    # Episodes of either cell without a counterpart.
    parted: int
    # Pairs that differ at all.
    at_narrowest: int
    # Pairs that part at the first side's narrowest token of the turn.
    with_token: int
    # Pairs whose parting token is known: what `at_narrowest` is out of.
    by_phase: tuple[tuple[Phase, int], ...]
    # Parted pairs per phase.


def divergence(first: Episode, second: Episode, *, same_tokenizer: bool) -> Divergence:
    """Find the first turn and token at which two episodes part.

    Parameters
    ----------
    first, second : Episode
        Of the same task, fault, site and trial.
    same_tokenizer : bool
        Both come from one model, so that token ids compare.

    Raises
    ------
    TableError
        If they are episodes of different tasks, faults, sites or trials.
    """
    if _key(first) != _key(second):
        raise TableError(f"episode {_key(first)} against {_key(second)}", hint="pair the same task and site")
    for index, (one, other) in enumerate(zip_longest(first.turns, second.turns)):
        part = _part(one, other, same_tokenizer)
        if part is not Part.nothing:
            return _found(first, second, index, (part, same_tokenizer))
    part = Part.nothing if first.ending is second.ending else Part.length
    return _found(first, second, len(first.turns), (part, same_tokenizer))


def divergences(first: Sequence[Episode], second: Sequence[Episode], *, same_tokenizer: bool) -> Divergences:
    """Pair the episodes of two cells and find where each pair parts."""
    others = {_key(episode): episode for episode in second}
    pairs = tuple(
        divergence(one, others[_key(one)], same_tokenizer=same_tokenizer)
        for one in first
        if _key(one) in others
    )
    parted = [one for one in pairs if one.part is not Part.nothing]
    tokens = [one for one in parted if one.token is not None and one.first is not None]
    return Divergences(
        pairs=pairs,
        unpaired=len(first) + len(second) - 2 * len(pairs),
        parted=len(parted),
        at_narrowest=sum(one.first is not None and one.first.narrowest_token == one.token for one in tokens),
        with_token=len(tokens),
        by_phase=tuple((phase, sum(one.phase is phase for one in parted)) for phase in Phase),
    )


def _key(episode: Episode) -> tuple[str, str, int | None, int]:
    site = None if episode.trace is None else episode.trace.site
    return episode.task, str(episode.fault), site, episode.trial


def _part(one: Turn | None, other: Turn | None, same_tokenizer: bool) -> Part:
    if one is None or other is None:
        return Part.length
    made, also = one.generation, other.generation
    # A served model shows no tokens: then the texts decide.
    by_token = same_tokenizer and bool(made.token_ids or also.token_ids)
    same = made.token_ids == also.token_ids if by_token else made.text == also.text
    if not same:
        return Part.generation
    return Part.nothing if one.observation.text == other.observation.text else Part.observation


def _found(first: Episode, second: Episode, index: int, how: tuple[Part, bool]) -> Divergence:
    part, same_tokenizer = how
    task, fault, site, trial = _key(first)
    differs = part is not Part.nothing
    one, other = (episode.turns[index] if index < len(episode.turns) else None for episode in (first, second))
    token = character = None
    same_text = False
    if part is Part.generation and one is not None and other is not None:
        texts = one.generation.text, other.generation.text
        character = _first_difference(*texts)
        same_text = texts[0] == texts[1]
        if same_tokenizer and one.generation.token_ids:
            token = _first_difference(one.generation.token_ids, other.generation.token_ids)
    return Divergence(
        task=task,
        fault=fault,
        site=site,
        trial=trial,
        part=part,
        phase=_phase(first, index) if differs else None,
        turn=index if differs else None,
        token=token,
        character=character,
        same_text=same_text,
        first=_side(one, token) if differs else None,
        second=_side(other, token) if differs else None,
    )


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """Index of the first unequal item; the shorter length when one begins the other."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _phase(episode: Episode, index: int) -> Phase:
    if episode.trace is None:
        return Phase.clean
    witnessed = episode.trace.witnessed
    if witnessed is None or index < witnessed:
        return Phase.before
    return Phase.reaction if index == witnessed else Phase.after


def _side(turn: Turn | None, token: int | None) -> Side:
    if turn is None:
        return Side("", "", None, None, None)
    margins = turn.generation.margins
    low = min(range(len(margins)), key=margins.__getitem__) if margins else None
    return Side(
        text=turn.generation.text,
        observation=turn.observation.text,
        margin=margins[token] if token is not None and token < len(margins) else None,
        narrowest=None if low is None else margins[low],
        narrowest_token=low,
    )
