"""Exact values: success rates over few sites are fractions with a common denominator.

A task with two fault sites has rate 0, 1/2 or 1, one with three sites 0, 1/3, 2/3 or 1 (Hu 2026, section 3;
the sites per task are derived from the published denominators). All of them are integers over 6, and so are
their differences, sums and resampled sums. Working on these integers removes rounding from every estimator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qfr.errors import TableError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntLike = Sequence[int] | IntArray

#: Numerators stay below this, so that products with a task count fit in 64 bits.
LARGEST_NUMERATOR = 2**40
#: From this many tasks on, site counts below the second are told apart faster by an array operation.
_MANY, _SMALL = 50, 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """One exact value per task: ``numerators / denominator``.

    Attributes
    ----------
    numerators : int64 array, shape (n_tasks,)
    denominator : int
        Positive; the same for all tasks. It need not be in lowest terms.
    """

    numerators: IntArray
    denominator: int

    def __len__(self) -> int:
        return int(self.numerators.size)

    @property
    def values(self) -> FloatArray:
        """Values as floats, shape (n_tasks,)."""
        return self.numerators / np.float64(self.denominator)

    @property
    def mean(self) -> float | None:
        """Mean value, rounded once; None without tasks."""
        n = self.numerators.size
        return int(self.numerators.sum()) / (self.denominator * n) if n else None

    def take(self, chosen: IntArray | BoolArray) -> Lattice:
        """Return the tasks that an index or mask array names, in its order."""
        return Lattice(self.numerators[chosen], self.denominator)

    def rebased(self, denominator: int) -> Lattice:
        """Return the same values over a multiple of the denominator."""
        factor, rest = divmod(denominator, self.denominator)
        if rest:
            raise ValueError(f"{denominator} is no multiple of the denominator {self.denominator}")
        return self if factor == 1 else _checked(self.numerators * factor, denominator)

    @classmethod
    def from_counts(cls, successes: IntLike, sites: IntLike) -> Lattice:
        """Build rates from successes over sites, one pair per task.

        Parameters
        ----------
        successes, sites : integer arrays, shape (n_tasks,)
            ``0 <= successes <= sites`` and ``sites >= 1``.

        Raises
        ------
        TableError
            If lengths differ or a count is out of range.
        """
        top, bottom = _integers(successes, "successes"), _integers(sites, "sites")
        if top.shape != bottom.shape:
            raise TableError(
                f"{top.size} success counts but {bottom.size} site counts", hint="give one pair per task"
            )
        if not top.size:
            return cls(top, 1)
        if int(bottom.min()) < 1:
            raise TableError("a task has no site", hint="leave out tasks without a delivered fault")
        if int(top.min()) < 0 or bool((top > bottom).any()):
            raise TableError("a task has more successes than sites, or a negative count")
        denominator = math.lcm(*_distinct(bottom))
        if denominator > LARGEST_NUMERATOR:
            raise TableError(
                f"the site counts have the common denominator {denominator}, too large for exact arithmetic",
                hint="use float rates with the Monte Carlo bootstrap",
            )
        return cls(top * (denominator // bottom), denominator)


def common(first: Lattice, second: Lattice) -> tuple[Lattice, Lattice]:
    """Return both over their least common denominator."""
    if first.denominator == second.denominator:
        return first, second
    denominator = math.lcm(first.denominator, second.denominator)
    return first.rebased(denominator), second.rebased(denominator)


def difference(first: Lattice, second: Lattice) -> Lattice:
    """Return ``first - second`` task by task.

    Raises
    ------
    TableError
        If the two do not have the same number of tasks.
    """
    if len(first) != len(second):
        raise TableError(
            f"{len(first)} tasks against {len(second)}", hint="pair the same tasks in the same order"
        )
    one, other = common(first, second)
    return Lattice(one.numerators - other.numerators, one.denominator)


def _checked(numerators: IntArray, denominator: int) -> Lattice:
    if denominator > LARGEST_NUMERATOR:
        raise TableError(f"the common denominator {denominator} is too large for exact arithmetic")
    return Lattice(numerators, denominator)


def _distinct(counts: IntArray) -> list[int]:
    if counts.size > _MANY and int(counts.max()) < _SMALL:
        found: list[int] = np.flatnonzero(np.bincount(counts)).tolist()
        return found
    return list(set(counts.tolist()))


def _integers(given: IntLike, what: str) -> IntArray:
    array = np.asarray(given)
    if array.ndim != 1:
        raise TableError(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TableError(f"{what} must be integers, not {array.dtype}")
    return array.astype(np.int64)
