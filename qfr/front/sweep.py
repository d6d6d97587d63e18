"""A sweep from composed points to its exit code: validate, then plan, register or launch, then close."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from qfr.config import CellConfig, Mode, TrackingConfig
from qfr.errors import ConfigError, TrackingError, UserError
from qfr.front.compose import to_cell
from qfr.front.exit_code import EXIT_CODE
from qfr.front.grid import Grid, Point, Walk, build_grid, together, with_sweep
from qfr.front.plan import make_plan
from qfr.front.registered import Under, carry, check_grid, find_record
from qfr.front.show import console, head_line, note_lines, show_plan

# Runs jobs, each a list of overrides; returns what they returned.
Launch = Callable[[Sequence[Sequence[str]]], Sequence[object]]


def new_sweep_id() -> str:
    """`s-20260131-142501-1f3a9c`: sorts by time, unique within a second; the letter keeps it a text."""
    return f"s-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def point_of(cfg: DictConfig, overrides: Sequence[str]) -> Point:
    """A composed configuration as a point of the grid.

    Raises
    ------
    ConfigError
        `exclude` is no list of maps from group to choice.
    """
    choices = {str(key): str(value) for key, value in cfg.hydra.runtime.choices.items() if value is not None}
    exclude = (
        OmegaConf.to_container(cfg.exclude) if OmegaConf.is_list(cfg.get("exclude")) else cfg.get("exclude")
    )
    if not isinstance(exclude, list) or not all(isinstance(entry, dict) for entry in exclude):
        raise ConfigError(
            f"exclude={exclude!r} is not possible", hint="use a list of maps: [{model: qwen, quant: q3_k_m}]"
        )
    entries = tuple({str(key): str(value) for key, value in entry.items()} for entry in exclude)
    return Point(tuple(overrides), choices, entries, lambda: to_cell(cfg))


def run_sweep(
    points: Sequence[Point], choices_of: Callable[[str], Sequence[str]], sweep: str, launch: Launch
) -> Sequence[object]:
    """Validate the grid, then do what `mode` says. Leaves the exit code in `EXIT_CODE`.

    Parameters
    ----------
    points : sequence of Point
        The whole Cartesian product, in job order.
    choices_of : callable
        Names of a group's choices.
    sweep : str
        Id of this sweep.
    launch : callable
        Runs jobs, each a list of overrides; returns what they returned.

    Returns
    -------
    sequence
        Outcomes of the jobs, empty when nothing was launched.

    Raises
    ------
    UserError
        The grid cannot run.
    """
    mode = points[0].build().mode
    grid = build_grid(points, choices_of, files_needed=mode is Mode.run)
    tracking = grid.cells[0].config.tracking
    if mode is Mode.plan:
        held, store = _held(tracking, grid, grid.cells[0].config.registration.use)
        show_plan(make_plan(grid, held, store), console())
        return ()
    if mode is Mode.register:
        from qfr.front.registering import register_grid

        register_grid(grid, console())
        return ()
    title = points[0].choices.get("experiment", "grid")
    return _run(grid, sweep, f"{title} {sweep}", launch)


def _run(grid: Grid, sweep: str, name: str, launch: Launch) -> Sequence[object]:
    from qfr.front.closing import close_sweep

    found = check_grid([cell.config for cell in grid.cells])
    register_sweep(grid, sweep, name, found)
    plan = make_plan(grid, {}, "")
    err = console(stderr=True)
    if found is not None:
        err.print(found.line, markup=False, soft_wrap=True)
    for line in [f"sweep {sweep}: {head_line(plan)}", *note_lines(plan)]:
        err.print(line, markup=False, soft_wrap=True)
    returned = launch([job_overrides(walk, sweep) for walk in grid.walks])
    problems = {str(one): one for one in returned if isinstance(one, UserError)}
    outcomes = [one for one in returned if not isinstance(one, UserError)]
    cells: list[CellConfig] = [with_sweep(cell.config, sweep) for cell in grid.cells]
    EXIT_CODE.set(close_sweep(sweep, cells, outcomes))
    if problems:
        raise together(list(problems.values()))
    return outcomes


def register_sweep(grid: Grid, sweep: str, name: str, found: Under | None = None) -> None:
    """Create the store and the sweep's run in it, once and before any launcher: processes that create one
    database together break it. A registration that was found in a file only is put into the store too.

    Raises
    ------
    TrackingError
        The store cannot be had.
    """
    from qfr.front.closing import planned
    from qfr.tracking.store import open_store
    from qfr.tracking.sweep import open_sweep

    tracking = grid.cells[0].config.tracking
    store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
    tags: dict[str, str] = {}
    if found is not None:
        carry(found, tracking)
        tags = {"registration": found.id, "deviation": found.deviation}
    open_sweep(store, sweep, name=name, tags=tags, planned=planned([cell.config for cell in grid.cells]))


def job_overrides(walk: Walk, sweep: str) -> list[str]:
    """Overrides of the job that plays a walk."""
    kinds = ",".join(walk.kinds)
    return [*walk.cells[0].overrides, f"walk=[{kinds}]", f"sweep={sweep}"]


def _held(tracking: TrackingConfig, grid: Grid, use: str | None) -> tuple[Mapping[str, str], str]:
    """What the store holds of the grid's designs (under a registration, when one is used), and one line about
    the store. Creates nothing."""
    root = Path(tracking.root).expanduser()
    if tracking.uri is None and not (root / "mlflow.db").exists():
        # Without importing mlflow: a plan on a fresh machine is quick.
        return {}, f"none yet under {root}"
    from qfr.tracking.search import finished_designs
    from qfr.tracking.store import peek_store

    designs = {id_ for cell in grid.cells for id_ in (cell.design.design_id, cell.design.clean_design_id)}
    try:
        store = peek_store(tracking.uri, root, tracking.experiment)
        if store is None:
            return {}, f"no experiment {tracking.experiment!r} yet"
        under = None if use is None else find_record(use, tracking.uri, root).id
        held = finished_designs(store, designs, registration=under)
        return held, f"experiment {store.experiment!r} at {store.shown}"
    except TrackingError as error:
        # A plan is of use without the store; a run is not, and says so.
        return {}, f"cannot be read: {error.where or 'tracking'}: {error.what}"
