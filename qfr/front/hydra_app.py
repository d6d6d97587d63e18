"""Hands a command line to Hydra and brings back the exit code, or one clear error."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hydra

# The parser of Hydra's own options has no public form: what is given for --cfg, --info and --config-dir has
# to be known before Hydra is.
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from qfr.config import CellConfig
from qfr.errors import ConfigError, UserError
from qfr.front.arguments import check_arguments
from qfr.front.compose import to_cell
from qfr.front.exit_code import EXIT_CODE
from qfr.front.messages import explain, explain_yaml
from qfr.front.secrets import hidden
from qfr.front.spelling import choices_in, replacing, respell
from qfr.places import conf_folder


def run_hydra(arguments: list[str]) -> int:
    """Compose, validate and run. Returns the sweep's exit code (0 where no sweep ran, as for `--help`).

    Raises
    ------
    UserError
        Anything that the user can mend, Hydra's own errors included.
    """
    with hidden(arguments) as shown:
        return _run(shown)


def _run(arguments: list[str]) -> int:
    given = get_args_parser().parse_args(arguments)
    if given.run + given.multirun + bool(given.cfg) + bool(given.info) + given.shell_completion > 1:
        raise ConfigError(
            "only one of --run, --multirun, --cfg, --info and --shell_completion can be given",
            hint="leave out -m: --cfg shows one cell, mode=plan a grid",
        )
    if not given.shell_completion:
        check_arguments(given.overrides)
        arguments = respell(arguments, choices_in(_folders(given.config_dir)))
    if given.cfg:
        arguments = replacing(arguments)
    EXIT_CODE.set(0)
    try:
        with _as_program(arguments), _full_errors(), warnings.catch_warnings():
            _quiet()
            hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(Task())()
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error) from error
    except YAMLError as error:
        raise explain_yaml(error) from error
    return EXIT_CODE.get()


def _folders(config_dir: str | None) -> list[Path]:
    return [conf_folder(), *([Path(config_dir)] if config_dir else [])]


class Task:
    """What a launcher runs: one walk (a clean pass and its fault cells).

    Where it is unpickled, in a worker, Hydra is kept as quiet as here, and the cell is made anew.
    """

    def __init__(self) -> None:
        self.cells: dict[tuple[str, ...], CellConfig] = {}
        # Those of this process's own jobs, checked with the grid, by the job's overrides.

    def __call__(self, cfg: DictConfig) -> object:
        """Returns the job's outcome, or the user's error that kept it from running: an exception would end
        the batch."""
        hydra_config = HydraConfig.get()
        cell = self.cells.get(tuple(hydra_config.overrides.task)) or to_cell(cfg)
        if cell.sweep is None:
            raise ConfigError(
                "hydra.mode=RUN goes around the checks of the grid",
                hint="leave it out: one cell runs without it too",
            )
        from qfr.play.job import run_job
        from qfr.play.progress import announce_job

        announce_job(int(hydra_config.job.num))
        try:
            return run_job(cell)
        except UserError as error:
            return error

    def __reduce__(self) -> tuple[object, ...]:
        return _quiet_task, ()


def _quiet_task() -> Task:
    _quiet()
    return Task()


def _quiet() -> None:
    # Our presets of launchers have the names of their plugins' own settings, and are checked against them: as
    # meant, in every Hydra that we allow.
    warnings.filterwarnings(
        "ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema"
    )


@contextmanager
def _as_program(arguments: list[str]) -> Iterator[None]:
    """Hydra reads its arguments from `sys.argv`."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _full_errors() -> Iterator[None]:
    """Let Hydra raise its errors instead of printing them and leaving."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
