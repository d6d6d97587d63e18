"""Messages become token segments as the usual joint tokenization has them, and content never control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_builders import Vocabulary, joint, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CONTROLS, TinyModel, write_model

from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.model import LoadedModel
from qfr.engine.llama.tokens import Kept, Tokenizer


@pytest.fixture(scope="module")
def tokenizers(files: Callable[[str], ModelFile]) -> Iterator[Callable[[str], Vocabulary]]:
    made: dict[str, Vocabulary] = {}

    def get(name: str) -> Vocabulary:
        if name not in made:
            made[name] = tokenizer(files(name))
        return made[name]

    yield get
    for model, _, _ in made.values():
        model.close()


# No control text can be spelled with these.
PLAIN = st.text(st.sampled_from("the tool\n\n 0123456789{}\":,.[]()'aZé€😀\t-"), max_size=60)


@pytest.mark.parametrize("name", ["smollm2", "chatml", "llama3", "gemma", "window", "swallowing"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_segments_are_the_joint_tokenization(
    name: str, tokenizers: Callable[[str], Vocabulary], data: st.DataObject
) -> None:
    model, tokens, template = tokenizers(name)
    system, task, observation = (data.draw(PLAIN) for _ in range(3))
    if name in ("gemma", "window"):
        # System message and task share a text without a control token: they are cut where the task starts.
        system, task = system + ".", "t" + task
    dialect = tokens.layout.shape.dialect
    told = tokens.conversation(system, task)
    first, second = tokens.segments(told.shown()).segments
    assert first + second == joint(model, template.write([system, task], dialect))
    # The segment of an observation, behind a turn that ends like any text does.
    whole = joint(model, template.write([system, task, "Done.", observation], dialect))
    *opening, kept, last = tokens.segments(told.grown("Done.", observation).shown()).segments
    assert opening == [first, second]
    assert kept == Kept(0)
    assert first + second + tokens.assistant("Done.")[:-1] + last == whole


@pytest.mark.parametrize("name", ["smollm2", "chatml", "llama3", "gemma", "inst", "loose_controls"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_content_never_becomes_control(
    name: str, tokenizers: Callable[[str], Vocabulary], data: st.DataObject
) -> None:
    model, tokens, _ = tokenizers(name)
    spelled = st.sampled_from(
        [*CONTROLS, "<s>", "</s>", "<|endoftext|>", "<tool_call>", "<|im_", "start|>", " ", "a"]
    )
    text = "".join(data.draw(st.lists(spelled, max_size=6)))
    plain = tuple(map(count_controls(model), segments(tokens, "s", "t", "o")))
    assert tuple(map(count_controls(model), segments(tokens, text, text, text))) == plain
    assert count_controls(model)(tokens.assistant(text)) == 1
    read = b"".join(map(model.piece, tokens.assistant(text)[:-1])).decode()
    assert read.lstrip() == text.lstrip()
    known = {special.text for special in model.specials if special.control or name == "loose_controls"}
    assert tokens.spells_control(text) == any(control in text for control in known)


def segments(tokens: Tokenizer, system: str, task: str, observation: str) -> list[tuple[int, ...]]:
    told = tokens.conversation(system, task)
    found = [
        *tokens.segments(told.shown()).segments,
        *tokens.segments(told.grown("A", observation).shown()).segments[-1:],
    ]
    return [segment for segment in found if not isinstance(segment, Kept)]


def count_controls(model: LoadedModel) -> Callable[[tuple[int, ...]], int]:
    controls = {special.token for special in model.specials}
    return lambda ids: sum(token in controls for token in ids)


@pytest.mark.parametrize(
    ("writes_bos", "adds_bos", "expected"),
    [
        (True, True, 1),
        (True, False, 1),
        (False, True, 1),
        (False, False, 0),
        (True, None, 1),
        (False, None, 0),
    ],
)
def test_exactly_one_bos_where_the_model_wants_one(
    writes_bos: bool, adds_bos: bool | None, expected: int, tmp_path: Path
) -> None:
    template = ("{{ bos_token }}" if writes_bos else "") + str(TinyModel().template)
    made = write_model(tmp_path / "m.gguf", TinyModel(template=template, add_bos=adds_bos))
    model, tokens, _ = tokenizer(open_model(made, tmp_path))
    first, second, third = segments(tokens, "system", "task", "x")
    assert (first + second + third).count(model.bos or 0) == expected
    assert (first[0] == model.bos) == bool(expected)
    model.close()


@pytest.mark.parametrize("adds_bos", [False, None])
def test_a_file_that_names_no_bos_has_none(adds_bos: bool | None, tmp_path: Path) -> None:
    """llama.cpp has an id all the same: that of a comma in this vocabulary."""
    template = "{{ bos_token }}" + str(TinyModel().template)
    made = write_model(tmp_path / "m.gguf", TinyModel(template=template, bos="", add_bos=adds_bos))
    model, tokens, rendering = tokenizer(open_model(made, tmp_path))
    assert model.bos is None
    assert rendering.write(["s", "t"], tokens.layout.shape.dialect).startswith("<|im_start|>")
    assert segments(tokens, "s", "t", "o")[0][0] == model.tokenize("<|im_start|>", special=True)[0]
    model.close()
