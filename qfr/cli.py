"""The back door: everything but running grids. `qfr COMMAND --help` tells more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import NoReturn

import qfr
from qfr.errors import QfrError, UserError, did_you_mean
from qfr.front.main import told, unsupported
from qfr.tracking.environment import settle

FAILED, USER_ERROR, INTERRUPTED = 1, 2, 130

# Command -> what it does. Each lives in the module of the same name under `qfr.commands`.
COMMANDS = {
    "report": "contrasts of finished runs, from MLflow: terminal table, CSV, Parquet, JSON and an HTML page",
    "contrast": "the same estimators on a JSON table of per-task successes",
    "rescore": "compute scores anew from the logs, without any model",
    "audit": "play random finished cells again and compare every byte with their logs",
    "sync": "log what ran while MLflow was away; no model is loaded",
    "verify": "a registration and the runs under it, derived again: is everything as frozen",
    "compare": "a gate: is a preset not worse than another by more than a margin (exit codes for CI)",
    "pick": "name the smallest preset that is shown not to be worse than a reference by more than a margin",
    "screen": "from a reference preset alone: which tasks a lower preset will probably lose",
    "power": "what a number of tasks can show, and how many a wanted difference or margin needs",
    "export": "pack a sweep into one file: logs, scores, configurations, registration, report",
    "import": "a packed sweep, or logs of tau2-bench and tau-bench, into MLflow",
    "world": "try a world of your own before any model plays it: qfr world check module:factory",
    "dictionary": "what every field of the logs and every column of the tables means",
    "doctor": "versions, build, GPU, disk, store and model files on one screen",
    "quantize": "derive a preset from a GGUF, or compare two GGUF files tensor by tensor",
}
_QUESTION = "which GGUF preset can be deployed as a tool-using agent, and how sure is that?"
_RUN = "run, plan or register a grid: the same as `python run.py …`"


class _Parser(argparse.ArgumentParser):
    """Errors as the rest of qfr prints them."""

    def error(self, message: str) -> NoReturn:
        # A command whose exit codes mean something else says what an error of the user is.
        status = int(self.get_default("usage_error") or USER_ERROR)
        self.exit(status, f"error: {message}\n  → {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Errors of the user are one message on stderr and exit code 2, without a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    problem = unsupported(sys.platform, sys.version_info[:2])
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
        return USER_ERROR
    if arguments[:1] == ["run"]:
        from qfr.front.main import main as run

        return run(arguments[1:])
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help", "--version"):
        print(f"qfr {qfr.__version__}" if name == "--version" else _help())
        return 0
    if name not in COMMANDS:
        near = did_you_mean(name, [*COMMANDS, "run"])
        print(f"error: there is no command {name!r}{near}\n  → qfr --help lists them", file=sys.stderr)
        return USER_ERROR
    # Before anything imports MLflow.
    settle()
    # A command that is a word of Python lives in a module with an underscore behind its name.
    command = import_module(f"qfr.commands.{name}_" if iskeyword(name) else f"qfr.commands.{name}")
    parser = _Parser(prog=f"qfr {name}", description=command.__doc__, formatter_class=_Format)
    command.add_arguments(parser)
    try:
        return int(command.run(parser.parse_args(arguments[1:])))
    except QfrError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR if isinstance(error, UserError) else FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (head, less) has enough; nothing is left to flush to.
        sys.stdout = None
        return 0
    except OSError as error:
        if (text := told(error)) is None:
            raise
        print(text, file=sys.stderr)
        return USER_ERROR


class _Format(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of a command's own text and shows defaults."""


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in {"run": _RUN, **COMMANDS}.items()]
    return "\n".join(
        [
            f"qfr {qfr.__version__}: {_QUESTION}",
            "",
            "usage: qfr COMMAND [options]",
            "",
            *lines,
            "",
            "`qfr COMMAND --help` tells more of each; `qfr --version` the version.",
        ]
    )
