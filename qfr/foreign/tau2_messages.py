"""Messages of a tau2-bench simulation, in turns or in ticks, old files and new ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qfr.canonical import canonical
from qfr.errors import did_you_mean
from qfr.foreign.common import Requestor
from qfr.foreign.conversation import Asked, Message, ToolAnswer
from qfr.foreign.node import Node, shown

# What the program itself says first, in every conversation that has no given history.
GREETING = "Hi! How can I help you today?"
_ROLES = ("assistant", "user", "tool", "system")


@dataclass(frozen=True)
class Messages:
    """The messages of one simulation."""

    messages: tuple[Message, ...]
    completion_tokens: int | None
    # Tokens that the agent generated; None where one of its messages does not count them.
    ticks: bool
    # Read from a full-duplex recording: calls only, without speech.


def read_messages(simulation: Node, history: int) -> Messages:
    """Read a simulation's messages.

    Parameters
    ----------
    simulation : Node
        The simulation object.
    history : int
        Number of messages at the front that the task gives and nobody wrote.

    Raises
    ------
    LogError
        A message is damaged; the message names its place.
    """
    listed = simulation.get("messages")
    if listed.missing and not simulation.get("ticks").missing:
        return Messages(tuple(_from_ticks(simulation.get("ticks"))), None, True)
    simulation.need("messages")
    messages = []
    tokens: int | None = 0
    for index, node in enumerate(listed.items()):
        message = _message(index, node, given=index < history)
        messages.append(message)
        if message.role is Requestor.agent and not message.given:
            used = _completion_tokens(node)
            tokens = None if tokens is None or used is None else tokens + used
    return Messages(tuple(messages), tokens, False)


def _message(index: int, node: Node, *, given: bool) -> Message:
    role = node.need("role").text()
    if role not in _ROLES:
        raise node.get("role").wrong(
            f"{shown(role)} is no role of a message{did_you_mean(role, _ROLES)}",
            f"expected one of {', '.join(_ROLES)}",
        )
    if role == "system":
        return Message(index, node.where, None, given=given)
    if role == "tool":
        nested = node.get("tool_messages")
        parts = (node,) if nested.missing else tuple(nested.items())
        return Message(index, node.where, None, results=tuple(map(_result, parts)), given=given)
    writer = Requestor(role)
    text = content(node.get("content"))
    calls = tuple(_asked(call, writer) for call in node.get("tool_calls").items())
    greets = index == 0 and writer is Requestor.agent and not calls and text == GREETING
    return Message(index, node.where, writer, text, calls, cut=_cut(node), given=given or greets)


def content(node: Node) -> str:
    """Text of a message: a string, null, or a list of parts of which those with a text count."""
    if not isinstance(node.value, list):
        return node.text_or("")
    return "".join(part.get("text").text_or("") for part in node.items() if isinstance(part.value, dict))


def arguments(node: Node) -> str:
    """Arguments of a call as canonical JSON."""
    try:
        return canonical({} if node.missing else node.value)
    except RecursionError:
        raise node.wrong("the arguments are nested too deeply") from None


def _asked(node: Node, writer: Requestor) -> Asked:
    given = node.get("arguments")
    if not given.missing and not isinstance(given.value, dict):
        raise given.wrong("the arguments of a call must be an object", "is this a tau2-bench file?")
    return Asked(
        id=node.get("id").name_or(""),
        requestor=_requestor(node.get("requestor"), writer),
        tool=node.need("name").text(),
        arguments=arguments(given),
    )


def _result(node: Node) -> ToolAnswer:
    flag = node.get("error")
    return ToolAnswer(
        id=node.get("id").name_or(""),
        requestor=_requestor(node.get("requestor"), Requestor.agent),
        text=content(node.get("content")),
        error=None if flag.missing else flag.flag_or(False),
    )


def _requestor(node: Node, default: Requestor) -> Requestor:
    if node.missing:
        return default
    word = node.text()
    choices = [str(each) for each in Requestor]
    if word not in choices:
        raise node.wrong(
            f"{shown(word)} is no requestor{did_you_mean(word, choices)}", f"expected {' or '.join(choices)}"
        )
    return Requestor(word)


def _cut(node: Node) -> bool:
    raw = node.get("raw_data")
    if not isinstance(raw.value, dict):
        return False
    return raw.value.get("finish_reason") == "length" or raw.value.get("stop_reason") == "max_tokens"


def _completion_tokens(node: Node) -> int | None:
    usage = node.get("usage")
    return usage.get("completion_tokens").whole_or_none() if isinstance(usage.value, dict) else None


def _from_ticks(ticks: Node) -> Iterator[Message]:
    """Calls and results of a full-duplex recording, in order. Chunks of speech are no messages."""
    index = 0
    for tick in ticks.items():
        for side, writer in (("agent", Requestor.agent), ("user", Requestor.user)):
            calls = tuple(_asked(call, writer) for call in tick.get(f"{side}_tool_calls").items())
            results = tuple(_result(each) for each in tick.get(f"{side}_tool_results").items())
            if calls:
                yield Message(index, tick.where, writer, calls=calls)
                index += 1
            if results:
                yield Message(index, tick.where, None, results=results)
                index += 1
