"""From a log's messages to turns: calls paired with results by id, the two sides kept apart.

Which way a call failed is read off the text of its result. The texts are those of the programs' own code:
tau2-bench answers any exception of a tool with ``Error: `` and the exception's text and sets the result's
``error`` flag; tau-bench v1 has no flag and answers an unknown tool with ``Unknown action X``. The channels
are Jang's (2026): tool name, arguments, entity, policy or state.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from qfr.errors import LogError
from qfr.foreign.common import FailureKind, ForeignCall, Requestor, Talk
from qfr.foreign.node import shown
from qfr.records import Channel, Generation, Observation, ParseKind, StopReason, ToolCall, Turn

_PREFIX = re.compile(r"\s*Error:?\s*", re.IGNORECASE)
_UNKNOWN_TOOL = re.compile(r"(?:Error:\s*)?Tool '.*' not found\.?|Unknown action .*", re.DOTALL)
# Texts of Python's own TypeError (a call that does not fit the signature, a value of the wrong type), of
# pydantic, and of a bare KeyError, whose text is the quoted key: a value that is none of the choices.
_ARGUMENTS = re.compile(
    r"""
    missing\ \d+\ required\ (?:positional|keyword-only)\ argument
    | got\ an\ unexpected\ keyword\ argument
    | got\ multiple\ values\ for
    | takes\ .{0,40}\ positional\ arguments?
    | keywords\ must\ be\ strings
    | argument\ after\ \*\*\ must\ be
    | \d+\ validation\ errors?\ (?:for|parsing)\b
    | is\ a\ required\ property | \badditional\ properties\ are\ not\ allowed
    | object\ (?:has\ no\ attribute|is\ not\ (?:subscriptable|iterable|callable))
    | (?:indices|index)\ must\ be
    | unsupported\ operand\ type
    | not\ supported\ between\ instances
    | can\ only\ concatenate
    | unhashable\ type
    | must\ be\ (?:str|int|float|bool|list|dict)\b
    | could\ not\ convert\ string
    | invalid\ literal\ for
    | does\ not\ match\ format
    | Invalid\ isoformat
    | Invalid\ characters\ in\ expression
    """,
    re.VERBOSE | re.IGNORECASE,
)
_KEY_ERROR = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_ENTITY = re.compile(
    r"\bnot\ found\b | \bUnknown\ ID\ format\ or\ type\b | \bdoes\ not\ exist\b | \bno\ such\b"
    r"| \bNo\ \w+(?:\ \w+)?\ found\b",
    re.VERBOSE | re.IGNORECASE,
)
# What the tools of the retail, airline and telecom domains say when a rule or the state forbids a call.
_POLICY = re.compile(
    r"""
    \bcannot\b | \bcan\ not\b | \bcan't\b | \bmust\b | \bshould\b | \binsufficient\b | \bnot\ enough\b
    | \balready\b | \bnot\ (?:available|allowed|permitted|eligible|authori[sz]ed|active|pending)\b
    | \binvalid\b | \btoo\ many\b | \bdoes\ not\ (?:match|add\ up|belong)\b | \bonly\b | \bexceeds?\b
    | \brequired?\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A call that an agent left in the text of a message: the marks of the chat templates in use,
# a JSON object that is a call by its keys, a line that is a call of a function.
_LEFT = re.compile(
    r"""
    <\|?/?tool_calls?(?:_begin|_start)?\b | <tool▁calls?▁begin | <｜tool▁calls?▁begin | <function[=_\s>]
    | <\|python_tag\|> | \[TOOL_CALLS\] | \bfunctools\[ | <invoke\s+name= | \bto=functions\.
    | <\|tool_call | <minimax:tool_call | <start_function_call>
    | Action:\s*(?:```\w*\s*)?\{
    | \{\s*"(?:name|tool|function|action)"\s*:\s*"[^"\n]{1,80}"\s*,
      \s*"(?:arguments|parameters|args|action_input)"\s*:
    | ^\s*\[?\w{2,60}\((?:\w+\s*=[^()\n]*)?\)\]?\s*$
    """,
    re.VERBOSE,
)
_RECORDED = frozenset(member.value for member in Channel)
# A text of a model or a tool may be huge; what the forms look for stands near the front.
_LOOKED_AT = 2_000
_MESSAGE = 20_000
# Characters of a message that are searched for a call.


@dataclass(frozen=True)
class Failure:
    """Why a call failed."""

    kind: FailureKind
    recognised: bool
    # False when no known form fits; the kind is policy then, the channel of a tool's own refusals.


def classify(text: str) -> Failure:
    """Return why a call failed, from the text of its result.

    Parameters
    ----------
    text : str
        Result of a failing call, with or without ``Error: `` in front.

    Returns
    -------
    Failure
        One kind for each text, the forms tried in the order tool name, arguments, entity, policy.
    """
    head = text[:_LOOKED_AT].strip()
    if _UNKNOWN_TOOL.fullmatch(head):
        return Failure(FailureKind.tool_name, True)
    said = _PREFIX.sub("", head, count=1)
    if _ARGUMENTS.search(said) or _KEY_ERROR.fullmatch(said):
        return Failure(FailureKind.arguments, True)
    if _ENTITY.search(said):
        return Failure(FailureKind.entity, True)
    return Failure(FailureKind.policy, _POLICY.search(said) is not None)


def looks_failed(text: str) -> bool:
    """Whether a result without an error flag tells of a failure (tau-bench v1, early tau2-bench)."""
    return text.startswith(("Error:", "Unknown action "))


def call_in_text(text: str) -> bool:
    """Whether a message of the agent without a call holds one in its text, which the program did not run."""
    return _LEFT.search(text[:_MESSAGE]) is not None


def channel(kind: FailureKind | None) -> Channel | None:
    """Return the records' channel of that name; None for a good call and for a kind that has none there."""
    return Channel(kind.value) if kind is not None and kind.value in _RECORDED else None


@dataclass(frozen=True)
class Asked:
    """A tool call as a message asks for it."""

    id: str
    requestor: Requestor
    tool: str
    arguments: str
    # Canonical JSON.


@dataclass(frozen=True)
class ToolAnswer:
    """A tool's answer as the log holds it."""

    id: str
    requestor: Requestor
    text: str
    error: bool | None
    # The log's flag; None where it has none, then the text tells.

    @property
    def failed(self) -> bool:
        """The call failed."""
        return looks_failed(self.text) if self.error is None else self.error


@dataclass(frozen=True)
class Message:
    """One entry of a log's conversation, whatever the format."""

    index: int
    # Place in the log.
    where: str
    # The same for a reader: `results.json: simulations[3].messages[14]`.
    role: Requestor | None
    # Who wrote it; None for tool results and system messages.
    text: str = ""
    calls: tuple[Asked, ...] = ()
    results: tuple[ToolAnswer, ...] = ()
    cut: bool = False
    # The text ran into the token limit.
    given: bool = False
    # Not the agent's work: the program's fixed greeting, or a history that the task begins with.


@dataclass(frozen=True)
class Conversation:
    """A conversation as turns of the agent."""

    turns: tuple[Turn, ...]
    calls: tuple[ForeignCall, ...]
    talk: tuple[Talk, ...]
    agent_messages: int
    unrecognised: tuple[str, ...]
    # Texts of the agent's failures that fit no known form.
    left_in_text: int
    # The agent's messages that hold a call as text, which nobody ran.


def converse(messages: tuple[Message, ...]) -> Conversation:
    """Turn a conversation's messages into turns.

    Parameters
    ----------
    messages : tuple of Message
        In order. Given messages become no turns, but a call in them may still be answered later.

    Raises
    ------
    LogError
        A result answers no call that is still open.
    """
    answers = _pair(messages)
    turns: list[Turn] = []
    calls: list[ForeignCall] = []
    talk: list[Talk] = []
    unrecognised: list[str] = []
    own = [message for message in messages if not message.given]
    for message in own:
        by_agent = any(asked.requestor is Requestor.agent for asked in message.calls)
        if message.role is not None and not by_agent and (message.text or not message.calls):
            talk.append(Talk(message.role, len(turns), message.text))
        text = message.text
        for at, asked in enumerate(message.calls):
            answer = answers.get((message.index, at))
            call = _call(message.index, len(turns), asked, answer)
            calls.append(call)
            if asked.requestor is Requestor.agent:
                turns.append(_turn(len(turns), text, message.cut, asked, answer, call.failure))
                text = ""
                if not call.recognised and answer is not None:
                    unrecognised.append(answer.text)
    written = sum(message.role is Requestor.agent for message in own)
    left = sum(
        message.role is Requestor.agent and not message.calls and call_in_text(message.text)
        for message in own
    )
    return Conversation(tuple(turns), tuple(calls), tuple(talk), written, tuple(unrecognised), left)


def with_roles(calls: tuple[ForeignCall, ...], user_tools: frozenset[str]) -> tuple[ForeignCall, ...]:
    """Mark the agent's calls of tools that are not its own but the user's."""
    return tuple(
        replace(call, role_confusion=True)
        if call.failure is FailureKind.tool_name
        and call.requestor is Requestor.agent
        and call.tool in user_tools
        else call
        for call in calls
    )


def tools_of_user(calls: Iterable[ForeignCall]) -> frozenset[str]:
    """Names that the user simulator called and that exist."""
    return frozenset(
        call.tool
        for call in calls
        if call.requestor is Requestor.user and call.answered and call.failure is not FailureKind.tool_name
    )


def _pair(messages: tuple[Message, ...]) -> dict[tuple[int, int], ToolAnswer]:
    """Results by (message, call). Ids may repeat: a result answers the oldest open call of its id."""
    opened: defaultdict[tuple[Requestor, str], deque[tuple[int, int]]] = defaultdict(deque)
    answers: dict[tuple[int, int], ToolAnswer] = {}
    for message in messages:
        for at, asked in enumerate(message.calls):
            opened[asked.requestor, asked.id].append((message.index, at))
        for result in message.results:
            waiting = opened[result.requestor, result.id]
            if not waiting:
                who = "agent" if result.requestor is Requestor.agent else "user"
                raise LogError(
                    f"the result {shown(result.id)} answers no open call of the {who}",
                    where=message.where,
                    hint="calls are paired with results by id and requestor; the log is damaged",
                )
            answers[waiting.popleft()] = result
    return answers


def _call(message: int, turn: int, asked: Asked, answer: ToolAnswer | None) -> ForeignCall:
    failure = classify(answer.text) if answer is not None and answer.failed else None
    return ForeignCall(
        requestor=asked.requestor,
        message=message,
        turn=turn if asked.requestor is Requestor.agent else None,
        tool=asked.tool,
        answered=answer is not None,
        failure=None if failure is None else failure.kind,
        recognised=failure is None or failure.recognised,
        role_confusion=False,
    )


def _turn(
    index: int, text: str, cut: bool, asked: Asked, answer: ToolAnswer | None, failure: FailureKind | None
) -> Turn:
    return Turn(
        index=index,
        generation=Generation(
            text=text,
            token_ids=(),
            stop=StopReason.max_tokens if cut else StopReason.end_of_generation,
            prompt_tokens=0,
            margins=(),
            logits_sha256="",
            control_text=False,
        ),
        # Calls come as structures through the server's interface; nothing was repaired by a reader of text.
        parse=ParseKind.strict,
        call=ToolCall(tool=asked.tool, arguments=asked.arguments),
        observation=Observation(
            text="" if answer is None else answer.text,
            ok=answer is not None and failure is None,
            channel=channel(failure),
            injected=False,
        ),
    )
