"""Rewrites keep what a prompt says, follow from the seed alone, and apply in one order."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from qfr.clauses import BASES
from qfr.front.models import compose_cell
from qfr.grid.design import design_of
from qfr.rewrites import Rewrite, rewrite

FOLDER = Path(__file__).parent.parent / "prompts"
TEXTS = {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in BASES}


def shown(text: str) -> list[str]:
    """Lines whose form the agent copies."""
    return sorted(line for line in text.split("\n") if re.match(r"- \w+\(|\{|Task:|Observation:", line))


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("seed", range(6))
def test_tools_calls_and_observations_keep_their_words(name: str, seed: int) -> None:
    text = rewrite(TEXTS[name], list(Rewrite), seed)
    assert shown(text) == shown(TEXTS[name])
    assert '{"tool": "<name>", "arguments": {"<argument>": <value>}}' in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", BASES)
def test_moving_keeps_every_line(name: str) -> None:
    for way in (Rewrite.sections, Rewrite.tools, Rewrite.spacing):
        lines = [line for line in rewrite(TEXTS[name], [way], 4).split("\n") if line]
        assert sorted(lines) == sorted(line for line in TEXTS[name].split("\n") if line)


def test_every_rewrite_changes_some_prompt_and_seeds_differ() -> None:
    for way in Rewrite:
        texts = {seed: [rewrite(text, [way], seed) for text in TEXTS.values()] for seed in range(8)}
        assert texts[0] != list(TEXTS.values())
        assert len(set(map(tuple, texts.values()))) > 1


def test_the_order_in_which_rewrites_are_named_changes_nothing() -> None:
    some = ("sections", "synonyms", "spacing")
    texts = {rewrite(TEXTS["P0"], names, 5) for names in permutations(some)}
    assert len(texts) == 1
    ids = set()
    for names in ("[sections,spacing]", "[spacing,sections]"):
        cell = compose_cell("prompt=P0", f"prompt.rewrites={names}", "prompt.rewrite_seed=5")
        assert cell.prompt.name == "P0_sections.spacing.5"
        ids.add(design_of(cell).design_id)
    assert len(ids) == 1
    assert ids != {design_of(compose_cell("prompt=P0")).design_id}


def test_a_seed_without_a_rewrite_is_no_other_cell() -> None:
    plain, seeded = (compose_cell("prompt=P0", f"prompt.rewrite_seed={seed}") for seed in (0, 9))
    assert plain == seeded
