"""One named file out of a folder of GGUF files: the smallest that is shown to be not worse than the largest.

  qfr try /models/mine/                        every .gguf below it; several models get an answer each
  qfr try a-Q8_0.gguf a-Q4_K_M.gguf --margin 5 --max-gb 6 --hours 2
  qfr try hf:OWNER/REPO                        the .gguf files of a repository (downloads them)

Each file plays the same tasks in the same order, in waves; tool calls fail as --fault says, and the model has
to recover. After each wave two bets are settled, which hold however often one looks: one against "worse by
more than the margin", one against "not worse". The files are tried from large to small until one is not
shown, so a file that is truly worse by more than the margin is named with a chance of 5 % at most. Ctrl-C or
a kill loses the running episode only: the same command goes on. Every look stands in looks.json and
looks.svg, whose paths are printed, and in a run of the MLflow store.

Exit code 0 when a file is named for every model, 1 when one has none yet, 2 for an error of the user.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import fields

from qfr.analysis.decisions.sequential import Sequential
from qfr.commands.common import points, positive
from qfr.commands.decisions.pick import positive_gb
from qfr.engine.files.hub import HubFile, download, gguf_names
from qfr.errors import MachineryError, ModelFileError, UserError
from qfr.grid.show import console
from qfr.play.job import keep_engines
from qfr.tryout import answer as words
from qfr.tryout.files import families, files_in, is_first_part
from qfr.tryout.looks import Looks
from qfr.tryout.plan import SUITE, Plan, Question
from qfr.tryout.sequence import Answer, Tried, at_floor
from qfr.tryout.sequence import run as run_sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("files", nargs="+", metavar="FILE|FOLDER|hf:OWNER/REPO", help="what is to be tried")
    parser.add_argument(
        "--margin", default=5.0, type=points, help="acceptable loss of the full pipeline, in points"
    )
    parser.add_argument("--max-gb", type=positive_gb, help="largest file that will do, in 10^9 bytes")
    parser.add_argument("--hours", type=_hours, help="stop after so many hours; the same command goes on")
    parser.add_argument("--suite", help=f"tasks (left out = {SUITE})")
    parser.add_argument("--tasks", type=positive, help="most tasks a file plays (left out = the suite's)")
    parser.add_argument("--prompt", default="P0", help="system prompt")
    parser.add_argument("--fault", default="et", help="what fails: et = a tool call fails once")
    parser.add_argument("--executor", default="tolerant", help="how text becomes a call")
    parser.add_argument("--kv", help="type of the key-value cache: f16, q8_0, q4_0")
    parser.add_argument("--threads", type=positive, help="threads of one worker")
    parser.add_argument("--workers", type=positive, help="workers side by side (left out = by cores)")
    parser.add_argument("--plan", action="store_true", help="say what would be played, and stop")
    parser.add_argument("--root", default="mlruns", help="folder of journals, the store and the looks")


def _hours(text: str) -> float:
    """Hours above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of hours above 0: 2, or 0.5")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Read, plan, play, name."""
    out = console()
    started = time.monotonic()
    made, refused = families(files_in([*_local(arguments)]))
    question = Question(**{one.name: getattr(arguments, one.name) for one in fields(Question)})
    plans = [Plan(family, question) for family in made]
    for one in (*refused, *(one for plan in plans for one in plan.refused)):
        out.print(f"left out: {one.path}: {one.why}", markup=False, soft_wrap=True)
    plans = [plan for plan in plans if plan.family.arms]
    if not plans:
        raise UserError("no file can be played", hint="the lines above say why")
    for plan in plans:
        for line in (*words.plan_lines(plan.family, question.max_gb, plan.tasks, plan.count), *_costs(plan)):
            out.print(line, markup=False, soft_wrap=True)
    if arguments.plan:
        return 0
    rule = Sequential(question.margin / 100)
    looks = Looks(question, [plan.family for plan in plans], plans[0].tracking)
    answers = [_play(plan, rule, looks, arguments.hours, started) for plan in plans]
    out.print()
    for plan, found in zip(plans, answers, strict=True):
        for line in words.lines(found, plan.waves, plan.tasks, question.kv):
            out.print(line, markup=False, soft_wrap=True)
    for place in looks.close(answers, rule):
        out.print(f"Every look: {place}", markup=False, soft_wrap=True)
    settled = [
        one.named is not None and not at_floor(plan.open(one.reference), rule)
        for plan, one in zip(plans, answers, strict=True)
    ]
    return 0 if all(settled) else 1


def _costs(plan: Plan) -> list[str]:
    """Memory, hours and disk; a reference that cannot be loaded is told, and again where it is to play."""
    if len(plan.tried) == 1:
        return []
    try:
        return plan.cost_lines()
    except (MachineryError, ModelFileError) as error:
        return [f"  {plan.family.arms[0].label} cannot be loaded: {error.what}"]


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


def _play(plan: Plan, rule: Sequential, looks: Looks, hours: float | None, started: float) -> Answer:
    err = console(stderr=True)
    keep_engines(plan.side_by_side())
    reference = plan.family.arms[0]
    limit = None if hours is None else 3600 * hours

    def look(tried: Tried) -> None:
        if len(tried.looks) == 1 and not plan.told:
            plan.told = True
            line = words.hours_line(plan.open(reference), plan.open(tried.arm), plan.count, len(plan.tried))
            err.print(line, markup=False, soft_wrap=True)
        err.print(words.look_line(tried, reference, rule), markup=False, soft_wrap=True)
        looks.add(plan.family, tried)

    def time_is_up() -> bool:
        return limit is not None and time.monotonic() - started > limit

    return run_sequence(
        plan.family, plan.open, plan.count, rule, plan.question.max_gb, look=look, time_is_up=time_is_up
    )
