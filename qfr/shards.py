"""Shards: parts of a cell's tasks, played apart and joined again by the aggregation.

A shard is no treatment: `suite.shard` is not part of a cell's identity, and the episodes of the shards are,
line for line, those of the whole cell. Where a cell's id names what is kept apart (its run, journal, lock,
place in a plan), a shard adds its part: `c-0123456789abcdef@3of8`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from qfr.errors import ConfigError

T = TypeVar("T")

_WRITTEN = re.compile(r"(all|[0-9]{1,6})/([0-9]{1,6})")
_ON_AN_ID = re.compile(r"@([1-9][0-9]*)of([1-9][0-9]*)")


@dataclass(frozen=True)
class Shard:
    """One part of a cell's tasks."""

    index: int
    # From 1 on.
    count: int
    # Parts in all.

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def suffix(self) -> str:
        """What it adds to an id."""
        return f"@{self.index}of{self.count}"

    def of(self, tasks: Sequence[T]) -> tuple[T, ...]:
        """Its tasks: every n-th, so that each shard holds some of every family."""
        return tuple(tasks[self.index - 1 :: self.count])


def read_shards(text: str | None, n_tasks: int) -> tuple[Shard, ...]:
    """`3/8` is one shard, `all/8` all eight; None is the whole cell, without any.

    Raises
    ------
    ConfigError
        It is neither, or there are more shards than tasks.
    """
    if text is None:
        return ()
    found = _WRITTEN.fullmatch(text)
    hint = (
        "suite.shard=3/8 is the third of eight parts of the tasks, suite.shard=all/8 plays all of them apart"
    )
    if found is None:
        raise ConfigError(f"suite.shard={text!r} is not possible", hint=hint)
    count = int(found[2])
    indices = range(1, count + 1) if found[1] == "all" else range(int(found[1]), int(found[1]) + 1)
    if not 1 <= count <= n_tasks:
        raise ConfigError(
            f"suite.shard={text}: {n_tasks} tasks make 1 to {n_tasks} shards, not {count}", hint=hint
        )
    if not all(1 <= index <= count for index in indices):
        raise ConfigError(f"suite.shard={text}: shards are numbered from 1 to {count}", hint=hint)
    return tuple(Shard(index, count) for index in indices) if count > 1 else ()


def one_shard(text: str | None, n_tasks: int) -> Shard | None:
    """The shard that a job plays; None for the whole cell. Errors as `read_shards`."""
    shards = read_shards(text, n_tasks)
    return shards[0] if len(shards) == 1 else None


def with_shard(id_: str, shard: Shard | None) -> str:
    """The id of a cell's part."""
    return id_ if shard is None else id_ + shard.suffix


def whole_id(id_: str) -> str:
    """The id of the cell that a part belongs to; a whole cell's own id."""
    return id_.partition("@")[0]


def some_shards(ids: Sequence[str]) -> bool:
    """Whether these are shards of cells of which other shards are played elsewhere."""
    held: dict[tuple[str, int], set[int]] = {}
    for one in ids:
        if (shard := shard_of(one)) is not None:
            held.setdefault((whole_id(one), shard.count), set()).add(shard.index)
    return any(len(indices) < count for (_, count), indices in held.items())


def shard_of(id_: str) -> Shard | None:
    """Which part an id names; None for a whole cell."""
    found = _ON_AN_ID.search(id_)
    return None if found is None else Shard(int(found[1]), int(found[2]))
