"""How long a grid will take: from what earlier walks took here, else from measured speed."""

from __future__ import annotations

import shlex
import socket
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qfr.config import CellConfig, EngineKind, TrackingConfig
from qfr.engine.pool import workers_for
from qfr.errors import TrackingError
from qfr.grid.checks import tasks_of
from qfr.grid.grid import Grid, Walk
from qfr.grid.plan import FINISHED
from qfr.play.progress import span
from qfr.play.speed import Measured, Speed, remembered
from qfr.records import FaultKind
from qfr.world.base import sites

if TYPE_CHECKING:
    from qfr.tracking.writing.group_times import WalkTime

# What an episode comes to where only a speed is known: a turn for each gold call and one more, in a fault
# episode a few turns after its fork, in tokens. Bytes per token of a prompt.
_TURN_TOKENS, _MESSAGE_TOKENS, _FAULT_TURNS = 40, 50, 4
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Expected:
    """What is expected of the walks of one model at one preset."""

    name: str
    # "llama q8_0".
    seconds: float | None
    # Of all its walks that are not finished, at most; None = nothing was measured.
    basis: str
    # What that rests on.


Times = Callable[[str, str], Sequence["WalkTime"]]


def hours_lines(grid: Grid, held: Mapping[str, str], tracking: TrackingConfig) -> list[str]:
    """Expected hours of what is not finished, and what they rest on. Empty where nothing is left to play."""
    root = Path(tracking.root).expanduser()
    try:
        found = expected(grid, held, remembered(root), _times(tracking, root))
    except TrackingError as error:
        return [f"Expected time: the store cannot be read ({error.what})."]
    known = [one for one in found if one.seconds is not None]
    lines = []
    if known:
        total = sum(one.seconds for one in known if one.seconds is not None)
        rests = "; ".join(f"{one.name}: {span(one.seconds or 0.0)} by {one.basis}" for one in known)
        lines.append(f"Expected time, one walk after the other: at most about {span(total)} ({rests}).")
    unknown = [one for one in found if one.seconds is None]
    if unknown:
        lines.append(
            f"No time known for {', '.join(one.name for one in unknown)}: "
            f"qfr doctor --speed {_overrides(grid, unknown[0].name)} measures it in ten seconds."
        )
    return lines


def _overrides(grid: Grid, name: str) -> str:
    """What to type for a model at a preset, as the grid's own command line has it."""
    cell = next(one for one in grid.cells if one.name.startswith(f"{name} "))
    chosen = [text for text in cell.overrides if text.startswith(("model", "quant", "engine"))]
    engine = cell.config.engine
    threads = f"engine.n_threads={engine.n_threads}"
    more = [threads, *([f"engine.streams={engine.streams}"] if engine.streams > 1 else [])]
    return shlex.join([*chosen, *(text for text in more if text.partition("=")[0] + "=" not in str(chosen))])


def expected(
    grid: Grid, held: Mapping[str, str], speeds: Sequence[Measured], times: Times
) -> tuple[Expected, ...]:
    """Seconds per model and preset, in the order of the grid.

    Parameters
    ----------
    held : mapping of str to str
        Status per design_id of what the store holds.
    speeds : sequence of Measured
        The newest last.
    times : callable
        Earlier walks of a model at a preset, the newest first.
    """
    groups: dict[tuple[str, str], list[tuple[Walk, int, int]]] = {}
    for walk in grid.walks:
        cell = walk.cells[0].config
        if cell.engine.kind is EngineKind.llama_cpp and (left := _left(walk, held)) != (0, 0):
            groups.setdefault((cell.model.name, cell.quant.preset), []).append((walk, *left))
    out = []
    for (model, quant), walks in groups.items():
        cell = walks[0][0].cells[0].config
        episodes = sum(clean + faults for _, clean, faults in walks)
        name = f"{model} {quant.lower()}"
        like = [one for one in times(model, quant) if _alike(cell, one)]
        rates = [one.seconds / one.episodes for one in like if one.episodes]
        if rates:
            each = statistics.median(rates)
            basis = (
                f"{each:.3g} s an episode in {len(rates)} earlier walk{'s' if len(rates) > 1 else ''} here"
            )
            out.append(Expected(name, each * episodes, basis))
            continue
        speed = next((one for one in reversed(speeds) if _same(cell, one)), None)
        if speed is None:
            out.append(Expected(name, None, ""))
            continue
        seconds = sum(
            by_speed(cell, walk.cells[0].design.prompt.text, clean, faults, speed.speed)
            for walk, clean, faults in walks
        )
        workers = workers_for(cell.engine, len(tasks_of(cell.suite)))
        seconds /= workers
        basis = f"measured speed and {_TURN_TOKENS} tokens a turn"
        basis += f", {workers} workers" if workers > 1 else ""
        out.append(Expected(name, seconds, basis))
    return tuple(out)


def _left(walk: Walk, held: Mapping[str, str]) -> tuple[int, int]:
    """Clean and fault episodes of a walk that are not finished, at most."""
    first = walk.cells[0]
    tasks = tasks_of(first.config.suite)
    clean = 0 if held.get(first.design.clean_design_id) == FINISHED else len(tasks)
    faults = sum(
        len(sites(task, cell.config.fault.kind))
        for cell in walk.cells
        if cell.config.fault.kind is not FaultKind.none and held.get(cell.design.design_id) != FINISHED
        for task in tasks
    )
    return clean, faults


def _alike(cell: CellConfig, one: WalkTime) -> bool:
    wanted = (socket.gethostname(), cell.engine.n_threads, cell.engine.streams)
    return (one.host, one.n_threads, one.streams) == wanted


def _same(cell: CellConfig, one: Measured) -> bool:
    wanted = (cell.model.name, cell.quant.preset, cell.engine.n_threads, cell.engine.streams)
    return (one.model, one.quant, one.n_threads, one.streams) == wanted


def by_speed(cell: CellConfig, prompt: str, clean: int, faults: int, speed: Speed) -> float:
    """Seconds that so many clean and fault episodes of a cell's suite take one worker at a measured speed."""
    tasks = tasks_of(cell.suite)
    turns = 1 + sum(len(task.gold_calls) for task in tasks) / len(tasks)
    written = clean * turns + faults * _FAULT_TURNS
    read = len(prompt.encode("utf-8", "replace")) / _BYTES_PER_TOKEN + _MESSAGE_TOKENS * (written + clean)
    return read / speed.prefill + written * _TURN_TOKENS / speed.decode


def _times(tracking: TrackingConfig, root: Path) -> Times:
    """Looks walks up in the store; finds none where there is no store. Imports MLflow only where there is."""
    try:
        if tracking.uri is None and not (root / "mlflow.db").exists():
            return lambda model, quant: ()
    except PermissionError:
        # The plan's line about the store says so.
        return lambda model, quant: ()
    from qfr.tracking.store import peek_store
    from qfr.tracking.writing.group_times import walk_times

    store = peek_store(tracking.uri, root, tracking.experiment)
    return (lambda model, quant: ()) if store is None else partial(walk_times, store)
