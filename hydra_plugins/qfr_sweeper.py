"""Hydra's sweeper for qfr: composes the whole grid, validates it once, folds it into walks, then launches.

Hydra executes plugins before they stand in `sys.modules`, where dataclasses cannot resolve annotations that
are texts: hence no `from __future__ import annotations` here.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

if TYPE_CHECKING:
    from qfr.play.sharing import Job


@dataclass
class QfrSweeperConf:
    """What `hydra/sweeper: qfr` stands for."""

    _target_: str = "hydra_plugins.qfr_sweeper.QfrSweeper"
    max_batch_size: int | None = None
    # Jobs handed to the launcher at a time; null = all.
    params: dict[str, str] | None = None
    # The grid of an experiment; the command line's values replace them.


ConfigStore.instance().store(group="hydra/sweeper", name="qfr", node=QfrSweeperConf, provider="qfr")


def product(overrides: Iterable[Override]) -> list[list[str]]:
    """The points of a grid, each as its overrides; the last value given for a key counts, the last key is the
    fastest."""
    values: dict[str, list[str]] = {}
    for one in overrides:
        sweep = one.is_sweep_override()
        texts = one.sweep_string_iterator() if sweep else [one.get_value_element_as_str()]
        values[one.get_key_element()] = [f"{one.get_key_element()}={text}" for text in texts]
    return [list(point) for point in itertools.product(*values.values())]


class QfrSweeper(Sweeper):
    """All work on the whole grid is done before the first job is launched.

    Parameters
    ----------
    max_batch_size : int or None
    params : dict or None
        As in `QfrSweeperConf`.
    """

    def __init__(self, max_batch_size: int | None, params: dict[str, str] | None = None) -> None:
        self.max_batch_size, self.params = max_batch_size, params or {}
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None
        self.task: TaskFunction | None = None
        # Jobs so far: one that left its walk to another process is launched again, under a number of its own.
        self.launched = 0

    def sweep(self, arguments: list[str]) -> Sequence[object]:
        """Run the sweep. Returns the outcomes of the jobs that finished."""
        from qfr.front import sweep as front
        from qfr.front.arguments import check_overrides, in_job_order
        from qfr.front.launching import launch_failed
        from qfr.front.load import workers_of
        from qfr.front.secrets import hide_in
        from qfr.front.sources import ComposedOnce
        from qfr.front.spelling import replacing, respell

        assert self.config is not None
        assert self.hydra_context is not None
        # The launcher holds the same context.
        self.hydra_context.config_loader = loader = ComposedOnce(self.hydra_context.config_loader)
        parser = OverridesParser.create(config_loader=loader)
        sweep = front.new_sweep_id()
        with open_dict(self.config):
            self.config.sweep = sweep
            arguments = [*arguments, *hide_in(self.config)]
        own = respell([f"{key}={value}" for key, value in self.params.items()], loader.get_group_options)
        overrides = parser.parse_overrides([*own, *arguments])
        check_overrides(overrides)
        grid = [replacing(one) for one in product(in_job_order(overrides))]
        points = [front.point_of(loader.point(self.config, point), point) for point in grid]
        failed: list[JobReturn] = []
        broken: list[BaseException] = []
        outcomes = front.run_sweep(
            points,
            loader.get_group_options,
            sweep,
            lambda jobs: self._launch(jobs, failed, broken),
            workers_of(self.config.hydra.launcher),
        )
        for one in failed:
            _ = one.return_value  # Raises what the job raised, now that the sweep is closed.
        if broken:
            raise launch_failed(broken[0])
        return outcomes

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check that the launcher is installed, then set it up."""
        from qfr.front.launching import check_launcher

        check_launcher(str(config.hydra.launcher.get("_target_", "")))
        self.hydra_context, self.config, self.task = hydra_context, config, task_function
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def _launch(
        self, jobs: Sequence["Job"], failed: list[JobReturn], broken: list[BaseException]
    ) -> Sequence[object]:
        """Run the jobs. Returns the outcomes of those that finished.

        The others are added to `failed`, and what the launcher itself broke with to `broken`: the sweep is
        closed all the same.
        """
        from qfr.front.hydra_app import Task
        from qfr.front.launching import launcher_errors

        assert isinstance(self.task, Task)
        self.task.cells.update({tuple(job.overrides): job.cell for job in jobs})
        assert self.config is not None
        assert self.launcher is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        returns: list[JobReturn] = []
        size = self.max_batch_size or len(jobs)
        for start in range(0, len(jobs), size):
            batch = [job.overrides for job in jobs[start : start + size]]
            try:
                returns += self.launcher.launch(batch, initial_job_idx=self.launched)
            except OmegaConfBaseException:
                # The configuration's fault, not the launcher's: some of them are ValueErrors too.
                raise
            except launcher_errors() as error:
                broken.append(error)
                break
            finally:
                self.launched += len(batch)
        failed += [one for one in returns if one.status is not JobStatus.COMPLETED]
        return [one.return_value for one in returns if one.status is JobStatus.COMPLETED]
