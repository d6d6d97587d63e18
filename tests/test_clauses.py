"""Named clauses: exact bytes by a fixed rule, the ids of P0 to P4 unmoved, and a switch that is an axis."""

from __future__ import annotations

import dataclasses
import hashlib
from itertools import product
from pathlib import Path

import pytest

from qfr.canonical import canonical
from qfr.clauses import BASES, TEXTS, Clause, apply, has, states
from qfr.errors import ConfigError
from qfr.front.models import compose_cell
from qfr.grid.design import design_of
from qfr.scope import group, scope_of
from tests.builders import make_facts

FOLDER = Path(__file__).parent.parent / "prompts"
BASE_TEXTS = {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in BASES}


def test_bases_are_the_files_that_come_with_qfr() -> None:
    for name, (digest, _) in BASES.items():
        assert hashlib.sha256((FOLDER / f"{name}.md").read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("name", BASES)
def test_every_combination_has_a_clean_text_of_its_own(name: str) -> None:
    seen: dict[str, tuple[Clause, ...]] = {}
    for values in product((True, False), repeat=len(Clause)):
        switches = dict(zip(Clause, values, strict=True))
        if switches[Clause.report_after_attempts] and not switches[Clause.retry_required]:
            continue
        text = apply(BASE_TEXTS[name], name, True, switches)
        on = tuple(clause for clause in Clause if switches[clause])
        assert seen.setdefault(text, on) == on
        lines = text.split("\n")
        assert text == text.rstrip("\n") + "\n"
        assert "\n\n\n" not in text
        assert all(line == line.strip() and "  " not in line for line in lines)
        numbers = [int(line.partition(".")[0]) for line in lines if line[:1].isdigit()]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", BASES)
def test_what_a_base_says_already_changes_nothing(name: str) -> None:
    own = {clause: has(name, clause) for clause in Clause}
    assert apply(BASE_TEXTS[name], name, True, own) == BASE_TEXTS[name]
    assert apply(BASE_TEXTS[name], name, True, {}) == BASE_TEXTS[name]


def test_added_clauses_follow_the_base_in_the_fixed_order() -> None:
    asked = {Clause.no_invented_values: True, Clause.tools_may_fail: True, Clause.worked_example: True}
    text = apply("Do it.\n", "mine", False, asked)
    example, may_fail, invent = (
        TEXTS[one] for one in (Clause.worked_example, Clause.tools_may_fail, Clause.no_invented_values)
    )
    assert text == f"Do it.\n\n{example}\n\n{may_fail} {invent}\n"


def test_removing_the_retry_clause_from_p0_takes_that_sentence_alone() -> None:
    text = apply(BASE_TEXTS["P0"], "P0", True, {Clause.retry_required: False})
    gone = TEXTS[Clause.retry_required][:-1] + "; only then call report_failure."
    assert gone in BASE_TEXTS["P0"]
    assert gone not in text
    kept = "Call report_failure only when a tool is permanently unavailable."
    assert BASE_TEXTS["P0"].replace(gone, kept) == text


def test_a_switch_decides_name_text_and_id() -> None:
    plain = {name: design_of(compose_cell(f"prompt={name}")) for name in ("P0", "P1")}
    same = compose_cell("prompt=P0", "prompt.retry_required=true")
    assert same.prompt.name == "P0"
    assert design_of(same).design_id == plain["P0"].design_id
    added = compose_cell("prompt.base=P1", "prompt.clauses=[retry_required]")
    assert added.prompt.name == "P1+retry_required"
    other = compose_cell("prompt=P1", "prompt.retry_required=true")
    ids = {design_of(added).design_id, design_of(other).design_id}
    assert len(ids) == 1
    assert ids.isdisjoint({one.design_id for one in plain.values()})
    assert design_of(added).prompt.text == plain["P1"].prompt.text + f"\n{TEXTS[Clause.retry_required]}\n"
    removed = compose_cell("prompt=P0", "prompt.retry_required=false")
    assert removed.prompt.name == "P0-retry_required"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("prompt.clauses=[retry_requird]",), "did you mean 'retry_required'"),
        (("prompt.base=P9",), "prompt.base='P9' is no prompt of qfr"),
        (("prompt.clauses=[retry_required]", "prompt.retry_required=false"), "takes it away"),
        (("prompt.rewrites=[heading]",), "did you mean 'headings'"),
        (("prompt.rewrite_seed=-1",), "too small"),
    ],
)
def test_bad_clauses_are_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compose_cell(*overrides)


def test_a_clause_that_speaks_of_attempts_needs_them() -> None:
    with pytest.raises(ConfigError, match="attempts that this prompt does not ask for"):
        design_of(compose_cell("prompt=P1", "prompt.clauses=[report_after_attempts]"))


def test_a_clause_is_an_axis_within_one_base() -> None:
    asked = (("P0", "null"), ("P0", "false"), ("P1", "true"), ("P1", "false"), ("P2", "null"))
    scopes = []
    for prompt, switch in asked:
        cell = compose_cell(f"prompt={prompt}", f"prompt.retry_required={switch}")
        design = design_of(cell)
        facts = make_facts("ref_llama", "Q8_0", cell.prompt.name, "et")
        config = canonical(dataclasses.asdict(cell))
        scopes.append(scope_of(dataclasses.replace(facts, prompt_sha256=design.prompt.sha256, config=config)))
    found = group(scopes, ("prompt.retry_required",), of=lambda one: one)
    assert [len(one.members) for one in found] == [2, 2, 1]
    assert [one["prompt.retry_required"] for one in found[1].members] == ["true", "false"]


def test_states_of_a_text_of_ones_own_are_those_that_were_switched() -> None:
    assert states("mine", False, {Clause.retry_required: True}) == {Clause.retry_required: True}
    assert states("P0", True, {})[Clause.retry_required]
