"""Play random finished cells again and compare every byte with the log.

The rerun happens beside the store: no run, no log and no journal is written or changed. The configuration and
the prompt are those that the run recorded; the model file is looked for where the run found it. On the same
build, file and device every episode must come out the same, logits included.

With --streams N the cells are played with another number of streams, and what differs is counted: more
episodes in a batch move the last bits of the logits, which may turn a near-tie.

Exit code: 0 all the same; 1 something differs (named), or finished runs of one cell disagree; 2 nothing can
be said: no such store, or a chosen cell cannot be played here.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.audit.replay import NOT_PLAYED, Rerun, finished_run, first_difference, rerun
from qfr.cell import Key, key_of
from qfr.commands.checks.audit_streams import count_streams
from qfr.commands.common import add_store, existing_store, experiments, positive
from qfr.errors import LogError, QfrError, TrackingError
from qfr.grid.show import console
from qfr.play.engine_cache import Shelf
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import Alarm, read_cells
from qfr.tracking.store import Store

_ENGINES = ("llama_cpp", "scripted")
_MOST_NAMED = 10


@dataclass(frozen=True)
class Audited:
    """What became of one chosen cell."""

    cell: LoggedCell
    rerun: Rerun | None
    # None when it could not be played.
    problem: str
    # Why not, or what is wrong with the log; empty otherwise.
    damaged: bool
    # The log itself is not what the run says.

    @property
    def comparable(self) -> bool:
        """It was played on the recorded build, file and device."""
        return self.rerun is not None and not self.rerun.elsewhere

    @property
    def differs(self) -> bool:
        """Some episode is not as logged, or the log is damaged."""
        return self.damaged or (self.rerun is not None and bool(self.rerun.comparison.bytes))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument("--cells", type=positive, default=3, metavar="N", help="random finished cells")
    parser.add_argument(
        "--episodes",
        type=positive,
        nargs="?",
        const=5,
        metavar="K",
        help="of each cell only K random episodes (K left out = 5) instead of all",
    )
    parser.add_argument("--seed", type=int, help="of the choice; left out = another one each time, printed")
    parser.add_argument(
        "--streams",
        type=positive,
        metavar="N",
        help="play them with engine.streams=N instead, and count the texts and scores that differ",
    )
    parser.add_argument(
        "--other-build",
        action="store_true",
        help="also compare where the build, the model file or the device is not the recorded one",
    )


def run(arguments: argparse.Namespace) -> int:
    """Choose, play, compare, and say it by the exit code."""
    store = existing_store(arguments)
    reading = read_cells(
        store, experiments=experiments(arguments), condition=arguments.filter, sweep=arguments.sweep
    )
    known = [cell for cell in reading.cells if cell.facts.engine in _ENGINES]
    if not known:
        raise TrackingError(
            "no finished cell to play again",
            where=store.shown,
            hint="run a grid first (python run.py …), or look at --experiment, --filter and --sweep",
        )
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    if seed < 0:
        raise TrackingError(f"--seed {seed} is too small", hint="use an integer of at least 0")
    chance = np.random.default_rng(seed)
    chosen = choose(known, arguments.cells, chance)
    out = console()
    out.print(
        f"playing {len(chosen)} of {len(known)} finished cells again (--seed {seed})",
        style="bold",
        soft_wrap=True,
    )
    shelf = Shelf()
    try:
        if arguments.streams is not None:
            return count_streams(store, chosen, shelf, arguments.streams, out)
        done = [
            audit(store, cell, shelf, arguments.episodes, chance, other_build=arguments.other_build)
            for cell in chosen
        ]
    finally:
        shelf.clear()
    return show(done, reading.alarms, out)


def choose(cells: Sequence[LoggedCell], count: int, chance: np.random.Generator) -> list[LoggedCell]:
    """`count` random cells; those of one model file stand side by side, so that it is loaded once."""
    # By id: the choice must not depend on when a cell was run.
    ordered = sorted(cells, key=lambda cell: cell.facts.cell_id)
    picked = chance.permutation(len(ordered))[:count]
    return sorted(
        (ordered[int(at)] for at in picked), key=lambda c: (c.facts.model_sha256, c.facts.n_ctx, c.facts.name)
    )


def audit(
    store: Store,
    cell: LoggedCell,
    shelf: Shelf,
    episodes: int | None,
    chance: np.random.Generator,
    *,
    other_build: bool,
) -> Audited:
    """Play one cell again; what keeps it from being played becomes part of the result."""
    try:
        finished = finished_run(store, cell)
    except LogError as error:
        return Audited(cell, None, str(error), damaged=True)
    except QfrError as error:
        return Audited(cell, None, str(error), damaged=False)
    only: frozenset[Key] | None = None
    if episodes is not None:
        keys = sorted(key_of(one) for one in finished.episodes)
        picked = chance.permutation(len(keys))[:episodes]
        only = frozenset(keys[int(at)] for at in picked)
    try:
        found = rerun(finished, shelf, only=only)
    except NOT_PLAYED as error:
        shelf.clear()
        return Audited(cell, None, str(error), damaged=False)
    if found.elsewhere and not other_build:
        return Audited(cell, None, "it ran elsewhere: " + "; ".join(found.elsewhere), damaged=False)
    return Audited(cell, found, "", damaged=False)


def show(done: Sequence[Audited], alarms: Sequence[Alarm], out: Console) -> int:
    """Print what was found.

    Returns
    -------
    int
        The exit code.
    """
    table = Table(title="Played again", title_justify="left", title_style="bold")
    for name in ("cell", "run", "episodes", "differ", "of them texts", "of them scores", ""):
        left = name in ("cell", "run", "")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for one in done:
        counts: tuple[str, ...] = ("", "", "", "")
        if one.rerun is not None:
            found = one.rerun.comparison
            counts = tuple(map(str, (found.episodes, *map(len, (found.bytes, found.texts, found.scores)))))
        table.add_row(escape(one.cell.facts.name), one.cell.run_id[:8], *counts, _verdict(one))
    out.print(table)
    for one in done:
        for line in _lines(one):
            out.print(line, markup=False, soft_wrap=True)
    for alarm in alarms:
        runs = ", ".join(f"run {run} has log {digest[:12]}" for run, digest in alarm.runs)
        out.print(f"Not deterministic: finished runs of {alarm.name} ({alarm.cell_id}) disagree: {runs}",
                  markup=False, soft_wrap=True)  # fmt: skip
    return _conclude(done, alarms, out)


def _conclude(done: Sequence[Audited], alarms: Sequence[Alarm], out: Console) -> int:
    wrong = sum(one.differs for one in done)
    unplayed = sum(one.problem != "" and not one.damaged for one in done)
    elsewhere = sum(one.rerun is not None and not one.comparable for one in done)
    if wrong or alarms:
        out.print(f"NOT the same: {wrong} of {len(done)} cells differ.", style="bold red")
    elif unplayed:
        out.print(
            f"Not shown: {unplayed} of {len(done)} cells could not be played here.", style="bold yellow"
        )
    else:
        same = "byte for byte" if not elsewhere else "byte for byte, some of it on another build or machine"
        out.print(f"The same: all {len(done)} cells, {same}.", style="bold green")
    return 1 if wrong or alarms else 2 if unplayed else 0


def _verdict(one: Audited) -> str:
    if one.damaged:
        return "[bold red]log damaged[/]"
    if one.rerun is None:
        return "[yellow]not played[/]"
    if one.differs:
        return "[bold red]DIFFERENT[/]"
    return "[green]same[/]" if one.comparable else "[green]same, elsewhere[/]"


def _lines(one: Audited) -> list[str]:
    """What is to be said of a cell below the table."""
    name = f"{one.cell.facts.name} (run {one.cell.run_id})"
    if one.rerun is None:
        return [f"{name}: {one.problem}"]
    lines = [f"{name} ran elsewhere: {text}" for text in one.rerun.elsewhere]
    logged = {key_of(episode): episode for episode in one.rerun.finished.episodes}
    played = {key_of(episode): episode for episode in one.rerun.played}
    keys = one.rerun.comparison.bytes
    for key in keys[:_MOST_NAMED]:
        where = f"{key[0]}, site {key[1]}" if key[1] >= 0 else key[0]
        lines.append(f"{name}: {where}: {first_difference(logged.get(key), played.get(key))}")
    return lines + ([f"{name}: … and {len(keys) - _MOST_NAMED} more"] if len(keys) > _MOST_NAMED else [])
