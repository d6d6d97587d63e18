"""What a served model's answer holds beside its text: thoughts, calls, a refusal. Kept, and told.

Turns are read from the text alone, so behind a server that puts what the model wrote elsewhere every model
would fail. Such answers are no turns of the model: they are refused with what to set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qfr.canonical import canonical
from qfr.errors import EngineError
from qfr.records import Generation

_MOST_SHOWN = 120
_CALLS = ("tool_calls", "function_call")
_HINTS = {
    "tool_calls": "start the server without a parser of tool calls (vLLM: without --enable-auto-tool-choice; "
    "llama-server: without --jinja): calls are read out of the text here",
    "refusal": "the server or its provider refuses these texts: see its own log, or use another model",
    "reasoning": 'turn thinking off (engine.server.request=\'{"chat_template_kwargs": {"enable_thinking": '
    "false}}'), leave the thought in the text (llama-server: --reasoning-format none; vLLM: without "
    "--reasoning-parser), or give it room: executor.max_tokens=2048",
}


@dataclass(frozen=True)
class ServedCall:
    """A call as a server tells it."""

    id: str
    # "" = it gave none.
    name: str
    arguments: str
    # As sent, which need not be JSON.


def calls_of(message: Any) -> tuple[ServedCall, ...]:
    """The calls of a message; a server may send whatever it likes."""
    fields = message.to_dict(mode="python", exclude_unset=False, exclude_none=True, warnings=False)
    sent = fields.get("tool_calls")
    found = []
    for one in sent if isinstance(sent, list) else []:
        call = one if isinstance(one, dict) else {}
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments", "")
        text = arguments if isinstance(arguments, str) else canonical(arguments)
        parts = (call.get("id") or "", function.get("name") or "", text)
        found.append(ServedCall(*(well_formed(str(part)) for part in parts)))
    return tuple(found)


class ServedGeneration(Generation):
    """A turn of a served model. What came beside its text is no part of the log line (nor of `vars`)."""

    __slots__ = ("beside",)
    beside: Mapping[str, str]
    # Field of the server's answer → what it held, as text.


def served(generation: Generation, beside: Mapping[str, str]) -> ServedGeneration:
    """The turn with what came beside its text."""
    made = ServedGeneration(**vars(generation))
    object.__setattr__(made, "beside", beside)
    return made


def beside_of(generation: Generation) -> Mapping[str, str]:
    """What came beside a turn's text; empty for engines in process and for turns read back from a journal."""
    return generation.beside if isinstance(generation, ServedGeneration) else {}


def well_formed(text: str) -> str:
    """The text with U+FFFD in the place of halves of characters, which no request could carry back."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def beside_text(message: Any, finish: object) -> dict[str, str]:
    """The fields of a message that hold something, the role and the text left out."""
    fields = message.to_dict(mode="python", exclude_unset=False, exclude_none=True, warnings=False)
    found = {key: value for key, value in fields.items() if key not in ("role", "content") and value}
    if isinstance(finish, str) and finish not in ("stop", "length"):
        found["finish_reason"] = finish
    return {
        key: well_formed(value if isinstance(value, str) else canonical(value))
        for key, value in found.items()
    }


def check_calls(text: str, beside: Mapping[str, str], where: str | None) -> None:
    """Refuse an answer whose call the server has taken out of the text.

    Raises
    ------
    EngineError
        The text is empty, and a field for calls is not.
    """
    if not text.strip() and any(key in beside for key in _CALLS):
        raise elsewhere(beside, where)


def elsewhere(beside: Mapping[str, str], where: str | None) -> EngineError:
    """The error for answers without a text, naming the field that holds what the model wrote."""
    field = max((key for key in beside if key != "finish_reason"), key=lambda key: key in _CALLS, default="")
    shown = beside.get(field, beside.get("finish_reason", ""))
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]} …"
    kind = "tool_calls" if field in _CALLS else "refusal" if field in ("refusal", "") else "reasoning"
    return EngineError(
        f"the answer's text is empty; its field {field or 'finish_reason'} holds: {' '.join(shown.split())}",
        where=where,
        hint=_HINTS[kind],
    )
