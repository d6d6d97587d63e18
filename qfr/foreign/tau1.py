"""tau-bench v1 trajectories: a list of ``{task_id, reward, info, traj, trial}``.

The format has no error flag, no error budget, no termination reason and no names: a failing call is one
whose result begins with ``Error:`` or ``Unknown action``, the end is read off the last message, and the model
is the file's name unless the caller gives one. A run that recorded an exception instead of a trajectory is
excluded as ``crashed``. The user simulator has no tools.
"""

from __future__ import annotations

import re
from dataclasses import replace

from qfr.canonical import canonical, read_json
from qfr.errors import did_you_mean
from qfr.foreign.common import ForeignInfo, ForeignRun, Options, Release, Requestor, SourceKind
from qfr.foreign.conversation import Asked, Message, Result, converse
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
_TEXT_ACTION = re.compile(r"^Action:\s*\{", re.MULTILINE)


def read_trajectories(loaded: Loaded, name: str, options: Options) -> ForeignRun:
    """Read a list of trajectories.

    Parameters
    ----------
    loaded : Loaded
        The file.
    name : str
        File name; its stem is the model unless `options` name one.
    options : Options

    Raises
    ------
    LogError
        The list is empty, or an entry is damaged; the message names its place.
    """
    root = loaded.root
    read: list[Simulation] = []
    domains: set[str] = set()
    text_agents = 0
    for node in root.drain():
        messages = _messages(node)
        read.append(_simulation(node, messages))
        domains.update(_domain(message.text) for message in messages[:1])
        text_agents += any(map(_acts_in_prose, messages))
    if not read:
        raise root.wrong("holds no trajectory", "the run has finished none yet")
    domains.discard("")
    info = _info(loaded, name, options, domains.pop() if len(domains) == 1 else "")
    info = replace(info, trials=1 + max(each.trial or 0 for each in read))
    found = sort_out(
        read,
        Plan((), info.trials, name),
        domain=info.domain,
        cell_id=f"f-{loaded.sha256[:16]}",
        user_tools=options.user_tools,
    )
    doubts = []
    if text_agents:
        doubts.append(
            f"{text_agents} trajectories are of a text agent (Action: in prose); its calls are not in the "
            "log as calls and are in no rate"
        )
    return ForeignRun(info, found.episodes, found.excluded, (*found.warnings, *doubts))


def _info(loaded: Loaded, name: str, options: Options, domain: str) -> ForeignInfo:
    return ForeignInfo(
        kind=SourceKind.tau1,
        release=Release.not_applicable,
        release_reason="tau-bench v1 dropped no invented tool names",
        model=options.model or name.removesuffix(".json"),
        agent="",
        user_model="",
        domain=domain,
        git_commit="",
        timestamp="",
        trials=0,
        max_steps=MAX_STEPS,
        max_errors=None,
        seed=None,
        user_tools=options.user_tools,
        source=name,
        sha256=loaded.sha256,
    )


def _acts_in_prose(message: Message) -> bool:
    return (
        message.role is Requestor.agent
        and not message.calls
        and _TEXT_ACTION.search(message.text) is not None
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
        answer = Result(node.get("tool_call_id").name_or(""), Requestor.agent, text, None)
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
