"""Compare tool calls with llama.cpp's own chat code, for every chat template of a folder.

    python tests/chaos/native.py FOLDER ORACLE [PART_OF_A_NAME …]

ORACLE is a program that reads one JSON object a line (template, messages, tools, bos, eos, outputs) and
answers with what llama.cpp renders and what it parses from each output (prompt, parsed). For each template
whose form of a call we derive, ten conversations are rendered by both, and at least 200 outputs are parsed by
both: calls as the template writes them, and the same calls damaged (cut, doubled, without a bracket, with
blanks, with text around). A row tells how many renderings and readings are equal. What we read otherwise than
llama.cpp is printed with --show.
"""

from __future__ import annotations

import datetime
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qfr.engine.llama import template as template_module
from qfr.engine.llama.template import ChatTemplate
from qfr.engine.native.check import call_form, written
from qfr.engine.native.form import call_id
from qfr.engine.native.reading import read_calls
from qfr.errors import QfrError
from qfr.thoughts import PAIRS, opened_thought

BEGIN, END = "<BOS>", "<EOS>"
# Tokens that end a turn, as published vocabularies spell them.
ENDS = (
    *(END, "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|call|>", "<|end|>", "<|return|>"),
    *("[e~[", "<｜end▁of▁sentence｜>", "<|calls|>", "<｜hy_eos:opensource｜>", "<|message_sep|>\n\n"),
    *("<end_of_sentence>", "<seed:eos>", "<|END_OF_TURN_TOKEN|>", "<SPECIAL_12>", "</assistant>"),
    *("\n\n<sep>", "<|role_end|>", "<turn|>", "<|tool_response>", "<|eot|>", "<|end_of_msg|>"),
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name.replace("_", " "),
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in keys.items()},
                "required": list(keys),
            },
        },
    }
    for name, keys in (
        ("get_order", {"order_id": "string"}),
        ("add", {"a": "number", "b": "number"}),
        ("note", {"text": "string", "tags": "object"}),
        ("now", {}),
    )
]
TEXTS = {
    tool["function"]["name"]: frozenset(
        key for key, kind in tool["function"]["parameters"]["properties"].items() if kind["type"] == "string"
    )
    for tool in TOOLS
}
CALLS: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = (
    (("get_order", {"order_id": "O-17"}),),
    (("add", {"a": 1, "b": 2.5}),),
    (("get_order", {"order_id": "O-17"}), ("get_order", {"order_id": "O-18"})),
    (("note", {"text": "größe € 😀", "tags": {"a": {"b": [1, 2]}}}),),
    (("now", {}),),
    (("get_order", {"order_id": "12"}),),
    (("note", {"text": 'say "hi" <b>', "tags": {}}),),
    (("add", {"a": -3, "b": 0}), ("now", {}), ("get_order", {"order_id": "x y"})),
    (("note", {"text": "two\nlines", "tags": {"k": True}}),),
    (("get_order", {"order_id": ""}),),
)


@dataclass(frozen=True)
class Row:
    name: str
    form: str
    # How arguments stand, or why no form follows.
    rendered: str
    counts: Counter[str]
    # Outputs by kind (whole, damaged) and by who reads calls (equal, other, ours, theirs).


def messages(calls: Sequence[tuple[str, dict[str, Any]]], style: str, *, text: bool) -> list[dict[str, Any]]:
    """A conversation with calls and their results."""
    made = [
        {
            "id": call_id(style, name, 1, place),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given) if text else given},
        }
        for place, (name, given) in enumerate(calls)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": name, "content": '{"ok": true}'}
        for call, (name, _) in zip(made, calls, strict=True)
    ]
    return [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": "Do it."},
        {"role": "assistant", "content": "", "tool_calls": made},
        *results,
    ]


def rendered(template: ChatTemplate, given: list[dict[str, Any]], *, prompt: bool = True) -> str | None:
    try:
        return template.render(given, tools=TOOLS, prompt=prompt)
    except QfrError:
        return None


def damaged(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text) + 1) if text else 0
    how = chance.randrange(6)
    if how == 0:
        return text[:place]
    if how == 1:
        return text[:place] + text[place + 1 :]
    if how == 2:
        return text[:place] + chance.choice(['"', "}", "]", "<", ">", "\n"]) + text[place:]
    if how == 3:
        return "I will do it.\n" + text
    if how == 4:
        return text + chance.choice(["\nDone.", "}", text])
    return text.replace("\n", " ", 1)


def ask(oracle: Path, request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [str(oracle)], input=json.dumps(request) + "\n", capture_output=True, text=True, check=False
    )
    answer: dict[str, Any] = json.loads(done.stdout or '{"error": "the oracle ended"}')
    return answer


def calls_of(parsed: dict[str, Any]) -> list[tuple[str, Any]] | None:
    """What llama.cpp read; None where it read no whole call."""
    out = []
    for call in parsed.get("calls") or []:
        try:
            out.append((call["name"], json.loads(call["arguments"] or "{}")))
        except json.JSONDecodeError:
            return None
    return out


def compared(path: Path, oracle: Path, show: bool) -> Row:
    text = path.read_text("utf-8")
    # As llama.cpp renders: today's date, and thinking where a template has a switch for it.
    template_module.FIXED_DATE = datetime.datetime.now()
    template = ChatTemplate(text, BEGIN, END, path.name, {"enable_thinking": True})
    try:
        form = call_form(template, TOOLS, ENDS)
    except QfrError as error:
        return Row(path.stem, f"none: {error.what.rpartition(': ')[2]}", "–", Counter())
    same = 0
    for calls in CALLS:
        given = messages(calls, form.id_style, text=form.arguments_as_text)
        asked = messages(calls, form.id_style, text=True)
        theirs = ask(oracle, {"template": text, "messages": asked, "tools": TOOLS, "bos": BEGIN, "eos": END})
        ours = rendered(template, given)
        same += ours is not None and ours.removeprefix(BEGIN) == theirs.get("prompt", "").removeprefix(BEGIN)
    chance = random.Random(path.stem)
    shown = CALLS if form.several else tuple(calls for calls in CALLS if len(calls) == 1)
    whole = [written(template, form, TOOLS, calls, ENDS) for calls in shown]
    prompt = rendered(template, messages(CALLS[0], form.id_style, text=False)[:2]) or ""
    thought = opened_thought(prompt)
    if thought:
        # The turn begins inside a thought, which ends first.
        whole = ["Hm.\n" + dict(PAIRS)[thought] + one for one in whole]
    outputs = [*(whole * 13)[:100], *(damaged(chance.choice(whole), chance) for _ in range(110))]
    opening = messages(CALLS[0], form.id_style, text=True)[:2]
    request = {"template": text, "messages": opening, "tools": TOOLS, "bos": BEGIN, "eos": END}
    parsed = ask(oracle, request | {"outputs": outputs, "parallel": True}).get("parsed", [{}] * len(outputs))
    counts = Counter[str]()
    for number, (output, theirs_parsed) in enumerate(zip(outputs, parsed, strict=True)):
        ours_read = [
            (call.name, json.loads(call.arguments))
            for call in read_calls(output, form, TEXTS, inside=bool(thought)).calls
        ]
        theirs_read = calls_of(theirs_parsed) or []
        kind = "whole" if number < 100 else "damaged"
        if number < 100:
            counts["back"] += ours_read == list(shown[number % len(shown)])
        what = "equal" if ours_read == theirs_read else "other"
        if what == "other" and not (ours_read and theirs_read):
            what = "ours" if ours_read else "theirs"
        counts[f"{kind} {what}"] += 1
        if show and what != "equal":
            print(f"   {kind} {output!r}\n      ours {ours_read}\n      llama.cpp {theirs_parsed}")
    style = "JSON" if form.keyed is None else "one by one"
    return Row(path.stem, style, f"{same} of 10", counts)


def main(folder: Path, oracle: Path, names: Sequence[str], *, show: bool) -> None:
    print(
        "| template | arguments | renderings equal | whole calls: read back, equal to llama.cpp "
        "| damaged: equal | only we read | only llama.cpp reads | other calls |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for path in sorted(folder.glob("*.jinja")):
        if not names or any(name in path.name for name in names):
            row = compared(path, oracle, show)
            c = row.counts
            cells = (f"{c['back']}, {c['whole equal']} of 100", f"{c['damaged equal']} of 110")
            cells += (str(c["damaged ours"]), str(c["damaged theirs"]))
            cells += (str(c["damaged other"] + c["whole other"]),)
            print(f"| {row.name} | {row.form} | {row.rendered} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--show"]
    main(Path(given[0]), Path(given[1]), given[2:], show="--show" in sys.argv)
