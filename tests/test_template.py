"""Chat templates: what the transcript shows is what the template writes, and nothing else is markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHANNELS, CHATML, GEMMA, INST, LLAMA3, MOVES, NO_SYSTEM, THINKS

from qfr.engine.llama.shape import Shape
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.transcript import Content, Conversation, Layout, Shown
from qfr.errors import ModelFileError

TEMPLATES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "inst": INST,
    "thinks": THINKS,
    "moves": MOVES,
    "no_system": NO_SYSTEM,
}


def layout(text: str, **options: object) -> Layout:
    return Layout(ChatTemplate(text, "<s>", "</s>", "model.gguf", options))


def shape(text: str) -> Shape:
    return layout(text).shape


def told(of: Layout, contents: list[str]) -> Conversation:
    """A conversation of system, task, turn, observation … whose transcript was shown at each turn."""
    conversation = Conversation(of, contents[:2])
    conversation.shown()
    for index in range(2, len(contents), 2):
        conversation = conversation.grown(contents[index], contents[index + 1])
        conversation.shown()
    return conversation


def read(shown: Shown, contents: list[str]) -> str:
    """A transcript as text."""
    out = ""
    for body in shown.bodies:
        out += body.before
        out += contents[body.message] if body.generated else "".join(part.text for part in body.parts)
    return out + shown.prompt


def test_chatml() -> None:
    found = shape(CHATML)
    assert found.prompt == "<|im_end|>\n<|im_start|>assistant\n"
    assert found.closing == "<|im_end|>\n<|im_start|>user\n"
    assert (found.system_role, found.rewrites, found.thinking, found.alters) == ("own", "", "", "")
    shown = told(layout(CHATML), ["s", "  t \n", "a", "o"]).shown()
    assert [body.before for body in shown.bodies[:2]] == [
        "<|im_start|>system\n",
        "<|im_end|>\n<|im_start|>user\n",
    ]
    assert shown.bodies[1].parts == (Content("  t \n"),)
    assert [body.generated for body in shown.bodies] == [False, False, True, False]


def test_llama3_strips_contents_and_prints_the_fixed_date() -> None:
    shown = told(layout(LLAMA3), [" \n s ", "t"]).shown()
    assert "Today Date: 26 Jul 2024\n\n" in shown.bodies[0].before
    assert shown.bodies[0].parts == (Content("s"),)


@pytest.mark.parametrize(
    ("name", "role"),
    [("chatml", "own"), ("llama3", "own"), ("gemma", "folded"), ("inst", "folded"), ("no_system", "refused")],
)
def test_what_becomes_of_the_system_message_is_told(name: str, role: str) -> None:
    assert shape(TEMPLATES[name]).system_role == role


def test_a_default_system_message_does_not_make_a_template_fold() -> None:
    text = (
        "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind<|im_end|>\n{% endif %}" + CHATML
    )
    assert shape(text).system_role == "own"


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@given(data=st.data())
def test_a_transcript_is_what_the_template_writes(name: str, data: st.DataObject) -> None:
    """With contents that no template looks into; a turn that stands as generated is its own text."""
    rounds = data.draw(st.integers(0, 3))
    content = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    contents = [data.draw(content) for _ in range(2 + 2 * rounds)]
    if name == "no_system":
        # The two texts are one message: what a blank one leaves of it is not told apart.
        contents[:2] = ["s" + contents[0], "t" + contents[1]]
    contents[2::2] = [
        f"a{index}{data.draw(st.sampled_from(['', '</think>b', ' b']))}" for index in range(rounds)
    ]
    of = layout(TEMPLATES[name])
    shown = told(of, contents).shown()
    assert read(shown, contents) == of.template.write(contents, of.shape.dialect)


@pytest.mark.parametrize(
    ("turn", "history"),
    [
        ("{}", "{}"),
        ("a thought</think>\n\n{}", "{}"),
        ("<think>again</think>{}", "{}"),
        ("a thought without an end", "a thought without an end"),
        ("a thought</think>", ""),
    ],
)
def test_thoughts_that_a_template_drops_are_dropped(turn: str, history: str) -> None:
    shown = told(layout(THINKS), ["s", "t", turn, "o"]).shown()
    expected = f"<|im_start|>assistant\n{history}<|im_end|>\n<|im_start|>user\no<|im_end|>\n"
    assert expected in read(shown, ["s", "t", turn, "o"])
    assert not any(body.generated for body in shown.bodies)


def test_a_turn_that_history_shows_unchanged_stays_as_it_was_generated() -> None:
    kept = (
        "message['content'].split('</think>')[-1] if message['role'] == 'assistant' else message['content']"
    )
    text = CHATML.replace("message['content']", f"({kept})")
    shown = told(layout(text), ["s", "t", " {} \n", "o", "hm</think>{}", "o"]).shown()
    assert [body.generated for body in shown.bodies if body.turn is not None] == [True, False]


def test_an_answer_behind_the_mark_that_history_writes_itself() -> None:
    """The template takes the answer alone, and shows the mark that the model had to write."""
    of = layout(CHANNELS)
    whole, cut = "<|to|>all<|end|>{}", "<|to|>self<|end|>hm<|im_end|><|im_start|>assistant<|to|>all<|end|>{}"
    shown = told(of, ["s", "t", whole, "o", cut, "p"]).shown()
    assert [body.generated for body in shown.bodies if body.turn is not None] == [True, False]
    assert read(shown, ["s", "t", whole, "o", cut, "p"]).endswith(
        "<|im_start|>user<|end|>o<|im_end|><|im_start|>assistant<|to|>all<|end|>{}<|im_end|>"
        "<|im_start|>user<|end|>p<|im_end|><|im_start|>assistant"
    )


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ("m['content'] | tojson", '"a \\"b\\" <c>"'),
        ("m['content'] | escape", "a &#34;b&#34; &lt;c&gt;"),
        ("m['content'] | upper", 'A "B" <C>'),
        ("m['content'].replace('b', '')", 'a "" <c>'),
    ],
)
def test_altered_contents_are_played_as_the_template_writes_them(change: str, seen: str) -> None:
    of = layout(f"{{% for m in messages %}}<{{{{ m['role'] }}}}>{{{{ {change} }}}}{{% endfor %}}<!>")
    shown = told(of, ['a "b" <c>', "t"]).shown()
    assert read(shown, [])[len("<system>") :].startswith(seen)
    assert of.shape.alters == "system, task, observation"


def test_a_string_that_a_template_removes_from_the_prompt_is_removed() -> None:
    text = CHATML.replace("message['content']", "message['content'].replace('/no_think', '')")
    if_there = "{% if '/no_think' in messages[0]['content'] %}<quiet>{% endif %}"
    shown = told(layout(text + if_there), ["Be kind. /no_think", "t"]).shown()
    assert "Be kind. <|im_end|>" in read(shown, [])
    assert shown.prompt.endswith("<quiet>")


@pytest.mark.parametrize(
    "text",
    [
        "{% for t in tools %}{{ t }}{% endfor %}" + CHATML,
        "{% if tools is defined and tools | length > 0 %}x{% endif %}" + CHATML,
        "{{ functions }}" + CHATML,
        CHATML.replace("message['content']", "message['content'][0]['text']"),
    ],
)
def test_templates_that_want_to_be_asked_otherwise_are(text: str) -> None:
    assert read(told(layout(text), ["s", "t"]).shown(), []) == read(
        told(layout(CHATML), ["s", "t"]).shown(), []
    )


def test_options_reach_the_template() -> None:
    text = CHATML + "{% if enable_thinking is false %}<think></think>{% endif %}"
    assert layout(text).shape.prompt.endswith("assistant\n")
    assert layout(text, enable_thinking=False).shape.prompt.endswith("<think></think>")


def test_a_thought_that_the_template_opens_is_told() -> None:
    assert shape(THINKS).thinking == "<think>"
    assert shape(THINKS.replace("<think>\n", "<think>\n\n</think>\n")).thinking == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{% if x %}", "cannot be read"),
        ("{{ raise_exception('No talking') }}", "refuses.*No talking"),
        ("{{ messages[0]['content'] + 1 }}", "fails"),
        ("{{ undefined_function() }}", "fails"),
        ("{{ messages[-1]['content'] }}", r"does not show number 1 \(system\)"),
        (
            "{% for m in messages %}{{ m['content'] if m['role'] != 'user' or loop.last }}{% endfor %}",
            r"of a conversation of 4 messages it does not show number 2 \(user\)",
        ),
    ],
)
def test_templates_that_lose_a_message_are_refused_with_the_proof(text: str, reason: str) -> None:
    with pytest.raises(ModelFileError, match=f"(?s)model.gguf: .*{reason}"):
        layout(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__ }}" + "{{ lipsum.__globals__['os'].system('true') }}",
        "{% for i in range(100000000) %}{% endfor %}",
    ],
)
def test_templates_cannot_leave_the_sandbox(text: str) -> None:
    with pytest.raises(ModelFileError, match="chat template fails"):
        layout(text)


def test_training_tags_and_loop_controls_are_understood() -> None:
    text = (
        "{% for m in messages %}{% if m['role'] == 'tool' %}{% continue %}{% endif %}<{{ m['role'] }}>"
        "{%- generation -%} {{ m['content'] }}{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    assert shape(text).prompt == "<assistant>"
