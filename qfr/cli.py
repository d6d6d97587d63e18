"""The back door: everything but running grids. `qfr COMMAND --help` tells more."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import qfr
from qfr.commands.loading import COMMANDS, USER_ERROR, load_command
from qfr.errors import QfrError, UserError, did_you_mean
from qfr.front.main import told, unsupported
from qfr.tracking.environment import settle

FAILED, INTERRUPTED = 1, 130

_QUESTION = "which GGUF preset can be deployed as a tool-using agent, and how sure is that?"
_RUN = "run, plan or register a grid: the same as `python run.py …`"


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
    command, parser = load_command(name)
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
