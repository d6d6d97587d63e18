"""A GGUF of any shape with random weights, written block by block: as large and as fast as a real one.

    python -m benchmarks.random_gguf OUT.gguf --shape 8b --preset Q4_K_M

Tokenizer and chat template are a reference agent's, its vocabulary is filled up with tokens that no text
holds. The blocks hold random bytes under small scales, so that every logit is finite; what such a model
writes means nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

import qfr.reference

_AGENT = Path(qfr.reference.__file__).parent / "models" / "ref_llama-F16.gguf"
# Bytes made at a time.
_CHUNK = 1 << 26


@dataclass(frozen=True)
class Shape:
    """A Llama."""

    width: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int


SHAPES = {
    # Llama-3.1-8B.
    "8b": Shape(4096, 14336, 32, 32, 8, 128256, 16384),
    # Small enough for a test on a processor.
    "tiny": Shape(256, 512, 2, 4, 2, 2048, 16384),
}


@dataclass(frozen=True)
class Tensor:
    """A tensor to be written."""

    name: str
    rows: int
    columns: int
    kind: Type


def more_bits(layer: int, layers: int) -> bool:
    """Layers whose value and down projections llama.cpp's K_M mixes keep at six bits."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


def tensors(shape: Shape, preset: str) -> Iterator[Tensor]:
    """All matrices, in the types that llama.cpp's quantizer gives them."""
    low, high = (Type.Q4_K, Type.Q6_K) if preset == "Q4_K_M" else (Type.Q8_0, Type.Q8_0)
    kv = shape.width // shape.heads * shape.kv_heads
    yield Tensor("token_embd.weight", shape.vocab, shape.width, low)
    for layer in range(shape.layers):
        mixed = high if more_bits(layer, shape.layers) else low
        for name, rows, columns, kind in (
            ("attn_q", shape.width, shape.width, low),
            ("attn_k", kv, shape.width, low),
            ("attn_v", kv, shape.width, mixed),
            ("attn_output", shape.width, shape.width, low),
            ("ffn_gate", shape.ffn, shape.width, low),
            ("ffn_up", shape.ffn, shape.width, low),
            ("ffn_down", shape.width, shape.ffn, mixed),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", rows, columns, kind)
    yield Tensor("output.weight", shape.vocab, shape.width, high)


def random_blocks(kind: Type, blocks: int, columns: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks, shape (blocks, bytes of a block): random, scaled to weights of about 1 / sqrt(columns)."""
    made = rng.integers(0, 256, (blocks, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    want = columns**-0.5

    def half(value: float) -> NDArray[np.uint8]:
        # Of random sign, so that the weights' means cancel over blocks.
        signs = rng.choice([-1.0, 1.0], blocks)
        return (signs * value).astype("<f2")[:, None].view(np.uint8)

    # Standard deviation of the integers under the scale: uniform bytes; 6-bit scales times bytes or nibbles.
    if kind is Type.Q8_0:
        made[:, :2] = half(want / 74)
    elif kind is Type.Q4_K:
        made[:, :2] = half(want / 250)
        made[:, 2:4] = half(want / 64)
    elif kind is Type.Q6_K:
        made[:, -2:] = half(want / 1400)
    else:
        raise ValueError(f"no random blocks of type {kind.name}")
    return made


def write(path: Path, shape: Shape, preset: str, seed: int) -> None:
    """Write the file. The same input gives the same bytes."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, shape, preset)
    _copy_tokenizer(writer, shape.vocab)
    matrices, norms = list(tensors(shape, preset)), _norms(shape)
    for one in matrices:
        block, size = gguf.GGML_QUANT_SIZES[one.kind]
        nbytes = one.rows * one.columns // block * size
        row = one.columns // block * size
        writer.add_tensor_info(one.name, (one.rows, row), np.dtype(np.uint8), nbytes, raw_dtype=one.kind)
    for name in norms:
        writer.add_tensor_info(name, (shape.width,), np.dtype(np.float32), 4 * shape.width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(seed)
    for one in matrices:
        writer.write_tensor_data(_matrix(one, rng))
    for _ in norms:
        writer.write_tensor_data(np.ones(shape.width, np.float32))
    writer.close()


def _matrix(one: Tensor, rng: np.random.Generator) -> NDArray[np.uint8]:
    """All blocks of a matrix: a piece of random ones, repeated in rows turned against each other."""
    block, size = gguf.GGML_QUANT_SIZES[one.kind]
    blocks = one.rows * one.columns // block
    piece = random_blocks(one.kind, min(blocks, _CHUNK // size), one.columns, rng)
    repeats = -(-blocks // len(piece))
    turned = [np.roll(piece, int(rng.integers(len(piece))), axis=0) for _ in range(repeats - 1)]
    return np.concatenate([piece, *turned])[:blocks].reshape(one.rows, -1)


def _norms(shape: Shape) -> list[str]:
    names = [
        f"blk.{layer}.{name}.weight" for layer in range(shape.layers) for name in ("attn_norm", "ffn_norm")
    ]
    return [*names, "output_norm.weight"]


def _describe(writer: gguf.GGUFWriter, shape: Shape, preset: str) -> None:
    writer.add_name(f"random weights {shape.layers}x{shape.width}")
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{preset}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(shape.vocab)


def _copy_tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    """The agent's tokenizer with unused tokens behind its own."""
    fields = gguf.GGUFReader(_AGENT).fields

    def content(key: str) -> list[str] | list[int] | str | int | bool:
        found: list[str] | list[int] | str | int | bool = fields[f"tokenizer.{key}"].contents()
        return found

    tokens, types = content("ggml.tokens"), content("ggml.token_type")
    assert isinstance(tokens, list)
    assert isinstance(types, list)
    spare = vocab - len(tokens)
    writer.add_tokenizer_model(str(content("ggml.model")))
    writer.add_tokenizer_pre(str(content("ggml.pre")))
    writer.add_token_list([*map(str, tokens), *(f"[unused{at}]" for at in range(spare))])
    writer.add_token_types([*map(int, types), *[int(gguf.TokenType.NORMAL)] * spare])
    merges = content("ggml.merges")
    assert isinstance(merges, list)
    writer.add_token_merges([str(merge) for merge in merges])
    writer.add_bos_token_id(int(str(content("ggml.bos_token_id"))))
    writer.add_eos_token_id(int(str(content("ggml.eos_token_id"))))
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(str(content("chat_template")))


def main() -> None:
    """Write one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="8b")
    parser.add_argument("--preset", choices=("Q4_K_M", "Q8_0"), default="Q4_K_M")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.out, SHAPES[arguments.shape], arguments.preset, arguments.seed)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
