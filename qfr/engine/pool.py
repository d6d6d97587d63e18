"""Several worker processes of one model: tasks are dealt to them as they come free.

A segment's batch does not depend on its neighbours, so an episode has the same bytes whichever worker plays
it, and the number of workers is no part of a cell's identity. The weights are mapped: they share one copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from qfr.config import EngineConfig, EngineKind
from qfr.engine.base import Counters, EngineInfo
from qfr.engine.files.gguf import ModelFile
from qfr.engine.worker import WorkerEngine
from qfr.errors import QfrError

#: Environment variable for `tell_jobs`.
SIDE_BY_SIDE = "QFR_SIDE_BY_SIDE"
# Share of the free memory that further workers may take.
_OF_FREE = 0.8


def tell_jobs(side_by_side: int) -> None:
    """Tell the jobs of a sweep how many of them run at a time on one machine; 0 = it is not known."""
    os.environ[SIDE_BY_SIDE] = str(side_by_side)


class WorkerPool(WorkerEngine):
    """A worker and as many further ones as the machine has room for.

    The pool is its first worker: what asks an engine that plays one episode at a time gets that one.

    Parameters
    ----------
    model, config, n_ctx
        As `WorkerEngine`.
    """

    def __init__(self, model: ModelFile, config: EngineConfig, n_ctx: int) -> None:
        super().__init__(model, config, n_ctx)
        self._load = (model, config, n_ctx)
        self._more: list[WorkerEngine] = []

    def grow(self, count: int, say: Callable[[str], None]) -> None:
        """Load further workers until there are `count`, or memory forbids it, which is said.

        A worker that cannot be loaded is done without: the first one plays all that is left.
        """
        while 1 + len(self._more) < count:
            need = self._need()
            free = free_memory()
            if need is not None and free is not None and need > _OF_FREE * free:
                say(f"{self._told(count)}: another needs about {need >> 20} MiB, {free >> 20} MiB are free")
                return
            try:
                one = WorkerEngine(*self._load)
                self._more.append(one)
                if not self.info.rewind:
                    one.evaluate_afresh()
                one.note(self.info.exactness)
            except QfrError as error:
                say(f"{self._told(count)}: {error.what}")
                return

    @property
    def members(self) -> tuple[WorkerEngine, ...]:
        """The workers that live, the first one first; that one, to say how it died, where none lives."""
        return tuple(one for one in (self, *self._more) if one.alive) or (self,)

    @property
    def whole(self) -> bool:
        """Whether no worker has died."""
        return all(one.alive for one in (self, *self._more))

    def counters(self) -> Counters:
        """Work so far, of all workers that live."""
        return Counters.total([WorkerEngine.counters(one) for one in self.members])

    def reset_counters(self) -> None:
        """Start counting anew."""
        for one in self.members:
            WorkerEngine.reset_counters(one)

    def close(self) -> None:
        """End all processes."""
        for one in getattr(self, "_more", ()):
            one.close()
        super().close()

    def _told(self, count: int) -> str:
        have = 1 + len(self._more)
        return f"engine.workers: {have} {'worker' if have == 1 else 'workers'} instead of {count}"

    def _need(self) -> int | None:
        """Bytes that one more worker takes: what the first one holds beside the mapped weights."""
        held = self.peak_memory_bytes()
        return None if held is None else max(0, held - self._load[0].bytes)


def workers_for(config: EngineConfig, tasks: int) -> int:
    """How many workers a cell group asks for: `engine.workers`, or with `auto` one per core and thread.

    On a GPU, with streams, and where it is not known how many jobs share the machine, `auto` is one.
    """
    if config.kind is not EngineKind.llama_cpp or config.streams > 1:
        return 1
    if config.workers:
        return min(config.workers, max(1, tasks))
    jobs = os.environ.get(SIDE_BY_SIDE, "1")
    jobs_here = int(jobs) if jobs.isdigit() else 0
    if jobs_here == 0:
        return 1
    cores = len(os.sched_getaffinity(0))
    if "SLURM_JOB_ID" in os.environ:
        # A cluster may show a job all cores of its machine.
        given = os.environ.get("SLURM_CPUS_PER_TASK", "1")
        cores = min(cores, int(given) if given.isdigit() else 1)
    return max(1, min(cores // (config.n_threads * jobs_here), tasks))


def free_memory() -> int | None:
    """Memory that can be had without swapping, in bytes; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def on_gpu(info: EngineInfo) -> bool:
    """Whether layers of the model stand on a GPU: `auto` loads no second copy there."""
    return bool(info.offloaded_layers)
