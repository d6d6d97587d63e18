"""`ref_hermes` plays native tool calls on both worlds, and does what its prompts say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qfr.config import ExecutorKind
from qfr.engine.llama.engine import LlamaEngine
from qfr.episode import Episodes
from qfr.records import Ending, FaultKind, Policy
from qfr.scoring import score
from qfr.world.base import Suite, sites
from qfr.world.ledger import of_suite
from tests.test_reference_models import shipped
from tools.reference.quality import RULES, evaluation, measure, open_engine

PROMPTS = Path(__file__).parents[1] / "prompts"
NATIVE = replace(RULES, executor=ExecutorKind.native)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaEngine]:
    made = open_engine(shipped("ref_hermes"), tmp_path_factory.mktemp("models"))
    yield made
    made.close()


def text(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text("utf-8")


def test_it_certifies_most_orders_and_recovers_where_the_prompt_asks_for_it(engine: LlamaEngine) -> None:
    asked = measure(engine, evaluation(), "N0", text("N0"), (FaultKind.et,), NATIVE)
    silent = measure(engine, evaluation(), "N1", text("N1"), (FaultKind.et,), NATIVE)
    assert asked.clean >= 12
    assert silent.clean >= 12
    assert asked.et[0] >= 0.6 * asked.et[1]
    assert silent.et[0] <= 0.2 * silent.et[1]


def test_a_clause_decides_whether_it_looks_before_it_pays_again(engine: LlamaEngine) -> None:
    world = of_suite(Suite({"pay": 5}, seed=2026, grid="round"))
    for name, right in (("NL0", True), ("NL1", False)):
        episodes = Episodes(engine, world, text(name), NATIVE)
        for task in world.tasks:
            (site,) = sites(task, FaultKind.la)
            assert score(episodes.play("c", task, FaultKind.none, None), Policy.strict).success
            played = episodes.play("c", task, FaultKind.la, site)
            assert played.ending is Ending.submitted
            # Whoever pays again without looking has paid twice.
            assert score(played, Policy.tolerant).success is right
