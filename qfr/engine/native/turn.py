"""A native turn, read: which calls it holds, and what the next message shows of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from qfr.engine.base import EngineInfo, PastCall
from qfr.engine.native.form import CallForm
from qfr.engine.native.reading import NativeTurn, read_calls
from qfr.errors import EngineError
from qfr.records import Kind, Tool
from qfr.thoughts import apart
from qfr.typed_json import build

# Types of parameters in JSON schemas.
_TYPES: dict[Kind, dict[str, object]] = {
    Kind.string: {"type": "string"},
    Kind.number: {"type": "number"},
    Kind.boolean: {"type": "boolean"},
    Kind.strings: {"type": "array", "items": {"type": "string"}},
    Kind.any: {},
}


@dataclass(frozen=True)
class NativeRead:
    """A turn as it was read."""

    turn: NativeTurn
    said: str
    # All its text but the thoughts.
    thought: str
    # Its thoughts; "" = none.

    @property
    def calls(self) -> tuple[PastCall, ...]:
        """The calls as history shows them."""
        return tuple(PastCall(call.name, call.arguments) for call in self.turn.calls)

    @property
    def message(self) -> bool:
        """Whether it is a plain message: words, no call, and nothing that could be meant as one."""
        turn = self.turn
        return not (turn.calls or turn.problem or turn.unclosed) and bool(turn.content)

    @property
    def unreadable(self) -> str:
        """Why no call can be made of it."""
        if self.turn.problem:
            return self.turn.problem
        return "the turn ends inside a thought" if self.turn.unclosed else "the turn is empty"


def schemas(tools: Sequence[Tool]) -> str:
    """The tools as JSON schemas: what a template or a server is given."""
    return json.dumps([_schema(tool) for tool in tools], ensure_ascii=False)


def read(text: str, info: EngineInfo, tools: Sequence[Tool]) -> NativeRead:
    """Read a turn by the form that the engine's template has. Never raises on the text.

    Raises
    ------
    EngineError
        The template has no form of calls.
    """
    if not info.call_form:
        raise EngineError(
            info.no_form or "this engine has no form of tool calls", hint="executor=tolerant plays without"
        )
    inside = bool(info.thinking)
    texts = {tool.name: frozenset(p.name for p in tool.parameters if p.kind is Kind.string) for tool in tools}
    turn = read_calls(text, _form(info.call_form), texts, inside=inside)
    spoken = apart(text, inside=inside)
    return NativeRead(turn, "".join(spoken.said).strip(), spoken.thought.strip())


@lru_cache(16)
def _form(text: str) -> CallForm:
    return build(CallForm, json.loads(text))


def _schema(tool: Tool) -> dict[str, object]:
    properties = {p.name: {**_TYPES[p.kind], "description": p.doc} for p in tool.parameters}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [p.name for p in tool.parameters if p.required],
    }
    function = {"name": tool.name, "description": tool.doc, "parameters": parameters}
    return {"type": "function", "function": function}
