"""Calls of text agents, which stand in the text of their messages.

The *act* and *react* agents of tau-bench v1 have no tool calls: they write ``Action:`` and a JSON object, and
the program answers with a user message that begins with ``API output:``. The program's own code takes what
follows the last ``Action:``; what is no JSON object there goes to the user as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qfr.canonical import canonical
from qfr.foreign.common import Requestor
from qfr.foreign.conversation import Asked, Message, ToolAnswer

_ACTION = "Action:"
_ANSWER = re.compile(r"API output:\s?")
_RESPOND = "respond"
# The action that speaks to the user.


@dataclass(frozen=True)
class _Action:
    tool: str
    arguments: str
    # Canonical JSON.
    says: str
    # What `respond` tells the user.
    thought: str
    # What stands before the action.


def read_text_agent(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """Return the messages of a text agent with its actions as calls; None where no text agent wrote them."""
    if any(message.calls for message in messages):
        return None
    actions = {m.index: a for m in messages if m.role is Requestor.agent and (a := _action(m.text))}
    answered = any(m.role is Requestor.user and _ANSWER.match(m.text) for m in messages)
    if not answered and all(action.tool != _RESPOND for action in actions.values()):
        return None
    read: list[Message] = []
    asked = ""
    for message in messages:
        action = actions.get(message.index)
        if action is not None and action.tool == _RESPOND:
            read.append(replace(message, text=action.says))
        elif action is not None:
            asked = f"text-{message.index}"
            call = Asked(asked, Requestor.agent, action.tool, action.arguments)
            read.append(replace(message, text=action.thought, calls=(call,)))
            continue
        elif asked and message.role is Requestor.user and (found := _ANSWER.match(message.text)):
            answer = ToolAnswer(asked, Requestor.agent, message.text[found.end() :], None)
            read.append(replace(message, role=None, text="", results=(answer,)))
        else:
            read.append(message)
        asked = ""
    return tuple(read)


def _action(text: str) -> _Action | None:
    before, mark, after = text.rpartition(_ACTION)
    if not mark:
        return None
    try:
        found = json.loads(after.strip())
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            return None
        arguments = found.get("arguments")
        says = arguments.get("content") if isinstance(arguments, dict) else None
        written = canonical({} if arguments is None else arguments)
    except (ValueError, RecursionError):
        return None
    return _Action(found["name"], written, says if isinstance(says, str) else "", before.strip())
