"""Files of the neutral format into cells, and cells of a sweep into such a file.

An episode of another program becomes one of our records whose score says what its line says: where the line
holds the answer and the gold answer and they agree with its success, those; else a right or a wrong answer
(1 against 1, or 0), a report of failure where that is the success, and turns that are not strict where the
two policies differ. `qfr.scoring` is asked at the end, and a line that cannot be so is refused.
"""

from __future__ import annotations

import json
import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import qfr
from qfr.canonical import canonical, digest
from qfr.errors import LogError
from qfr.facts import CellFacts
from qfr.faults import FAULTS, Recovery
from qfr.foreign.jsonl import Call, Line, Lines, Setting, clean_setting, write_line
from qfr.identity import IDENTITY_VERSION
from qfr.journal import PLAIN_NUMBER
from qfr.records import (
    SCHEMA_VERSION,
    Ending,
    Episode,
    FaultKind,
    FaultTrace,
    Generation,
    Observation,
    ParseKind,
    Policy,
    StopReason,
    ToolCall,
    Turn,
)
from qfr.registration.source_code import code_sha256
from qfr.scope import NAMES, Scope
from qfr.scoring import SCORER_VERSION, score
from qfr.tracking.reading.search import is_complete, runs_of_cell
from qfr.tracking.reading.tables import readable
from qfr.tracking.store import Store, hold_lock
from qfr.tracking.writing.writer import FinishedCell, finish_cell, start_cell

#: Calls that a fault without end answers before a report of failure counts; as the scorer's default.
EP_MIN_CALLS = 2
#: Error budget of a file that states none: Jang's, and our own default; more where it holds more errors.
_BUDGET = 10
_ENGINE = "external"


@dataclass(frozen=True)
class NeutralCell:
    """One cell of a file."""

    facts: CellFacts
    episodes: tuple[Episode, ...]
    clean: tuple[Episode, ...]
    # The clean pass that fault episodes belong to; the same episodes for fault=none.


def cells_of(file: Lines) -> tuple[NeutralCell, ...]:
    """Sort the lines of a file into cells, clean passes first.

    Raises
    ------
    LogError
        An episode stands twice, a task has no clean episode, or a success contradicts its line.
    """
    found: dict[tuple[Setting, int, FaultKind], list[Line]] = defaultdict(list)
    for line in file.lines:
        setting = clean_setting(line.setting) if line.fault is FaultKind.none else line.setting
        found[setting, line.trial, line.fault].append(line)
    for lines in found.values():
        no_doubles(lines)
    errors = max((_errors(line) for line in file.lines), default=0)
    cells: list[NeutralCell] = []
    passes: dict[tuple[Setting, int], tuple[NeutralCell, list[Line]]] = {}
    for (setting, trial, fault), lines in found.items():
        if fault is FaultKind.none:
            cell = _cell(lines, _suite(setting, lines), errors, None)
            passes[setting, trial] = cell, lines
            cells.append(cell)
    for (setting, trial, fault), lines in found.items():
        if fault is not FaultKind.none:
            clean = passes.get((clean_setting(setting), trial))
            if clean is None:
                raise LogError(
                    f"an episode with the fault {fault} of a setting that has no clean pass",
                    where=lines[0].where,
                    hint="write its episodes without a fault too (fault: none), names and settings the same",
                )
            _check_tasks(lines, clean[1])
            cells.append(_cell(lines, _suite(setting, clean[1]), errors, clean[0]))
    return tuple(cells)


def lines_of(
    facts: CellFacts, scope: Scope, told: Iterable[str], episodes: Iterable[Episode], ep_min_calls: int
) -> Iterator[str]:
    """Write a cell's episodes as lines.

    Parameters
    ----------
    facts : CellFacts
    scope : Scope
        Of the cell.
    told : iterable of str
        Keys of the scope that tell it from the other cells of the file.
    episodes : iterable of Episode
    ep_min_calls : int
        As its scores were logged.
    """
    names = set(NAMES.values())
    settings = {key: scope[key] for key in told if key in scope and key not in names}
    head = {
        "model": facts.model, "preset": facts.quant, "prompt": facts.prompt, "suite": facts.suite,
        "executor": facts.executor, "settings": settings or None, "step_budget": facts.step_budget,
        "error_budget": facts.error_budget,
    }  # fmt: skip
    for episode in episodes:
        success = {
            str(policy): score(episode, policy, ep_min_calls=ep_min_calls).success for policy in Policy
        }
        yield write_line(
            head
            | {
                "task": episode.task,
                "family": episode.family,
                "trial": episode.trial,
                "fault": str(episode.fault),
                "success": success,
                "ending": str(episode.ending),
                "answer": None if episode.answer is None else json.loads(episode.answer),
                "gold": episode.gold,
                "calls": [_written(turn) for turn in episode.turns],
            }
            | _life(episode.trace)
        )


def _life(trace: FaultTrace | None) -> dict[str, object]:
    if trace is None:
        return {}
    return {
        "site": trace.site,
        "site_tool": trace.tool,
        "site_arguments": json.loads(trace.arguments),
        "fired": False if trace.fired is None else trace.fired,
        "witnessed": trace.witnessed,
        "retried": trace.retried,
        "recovered": trace.recovered,
        "dead_calls": trace.dead_calls,
    }


def _written(turn: Turn) -> dict[str, object]:
    call, seen = turn.call, turn.observation
    values: dict[str, object] = {
        "tool": None if call is None else call.tool,
        "arguments": None if call is None else json.loads(call.arguments),
        "ok": seen.ok,
        "channel": None if seen.channel is None else str(seen.channel),
        "injected": seen.injected or None,
        "parse": str(turn.parse),
        "text": turn.generation.text,
        "result": seen.text,
    }
    return {key: value for key, value in values.items() if value is not None}


def no_doubles(lines: Iterable[Line]) -> None:
    """Refuse two lines of one episode. Raises `LogError`."""
    seen: dict[tuple[str, int, int], str] = {}
    for line in lines:
        key = line.task, line.trial, -1 if line.happened is None else line.happened.site
        if key in seen:
            what = f"task {line.task!r}" + ("" if line.happened is None else f", site {line.happened.site},")
            raise LogError(
                f"the episode of {what} trial {line.trial} stands twice",
                where=line.where,
                hint=f"first in {seen[key]}; number repetitions by trial, other treatments by settings",
            )
        seen[key] = line.where


def _check_tasks(lines: Iterable[Line], clean: Iterable[Line]) -> None:
    known = {line.task for line in clean}
    for line in lines:
        if line.task not in known:
            raise LogError(
                f"task {line.task!r} has an episode with a fault but no clean one", where=line.where,
                hint="recovery is measured on tasks that the same preset solves without a fault: write "
                "its clean episode too",
            )  # fmt: skip


def _errors(line: Line) -> int:
    return sum(call.channel is not None for call in line.calls or ())


def _suite(setting: Setting, clean: Iterable[Line]) -> str:
    return digest([setting.suite, sorted((line.task, line.family) for line in clean)])


def _cell(lines: list[Line], suite_sha256: str, most_errors: int, clean: NeutralCell | None) -> NeutralCell:
    first = lines[0]
    setting, fault = first.setting if clean is not None else clean_setting(first.setting), str(first.fault)
    names = [setting.model, setting.preset, setting.prompt, fault, setting.suite, setting.executor]
    design = digest([*names, list(setting.settings), first.trial, suite_sha256])
    # The lines' own content: a file that was copied or sorted anew holds the same cell.
    content = sorted(canonical(_plain(line)) for line in lines)
    cell_id = "f-" + digest([design, content])[:16]
    gate = "certified"
    if clean is not None:
        solved = {episode.task for episode in clean.episodes if score(episode, Policy.tolerant).success}
        gate = "certified" if all(line.task in solved for line in lines) else "none"
    facts = CellFacts(
        model=setting.model, quant=setting.preset, prompt=setting.prompt, fault=fault, suite=setting.suite,
        executor=setting.executor, gate=gate, trial=first.trial, design_id=f"d-{design[:16]}",
        cell_id=cell_id,
        clean_id=cell_id if clean is None else clean.facts.cell_id, sweep="",
        identity_version=IDENTITY_VERSION, schema_version=SCHEMA_VERSION, scorer_version=SCORER_VERSION,
        prompt_sha256="", suite_sha256=suite_sha256, template_sha256="", executor_sha256="", fault_sha256="",
        step_budget=setting.step_budget, error_budget=_budget(setting, most_errors), model_sha256="",
        model_bytes=0, model_source="imported", model_revision="", imatrix="", tensor_types="",
        reference_agent=False, engine=_ENGINE, llama_commit="", llama_commit_source="", library_version="",
        library_sha256="", device="", offloaded_layers=0, n_ctx=0, n_batch=0, n_threads=0, n_threads_batch=0,
        streams=0, rewind=False, git_commit="", git_dirty=False, qfr_version=qfr.__version__,
        host=socket.gethostname(),
        config=canonical({"external": {"settings": dict(setting.settings), "blind": _blind(lines),
            "unseen": sorted({each for line in lines for each in line.unseen})}}),
        code_sha256=code_sha256(),
    )  # fmt: skip
    episodes = tuple(episode_of(line, cell_id) for line in lines)
    return NeutralCell(facts, episodes, episodes if clean is None else clean.episodes)


def _budget(setting: Setting, most_errors: int) -> int:
    return max(_BUDGET, most_errors) if setting.error_budget is None else setting.error_budget


def _blind(lines: Iterable[Line]) -> str:
    """Why calls cannot be seen; empty where they can."""
    lacking = sum(line.calls is None for line in lines)
    return f"not observable: {lacking} episodes of the file list no calls" if lacking else ""


def _plain(line: Line) -> Mapping[str, object]:
    values = {
        name: getattr(line, name) for name in ("task", "family", "tolerant", "strict", "answer", "gold")
    }
    calls = None if line.calls is None else [list(vars(call).values()) for call in line.calls]
    happened = None if line.happened is None else list(vars(line.happened).values())
    return values | {"calls": calls, "happened": happened, "ending": str(line.ending)}


def episode_of(line: Line, cell_id: str) -> Episode:
    """The record whose scores say what the line says. Raises `LogError` where none can."""
    turns = tuple(_turn(at, call) for at, call in enumerate(line.calls or ()))
    happened = line.happened
    given = Episode(
        schema=SCHEMA_VERSION,
        cell_id=cell_id,
        task=line.task,
        family=line.family,
        fault=line.fault,
        trial=line.trial,
        trace=None if happened is None else FaultTrace(**vars(happened)),
        turns=turns,
        ending=line.ending,
        answer=line.answer,
        gold=line.gold if line.gold is not None and PLAIN_NUMBER.fullmatch(line.gold) else "1",
        errors=_errors(line),
    )
    for episode in (given, *_restated(given, line)):
        if all(
            score(episode, policy, ep_min_calls=EP_MIN_CALLS).success is said
            for policy, said in ((Policy.tolerant, line.tolerant), (Policy.strict, line.strict))
        ):
            return episode
    raise LogError(
        f"success (tolerant {line.tolerant}, strict {line.strict}) contradicts the rest of the line",
        where=line.where,
        hint="a strict success has calls that are all strict (parse); a dead tool's success is a report",
    )


def _restated(given: Episode, line: Line) -> Iterator[Episode]:
    """The same episode with an answer that says what the line's success says."""
    fired = given.trace is not None and given.trace.fired is not None
    recovery = FAULTS[given.fault].recovery if fired else Recovery.task
    trace = given.trace
    if trace is not None and recovery is not Recovery.task:
        dead = (
            max(trace.dead_calls, EP_MIN_CALLS) if line.tolerant else min(trace.dead_calls, EP_MIN_CALLS - 1)
        )
        told = replace(given, trace=replace(trace, dead_calls=dead), answer=None, gold="1")
        ending = Ending.reported_failure if line.tolerant else given.ending
        turns = told.turns or (_turn(0, Call(None, "{}", True, None, False, ParseKind.strict, "", "")),)
        loose = (*turns[:-1], replace(turns[-1], parse=ParseKind.tolerant))
        yield replace(told, ending=ending)
        yield replace(told, ending=ending, turns=loose)
    if line.tolerant:
        right = replace(given, ending=Ending.submitted, gold="1")
        yield replace(right, answer="1")
        # A number in quotation marks: the tolerant policy takes it, the strict one does not.
        yield replace(right, answer='"1"')
    elif given.ending is Ending.submitted:
        yield replace(given, answer="0", gold="1")
    else:
        yield replace(given, answer=None, gold="1")


def _turn(index: int, call: Call) -> Turn:
    return Turn(
        index=index,
        generation=Generation(call.text, (), StopReason.end_of_generation, 0, (), "", False),
        parse=call.parse,
        call=None if call.tool is None else ToolCall(call.tool, call.arguments),
        observation=Observation(call.result, call.ok, call.channel, call.injected),
    )


@dataclass(frozen=True)
class Stored:
    """What became of a file's cells in the store."""

    made: int
    present: int
    # They were there already.


def log_cells(store: Store, cells: Iterable[NeutralCell]) -> Stored:
    """Log cells as complete runs; one that the store holds already is left alone."""
    made = present = 0
    for cell in cells:
        with hold_lock(store.root, f"import-{cell.facts.cell_id}"):
            if any(is_complete(run) for run in runs_of_cell(store, cell.facts.cell_id)):
                present += 1
                continue
            handle = start_cell(store, cell.facts, None)
            finish_cell(store, handle, _finished(cell))
            made += 1
    return Stored(made, present)


def _finished(cell: NeutralCell) -> FinishedCell:
    tasks = [readable(episode.task) for episode in cell.clean]
    return FinishedCell(
        facts=cell.facts,
        episodes=cell.episodes,
        clean=cell.clean,
        work=None,
        prompt=b"",
        suite=canonical({"name": cell.facts.suite, "engine": _ENGINE, "tasks": tasks}).encode("ascii"),
        config_yaml=cell.facts.config + "\n",
        timing=b"",
        ep_min_calls=EP_MIN_CALLS,
    )
