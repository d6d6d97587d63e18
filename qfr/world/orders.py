"""The orders world: order, customer, discount, shipping fee. Builds suites and training worlds from a seed.

`orders20` is ten base and ten shipping tasks (Hu 2026, section 3); `orders40` adds ten two-order and ten
distractor tasks, and its first two families are those of `orders20`, task for task.

The generator has two versions. Version 1 deals id numbers out over the whole suite, and a suite of more than
321 tasks has five-digit ids. In version 2 a task follows from seed, family and index alone: suites
of one seed nest, and a suite of any size is drawn from one population. Each task has its own records, so two
tasks may use the same number; `_asked_first` says how far apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from qfr.canonical import Json, canonical, quote, read_json
from qfr.errors import ConfigError, MachineryError, did_you_mean
from qfr.faults import Where
from qfr.records import Tool
from qfr.world.base import (
    Found,
    Habits,
    Lookup,
    NotFound,
    Outcome,
    Site,
    State,
    Suite,
    Task,
    Transcript,
    Verdict,
    check_options,
    sites_where,
)
from qfr.world.demonstrate import next_turn
from qfr.world.tasks import FAMILIES, GRIDS, ORDERS_PER_TASK, Made, make_task, read_request
from qfr.world.tools import BY_NAME, KEY

VERSIONS = (1, 2)
NAME = "orders"

IntArray = npt.NDArray[np.int64]

_HINTS = {
    "get_order": "order ids look like O-1234 and stand in the task",
    "get_customer": "customer ids look like C-1234 and stand in an order",
}


class Ids(StrEnum):
    """Which id numbers a world may use. The three sets are disjoint, whatever the seeds."""

    evaluation = "evaluation"
    development = "development"
    training = "training"


# Residues modulo 7: scattered over all digit patterns, so that copying ids is the same skill in each set.
_RESIDUES = {Ids.evaluation: (0,), Ids.development: (1,), Ids.training: (2, 3, 4, 5, 6)}
# Version 2: the index in a task's id has this many digits, whatever the size of the suite.
_INDEX_DIGITS = 5


class OrdersWorld:
    """A suite of order tasks. Built by `build`."""

    def __init__(self, made: tuple[Made, ...], version: int) -> None:
        self._version = version
        self._made = {one.task.id: one for one in made}
        self._tasks = tuple(one.task for one in made)

    @property
    def name(self) -> str:
        return NAME

    @property
    def version(self) -> str:
        return str(self._version)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self._tasks

    def tool(self, name: str) -> Tool | None:
        return BY_NAME.get(name)

    @property
    def plain(self) -> bool:
        return True

    def start(self, task: Task) -> State:
        return None

    def call(
        self, task: Task, state: State, tool: str, arguments: Mapping[str, Json]
    ) -> tuple[State, Outcome]:
        key = KEY[tool]
        value = arguments.get(key)
        table = self._made[task.id].tables.get(tool, {})
        record = table.get(value) if isinstance(value, str) else None
        if record is not None:
            return state, Found(record)
        asked = quote(value) if isinstance(value, str) else "this value"
        hint = _HINTS.get(tool) or f"it is one of {', '.join(sorted(table))}"
        return state, NotFound(f"No record for {key} {asked}; {hint}.")

    def heard(self, task: Task, state: State) -> State:
        return state

    def check(self, task: Task, state: State, answer: Json) -> Verdict:
        return Verdict(answer == task.answer, "" if answer == task.answer else "another number")

    def next_turn(self, task: Task, transcript: Transcript, habits: Habits) -> str:
        return next_turn(task.text, transcript, habits)

    def solve(self, task: Task, lookup: Lookup) -> Decimal:
        request = read_request(task.text)
        total = Decimal(0)
        for order_id in request.orders:
            order = lookup("get_order", canonical({"order_id": order_id}))
            customer = lookup("get_customer", canonical({"customer_id": order["customer_id"]}))
            discount = lookup("get_discount", canonical({"tier": customer["tier"]}))
            total += _number(order["subtotal"]) * (100 - _number(discount["percent"])) / 100
            if request.shipping:
                fee = lookup("get_shipping_fee", canonical({"region": customer["region"]}))
                total += _number(fee["fee"])
        return total

    def displaced(self, task: Task, site: Site) -> Mapping[str, Json]:
        made = self._made[task.id]
        for value in made.decoys[site.tool]:
            record = made.tables[site.tool][value]
            if self.solve(task, self._lookup(task, site, record)) != task.answer:
                return record
        raise MachineryError(f"{task.id}: no record displaces {site.tool} {site.arguments}")

    def content(self, task: Task) -> str:
        return canonical(self._made[task.id].tables)

    def _lookup(self, task: Task, site: Site | None, record: Mapping[str, Json] | None) -> Lookup:
        """The task's lookups, with the site's record replaced."""

        def lookup(tool: str, arguments: str) -> Mapping[str, Json]:
            if site is not None and record is not None and (tool, arguments) == (site.tool, site.arguments):
                return record
            value = read_json(arguments)
            assert isinstance(value, dict)
            _, found = self.call(task, None, tool, value)
            assert isinstance(found, Found), found
            return found.record

        return lookup

    def verify(self) -> None:
        """Solve every task independently and find a displaced record for every IT site.

        Raises
        ------
        MachineryError
            The generator is wrong; no user input can cause it.
        """
        for task in self._tasks:
            solved = self.solve(task, self._lookup(task, None, None))
            if solved != task.answer:
                raise MachineryError(f"{task.id}: generator says {task.answer}, solver says {solved}")
            for site in sites_where(task, Where.used):
                self.displaced(task, site)


def of_suite(suite: Suite) -> OrdersWorld:
    """The world of a configured suite.

    Raises
    ------
    ConfigError
        As `build`; or options, which this world has none of.
    """
    check_options(suite, ())
    return build(suite.families, suite.seed, suite.grid, version=suite.version)


def build(
    families: Mapping[str, int], seed: int, grid: str, ids: Ids = Ids.evaluation, version: int = 1
) -> OrdersWorld:
    """Generate and verify a suite.

    Parameters
    ----------
    families : mapping of str to int
        Number of tasks per family (`FAMILIES`).
    seed : int
        Seed of all values and ids, at least 0.
    grid : str
        ``cents`` = realistic amounts; ``round`` = subtotals 40 to 400 in steps of 20, percents 5, 10, 20, 25,
        fees 5 and 10, all answers whole numbers.
    ids : Ids
        The set that id numbers are drawn from.
    version : int
        Of the generator, one of `VERSIONS`.

    Raises
    ------
    ConfigError
        Unknown family, grid or version, a negative seed or count, no task at all, too many tasks.
    """
    _check(families, seed, grid, version)
    counts = {family: families.get(family, 0) for family in FAMILIES}
    made = _dealt(counts, seed, grid, ids) if version == 1 else _drawn(counts, seed, grid, ids)
    world = OrdersWorld(tuple(sorted(made, key=lambda one: one.task.id)), version)
    world.verify()
    return world


def _dealt(counts: Mapping[str, int], seed: int, grid: str, ids: Ids) -> list[Made]:
    """Version 1: id numbers are dealt out over the whole suite, each used once."""
    numbers = _numbers(sum(counts.values()) * ORDERS_PER_TASK, ids, np.random.default_rng(seed))
    made: list[Made] = []
    for place, (family, count) in enumerate(counts.items()):
        width = max(2, len(str(count - 1)))
        for index in range(count):
            start = len(made) * ORDERS_PER_TASK
            rng = np.random.default_rng([seed, place, index])
            own = tuple(numbers[start : start + ORDERS_PER_TASK])
            made.append(make_task(family, f"{family}-{index:0{width}d}", grid, own, rng))
    return made


def _drawn(counts: Mapping[str, int], seed: int, grid: str, ids: Ids) -> list[Made]:
    """Version 2: every task is a function of (seed, family, index)."""
    pool = _pool(4, ids)
    made: list[Made] = []
    for place, (family, count) in enumerate(counts.items()):
        for index in range(count):
            if index % len(pool) == 0:
                asked = _asked_first(pool, (seed, place, index // len(pool)))
            made.append(_draw(family, (seed, place, index), grid, (pool, int(asked[index % len(pool)]))))
    return made


def _asked_first(pool: IntArray, stream: tuple[int, int, int]) -> IntArray:
    """The first order numbers that a block of as many tasks as the pool has numbers asks for, each once.

    So no two of a family's first 1,285 evaluation tasks have the same text; the next block begins anew.
    """
    return np.random.default_rng([2, *stream]).permutation(pool)


def _draw(family: str, place: tuple[int, int, int], grid: str, numbers: tuple[IntArray, int]) -> Made:
    """Draw one task of its own stream, with distinct numbers of the pool; it asks for the given one."""
    pool, asked = numbers
    rng = np.random.default_rng([3, *place])
    orders = [asked, *rng.choice(pool[pool != asked], ORDERS_PER_TASK - 1, replace=False).tolist()]
    customers = rng.choice(pool, ORDERS_PER_TASK, replace=False).tolist()
    own = tuple(zip(orders, customers, strict=True))
    return make_task(family, f"{family}-{place[2]:0{_INDEX_DIGITS}d}", grid, own, rng)


def _check(families: Mapping[str, int], seed: int, grid: str, version: int) -> None:
    if version not in VERSIONS:
        raise ConfigError(
            f"suite.version={version}: this qfr generates versions {' and '.join(map(str, VERSIONS))}",
            hint=f"suite.version={VERSIONS[-1]}, or the qfr of that version",
        )
    for family, count in families.items():
        if family not in FAMILIES:
            raise ConfigError(
                f"{family!r} is no family of the orders world" + did_you_mean(family, FAMILIES),
                where="suite.families",
                hint="one of " + ", ".join(FAMILIES),
            )
        if count < 0:
            raise ConfigError(f"{family}: {count} is negative", where="suite.families")
        if version > 1 and count > 10**_INDEX_DIGITS:
            raise ConfigError(
                f"{family}: {count:,} tasks, of which version {version} has {10**_INDEX_DIGITS:,} at most",
                where="suite.families",
                hint="fewer tasks, or a second suite with another suite.seed",
            )
    if grid not in GRIDS:
        raise ConfigError(
            f"{grid!r} is no grid" + did_you_mean(grid, GRIDS),
            where="suite.grid",
            hint="one of " + ", ".join(GRIDS),
        )
    if seed < 0:
        raise ConfigError(f"{seed} is negative", where="suite.seed", hint="use an integer of at least 0")
    if sum(families.values()) == 0:
        raise ConfigError("the suite has no tasks", where="suite.families", hint="give a family a count")


def _numbers(count: int, ids: Ids, rng: Generator) -> list[tuple[int, int]]:
    """Distinct order numbers paired with distinct customer numbers, four digits where that suffices."""
    digits = 4
    while len(pool := _pool(digits, ids)) < count:
        digits += 1
    orders = rng.permutation(pool)[:count].tolist()
    customers = rng.permutation(pool)[:count].tolist()
    return list(zip(orders, customers, strict=True))


def _pool(digits: int, ids: Ids) -> IntArray:
    """The numbers of so many digits that a set holds, in order."""
    pool = np.arange(10 ** (digits - 1), 10**digits)
    return pool[np.isin(pool % 7, _RESIDUES[ids])]


def _number(value: Json) -> Decimal:
    assert isinstance(value, Decimal)
    return value
