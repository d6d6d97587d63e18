"""Objects of the benchmark at work: one task's instances, and calls of their methods."""

from __future__ import annotations

import copy
import decimal
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import TracebackType
from typing import Any, cast

from qfr.canonical import Json, digest
from qfr.world.bfcl.graph import decode, encode
from qfr.world.bfcl.package import Clock, Entry, classes, stateless

_LARGEST = 10**18
# Larger whole numbers are handed on as floating-point numbers.
_MOST = {"precision": 1000, "decimal_places": 1000, "exponent": 1000}
# Arguments whose size would keep a machine busy for hours.
_ROOM = 2_000_000
# Characters of a task's objects at most; a model could double its files at each call.


@dataclass(frozen=True)
class Result:
    """What a method returned."""

    text: str
    # As the benchmark writes it down and compares it.
    record: Mapping[str, Json] | None
    # None when it is an error.
    error: str = ""


class _Caught:
    """Keeps what a method raises: the benchmark answers it with an error."""

    error: Exception | None = None

    def __enter__(self) -> _Caught:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


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

    def call(self, tool: str, arguments: Mapping[str, Json]) -> Result:
        """Call a method. Whatever it raises is an error, as in the benchmark."""
        for name, most in _MOST.items():
            value = arguments.get(name)
            if isinstance(value, Decimal) and abs(value) > most:
                return Result("", None, f"{name} must be between -{most} and {most}.")
        with _Caught() as caught:
            given = self._made(tool, {name: native(value) for name, value in arguments.items()})
            text = _text(given)
            record = _record(given)
        if caught.error is not None:
            return Result("", None, f"Error during execution: {caught.error}")
        told = given.get("error") if isinstance(given, dict) else None
        return Result(text, record) if told is None else Result(text, None, str(told))

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
    with _Caught() as caught:
        text = json.dumps(given)
    return str(given) if caught.error is not None else text


def _record(given: Any) -> Mapping[str, Json]:
    shown = json_of(given)
    return shown if isinstance(shown, dict) else {"result": shown}


def json_of(value: Any) -> Json:
    """A Python value as JSON; what JSON has no word for becomes its text."""
    if value is None or isinstance(value, bool | str):
        return cast("Json", value)
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float | Decimal):
        number = Decimal(repr(value)) if isinstance(value, float) else value
        return number if number.is_finite() else str(value)
    if isinstance(value, list | tuple):
        return [json_of(item) for item in value]
    if isinstance(value, dict):
        return {str(name): json_of(item) for name, item in value.items()}
    return str(value)


def native(value: Json) -> Any:
    """A JSON value as Python reads it."""
    if isinstance(value, Decimal):
        whole = value.as_tuple().exponent == 0 and abs(value) < _LARGEST
        return int(value) if whole else float(value)
    if isinstance(value, list):
        return [native(item) for item in value]
    if isinstance(value, dict):
        return {name: native(item) for name, item in value.items()}
    return value


def leaves(value: Json) -> Iterator[str | Decimal]:
    """All texts and numbers in a JSON value."""
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, str | Decimal):
        yield value
