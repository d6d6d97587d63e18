"""What compare, pick and power share: the cells behind a preset, run or sweep, and their options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from qfr.analysis.decisions.cells import of_preset, of_run
from qfr.analysis.decisions.verdict import TARGETS, Rule
from qfr.analysis.targets import Target, TaskTable
from qfr.commands.common import existing_store, experiments, points
from qfr.config import PRESET_BITS
from qfr.errors import ConfigError, did_you_mean
from qfr.facts import CellFacts
from qfr.records import Policy
from qfr.report.tables.ranking import ONE_LOOK
from qfr.scope import NAMES, group, varying
from qfr.scoring import SCORER_VERSION
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import Reading, read_cells
from qfr.tracking.store import Store

ANY_LOOK = (
    "The 5 % hold for a prompt, target and policy chosen beforehand, however often you ask while tasks are "
    "added in one mix of families."
)
_AXES = ("model", "prompt", "fault", "suite")
#: What a row of a comparison says by itself: cells may differ in it without being another question.
_NAMED = ("quant", "model", "prompt", "fault", "executor")


@dataclass(frozen=True)
class Side:
    """What stands behind a name on the command line."""

    cells: tuple[LoggedCell, ...]
    # Finished.
    lacking: tuple[str, ...]
    # Cells that are not finished, with their state.
    named: bool = False
    # By a run or a sweep; a preset's cells may be of several questions.


def add_decision(parser: argparse.ArgumentParser) -> None:
    """What is decided."""
    parser.add_argument(
        "--target", default=Target.full, type=Target, choices=TARGETS, help="what is compared"
    )
    parser.add_argument(
        "--margin", default=5.0, type=points, help="acceptable loss, in points (above 0, up to 100)"
    )
    parser.add_argument(
        "--policy", default=Policy.tolerant, type=Policy, choices=list(Policy), help="scoring policy"
    )
    parser.add_argument(
        "--policy-version", default=str(SCORER_VERSION), help="which logged scores (see qfr rescore)"
    )


def add_sequential(parser: argparse.ArgumentParser) -> None:
    """Whether one may ask again."""
    parser.add_argument(
        "--sequential",
        action="store_true",
        help="decide by a test that holds however often you ask while tasks are added (it needs more)",
    )


def rule_of(arguments: argparse.Namespace) -> Rule:
    """What is decided, as the options say.

    Raises
    ------
    ConfigError
        The sequential test needs the same tasks on both sides.
    """
    if arguments.sequential and arguments.target is Target.own:
        raise ConfigError(
            "--sequential needs tasks that both sides share, and --target own compares two sets of tasks",
            hint="--target full, matched or clean",
        )
    return Rule(arguments.target, arguments.margin / 100, sequential=arguments.sequential)


def looks_note(arguments: argparse.Namespace) -> str:
    """For how many looks the verdicts hold."""
    return ANY_LOOK if arguments.sequential else ONE_LOOK


def add_axes(parser: argparse.ArgumentParser) -> None:
    """Which cells."""
    for name in _AXES:
        parser.add_argument(f"--{name}", help=f"only cells of this {name}")


def read(arguments: argparse.Namespace) -> tuple[Store, Reading]:
    """Read all finished cells that the store options name."""
    store = existing_store(arguments)
    reading = read_cells(
        store,
        experiments=experiments(arguments),
        condition=arguments.filter,
        sweep=arguments.sweep,
        score_version=arguments.policy_version,
    )
    return store, reading


def side(store: Store, reading: Reading, name: str, arguments: argparse.Namespace) -> Side:
    """Return the cells behind a preset, run or sweep, along the asked axes.

    Raises
    ------
    UserError
        Nothing bears this name, or an axis has no such level.
    """
    finished, unfinished = reading.cells, reading.unfinished
    named = True
    planned: tuple[str, ...] = ()
    if name.startswith("s-"):
        of_it = read_cells(
            store,
            experiments=experiments(arguments),
            condition=arguments.filter,
            sweep=name,
            score_version=arguments.policy_version,
        )
        finished, unfinished = of_it.cells, of_it.unfinished
        begun = {cell.facts.design_id for cell in unfinished}
        planned = tuple(
            f"{one.name}: planned and never begun" for one in of_it.missing if one.design_id not in begun
        )
    elif re.fullmatch(r"[0-9a-f]{6,32}|c-[0-9a-f]{16}", name):
        finished, unfinished = of_run(finished, name), of_run(unfinished, name)
        if not finished and not unfinished:
            raise ConfigError(
                f"no run {name!r}, or not the newest finished one of its cell",
                where=store.shown,
                hint="a run's id stands in MLflow, and in the provenance of the report",
            )
    else:
        named = False
        finished, unfinished = of_preset(finished, name), of_preset(unfinished, name)
        if not finished and not unfinished:
            _known_preset(name, reading)
    require_levels(reading, arguments)
    kept = tuple(cell for cell in finished if _asked(cell.facts, arguments))
    lacking = tuple(
        f"{cell.facts.name}: {cell.failure or cell.status.lower()}"
        for cell in unfinished
        if _asked(cell.facts, arguments)
    )
    return Side(kept, (*lacking, *planned), named)


def one_question(tables: Sequence[TaskTable], whose: str, arguments: argparse.Namespace) -> None:
    """Raise `ConfigError` if tables of one preset differ in more than what a comparison names in every row.

    A sweep was composed as one question, whatever varies in it; a whole store may hold several.
    """
    if arguments.sweep is not None:
        return
    found = group(tables, _NAMED, of=lambda table: table.scope)
    if len(found) < 2:
        return
    open_keys = varying([one.fixed for one in found])
    told = "; ".join(f"{key}: {', '.join(values)}" for key, values in open_keys)
    suites = next((values for key, values in open_keys if key == NAMES["suite"]), ())
    hint = f"--suite {suites[0]} (or another)" if suites else "--filter \"params.… = '…'\""
    raise ConfigError(
        f"the finished cells of {whose} differ in more than the question ({told})",
        hint=f"{hint} or --sweep s-… chooses which of them are meant",
    )


def _asked(facts: CellFacts, arguments: argparse.Namespace) -> bool:
    return all(getattr(arguments, name) in (None, getattr(facts, name)) for name in _AXES)


def require_levels(reading: Reading, arguments: argparse.Namespace) -> None:
    """Raise `ConfigError` if an asked model, prompt, fault or suite was never run."""
    for name in _AXES:
        asked = getattr(arguments, name)
        known = sorted({getattr(cell.facts, name) for cell in (*reading.cells, *reading.unfinished)})
        if asked is not None and known and asked not in known:
            raise ConfigError(
                f"--{name} {asked}: no run has it{did_you_mean(asked, known)}", hint=_listed(known)
            )


def _known_preset(name: str, reading: Reading) -> None:
    held = sorted({cell.facts.quant.lower() for cell in reading.cells})
    if name.upper() not in PRESET_BITS:
        raise ConfigError(
            f"{name!r} is no preset, run or sweep{did_you_mean(name, [*held, *PRESET_BITS])}",
            hint=_listed(held),
        )


def _listed(names: Sequence[str]) -> str:
    return "finished are " + ", ".join(names) if names else "nothing is finished in this store"
