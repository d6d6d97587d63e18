"""What is typed is what arrives: texts that look like numbers, maps, choices in any case."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from qfr.config import CellConfig
from qfr.errors import ConfigError
from qfr.front.compose import to_cell
from qfr.front.models import compose_cell
from qfr.front.spelling import choices_in, replacing, respell
from qfr.places import conf_folder

CHOICES = choices_in([conf_folder()])


def composed(*overrides: str) -> CellConfig:
    return compose_cell("model=scripted", "quant=q8_0", *overrides)


@pytest.mark.parametrize("text", ["1e5", "007", "yes", "1_000", "1.10", "true", "+5", "0x10", "1e12345"])
def test_a_text_arrives_as_it_was_typed(text: str) -> None:
    cell = composed(f"tracking.experiment={text}", f"++engine.server.model={text}")
    assert (cell.tracking.experiment, cell.engine.server.model) == (text, text)


def test_each_value_of_a_sweep_of_a_list_and_of_a_map_is_kept() -> None:
    (swept,) = respell(["prompt.name=1e5, 007,'2e5',choice"], CHOICES)
    override = OverridesParser.create().parse_override(swept)
    assert list(override.sweep_string_iterator()) == ['"1e5"', "007", "'2e5'", "choice"]
    cell = composed("engine.gpus=[00,1e1,GPU-7]", "report.family=[{a: 1e5, b: 007}]")
    assert cell.engine.gpus == ["00", "1e1", "GPU-7"]
    assert cell.report.family == [{"a": "1e5", "b": "007"}]


@pytest.mark.parametrize(
    "argument",
    [
        "engine.n_threads=007",
        "engine.server.model=qwen:7",
        "model.path=/a/${quant.preset}.gguf",
        "trial=1,2",
        "-m",
    ],
)
def test_what_is_meant_already_stays(argument: str) -> None:
    assert respell([argument], CHOICES)[0] == argument


def test_a_choice_is_found_whatever_its_case() -> None:
    assert respell(["quant=Q8_0,q4_K_M", "prompt=p0", "fault=nothing"], CHOICES) == [
        "quant=q8_0,q4_k_m",
        "prompt=P0",
        "fault=nothing",
    ]


def test_a_choice_named_by_a_number_is_found(tmp_path: Path) -> None:
    (tmp_path / "prompt").mkdir()
    (tmp_path / "prompt" / "7.yaml").write_text("name: '7'\n")
    assert respell(["prompt=7"], choices_in([tmp_path])) == ['prompt="7"']


def test_a_map_on_the_command_line_replaces() -> None:
    assert composed("suite=orders40", "suite.families={base: 2}").suite.families == {"base": 2}
    assert composed("suite=orders6", "suite.families={two_order: 2}").suite.families == {"two_order": 2}
    both = composed("suite=orders6", "suite.families={base: 2}", "+suite.families.shipping=1").suite.families
    assert both == {"base": 2, "shipping": 1}
    assert replacing(["a=1", "++engine.skill={Q8_0: 1}"]) == [
        "a=1",
        "~engine.skill",
        "+engine.skill={Q8_0: 1}",
    ]


@pytest.mark.parametrize("written", ["1e5", "007", "yes", "2026"])
def test_a_number_in_yaml_is_no_text(written: str) -> None:
    cfg = OmegaConf.structured(composed())
    plain = OmegaConf.to_container(cfg)
    assert isinstance(plain, dict)
    plain["prompt"]["name"] = OmegaConf.create(f"name: {written}").name
    with pytest.raises(ConfigError) as error:
        to_cell(OmegaConf.create(plain))
    assert error.value.what.startswith("prompt.name is a text, and YAML reads ")
    assert 'name: "…"' in str(error.value)
