"""Play a conversation of calls natively with every chat template of a folder, without a model.

    python tests/chaos/native_play.py FOLDER [PART_OF_A_NAME …]

Three turns, the second with two calls where the template shows several, are laid out as an episode is. A row
tells whether the transcript is what the template renders for these messages, and how many turns stay as they
were generated. Turns are what the template itself writes for their calls.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from qfr.choices import Thinking
from qfr.engine.base import Native, Past, PastCall
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.llama.transcript import Layout, Shown
from qfr.engine.native.check import call_form
from qfr.engine.native.conversation import NativeLayout
from qfr.engine.native.turn import schemas
from qfr.errors import EngineError, ModelFileError
from qfr.world.tools import COMMON

ENDS = (
    *("<|im_end|>", "<|eot_id|>", "</s>", "<|eom_id|>", "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>"),
    *("<|return|>", "<|call|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|endoftext|>"),
    *("<|end|>", "<|user|>", "<|observation|>", "[e~[", "<|eot|>", "<seed:eos>", "<SPECIAL_12>"),
)
SYSTEM, TASK, RESULT = "You are <x> it's.", "Task & more", '{"ok": true, "result": {"a": 1}}'
CALLS = (("get_order", {"order_id": "O-1"}), ("get_customer", {"customer_id": 'C "x" <b>'}))


def ends_of(text: str) -> list[str]:
    """What ends a turn of this template, as far as its text tells."""
    found = [end for end in ENDS if end in text]
    # One of gpt-oss ends messages inside a turn.
    return [end for end in found if not (end == "<|end|>" and "<|call|>" in found)] or ["<|im_end|>"]


def text_of(shown: Shown, turns: list[str]) -> str:
    out = ""
    for body in shown.bodies:
        kept = body.generated and body.turn is not None
        out += body.before + (turns[body.turn or 0] if kept else "".join(part.text for part in body.parts))
    return out + shown.prompt


def row(layout: NativeLayout) -> str:
    """Play the conversation."""
    two = CALLS * 2 if layout.form.several else CALLS[:1]
    conversation, turns = layout.begun(SYSTEM, TASK), list[str]()
    messages, equal = layout.opening(SYSTEM, TASK), 0
    for turn, calls in enumerate((CALLS[:1], two, CALLS[1:])):
        conversation.shown()
        before = layout.render(messages)
        messages.append(layout.calling(turn, calls, "", ""))
        alone = layout.render(messages, prompt=False)
        turns.append(alone[len(before) :] if alone.startswith(before) else "")
        places = [turns[-1].index(end) for end in layout.ends if end in turns[-1]]
        turns[-1] = turns[-1][: min(places)] if places else turns[-1].rstrip()
        messages += layout.told(turn, [name for name, _ in calls], [RESULT] * len(calls))
        asked = tuple(PastCall(name, json.dumps(given)) for name, given in calls)
        conversation = conversation.grown("", Past("", "", asked, (RESULT,) * len(calls)))
        equal += text_of(conversation.shown(), turns) == layout.render(messages)
    kept = sum(body.generated for body in conversation.shown().bodies)
    return f"{equal} of 3 transcripts equal, {kept} of 3 turns kept"


def main(folder: str, *names: str) -> None:
    for path in sorted(Path(folder).glob("*.jinja")):
        if names and not any(name in path.stem for name in names):
            continue
        text = path.read_text("utf-8")
        ends = ends_of(text)
        try:
            template = ChatTemplate(text, "<BOS>", ends[0], path.name)
            native = Native(schemas(COMMON), Thinking.template)
            told = row(NativeLayout(Layout(template), call_form(template, ends=ends), native, ends))
        except (ModelFileError, EngineError) as error:
            told = f"refused: {error.what}"
        print(f"{path.stem} | {told}")


if __name__ == "__main__":
    main(*sys.argv[1:])
