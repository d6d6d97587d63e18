"""executor=repair: when the request appears, and what the report says of its harm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logged import Logged, logged_pair
from walks import RULES, small_world

from qfr.analysis.contrast.repair import Changed, repairs
from qfr.config import ExecutorKind
from qfr.engine.scripted import ScriptedEngine
from qfr.episode import MOST_REPAIRS, Episodes, Rules
from qfr.protocol import REPAIR, asks_repair
from qfr.records import Episode, FaultKind
from qfr.report.content.build import build_report
from qfr.report.export import write_report
from qfr.world.base import sites

WITH_IT = replace(RULES, executor=ExecutorKind.repair)
WORLD = small_world(1)


def played(rules: Rules, *turns: str, fault: FaultKind = FaultKind.none) -> Episode:
    left, task = list(turns), WORLD.tasks[0]
    site = sites(task, fault)[0] if fault is not FaultKind.none else None
    engine = ScriptedEngine(lambda *_: left.pop(0))
    return Episodes(engine, WORLD, "Be good.", rules).play("c", task, fault, site)


def call(tool: str, arguments: str = "{}") -> str:
    return json.dumps({"tool": tool, "arguments": json.loads(arguments)})


GOLD = [call(one.tool, one.arguments) for one in WORLD.tasks[0].gold_calls]
END = call("submit_answer", '{"answer": 1}')


def test_it_never_appears_without_a_failed_call() -> None:
    assert played(WITH_IT, *GOLD, END) == played(RULES, *GOLD, END)


def test_a_failed_call_is_followed_by_one_request_and_three_are_the_most() -> None:
    turns = (GOLD[0], *["nonsense", call("get_oder")] * 3, END)
    episode, plain = played(WITH_IT, *turns), played(RULES, *turns)
    asked = [asks_repair(turn.observation) for turn in episode.turns]
    assert asked == [False, True, True, True, False, False, False, False]
    assert sum(asked) == MOST_REPAIRS
    for turn, other in zip(episode.turns, plain.turns, strict=True):
        assert turn.observation.text.removesuffix(f"\n{REPAIR}") == other.observation.text
    assert (episode.errors, episode.ending) == (plain.errors, plain.ending)


def test_an_injected_failure_is_followed_by_it_too() -> None:
    place = next(at for at, one in enumerate(WORLD.tasks[0].gold_calls) if one.sources)
    episode = played(WITH_IT, *GOLD[: place + 1], *GOLD[place:], END, fault=FaultKind.et)
    asked = [turn.index for turn in episode.turns if asks_repair(turn.observation)]
    assert asked == [place]
    assert episode.trace is not None
    assert (episode.trace.fired, episode.trace.recovered) == (place, place + 1)


def under(executor: str, table: Sequence[int | None]) -> list[Logged]:
    """A clean pass and its fault cell under an executor."""
    clean, fault = logged_pair("Q8_0", table)
    ids = {name: f"{getattr(fault.facts, name)}{executor}" for name in ("cell_id", "clean_id")}
    own = {"cell_id": ids["clean_id"], "clean_id": ids["clean_id"]}
    first = replace(clean, facts=replace(clean.facts, executor=executor, **own))
    return [first, replace(fault, facts=replace(fault.facts, executor=executor, **ids), clean=first)]


def test_won_lost_and_disturbed_tasks_are_counted(tmp_path: Path) -> None:
    full = [2] * 10 + [3] * 10
    before: list[int | None] = [*full[:16], 1, 1, None, None]
    after: list[int | None] = [1, *full[1:15], None, 3, 2, 3, None]
    report = build_report([*under("tolerant", before), *under("repair", after)])
    found = [one for one in repairs(report.joined.tables, report.processes) if one.policy == "tolerant"]
    assert [(one.faulted, one.clean) for one in found] == [(Changed(17, 2, 1), Changed(20, 1, 1))]
    assert found[0].turns.without is not None
    page = write_report(report, tmp_path).page.read_text("utf-8")
    assert "Request to repair failed calls" in page
    assert "2 of 17" in page
    alone = build_report(under("tolerant", before))
    assert not repairs(alone.joined.tables, alone.processes)
