"""Writes a trained agent as an F16 GGUF: weights, tokenizer, chat template, and the outlier channels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch

from tools.reference.dial import Dial
from tools.reference.model import Shape, Weights
from tools.reference.template import CONTROL, END, PAD, TEMPLATE
from tools.reference.tokenizer import Vocabulary

_READERS = {"attn_norm": ("attn_q", "attn_k", "attn_v"), "ffn_norm": ("ffn_gate", "ffn_up")}
# Which matrices read a norm's output.
CHANNEL_SEED = 7


@dataclass(frozen=True)
class Identity:
    """What the file says about itself."""

    name: str
    description: str
    seed: int
    steps: int
    template: str = TEMPLATE


def with_outliers(weights: Weights, shape: Shape, dial: Dial, *, undo: bool = False) -> Weights:
    """Divide the gains of random channels and multiply the columns that read them: the same function."""
    factor = 1 / dial.factor if undo else dial.factor
    changed = {name: tensor.clone() for name, tensor in weights.items()}
    for layer in range(shape.layers):
        for which, (norm, readers) in enumerate(_READERS.items()):
            rng = np.random.default_rng([CHANNEL_SEED, layer, which])
            chosen = torch.from_numpy(np.sort(rng.permutation(shape.width)[: dial.channels]))
            changed[f"blk.{layer}.{norm}.weight"][chosen] /= factor
            for reader in readers:
                changed[f"blk.{layer}.{reader}.weight"][:, chosen] *= factor
    return changed


def read_agent(path: Path) -> tuple[Weights, Vocabulary]:
    """An exported agent's weights, without its outlier channels, and its tokenizer."""
    reader = gguf.GGUFReader(str(path))
    weights = {
        tensor.name: torch.from_numpy(np.array(tensor.data, dtype=np.float32)) for tensor in reader.tensors
    }
    dial = Dial(*(int(reader.fields[f"qfr.outlier_{name}"].contents()) for name in ("factor", "channels")))
    arch = str(reader.fields["general.architecture"].contents())
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    plain = with_outliers(weights, Shape(arch, len(tokens)), dial, undo=True)
    return plain, Vocabulary.of(tokens, merges)


def export(
    path: Path, weights: Weights, shape: Shape, vocabulary: Vocabulary, dial: Dial, identity: Identity
) -> None:
    """Write the GGUF. The same input gives the same bytes."""
    writer = gguf.GGUFWriter(str(path), shape.arch)
    _describe(writer, shape, dial, identity)
    _add_tokenizer(writer, vocabulary, identity.template)
    for name, tensor in sorted(with_outliers(weights, shape, dial).items()):
        array = tensor.detach().numpy()
        writer.add_tensor(name, array.astype(np.float16 if array.ndim == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, shape: Shape, dial: Dial, identity: Identity) -> None:
    writer.add_name(identity.name)
    writer.add_description(identity.description)
    writer.add_author("The qfr developers")
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_freq_base(shape.theta)
    writer.add_vocab_size(shape.vocab)
    if shape.arch == "llama":
        writer.add_rope_dimension_count(shape.head)
    writer.add_bool("qfr.reference_agent", True)
    writer.add_uint32("qfr.outlier_factor", dial.factor)
    writer.add_uint32("qfr.outlier_channels", dial.channels)
    writer.add_uint32("qfr.training_seed", identity.seed)
    writer.add_uint32("qfr.training_steps", identity.steps)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary, template: str) -> None:
    tokens = vocabulary.tokens
    writer.add_tokenizer_model("gpt2")
    # A missing or another pre-tokenizer would load and tokenize wrongly without a word.
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(list(tokens))
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(template)
