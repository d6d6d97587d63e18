"""Read logs of tau2-bench or tau-bench v1 and log each as one complete MLflow run, or take in a sweep.

Prints what every file holds: scored and excluded simulations, pass^k, error rates by channel, success under
an error budget. --contrast sets all files against the first. `qfr report --experiment qfr-foreign` contrasts
what was imported. A file is one run, found again by its digest: importing it twice adds nothing.

A file NAME.jsonl is of the neutral format, one line an episode, faults included (docs/import.md): own,
matched and full-pipeline recovery are computed on it. A file NAME.tar.zst is a sweep that `qfr export`
packed: it is checked member by member, and its runs go into the store as they were (--no-log: only the
check).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from qfr.analysis.contrast.contrasts import Options as ContrastOptions
from qfr.analysis.imported import Comparison, Side, compare
from qfr.analysis.levels import NOT_STATED, bits
from qfr.archive.foreign_logs import EXPERIMENT, MOST_K, Log, Logged, cell_of, check_store, log_import
from qfr.commands.common import add_bootstrap, positive
from qfr.commands.transfer.archives import all_archives, import_archives
from qfr.commands.transfer.neutral import Named, all_neutral, import_neutral
from qfr.errors import ConfigError, LogError
from qfr.foreign import Options, Release, read_logs
from qfr.grid.show import console
from qfr.report.logs import plain, print_comparison, print_log
from qfr.tracking.store import Store, open_store

_RELEASES = {"before": Release.before, "since": Release.since, "unknown": Release.unknown}
_LONGEST_LABEL = 60
_MOST_TASKS = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "path",
        nargs="+",
        help="results.json of tau2-bench (alone, or its folder), a tau-bench v1 list, NAME.jsonl of the "
        "neutral format, or NAME.tar.zst",
    )
    group = parser.add_argument_group("what the files do not say (once for all, or once per file)")
    group.add_argument("--model", action="append", help="name of the agent's model (left out = the file's)")
    group.add_argument(
        "--quant", action="append", help="its precision, with a number in it: BF16, FP8, INT4-AWQ, Q4_K_M"
    )
    group.add_argument(
        "--release", choices=list(_RELEASES),
        help="tau2-bench that wrote them: before or since 1.0.1 (left out = found out)",
    )  # fmt: skip
    group.add_argument("--scorer", help="logs of Inspect AI: whose score decides, where there are several")
    group.add_argument(
        "--user-tools", action="append", default=[], metavar="NAME,…",
        help="tools of the user simulator, for role confusion; added to the known ones",
    )  # fmt: skip
    group.add_argument(
        "--tasks", metavar="N|ID,…",
        help="tasks that were planned, where the file states none: their ids, or N for 0 to N − 1",
    )  # fmt: skip
    group.add_argument("--trials", type=positive, help="planned trials per task, where the file states none")
    parser.add_argument(
        "--contrast",
        action="store_true",
        help="contrast every log with the first one of its suite, and their failing calls",
    )
    parser.add_argument("--no-log", action="store_true", help="read and print only; no store is touched")
    store = parser.add_argument_group("store")
    store.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    store.add_argument("--root", default="mlruns", help="folder of the local store")
    store.add_argument(
        "--experiment", help=f"MLflow experiment (left out = {EXPERIMENT}; qfr for archives of sweeps)"
    )
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read all files, then log them; a file that cannot be read stops everything before the store."""
    where, paths = arguments.experiment, arguments.path
    if all_archives(paths):
        return import_archives(
            paths, uri=arguments.uri, root=arguments.root, experiment=where, dry=arguments.no_log
        )
    if all_neutral(paths):
        _refuse(arguments, ("release", "user_tools", "tasks", "trials"), "these formats say it themselves")
        return import_neutral(
            _named(arguments),
            uri=arguments.uri,
            root=arguments.root,
            experiment=where or EXPERIMENT,
            dry=arguments.no_log,
            contrasted=(lambda found: _compared(found, arguments)) if arguments.contrast else None,
        )
    _refuse(arguments, ("scorer",), "only logs of Inspect AI (NAME.eval) have scorers")
    logs = _read(arguments)
    compared = _compared(logs, arguments) if arguments.contrast else ()
    store = None
    if not arguments.no_log:
        store = open_store(arguments.uri, Path(arguments.root), where or EXPERIMENT)
        check_store(store, logs)
    out = console()
    for log in logs:
        print_log(log.run, f"{log.facts.model} {_told(log.facts.quant)}", MOST_K, out)
        if store is not None:
            out.print(plain(f"  {_stored(log_import(store, log), store)}"), soft_wrap=True)
        out.print()
    for found in compared:
        print_comparison(found, out)
        out.print()
    return 0


def _refuse(arguments: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuse an option that the formats at hand do not take: it would change nothing."""
    for name in names:
        if getattr(arguments, name):
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} does not apply to {', '.join(arguments.path)}", hint=why)


def _compared(logs: Sequence[Log], arguments: argparse.Namespace) -> tuple[Comparison, ...]:
    """Every log against the first one of its program and domain: tasks of two suites are not the same."""
    options = ContrastOptions(method=arguments.method, resamples=arguments.resamples, seed=arguments.seed)
    suites: dict[tuple[str, str], list[Log]] = {}
    for log in logs:
        suites.setdefault((log.run.info.kind, log.run.info.domain), []).append(log)
    if all(len(members) < 2 for members in suites.values()):
        found = ", ".join(f"{kind} {domain or '(domain unknown)'}" for kind, domain in suites)
        raise ConfigError(
            f"--contrast needs two logs of one suite, found {found}", hint="the first is the reference: A − B"
        )
    compared: list[Comparison] = []
    for members in suites.values():
        if len(members) > 1:
            sides = [Side(label, log.run) for label, log in zip(_labels(members), members, strict=True)]
            compared += compare(sides, options)
    return tuple(compared)


def _read(arguments: argparse.Namespace) -> list[Log]:
    paths: list[str] = arguments.path
    models = _per_file("--model", arguments.model, len(paths))
    quants = [_checked("--quant", label) for label in _per_file("--quant", arguments.quant, len(paths))]
    tools = frozenset(name for given in arguments.user_tools for name in given.split(",") if name.strip())
    release = None if arguments.release is None else _RELEASES[arguments.release]
    logs: list[Log] = []
    planned = _tasks(arguments.tasks)
    for path, model, quant in zip(paths, models, quants, strict=True):
        name = None if model is None else _label("--model", model)
        told = Options(name, tools, release, planned, arguments.trials)
        for run in read_logs(path, told):
            log = Log(run, cell_of(run, quant or NOT_STATED))
            if any(other.facts.cell_id == log.facts.cell_id for other in logs):
                raise LogError("the same log is given twice", where=path, hint="name each file once")
            logs.append(log)
    return logs


def _tasks(given: str | None) -> tuple[str, ...]:
    """Planned tasks: ids, or how many there are from 0 on."""
    if given is None:
        return ()
    named = tuple(part.strip() for part in given.split(",") if part.strip())
    if len(named) == 1 and named[0].isdecimal():
        if not 0 < int(named[0]) <= _MOST_TASKS:
            raise ConfigError(f"--tasks {named[0]}: between 1 and {_MOST_TASKS}")
        return tuple(map(str, range(int(named[0]))))
    if not named or len(set(named)) < len(named):
        raise ConfigError(f"--tasks {given!r} names no tasks, or one twice", hint="such as 115, or 3,5,8")
    return named


def _named(arguments: argparse.Namespace) -> list[Named]:
    paths: list[str] = arguments.path
    models = _per_file("--model", arguments.model, len(paths))
    quants = [_checked("--quant", label) for label in _per_file("--quant", arguments.quant, len(paths))]
    return [
        Named(path, model, quant, arguments.scorer)
        for path, model, quant in zip(paths, models, quants, strict=True)
    ]


def _per_file(flag: str, given: Sequence[str] | None, n: int) -> list[str | None]:
    """One value per file: the same for all, or one for each."""
    if not given:
        return [None] * n
    if len(given) == 1:
        return [given[0]] * n
    if len(given) != n:
        raise ConfigError(
            f"{flag} is given {len(given)} times for {n} files", hint="once for all, or once per file"
        )
    return list(given)


def _checked(flag: str, given: str | None) -> str | None:
    """A precision that has a place in the order of levels."""
    if given is None:
        return None
    label = _label(flag, given)
    if label != NOT_STATED and bits(label) is None:
        raise ConfigError(
            f"{flag} {label!r} cannot be ordered: there is no number of bits in it",
            hint="such as BF16, FP8, INT4-AWQ, or a preset of llama.cpp",
        )
    return label


def _label(flag: str, given: str) -> str:
    label = given.strip()
    if not label or len(label) > _LONGEST_LABEL or not label.isprintable():
        raise ConfigError(
            f"{flag} {given[:_LONGEST_LABEL]!r} is no name",
            hint=f"1 to {_LONGEST_LABEL} printable characters",
        )
    return label


def _labels(logs: Sequence[Log]) -> list[str]:
    """The shortest names that tell the logs apart: precisions, models, both, files, or files by number."""
    choices = (
        [log.facts.quant for log in logs],
        [log.facts.model for log in logs],
        [f"{log.facts.model} {log.facts.quant}" for log in logs],
        [log.run.info.source for log in logs],
    )
    same_model = len({log.facts.model for log in logs}) == 1
    for labels in choices if same_model else choices[1:]:
        if len(set(labels)) == len(labels):
            return labels
    return [f"{log.run.info.source} ({at})" for at, log in enumerate(logs, 1)]


def _told(quant: str) -> str:
    return "(precision not stated: --quant)" if quant == NOT_STATED else quant


def _stored(logged: Logged, store: Store) -> str:
    state = "logged as" if logged.new else "in the store already:"
    return f"{state} run {logged.run_id} of experiment {store.experiment} in {store.shown}"
