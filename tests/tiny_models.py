"""Tiny GGUFs with random weights, written in milliseconds, for tests of the engine.

Not a test file. The text that such a model writes means nothing; its tokens, template and logits are real.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}"
    "{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}"
    "{%- else %}{%- set system_message = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\n\n' }}{{- system_message }}{{- '<|eot_id|>' }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + "
    "'<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
GEMMA = (
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}"
    "{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}{%- set loop_messages = messages[1:] -%}"
    "{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}"
    "{%- for message in loop_messages -%}{%- if (message['role'] == 'assistant') -%}"
    "{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}"
    "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}"
    "{{ message['content'] | trim }}{{ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}"
)
# No control token between the system message and the task, none in the markup but begin and end.
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '[INST] ' + message['content'] + '\n\n' }}{% elif message['role'] == 'user' %}"
    "{{ ('' if loop.index0 == 1 else '[INST] ') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
# The next turn opens inside a thought; history shows the answer alone.
THINKS = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1].lstrip() if m.role == 'assistant' else m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
# The turns of history have a mark that the model writes itself.
CHANNELS = (
    "{% for m in messages %}{% if m.role == 'assistant' and '<|to|>' in m.content %}"
    "{{ raise_exception('the answer alone') }}{% endif %}"
    "<|im_start|>{{ m.role }}{{ '<|to|>all' if m.role == 'assistant' }}<|end|>{{ m.content }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}"
)
# The system text stands in the last user message.
MOVES = (
    "{{ bos_token }}{% for m in messages[1:] %}{% if m.role == 'user' %}<|im_start|>"
    "{{ messages[0].content + '\n' if loop.last }}{{ m.content }}<|end|>"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
# No system message at all.
NO_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}<start_of_turn>{{ m.role }}\n{{ m.content | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>assistant\n{% endif %}"
)
CONTROLS = (
    *("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>", "<|begin|>", "<|end|>"),
    *("<s>", "</s>", "<|endoftext|>"),
)
# Merges of the byte-level vocabulary: a few, so that joint and split tokenization can differ.
_MERGES = (
    "t h",
    "th e",
    "i n",
    "Ġ t",
    "Ġt he",
    "e r",
    "o r",
    "Ċ Ċ",
    '" :',
    '{ "',
    "o l",
    "to ol",
    "t o",
    "Ġ a",
)


@dataclass(frozen=True)
class TinyModel:
    """What a tiny model is made of."""

    template: str | None = CHATML
    vocabulary: str = "gpt2"
    # gpt2 = byte level; llama = SentencePiece with byte fallback.
    arch: str = "llama"
    # llama, gemma2 (sliding window) or mamba (recurrent).
    width: int = 64
    layers: int = 2
    context: int = 2048
    add_bos: bool | None = None
    bos: str = "<|begin|>"
    # "" = the file names none.
    eos: str = "<|im_end|>"
    user_defined: tuple[str, ...] = ()
    # Controls that the vocabulary lists as user-defined.
    seed: int = 0
    scale: float = 1.0
    # Of the output weights; nan makes logits not finite.
    favourites: tuple[str, ...] = ()
    # Tokens that share the largest logit, whatever was read.
    file_type: int = int(gguf.LlamaFileType.MOSTLY_F16)
    # What the file calls itself; its tensors are what they are.
    extra: dict[str, str] = field(default_factory=dict)
    # More metadata.


def write_model(path: Path, model: TinyModel) -> Path:
    """Write the model; its path."""
    writer = gguf.GGUFWriter(path, model.arch)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.width)
    writer.add_block_count(model.layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(model.file_type)
    tokens = _write_vocabulary(writer, model)
    size = len(tokens)
    writer.add_vocab_size(size)
    if model.template is not None:
        writer.add_chat_template(model.template)
    for key, value in model.extra.items():
        writer.add_string(key, value)
    rng = np.random.default_rng(model.seed)
    shapes = {"mamba": _mamba, "llama": _attention, "gemma2": _attention}[model.arch](writer, model)
    shapes |= {"token_embd.weight": (size, model.width), "output_norm.weight": (model.width,)}
    if model.arch != "gemma2":
        shapes["output.weight"] = (size, model.width)
    for name, shape in shapes.items():
        matrix = len(shape) > 1 and "ssm" not in name
        spread = 1.0 if name == "token_embd.weight" else 2.0 / np.sqrt(shape[-1])
        values = rng.normal(0.0, spread, shape) if matrix else np.ones(shape) + rng.normal(0, 0.1, shape)
        if name.endswith("ssm_a"):
            values = -np.abs(values)
        if name == "output.weight":
            values = values * model.scale
        if model.favourites:
            values = _constant(name, values, [tokens.index(text) for text in model.favourites])
        writer.add_tensor(name, values.astype(np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _attention(writer: gguf.GGUFWriter, model: TinyModel) -> dict[str, tuple[int, ...]]:
    width, inner, head = model.width, 2 * model.width, 32
    writer.add_head_count(width // head)
    writer.add_head_count_kv(width // head // 2)
    writer.add_feed_forward_length(inner)
    writer.add_rope_dimension_count(head)
    writer.add_key_length(head)
    writer.add_value_length(head)
    gemma = model.arch == "gemma2"
    if gemma:
        writer.add_sliding_window(16)
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(model.layers):
        block = f"blk.{layer}."
        norms = ["attn_norm", "ffn_norm", *(["post_attention_norm", "post_ffw_norm"] if gemma else [])]
        shapes |= {f"{block}{name}.weight": (width,) for name in norms}
        shapes |= {
            f"{block}attn_q.weight": (width, width),
            f"{block}attn_k.weight": (width // 2, width),
            f"{block}attn_v.weight": (width // 2, width),
            f"{block}attn_output.weight": (width, width),
            f"{block}ffn_gate.weight": (inner, width),
            f"{block}ffn_up.weight": (inner, width),
            f"{block}ffn_down.weight": (width, inner),
        }
    return shapes


def _mamba(writer: gguf.GGUFWriter, model: TinyModel) -> dict[str, tuple[int, ...]]:
    width, inner, state, rank, kernel = model.width, 2 * model.width, 16, 4, 4
    writer.add_head_count(0)
    writer.add_feed_forward_length(0)
    writer.add_ssm_conv_kernel(kernel)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(model.layers):
        block = f"blk.{layer}."
        shapes |= {
            f"{block}attn_norm.weight": (width,),
            f"{block}ssm_in.weight": (2 * inner, width),
            f"{block}ssm_conv1d.weight": (inner, kernel),
            f"{block}ssm_conv1d.bias": (inner,),
            f"{block}ssm_x.weight": (rank + 2 * state, inner),
            f"{block}ssm_dt.weight": (inner, rank),
            f"{block}ssm_dt.bias": (inner,),
            f"{block}ssm_a": (inner, state),
            f"{block}ssm_d": (inner,),
            f"{block}ssm_out.weight": (width, inner),
        }
    return shapes


def _constant(name: str, values: np.ndarray, favourites: list[int]) -> np.ndarray:
    """Weights of a model that reads nothing: every hidden state is all ones, only output rows differ."""
    if name == "output.weight":
        values = np.zeros_like(values)
        values[favourites] = 1.0
        return values
    return np.ones_like(values) if "norm" in name or "embd" in name else np.zeros_like(values)


def _write_vocabulary(writer: gguf.GGUFWriter, model: TinyModel) -> list[str]:
    """Add tokens, types and ids of the special ones; the tokens."""
    tokens, types, scores = (_byte_level if model.vocabulary == "gpt2" else _sentencepiece)()
    for control in CONTROLS:
        tokens.append(control)
        types.append(gguf.TokenType.USER_DEFINED if control in model.user_defined else gguf.TokenType.CONTROL)
        scores.append(0.0)
    writer.add_tokenizer_model(model.vocabulary)
    if model.vocabulary == "gpt2":
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_merges(list(_MERGES))
    else:
        writer.add_token_scores(scores)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if model.bos:
        writer.add_bos_token_id(tokens.index(model.bos))
    writer.add_eos_token_id(tokens.index(model.eos))
    if model.add_bos is not None:
        writer.add_add_bos_token(model.add_bos)
    return tokens


def _byte_level() -> tuple[list[str], list[int], list[float]]:
    """GPT-2's spelling of the 256 bytes, then what the merges make."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {byte: chr(byte) for byte in plain}
    spelled |= {byte: chr(256 + place) for place, byte in enumerate(b for b in range(256) if b not in plain)}
    tokens = [spelled[byte] for byte in range(256)] + [merge.replace(" ", "") for merge in _MERGES]
    return tokens, [gguf.TokenType.NORMAL] * len(tokens), [0.0] * len(tokens)


def _sentencepiece() -> tuple[list[str], list[int], list[float]]:
    """Unknown token, the 256 bytes, letters and a few words with their leading blank."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [gguf.TokenType.UNKNOWN, *([gguf.TokenType.BYTE] * 256)]
    scores = [0.0] * len(tokens)
    words = [
        "\u2581",
        *map(chr, range(33, 127)),
        "\u2581t",
        "\u2581th",
        "\u2581the",
        "th",
        "he",
        "in",
        "\u2581a",
        "er",
    ]
    tokens += words
    types += [gguf.TokenType.NORMAL] * len(words)
    scores += [-float(place) for place in range(len(words))]
    return tokens, types, scores


def write_split(folder: Path) -> list[Path]:
    """A model in three parts, as llama.cpp's splitter writes it."""
    whole = gguf.GGUFReader(write_model(folder / "whole.gguf", TinyModel()))
    paths = [folder / f"parted-{index:05d}-of-00003.gguf" for index in (1, 2, 3)]
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        if number == 0:
            for name, field in whole.fields.items():
                if not name.startswith("GGUF.") and name != "general.architecture":
                    sub = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
                    writer.add_key_value(name, field.contents(), field.types[0], sub)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 3)
        writer.add_int32("split.tensors.count", len(whole.tensors))
        for tensor in whole.tensors[number::3]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


MODELS = {
    "chatml": TinyModel(),
    "llama3": TinyModel(template=LLAMA3, add_bos=True, eos="<|eot_id|>"),
    "gemma": TinyModel(template=GEMMA, vocabulary="llama", add_bos=True, eos="<end_of_turn>"),
    "inst": TinyModel(template=INST, vocabulary="llama", add_bos=True, eos="<|end|>"),
    "window": TinyModel(template=GEMMA, arch="gemma2", vocabulary="llama", add_bos=True, eos="<end_of_turn>"),
    "recurrent": TinyModel(arch="mamba"),
    # By this name llama.cpp lets control tokens swallow the blanks after them.
    "swallowing": TinyModel(extra={"general.name": "phi-3"}, vocabulary="llama", eos="<|im_end|>"),
    "thinks": TinyModel(template=THINKS, context=4096),
    "thinks_recurrent": TinyModel(template=THINKS, arch="mamba", context=4096),
    "channels": TinyModel(template=CHANNELS, context=4096),
    "moves": TinyModel(template=MOVES, vocabulary="llama", add_bos=True, context=4096),
    "no_system": TinyModel(template=NO_SYSTEM, add_bos=True, eos="<end_of_turn>"),
    "loose_controls": TinyModel(user_defined=("<|im_start|>", "<|im_end|>")),
}
