"""The orders world: published site counts, exact gold answers, disjoint ids, displaced records."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr.canonical import Json, canonical, read_json
from qfr.errors import ConfigError
from qfr.faults import FAULTS, Where
from qfr.records import FaultKind, Role
from qfr.world import orders, tools
from qfr.world.base import Found, NotFound, Site, Task, sites, suite_sha256, task_tools

SEED = 2026
ORDERS20 = orders.build({"base": 10, "shipping": 10}, SEED, "cents")
ORDERS20_REF = orders.build({"base": 10, "shipping": 10}, SEED, "round")
ORDERS40 = orders.build({"base": 10, "shipping": 10, "two_order": 10, "distractor": 10}, SEED, "cents")
PINNED = [
    "722c1f138bbb5822bdaf169a4400625e9ec8dcc3c1606858b72cea654fe3977c",
    "88599fa9a2460417bc8324fac7be9ea0de1a8865db5a13fbcdc457da7a8b7271",
    "054944770db87fce7f8cec7f3582245ac36ca3f139a8a2e52dd7e985efb00fcc",
]
PINNED_2 = [
    "c17d5de12a32921e9176148d9ad6d9fbc185cb5576ae39b3004f8440153b2e7e",
    "92d9bc5e200cb84e4ec2b619707cb2b01256d834132dabaf51b535dd7bf8296f",
]


def arguments_of(text: str) -> dict[str, Json]:
    value = read_json(text)
    assert isinstance(value, dict)
    return value


def record_of(world: orders.OrdersWorld, task: Task, tool: str, text: str) -> dict[str, Json]:
    _, found = world.call(task, None, tool, arguments_of(text))
    assert isinstance(found, Found)
    return dict(found.record)


def test_published_numbers_of_sites() -> None:
    total = Counter({kind: sum(len(sites(task, kind)) for task in ORDERS20.tasks) for kind in FaultKind})
    published = {FaultKind.et: 50, FaultKind.ep: 50, FaultKind.it: 40}
    assert {kind: total[kind] for kind in published} == published
    rules = {Where.nowhere: 0, Where.dependent: 50, Where.used: 40, Where.writes: 0}
    assert total == {kind: rules[fault.where] for kind, fault in FAULTS.items()}
    each = {
        task.family: tuple(len(sites(task, kind)) for kind in (FaultKind.et, FaultKind.ep, FaultKind.it))
        for task in ORDERS40.tasks
    }
    assert each == {"base": (2, 2, 2), "shipping": (3, 3, 2), "two_order": (4, 4, 4), "distractor": (2, 2, 2)}


def test_sites_are_gold_calls_and_count_from_zero() -> None:
    for task in ORDERS40.tasks:
        for kind in FaultKind:
            found = sites(task, kind)
            assert [site.index for site in found] == list(range(len(found)))
            for site in found:
                gold = task.gold_calls[site.call]
                assert (gold.tool, gold.arguments) == (site.tool, site.arguments)
        assert task.gold_calls[0].sources == ()


def test_suites_are_pinned() -> None:
    """A change of the generator, of numpy's streams or of a text is a new version of the suite."""
    assert [suite_sha256(world) for world in (ORDERS20, ORDERS20_REF, ORDERS40)] == PINNED
    assert suite_sha256(orders.build({"base": 10, "shipping": 10}, SEED + 1, "cents")) not in PINNED
    families = {"base": 10, "shipping": 10, "two_order": 10, "distractor": 10}
    second = [orders.build(families, SEED, grid, version=2) for grid in ("cents", "round")]
    assert [suite_sha256(world) for world in second] == PINNED_2


def test_building_again_gives_the_same_and_orders20_is_a_part_of_orders40() -> None:
    again = orders.build({"base": 10, "shipping": 10}, SEED, "cents")
    assert again.tasks == ORDERS20.tasks
    assert suite_sha256(again) == suite_sha256(ORDERS20)
    part = tuple(task for task in ORDERS40.tasks if task.family in ("base", "shipping"))
    assert part == ORDERS20.tasks
    assert all(ORDERS40.content(task) == ORDERS20.content(task) for task in part)


def test_suite_order_is_the_order_of_ids() -> None:
    for world in (ORDERS20, ORDERS40, orders.build({"base": 120}, 1, "round")):
        ids = [task.id for task in world.tasks]
        assert ids == sorted(set(ids))


def test_answers_by_hand() -> None:
    """Recompute from the records along the gold calls, in fractions."""
    for task in ORDERS40.tasks + ORDERS20_REF.tasks:
        world = ORDERS40 if task in ORDERS40.tasks else ORDERS20_REF
        records = [record_of(world, task, call.tool, call.arguments) for call in task.gold_calls]
        size = 4 if task.family == "shipping" else 3
        total = Fraction(0)
        for start in range(0, len(records), size):
            order, customer, discount, *fees = records[start : start + size]
            assert order["customer_id"] == customer["customer_id"]
            assert customer["tier"] == discount["tier"]
            total += Fraction(str(order["subtotal"])) * (1 - Fraction(str(discount["percent"])) / 100)
            total += sum(Fraction(str(fee["fee"])) for fee in fees)
        assert total == Fraction(task.answer)
        assert total * 100 == int(total * 100)
        assert format(task.answer, "f") == f"{task.answer:.2f}"


def test_round_grid() -> None:
    for task in ORDERS20_REF.tasks:
        assert task.answer == int(task.answer)
        subtotal, percent = (
            record_of(ORDERS20_REF, task, task.gold_calls[i].tool, task.gold_calls[i].arguments)[key]
            for i, key in ((0, "subtotal"), (2, "percent"))
        )
        assert subtotal in range(40, 401, 20)
        assert percent in (5, 10, 20, 25)
        if task.family == "shipping":
            gold = task.gold_calls[3]
            assert record_of(ORDERS20_REF, task, gold.tool, gold.arguments)["fee"] in (5, 10)


def test_two_order_tasks_need_two_customers_and_two_discounts() -> None:
    for task in ORDERS40.tasks:
        if task.family == "two_order":
            assert len({(call.tool, call.arguments) for call in task.gold_calls}) == 6


def test_distractors_exist_only_where_they_are_shown() -> None:
    names = {tool.name for tool in tools.DISTRACTORS}
    for task in ORDERS40.tasks:
        extra = set(task.tools) & names
        assert len(extra) == (3 if task.family == "distractor" else 0)
        assert {name for name in names if f"- {tools.BY_NAME[name].signature}: " in task.text} == extra
        assert [tool.name for tool in task_tools(ORDERS40, task)] == list(task.tools)
        assert task.tools[:6] == tuple(tool.name for tool in tools.COMMON)
        for name in extra:
            customer = record_of(ORDERS40, task, task.gold_calls[1].tool, task.gold_calls[1].arguments)
            _, found = ORDERS40.call(task, None, name, {tools.KEY[name]: customer[tools.KEY[name]]})
            assert isinstance(found, Found)


def test_texts_say_what_is_asked() -> None:
    for task in ORDERS40.tasks:
        assert ("add the shipping fee" in task.text) == (task.family == "shipping")
        assert ("no discount on the fee" in task.text) == (task.family == "shipping")
        assert ("There is no shipping fee." in task.text) == (task.family != "shipping")
        ids = [str(arguments_of(c.arguments)["order_id"]) for c in task.gold_calls if c.tool == "get_order"]
        assert re.findall(r"O-\d+", task.text) == ids


def all_ids(world: orders.OrdersWorld) -> list[str]:
    return [value for task in world.tasks for value in set(re.findall(r'"([OC]-\d+)"', world.content(task)))]


def test_two_thousand_tasks_are_as_easy_as_twenty() -> None:
    families = {"base": 600, "shipping": 600, "two_order": 400, "distractor": 400}
    world = orders.build(families, 7, "cents")
    assert Counter(task.family for task in world.tasks) == families
    ids = all_ids(world)
    assert len(ids) == len(set(ids)) == 2_000 * 8
    assert len({task.text for task in world.tasks}) == 2_000
    assert len({task.answer for task in world.tasks}) > 1_500


@pytest.mark.parametrize("grid", ["cents", "round"])
def test_suites_of_version_2_nest(grid: str) -> None:
    large = orders.build({"base": 1_400, "distractor": 30, "shipping": 1_000}, SEED, grid, version=2)
    for families in ({"base": 10}, {"shipping": 700, "base": 1_300}, {"distractor": 30, "base": 1}):
        small = orders.build(families, SEED, grid, version=2)
        for family, count in families.items():
            part = [task for task in small.tasks if task.family == family]
            assert part == [task for task in large.tasks if task.family == family][:count]
            assert all(small.content(task) == large.content(task) for task in part)
    other = orders.build({"base": 10}, SEED + 1, grid, version=2)
    assert other.tasks[0].text != large.tasks[0].text


def test_any_size_of_version_2_has_ids_of_one_form() -> None:
    world = orders.build({"base": 10_000, "shipping": 10_000}, 7, "round", version=2)
    assert len(world.tasks) == 20_000
    assert {len(value) for value in all_ids(world)} == {6}
    assert {len(task.id.split("-")[1]) for task in world.tasks} == {5}
    texts = [task.text for task in world.tasks if task.family == "base"]
    assert len(set(texts[:1285])) == 1285, "no order is asked for twice within a block"
    assert len({world.content(task) for task in world.tasks}) == 20_000


def test_id_sets_are_disjoint_whatever_the_seeds() -> None:
    found: dict[orders.Ids, set[str]] = {
        ids: {
            one
            for seed in range(12)
            for version in orders.VERSIONS
            for one in all_ids(orders.build({"base": 40}, seed, "round", ids, version))
        }
        for ids in orders.Ids
    }
    evaluation, development, training = (found[ids] for ids in orders.Ids)
    assert not evaluation & development
    assert not evaluation & training
    assert not development & training
    assert len(training) > 2_000
    digits = {ids: {(place, one[place]) for one in found[ids] for place in range(2, 6)} for ids in orders.Ids}
    assert digits[orders.Ids.training] == digits[orders.Ids.evaluation], (
        "the sets hold the same digits at each place"
    )


@pytest.mark.parametrize("world", [ORDERS40, ORDERS20_REF], ids=["cents", "round"])
def test_displaced_records_change_the_answer(world: orders.OrdersWorld) -> None:
    for task in world.tasks:
        for site in sites(task, FaultKind.it):
            true = record_of(world, task, site.tool, site.arguments)
            record = dict(world.displaced(task, site))
            key = tools.KEY[site.tool]
            assert record.keys() == true.keys()
            assert record[key] != true[key]
            assert canonical({key: record[key]}) not in {call.arguments for call in task.gold_calls}

            def followed(tool: str, text: str, task: Task = task, site: Site = site) -> dict[str, Json]:
                if (tool, text) == (site.tool, site.arguments):
                    return dict(world.displaced(task, site))
                return record_of(world, task, tool, text)

            assert world.solve(task, followed) != task.answer


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([tool.name for tool in tools.COMMON if tool.role is Role.lookup]),
    st.recursive(st.none() | st.booleans() | st.text() | st.decimals(), lambda x: st.lists(x), max_leaves=4),
)
def test_no_value_makes_the_world_raise(tool: str, value: Json) -> None:
    task = ORDERS40.tasks[0]
    _, found = ORDERS40.call(task, None, tool, {tools.KEY[tool]: value})
    assert isinstance(found, Found) == (isinstance(value, str) and canonical(value) in ORDERS40.content(task))
    if isinstance(found, NotFound):
        assert len(found.message) < 200


def test_unknown_ids_get_a_helpful_error() -> None:
    task, other = ORDERS20.tasks[0], ORDERS20.tasks[1]
    foreign = arguments_of(other.gold_calls[0].arguments)
    _, found = ORDERS20.call(task, None, "get_order", foreign)
    assert isinstance(found, NotFound), "a task sees its own records alone"
    assert str(foreign["order_id"]) in found.message
    assert "O-1234" in found.message
    _, tier = ORDERS20.call(task, None, "get_discount", {"tier": "diamond"})
    assert isinstance(tier, NotFound)
    assert "bronze, gold, platinum, silver" in tier.message


@pytest.mark.parametrize(
    ("families", "seed", "grid", "message"),
    [
        ({"bases": 1}, 1, "cents", "did you mean 'base'"),
        ({"base": 1}, 1, "cent", "did you mean 'cents'"),
        ({"base": -1}, 1, "cents", "negative"),
        ({"base": 1}, -1, "cents", "negative"),
        ({"base": 0}, 1, "cents", "no tasks"),
        ({}, 1, "cents", "no tasks"),
    ],
)
def test_bad_suites_are_refused(families: dict[str, int], seed: int, grid: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        orders.build(families, seed, grid)


@pytest.mark.parametrize(
    ("version", "families", "message"),
    [
        (0, {"base": 1}, "versions 1 and 2"),
        (3, {"base": 1}, "versions 1 and 2"),
        (2, {"base": 100_001}, "at most"),
    ],
)
def test_versions_that_do_not_exist_and_suites_too_large_are_refused(
    version: int, families: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        orders.build(families, 1, "round", version=version)
