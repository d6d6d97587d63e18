"""Play the text protocol with every chat template of a folder, and compare with plain Jinja and llama.cpp.

    python tests/chaos/templates.py FOLDER [PART_OF_A_NAME …]

For each template a tiny GGUF is written whose vocabulary holds the template's tags as control tokens, once
with a byte-level and once with a SentencePiece vocabulary. Three episodes of four turns each are played:
plain calls, thoughts in tags, thoughts that end only. Before every turn the ids that the engine has read are
compared with the ids of a rendering of the whole conversation that shares no code with the engine. The
answer is a Markdown table; the exit code is 1 where an id differs.

The templates that llama.cpp ships stand in the source package of llama-cpp-python, in the folder
vendor/llama.cpp/models/templates.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import SandboxedEnvironment

sys.path.insert(0, str(Path(__file__).parents[1]))
import tiny_models
from engine_builders import engine_config
from tiny_models import TinyModel, write_model

from qfr.engine.files.gguf import open_model
from qfr.engine.llama.engine import LlamaEngine
from qfr.errors import QfrError

TAG = re.compile(
    r"<\|?[A-Za-z_/｜▁:.0-9 ]{2,40}?\|?>|<｜[^｜<>]+｜>|\[/?[A-Z_]{2,30}\]|</?[a-z_]+>|<[a-z]+\|>|<\|[a-z]+>"
)
BEGIN, END = "<|begin|>", "<|im_end|>"
SYSTEM, TASK = "Use the tools, one JSON object per turn.", "Find the total of order 17."
OBSERVATIONS = (
    'Observation: {"ok": true, "result": {"order_id": "A1"}}',
    'Observation: {"ok": false, "error": "timeout"}',
    "Observation: done",
)
EPISODES = {
    "plain": ('{"tool": "get_order", "arguments": {"id": "A1"}}', '{"tool": "get_customer"}', "{}", "{}"),
    "thought": (
        '<think>\nThe order.\n</think>\n\n{"tool": "get_order"}',
        '<think>\nThe customer.\n</think>\n\n{"tool": "get_customer"}',
        "{}",
        "{}",
    ),
    "thought that ends": (
        'The order.\n</think>\n\n{"tool": "get_order"}',
        'The customer.\n</think>\n\n{"tool": "get_customer"}',
        "{}",
        "{}",
    ),
}

Message = dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What one template did."""

    name: str
    system: str
    # own, folded or refused.
    history: str
    # kept, rewritten, or why the template is refused.
    cost: str
    # Tokens read anew, of those of the three episodes.
    differences: tuple[str, ...]


def renderer(text: str) -> Callable[[Sequence[Message]], str]:
    """A rendering of conversations that tries, in order, the ways in which templates want to be asked."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, ensure_ascii=False, indent=how.get("indent")
    )
    template = environment.from_string(re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", text))

    def fail(message: str) -> None:
        raise ValueError(message)

    def once(messages: Sequence[Message], typed: bool, listed: bool) -> str:
        given = [
            message | {"content": [{"type": "text", "text": message["content"]}]} if typed else message
            for message in messages
        ]
        tools = {"tools": [], "functions": "", "datetime": "Jul 26 2024"} if listed else {"tools": None}
        return template.render(
            messages=[dict(message) for message in given],
            add_generation_prompt=True,
            bos_token=BEGIN,
            eos_token=END,
            documents=None,
            raise_exception=fail,
            strftime_now=datetime.datetime(2024, 7, 26).strftime,
            **tools,
        )

    def render(messages: Sequence[Message]) -> str:
        joined = [
            {"role": "user", "content": f"{messages[0]['content']}\n{messages[1]['content']}"},
            *messages[2:],
        ]
        problem = ""
        for form in (messages, joined):
            for typed in (False, True):
                for listed in (False, True):
                    try:
                        out = once(form, typed, listed)
                    except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
                        problem = problem or str(error)
                        continue
                    users = [part["content"] for part in messages if part["role"] != "assistant"]
                    if all(user.strip() in out for user in users):
                        return out
        raise ValueError(problem or "loses a message")

    return render


def play(engine: LlamaEngine, render: Callable[[Sequence[Message]], str], turns: Sequence[str]) -> str:
    """One episode; the first difference, "" where there is none."""
    model = engine.tokenizer.model
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    turn = engine.begin(SYSTEM, TASK, 400, turns[0])
    for place, observation in enumerate((*OBSERVATIONS, "")):
        wanted = model.tokenize(render(messages), special=True)
        if model.wants_bos and wanted[:1] != (model.bos,):
            wanted = (model.bos or 0, *wanted)
        if engine.read() != wanted:
            return f"turn {place}"
        if observation:
            # A SentencePiece text begins with a blank behind a control token: it is not the turn's.
            said = turn.text.removeprefix(" ") if model.sentencepiece else turn.text
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": observation},
            ]
            turn = engine.reply(observation, 400, turns[place + 1])
    return ""


def tried(path: Path, folder: Path) -> Outcome:
    """Play one template."""
    text = path.read_text("utf-8")
    tags = {tag for tag in TAG.findall(text) if len(tag) > 2} - {"<think>", "</think>"}
    tiny_models.CONTROLS = tuple(dict.fromkeys((END, BEGIN, "<|endoftext|>", *sorted(tags))))
    differences, rewritten, total = [], 0, 0
    system = history = ""
    for vocabulary in ("gpt2", "llama"):
        made = TinyModel(template=text, vocabulary=vocabulary, context=32768, add_bos=True)
        try:
            engine = LlamaEngine(
                open_model(write_model(folder / f"{path.stem}.gguf", made), folder), engine_config(), 8192
            )
        except QfrError as error:
            return Outcome(path.stem, "–", f"refused: {error.what}", "–", ())
        info = engine.info
        system, history = info.system_role, f"rewritten: {info.rewrites}" if info.rewrites else "kept"
        for name, turns in EPISODES.items():
            engine.start_over()
            found = play(engine, renderer(text), turns)
            differences += [f"{vocabulary}, {name}: {found}"] if found else []
        rewritten, total = engine.counters().rewritten, engine.counters().fresh
        engine.close()
    return Outcome(path.stem, system, history, f"{rewritten} of {total}", tuple(differences))


def main(folder: Path, names: Sequence[str]) -> int:
    print("| template | system message | history | tokens read anew | ids |\n|---|---|---|---|---|")
    different = 0
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(folder.glob("*.jinja")):
            if names and not any(name in path.name for name in names):
                continue
            outcome = tried(path, Path(place))
            different += bool(outcome.differences)
            equal = "; ".join(outcome.differences) or ("equal" if outcome.cost != "–" else "–")
            history = outcome.history.replace("|", "\\|").replace("\n", "\\n")
            print(f"| {outcome.name} | {outcome.system} | {history} | {outcome.cost} | {equal} |", flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
