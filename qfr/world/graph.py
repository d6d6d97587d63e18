"""Objects of other people's classes as JSON and back: a state is a value, so it holds no live object.

Containers and objects are numbered in the order in which they are met, so shared ones stay shared and a
directory may know its parent. Dicts keep their order, which tools show.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, cast

from qfr.canonical import Json
from qfr.errors import MachineryError


def encode(value: object) -> Json:
    """A value, with all that hangs on it, as JSON."""
    return _Encoder().encode(value)


def decode(text: Json, classes: Mapping[str, type], clock: type[datetime]) -> Any:
    """What `encode` was given, made anew.

    Parameters
    ----------
    text
        What `encode` returned.
    classes
        Classes of objects by name.
    clock
        Class of points in time.
    """
    return _Decoder(classes, clock).decode(text)


class _Encoder:
    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._kept: list[object] = []
        # Numbers stand for objects as long as these live.

    def encode(self, value: object) -> Json:
        if isinstance(value, Enum):
            return {"e": [type(value).__name__, value.name]}
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return Decimal(value)
        if isinstance(value, float):
            return {"f": repr(value)}
        if isinstance(value, Decimal):
            return {"n": str(value)}
        if isinstance(value, datetime):
            return {"t": value.isoformat()}
        if isinstance(value, date):
            return {"y": value.isoformat()}
        if id(value) in self._met:
            return {"r": Decimal(self._met[id(value)])}
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        return self._container(value)

    def _container(self, value: object) -> Json:
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        if isinstance(value, tuple):
            return {"u": [self.encode(item) for item in value]}
        if isinstance(value, set):
            return {"s": [self.encode(item) for item in sorted(value)]}
        if isinstance(value, dict):
            return {"d": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        if isinstance(value, random.Random):
            version, numbers, gauss = value.getstate()
            return {"x": [Decimal(version), "".join(f"{one:08x}" for one in numbers), repr(gauss)]}
        if hasattr(value, "__pydantic_fields_set__"):
            parts: dict[str, Any] = cast("Any", value).__getstate__()
            listed: list[Json] = [[name, self.encode(parts[name])] for name in sorted(parts)]
            return {"o": type(value).__name__, "p": listed}
        if not hasattr(value, "__dict__"):
            raise MachineryError(f"a state of the benchmark holds {type(value).__name__}, which is no JSON")
        return {
            "o": type(value).__name__,
            "a": [[name, self.encode(item)] for name, item in vars(value).items()],
        }


class _Decoder:
    def __init__(self, classes: Mapping[str, type], clock: type[datetime]) -> None:
        self._classes, self._clock = classes, clock
        self._made: list[Any] = []

    def decode(self, text: Any) -> Any:
        if isinstance(text, Decimal):
            return int(text)
        if isinstance(text, list):
            listed = self._keep([])
            listed.extend(self.decode(item) for item in text)
            return listed
        if not isinstance(text, dict):
            return text
        if "f" in text:
            return float(text["f"])
        if "n" in text:
            return Decimal(text["n"])
        if "t" in text:
            return self._clock.fromisoformat(text["t"])
        if "y" in text:
            return date.fromisoformat(text["y"])
        if "e" in text:
            return getattr(self._classes[text["e"][0]], text["e"][1])
        return self._made[int(text["r"])] if "r" in text else self._container(text)

    def _container(self, text: dict[str, Any]) -> Any:
        if "d" in text:
            made: dict[Any, Any] = self._keep({})
            for key, item in text["d"]:
                made[self.decode(key)] = self.decode(item)
            return made
        if "s" in text:
            return self._keep({self.decode(item) for item in text["s"]})
        if "x" in text:
            version, digits, gauss = text["x"]
            numbers = tuple(int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
            generator = self._keep(random.Random())
            generator.setstate((int(version), numbers, None if gauss == "None" else float(gauss)))
            return generator
        if "u" in text:
            # Nothing inside a tuple can hold the tuple, so its number may be given first.
            place = len(self._made)
            self._made.append(None)
            self._made[place] = tuple(self.decode(item) for item in text["u"])
            return self._made[place]
        kind = self._classes[text["o"]]
        thing = self._keep(object.__new__(kind))
        if "p" in text:
            thing.__setstate__({name: self.decode(item) for name, item in text["p"]})
            return thing
        for name, item in text["a"]:
            setattr(thing, name, self.decode(item))
        return thing

    def _keep(self, value: Any) -> Any:
        self._made.append(value)
        return value
