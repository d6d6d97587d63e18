"""On the shipped agents, for every preset: forked, fresh and reordered episodes are the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from qfr.cell import Track, walk
from qfr.config import Gate, QuantConfig
from qfr.engine.files.gguf import open_model
from qfr.engine.files.quantize import derive
from qfr.episode import Episodes
from qfr.journal import encode
from qfr.records import Episode, FaultKind
from qfr.world.base import sites
from qfr.world.orders import build
from tools.reference.corpus import read_prompts
from tools.reference.quality import FAULTS, RULES, open_engine

ROOT = Path(__file__).parents[1]
WORLD = build({"base": 1, "shipping": 1}, 2026, "round")
PROMPT = read_prompts(ROOT / "prompts")["P2"]
PRESETS = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K")


def preset_file(agent: str, preset: str, folder: Path) -> Path:
    source = ROOT / "qfr" / "reference" / "models" / f"{agent}-F16.gguf"
    if preset == "F16":
        return open_model(source, folder).path
    return derive(source, QuantConfig(preset, None), folder, allow_requantize=False).path


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("agent", ["ref_llama", "ref_qwen"])
def test_forked_fresh_and_reordered_episodes_are_the_same_bytes(
    agent: str, preset: str, tmp_path: Path
) -> None:
    file = preset_file(agent, preset, tmp_path)
    engine = open_engine(file, tmp_path)
    forked: dict[tuple[str, str, int], bytes] = {}

    def record(_track: Track, episode: Episode, _seconds: float) -> None:
        site = -1 if episode.trace is None else episode.trace.site
        forked[(episode.task, str(episode.fault), site)] = encode(episode)

    clean = Track("clean", FaultKind.none, Gate.none, {})
    # Ungated: the low presets certify nothing, and their episodes count here all the same.
    faults = tuple(Track("fault", kind, Gate.none, {}) for kind in FAULTS)
    walk(Episodes(engine, WORLD, PROMPT, RULES), clean, faults, record)
    counters = engine.counters()
    assert counters.evaluated == counters.tree
    tasks = {task.id: task for task in WORLD.tasks}
    assert len(forked) == sum(1 + sum(len(sites(task, kind)) for kind in FAULTS) for task in WORLD.tasks)
    keys = sorted(forked)
    random.Random(3).shuffle(keys)

    def again(player: Episodes, key: tuple[str, str, int]) -> bytes:
        task, kind = tasks[key[0]], FaultKind(key[1])
        site = None if kind is FaultKind.none else sites(task, kind)[key[2]]
        return encode(player.play("clean" if site is None else "fault", task, kind, site))

    other = open_engine(file, tmp_path)
    reordered = Episodes(other, WORLD, PROMPT, RULES)
    assert [again(reordered, key) for key in keys] == [forked[key] for key in keys]
    other.close()
    for key in keys[:4]:
        alone = open_engine(file, tmp_path)
        assert again(Episodes(alone, WORLD, PROMPT, RULES), key) == forked[key]
        alone.close()
    engine.close()
