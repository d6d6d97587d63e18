"""The cells of one walk from their journals to complete MLflow runs."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence

import yaml

from qfr.canonical import canonical
from qfr.cell import Track, certified, key_of, most_episodes
from qfr.config import CellConfig
from qfr.engine.base import Engine
from qfr.engine.openai.fields import beside_of
from qfr.engine.pool import WorkerPool
from qfr.errors import MachineryError, TrackingError
from qfr.facts import CellFacts, Work
from qfr.grid.checks import build_world
from qfr.grid.outcomes import CellOutcome, Status
from qfr.grid.show import console
from qfr.play.cell_run import OpenCell, PlannedRun
from qfr.play.engine_cache import device_memory, peak_memory
from qfr.play.episodes import walker
from qfr.play.progress import WalkProgress, place
from qfr.play.recording import CellLost, Recording
from qfr.play.remarks import remarks
from qfr.play.run_facts import recorded
from qfr.play.timings import ENGINE, EPISODES, SPENT, STORE
from qfr.prompts import Prompt
from qfr.records import Episode, FaultKind, Policy
from qfr.scoring import score
from qfr.shards import whole_id
from qfr.tracking.writing.writer import FinishedCell
from qfr.world.base import World, sites, suite_json


class Walking:
    """Plays what is missing of a walk's cells and has them recorded. The caller holds the walk's lock.

    Parameters
    ----------
    recording : Recording
    world : World
    prompt : Prompt
    runs : sequence of PlannedRun
        The clean cell first, then the fault cells.
    """

    def __init__(
        self, recording: Recording, world: World, prompt: Prompt, runs: Sequence[PlannedRun]
    ) -> None:
        self._recording = recording
        self._world = world
        self._prompt = prompt
        self._runs = tuple(runs)
        self._out = console(stderr=True)
        self._title = self._runs[0].facts.name.removesuffix(" none")
        self._started = time.perf_counter()

    def run(self, engine: Engine) -> tuple[CellOutcome, ...]:
        """Play, log, and say what became of each cell.

        Raises
        ------
        TrackingError
            The store refuses for good before anything is played.
        KeyboardInterrupt
            Interrupted: the runs are KILLED, the journals hold what was played.
        """
        cells: tuple[OpenCell, ...] = ()
        try:
            with SPENT.on(STORE):
                entered = self._recording.enter(self._runs)
            if entered.held:
                self._say(f"{self._title}: left alone: {entered.held}")
                return left_alone(self._runs, entered.held)
            cells = entered.cells
            outcomes = {
                one.facts.cell_id: _outcome(one, Status.skipped, "", entered.finished[one.facts.cell_id])
                for one in self._runs
                if one.facts.cell_id in entered.finished
            }
            if cells:
                with self._recording.alive(cells):
                    for outcome in self._fill(engine, cells, entered.clean):
                        outcomes[outcome.cell_id] = outcome
        except KeyboardInterrupt:
            self._recording.kill(cells)
            raise
        return tuple(outcomes[one.facts.cell_id] for one in self._runs)

    def _fill(
        self, engine: Engine, cells: Sequence[OpenCell], clean: tuple[Episode, ...] | None
    ) -> list[CellOutcome]:
        try:
            self._play(engine, cells, clean)
        except CellLost as error:
            self._say(f"{self._title}: {error}")
            return list(left_alone([cell.run for cell in cells], error.what))
        except MachineryError as error:
            return self._fail(cells, error)
        return self._finish(engine, cells, clean)

    def _play(self, engine: Engine, cells: Sequence[OpenCell], clean: tuple[Episode, ...] | None) -> None:
        first = self._runs[0].config
        tracks = {whole_id(cell.run.facts.cell_id): cell for cell in cells}
        known = {key_of(episode): episode for episode in clean or ()}
        faults = tuple(_track(cell) for cell in cells if cell.run.config.fault.kind is not FaultKind.none)
        start = (
            Track(whole_id(self._runs[0].facts.cell_id), FaultKind.none, first.suite.gate, known)
            if clean is not None
            else _track(cells[0])
        )
        kinds = tuple(track.kind for track in faults)
        total = most_episodes(self._world, kinds) - (len(self._world.tasks) if clean is not None else 0)
        dropped = {task.id: sum(len(sites(task, kind)) for kind in kinds) for task in self._world.tasks}
        engine.reset_counters()
        passed = 0
        with WalkProgress(self._out, self._title, total, sum(len(cell.done) for cell in cells)) as bar:

            def record(track: Track, episode: Episode, seconds: float) -> None:
                nonlocal passed
                cell = tracks[track.cell_id]
                self._recording.keep(cell, episode, _timing(episode, seconds))
                lost = 0
                if track.kind is FaultKind.none:
                    passed += certified(episode)
                    lost = 0 if certified(episode) else dropped[episode.task]
                bar.advance(f"{passed} certified", lost)

            started = time.perf_counter()
            walker(engine, first, self._world, self._prompt.text)(start, faults, record)
            for cell in cells:
                self._recording.settle(cell)
        if isinstance(engine, WorkerPool) and not engine.whole:
            self._say(f"{self._title}: a worker died; the others played its task and all that was left")
        count = engine.counters()
        workers = len(engine.members) if isinstance(engine, WorkerPool) else 1
        # Workers evaluate at the same time; the sweep's table is of wall time.
        inside = (count.prefill_seconds + count.decode_seconds) / max(1, workers)
        SPENT.add(ENGINE, inside)
        SPENT.add(EPISODES, max(0.0, time.perf_counter() - started - inside))

    def _finish(
        self, engine: Engine, cells: Sequence[OpenCell], clean: tuple[Episode, ...] | None
    ) -> list[CellOutcome]:
        work = self._work(engine)
        screen = clean if clean is not None else tuple(cells[0].done.values())
        outcomes: list[CellOutcome] = []
        for cell in cells:
            one = cell.run
            try:
                with SPENT.on(STORE):
                    run_id = self._recording.finish(cell, self._finished_cell(cell, screen, work))
            except TrackingError as error:
                self._say(f"{one.facts.name}: {Status.not_logged} ({error.what}); qfr sync logs it later")
                outcomes.append(_outcome(one, Status.not_logged, str(error), _run_id(cell)))
                continue
            outcomes.append(_outcome(one, Status.finished, "", run_id))
        where = f" ({found})" if (found := place()) else ""
        self._say(_summary(self._runs[0].facts, cells, screen, work) + where)
        faults = [one for cell in cells for one in cell.done.values() if one.fault is not FaultKind.none]
        for line in remarks(self._runs[0].config, screen, faults):
            self._say(f"{self._title}: {line}")
        return outcomes

    def _finished_cell(self, cell: OpenCell, screen: tuple[Episode, ...], work: Work) -> FinishedCell:
        timing = cell.journal.timing_path
        return FinishedCell(
            facts=cell.run.facts,
            episodes=tuple(cell.done.values()),
            clean=screen,
            work=work,
            prompt=self._prompt.text.encode("utf-8"),
            suite=suite_json(build_world(cell.run.config.suite)).encode("ascii"),
            config_yaml=config_text(cell.run.config),
            timing=timing.read_bytes() if timing.exists() else b"",
            ep_min_calls=cell.run.config.scorer.ep_min_calls,
            traces=cell.run.config.tracking.traces,
        )

    def _fail(self, cells: Sequence[OpenCell], error: MachineryError) -> list[CellOutcome]:
        self._say(f"{self._runs[0].facts.name}: FAILED: {error}")
        for cell in cells:
            try:
                self._recording.fail(cell, str(error))
            except TrackingError as trouble:
                # A store that is away must not hide why the runs ended.
                self._say(f"{cell.run.facts.name}: its run still says RUNNING: {trouble}")
        return [_outcome(cell.run, Status.failed, str(error), _run_id(cell)) for cell in cells]

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
            device_memory_bytes=device_memory(engine),
        )

    def _say(self, line: str) -> None:
        self._out.print(line, markup=False, soft_wrap=True)


def left_alone(runs: Sequence[PlannedRun], who: str) -> tuple[CellOutcome, ...]:
    """Outcomes of a walk that another live process plays."""
    return tuple(_outcome(one, Status.elsewhere, who, "") for one in runs)


def _outcome(one: PlannedRun, status: Status, reason: str, run_id: str) -> CellOutcome:
    return CellOutcome(one.facts.name, one.facts.design_id, one.facts.cell_id, status, reason, run_id)


def _run_id(cell: OpenCell) -> str:
    return "" if cell.handle is None else cell.handle.run_id


def config_text(cell: CellConfig) -> str:
    """The resolved configuration as YAML."""
    plain = json.loads(json.dumps(dataclasses.asdict(recorded(cell))))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _track(cell: OpenCell) -> Track:
    config = cell.run.config
    return Track(whole_id(cell.run.facts.cell_id), config.fault.kind, config.suite.gate, cell.done)


def _timing(episode: Episode, seconds: float) -> dict[str, str | int | float]:
    line: dict[str, str | int | float] = {
        "task": episode.task,
        "fault": str(episode.fault),
        "site": -1 if episode.trace is None else episode.trace.site,
        "trial": episode.trial,
        "seconds": round(seconds, 6),
        "ended": round(time.time(), 3),
        "pid": os.getpid(),
    }
    came = [(turn.index, beside_of(turn.generation)) for turn in episode.turns]
    beside = [dict(fields, turn=index) for index, fields in came if fields]
    return line | {"beside": canonical(beside)} if beside else line


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None


def _summary(facts: CellFacts, cells: Sequence[OpenCell], screen: Sequence[Episode], work: Work) -> str:
    """One line per walk: what was certified, what was recovered, what it cost."""
    parts = [f"{sum(certified(e) for e in screen)} of {len(screen)} tasks certified"]
    for cell in cells:
        if cell.run.config.fault.kind is FaultKind.none:
            continue
        least = cell.run.config.scorer.ep_min_calls
        scores = [score(e, Policy.tolerant, ep_min_calls=least) for e in cell.done.values()]
        delivered = [one for one in scores if one.delivered]
        told = f"{cell.run.config.fault.kind} {sum(one.success for one in delivered)}/{len(delivered)}"
        lost = len(scores) - len(delivered)
        parts.append(f"{told} ({lost} faults never fired)" if lost else told)
    ratio = work.segment_ratio
    cost = f"{work.tokens_evaluated:,} tokens evaluated"
    if facts.server:
        cost = f"{work.tokens_generated:,} tokens written by the server's count; {facts.repeat}"
    cost += f" ({ratio:.2f} of the segment tree)" if ratio is not None else ""
    return f"{facts.name.removesuffix(' none')}: {', '.join(parts)}; {cost}, {work.wall_seconds:.1f} s"
