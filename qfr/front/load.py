"""Who plays the walks of a grid: the launcher's workers, what each has to do, and how even that is."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from qfr.errors import ConfigError
from qfr.grid.checks import tasks_of
from qfr.grid.grid import Grid, Walk
from qfr.world.base import sites

# Last part of a launcher's class: what it is called, and whether its workers stand on other machines.
_LAUNCHERS = {
    "BasicLauncher": ("basic", False),
    "JoblibLauncher": ("joblib", False),
    "SlurmLauncher": ("submitit_slurm", True),
    "LocalLauncher": ("submitit_local", False),
    "RayLauncher": ("ray", True),
}


@dataclass(frozen=True)
class Workers:
    """The workers of a launcher."""

    launcher: str
    # basic, joblib, submitit_slurm, submitit_local, ray, or a class of another plugin.
    count: int | None
    # At a time, at most; None = the cluster decides.
    elsewhere: bool
    # They may stand on other machines.
    fresh: bool
    # Each walk gets a process of its own, which loads its model anew.
    batch: int = 1
    # Walks that are handed to a worker at a time.


@dataclass(frozen=True)
class Load:
    """What the workers have to do, if each takes the next walk as it gets free."""

    workers: int
    idle: int
    # Workers without a walk.
    walks: tuple[int, int]
    # Of the least and the most busy worker (idle ones left out).
    episodes: tuple[int, int]
    # The same, at most.
    loads: int
    # Times that a model file is loaded.
    files: int
    # Distinct model files.
    unevenness: float
    # Busiest worker over the mean of all that have a walk: 1.0 is even.


def side_by_side(workers: Workers, jobs: int) -> int:
    """How many jobs run at a time on one machine; 0 where the launcher does not say."""
    if workers.launcher in ("basic", "submitit_slurm"):
        return 1
    return min(workers.count, jobs) if workers.launcher == "joblib" and workers.count else 0


def workers_of(launcher: DictConfig) -> Workers:
    """Read the workers from the launcher's configuration.

    Raises
    ------
    ConfigError
        A number of workers that cannot be.
    """
    kind = str(launcher.get("_target_", "")).rpartition(".")[2]
    name, elsewhere = _LAUNCHERS.get(kind, (kind, True))
    if kind == "BasicLauncher":
        return Workers(name, 1, elsewhere=False, fresh=False)
    if kind == "JoblibLauncher":
        count = _whole(launcher, "n_jobs")
        if count == 0:
            raise ConfigError(
                "hydra.launcher.n_jobs=0 is not possible",
                hint="use the number of workers; -1 is one per core, -2 leaves one core free",
            )
        # As joblib counts: -1 is all cores, -2 all but one.
        count = count if count > 0 else max(1, (os.cpu_count() or 1) + 1 + count)
        batch = launcher.get("batch_size")
        return Workers(name, count, False, False, 1 if batch == "auto" else _positive(launcher, "batch_size"))
    if kind == "SlurmLauncher":
        most = _positive(launcher, "array_parallelism")
        return Workers(name, most, elsewhere=True, fresh=True)
    if kind == "RayLauncher":
        alone = OmegaConf.select(launcher, "ray.init.address") is None
        return Workers(name, None, elsewhere=not alone, fresh=True)
    return Workers(name, None, elsewhere=elsewhere, fresh=True)


def _whole(launcher: DictConfig, key: str) -> int:
    # joblib's batch_size is a text, since "auto" is one of its values.
    value = str(launcher.get(key))
    if not re.fullmatch(r"-?[0-9]{1,9}", value):
        shown = value.replace("None", "null")
        raise ConfigError(f"hydra.launcher.{key}={shown} is not possible", hint="use an integer")
    return int(value)


def _positive(launcher: DictConfig, key: str) -> int:
    value = _whole(launcher, key)
    if value < 1:
        raise ConfigError(f"hydra.launcher.{key}={value} is too small", hint="use an integer of at least 1")
    return value


def load_of(grid: Grid, workers: Workers) -> Load:
    """Hand out the walks in their order, each to the worker that gets free first.

    How long a walk takes is taken to be proportional to its episodes and to its model file's size (where all
    sizes are known).
    """
    count = min(workers.count or len(grid.walks), 100_000)
    sizes = [walk.cells[0].file.bytes for walk in grid.walks]
    known = all(sizes)
    free = [(0.0, at) for at in range(count)]
    heapq.heapify(free)
    busy: list[list[tuple[int, str, float]]] = [[] for _ in range(count)]
    pairs = list(zip(grid.walks, sizes, strict=True))
    for start in range(0, len(pairs), workers.batch):
        until, at = heapq.heappop(free)
        for walk, size in pairs[start : start + workers.batch]:
            episodes = _episodes(walk)
            cost = episodes * (float(size) if known and size else 1.0)
            busy[at].append((episodes, _file(walk), cost))
            until += cost
        heapq.heappush(free, (until, at))
    used = [jobs for jobs in busy if jobs]
    totals = [sum(cost for *_, cost in jobs) for jobs in used]
    return Load(
        workers=count,
        idle=count - len(used),
        walks=(min(map(len, used)), max(map(len, used))),
        episodes=_ends([sum(episodes for episodes, *_ in jobs) for jobs in used]),
        loads=sum(_loads([file for _, file, _ in jobs], workers.fresh) for jobs in used),
        files=len({_file(walk) for walk in grid.walks}),
        unevenness=max(totals) * len(totals) / sum(totals) if sum(totals) else 1.0,
    )


def load_lines(grid: Grid, workers: Workers, cores: int | None) -> list[str]:
    """The load in words.

    Parameters
    ----------
    cores : int or None
        Of this machine, where the workers stand on it.
    """
    load, walks = load_of(grid, workers), len(grid.walks)
    if workers.count == 1:
        return [f"Load: 1 worker ({workers.launcher}) plays all walks, {_plural(load.loads, 'model load')}."]
    many = "as many as the cluster has room for" if workers.count is None else f"up to {workers.count:,}"
    each = "1 walk" if load.walks == (1, 1) else f"{_range(load.walks)} walks"
    spread = f"{each} and {_range(load.episodes)} episodes each at most"
    lines = [
        f"Load: {_plural(walks, 'walk')} of {_plural(load.files, 'model file')} on {many} workers "
        f"({workers.launcher}): {spread}, {_plural(load.loads, 'model load')}; the busiest has "
        f"{load.unevenness:.2f} of the mean."
    ]
    if load.idle and workers.count is not None:
        share = -(-load.workers // walks)
        lines.append(
            f"{load.idle} of {load.workers} workers have nothing to do: there are {walks} walks. "
            f"suite.shard=all/{share} splits each cell into {share}."
        )
    threads = max(cell.config.engine.n_threads for cell in grid.cells)
    if workers.launcher == "joblib" and cores is not None and load.workers * threads > cores:
        lines.append(
            f"{load.workers} workers with engine.n_threads={threads} want {load.workers * threads} cores; "
            f"this machine has {cores}."
        )
    return lines


def _episodes(walk: Walk) -> int:
    tasks = tasks_of(walk.cells[0].config.suite)
    return sum(1 + sum(len(sites(task, kind)) for kind in walk.kinds) for task in tasks)


def _file(walk: Walk) -> str:
    file = walk.cells[0].file
    return f"{file.model} {file.preset} {file.place}"


def _loads(files: Sequence[str], fresh: bool) -> int:
    return (
        len(files)
        if fresh
        else sum(file != before for file, before in zip(files, ["", *files], strict=False))
    )


def _ends(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def _range(ends: tuple[int, int]) -> str:
    return f"{ends[0]:,}" if ends[0] == ends[1] else f"{ends[0]:,} to {ends[1]:,}"


def _plural(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
