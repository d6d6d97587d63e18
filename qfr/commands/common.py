"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfr.errors import TrackingError
from qfr.stats.intervals import Method
from qfr.tracking.store import Store, peek_store


def add_store(parser: argparse.ArgumentParser) -> None:
    """Where runs are: the same defaults as `conf/tracking/default.yaml`."""
    group = parser.add_argument_group("store")
    group.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    group.add_argument("--root", default="mlruns", help="folder of the local store")
    group.add_argument(
        "--experiment", action="append", help="MLflow experiment, may be repeated (left out = qfr)"
    )
    group.add_argument("--filter", default="", help="MLflow filter on runs: \"params.model = 'llama'\"")
    group.add_argument("--sweep", help="only the cells that this sweep planned (s-…)")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """How intervals are computed."""
    group = parser.add_argument_group("intervals")
    group.add_argument(
        "--method", default="exact", type=Method, choices=list(Method), help="of the bootstrap"
    )
    group.add_argument("--resamples", default=20_000, type=positive, help="montecarlo: number of resamples")
    group.add_argument("--seed", default=20260101, type=int, help="montecarlo: seed")


def experiments(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Names of the asked experiments, the default where none is."""
    return tuple(arguments.experiment or ("qfr",))


def existing_store(arguments: argparse.Namespace) -> Store:
    """The store that the options name.

    Raises
    ------
    TrackingError
        There is no such store or experiment.
    """
    first = experiments(arguments)[0]
    store = peek_store(arguments.uri, Path(arguments.root), first)
    if store is None:
        raise TrackingError(
            f"there is no store with an experiment {first!r} yet",
            where=arguments.uri or arguments.root,
            hint="run a grid first, or name the store: --root FOLDER, --uri URI, --experiment NAME",
        )
    return store


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too small: at least 1")
    return value


def points(text: str) -> float:
    """A number of points above 0 and up to 100, for argparse."""
    value = float(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not a number of points above 0 and up to 100")
    return value


def not_negative(text: str) -> int:
    """An integer of at least 0, for argparse."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value
