"""The bars that the agents' model cards claim, measured again on the shipped files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from qfr.config import QuantConfig
from qfr.engine.files.quantize import derive
from qfr.records import FaultKind
from qfr.world.orders import build
from tools.reference.corpus import read_prompts
from tools.reference.dial import qualifies
from tools.reference.quality import (
    FAULTS,
    Quality,
    evaluation,
    held_out_prompts,
    main,
    measure,
    open_engine,
    show,
)

ROOT = Path(__file__).parents[1]
AGENTS = ("ref_llama", "ref_qwen")
PROMPTS = read_prompts(ROOT / "prompts")


def shipped(agent: str) -> Path:
    return ROOT / "qfr" / "reference" / "models" / f"{agent}-F16.gguf"


def measured(
    agent: str, preset: str, prompts: Mapping[str, str], kinds: Sequence[FaultKind]
) -> dict[str, Quality]:
    with TemporaryDirectory() as folder:
        file = shipped(agent)
        if preset != "F16":
            made = derive(file, QuantConfig(preset, None), Path(folder), allow_requantize=False)
            file = made.path
        engine = open_engine(file, Path(folder))
        found = {name: measure(engine, evaluation(), name, text, kinds) for name, text in prompts.items()}
        engine.close()
    return found


@cache
def under_own_prompts(agent: str) -> dict[str, Quality]:
    return measured(agent, "F16", PROMPTS, FAULTS)


def share(pair: tuple[int, int]) -> float:
    return pair[0] / pair[1] if pair[1] else 0.0


@pytest.mark.parametrize("preset", ["F16", "Q8_0"])
@pytest.mark.parametrize("agent", AGENTS)
def test_most_tasks_are_certified_in_both_families(agent: str, preset: str) -> None:
    found = under_own_prompts(agent) if preset == "F16" else measured(agent, preset, PROMPTS, ())
    counts = sorted((one.clean for one in found.values()), reverse=True)
    assert counts[3] >= 15, counts
    assert counts[4] >= 8, counts
    assert all(min(one.certified.values()) > 0 for one in found.values())


@pytest.mark.parametrize("agent", AGENTS)
def test_recovery_depends_on_the_prompt(agent: str) -> None:
    rates = [share(one.et) for one in under_own_prompts(agent).values()]
    assert max(rates) - min(rates) >= 0.4, rates


@pytest.mark.parametrize("agent", AGENTS)
def test_liberties_occur_under_some_prompt(agent: str) -> None:
    found = under_own_prompts(agent).values()
    expressions = [(one.clean_expressions + one.et_expressions) / (one.clean + one.et[0]) for one in found]
    assert max(expressions) >= 0.2, expressions
    assert any(one.loose_turns + one.et_loose for one in found)
    assert any(one.invented_tools for one in found)
    assert any(one.certified_strict < one.clean for one in found)


@pytest.mark.parametrize("agent", AGENTS)
def test_permanent_faults_are_reported_after_enough_calls_under_some_prompts_alone(agent: str) -> None:
    found = under_own_prompts(agent).values()
    assert max(share(one.ep) for one in found) >= 0.8
    assert min(share(one.ep) for one in found) <= 0.5


def test_one_agent_notices_displaced_records_under_one_prompt_and_the_other_never_does() -> None:
    noticed = {agent: [one.it_noticed for one in under_own_prompts(agent).values()] for agent in AGENTS}
    assert max(noticed["ref_qwen"]) >= 10, noticed
    assert noticed["ref_llama"] == [0] * 5, noticed


@pytest.mark.parametrize("agent", AGENTS)
def test_a_retry_clause_counts_in_combinations_that_training_never_saw(agent: str) -> None:
    found = measured(agent, "F16", held_out_prompts(), (FaultKind.et,))
    drops = []
    for i in range(1, 6):
        with_it, without = found[f"H{i}"], found[f"H{i} without"]
        assert with_it.clean >= 12, show(with_it)
        assert with_it.et_mean is not None
        drops.append(with_it.et_mean - (without.et_mean or 0.0))
    assert sum(drop >= 0.2 for drop in drops) >= 3, drops


def test_the_dial_rule_by_hand() -> None:
    passes = {"F16": (30, 30), "Q8_0": (30, 28), "Q4_K_M": (15, 20), "Q3_K_M": (24, 30)}
    assert qualifies(passes)
    for preset, counts in (
        ("Q8_0", (28, 28)),
        ("Q4_K_M", (14, 20)),
        ("Q3_K_M", (25, 30)),
        ("Q3_K_M", (20, 23)),
    ):
        assert not qualifies({**passes, preset: counts}), preset


def test_counts_agree_with_the_table_that_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = build({"base": 1, "shipping": 1}, 2026, "round")
    monkeypatch.setattr("tools.reference.quality.evaluation", lambda: small)
    out = tmp_path / "counts.json"
    assert main([str(shipped("ref_qwen")), "--prompts", str(ROOT / "prompts"), "--json", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "ref_qwen-F16.gguf"
    engine = open_engine(shipped("ref_qwen"), tmp_path)
    quality = measure(engine, small, "P3", PROMPTS["P3"], FAULTS)
    engine.close()
    assert "  " + show(quality) in printed
    assert '"prompt": "P3"' in out.read_text()
