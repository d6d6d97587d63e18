"""Values of other people's Python code as JSON values and back, their exceptions, and their clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType, TracebackType
from typing import Any, Self, cast

from qfr.canonical import Json

_LARGEST = 10**18
# Larger whole numbers are handed on as floating-point numbers.


class Caught:
    """Keeps what a method raises: the benchmark answers it with an error."""

    error: Exception | None = None

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class TheVery:
    """A state as a key of what is kept: the very same one, not an equal one."""

    def __init__(self, state: Mapping[str, Json]) -> None:
        self.state = state

    def __hash__(self) -> int:
        return id(self.state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TheVery) and other.state is self.state


class Clock(datetime):
    """A clock that stands still, in UTC."""

    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return cls(2024, 9, 1, 10, 30, tzinfo=tz)

    @classmethod
    def today(cls) -> Self:
        return cls.now()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Self:
        return super().fromtimestamp(timestamp, UTC).replace(tzinfo=tz)


def stand_still(module: ModuleType) -> None:
    """Give a module, which imports `datetime` or from it, the clock that stands still."""
    given = getattr(module, "datetime", None)
    if isinstance(given, ModuleType):
        clock = ModuleType("datetime")
        clock.__dict__.update(vars(given), datetime=Clock)
        vars(module)["datetime"] = clock
    elif given is not None:
        vars(module)["datetime"] = Clock


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


def sources(
    arguments: Mapping[str, Json], records: Sequence[Mapping[str, Json]], said: str
) -> tuple[int, ...]:
    """Per value of the arguments that the user has not said, the last earlier call that returned it."""
    found = set()
    for value in leaves(dict(arguments)):
        places = [at for at, record in enumerate(records) if value in set(leaves(dict(record)))]
        if str(value) not in said:
            found.update(places[-1:])
    return tuple(sorted(found))


def another(value: Json, used: set[str | Decimal]) -> Json:
    """A value in which those that are used are replaced."""
    if isinstance(value, list):
        return [another(item, used) for item in value]
    if isinstance(value, dict):
        return {name: another(item, used) for name, item in value.items()}
    if isinstance(value, str) and value in used:
        digits = str.maketrans("0123456789", "1234567890")
        changed = value.translate(digits)
        return changed if changed != value else f"other_{value}"
    return value + 1 if isinstance(value, Decimal) and value in used else value
