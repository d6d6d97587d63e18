"""Memory of a model: what the header says against what llama.cpp allocates, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from engine_builders import engine_config, smollm2

import qfr.reference
from qfr.config import EngineConfig
from qfr.engine.files.header import read_header
from qfr.engine.files.memory import Need, Room, need, require_room, room_here
from qfr.engine.llama.api import LlamaLog
from qfr.engine.llama.model import LoadedModel
from qfr.errors import EngineError

AGENT = Path(qfr.reference.__file__).parent / "models" / "ref_llama-F16.gguf"
GB = 10**9


def allocated(path: Path, config: EngineConfig, n_ctx: int) -> dict[str, float]:
    """Bytes of llama.cpp's buffers, by kind, as it logs them."""
    log = LlamaLog(keep=4000)
    LoadedModel(path, config, n_ctx, log).close()
    found: dict[str, float] = {}
    for line in log.lines():
        if match := re.search(r"(model|KV|compute) buffer size =\s+([\d.]+) MiB", line):
            found[match[1]] = found.get(match[1], 0.0) + float(match[2]) * 2**20
    return found


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        (AGENT, {}),
        (AGENT, {"type_k": "f32", "type_v": "bf16"}),
        (AGENT, {"streams": 3}),
        (smollm2(), {"n_ubatch": 64}),
        (smollm2(), {"flash_attn": True, "type_k": "q8_0", "type_v": "q8_0", "n_ubatch": 64}),
    ],
)
def test_the_estimate_agrees_with_what_llama_cpp_allocates(path: Path, changes: dict[str, object]) -> None:
    config = engine_config(**changes)
    told = allocated(path, config, 1000)
    found = need(path, config, 1000, offload=False)
    assert found is not None
    # llama.cpp prints hundredths of a MiB.
    assert found.cache == pytest.approx(told["KV"], abs=0.006 * 2**20)
    assert told["model"] == pytest.approx(found.weights, rel=0.02)
    assert 0.95 * told["compute"] <= found.compute <= 2 * told["compute"] + 2**20
    assert found.offloaded == found.device == 0


def test_layers_move_to_the_device_with_their_weights_and_cache() -> None:
    header = read_header(AGENT)
    blocks = header.get("llama.block_count")
    assert isinstance(blocks, int)
    sizes = {tensor.name: tensor.size for tensor in header.tensors}

    def at(layers: int) -> Need:
        found = need(AGENT, engine_config(n_gpu_layers=layers), 512, offload=True)
        assert found is not None
        return found

    embedding = sizes["token_embd.weight"]
    assert at(-1) == at(blocks + 1) == at(999)
    assert at(-1).device_weights == sum(sizes.values()) - embedding
    assert at(-1).device_cache == at(-1).cache
    # The output layer goes first, then the last block.
    assert at(1).device_cache == 0
    assert at(2).device_cache == at(2).cache // blocks
    last = sum(size for name, size in sizes.items() if name.startswith(f"blk.{blocks - 1}."))
    assert at(2).device_weights - at(1).device_weights == last
    for layers in range(blocks + 2):
        found = at(layers)
        assert found.device + found.host == found.weights + found.cache + found.compute
        assert (found.offloaded, found.layers) == (layers, blocks + 1)


NEED = Need(
    weights=5 * GB,
    device_weights=4 * GB,
    cache=2 * GB,
    device_cache=2 * GB,
    compute=GB,
    layers=33,
    offloaded=33,
)


def test_a_model_that_fits_is_let_through() -> None:
    require_room(AGENT, NEED, Room(total=2 * GB, available=GB, devices=(4 * GB, 3 * GB)))


def test_too_small_a_gpu_is_refused_with_the_layers_that_fit() -> None:
    with pytest.raises(EngineError) as caught:
        require_room(AGENT, NEED, Room(total=64 * GB, available=60 * GB, devices=(4 * GB,)))
    text = str(caught.value)
    assert "needs 7.0 GB of GPU memory" in text
    assert "4.0 GB are free on 1 GPU(s)" in text
    # Three gigabytes for layers of 6/33 GB each.
    assert "engine.n_gpu_layers=16 fits (of 33)" in text


def test_the_layers_that_are_said_to_fit_do_fit() -> None:
    for free in (0, 10**6, 3 * 10**6, 6 * 10**6, 40 * 10**6):
        found = need(AGENT, engine_config(n_ubatch=64), 512, offload=True)
        assert found is not None
        room = Room(10**12, 10**12, (free,))
        try:
            require_room(AGENT, found, room)
        except EngineError as error:
            match = re.search(r"n_gpu_layers=(\d+) fits", str(error))
            assert match is not None
            less = need(AGENT, engine_config(n_ubatch=64, n_gpu_layers=int(match[1])), 512, offload=True)
            assert less is not None
            require_room(AGENT, less, room)


def test_too_little_main_memory_is_refused_but_weights_may_be_dropped_again() -> None:
    on_cpu = replace(NEED, device_weights=0, device_cache=0, offloaded=0)
    require_room(AGENT, on_cpu, Room(total=9 * GB, available=4 * GB, devices=()))
    for room in (Room(total=7 * GB, available=7 * GB, devices=()), Room(64 * GB, 2 * GB, devices=())):
        with pytest.raises(EngineError, match=r"needs 8\.0 GB of main memory \(5\.0 GB weights"):
            require_room(AGENT, on_cpu, room)


def test_the_engine_refuses_before_it_loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from qfr.engine.files import memory
    from qfr.engine.files.gguf import open_model
    from qfr.engine.llama.engine import LlamaEngine

    monkeypatch.setattr(memory, "room_here", lambda free, config: Room(10**6, 10**6, ()))
    with pytest.raises(EngineError, match="of main memory"):
        LlamaEngine(open_model(AGENT, tmp_path), engine_config(), 512)


def test_this_machine_has_room() -> None:
    room = room_here((5, 7), engine_config())
    assert room is not None
    assert 0 < room.available <= room.total
    assert room.devices == (5, 7)
    one = room_here((5, 7), engine_config(split_mode="none", main_gpu=1))
    assert one is not None
    assert one.devices == (7,)
