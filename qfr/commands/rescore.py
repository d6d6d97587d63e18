"""Compute scores and the clean screen anew, from the episode logs alone.

Loads no model and no llama.cpp; the GGUF files may be gone. The new table stands beside the old ones as
scores/<policy>@<version>.parquet and is never written over; `qfr report --policy-version VERSION` reads it.
"""

from __future__ import annotations

import argparse
import re

from rich.table import Table

from qfr.commands.common import add_store, existing_store, experiments, positive
from qfr.errors import ConfigError, TrackingError
from qfr.grid.show import console
from qfr.records import FaultKind, Policy
from qfr.scoring import SCORER_VERSION
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.writing.rescoring import Rescored, add_loops, rescore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    parser.add_argument(
        "--policy",
        type=Policy,
        choices=list(Policy),
        action="append",
        help="may be repeated (left out = both)",
    )
    parser.add_argument(
        "--policy-version", default=str(SCORER_VERSION), help="name of the new scores: letters, digits, - . _"
    )
    parser.add_argument(
        "--ep-min-calls", default=2, type=positive, help="EP: calls of the dead tool before a report counts"
    )


def run(arguments: argparse.Namespace) -> int:
    """Rescore every finished cell that the options name."""
    version = arguments.policy_version
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", version):
        raise ConfigError(
            f"--policy-version {version!r} is no plain name", hint="letters, digits, '-', '.', '_'"
        )
    store = existing_store(arguments)
    if store.read_only:
        raise TrackingError(
            "the store is read-only: no scores can be added", where=store.shown, hint="rescore a copy of it"
        )
    reading = read_cells(
        store, experiments=experiments(arguments), condition=arguments.filter, sweep=arguments.sweep
    )
    parts = [part for whole in reading.cells for part in whole.parts or (whole,)]
    added = sum([add_loops(store, part) for part in parts])
    done = [
        rescore(store, cell, policy, version, ep_min_calls=arguments.ep_min_calls)
        for cell in parts
        for policy in arguments.policy or list(Policy)
    ]
    console().print(_table(done, version))
    if added:
        console().print(f"{added} of {len(parts)} runs had no table of repeated calls yet: added.")
    return 0


def _table(done: list[Rescored], version: str) -> Table:
    table = Table(title=f"Scores of version {version}", title_justify="left", title_style="bold")
    for name in ("cell", "policy", "episodes", "successes", "certified", "table"):
        table.add_column(name, justify="right" if name in ("episodes", "successes", "certified") else "left")
    for one in done:
        clean = one.cell.facts.fault == FaultKind.none
        table.add_row(
            one.cell.facts.name,
            str(one.policy),
            str(one.episodes),
            str(one.successes),
            str(one.successes) if clean else "",
            f"{one.artifact} ({'new' if one.new else 'stood there already'})",
        )
    return table
