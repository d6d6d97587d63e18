"""The commands of the back door: their names, what each does, and how one is loaded."""

from __future__ import annotations

import argparse
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import NoReturn

USER_ERROR = 2

# Command -> what it does. Each lives in the module of the same name, in `qfr.commands` or one of its rooms.
COMMANDS = {
    "try": "GGUF files, or a folder of them, to one named file: the smallest shown to be good enough",
    "report": "contrasts of finished runs, from MLflow: terminal table, CSV, Parquet, JSON and an HTML page",
    "contrast": "the same estimators on a JSON table of per-task successes",
    "rescore": "compute scores anew from the logs, without any model",
    "audit": "play random finished cells again and compare every byte with their logs",
    "sync": "log what ran while MLflow was away; no model is loaded",
    "verify": "a registration and its runs, or a card and its bundle, derived again: does everything agree",
    "compare": "a gate: is a preset not worse than another by more than a margin (exit codes for CI)",
    "pick": "name the smallest preset that is shown not to be worse than a reference by more than a margin",
    "look": "read the reference's episodes with other files: which need not be played",
    "screen": "from a reference preset alone: which tasks a lower preset will probably lose",
    "power": "what a number of tasks can show, and how many a wanted difference or margin needs",
    "card": "a card for a model page, its figure and badges, and the bundle by which others can check it",
    "export": "pack a sweep into one file: logs, scores, configurations, registration, report",
    "import": "a packed sweep, or logs of tau2-bench and tau-bench, into MLflow",
    "world": "try a world of your own before any model plays it: qfr world check module:factory",
    "dictionary": "what every field of the logs and every column of the tables means",
    "doctor": "versions, build, GPU, disk, store and model files on one screen",
    "completion": "a script that completes commands and options in bash or zsh",
    "quantize": "derive a preset from a GGUF, or compare two GGUF files tensor by tensor",
}
_ROOMS = {
    **dict.fromkeys(("compare", "pick", "power", "screen"), "decisions."),
    **dict.fromkeys(("export", "import", "sync"), "transfer."),
    **dict.fromkeys(("audit", "doctor", "verify", "world"), "checks."),
}


class _Parser(argparse.ArgumentParser):
    """Errors as the rest of qfr prints them."""

    def error(self, message: str) -> NoReturn:
        # A command whose exit codes mean something else says what an error of the user is.
        status = int(self.get_default("usage_error") or USER_ERROR)
        self.exit(status, f"error: {message}\n  → {self.prog} --help\n")


def load_command(name: str) -> tuple[ModuleType, argparse.ArgumentParser]:
    """A command's module and its parser."""
    # A command that is a word of Python lives in a module with an underscore behind its name.
    module = f"{name}_" if iskeyword(name) else name
    command = import_module(f"qfr.commands.{_ROOMS.get(name, '')}{module}")
    parser = _Parser(prog=f"qfr {name}", description=command.__doc__, formatter_class=_Format)
    command.add_arguments(parser)
    return command, parser


class _Format(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of a command's own text and shows defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.required or action.default in (None, False, "", [], ()):
            return action.help
        return super()._get_help_string(action)
