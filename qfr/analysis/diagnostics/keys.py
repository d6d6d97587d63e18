"""Joining tables by episode: checked columns, and one integer per episode key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from qfr.errors import TableError
from qfr.stats.lattice import BoolArray, IntArray

#: What names an episode within the episodes of one agent.
KEYS = ("task", "fault", "site", "trial")


def require(frame: pd.DataFrame, names: Sequence[str], where: str) -> None:
    """Raise `TableError` unless the table has all the named columns."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"no column {', '.join(missing)}",
            where=where,
            hint="hand in the tables as the tracking store returns them, scores included",
        )


def integers(column: pd.Series[int], missing: int = -1) -> IntArray:
    """Return an integer column that may hold nulls, with `missing` in their place."""
    filled: IntArray = np.asarray(column.astype("Int64").fillna(missing), dtype=np.int64)
    return filled


def flags(column: pd.Series[bool]) -> BoolArray:
    """Return a column of booleans."""
    return column.to_numpy(dtype=np.bool_)


def codes(*frames: pd.DataFrame) -> tuple[IntArray, ...]:
    """Return one integer per row of each table, equal exactly where `KEYS` are equal, across tables too."""
    sizes = [len(frame) for frame in frames]
    combined = np.zeros(sum(sizes), dtype=np.int64)
    for key in KEYS:
        if key in ("site", "trial"):
            values = np.concatenate([integers(frame[key]) for frame in frames])
        else:
            values = np.concatenate([frame[key].to_numpy(dtype=object) for frame in frames])
        code, distinct = pd.factorize(values)
        combined = combined * (len(distinct) + 1) + code
    return tuple(np.split(combined, np.cumsum(sizes)[:-1]))


def find(wanted: IntArray, among: IntArray) -> IntArray:
    """Return the place of each wanted code in `among` (distinct codes), -1 where it is missing."""
    if not among.size:
        return np.full(wanted.shape, -1, dtype=np.int64)
    order = np.argsort(among, kind="stable")
    at = np.minimum(np.searchsorted(among[order], wanted), among.size - 1)
    found = order[at]
    return np.where(among[found] == wanted, found, -1)


def doubled(code: IntArray) -> int | None:
    """Return the row of the first code that an earlier row has already, None when all are distinct."""
    again = pd.Series(code).duplicated().to_numpy(dtype=np.bool_)
    return int(np.argmax(again)) if again.any() else None
