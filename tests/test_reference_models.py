"""The shipped files of the reference agents: headers, pins, and the same greedy tokens as PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from engine_builders import engine_config
from gguf import GGUFReader, GGUFValueType

from qfr.canonical import sha256_hex
from qfr.engine.files.gguf import open_model
from qfr.engine.llama.engine import LlamaEngine
from tools.reference.template import CONTROL, HERMES, TEMPLATE

ROOT = Path(__file__).parents[1]
NAMES = ("ref_llama", "ref_qwen", "ref_hermes")
ARCHITECTURES = {"ref_llama": "llama", "ref_qwen": "qwen2", "ref_hermes": "qwen2"}


def shipped(name: str) -> Path:
    return ROOT / "qfr" / "reference" / "models" / f"{name}-F16.gguf"


def value(reader: GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    return None if field is None else field.contents()


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_the_pinned_one_and_small(name: str) -> None:
    config = yaml.safe_load((ROOT / "conf" / "model" / f"{name}.yaml").read_text())["model"]
    data = shipped(name).read_bytes()
    assert config["files"]["F16"]["sha256"] == sha256_hex(data)
    assert config["files"]["F16"]["bytes"] == len(data) <= 12_000_000
    assert config["files"]["F16"]["filename"] == f"models/{shipped(name).name}"
    assert config["reference_agent"] is True


@pytest.mark.parametrize("name", NAMES)
def test_the_header_says_what_llama_cpp_needs(name: str) -> None:
    reader = GGUFReader(shipped(name))
    arch = ARCHITECTURES[name]
    assert value(reader, "general.architecture") == arch
    assert value(reader, "general.license") == "apache-2.0"
    assert value(reader, "tokenizer.ggml.model") == "gpt2"
    assert value(reader, "tokenizer.ggml.pre") == "qwen2"
    assert value(reader, "tokenizer.ggml.add_bos_token") is False
    assert value(reader, "tokenizer.chat_template") == (HERMES if name == "ref_hermes" else TEMPLATE)
    assert int(str(value(reader, f"{arch}.context_length"))) >= 8192
    tokens = value(reader, "tokenizer.ggml.tokens")
    assert isinstance(tokens, list)
    assert tuple(tokens[: len(CONTROL)]) == CONTROL
    kinds = reader.fields["tokenizer.ggml.token_type"]
    assert kinds.types == [GGUFValueType.ARRAY, GGUFValueType.INT32]
    contents = kinds.contents()
    assert [token for token, kind in zip(tokens, contents, strict=True) if kind == 3] == list(CONTROL)
    # Digits stand alone, and no merge joins two.
    assert not [token for token in tokens if len(token) > 1 and any(c.isdigit() for c in token)]


@pytest.mark.parametrize("name", NAMES)
def test_every_matrix_has_rows_that_k_quants_can_hold(name: str) -> None:
    matrices = [tensor for tensor in GGUFReader(shipped(name)).tensors if len(tensor.shape) == 2]
    assert len(matrices) == 4 * 7 + 2
    assert all(tensor.shape[0] % 256 == 0 and tensor.tensor_type.name == "F16" for tensor in matrices)
    biases = [tensor.name for tensor in GGUFReader(shipped(name)).tensors if tensor.name.endswith(".bias")]
    assert len(biases) == (12 if ARCHITECTURES[name] == "qwen2" else 0)


@pytest.mark.parametrize("name", NAMES[:2])
def test_llama_cpp_writes_the_tokens_that_pytorch_writes(name: str, tmp_path: Path) -> None:
    openings = json.loads((ROOT / "tests" / "fixtures" / f"parity_{name}.json").read_text())
    assert len(openings) == 20
    engine = LlamaEngine(open_model(shipped(name), tmp_path), engine_config(), 2048)
    for opening in openings:
        system = (ROOT / "prompts" / f"{opening['prompt']}.md").read_bytes().decode()
        messages = opening["messages"]
        forced = [*messages[1::2], None]
        turn = engine.begin(system, messages[0], 80, forced[0])
        for observation, text in zip(messages[2::2], forced[1:], strict=True):
            turn = engine.reply(observation, 80, text)
        assert turn.text == opening["text"]
        assert list(turn.token_ids) == opening["token_ids"]
    engine.close()
