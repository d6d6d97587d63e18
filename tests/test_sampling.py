"""Sampling: the filters are llama.cpp's, the choice draws from the softmax, and order cannot move it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from engine_builders import engine_config
from scipy.stats import chisquare
from tiny_models import TinyModel, write_model

from qfr.config import CellConfig, Noise
from qfr.engine.files.gguf import open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.sampling import Draw, Logits, Sampling, candidates, gumbel, noise_bits
from qfr.errors import ConfigError
from qfr.front.models import compose_cell
from qfr.identity import design_id
from qfr.records import Generation

RNG = np.random.default_rng(3)
LOGITS: Logits = (RNG.normal(size=300) * 3).astype(np.float32)


def by_llama_cpp(logits: Logits, sampling: Sampling) -> set[int]:
    """Tokens that llama.cpp's own samplers leave."""
    data = (llama_cpp.llama_token_data * len(logits))(
        *(llama_cpp.llama_token_data(at, float(one), 0.0) for at, one in enumerate(logits))
    )
    array = llama_cpp.llama_token_data_array(data, len(logits), -1, False)
    chain = [
        *([llama_cpp.llama_sampler_init_top_k(sampling.top_k)] if sampling.top_k else []),
        *([llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1)] if sampling.top_p < 1 else []),
        *([llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1)] if sampling.min_p else []),
    ]
    for one in chain:
        llama_cpp.llama_sampler_apply(one, ctypes.byref(array))
        llama_cpp.llama_sampler_free(one)
    return {array.data[at].id for at in range(array.size)}


@pytest.mark.parametrize("top_k", [0, 1, 7, 40, 400])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 0.01])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 0.3, 1.0])
def test_the_filters_leave_what_llama_cpp_leaves(top_k: int, top_p: float, min_p: float) -> None:
    sampling = Sampling(0.7, top_k, top_p, min_p, 1)
    for spread in (0.2, 1.0, 4.0):
        logits = (LOGITS * spread).astype(np.float32)
        assert set(candidates(logits, sampling).tolist()) == by_llama_cpp(logits, sampling)


@pytest.mark.parametrize("sampling", [Sampling(0.8, 0, 1.0, 0.0, 1), Sampling(1.5, 8, 0.95, 0.02, 1)])
def test_choices_are_draws_from_the_softmax(sampling: Sampling) -> None:
    logits = LOGITS[:12] / 3
    counts = np.zeros(12)
    for number in range(6_000):
        counts[sampling.draw(f"task {number}", 0, number % 3).choose(logits, number % 5)] += 1
    kept = candidates(logits, sampling)
    shares = np.exp(logits[kept].astype(np.float64) / sampling.temperature)
    assert len(kept) > 4
    assert counts.sum() == counts[kept].sum()
    assert chisquare(counts[kept], 6_000 * shares / shares.sum(), sum_check=False).pvalue > 0.001


def test_what_cannot_win_is_skipped_without_another_choice() -> None:
    for number in range(400):
        sampling = Sampling(0.3 + number / 100, 0, 1.0, 0.0, number)
        draw = sampling.draw("t", 0, 0)
        key = np.frombuffer(key_of(draw), dtype="<u8")
        whole = LOGITS.astype(np.float64) / sampling.temperature + gumbel(noise_bits(key, 5, len(LOGITS)))
        assert draw.choose(LOGITS, 5) == int(whole.argmax())


def key_of(draw: Draw) -> bytes:
    return bytes(draw.key)


def test_noise_depends_on_seed_task_trial_turn_position_and_preset_alone() -> None:
    flat = np.zeros(4_000, dtype=np.float32)
    plain = Sampling(1.0, 0, 1.0, 0.0, 1)
    first = plain.draw("task", 0, 0).choose(flat, 0)
    assert plain.draw("task", 0, 0).choose(flat, 0) == first
    others = (
        Sampling(1.0, 0, 1.0, 0.0, 2).draw("task", 0, 0).choose(flat, 0),
        Sampling(1.0, 0, 1.0, 0.0, 1, "digest").draw("task", 0, 0).choose(flat, 0),
        plain.draw("task 2", 0, 0).choose(flat, 0),
        plain.draw("task", 1, 0).choose(flat, 0),
        plain.draw("task", 0, 1).choose(flat, 0),
        plain.draw("task", 0, 0).choose(flat, 1),
    )
    assert first not in others


def turns(
    path: Path, *, trial: int = 0, tasks: tuple[str, ...] = ("a", "b"), **changes: object
) -> list[Generation]:
    """Two turns of each task."""
    engine = LlamaEngine(open_model(path, path.parent), engine_config(**changes), 512)
    made = []
    for task in tasks:
        made += [engine.begin("system", task, 12, trial=trial), engine.reply("told", 12)]
    engine.close()
    return made


def test_turns_do_not_depend_on_order_and_are_greedy_at_zero(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel())
    warm = {"temperature": 1.5}
    a, a2, b, b2 = turns(path, **warm)
    assert turns(path, **warm, tasks=("b", "a")) == [b, b2, a, a2]
    assert turns(path, **warm, trial=1)[0].token_ids != a.token_ids
    assert turns(path, **warm, seed=2)[0].token_ids != a.token_ids
    assert turns(path, **warm, noise=Noise.own)[0].token_ids != a.token_ids
    greedy = turns(path)
    assert turns(path, top_k=5, trial=3) == greedy
    assert greedy[0].token_ids != a.token_ids
    # The digest and the margins are of the logits as they were, whatever was drawn.
    assert len(a.margins) == len(a.token_ids)


def test_greedy_cells_keep_their_ids_and_what_cannot_sample_says_so() -> None:
    def cell(*more: str) -> CellConfig:
        return compose_cell("model=local", "model.path=/m/a.gguf", "quant=f16", *more)

    def identity(one: CellConfig) -> str:
        return design_id(one, prompt_sha256="p", suite_sha256="s", llama_commit="c")

    assert identity(cell("engine.top_p=0.5", "engine.noise=own")) == identity(cell())
    assert identity(cell("engine.temperature=0.7")) != identity(cell())
    for bad, told in (
        ("engine.temperature=-1", "engine.temperature=-1 is not possible"),
        ("engine.top_p=0", "engine.top_p=0 is not possible"),
        ("engine.min_p=2", "engine.min_p=2 is not possible"),
        ("engine.top_k=-1", "engine.top_k"),
    ):
        with pytest.raises(ConfigError, match=told):
            cell(bad)
    with pytest.raises(ConfigError, match="a scripted agent has no logits"):
        compose_cell("model=scripted", "engine=scripted", "engine.temperature=1")
