"""Hydra's sweeper for qfr: composes the whole grid, validates it once, folds it into walks, then launches.

Hydra executes plugins before they stand in `sys.modules`, where dataclasses cannot resolve annotations that
are texts: hence no `from __future__ import annotations` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins import basic_sweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException


@dataclass
class QfrSweeperConf:
    """What `hydra/sweeper: qfr` stands for."""

    _target_: str = "hydra_plugins.qfr_sweeper.QfrSweeper"
    max_batch_size: int | None = None
    # Jobs handed to the launcher at a time; null = all.
    params: dict[str, str] | None = None
    # The grid of an experiment; the command line's values replace them.


ConfigStore.instance().store(group="hydra/sweeper", name="qfr", node=QfrSweeperConf, provider="qfr")


class QfrSweeper(basic_sweeper.BasicSweeper):
    """Hydra's own sweeper, with all work on the whole grid done before the first job is launched."""

    launched = 0
    # Jobs so far: one that left its walk to another process is launched again, under a number of its own.

    def sweep(self, arguments: list[str]) -> Sequence[object]:
        """Run the sweep. Returns the outcomes of the jobs that finished."""
        from qfr.front import sweep as front
        from qfr.front.arguments import check_overrides, in_job_order
        from qfr.front.launching import launch_failed
        from qfr.front.load import workers_of
        from qfr.front.secrets import hide_in
        from qfr.front.sources import ReadOnce
        from qfr.front.spelling import replacing, respell

        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        loader.repository = ReadOnce(loader.repository)
        parser = OverridesParser.create(config_loader=loader)
        sweep = front.new_sweep_id()
        with open_dict(self.config):
            self.config.sweep = sweep
            arguments = [*arguments, *hide_in(self.config)]
        own = respell(self._parse_config(), loader.get_group_options)
        overrides = parser.parse_overrides([*own, *arguments])
        check_overrides(overrides)
        product = [replacing(one) for one in self.split_arguments(in_job_order(overrides), None)[0]]
        points = [front.point_of(loader.load_sweep_config(self.config, point), point) for point in product]
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
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def _launch(
        self, jobs: Sequence[Sequence[str]], failed: list[JobReturn], broken: list[BaseException]
    ) -> Sequence[object]:
        """Run the jobs. Returns the outcomes of those that finished.

        The others are added to `failed`, and what the launcher itself broke with to `broken`: the sweep is
        closed all the same.
        """
        from qfr.front.launching import launcher_errors

        assert self.config is not None
        assert self.launcher is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        returns: list[JobReturn] = []
        size = self.max_batch_size or len(jobs)
        for start in range(0, len(jobs), size):
            batch = jobs[start : start + size]
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
