"""Print a script that completes commands, options and their choices.

bash:  qfr completion > ~/.local/share/bash-completion/completions/qfr
zsh:   autoload -U bashcompinit && bashcompinit, then the same file with `source`
For `python run.py`, Hydra completes groups, choices and keys:  eval "$(python run.py -sc install=bash)"
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from qfr.commands.loading import COMMANDS, load_command

_SCRIPT = """\
_qfr() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}} $before" in
{choices}
            *) case "${{COMP_WORDS[1]}}" in
{options}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _qfr qfr
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(_arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(script(COMMANDS, lambda name: load_command(name)[1]), end="")
    return 0


def script(commands: Iterable[str], parser_of: Callable[[str], argparse.ArgumentParser]) -> str:
    """The script for these commands."""
    options: list[str] = []
    choices: list[str] = []
    for name in commands:
        known = [action for action in parser_of(name)._actions if action.option_strings]
        words = " ".join(word for action in known for word in action.option_strings if word.startswith("--"))
        options.append(f'                {name}) words="{words}" ;;')
        for action in known:
            if action.choices:
                allowed = " ".join(map(str, action.choices))
                patterns = "|".join(f'"{name} {word}"' for word in action.option_strings)
                choices.append(f'            {patterns}) words="{allowed}" ;;')
    return _SCRIPT.format(
        commands=" ".join([*commands, "run", "help"]), options="\n".join(options), choices="\n".join(choices)
    )
