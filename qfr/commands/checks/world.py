"""Try a world of your own as a whole, before any model plays it.

    qfr world check my_world:Library --families lend=5

Plays every gold path; checks that calls leave the state they are given as it was, that records are JSON, that
the world's check accepts the right end and no other, that a suite made again is the same, and that no value
of a model breaks a tool. Exit code 0: nothing was found; 1: mistakes, with file and line. docs/worlds.md
shows how to write a world.

"""

from __future__ import annotations

import argparse

from qfr.canonical import Json, read_json
from qfr.commands.checks.world_checks import Mistake, check_world
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.world.base import Suite
from qfr.world.finding import default_families, names

_SHOWN = 20
# Mistakes that are printed: one in a tool comes back in every task.
# Tasks of each family that are tried when the command does not say how many.
_TASKS = 3
_EXAMPLE = """--options '{"shelves": 3}' """.strip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=["check"], help="what to do")
    parser.add_argument("world", help=f"module:factory, or one of {', '.join(names())}")
    parser.add_argument("--families", help="NAME=COUNT,…; left out = three tasks of each family")
    parser.add_argument("--seed", type=int, default=2026, help="of the suite")
    parser.add_argument("--suite-version", type=int, default=1, help="of the suite's generator")
    parser.add_argument("--grid", default="cents", help="amounts of the built-in worlds: cents or round")
    parser.add_argument("--options", default="{}", help="suite.options as a JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Check the world and print what was found."""
    families = _families(arguments.families) or dict.fromkeys(default_families(arguments.world), _TASKS)
    if not families:
        raise ConfigError(
            f"{arguments.world} does not say which families it has",
            where="--families",
            hint="--families NAME=3, or a class attribute: families = ('lend',)",
        )
    suite = Suite(
        families, arguments.seed, arguments.suite_version, arguments.grid, _options(arguments.options)
    )
    found = check_world(arguments.world, suite)
    out = console()
    for mistake in found.mistakes[:_SHOWN]:
        out.print(_line(mistake), markup=False, soft_wrap=True)
    if found.mistakes:
        out.print(f"mistakes found: {len(found.mistakes)}")
        return 1
    out.print(f"{arguments.world}: {found.summary}", markup=False, soft_wrap=True)
    return 0


def _line(mistake: Mistake) -> str:
    return f"{mistake.where}: {mistake.what}" + (f"\n  → {mistake.hint}" if mistake.hint else "")


def _families(text: str | None) -> dict[str, int]:
    pairs = [pair.partition("=") for pair in (text or "").split(",") if pair.strip()]
    for name, _, count in pairs:
        if not count.isdecimal():
            raise ConfigError(f"{name}={count}: no count", where="--families", hint="NAME=COUNT,NAME=COUNT")
    return {name.strip(): int(count) for name, _, count in pairs}


def _options(text: str) -> dict[str, Json]:
    try:
        options = read_json(text)
    except ValueError as error:
        raise ConfigError(f"no JSON ({error})", where="--options", hint=_EXAMPLE) from None
    if not isinstance(options, dict):
        raise ConfigError("it is no JSON object", where="--options", hint=_EXAMPLE)
    return options
