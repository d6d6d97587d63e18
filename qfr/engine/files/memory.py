"""What a model will need before it is loaded, against what the machine has.

Weights and key-value cache follow from the header and are exact for plain transformers; the space for one
batch is an upper bound seen to hold on llama.cpp's own figures. A model that cannot fit is refused here, in
words, instead of by an abort in the middle of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.config import EngineConfig
from qfr.engine.files.header import Header, TensorInfo, read_header
from qfr.engine.files.parts import parts_of
from qfr.errors import EngineError

# Bytes of a cache type per block, and elements of the block.
_CACHE_BLOCKS = {
    "f32": (4, 1),
    "f16": (2, 1),
    "bf16": (2, 1),
    "q8_0": (34, 32),
    "q5_1": (24, 32),
    "q5_0": (22, 32),
    "q4_1": (20, 32),
    "q4_0": (18, 32),
    "iq4_nl": (18, 32),
}
# llama.cpp rounds the context of a sequence up to this many tokens.
_CTX_STEP = 256
_GB = 1e9


@dataclass(frozen=True)
class Need:
    """Bytes that a loaded model takes."""

    weights: int
    # All tensors.
    device_weights: int
    # Those of the layers that go to GPUs.
    cache: int
    # Key-value cache of all streams.
    device_cache: int
    # The part of it that goes to GPUs.
    compute: int
    # Space for one batch, at most.
    layers: int
    # That can be placed on a GPU, the output layer included.
    offloaded: int
    # That will be.

    @property
    def device(self) -> int:
        """On GPUs."""
        return self.device_weights + self.device_cache + self.compute if self.offloaded else 0

    @property
    def host(self) -> int:
        """In main memory, weights included that are mapped from the file and can be dropped again."""
        return self.weights - self.device_weights + self.pinned

    @property
    def pinned(self) -> int:
        """In main memory and not to be dropped."""
        return self.cache - self.device_cache + (0 if self.offloaded else self.compute)


@dataclass(frozen=True)
class Room:
    """Bytes that the machine has."""

    total: int
    # Main memory that this process may ever use.
    available: int
    # Main memory that is free now.
    devices: tuple[int, ...]
    # Free now on each GPU that the model may use.


def need(path: Path, config: EngineConfig, n_ctx: int, *, offload: bool) -> Need | None:
    """What a GGUF will take; None where its header does not tell (an architecture without attention heads).

    Parameters
    ----------
    path : Path
        The GGUF, or its first part.
    config : EngineConfig
        Streams, cache types, batch and offload.
    n_ctx : int
        Context of one stream, in tokens.
    offload : bool
        Whether this build can place layers on a GPU.

    Raises
    ------
    ModelFileError
        The header cannot be read.
    """
    headers = [read_header(part) for part in parts_of(path)]
    shape = _shape(headers[0])
    if shape is None:
        return None
    tensors = [tensor for header in headers for tensor in header.tensors]
    blocks = shape.blocks
    wanted = config.n_gpu_layers if config.n_gpu_layers >= 0 else blocks + 1
    offloaded = min(wanted, blocks + 1) if offload else 0
    first = blocks + 1 - offloaded
    context = -(-n_ctx // _CTX_STEP) * _CTX_STEP * config.streams
    per_layer = context * sum(_cache_bytes(name, shape.kv_width) for name in (config.type_k, config.type_v))
    on_device = max(0, blocks - first)
    return Need(
        weights=sum(tensor.size for tensor in tensors),
        device_weights=sum(tensor.size for tensor in tensors if first <= _layer(tensor, blocks)),
        cache=per_layer * blocks,
        device_cache=per_layer * on_device,
        compute=_compute(shape, config, context // config.streams),
        layers=blocks + 1,
        offloaded=offloaded,
    )


def require_room(path: Path, needed: Need, room: Room) -> None:
    """Refuse a model that cannot fit.

    Raises
    ------
    EngineError
        Says what is needed, what there is, and which settings need less.
    """
    if needed.offloaded and room.devices and needed.device > sum(room.devices):
        raise EngineError(
            f"it needs {_gb(needed.device)} of GPU memory ({_gb(needed.device_weights)} weights, "
            f"{_gb(needed.device_cache)} key-value cache, up to {_gb(needed.compute)} for a batch); "
            f"{_gb(sum(room.devices))} are free on {len(room.devices)} GPU(s)",
            where=str(path),
            hint=_device_hint(needed, room),
        )
    if needed.host > room.total or needed.pinned > room.available:
        raise EngineError(
            f"it needs {_gb(needed.host)} of main memory ({_gb(needed.weights - needed.device_weights)} "
            f"weights, {_gb(needed.cache - needed.device_cache)} key-value cache, up to "
            f"{_gb(needed.compute)} for a batch); the machine has {_gb(room.total)}, of which "
            f"{_gb(room.available)} are free",
            where=str(path),
            hint="less is needed by a smaller preset, engine.n_ctx, engine.streams or engine.n_ubatch",
        )


def room_here(free: Sequence[int], config: EngineConfig) -> Room | None:
    """Main memory of this machine, or of the control group that this process runs in; None off Linux.

    `free` are the free bytes of each GPU; without splitting only `engine.main_gpu` counts.
    """
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    total, available = fields["MemTotal"], fields.get("MemAvailable", fields["MemTotal"])
    limit = _group_limit(Path("/sys/fs/cgroup/memory.max"))
    if limit is not None:
        total, available = min(total, limit), min(available, limit)
    devices = free[config.main_gpu : config.main_gpu + 1] if config.split_mode == "none" else free
    return Room(total, available, tuple(devices))


def _group_limit(file: Path) -> int | None:
    try:
        text = file.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


@dataclass(frozen=True)
class _Shape:
    blocks: int
    width: int
    ffn: int
    heads: int
    kv_width: int
    # Elements of a layer's keys for one token.


def _shape(header: Header) -> _Shape | None:
    arch = str(header.get("general.architecture"))

    def number(key: str) -> int | None:
        value = header.get(f"{arch}.{key}")
        return value if isinstance(value, int) and value > 0 else None

    blocks, width, ffn = number("block_count"), number("embedding_length"), number("feed_forward_length")
    heads = number("attention.head_count")
    recurrent = any(key.startswith((f"{arch}.ssm.", f"{arch}.wkv.")) for key, _ in header.metadata)
    if blocks is None or width is None or ffn is None or heads is None or recurrent:
        return None
    # Where each layer has a number of its own the header's reader leaves it out: then one head is counted,
    # since a model is refused only when it surely does not fit.
    kv_heads = number("attention.head_count_kv") or 1
    length = number("attention.key_length") or width // heads
    return _Shape(blocks, width, ffn, heads, kv_heads * length)


def _layer(tensor: TensorInfo, blocks: int) -> int:
    """Layer that a tensor goes with: the input embedding stays in main memory, the output comes last."""
    parts = tensor.name.split(".")
    if parts[0] == "blk" and parts[1].isdigit():
        return int(parts[1])
    return -1 if parts[0] == "token_embd" else blocks


def _cache_bytes(name: str, elements: int) -> int:
    size, block = _CACHE_BLOCKS.get(name.lower(), (4, 1))
    return elements * size // block


def _compute(shape: _Shape, config: EngineConfig, context: int) -> int:
    """Attention scores of a batch (not kept whole by flash attention), its mask, and the widest layer."""
    scores = 0 if config.flash_attn else shape.heads * context
    return 4 * config.n_ubatch * (scores + context + 3 * shape.ffn + 4 * shape.width)


def _device_hint(needed: Need, room: Room) -> str:
    rest = sum(room.devices) - needed.compute
    each = (needed.device_weights + needed.device_cache) // needed.offloaded
    fitting = max(0, rest // each) if each else 0
    return (
        f"engine.n_gpu_layers={fitting} fits (of {needed.layers}); or a smaller preset, engine.n_ctx, "
        "engine.streams or engine.n_ubatch, a smaller engine.type_k and engine.type_v, or another GPU"
    )


def _gb(size: int) -> str:
    return f"{size / _GB:.1f} GB" if size >= _GB / 10 else f"{size / 1e6:.0f} MB"
