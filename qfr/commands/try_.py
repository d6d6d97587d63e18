"""One named file out of a folder of GGUF files: the smallest that is shown to be not worse than the largest.

  qfr try /models/mine/                        every .gguf below it; several models get an answer each
  qfr try a-Q8_0.gguf a-Q4_K_M.gguf --margin 5 --max-gb 6 --hours 2
  qfr try hf:OWNER/REPO                        the .gguf files of a repository (downloads them)

Each file plays the same tasks in the same order, in waves; tool calls fail as --fault says, and the model has
to recover. After each wave two bets are settled, which hold however often one looks: one against "worse by
more than the margin", one against "not worse". The files are tried from large to small until one is not
shown, so a file that is truly worse by more than the margin is named with a chance of 5 % at most. Ctrl-C or
a kill loses the running episode only: the same command goes on. Every look stands in looks.json and
looks.svg, whose paths are printed.

Exit code 0 when a file is named for every model, 1 when one has none yet, 2 for an error of the user.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qfr.analysis.decisions.sequential import Sequential, waves_of
from qfr.canonical import canonical
from qfr.commands.common import points, positive
from qfr.commands.decisions.pick import positive_gb
from qfr.config import CellConfig, SuiteConfig
from qfr.engine.files.hub import HubFile, download, gguf_names
from qfr.errors import ConfigError, UserError
from qfr.front.models import compose_cell
from qfr.grid.checks import check_cell
from qfr.grid.show import console
from qfr.tryout import answer as words
from qfr.tryout.drawing import svg
from qfr.tryout.files import Arm, Family, families, files_in, is_first_part
from qfr.tryout.sequence import Answer, Tried, at_floor
from qfr.tryout.sequence import run as run_sequence
from qfr.tryout.waves import Waves

#: Reference agents know round amounts only, and their files say what they are.
_AGENT = ("qfr.reference_agent", "True")
_SUITE, _SUITE_OF_AGENTS = "orders450_v2", "orders450_ref"
# Below this number of weights two threads mostly wait for each other.
_SMALL = 50_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", metavar="FILE|FOLDER|hf:OWNER/REPO", help="what is to be tried")
    parser.add_argument(
        "--margin", default=5.0, type=points, help="acceptable loss of the full pipeline, in points"
    )
    parser.add_argument("--max-gb", type=positive_gb, help="largest file that will do, in 10^9 bytes")
    parser.add_argument(
        "--hours", type=positive_gb, help="stop after so many hours; the same command goes on"
    )
    parser.add_argument("--suite", help=f"tasks (left out = {_SUITE})")
    parser.add_argument("--tasks", type=positive, help="most tasks a file plays (left out = the suite's)")
    parser.add_argument("--prompt", default="P0", help="system prompt")
    parser.add_argument("--fault", default="et", help="what fails: et = a tool call fails once")
    parser.add_argument("--executor", default="tolerant", help="how text becomes a call")
    parser.add_argument("--kv", help="type of the key-value cache: f16, q8_0, q4_0")
    parser.add_argument("--threads", type=positive, help="threads of one worker")
    parser.add_argument("--workers", type=positive, help="workers side by side (left out = by cores)")
    parser.add_argument("--plan", action="store_true", help="say what would be played, and stop")
    parser.add_argument("--root", default="mlruns", help="folder of journals, the store and the looks")


def run(arguments: argparse.Namespace) -> int:
    """Read, plan, play, name."""
    out = console()
    started = time.monotonic()
    paths = files_in([*_local(arguments)])
    made, refused = families(paths)
    for one in refused:
        out.print(f"left out: {one.path}: {one.why}", markup=False, soft_wrap=True)
    if not made:
        raise UserError("no file can be played", hint="the lines above say why")
    plans = [_Plan(family, arguments) for family in made]
    for plan in plans:
        for line in words.plan_lines(plan.family, arguments.max_gb, plan.tasks, plan.count):
            out.print(line, markup=False, soft_wrap=True)
    if arguments.plan:
        return 0
    rule = Sequential(arguments.margin / 100)
    answers = [_play(plan, rule, arguments, started) for plan in plans]
    out.print()
    for plan, found in zip(plans, answers, strict=True):
        for line in words.lines(found, plan.waves, plan.tasks, arguments.kv):
            out.print(line, markup=False, soft_wrap=True)
    for place in _keep(answers, rule, arguments):
        out.print(f"Every look: {place}", markup=False, soft_wrap=True)
    settled = [
        one.named is not None and not at_floor(plan.open(one.reference), rule)
        for plan, one in zip(plans, answers, strict=True)
    ]
    return 0 if all(settled) else 1


class _Plan:
    """How one model's files are played."""

    def __init__(self, family: Family, arguments: argparse.Namespace) -> None:
        self.family = family
        self.arguments = arguments
        self.waves: dict[Path, Waves] = {}
        self.first_look = True
        self._cells = {arm.path: self._cell(arm) for arm in family.arms}
        counts = list(self._cells[family.arms[0].path].suite.families.values())
        self.tasks = sum(counts)
        self.count = waves_of(counts)

    @property
    def files(self) -> int:
        """Files that may be played."""
        limit = self.arguments.max_gb
        return 1 + len([arm for arm in self.family.arms[1:] if limit is None or arm.gigabytes <= limit])

    def open(self, arm: Arm) -> Waves:
        return self.waves.setdefault(arm.path, Waves(self._cells[arm.path], self.count))

    def _cell(self, arm: Arm) -> CellConfig:
        given = self.arguments
        agent = _AGENT in arm.facts.metadata
        threads = given.threads or (1 if arm.facts.n_params < _SMALL else None)
        overrides = [
            "model=local",
            f"model.path={json.dumps(str(arm.path.absolute()), ensure_ascii=False)}",
            f"model.name={self.family.name}",
            f"model.reference_agent={str(agent).lower()}",
            f"quant.preset={arm.preset}",
            f"suite={given.suite or (_SUITE_OF_AGENTS if agent else _SUITE)}",
            *(f"{key}={getattr(given, key)}" for key in ("prompt", "fault", "executor")),
            f"tracking.root={json.dumps(given.root)}",
            *([f"engine.type_k={given.kv}", f"engine.type_v={given.kv}"] if given.kv else []),
            *(["engine.flash_attn=true"] if given.kv and given.kv != "f16" else []),
            *([f"engine.n_threads={threads}", f"engine.n_threads_batch={threads}"] if threads else []),
            *([f"engine.workers={given.workers}"] if given.workers else []),
        ]
        cell = compose_cell(*overrides)
        if given.tasks:
            cell = replace(cell, suite=_sized(cell, given.tasks))
        check_cell(cell)
        return cell


def _sized(cell: CellConfig, tasks: int) -> SuiteConfig:
    each, rest = divmod(tasks, len(cell.suite.families))
    if rest or not each:
        raise ConfigError(
            f"--tasks {tasks} cannot be shared evenly by {len(cell.suite.families)} families of tasks",
            hint=f"a multiple of {len(cell.suite.families)}",
        )
    return replace(cell.suite, families=dict.fromkeys(cell.suite.families, each))


def _local(arguments: argparse.Namespace) -> list[str]:
    """Words with repositories of the hub replaced by their files here."""
    found = []
    for word in arguments.files:
        if not word.startswith("hf:"):
            found.append(word)
            continue
        repo = word.removeprefix("hf:").strip("/")
        if repo.count("/") != 1:
            raise UserError(f"{word} names no repository", hint="hf:OWNER/REPO")
        # A split file is named by its first part; the others are fetched with it.
        local = {name: download(HubFile(repo, name, None), None) for name in gguf_names(repo)}
        found += [str(path) for name, path in local.items() if is_first_part(name)]
    return found


def _play(plan: _Plan, rule: Sequential, arguments: argparse.Namespace, started: float) -> Answer:
    err = console(stderr=True)
    reference = plan.family.arms[0]
    limit = None if arguments.hours is None else 3600 * arguments.hours

    def look(tried: Tried) -> None:
        if len(tried.looks) == 1 and plan.first_look:
            plan.first_look = False
            line = words.hours_line(plan.open(reference), plan.open(tried.arm), plan.count, plan.files)
            err.print(line, markup=False, soft_wrap=True)
        err.print(words.look_line(tried, reference, rule), markup=False, soft_wrap=True)

    def time_is_up() -> bool:
        return limit is not None and time.monotonic() - started > limit

    return run_sequence(
        plan.family, plan.open, plan.count, rule, arguments.max_gb, look=look, time_is_up=time_is_up
    )


def _keep(answers: Sequence[Answer], rule: Sequential, arguments: argparse.Namespace) -> list[Path]:
    """Write the record and the drawing of all looks, in a folder of the question."""
    settings = {
        name: getattr(arguments, name)
        for name in ("margin", "max_gb", "suite", "tasks", "prompt", "fault", "executor", "kv")
    }
    files = [str(arm.path) for one in answers for arm in one.family.arms]
    key = hashlib.sha256(canonical({**settings, "files": files}).encode("ascii")).hexdigest()[:12]
    folder = Path(arguments.root) / "tries" / key
    folder.mkdir(parents=True, exist_ok=True)
    curves = [
        (f"{one.family.name}: {tried.arm.label} − {one.reference.label}", tried.looks)
        for one in answers
        for tried in one.tried
        if tried.looks
    ]
    (folder / "looks.json").write_text(words.record(answers, settings), encoding="utf-8")
    places = [folder / "looks.json"]
    if curves:
        (folder / "looks.svg").write_text(svg(curves, rule), encoding="utf-8")
        places.append(folder / "looks.svg")
    return places
