"""The cells of one walk from their journals to complete MLflow runs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from qfr.cell import Key, Track, certified, key_of, most_episodes, walk
from qfr.config import CellConfig
from qfr.engine.base import Engine
from qfr.episode import Episodes, Rules
from qfr.errors import LogError, MachineryError, TrackingError
from qfr.facts import CellFacts, Work
from qfr.front.engines import peak_memory
from qfr.front.outcomes import CellOutcome, Status
from qfr.front.progress import WalkProgress
from qfr.front.show import console
from qfr.journal import Journal
from qfr.prompts import Prompt
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.tracking.cells import read_finished
from qfr.tracking.search import FinishedRef, find_finished
from qfr.tracking.store import Store
from qfr.tracking.sweep import find_sweep
from qfr.tracking.writer import FinishedCell, RunHandle, fail_cell, finish_cell, kill_cell, start_cell
from qfr.world.base import World, sites, suite_json


@dataclass(frozen=True)
class PlannedRun:
    """A cell of the walk."""

    config: CellConfig
    facts: CellFacts


@dataclass
class _Open:
    """A cell that is being filled."""

    run: PlannedRun
    journal: Journal
    done: dict[Key, Episode]
    handle: RunHandle


class Walking:
    """Plays what is missing of a walk's cells and logs them. The caller holds the walk's lock.

    Parameters
    ----------
    store : Store
    world : World
    prompt : Prompt
    runs : sequence of PlannedRun
        The clean cell first, then the fault cells.
    """

    def __init__(self, store: Store, world: World, prompt: Prompt, runs: Sequence[PlannedRun]) -> None:
        self._store = store
        self._world = world
        self._prompt = prompt
        self._runs = tuple(runs)
        self._out = console(stderr=True)
        self._started = time.perf_counter()

    def run(self, engine: Engine) -> tuple[CellOutcome, ...]:
        """Play, log, and say what became of each cell.

        Raises
        ------
        TrackingError
            The store does not answer before anything is played.
        KeyboardInterrupt
            Interrupted: the runs are KILLED, the journals hold what was played.
        """
        # A registered sweep runs anew: only runs that carry the same registration count as finished.
        under = self._runs[0].facts.registration or None
        ids = [one.facts.cell_id for one in self._runs]
        finished = find_finished(self._store, ids, registration=under)
        open_runs = [one for one in self._runs if one.facts.cell_id not in finished]
        outcomes = {
            one.facts.cell_id: self._outcome(one, Status.skipped, "", finished[one.facts.cell_id].run_id)
            for one in self._runs
            if one.facts.cell_id in finished
        }
        for one in outcomes.values():
            self._say(f"{one.name}: finished before (run {one.run_id}), skipped")
        if open_runs:
            clean = self._finished_clean(finished)
            cells = [self._open(one) for one in open_runs]
            try:
                self._play(engine, cells, clean)
                played: MachineryError | None = None
            except MachineryError as error:
                played = error
            except KeyboardInterrupt:
                self._mark(cells, lambda cell: kill_cell(self._store, cell.handle))
                raise
            for outcome in self._fail(cells, played) if played else self._finish(engine, cells, clean):
                outcomes[outcome.cell_id] = outcome
        return tuple(outcomes[one.facts.cell_id] for one in self._runs)

    def _finished_clean(self, finished: dict[str, FinishedRef]) -> tuple[Episode, ...] | None:
        """The clean pass from the store when it is finished; None when it is part of this walk."""
        ref = finished.get(self._runs[0].facts.cell_id)
        return None if ref is None else read_finished(self._store, ref)

    def _open(self, one: PlannedRun) -> _Open:
        folder = "@".join(part for part in (one.facts.cell_id, one.facts.registration) if part)
        journal = Journal(self._store.root / "journal" / folder)
        episodes = journal.episodes()
        for episode in episodes:
            if episode.cell_id != one.facts.cell_id:
                raise LogError(
                    f"holds an episode of cell {episode.cell_id}",
                    where=str(journal.path),
                    hint="this file was moved or edited; delete its folder to play the cell anew",
                )
        if journal.torn_bytes:
            self._say(
                f"{one.facts.name}: cut off a torn last line of {journal.torn_bytes} bytes in the journal"
            )
        if episodes:
            self._say(f"{one.facts.name}: resumes after {len(episodes)} episodes")
        sweep = find_sweep(self._store, one.facts.sweep).info.run_id if one.facts.sweep else None
        handle = start_cell(self._store, one.facts, sweep)
        return _Open(one, journal, {key_of(episode): episode for episode in episodes}, handle)

    def _play(self, engine: Engine, cells: Sequence[_Open], clean: tuple[Episode, ...] | None) -> None:
        first = self._runs[0].config
        rules = Rules(
            executor=first.executor.kind,
            step_budget=first.suite.step_budget,
            error_budget=first.suite.error_budget,
            max_tokens=first.executor.max_tokens,
            fault_code=first.fault.code,
            fault_message=first.fault.message,
            trial=first.trial,
        )
        tracks = {cell.run.facts.cell_id: cell for cell in cells}
        known = {key_of(episode): episode for episode in clean or ()}
        faults = tuple(_track(cell) for cell in cells if cell.run.config.fault.kind is not FaultKind.none)
        start = (
            Track(self._runs[0].facts.cell_id, FaultKind.none, first.suite.gate, known)
            if clean is not None
            else _track(cells[0])
        )
        kinds = tuple(track.kind for track in faults)
        total = most_episodes(self._world, kinds) - (len(self._world.tasks) if clean is not None else 0)
        title = self._runs[0].facts.name.removesuffix(" none")
        dropped = {task.id: sum(len(sites(task, kind)) for kind in kinds) for task in self._world.tasks}
        engine.reset_counters()
        passed = 0
        with WalkProgress(self._out, title, total, sum(len(cell.done) for cell in cells)) as bar:

            def record(track: Track, episode: Episode, seconds: float) -> None:
                nonlocal passed
                cell = tracks[track.cell_id]
                cell.journal.append(episode, _timing(episode, seconds))
                cell.done[key_of(episode)] = episode
                lost = 0
                if track.kind is FaultKind.none:
                    passed += certified(episode)
                    lost = 0 if certified(episode) else dropped[episode.task]
                bar.advance(f"{passed} certified", lost)

            walk(Episodes(engine, self._world, self._prompt.text, rules), start, faults, record)

    def _finish(
        self, engine: Engine, cells: Sequence[_Open], clean: tuple[Episode, ...] | None
    ) -> list[CellOutcome]:
        work = self._work(engine)
        screen = clean if clean is not None else tuple(cells[0].done.values())
        outcomes: list[CellOutcome] = []
        for cell in cells:
            one = cell.run
            try:
                finish_cell(self._store, cell.handle, self._finished_cell(cell, screen, work))
            except TrackingError as error:
                outcomes.append(self._outcome(one, Status.not_logged, str(error), cell.handle.run_id))
                continue
            shutil.rmtree(cell.journal.path.parent)
            outcomes.append(self._outcome(one, Status.finished, "", cell.handle.run_id))
        self._say(_summary(self._runs[0].facts, cells, screen, work))
        return outcomes

    def _finished_cell(self, cell: _Open, screen: tuple[Episode, ...], work: Work) -> FinishedCell:
        timing = cell.journal.timing_path
        return FinishedCell(
            facts=cell.run.facts,
            episodes=tuple(cell.done.values()),
            clean=screen,
            work=work,
            prompt=self._prompt.text.encode("utf-8"),
            suite=suite_json(self._world).encode("ascii"),
            config_yaml=config_text(cell.run.config),
            timing=timing.read_bytes() if timing.exists() else b"",
            ep_min_calls=cell.run.config.scorer.ep_min_calls,
            traces=cell.run.config.tracking.traces,
        )

    def _fail(self, cells: Sequence[_Open], error: MachineryError) -> list[CellOutcome]:
        self._say(f"{self._runs[0].facts.name}: FAILED: {error}")
        self._mark(cells, lambda cell: fail_cell(self._store, cell.handle, str(error), ""))
        return [self._outcome(cell.run, Status.failed, str(error), cell.handle.run_id) for cell in cells]

    def _mark(self, cells: Sequence[_Open], mark: Callable[[_Open], None]) -> None:
        """Set the runs' status. A store that is away must not hide why the runs ended."""
        for cell in cells:
            try:
                mark(cell)
            except TrackingError as error:
                self._say(f"{cell.run.facts.name}: its run still says RUNNING: {error}")

    def _work(self, engine: Engine) -> Work:
        count = engine.counters()
        return Work(
            tokens_evaluated=count.evaluated,
            tokens_generated=count.generated,
            tokens_tree=count.tree,
            tokens_trie=count.trie,
            tokens_fresh=count.fresh,
            prefill_tokens_per_second=_rate(count.prefill_tokens, count.prefill_seconds),
            decode_tokens_per_second=_rate(count.decode_tokens, count.decode_seconds),
            engine_seconds=count.prefill_seconds + count.decode_seconds,
            wall_seconds=time.perf_counter() - self._started,
            peak_memory_bytes=peak_memory(engine),
        )

    def _outcome(self, one: PlannedRun, status: Status, reason: str, run_id: str) -> CellOutcome:
        return CellOutcome(one.facts.name, one.facts.design_id, one.facts.cell_id, status, reason, run_id)

    def _say(self, line: str) -> None:
        self._out.print(line, markup=False, soft_wrap=True)


def config_text(cell: CellConfig) -> str:
    """The resolved configuration as YAML."""
    plain = json.loads(json.dumps(dataclasses.asdict(cell)))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _track(cell: _Open) -> Track:
    config = cell.run.config
    return Track(cell.run.facts.cell_id, config.fault.kind, config.suite.gate, cell.done)


def _timing(episode: Episode, seconds: float) -> dict[str, str | int | float]:
    return {
        "task": episode.task,
        "fault": str(episode.fault),
        "site": -1 if episode.trace is None else episode.trace.site,
        "trial": episode.trial,
        "seconds": round(seconds, 6),
        "ended": round(time.time(), 3),
        "pid": os.getpid(),
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None


def _summary(facts: CellFacts, cells: Sequence[_Open], screen: Sequence[Episode], work: Work) -> str:
    """One line per walk: what was certified, what was recovered, what it cost."""
    parts = [f"{sum(certified(e) for e in screen)} of {len(screen)} tasks certified"]
    for cell in cells:
        if cell.run.config.fault.kind is FaultKind.none:
            continue
        good = sum(
            score(e, Policy.tolerant, ep_min_calls=cell.run.config.scorer.ep_min_calls).success
            for e in cell.done.values()
        )
        parts.append(f"{cell.run.config.fault.kind} {good}/{len(cell.done)}")
    ratio = work.segment_ratio
    cost = f"{work.tokens_evaluated:,} tokens evaluated"
    cost += f" ({ratio:.2f} of the segment tree)" if ratio is not None else ""
    return f"{facts.name.removesuffix(' none')}: {', '.join(parts)}; {cost}, {work.wall_seconds:.1f} s"
