"""Objects of the benchmark at work: one task's instances, and calls of their methods."""

from __future__ import annotations

import copy
import decimal
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from qfr.canonical import Json, digest
from qfr.world.bfcl.package import Entry, classes, stateless
from qfr.world.graph import decode, encode
from qfr.world.plain import Caught, Clock, json_of, native

_MOST = {"precision": 1000, "decimal_places": 1000, "exponent": 1000}
# Arguments whose size would keep a machine busy for hours.
_ROOM = 2_000_000
# Characters of a task's objects at most; a model could double its files at each call.


@dataclass(frozen=True)
class Returned:
    """What a method returned."""

    text: str
    # As the benchmark writes it down and compares it.
    record: Mapping[str, Json] | None
    # None when it is an error.
    error: str = ""


@dataclass(frozen=True)
class Live:
    """The instances of a task, by class. Calls change them."""

    instances: Mapping[str, Any]

    @classmethod
    def start(cls, entry: Entry) -> Live:
        """As the task begins."""
        made = {name: classes()[name]() for name in entry.classes}
        for name, one in made.items():
            if name not in stateless():
                scenario = copy.deepcopy(entry.config.get(name, {}))
                one._load_scenario(scenario, long_context=entry.long_context)
        return cls(made)

    @classmethod
    def thaw(cls, frozen: Json) -> Live:
        """From what `freeze` returned."""
        return cls(decode(frozen, classes(), Clock))

    def freeze(self) -> Json:
        """All instances as JSON."""
        return encode(dict(self.instances))

    def public(self) -> dict[str, Json]:
        """Digests of what the benchmark's state check compares: attributes without a leading underscore."""
        return {
            name: digest(encode({key: value for key, value in vars(one).items() if not key.startswith("_")}))
            for name, one in self.instances.items()
        }

    def method(self, tool: str) -> Any:
        """The method behind a tool."""
        return next(getattr(one, tool) for one in self.instances.values() if hasattr(one, tool))

    def call(self, tool: str, arguments: Mapping[str, Json]) -> Returned:
        """Call a method. Whatever it raises is an error, as in the benchmark."""
        for name, most in _MOST.items():
            value = arguments.get(name)
            if isinstance(value, Decimal) and abs(value) > most:
                return Returned("", None, f"{name} must be between -{most} and {most}.")
        with Caught() as caught:
            given = self._made(tool, {name: native(value) for name, value in arguments.items()})
            text = _text(given)
            record = _record(given)
        if caught.error is not None:
            return Returned("", None, f"Error during execution: {caught.error}")
        told = given.get("error") if isinstance(given, dict) else None
        return Returned(text, record) if told is None else Returned(text, None, str(told))

    def _made(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The call itself; it may change the precision of the arithmetic, which is put back."""
        import mpmath  # the extra's own dependency; only this world has it

        digits = mpmath.mp.dps
        try:
            with decimal.localcontext(prec=28):
                return self.method(tool)(**arguments)
        finally:
            mpmath.mp.dps = digits

    def full(self, frozen: Json) -> bool:
        """Whether frozen instances are larger than a task's may be."""
        return len(json.dumps(frozen, default=str)) > _ROOM

    def arguments(self, tool: str, given: list[Any], named: Mapping[str, Any]) -> dict[str, Json]:
        """Arguments of a gold call by name."""
        bound = inspect.signature(self.method(tool)).bind(*given, **named)
        return {name: json_of(value) for name, value in bound.arguments.items()}


def _text(given: Any) -> str:
    """A result as the benchmark writes it down."""
    if isinstance(given, str):
        return given
    if type(given) is not dict:
        return str(given)
    with Caught() as caught:
        text = json.dumps(given)
    return str(given) if caught.error is not None else text


def _record(given: Any) -> Mapping[str, Json]:
    shown = json_of(given)
    return shown if isinstance(shown, dict) else {"result": shown}
