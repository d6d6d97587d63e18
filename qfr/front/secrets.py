"""Passwords in the store's address are kept out of all that Hydra prints and writes.

Hydra writes every override and the whole configuration below `multirun/` in `tracking.root`, and prints the
overrides of a job that raises. So an address with a password is handed on in an environment variable, which
the launchers pass to their jobs, and the configuration holds only the variable's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from omegaconf import DictConfig, OmegaConf

from qfr.tracking.environment import redact

VARIABLE = "QFR_TRACKING_URI"
_KEY, _STANDS_FOR = "tracking.uri", "${oc.env:" + VARIABLE + "}"


@contextmanager
def hidden(arguments: Sequence[str]) -> Iterator[list[str]]:
    """The arguments with the name of a variable in the place of an address that holds a secret."""
    before = os.environ.get(VARIABLE)
    try:
        yield [_hide(argument) for argument in arguments]
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def hide_in(config: DictConfig) -> list[str]:
    """Do the same with an address that comes from a YAML file.

    Returns
    -------
    list of str
        Overrides that keep it out of the jobs' own configurations.
    """
    raw = OmegaConf.to_container(config.tracking, resolve=False)
    uri = raw.get("uri") if isinstance(raw, dict) else None
    if not isinstance(uri, str) or redact(uri) == uri:
        return []
    os.environ[VARIABLE] = uri
    config.tracking.uri = _STANDS_FOR
    return [f"{_KEY}={_STANDS_FOR}"]


def _hide(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if key.lstrip("+") != _KEY or not equals or redact(value) == value:
        return argument
    quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    os.environ[VARIABLE] = value[1:-1].replace(f"\\{value[0]}", value[0]) if quoted else value
    return f"{key}={_STANDS_FOR}"
