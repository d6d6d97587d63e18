"""Ids and bytes of the orders suites: whatever is added later, what was published stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qfr.canonical import sha256_hex
from qfr.cell import Track, walk
from qfr.config import EngineKind, Gate
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world, suite_digest
from qfr.grid.design import design_of
from qfr.journal import log_bytes
from qfr.play.engine_cache import rules_of, scripted_policy
from qfr.records import Episode, FaultKind
from tests.walks import Walked, play_one, reference_agent

UNMOVED = json.loads((Path(__file__).parent / "fixtures" / "unmoved.json").read_text())
KINDS = (FaultKind.et, FaultKind.ep, FaultKind.it)


@pytest.mark.parametrize("name", UNMOVED["suites"])
def test_suites_keep_their_digests(name: str) -> None:
    assert suite_digest(compose_cell(f"suite={name}").suite) == UNMOVED["suites"][name]


@pytest.mark.parametrize("line", UNMOVED["designs"])
def test_cells_keep_their_ids(line: str) -> None:
    cell = compose_cell(*line.split())
    design = design_of(cell)
    if cell.engine.kind is EngineKind.llama_cpp and "0c1e570" not in design.llama_commit:
        pytest.skip("another llama.cpp than the one of these ids")
    assert design.design_id == UNMOVED["designs"][line]


def test_the_scripted_agent_leaves_the_same_bytes() -> None:
    cell = compose_cell("model=scripted", "quant=q4_k_m", "suite=orders6")
    world, design = build_world(cell.suite), design_of(cell)
    played: dict[str, list[Episode]] = {kind: [] for kind in (FaultKind.none, *KINDS)}
    walk(
        Episodes(ScriptedEngine(scripted_policy(cell, world)), world, design.prompt.text, rules_of(cell)),
        Track("c-none", FaultKind.none, Gate.certified, {}),
        tuple(Track(f"c-{kind}", kind, Gate.certified, {}) for kind in KINDS),
        lambda track, episode, seconds: played[track.kind].append(episode),
    )
    assert {kind: sha256_hex(log_bytes(log)) for kind, log in played.items()} == UNMOVED["scripted"]


def test_the_reference_agent_leaves_the_same_bytes(tmp_path: Path) -> None:
    walked = Walked(tmp_path, KINDS)
    play_one(reference_agent("ref_llama", tmp_path), walked)
    texts = {
        kind: sha256_hex(
            "\n".join(
                turn.generation.text + turn.observation.text for one in done.values() for turn in one.turns
            ).encode()
        )
        for kind, done in walked.done.items()
    }
    # Logit digests differ from one processor to the next, so the texts are compared here, not the log.
    assert texts == UNMOVED["reference"]
