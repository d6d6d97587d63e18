"""The trial of forks against fresh evaluation: what it finds, what it remembers, what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from engine_builders import engine_config, episodes, play
from tiny_models import MODELS, write_model

from qfr.engine.base import Exactness
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.exactness import examine
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.sequences import Saved, Sequences
from qfr.engine.llama.streams import LlamaStreams
from qfr.engine.worker import WorkerEngine
from qfr.play.exactness import FOLDER, assure, combination, told


@pytest.fixture
def model(tmp_path: Path) -> Callable[[str], ModelFile]:
    return lambda name: open_model(write_model(tmp_path / f"{name}.gguf", MODELS[name]), tmp_path)


@pytest.mark.parametrize("streams", [1, 3])
def test_forks_of_a_plain_cache_are_exact(streams: int, model: Callable[[str], ModelFile]) -> None:
    kind = LlamaEngine if streams == 1 else LlamaStreams
    engine = kind(model("chatml"), engine_config(streams=streams), 2048)
    found = examine(engine)
    assert (found.exact, found.difference) == (True, "")
    # Three turns of each of the four episodes that are played as forks.
    assert found.turns == 12
    assert engine.info.rewind
    engine.close()


@pytest.mark.parametrize("streams", [1, 2])
def test_a_recurrent_state_has_no_forks(streams: int, model: Callable[[str], ModelFile]) -> None:
    kind = LlamaEngine if streams == 1 else LlamaStreams
    engine = kind(model("recurrent"), engine_config(streams=streams), 2048)
    found = examine(engine)
    assert (found.exact, found.turns) == (False, 0)
    assert "cannot be taken back" in told(found)
    engine.close()


def test_a_cache_that_rewinds_to_the_wrong_place_is_found(
    model: Callable[[str], ModelFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache keeps one token too few: no error is raised, only the logits tell."""
    engine = LlamaEngine(model("chatml"), engine_config(), 2048)
    exactly = LoadedModel.rewind
    monkeypatch.setattr(LoadedModel, "rewind", lambda self, length: exactly(self, length - 1))
    found = examine(engine)
    assert not found.exact
    assert "episode" in found.difference
    engine.close()


def test_copies_that_are_not_the_very_bits_are_found(
    model: Callable[[str], ModelFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Low bits of a copied cache are flipped."""
    engine = LlamaStreams(model("chatml"), engine_config(streams=2), 2048)
    exactly = Sequences.restore

    def flipped(self: Sequences, sequence: int, saved: Saved) -> None:
        damaged = type(saved.data).from_buffer_copy(saved.data)
        for place in range(len(damaged) // 4, 3 * len(damaged) // 4, 64):
            damaged[place] ^= 4
        exactly(self, sequence, Saved(damaged))

    monkeypatch.setattr(Sequences, "restore", flipped)
    found = examine(engine)
    assert not found.exact
    engine.close()


def test_what_was_found_is_remembered_per_combination(
    model: Callable[[str], ModelFile], tmp_path: Path
) -> None:
    said: list[str] = []
    config = engine_config()
    engine = WorkerEngine(model("chatml"), config, 1024)
    first = assure(engine, config, tmp_path, said.append)
    assert first.exact
    assert len(said) == 1
    assert engine.info.exactness == "forks are bit-equal to fresh evaluation"
    place = tmp_path / FOLDER / f"{combination(engine.info, config)}.json"
    assert json.loads(place.read_text())["model_sha256"] == engine.info.model_sha256
    assert assure(engine, config, tmp_path, said.append) == first
    assert len(said) == 1
    # Another thread count is another combination; a file that cannot be read is tried again.
    assert combination(engine.info, replace(config, n_threads=2)) not in place.name
    place.write_text("{")
    assert assure(engine, config, tmp_path, said.append).exact
    assert len(said) == 2
    engine.close()


def test_an_engine_whose_forks_are_not_exact_evaluates_afresh(
    model: Callable[[str], ModelFile], tmp_path: Path
) -> None:
    config, scripts = engine_config(), episodes(depth=1, tasks=1)
    engine = WorkerEngine(model("chatml"), config, 1024)
    wanted = [play(engine, script) for script in scripts]
    place = tmp_path / FOLDER / f"{combination(engine.info, config)}.json"
    place.parent.mkdir()
    bad = Exactness(False, 15, "episode 1, turn 2: the same text, other logits", 0.1)
    place.write_text(json.dumps({"exact": False, "turns": 15, "difference": bad.difference, "seconds": 0.1}))
    assert assure(engine, config, tmp_path, print) == bad
    assert not engine.info.rewind
    assert engine.info.exactness.startswith("forks are NOT bit-equal (episode 1")
    engine.reset_counters()
    assert [play(engine, script) for script in scripts] == wanted
    counters = engine.counters()
    assert counters.evaluated > counters.tree
    engine.close()


def test_a_folder_that_cannot_be_written_is_told(model: Callable[[str], ModelFile], tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "root").write_text("a file")
    engine = WorkerEngine(model("chatml"), engine_config(), 1024)
    assert assure(engine, engine_config(), tmp_path / "root", said.append).exact
    assert "not remembered" in said[1]
    engine.close()
