"""Where two episodes part: tokens, texts, observations, length, and when seen from the fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.analysis.diagnostics.divergence import Part, Phase, divergence, divergences
from qfr.errors import TableError
from qfr.records import Ending, FaultKind
from tests.diagnosed import RIGHT, WRONG, Made, episode, good, hit

ET = FaultKind.et


def said(text: str, margins: tuple[float, ...] | None = None) -> Made:
    """A call whose tokens are the characters of its text."""
    tokens = tuple(map(ord, text))
    return good(text=text, tokens=tokens, margins=margins or tuple(9.0 - k for k in range(len(tokens))))


def test_the_first_token_that_differs_with_both_margins() -> None:
    first = episode("a", [said("same"), said("get x1", (4.0, 3.0, 0.5, 2.0, 0.25, 6.0)), RIGHT])
    second = episode("a", [said("same"), said("get y1", (5.0, 4.0, 0.5, 2.0, 0.75, 6.0)), WRONG])
    found = divergence(first, second, same_tokenizer=True)
    assert (found.part, found.phase) == (Part.generation, Phase.clean)
    assert (found.turn, found.token, found.character, found.same_text) == (1, 4, 4, False)
    assert found.first is not None
    assert found.second is not None
    assert (found.first.text, found.first.margin, found.first.narrowest_token) == ("get x1", 0.25, 4)
    assert (found.second.text, found.second.margin, found.second.narrowest_token) == ("get y1", 0.75, 2)
    assert found.first.observation == "ok 1"
    # Under different tokenizers texts compare; the token and its margins stay unknown.
    texts = divergence(first, second, same_tokenizer=False)
    assert (texts.turn, texts.token, texts.character) == (1, None, 4)
    assert texts.first is not None
    assert (texts.first.margin, texts.first.narrowest) == (None, 0.25)


def test_equal_episodes_do_not_part() -> None:
    one = episode("a", [said("same"), RIGHT])
    found = divergence(one, one, same_tokenizer=True)
    assert (found.part, found.phase, found.turn, found.first) == (Part.nothing, None, None, None)


def test_one_text_in_other_tokens_parts_only_by_tokens() -> None:
    first = episode("a", [good(text="ab", tokens=(1, 2), margins=(3.0, 2.0)), RIGHT])
    second = episode("a", [good(text="ab", tokens=(3,), margins=(1.0,)), RIGHT])
    found = divergence(first, second, same_tokenizer=True)
    assert (found.token, found.same_text, found.character) == (0, True, 2)
    assert divergence(first, second, same_tokenizer=False).part is Part.nothing


def test_a_turn_that_was_cut_parts_at_its_end() -> None:
    first = episode("a", [good(text="ab", tokens=(1, 2), margins=(3.0, 2.0)), RIGHT])
    second = episode("a", [good(text="a", tokens=(1,), margins=(1.0,)), RIGHT])
    found = divergence(first, second, same_tokenizer=True)
    assert found.token == 1
    assert found.first is not None
    assert found.second is not None
    assert (found.first.margin, found.second.margin) == (2.0, None)


def test_other_answers_and_other_lengths() -> None:
    first = episode("a", [said("call"), RIGHT])
    turn = first.turns[0]
    refused = replace(turn, observation=replace(turn.observation, text="no", ok=False))
    found = divergence(first, replace(first, turns=(refused, first.turns[1])), same_tokenizer=True)
    assert (found.part, found.turn, found.token) == (Part.observation, 0, None)
    longer = episode("a", [said("call"), RIGHT, RIGHT])
    found = divergence(first, longer, same_tokenizer=True)
    assert (found.part, found.turn) == (Part.length, 2)
    assert found.first is not None
    assert found.second is not None
    assert (found.first.text, found.second.text) == ("", "submit_answer 1")
    stopped = replace(first, ending=Ending.out_of_steps)
    assert divergence(first, stopped, same_tokenizer=True).part is Part.length


def test_phases_seen_from_the_fault_and_counts_over_pairs() -> None:
    reference = [
        episode("a", [said("get"), hit(), said("again"), RIGHT], ET),
        episode("b", [said("get"), hit(), said("again"), RIGHT], ET),
        episode("c", [said("get"), hit(), said("again"), RIGHT], ET),
        episode("d", [said("get"), hit(), said("again"), RIGHT], ET),
        episode("e", [RIGHT]),
    ]
    other = [
        episode("d", [said("get"), hit(), said("again"), RIGHT], ET),
        episode("a", [said("got"), hit(), said("again"), RIGHT], ET),
        episode("b", [said("get"), hit(), said("agaiN"), RIGHT], ET),
        episode("c", [said("get"), hit(), said("again"), said("more"), RIGHT], ET),
    ]
    found = divergences(reference, other, same_tokenizer=True)
    assert [one.task for one in found.pairs] == ["a", "b", "c", "d"]
    assert (found.unpaired, found.parted, found.with_token) == (1, 3, 3)
    # Margins fall along a turn: only the last token is the narrowest. `submit_answer 1` has a single token.
    assert [one.token for one in found.pairs] == [1, 4, 0, None]
    assert found.at_narrowest == 2
    assert dict(found.by_phase) == {Phase.clean: 0, Phase.before: 1, Phase.reaction: 1, Phase.after: 1}


def test_episodes_of_other_sites_are_refused() -> None:
    one, other = episode("a", [hit(), RIGHT], ET), episode("a", [hit(), RIGHT], ET, site=1)
    with pytest.raises(TableError, match="pair the same task and site"):
        divergence(one, other, same_tokenizer=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("xyz", min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_the_divergence_is_where_the_common_beginning_ends(turns: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(turns) - 1))
    place = data.draw(st.integers(0, len(turns[at]) - 1))
    changed = turns[at][:place] + "!" + data.draw(st.text("xyz!", max_size=3))
    tail = data.draw(st.lists(st.text("xyz", min_size=1), max_size=3))
    first = episode("a", [*map(said, turns), RIGHT])
    second = episode("a", [*map(said, [*turns[:at], changed, *tail]), RIGHT])
    found = divergence(first, second, same_tokenizer=True)
    assert (found.turn, found.token, found.character) == (at, place, place)
    mirrored = divergence(second, first, same_tokenizer=True)
    assert (mirrored.turn, mirrored.token) == (at, place)
    assert (mirrored.first, mirrored.second) == (found.second, found.first)
