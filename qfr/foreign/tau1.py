"""tau-bench v1 trajectories: a list of ``{task_id, reward, info, traj, trial}``.

The format has no error flag, no error budget, no termination reason, no plan and no names: a failing call is
one whose result begins with ``Error:`` or ``Unknown action``, the end is read off the last message, and the
model is the file's name unless the caller gives one. A run that recorded an exception instead of a trajectory
is excluded as ``crashed``. The user simulator has no tools. The domain stands in the system message; a file
with several is one log for each.

The *act* and *react* agents have no tool calls: they write ``Action:`` and a JSON object, and the program
answers with a user message that begins with ``API output:``. The program's own code takes what follows the
last ``Action:``; what is no JSON object there goes to the user as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qfr.canonical import canonical, digest, read_json
from qfr.errors import did_you_mean
from qfr.foreign.common import ForeignInfo, ForeignRun, Options, Release, Requestor, SourceKind
from qfr.foreign.conversation import Asked, Message, ToolAnswer, converse
from qfr.foreign.node import Loaded, Node, shown
from qfr.foreign.tau2_messages import content
from qfr.foreign.trials import Plan, Simulation, sort_out
from qfr.records import Ending

MAX_STEPS = 30
# Agent messages at most.
STOP = "###STOP###"
TRANSFER = "transfer_to_human_agents"
# A call of it ends the conversation.
_DOMAIN = re.compile(r"\s*#\s*(\w+) agent policy", re.IGNORECASE)
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class _Part:
    """The trajectories of one domain."""

    domain: str
    # Empty where the system messages name none.
    read: list[Simulation]
    text_agents: int


def read_trajectories(loaded: Loaded, name: str, options: Options) -> tuple[ForeignRun, ...]:
    """Read a list of trajectories: one log for each domain in it.

    Parameters
    ----------
    loaded : Loaded
        The file.
    name : str
        File name; its stem is the model unless `options` name one.

    Raises
    ------
    LogError
        The list is empty, or an entry is damaged; the message names its place.
    """
    parts = _parts(loaded.root)
    if not parts:
        raise loaded.root.wrong("holds no trajectory", "the run has finished none yet")
    return tuple(_run(part, loaded, name, options, alone=len(parts) == 1) for part in parts)


def _parts(root: Node) -> list[_Part]:
    """Trajectories by domain. One that names none (it crashed) belongs to the one before it in the file."""
    found: dict[str, list[tuple[Simulation, bool]]] = {}
    nameless: list[tuple[Simulation, bool]] = []
    last = ""
    for node in root.drain():
        messages = _messages(node)
        acting = read_text_agent(messages)
        one = (_simulation(node, messages if acting is None else acting), acting is not None)
        last = _domain(messages[0].text) if messages and messages[0].role is None else last
        if last:
            found.setdefault(last, []).extend((*nameless, one))
            nameless = []
        else:
            nameless.append(one)
    if nameless:
        found[""] = nameless
    return [
        _Part(domain, [one for one, _ in members], sum(text for _, text in members))
        for domain, members in found.items()
    ]


def _run(part: _Part, loaded: Loaded, name: str, options: Options, *, alone: bool) -> ForeignRun:
    # A file of one domain keeps the id that it always had.
    sha256 = loaded.sha256 if alone else digest([loaded.sha256, part.domain])
    text_agent = part.text_agents > 0
    info = _info((sha256, name if alone else f"{name} ({part.domain or 'no domain'})"), name, options)
    found = sort_out(
        part.read,
        Plan(options.tasks, options.trials, name),
        domain=part.domain,
        cell_id=f"f-{sha256[:16]}",
        user_tools=options.user_tools,
    )
    stated = bool(options.tasks) and options.trials is not None
    doubts = []
    if not stated:
        doubts.append(
            "the format states no plan: tasks and trials are taken to be those in the file, so a run that "
            "was cut short looks complete (--tasks and --trials say what was planned)"
        )
    if text_agent:
        doubts.append(
            f"{part.text_agents} trajectories are of a text agent: its calls were read from its messages "
            "(Action: …) and their results from the replies (API output: …)"
        )
    return ForeignRun(
        replace(info, domain=part.domain, trials=found.trials, plan_stated=stated, text_agent=text_agent),
        found.episodes,
        found.excluded,
        (*found.warnings, *doubts),
    )


def _info(source: tuple[str, str], name: str, options: Options) -> ForeignInfo:
    sha256, shown_as = source
    return ForeignInfo(
        kind=SourceKind.tau1,
        release=Release.not_applicable,
        release_reason="tau-bench v1 dropped no invented tool names",
        model=options.model or name.removesuffix(".json"),
        max_steps=MAX_STEPS,
        user_tools=options.user_tools,
        source=shown_as,
        sha256=sha256,
    )


def _simulation(node: Node, messages: tuple[Message, ...]) -> Simulation:
    reward = node.need("reward").number()
    info = node.get("info")
    crashed = not messages and isinstance(info.value, dict) and "error" in info.value
    reason, ending = ("crashed", Ending.out_of_errors) if crashed else _end(messages)
    return Simulation(
        task=node.need("task_id").name(),
        trial=None if node.get("trial").missing else node.get("trial").count(),
        id="",
        where=node.where,
        reason=reason,
        ending=ending,
        reward=None if crashed else reward,
        conversation=None if crashed else converse(messages),
        completion_tokens=None,
    )


def _end(messages: tuple[Message, ...]) -> tuple[str, Ending]:
    last = messages[-1] if messages else None
    if last is not None and last.role is Requestor.user and STOP in last.text:
        return "user_stop", Ending.submitted
    asked = [call.tool for message in messages for call in message.calls]
    if last is not None and last.results and asked[-1:] == [TRANSFER]:
        return "agent_stop", Ending.submitted
    if sum(message.role is Requestor.agent for message in messages) >= MAX_STEPS:
        return "max_steps", Ending.out_of_steps
    return "unknown", Ending.submitted


def _messages(node: Node) -> tuple[Message, ...]:
    node.need("traj")
    return tuple(_message(at, each) for at, each in enumerate(node.get("traj").items()))


def _message(index: int, node: Node) -> Message:
    role = node.need("role").text()
    if role not in _ROLES:
        raise node.get("role").wrong(
            f"{shown(role)} is no role of a message{did_you_mean(role, _ROLES)}",
            f"expected one of {', '.join(_ROLES)}",
        )
    text = content(node.get("content"))
    if role == "tool":
        answer = ToolAnswer(node.get("tool_call_id").name_or(""), Requestor.agent, text, None)
        return Message(index, node.where, None, results=(answer,))
    if role == "system":
        return Message(index, node.where, None, text)
    calls = tuple(_asked(call) for call in node.get("tool_calls").items()) if role == "assistant" else ()
    return Message(index, node.where, Requestor(role), text, calls)


def _asked(node: Node) -> Asked:
    function = node.need("function")
    return Asked(
        id=node.get("id").name_or(""),
        requestor=Requestor.agent,
        tool=function.need("name").text(),
        arguments=_arguments(function.get("arguments")),
    )


def _arguments(node: Node) -> str:
    """Arguments as canonical JSON: the model's own JSON text read, or that text as a JSON string."""
    if isinstance(node.value, dict):
        return canonical(node.value)
    written = node.text_or("{}")
    try:
        return canonical(read_json(written))
    except (ValueError, RecursionError):
        return canonical(written)


def _domain(system: str) -> str:
    found = _DOMAIN.match(system)
    return found[1].lower() if found else ""


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
