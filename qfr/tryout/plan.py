"""How the files of one model are going to be played, and what that will take: memory, hours, disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.analysis.decisions.files import size
from qfr.analysis.decisions.sequential import waves_of
from qfr.config import CellConfig, SuiteConfig, TrackingConfig
from qfr.engine.files import memory
from qfr.engine.llama.library import library_facts
from qfr.engine.pool import workers_for
from qfr.engine.worker import WorkerEngine
from qfr.errors import ConfigError, EngineError
from qfr.front.models import compose_cell
from qfr.grid.checks import build_world, check_cell
from qfr.grid.design import design_of
from qfr.play.engine_cache import context_need
from qfr.play.hours import by_speed
from qfr.play.job import load_engine
from qfr.play.progress import span
from qfr.play.speed import Speed, measure, remember, remembered
from qfr.tryout.files import Arm, Family, Refused
from qfr.tryout.waves import Waves
from qfr.world.base import sites

# Reference agents know round amounts only, and their files say what they are.
_AGENT = ("qfr.reference_agent", "True")
#: Tasks that files play where nothing else is asked.
SUITE, _SUITE_OF_AGENTS = "orders450_v2", "orders450_ref"
# Below this number of weights two threads mostly wait for each other.
_SMALL = 50_000_000
# Bytes of an episode in journals and store, at most, and of an empty store.
_EPISODE_BYTES, _STORE_BYTES = 10_000, 15_000_000
_MEASURE_SECONDS = 2.0
# Of a worker beside the model.
_PROCESS_BYTES = 100_000_000


@dataclass(frozen=True)
class Question:
    """How files are tried; everything but the files themselves."""

    margin: float
    # In points.
    max_gb: float | None
    # Largest file that will do, in 10^9 bytes.
    suite: str | None
    # None = the default suite, or that of the reference agents.
    tasks: int | None
    # Tasks at most; None = the suite's.
    prompt: str
    fault: str
    executor: str
    kv: str | None
    # Type of keys and values in the cache; None = f16.
    threads: int | None
    workers: int | None
    root: str
    # Folder of journals, store and looks.


class Plan:
    """How one model's files are played.

    Files that do not fit into main memory are left out here, before anything is loaded: `refused`.

    Raises
    ------
    ConfigError
        The question cannot be asked.
    """

    def __init__(self, family: Family, question: Question) -> None:
        self.question = question
        self.waves: dict[Path, Waves] = {}
        self.told = False
        # Whether the hours were told after the first waves.
        self._cells = {arm.path: self._cell(family.name, arm) for arm in family.arms}
        first = self._cells[family.arms[0].path]
        self._world, self._prompt = build_world(first.suite), design_of(first).prompt.text
        self._needs = {arm.path: self._need(arm) for arm in family.arms}
        self.refused = tuple(one for arm in family.arms if (one := self._too_large(arm)) is not None)
        left_out = {one.path for one in self.refused}
        self.family = replace(family, arms=tuple(a for a in family.arms if a.path not in left_out))
        counts = list(first.suite.families.values())
        self.tasks = sum(counts)
        self.count = waves_of(counts)

    @property
    def tried(self) -> tuple[Arm, ...]:
        """The files that are played, the reference first."""
        limit = self.question.max_gb
        reference, *others = self.family.arms
        return (reference, *(arm for arm in others if limit is None or arm.gigabytes <= limit))

    @property
    def tracking(self) -> TrackingConfig:
        """Where its cells are kept."""
        return next(iter(self._cells.values())).tracking

    def open(self, arm: Arm) -> Waves:
        """The waves of a file."""
        return self.waves.setdefault(arm.path, Waves(self._cells[arm.path], self.count))

    def side_by_side(self) -> int:
        """Files that may stay loaded at a time: two where they take less than half of the free memory."""
        known = [self._needs[arm.path] for arm in self.tried]
        cell = self._cells[self.family.arms[0].path]
        room = memory.room_here((), cell.engine)
        if room is None or library_facts().gpu_offload:
            return 1
        workers = workers_for(cell.engine, self.tasks // self.count)
        needed = [one.host + (workers - 1) * one.pinned for one in known if one is not None]
        fits = len(needed) == len(known) and 2 * max(needed) < room.available / 2
        return 2 if fits else 1

    def cost_lines(self) -> list[str]:
        """Memory, hours and disk, told before the first wave. Measures the reference's speed once.

        Raises
        ------
        MachineryError, ModelFileError
            The reference cannot be loaded.
        """
        files, cell = self.tried, self._cells[self.family.arms[0].path]
        fault = cell.fault.kind
        faults = sum(len(sites(task, fault)) for task in self._world.tasks)
        workers = workers_for(cell.engine, self.tasks // self.count)
        speed = self._speed(self.family.arms[0], cell)
        seconds = by_speed(cell, self._prompt, self.tasks, faults, speed) / workers
        worst = seconds * len(files)
        disk = _STORE_BYTES + _EPISODE_BYTES * (self.tasks + faults) * len(files)
        free = shutil.disk_usage(_existing(Path(self.question.root))).free
        return [
            f"  memory: {self._memory(files, workers)}",
            f"  time: at most about {span(worst)}, {span(seconds / self.count)} for a wave of a file "
            f"({speed.decode:,.0f} tokens/s written and {speed.prefill:,.0f} read by the reference, "
            f"{workers} worker{'s' if workers > 1 else ''}); told anew after the first waves",
            f"  disk: up to {size(disk)} of logs in {self.question.root} ({size(free)} free)",
        ]

    def _memory(self, files: tuple[Arm, ...], workers: int) -> str:
        known = [found for arm in files if (found := self._needs[arm.path]) is not None]
        if not known:
            return "not known from these headers; checked by llama.cpp as a file is loaded"
        most = max(one.host + (workers - 1) * one.pinned for one in known) + workers * _PROCESS_BYTES
        room = memory.room_here((), self._cells[files[0].path].engine)
        free = "" if room is None else f" ({size(room.available)} free)"
        return f"up to {size(most)} for weights, cache and {workers} worker{'s' if workers > 1 else ''}{free}"

    def _speed(self, arm: Arm, cell: CellConfig) -> Speed:
        wanted = (cell.model.name, cell.quant.preset, cell.engine.n_threads, cell.engine.streams)
        for one in reversed(remembered(Path(self.question.root))):
            if (one.model, one.quant, one.n_threads, one.streams) == wanted:
                return one.speed
        engine = load_engine(cell)
        if not isinstance(engine, WorkerEngine):
            raise EngineError("its speed cannot be measured", where=str(arm.path))
        found = measure(engine, cell.engine.streams, _MEASURE_SECONDS)
        remember(Path(self.question.root), cell, engine, found)
        return found

    def _need(self, arm: Arm) -> memory.Need | None:
        cell = self._cells[arm.path]
        context = cell.engine.n_ctx or context_need(cell, self._world, self._prompt)
        # What goes to a GPU is checked there, as the file is loaded.
        return memory.need(arm.path, cell.engine, context, offload=library_facts().gpu_offload)

    def _too_large(self, arm: Arm) -> Refused | None:
        needed, room = self._needs[arm.path], memory.room_here((), self._cells[arm.path].engine)
        if needed is None or room is None:
            return None
        try:
            memory.require_room(arm.path, needed, room)
        except EngineError as error:
            return Refused(arm.path, error.what)
        return None

    def _cell(self, name: str, arm: Arm) -> CellConfig:
        given = self.question
        agent = _AGENT in arm.facts.metadata
        threads = given.threads or (1 if arm.facts.n_params < _SMALL else None)
        overrides = [
            "model=local",
            f"model.path={json.dumps(str(arm.path.absolute()), ensure_ascii=False)}",
            f"model.name={name}",
            f"model.reference_agent={str(agent).lower()}",
            f"quant.preset={arm.preset}",
            f"suite={given.suite or (_SUITE_OF_AGENTS if agent else SUITE)}",
            *(f"{key}={getattr(given, key)}" for key in ("prompt", "fault", "executor")),
            f"tracking.root={json.dumps(given.root)}",
            *([f"engine.type_k={given.kv}", f"engine.type_v={given.kv}"] if given.kv else []),
            *(["engine.flash_attn=true"] if given.kv and given.kv != "f16" else []),
            *([f"engine.n_threads={threads}", f"engine.n_threads_batch={threads}"] if threads else []),
            *([f"engine.workers={given.workers}"] if given.workers else []),
        ]
        cell = compose_cell(*overrides)
        if given.tasks:
            cell = replace(cell, suite=_sized(cell, given.tasks))
        check_cell(cell)
        return cell


def _sized(cell: CellConfig, tasks: int) -> SuiteConfig:
    each, rest = divmod(tasks, len(cell.suite.families))
    if rest or not each:
        raise ConfigError(
            f"--tasks {tasks} cannot be shared evenly by {len(cell.suite.families)} families of tasks",
            hint=f"a multiple of {len(cell.suite.families)}",
        )
    return replace(cell.suite, families=dict.fromkeys(cell.suite.families, each))


def _existing(place: Path) -> Path:
    """The folder, or the next one above it that is there."""
    place = place.expanduser().absolute()
    while not place.exists():
        place = place.parent
    return place
