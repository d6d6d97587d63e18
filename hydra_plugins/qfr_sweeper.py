"""Hydra's sweeper for qfr: composes the whole grid, validates it once, folds it into walks, then launches.

Hydra executes plugins before they stand in `sys.modules`, where dataclasses cannot resolve annotations that
are texts: hence no `from __future__ import annotations` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.core_plugins import basic_sweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, open_dict


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

    def sweep(self, arguments: list[str]) -> Sequence[object]:
        """Run the sweep. Returns the outcomes of the jobs that finished."""
        from qfr.front import sweep as front
        from qfr.front.arguments import check_overrides, in_job_order

        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        parser = OverridesParser.create(config_loader=loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        check_overrides(overrides)
        sweep = front.new_sweep_id()
        with open_dict(self.config):
            self.config.sweep = sweep
        product = self.split_arguments(in_job_order(overrides), None)[0]
        points = [front.point_of(loader.load_sweep_config(self.config, point), point) for point in product]
        failed: list[JobReturn] = []
        outcomes = front.run_sweep(
            points, loader.get_group_options, sweep, lambda jobs: self._launch(jobs, failed)
        )
        for one in failed:
            _ = one.return_value  # Raises what the job raised, now that the sweep is closed.
        return outcomes

    def _launch(self, jobs: Sequence[Sequence[str]], failed: list[JobReturn]) -> Sequence[object]:
        """Run the jobs. Returns the outcomes of those that finished; the others are added to `failed`."""
        assert self.config is not None
        assert self.launcher is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        returns: list[JobReturn] = []
        size = self.max_batch_size or len(jobs)
        for start in range(0, len(jobs), size):
            returns += self.launcher.launch(jobs[start : start + size], initial_job_idx=start)
        failed += [one for one in returns if one.status is not JobStatus.COMPLETED]
        return [one.return_value for one in returns if one.status is JobStatus.COMPLETED]
