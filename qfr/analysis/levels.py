"""Order of the levels of an axis: which of two is A in "A minus B"."""

from __future__ import annotations

import math
import re
from enum import StrEnum

from qfr.config import PRESET_BITS, SERVED_BITS, ExecutorKind
from qfr.errors import TableError
from qfr.records import FaultKind


class Axis(StrEnum):
    """What a contrast varies while all other axes stay fixed."""

    quant = "quant"
    prompt = "prompt"
    model = "model"
    fault = "fault"
    executor = "executor"


#: What stands for a preset or prompt that a log of another program does not name; it sorts last.
NOT_STATED = "-"

_NUMBER = re.compile(r"\d+(?:\.\d+)?")

OrderKey = tuple[float, tuple[tuple[int, int, str], ...]]


def bits(level: str) -> float | None:
    """Return the nominal bits per weight that a level's name stands for, or None.

    A plain number is its own value, a preset of llama.cpp or of a server has its nominal bits, and another
    name such as ``INT4-AWQ`` counts by the first number in it. Bits order levels; nothing else is done with
    them.
    """
    if _NUMBER.fullmatch(level):
        return float(level)
    known = {**SERVED_BITS, **PRESET_BITS}
    if level.upper() in known:
        return known[level.upper()]
    found = _NUMBER.search(level)
    return float(found.group()) if found else None


def order_key(axis: str, level: str, given: tuple[str, ...] = ()) -> OrderKey:
    """Return the sort key of a level; in every pair the one that sorts first is A.

    Presets and numbers sort from high to low, so that a contrast reads "higher minus lower precision" (Hu
    2026, section 4). Prompts sort naturally, P0 first (appendix C prints P0 minus P1); faults and executors
    in the order of their definition; models by name; a switch that is on comes before one that is off.

    Parameters
    ----------
    axis : str
        An axis, or a single key of a cell's scope.
    given : tuple of str
        An explicit order, highest first; it wins over the rule.

    Raises
    ------
    TableError
        If the level of a preset axis has no place in the order.
    """
    if given:
        if level not in given:
            raise TableError(f"level {level!r} is missing from the given order {', '.join(given)}")
        return float(given.index(level)), ()
    if axis == "kv":
        first = bits(level.partition("/")[0])
        return 0.0 if first is None else -first, _natural(level)
    if axis == Axis.quant:
        if level == NOT_STATED:
            return math.inf, ()
        value = bits(level)
        if value is None:
            raise TableError(
                f"level {level!r} cannot be ordered: it is neither a number nor a preset of llama.cpp",
                hint='name the levels from high to low, such as "levels": ["bf16", "awq"]',
            )
        return -value, _natural(level)
    kinds: type[StrEnum] | None = {"fault": FaultKind, "executor": ExecutorKind}.get(axis)
    if axis in ("engine.type_k", "engine.type_v"):
        return -(bits(level) or 0.0), _natural(level)
    # A switch reads "with minus without".
    names = [str(kind) for kind in kinds] if kinds else ["true", "false"]
    return float(names.index(level)) if level in names else float(len(names)), _natural(level)


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key under which P2 sorts before P10."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part[:18]), part) if part.isdecimal() else (1, 0, part) for part in parts if part)
