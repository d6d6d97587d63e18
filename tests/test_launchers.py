"""Walks on several workers: real joblib processes, the load that a plan shows, GPUs, shared stores."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from qfr.config import TrackingConfig
from qfr.errors import ConfigError, TrackingError
from qfr.front.launching import check_launcher, launch_failed
from qfr.front.load import load_lines, load_of, workers_of
from qfr.front.models import compose_cell
from qfr.front.shared_store import check_store, store_notes
from qfr.grid.design import design_of
from qfr.grid.files import planned_file
from qfr.grid.grid import Grid, GridCell, Walk
from qfr.journal import log_bytes
from qfr.records import FaultKind
from qfr.tracking import filesystem
from qfr.tracking.filesystem import network_kind
from qfr.tracking.reading.cells import read_episodes
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import open_store

ROOT = Path(__file__).resolve().parent.parent
LAUNCHERS = ROOT / "conf" / "hydra" / "launcher"
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def launcher(name: str, *overrides: str) -> DictConfig:
    loaded = OmegaConf.load(LAUNCHERS / f"{name}.yaml")
    assert isinstance(loaded, DictConfig)
    loaded.merge_with_dotlist(list(overrides))
    return loaded


BASIC = OmegaConf.create({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"})


def command(folder: Path, *overrides: str) -> list[str]:
    return [sys.executable, str(ROOT / "run.py"), *overrides, f"hydra.sweep.dir={folder}/multirun"]


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *overrides), cwd=folder, capture_output=True, text=True, check=False
    )


def logs(folder: Path) -> dict[str, bytes]:
    store = open_store(None, folder / "mlruns", "qfr")
    return {cell.facts.name: log_bytes(read_episodes(store, cell)) for cell in read_cells(store).cells}


# --- joblib, for real ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_workers_leave_what_one_leaves(tmp_path: Path) -> None:
    """The same cells, byte for byte, each run once; the clean pass of a walk too."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    grid = ("experiment=smoke", "report.transcripts=0")
    assert run(alone, *grid).returncode == 0
    done = run(together, *grid, *JOBLIB)
    assert done.returncode == 0, done.stderr
    assert logs(together) == logs(alone)
    assert len(logs(together)) == 8
    assert done.stderr.count("tasks certified") == 4
    again = run(together, *grid, *JOBLIB)
    assert again.returncode == 0
    assert "8 cells finished before" in again.stderr


@pytest.mark.slow
def test_a_killed_worker_ends_the_sweep_in_words_and_the_same_command_goes_on(tmp_path: Path) -> None:
    grid = ("model=ref_llama", "quant=f16,q8_0", "suite=orders6", "suite.grid=round", "prompt=P0")
    grid = (*grid, "fault=et", "report.transcripts=0", *JOBLIB)
    process = subprocess.Popen(
        command(tmp_path, *grid), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        os.kill(_busy_worker(process, tmp_path / "mlruns" / "journal"), signal.SIGKILL)
    finally:
        out, err = process.communicate(timeout=900)
    assert process.returncode == 1, err
    assert "Not finished" in out
    assert "the launcher lost a worker or a job" in err
    assert "Traceback" not in err
    done = run(tmp_path, *grid)
    assert done.returncode == 0, done.stderr
    assert "resumes after" in done.stderr
    assert len(logs(tmp_path)) == 4


def _busy_worker(process: subprocess.Popen[str], journals: Path) -> int:
    """A worker that has written an episode (its timing line names it) and is not through."""
    for _ in range(1200):
        assert process.poll() is None, process.communicate()
        for timing in journals.glob("*/timing.jsonl"):
            lines = timing.read_text().splitlines()
            if lines and (found := re.search(r'"pid":(\d+)', lines[-1])):
                return int(found[1])
        time.sleep(0.05)
    raise AssertionError("no worker has played anything")


# --- presets and errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(LAUNCHERS.glob("*.yaml")), ids=lambda path: str(path.stem))
def test_presets_name_what_their_launchers_take(path: Path) -> None:
    """Each key is one of the plugin's own, and none of them changes how an engine computes."""
    preset = launcher(path.stem)
    assert str(preset["_target_"]).startswith("hydra_plugins.hydra_")
    if path.stem == "ray":
        assert preset.ray.remote.max_retries == 0
        return
    if path.stem == "joblib":
        from hydra_plugins.hydra_joblib_launcher.config import JobLibLauncherConf as Known
    else:
        from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf as Known
    merged = OmegaConf.merge(OmegaConf.structured(Known), preset)
    assert set(merged) == set(preset)


def test_a_launcher_that_is_not_installed_is_named_with_its_extra() -> None:
    check_launcher("hydra._internal.core_plugins.basic_launcher.BasicLauncher")
    check_launcher("hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher")
    with pytest.raises(ConfigError, match=r"hydra/launcher=nowhere_launcher is not installed"):
        check_launcher("hydra_plugins.nowhere_launcher.x.Y")


def test_what_launchers_break_with_is_told_in_one_line() -> None:
    told = str(launch_failed(RuntimeError("Job (task=0) failed:\n  Traceback ...\n" + "x" * 1000)))
    assert told.startswith("the launcher lost a worker or a job: Job (task=0) failed:")
    assert "the same command goes on" in told
    assert "BrokenExecutor" in str(launch_failed(BrokenExecutor()))


@pytest.mark.parametrize(
    ("setting", "code", "told"),
    [
        ("n_jobs=0", 2, "error: hydra.launcher.n_jobs=0 is not possible"),
        ("batch_size=0", 2, "error: hydra.launcher.batch_size=0 is too small"),
        ("batch_size=many", 2, "error: hydra.launcher.batch_size=many is not possible"),
        ("prefer=q", 1, "error: the launcher does not work with its settings: prefer=q is not a valid"),
        ("timeout=0.01", 1, "error: the launcher lost a worker or a job: TimeoutError"),
    ],
)
def test_settings_that_a_launcher_cannot_take_are_one_error(
    setting: str, code: int, told: str, tmp_path: Path
) -> None:
    ran = run(tmp_path, "experiment=smoke", "hydra/launcher=joblib", f"hydra.launcher.{setting}")
    assert ran.returncode == code
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_mistake_of_the_configuration_is_not_the_launchers(tmp_path: Path) -> None:
    ran = run(tmp_path, "experiment=smoke", "hydra.sweep.subdir=${nope}")
    assert ran.returncode == 2
    assert "error: hydra.sweep.subdir: Interpolation key 'nope' not found" in ran.stderr


def test_batches_of_automatic_size_are_taken_for_single_walks() -> None:
    assert workers_of(launcher("joblib", "batch_size=auto")).batch == 1
    assert workers_of(launcher("joblib", "batch_size=3", "n_jobs=-1")).batch == 3


# --- load --------------------------------------------------------------------------------------------------


def grid_of(*points: tuple[str, str, int]) -> Grid:
    """One walk per (preset, prompt, bytes of its file)."""
    cells = []
    for quant, prompt, size in points:
        config = compose_cell("model=scripted", f"quant={quant}", f"prompt={prompt}", "suite=orders20")
        file = replace(planned_file(config), bytes=size)
        cells.append(GridCell(config, (), design_of(config), file))
    return Grid(tuple(cells), tuple(Walk((cell,), (FaultKind.et,)) for cell in cells), (), ())


def test_cells_of_one_file_are_spread_over_more_workers() -> None:
    grid = grid_of(*[("q8_0", f"P{n}", 8) for n in range(4)])
    load = load_of(grid, workers_of(launcher("joblib", "n_jobs=4")))
    assert (load.walks, load.loads, load.files, load.idle, load.unevenness) == ((1, 1), 4, 1, 0, 1.0)
    assert load.episodes == (70, 70)
    alone = load_of(grid, workers_of(BASIC))
    assert (alone.walks, alone.loads, alone.episodes) == ((4, 4), 1, (280, 280))


def test_the_load_follows_size_and_batches() -> None:
    """By hand: walks of size 3, 1, 1, 1 on two workers are even; two and two are not."""
    sizes = [("q8_0", "P0", 3), ("q4_k_m", "P0", 1), ("q4_k_m", "P1", 1), ("q4_k_m", "P2", 1)]
    even = load_of(grid_of(*sizes), workers_of(launcher("joblib", "n_jobs=2")))
    assert (even.walks, even.unevenness, even.loads) == ((1, 3), 1.0, 2)
    uneven = load_of(grid_of(*sizes), workers_of(launcher("joblib", "n_jobs=2", "batch_size=2")))
    assert (uneven.walks, uneven.loads) == ((2, 2), 3)
    assert uneven.unevenness == pytest.approx(4 / 3)


def test_idle_workers_and_too_few_cores_are_said() -> None:
    grid = grid_of(("q8_0", "P0", 1), ("q4_k_m", "P0", 1))
    lines = load_lines(grid, workers_of(launcher("submitit_slurm", "array_parallelism=5")), None)
    assert "2 model loads" in lines[0]
    assert lines[1] == (
        "3 of 5 workers have nothing to do: there are 2 walks. suite.shard=all/3 splits each cell into 3."
    )
    lines = load_lines(grid, workers_of(launcher("joblib", "n_jobs=2")), 3)
    assert lines[-1] == "2 workers with engine.n_threads=2 want 4 cores; this machine has 3."
    (line,) = load_lines(grid, workers_of(launcher("ray")), None)
    assert "as many as the cluster has room for" in line


# --- stores on networks ------------------------------------------------------------------------------------

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/local\\040disk ext4 rw 0 0
proj@tcp:/fs /scratch lustre rw 0 0
me@box: /mnt/box fuse.sshfs rw 0 0
/dev/fuse /mnt/enc fuse.gocryptfs rw 0 0
server:/x /shadow nfs rw 0 0
tmpfs /shadow tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/mlruns", "nfs4"),
        ("/home", "nfs4"),
        ("/homely/x", None),
        ("/home/local disk/x", None),
        ("/scratch/a/b/c", "lustre"),
        ("/mnt/box/x", "fuse.sshfs"),
        ("/mnt/enc/x", None),
        ("/shadow/x", None),
        ("/var/x", None),
    ],
)
def test_network_file_systems_are_known(path: str, kind: str | None) -> None:
    assert network_kind(Path(path), MOUNTS) == kind


def test_the_table_of_this_machine_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"/ / ext4 rw 0 0\nserver:/x {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", table)
    assert network_kind(tmp_path / "not" / "yet") == "nfs"
    monkeypatch.setattr(filesystem, "_MOUNTS", tmp_path / "none")
    assert network_kind(tmp_path) is None


def test_sqlite_on_a_network_is_said_and_refused_to_several_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = compose_cell("model=scripted", f"tracking.root={tmp_path}").tracking
    slurm, joblib = workers_of(launcher("submitit_slurm")), workers_of(launcher("joblib"))
    assert store_notes(tracking, joblib) == []
    check_store(tracking, slurm)
    (note,) = store_notes(tracking, slurm)
    assert "workers on other machines cannot reach" in note
    table = tmp_path / "mounts"
    table.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", table)
    (note,) = store_notes(tracking, joblib)
    assert "SQLite database on nfs4" in note
    check_store(tracking, joblib)
    with pytest.raises(TrackingError, match="SQLite database on nfs4 is not safe"):
        check_store(tracking, slurm)
    with pytest.raises(TrackingError, match="not safe"):
        check_store(replace(tracking, uri=f"sqlite:///{tmp_path}/x.db"), slurm)
    server: TrackingConfig = replace(tracking, uri="http://box:5000")
    check_store(server, slurm)
    assert store_notes(server, slurm) == []
