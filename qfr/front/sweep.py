"""A sweep from composed points to its exit code: validate, then plan, register or launch, then close."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from qfr.canonical import canonical
from qfr.config import CellConfig, EngineKind, Mode, TrackingConfig
from qfr.engine.pool import tell_jobs
from qfr.errors import ConfigError, TrackingError, UserError
from qfr.front.compose import to_cell
from qfr.front.exit_code import EXIT_CODE
from qfr.front.load import Workers, load_lines, side_by_side
from qfr.front.shared_store import check_store, store_notes
from qfr.grid.grid import Grid, Point, Walk, build_grid, name_of, together, with_sweep
from qfr.grid.outcomes import JobOutcome
from qfr.grid.plan import make_plan, refuse_unusable
from qfr.grid.prompt_notes import prompt_lines
from qfr.grid.show import console, head_line, note_lines, show_plan, skipped_lines
from qfr.play.hours import hours_lines
from qfr.play.progress import announce
from qfr.play.timings import SPENT, time_line
from qfr.registration.run_under import Under, carry, check_grid, find_record

if TYPE_CHECKING:
    from qfr.play.sharing import Job, Launch
    from qfr.tracking.store import Store
    from qfr.tracking.writing.claims import Claimant

# Of the value of a param of the sweep's run; longer lists are cut.
_LONGEST_PARAM = 500
# What answered, in the line of times.
_ENGINES = {
    EngineKind.llama_cpp: "llama.cpp",
    EngineKind.scripted: "scripted agent",
    EngineKind.openai: "server",
}


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
    return Point(tuple(overrides), choices, entries, cache(lambda: to_cell(cfg)))


def run_sweep(
    points: Sequence[Point],
    choices_of: Callable[[str], Sequence[str]],
    sweep: str,
    launch: Launch,
    workers: Workers,
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
        Runs jobs; returns what they returned.
    workers : Workers
        Of the launcher.

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
        plan = make_plan(grid, held, store)
        show_plan(plan, console())
        more = [*load_lines(grid, workers, os.cpu_count()), *store_notes(tracking, workers)]
        more += hours_lines(grid, held, tracking)
        for line in [*prompt_lines(grid.cells), *more]:
            console().print(line, markup=False, soft_wrap=True)
        refuse_unusable(plan)
        return ()
    if mode is Mode.register:
        from qfr.registration.register import register_grid

        register_grid(grid, console())
        return ()
    title = points[0].choices.get("experiment", "grid")
    check_store(tracking, workers)
    tell_jobs(side_by_side(workers, len(grid.walks)))
    for line in store_notes(tracking, workers):
        console(stderr=True).print(line, markup=False, soft_wrap=True)
    return _run(grid, sweep, f"{title} {sweep}", launch)


def _run(grid: Grid, sweep: str, name: str, launch: Launch) -> Sequence[object]:
    from qfr.closing.summary import close_sweep
    from qfr.play.sharing import run_jobs
    from qfr.play.waiting import Patience, briefly
    from qfr.tracking.writing.claims import Heartbeat
    from qfr.tracking.writing.sweep import kill_sweep

    found = check_grid([cell.config for cell in grid.cells])
    tracking, err = grid.cells[0].config.tracking, console(stderr=True)
    store, run_id, who = register_sweep(grid, sweep, name, found)
    plan = make_plan(grid, {}, "")

    def say(line: str) -> None:
        err.print(line, markup=False, soft_wrap=True)

    for line in [
        *([found.line] if found else []),
        f"sweep {sweep}: {head_line(plan)}",
        *note_lines(plan),
        *prompt_lines(grid.cells),
    ]:
        say(line)
    patience = Patience(tracking.patience, say)
    for line in patience.call("looking for runs of dead processes", lambda: left_running(store, grid, who)):
        say(line)
    cells: list[CellConfig] = [with_sweep(cell.config, sweep) for cell in grid.cells]
    try:
        with Heartbeat(store, [run_id], who):
            jobs = [job_of(walk, sweep) for walk in grid.walks]
            announce(len(jobs))
            returned = run_jobs(jobs, launch, tracking, "" if found is None else found.id, say)
        outcomes = [one for one in returned if not isinstance(one, UserError)]
        for line in skipped_lines(outcomes):
            say(line)
        EXIT_CODE.set(close_sweep(sweep, cells, outcomes, broken=len(outcomes) < len(returned)))
        parts = [one.spent for one in outcomes if isinstance(one, JobOutcome)]
        say(time_line([*parts, SPENT.take()], SPENT.wall, engine=_ENGINES[cells[0].engine.kind]))
    except KeyboardInterrupt:
        if problem := briefly(lambda: kill_sweep(store, run_id)):
            say(f"the sweep's run may still say RUNNING: {problem}")
        raise
    problems = {str(one): one for one in returned if isinstance(one, UserError)}
    if problems:
        raise together(list(problems.values()))
    return outcomes


def register_sweep(
    grid: Grid, sweep: str, name: str, found: Under | None = None
) -> tuple[Store, str, Claimant]:
    """Create the store and the sweep's run in it, once and before any launcher: processes that create one
    database together break it. A registration that was found in a file only is put into the store too.

    Returns
    -------
    tuple
        The store, MLflow's id of the sweep's run, and this process as it claims runs.

    Raises
    ------
    TrackingError
        The store cannot be had.
    """
    from qfr.closing.summary import planned
    from qfr.closing.unchanged import SETTINGS_TAG, report_settings
    from qfr.places import data_folder
    from qfr.play.recording import finished_file
    from qfr.play.run_facts import git_state
    from qfr.play.waiting import Patience
    from qfr.tracking.reading.search import finished_cells
    from qfr.tracking.store import open_store
    from qfr.tracking.writing.claims import Claimant
    from qfr.tracking.writing.descriptions import NOTE_TAG, describe_sweep
    from qfr.tracking.writing.owner import source_tags, this_process
    from qfr.tracking.writing.sweep import open_sweep

    tracking = grid.cells[0].config.tracking
    store = open_store(tracking.uri, Path(tracking.root), tracking.experiment)
    who = Claimant(this_process(store.root), tracking.stale_after)
    configs = [cell.config for cell in grid.cells]
    tags = dict(who.me.tags) | source_tags(git_state(str(data_folder()))[0])
    tags |= {
        SETTINGS_TAG: report_settings(configs[0]),
        NOTE_TAG: describe_sweep(len(configs), axes_of(configs)),
    }
    if found is not None:
        carry(found, tracking)
        tags |= {"registration": found.id, "deviation": found.deviation}
    cells = planned(configs)
    patience = Patience(tracking.patience, lambda line: console(stderr=True).print(line, markup=False))
    run_id = patience.call(
        "opening the sweep",
        lambda: open_sweep(store, sweep, name=name, tags=tags, planned=cells, params=params_of(grid)),
    )
    # What is known of finished cells if MLflow goes away later.
    under = None if found is None else found.id
    known = patience.call(
        "looking what is finished", lambda: finished_cells(store, _designs(grid), registration=under)
    )
    note = finished_file(store.root, sweep)
    with suppress(OSError):
        # On a full disk it is not known, and cells may be played again while MLflow is away.
        note.parent.mkdir(exist_ok=True)
        note.write_text(canonical(known))
    return store, run_id, who


def axes_of(cells: Sequence[CellConfig]) -> list[tuple[str, list[str]]]:
    """What varies in a grid and what does not, for its description."""
    return [
        ("models", [one.model.name for one in cells]),
        ("presets", [one.quant.preset for one in cells]),
        ("prompts", [one.prompt.name for one in cells]),
        ("faults", [str(one.fault.kind) for one in cells]),
        ("suites", [one.suite.name for one in cells]),
    ]


def params_of(grid: Grid) -> dict[str, str]:
    """What a grid spans, as the params of its sweep's run; the build where llama.cpp plays it."""
    spans = {name: dict.fromkeys(values) for name, values in axes_of([one.config for one in grid.cells])}
    commits = dict.fromkeys(one.design.llama_commit for one in grid.cells if one.design.llama_commit)
    found = {name: ", ".join(values)[:_LONGEST_PARAM] for name, values in spans.items()}
    return found | {"cells": str(len(grid.cells))} | ({"llama_commit": ", ".join(commits)} if commits else {})


def left_running(store: Store, grid: Grid, who: Claimant) -> list[str]:
    """Mark runs of dead processes KILLED; those of this grid are taken over by its walks."""
    from qfr.tracking.writing.claims import reap

    return reap(store, who, _designs(grid))


def job_of(walk: Walk, sweep: str) -> Job:
    """The job that plays a walk."""
    kinds, first = ",".join(walk.kinds), walk.cells[0]
    from qfr.play.sharing import Job

    overrides = [*first.overrides, f"walk=[{kinds}]", f"sweep={sweep}"]
    designs = {cell.design.design_id for cell in walk.cells} | {first.design.clean_design_id}
    return Job(
        name=name_of(first.config).rpartition(" ")[0],
        cell=dataclasses.replace(first.config, walk=list(walk.kinds), sweep=sweep),
        overrides=overrides,
        designs=frozenset(designs),
        clean_design=first.design.clean_design_id,
    )


def _designs(grid: Grid) -> set[str]:
    return {id_ for cell in grid.cells for id_ in (cell.design.design_id, cell.design.clean_design_id)}


def _held(tracking: TrackingConfig, grid: Grid, use: str | None) -> tuple[Mapping[str, str], str]:
    """What the store holds of the grid's designs (under a registration, when one is used), and one line about
    the store. Creates nothing."""
    root = Path(tracking.root).expanduser()
    if tracking.uri is None and _absent(root / "mlflow.db"):
        # Without importing mlflow: a plan on a fresh machine is quick.
        return {}, f"none yet under {root}"
    from qfr.tracking.reading.search import finished_designs
    from qfr.tracking.store import peek_store

    designs = _designs(grid)
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


def _absent(path: Path) -> bool:
    """Nothing is there. Where that cannot be seen, opening the store says why."""
    try:
        return not path.exists()
    except PermissionError:
        return False
