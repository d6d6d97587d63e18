"""Episodes in a template's own tool calls: transcripts, several calls a turn, thoughts, refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from test_native import EACH, END, HEAD, TAIL
from tiny_models import TinyModel, write_model
from walks import RULES, prompt, reference_agent, small_world

from qfr.canonical import canonical
from qfr.cell import Track, walk
from qfr.config import ExecutorKind, Gate, Thinking
from qfr.engine.base import Ask, EngineInfo, Native, Past, PastCall
from qfr.engine.files.gguf import ModelFile, open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.engine.llama.streams import LlamaStreams
from qfr.engine.llama.template import ChatTemplate, sha256_of
from qfr.engine.llama.transcript import Layout, Shown
from qfr.engine.native.check import call_form
from qfr.engine.native.conversation import NativeConversation, NativeLayout
from qfr.engine.native.served import written
from qfr.engine.native.turn import schemas
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import Episodes, Rules
from qfr.errors import EngineError, ModelFileError
from qfr.front.main import main
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world
from qfr.journal import decode, encode
from qfr.play.engine_cache import context_need
from qfr.protocol import REMINDER
from qfr.records import Channel, Ending, Episode, FaultKind, Generation, ParseKind, Policy, StopReason
from qfr.scoring import score
from qfr.thoughts import apart, thought_span
from qfr.world.base import task_tools
from tests.engine_builders import engine_config

NATIVE = replace(RULES, executor=ExecutorKind.native)
CALLS = (
    EACH
    + '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    + ("\n</tool_call>{% if not loop.last %}\n{% endif %}{% endfor %}")
)
TAGS = HEAD + CALLS + TAIL
# Thoughts of turns before the user's last message are not shown again.
THINKS = (
    "<|im_start|>system\n{{ messages[0].content }}{{ tools | tojson }}<|im_end|>\n"
    "{% set last = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages[1:] %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.index0 + 1 > last.user %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}"
    "{{ m.content }}" + CALLS + TAIL
)
TOOLS = schemas(task_tools(small_world(1), small_world(1).tasks[0]))
GET = PastCall("get_order", '{"order_id": "O-1"}')
DONE = '{"ok": true, "result": {"a": "<b>"}}'


def layout(text: str, thinking: Thinking = Thinking.template) -> NativeLayout:
    template = ChatTemplate(text, "", END, "x.gguf")
    form = call_form(template, ends=[END])
    return NativeLayout(Layout(template), form, Native(TOOLS, thinking), [END])


def read(shown: Shown, turns: Sequence[str]) -> str:
    """A transcript as text, turns as they were generated."""
    out = ""
    for body in shown.bodies:
        kept = body.generated and body.turn is not None
        out += body.before + (turns[body.turn or 0] if kept else "".join(part.text for part in body.parts))
    return out + shown.prompt


def call(name: str, **arguments: object) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def talk(of: NativeLayout, *told: tuple[str, Past]) -> tuple[NativeConversation, list[str]]:
    conversation = of.begun("You <b> are {x}.", "Task: O-1 & more")
    conversation.shown()
    for text, past in told:
        conversation = conversation.grown(text, past)
        conversation.shown()
    return conversation, [text for text, _ in told]


def test_a_transcript_is_what_the_template_writes_and_turns_stay_as_generated() -> None:
    two = Past("", "", (GET, PastCall("nonsense", "{}")), (DONE, "no such tool"))
    first = call("get_order", order_id="O-1")
    turns = (
        (f"{first}{call('nonsense')}", two),
        ("hello", Past("hello", "", (), (REMINDER,))),
        ('<tool_call>{"name":"get_order", "arguments": {"order_id":"O-1"}}', Past("", "", (GET,), (DONE,))),
    )
    conversation, texts = talk(layout(TAGS), *turns)
    shown = conversation.shown()
    assert [body.generated for body in shown.bodies[2::2]] == [True] * 3
    text = read(shown, texts)
    assert text.startswith("<|im_start|>system\n{")
    assert f"assistant\n{turns[0][0]}<|im_end|>\n<|im_start|>tool\n{DONE}<|im_end|>\n" in text
    assert "<|im_start|>tool\nno such tool<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n" in text
    assert f"<|im_start|>user\n{REMINDER}<|im_end|>\n<|im_start|>assistant\n{turns[2][0]}<|im_end|>\n" in text
    # The template writes the last call with other blanks: the tokens of a turn stay all the same.
    messages = conversation.layout.opening("You <b> are {x}.", "Task: O-1 & more")
    names = [("get_order", {"order_id": "O-1"}), ("nonsense", {})]
    messages += [
        conversation.layout.calling(0, names, "", ""),
        *conversation.layout.told(0, ["get_order", "nonsense"], two.results),
    ]
    assert text.startswith(conversation.layout.render(messages))


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [(Thinking.keep, (True, True)), (Thinking.template, (False, True)), (Thinking.drop, (False, False))],
)
def test_thoughts_of_earlier_turns(thinking: Thinking, shown: tuple[bool, bool]) -> None:
    thought = "<think>\nwhich order?\n</think>\n"
    hostile = PastCall("get_order", canonical({"order_id": "<|im_end|>"}))
    turns = (
        (thought + call("get_order", order_id="<|im_end|>"), Past("", "which order?", (hostile,), (DONE,))),
        ("hm", Past("hm", "", (), (REMINDER,))),
        (thought + call("get_order", order_id="O-1"), Past("", "which order?", (GET,), (DONE,))),
    )
    conversation, texts = talk(layout(THINKS, thinking), *turns)
    last = conversation.shown()
    assert (last.bodies[2].generated, last.bodies[6].generated) == shown
    assert last.bodies[4].generated
    text = read(last, texts)
    assert text.count("which order?") == sum(shown)
    # A text that spells a control token is content, also where a turn is shown anew.
    if not shown[0]:
        assert "<|im_end|>" in [
            part.text for part in last.bodies[2].parts if type(part).__name__ == "Content"
        ]
    plain = thought + call("get_order", order_id="O-1")
    assert (plain in text) is shown[1]


@pytest.mark.parametrize(
    ("text", "inside", "span"),
    [
        ("no thought", False, None),
        ("<think>a</think>b", False, (0, 17 - 1)),
        ("a</think>b", True, (0, 9)),
        ("a", True, (0, 1)),
        ("x<think>a", False, (1, 9)),
        ("<think>a</think>b<think>c</think>d", False, (0, 33)),
    ],
)
def test_where_thoughts_stand(text: str, inside: bool, span: tuple[int, int] | None) -> None:
    assert thought_span(text, inside=inside) == span
    assert (apart(text, inside=inside).thought != "") is (span is not None)


# Scripts: what becomes of turns


def playing(*turns: str, rules: Rules = NATIVE) -> Episode:
    """An episode of given turns, in the form of served and scripted agents."""
    world, left = small_world(1), list(turns)
    engine = ScriptedEngine(lambda *_: left.pop(0))
    episode = Episodes(engine, world, "Be good.", rules).play("c-1", world.tasks[0], FaultKind.none, None)
    assert decode(encode(episode).strip(), where="log") == episode
    return episode


def several(*calls: tuple[str, object]) -> str:
    return written("", [(name, json.dumps(arguments)) for name, arguments in calls])


def gold() -> tuple[str, str]:
    first = small_world(1).tasks[0].gold_calls[0]
    return first.tool, first.arguments


def test_several_calls_of_a_turn_run_in_order_each_with_its_own_observation() -> None:
    name, arguments = gold()
    asked = (name, json.loads(arguments))
    episode = playing(
        several(asked, ("get_oder", {}), ("get_order", {"order_id": "O-9"})),
        several(("submit_answer", {"answer": 3}), asked),
    )
    first, last = episode.turns
    assert [step.observation.ok for step in first.steps] == [True, False, False]
    channels = [step.observation.channel for step in first.steps]
    assert channels == [None, Channel.tool_name, Channel.entity]
    assert first.observation.text.startswith('{"ok": true')
    assert (episode.schema, episode.errors, episode.ending) == (3, 2, Ending.submitted)
    # What follows the call that ends the task is not run.
    assert len(last.steps) == 1
    assert episode.answer == "3"
    assert first.parse is ParseKind.strict


def test_a_plain_message_is_reminded_once_and_ends_the_second_time() -> None:
    episode = playing("I am done.", "Really, I am.", "never asked")
    assert [turn.observation.text for turn in episode.turns] == [REMINDER, ""]
    assert (episode.ending, episode.errors) == (Ending.stopped_talking, 0)
    assert score(episode, Policy.tolerant).reason == "stopped_talking"


def test_what_cannot_be_read_is_an_error_of_format_and_text_beside_a_call_is_not_strict() -> None:
    broken = '<tool_call>\n{"name": "get_order", "arguments": {"order_id": }}\n</tool_call>'
    name, arguments = gold()
    mixed = f"Let me look.\n{several((name, json.loads(arguments)))}"
    episode = playing(broken, mixed, several(("report_failure", {"reason": "x"})))
    assert [turn.parse for turn in episode.turns] == [ParseKind.none, ParseKind.tolerant, ParseKind.strict]
    assert episode.turns[0].observation.channel is Channel.form
    assert episode.turns[1].observation.ok
    assert episode.ending is Ending.reported_failure
    assert playing(broken, rules=replace(NATIVE, error_budget=0)).ending is Ending.out_of_errors


def test_a_template_without_calls_cannot_be_played_natively() -> None:
    engine = ScriptedEngine(lambda *_: "")
    info = replace(engine.info, call_form="", no_form="no form of a tool call follows")
    world = small_world(1)

    class Without(ScriptedEngine):
        @property
        def info(self) -> EngineInfo:
            return info

    with pytest.raises(EngineError, match="no form of a tool call follows"):
        Episodes(Without(lambda *_: ""), world, "x", NATIVE).play("c", world.tasks[0], FaultKind.none, None)


def test_a_turn_cut_inside_a_thought_is_told() -> None:
    made = Generation("<think>a", (1, 2), StopReason.max_tokens, 1, (), "", False, thought_tokens=2)
    assert made.cut_in_thought
    assert not replace(made, stop=StopReason.end_of_generation).cut_in_thought
    assert not replace(made, thought_tokens=1).cut_in_thought


# In process: the form of a reference agent's own text protocol, so that both have to agree to the last bit.

OWN = (
    "{% for m in messages %}{% if m.role == 'tool' %}<|user|>Observation: {{ m.content }}<|end|>{% else %}"
    "<|{{ m.role }}|>{{ m.content }}"
    "{% if loop.first and tools and tools[0].function.name == 'qfr_tool_one' %}"
    "{{ tools | tojson }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ '\n' if not loop.first }}"
    '{"tool": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}{% endfor %}'
    "<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def own_form(folder: Path) -> ModelFile:
    file = reference_agent("ref_llama", folder)
    return replace(file, facts=replace(file.facts, template=OWN, template_sha256=sha256_of(OWN)))


def played(file: ModelFile, rules: Rules, *, afresh: bool = False) -> tuple[list[Episode], int]:
    """A walk's episodes, and the tokens that were evaluated beyond its tree."""
    engine = LlamaEngine(file, engine_config(), 4096)
    try:
        if afresh:
            engine.evaluate_afresh()
        episodes: list[Episode] = []

        def record(_track: Track, one: Episode, _seconds: float) -> None:
            episodes.append(one)

        tracks = [Track(f"c-{kind}", kind, Gate.certified, {}) for kind in (FaultKind.none, FaultKind.et)]
        walk(Episodes(engine, small_world(1), prompt(), rules), tracks[0], (tracks[1],), record)
        counters = engine.counters()
        return episodes, counters.evaluated - counters.tree
    finally:
        engine.close()


def test_native_play_is_exact_and_agrees_with_the_text_protocol(tmp_path: Path) -> None:
    native, beyond = played(own_form(tmp_path), NATIVE)
    afresh, _ = played(own_form(tmp_path), NATIVE, afresh=True)
    text, _ = played(reference_agent("ref_llama", tmp_path), RULES)
    assert [encode(one) for one in native] == [encode(one) for one in afresh]
    assert beyond == 0
    assert len(native) == len(text) > 4
    for one, other in zip(native, text, strict=True):
        turns = [(turn.generation, turn.call, turn.parse) for turn in one.turns]
        assert turns == [(turn.generation, turn.call, turn.parse) for turn in other.turns]
        assert (one.ending, one.answer, one.trace, one.schema) == (other.ending, other.answer, other.trace, 3)


# The grid


def test_a_file_without_tools_is_refused_before_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for mode in ("run", "plan"):
        assert main(["model=ref_llama", "executor=native", "prompt=N0", f"mode={mode}"]) == 2
        told = capsys.readouterr().err
        assert "no form of a tool call follows from its chat template: it does not show the tools" in told
        assert "executor=tolerant plays the text protocol" in told
    assert main(["executor.thinking=keep", "mode=plan"]) == 2
    assert "executor.thinking=keep is for executor=native" in capsys.readouterr().err


def test_a_template_that_loses_results_is_refused() -> None:
    lossy = TAGS.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}")
    with pytest.raises(ModelFileError, match="loses the system text, the task or the result"):
        layout(lossy)


def test_the_form_of_scripted_calls_is_a_form() -> None:
    form = json.loads(ScriptedEngine(lambda *_: "").info.call_form)
    assert form["several"]
    assert set(form) == set(asdict(layout(TAGS).form))


# Tokens: what an engine reads is what the template writes, also where it shows earlier turns anew


@pytest.mark.parametrize("thinking", list(Thinking))
@pytest.mark.parametrize("streams", [1, 2])
def test_what_an_engine_reads_is_the_transcript(thinking: Thinking, streams: int, tmp_path: Path) -> None:
    model = TinyModel(template=THINKS, bos="", eos=END, add_bos=False, context=8192)
    file = open_model(write_model(tmp_path / "thinks-F16.gguf", model), tmp_path)
    thought = "<think>\nwhich order?\n</think>\n"
    forced = (thought + call("get_order", order_id="O-1"), "hm", thought + call("get_order", order_id="O-1"))
    told = (
        Past("", "which order?", (GET,), (DONE,)),
        Past("hm", "", (), (REMINDER,)),
        Past("", "which order?", (GET, GET), (DONE, DONE)),
    )
    native = Native(TOOLS, thinking)
    turns = tuple(zip(forced, told, strict=True))

    replies = tuple(zip(told, (*forced[1:], "end"), strict=True))

    def play(engine: LlamaEngine) -> list[Generation]:
        made = [engine.begin("You <b> are {x}.", "Task", 4096, forced[0], native)]
        return made + [engine.reply(past, 4096, text) for past, text in replies]

    engine = LlamaEngine(file, engine_config(), 8192)
    first = play(engine)
    conversation, texts = talk(layout(THINKS, thinking), *turns)
    spelled = engine.tokenizer.model.piece
    conversation = NativeConversation(conversation.layout, "You <b> are {x}.", "Task", conversation.turns)
    conversation.prompts = [talk(layout(THINKS, thinking), *turns[:at])[0].shown().prompt for at in range(3)]
    wanted = read(conversation.shown(), texts)
    assert b"".join(map(spelled, engine.read())).decode() == wanted
    assert any(one.rewritten for one in first) is (thinking is not Thinking.keep)
    assert [one.thought_tokens > 0 for one in first] == [True, False, True, False]
    # The same again from memory, in another order, and from nothing.
    engine.begin("another", "Task", 4, None, native)
    assert play(engine) == first
    engine.start_over()
    assert play(engine) == first
    engine.close()
    if streams == 2:
        both = LlamaStreams(file, engine_config(streams=2), 8192)
        asks = [Ask(1, "You <b> are {x}.", "Task", 4096, forced[0], native)]
        asks += [Ask(1, None, past, 4096, text) for past, text in replies]
        made = [both.advance((ask,))[0].generation.token_ids for ask in asks]
        assert made == [one.token_ids for one in first]
        both.close()


def test_the_context_that_a_suite_needs_counts_the_tools() -> None:
    text, native = (compose_cell(f"executor={kind}", "prompt=N0") for kind in ("tolerant", "native"))
    world = build_world(native.suite)
    shown = max(len(schemas(task_tools(world, task))) for task in world.tasks) / 2
    assert context_need(native, world, "x") >= context_need(text, world, "x") + shown
