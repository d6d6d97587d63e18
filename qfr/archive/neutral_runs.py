"""Lines without faults as one imported log: trials nest in tasks there, and what is in no rate has bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from qfr.archive.foreign_logs import Log, cell_of
from qfr.archive.neutral import episode_of, no_doubles
from qfr.canonical import digest
from qfr.foreign.common import (
    Excluded,
    FailureKind,
    ForeignCall,
    ForeignEpisode,
    ForeignInfo,
    ForeignRun,
    Release,
    Requestor,
    SourceKind,
)
from qfr.foreign.jsonl import Call, Line, Lines, Setting
from qfr.records import FaultKind


def split(file: Lines) -> tuple[Lines | None, tuple[Log, ...]]:
    """Part a file: the lines that become cells, and imported logs of the settings without faults.

    A setting is an imported log when no line of it has a fault, both policies say the same of each, and its
    tasks have several trials or its program is not qfr (it says what it cannot show).
    """
    by_setting: dict[Setting, list[Line]] = defaultdict(list)
    for line in file.lines:
        by_setting[replace(line.setting, settings=())].append(line)
    cells: list[Line] = []
    logs: list[Log] = []
    for members in by_setting.values():
        other = any(line.trial or line.unseen for line in members)
        plain = all(line.fault is FaultKind.none and line.tolerant == line.strict for line in members)
        if other and plain and len({line.setting for line in members}) == 1:
            logs.append(_log(members, file))
        else:
            cells += members
    if not cells:
        return None, tuple(logs)
    kept = {line.setting for line in cells}
    gone = tuple(one for one in file.left_out if one.setting in kept)
    return replace(file, lines=tuple(cells), left_out=gone), tuple(logs)


def _log(lines: list[Line], file: Lines) -> Log:
    no_doubles(lines)
    setting = lines[0].setting
    names = [setting.model, setting.preset, setting.prompt, setting.suite, setting.executor]
    sha256 = digest([file.sha256, names, list(setting.settings)])
    cell_id = f"f-{sha256[:16]}"
    episodes = tuple(_episode(line, cell_id) for line in sorted(lines, key=lambda one: (one.task, one.trial)))
    gone = tuple(
        Excluded(one.task, one.trial, one.reason, "") for one in file.left_out if one.setting == setting
    )
    trials = 1 + max((*(line.trial for line in lines), *(one.trial for one in gone)))
    info = ForeignInfo(
        kind=SourceKind.neutral,
        release=Release.not_applicable,
        release_reason="no release of tau2-bench",
        model=setting.model,
        agent=setting.executor,
        domain=setting.suite,
        trials=trials,
        max_steps=setting.step_budget or None,
        max_errors=setting.error_budget,
        source=file.source,
        sha256=sha256,
        unseen=tuple(sorted({each for line in lines for each in line.unseen})),
    )
    run = ForeignRun(info, episodes, gone, _warnings(lines, gone))
    log = Log(run, cell_of(run, setting.preset))
    return replace(log, facts=replace(log.facts, prompt=setting.prompt))


def _warnings(lines: Iterable[Line], gone: tuple[Excluded, ...]) -> tuple[str, ...]:
    said = ["the format states no plan: tasks and trials are taken to be those in the file"]
    lacking = sum(line.calls is None for line in lines)
    if lacking:
        said.append(f"{lacking} simulations list no calls: errors are not observable in them")
    if gone:
        are = "simulation is" if len(gone) == 1 else "simulations are"
        said.append(f"{len(gone)} {are} in no rate; results are bounded with them both ways")
    return tuple(said)


def _episode(line: Line, cell_id: str) -> ForeignEpisode:
    calls = tuple(_call(at, call) for at, call in enumerate(line.calls or ()))
    return ForeignEpisode(
        episode=episode_of(line, cell_id),
        success=line.tolerant,
        reward=float(line.tolerant),
        termination_reason=str(line.ending),
        simulation="",
        calls=calls,
        talk=(),
        agent_messages=len(calls),
        completion_tokens=line.completion_tokens,
    )


def _call(at: int, call: Call) -> ForeignCall:
    return ForeignCall(
        requestor=Requestor.agent,
        message=at,
        turn=at,
        tool=call.tool or "",
        answered=True,
        failure=None if call.channel is None else FailureKind(call.channel),
        recognised=True,
        role_confusion=False,
    )
