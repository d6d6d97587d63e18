"""A model without a name is named after its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from qfr.errors import ConfigError
from qfr.front.models import compose_cell
from qfr.front.naming import name_of_model
from tests.tiny_models import TinyModel, write_model


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/m/llama-3.1-8B-Q8_0.gguf", "llama-3.1-8B"),
        ("/m/llama-3.1-8B-f16.gguf", "llama-3.1-8B"),
        ("/m/llama-3.1-8B.i1-IQ3_XXS.gguf", "llama-3.1-8B.i1"),
        ("/m/qwen-UD-Q4_K_XL-00001-of-00003.gguf", "qwen"),
        ("/m/x-F16-Q4_K_M.gguf", "x"),
        ("my model (2).gguf", "my-model-2"),
        ("/models/mine/ggml-model-Q4_0.gguf", "mine"),
        ("/models/other/Q8_0.gguf", "other"),
        ("/m/日本.gguf", "local"),
        ("1e5.gguf", "1e5"),
    ],
)
def test_a_file_gives_the_name(file: str, name: str) -> None:
    assert name_of_model({"path": file, "base": None}, None) == name
    assert name_of_model({"path": None, "base": file}, None) == name


def test_a_file_whose_name_says_nothing_is_asked(tmp_path: Path) -> None:
    named = write_model(tmp_path / "model-F16.gguf", TinyModel(extra={"general.name": "Tiny Agent 2"}))
    assert name_of_model({"path": str(named)}, None) == "Tiny-Agent-2"
    assert compose_cell("model=local", f"model.base={named}", "quant=q8_0").model.name == "Tiny-Agent-2"


def test_the_given_name_wins_and_presets_stay_one_model() -> None:
    cells = [
        compose_cell("model=local", "model.path='/m/a-${quant.preset}.gguf'", f"quant={q}")
        for q in ("q8_0", "f16")
    ]
    assert {cell.model.name for cell in cells} == {"a"}
    assert compose_cell("model=local", "model.path=/m/a.gguf", "model.name=b").model.name == "b"


def test_a_file_of_ones_own_is_never_the_default_model() -> None:
    cell = compose_cell("model.path=/m/mine-Q8_0.gguf", "quant=q8_0").model
    assert (cell.name, cell.package, cell.reference_agent) == ("mine", None, False)
    with pytest.raises(ConfigError, match="given for ref_qwen, which is a file that qfr ships"):
        compose_cell("model=ref_qwen", "model.base=/m/mine-F16.gguf", "quant=q8_0")


def test_a_served_model_is_named_after_its_name_there() -> None:
    served = ["engine=openai", "engine.server.base_url=http://x/v1", "model=local", "quant=fp8"]
    assert compose_cell(*served, "engine.server.model=org/Qwen3-8B").model.name == "Qwen3-8B"
    assert compose_cell(*served).model.name == "local"
    assert compose_cell("model=local", "model.path=/m/a.gguf", "engine.server.model=b").model.name == "a"
