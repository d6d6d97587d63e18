"""Chat templates taken apart: markup plus contents is what the template itself writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHATML, GEMMA, INST, LLAMA3

from qfr.engine.template import ChatTemplate, Markup
from qfr.errors import ModelFileError

TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "inst": INST}


def template(text: str) -> ChatTemplate:
    return ChatTemplate(text, "<s>", "</s>", "model.gguf")


def markup(text: str) -> Markup:
    return template(text).markup()


def written(around: Markup, contents: list[str]) -> str:
    """A transcript put together from markup and contents."""
    text = around.before_system + around.system.clean(contents[0])
    text += around.before_task + around.task.clean(contents[1]) + around.before_turn
    for index in range(2, len(contents), 2):
        text += contents[index] + around.before_observation + around.observation.clean(contents[index + 1])
        text += around.before_turn
    return text


def test_chatml_markup() -> None:
    around = markup(CHATML)
    assert around.before_system == "<|im_start|>system\n"
    assert around.before_task == "<|im_end|>\n<|im_start|>user\n"
    assert around.before_turn == "<|im_end|>\n<|im_start|>assistant\n"
    assert around.before_observation == "<|im_end|>\n<|im_start|>user\n"
    assert around.system_role == "own"
    assert around.task.clean("  a \n") == "  a \n"


def test_llama3_strips_contents_and_prints_the_fixed_date() -> None:
    around = markup(LLAMA3)
    assert "Today Date: 26 Jul 2024\n\n" in around.before_system
    assert around.system.clean(" \n a ") == "a"
    assert around.before_observation == "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"


@pytest.mark.parametrize(
    ("name", "role"), [("chatml", "own"), ("llama3", "own"), ("gemma", "folded"), ("inst", "folded")]
)
def test_a_system_message_joined_to_the_first_user_message_is_told(name: str, role: str) -> None:
    assert markup(TEMPLATES[name]).system_role == role


def test_a_default_system_message_does_not_make_a_template_fold() -> None:
    text = (
        "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind<|im_end|>\n{% endif %}" + CHATML
    )
    assert markup(text) == replace(markup(CHATML), sha256=markup(text).sha256)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@given(data=st.data())
def test_markup_and_contents_are_what_the_template_writes(name: str, data: st.DataObject) -> None:
    rounds = data.draw(st.integers(0, 3))
    content = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    contents = [data.draw(content) for _ in range(2 + 2 * rounds)]
    # The assistant's text is never rendered by us: here it is one that no template strips.
    contents[2::2] = [f"a{index}" for index in range(rounds)]
    assert written(markup(TEMPLATES[name]), contents) == template(TEMPLATES[name]).render(contents)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% if x %}", "cannot be read"),
        ("{{ raise_exception('System role not supported') }}", "refuses.*System role not supported"),
        ("{{ messages[0]['content'] + 1 }}", "fails"),
        ("{{ undefined_function() }}", "fails"),
        ("{{ messages[-1]['content'] }}", "drops or reorders"),
        ("{% for m in messages|reverse %}{{ m['content'] }}{% endfor %}", "drops or reorders"),
        ("{% for m in messages %}{{ m['content'] }}{{ m['content'] }}{% endfor %}", "repeats"),
        ("{% for m in messages %}<{{ m['content'] | tojson }}>{% endfor %}<\"", "changes the text"),
        ("{% for m in messages %}{{ m['content'] | escape }}{% endfor %}", "changes the text"),
        ("{{ messages|length }}{% for m in messages %}{{ m['content'] }}{% endfor %}", "not append-only"),
        # The generation prompt opens a thought that the history does not show.
        (
            "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant><think>{% endif %}",
            "not append-only",
        ),
        # The system message moves to the last user message as the conversation grows.
        (
            "{% for m in messages %}{% if m['role'] == 'user' and loop.last %}[{{ messages[0]['content'] }}]"
            "{% endif %}{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}{% endfor %}",
            "drops or reorders",
        ),
    ],
)
def test_templates_that_do_not_serve_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ModelFileError, match=f"(?s)model.gguf: .*{reason}"):
        markup(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__ }}" + "{{ lipsum.__globals__['os'].system('true') }}",
        "{% for i in range(100000000) %}{% endfor %}",
        "{{ messages.append(1) }}",
    ],
)
def test_templates_cannot_leave_the_sandbox(text: str) -> None:
    with pytest.raises(ModelFileError, match="chat template fails"):
        markup(text)


def test_thoughts_of_earlier_turns_may_be_dropped() -> None:
    """The assistant's text is continued token by token: what a template would make of it does not matter."""
    kept = (
        "message['content'].split('</think>')[-1] if message['role'] == 'assistant' else message['content']"
    )
    text = CHATML.replace("message['content']", f"({kept})")
    assert markup(text).before_observation == markup(CHATML).before_observation


def test_training_tags_and_loop_controls_are_understood() -> None:
    text = (
        "{% for m in messages %}{% if m['role'] == 'tool' %}{% continue %}{% endif %}<{{ m['role'] }}>"
        "{%- generation -%} {{ m['content'] }}{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert markup(text).before_turn == "<assistant>"
