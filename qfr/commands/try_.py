"""From GGUF files to one named file: the smallest that is shown not to be worse than the largest.

  qfr try FOLDER
  qfr try model-F16.gguf model-Q8_0.gguf model-Q4_K_M.gguf --margin 5 --max-gb 6

It reads the headers, groups the files by model, takes the largest of each as its reference, and plays
tool-using tasks in which one call fails, in waves of about thirty tasks. Files are tested from large to
small, until it is known; however often it looks, a file that is too bad is named in 5 % of cases at most.
It asks nothing. Stopped or killed, the same command goes on where it was.

Exit code 0 when a file is named for every model, 1 when one cannot be named yet, 2 for an error of the user.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from qfr.analysis.decisions.pick import GB
from qfr.analysis.decisions.sequential import Look
from qfr.analysis.decisions.verdict import Rule
from qfr.analysis.decisions.words import size
from qfr.commands.pick import positive_gb
from qfr.commands.sides import margin_points
from qfr.config import CellConfig, PromptConfig
from qfr.engine.files.memory import need, require_room, room_here
from qfr.errors import ConfigError, EngineError
from qfr.front.models import compose_cell, model_names
from qfr.grid.show import console
from qfr.places import conf_folder
from qfr.sequential.files import Arm, Family, Refused, listed, sort_files
from qfr.sequential.looks import write_looks
from qfr.sequential.sequence import Answer, run_sequence
from qfr.sequential.waves import Player, cache_of
from qfr.sequential.words import look_line, told

_SUITE, _REFERENCE_SUITE = "orders450_v2", "orders450_ref"
_EACH = 450
# Tasks of each family of the default suite: 900 in all.
_CACHES = ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("places", nargs="+", metavar="FILE|FOLDER", help="GGUF files, or folders of them")
    parser.add_argument(
        "--margin", default=5.0, type=margin_points, help="acceptable loss, in points (above 0, up to 100)"
    )
    parser.add_argument("--max-gb", type=positive_gb, help="largest file that may be named, in 10^9 bytes")
    parser.add_argument(
        "--hours", default=24.0, type=positive_gb, help="begin no wave after that time; what is known is said"
    )
    parser.add_argument("--suite", help="the tasks (left out = 900 order tasks of two kinds)")
    parser.add_argument("--prompt", default="P0", help="system prompt: P0 … P4, or a text file")
    parser.add_argument("--executor", default="tolerant", help="how a turn becomes a call")
    parser.add_argument("--kv", default="f16", choices=_CACHES, help="type of the key-value cache")
    parser.add_argument("--root", default="mlruns", help="folder of the store, the journals and the drawings")


def run(arguments: argparse.Namespace) -> int:
    """Try every model that the files hold."""
    out = console()

    def say(line: str) -> None:
        out.print(line, markup=False, soft_wrap=True)

    base = _base(arguments, None)
    found = sort_files(listed(arguments.places), cache_of(base), lambda line: None)
    for one in found.refused:
        say(f"left out: {one.path.name}: {one.reason}")
    if not found.families:
        raise ConfigError("no file can be tried", hint="the lines above say why")
    named = True
    for family in found.families:
        answer = _try(family, arguments, say)
        named = named and answer is not None and answer.chosen is not None
    return 0 if named else 1


def _base(arguments: argparse.Namespace, family: Family | None) -> CellConfig:
    """Everything but the file, as the front door composes it; a reference agent brings its own suite."""
    agent = None if family is None else _agent(family)
    suite = arguments.suite or (_REFERENCE_SUITE if agent else _SUITE)
    known = (conf_folder() / "prompt" / f"{arguments.prompt}.yaml").exists()
    overrides = [f"model={agent or 'local'}", f"suite={suite}", "fault=et", f"executor={arguments.executor}"]
    base = compose_cell(*overrides, *([f"prompt={arguments.prompt}"] if known else []))
    engine = dataclasses.replace(base.engine, type_k=arguments.kv, type_v=arguments.kv)
    if arguments.kv != "f16":
        # llama.cpp quantizes the values of the cache under flash attention only.
        engine = dataclasses.replace(engine, flash_attn=True)
    if agent is None:
        threads = len(os.sched_getaffinity(0))
        engine = dataclasses.replace(engine, n_threads=threads, n_threads_batch=threads)
    tasks = base.suite
    if arguments.suite is None:
        families = dict.fromkeys(tasks.families, _EACH)
        tasks = dataclasses.replace(tasks, name=f"{suite}_{sum(families.values())}", families=families)
    return dataclasses.replace(
        base,
        engine=engine,
        suite=tasks,
        prompt=base.prompt if known else _own_prompt(arguments.prompt, base.prompt),
        tracking=dataclasses.replace(base.tracking, root=arguments.root),
    )


def _agent(family: Family) -> str | None:
    """The reference agent of this project that the files are presets of; None for any other model."""
    values = dict(family.reference.facts.metadata)
    own = values.get("qfr.reference_agent") == "True" and family.reference.facts.name in model_names()
    return family.reference.facts.name if own else None


def _own_prompt(given: str, base: PromptConfig) -> PromptConfig:
    path = Path(given).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"--prompt {given}: neither a prompt of qfr nor a file", hint="P0 … P4, or a text file"
        )
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in path.stem)
    return dataclasses.replace(base, name=name, file=str(path.absolute()), sha256=None, worlds=None)


def _try(family: Family, arguments: argparse.Namespace, say: Callable[[str], None]) -> Answer | None:
    """Try the files of one model and say the answer. None where fewer than two can be compared."""
    base = _base(arguments, family)
    fitting, refused = _fit(family, base)
    for one in refused:
        say(f"left out: {one.path.name}: {one.reason}")
    if fitting is None or len(fitting.arms) < 2:
        say(f"{family.name}: one file alone cannot be compared: add a larger one, such as F16 or Q8_0")
        return None
    max_bytes = (arguments.max_gb or float("inf")) * GB
    rule = Rule(margin=arguments.margin / 100)
    player = Player(base, fitting.name, fitting.arms, say)
    for line in plan_lines(fitting, base, player.waves, max_bytes):
        say(line)
    found: list[tuple[Arm, Look]] = []
    folder = Path(base.tracking.root) / "try" / player.sweep

    def tell(arm: Arm, one: Look, number: int) -> None:
        found.append((arm, one))
        say(look_line(arm, one, rule.margin))
        write_looks(folder, found, rule)
        player.log(_metrics(arm, one), one.n)

    player.open()
    finished = False
    try:
        answer = run_sequence(fitting, player, rule, max_bytes, arguments.hours, tell)
        finished = True
    finally:
        player.close(killed=not finished)
    for line in told(answer, arguments.max_gb, base):
        say(line)
    if found:
        say(f"  every look, drawn: {folder / 'looks.svg'}")
    return answer


def _metrics(arm: Arm, one: Look) -> dict[str, float]:
    name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in arm.label)
    figures = {"estimate": one.estimate, "low": one.low, "high": one.high}
    figures |= {"capital_not_worse": one.not_worse, "capital_worse": one.worse}
    return {f"look.{name}.{key}": value for key, value in figures.items()}


def _fit(family: Family, base: CellConfig) -> tuple[Family | None, list[Refused]]:
    """Leave out files that this machine's memory cannot hold; GPUs are asked by the engine itself."""
    kept, refused = [], []
    for arm in family.arms:
        try:
            needed, room = (
                need(arm.path, base.engine, base.engine.n_ctx or 4096, offload=False),
                room_here((), base.engine),
            )
            if needed is not None and room is not None:
                require_room(arm.path, needed, room)
            kept.append(arm)
        except EngineError as error:
            refused.append(Refused(arm.path, error.what))
    return (dataclasses.replace(family, arms=tuple(kept)) if kept else None), refused


def plan_lines(family: Family, base: CellConfig, waves: int, max_bytes: float) -> list[str]:
    """What will be done, and what it takes."""
    tasks = sum(base.suite.families.values())
    reference, largest = family.reference, family.arms[0].bytes
    lines = [
        f"{family.name}: {len(family.arms)} files, reference {reference.label} ({size(reference.bytes)}), "
        f"prompt {base.prompt.name}, suite {base.suite.name}: up to {tasks} tasks in {waves} waves"
    ]
    for arm in family.arms[1:]:
        fits = "" if arm.bytes <= max_bytes else ", larger than allowed"
        lines.append(f"  {arm.label}: {size(arm.bytes)}, {arm.path.name}{fits}")
    free = shutil.disk_usage(Path(base.tracking.root).expanduser().absolute().anchor).free
    lines.append(
        f"  memory: one file at a time, {size(largest)} and its cache; disk: logs only, {size(free)} free; "
        "hours: measured from the first wave on"
    )
    return lines
