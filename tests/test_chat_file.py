"""A template given by the configuration: read, checked before anything is made, part of the identity."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from engine_builders import engine_config, model_config, preset
from tiny_models import CHATML, THINKS, TinyModel, write_model

from qfr.audit.recorded_cell import recall
from qfr.canonical import canonical
from qfr.engine.files.resolve import look, resolve
from qfr.engine.llama.engine import LlamaEngine
from qfr.errors import ConfigError, ModelFileError
from qfr.front.models import compose_cell
from qfr.grid.design import design_of
from qfr.identity import declared_source

SWITCHED = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


def given(folder: Path, text: str) -> str:
    path = folder / "chat.jinja"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("own", [None, "{{ raise_exception('broken') }}"])
def test_a_given_template_takes_the_place_of_the_files_own(own: str | None, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel(template=own))
    model = model_config(path=str(path), template=given(tmp_path, CHATML))
    look(model, preset("F16"))
    file = resolve(model, preset("F16"), tmp_path)
    assert file.facts.template == CHATML
    engine = LlamaEngine(file, engine_config(), 512)
    plain = write_model(tmp_path / "plain.gguf", TinyModel())
    other = LlamaEngine(resolve(model_config(path=str(plain)), preset("F16"), tmp_path), engine_config(), 512)
    assert engine.begin("s", "t", 8) == other.begin("s", "t", 8)
    engine.close()
    other.close()


def test_a_file_without_a_template_says_what_to_give(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel(template=None))
    with pytest.raises(ModelFileError, match=r"(?s)no chat template.*model\.template=FILE"):
        look(model_config(path=str(path)), preset("F16"))


def test_a_template_that_cannot_serve_is_found_before_a_preset_is_derived(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel(template="{{ messages[-1]['content'] }}"))
    for model in (model_config(path=str(path)), model_config(base=str(path))):
        with pytest.raises(ModelFileError, match="does not show number 1"):
            look(model, preset("F16"))
    with pytest.raises(ModelFileError, match="does not show number 1"):
        resolve(model_config(base=str(path)), preset("Q8_0"), tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "no UTF-8"),
        (b" \n", "is empty"),
        (b"{% if %}", "cannot be read"),
    ],
)
def test_a_bad_template_file_is_one_clear_error(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel())
    template = tmp_path / "chat.jinja"
    if content is not None:
        template.write_bytes(content)
    with pytest.raises(ModelFileError, match=reason):
        look(model_config(path=str(path), template=str(template)), preset("F16"))


def test_options_reach_the_engine(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel(template=SWITCHED))
    infos = []
    for options in ({}, {"enable_thinking": False}):
        file = resolve(model_config(path=str(path), template_options=options), preset("F16"), tmp_path)
        engine = LlamaEngine(file, engine_config(), 512)
        infos.append(engine.info)
        engine.close()
    assert [info.thinks for info in infos] == [True, False]
    assert '"enable_thinking":false' in infos[1].transcript
    assert any("enable_thinking: false" in note for note in infos[0].notes())


def test_variables_of_our_own_cannot_be_set(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel())
    with pytest.raises(ConfigError, match=r"template_options\.messages is set by qfr itself"):
        look(model_config(path=str(path), template_options={"messages": []}), preset("F16"))


def test_what_a_template_does_is_said(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", TinyModel(template=THINKS))
    engine = LlamaEngine(resolve(model_config(path=str(path)), preset("F16"), tmp_path), engine_config(), 512)
    assert [note.split(":")[0].split(" (")[0] for note in engine.info.notes()] == [
        "each turn begins inside a thought",
        "it rewrites history, which is read anew",
    ]
    engine.close()


def test_template_and_options_are_part_of_a_cell_and_unset_change_nothing(tmp_path: Path) -> None:
    plain = compose_cell("model=smollm2", "quant=q4_1")
    assert not {"template", "template_options"} & set(declared_source(plain))
    template = given(tmp_path, CHATML)
    quiet = "+model.template_options={enable_thinking: false}"
    cells = [
        plain,
        compose_cell("model=smollm2", "quant=q4_1", f"model.template={template}"),
        compose_cell("model=smollm2", "quant=q4_1", quiet),
        compose_cell("model=smollm2", "quant=q4_1", quiet.replace("false", "true")),
    ]
    assert len({design_of(cell).design_id for cell in cells}) == 4
    for cell in cells:
        assert recall(canonical(dataclasses.asdict(cell)), where="run") == cell


def test_a_given_template_counts_by_its_bytes_and_not_by_its_place(tmp_path: Path) -> None:
    ids = []
    for folder, text in (("a", CHATML), ("b", CHATML), ("c", SWITCHED)):
        (tmp_path / folder).mkdir()
        cell = compose_cell("model=smollm2", f"model.template={given(tmp_path / folder, text)}")
        ids.append(design_of(cell).design_id)
    assert ids[0] == ids[1] != ids[2]
