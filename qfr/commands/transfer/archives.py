"""`qfr import` of archives that `qfr export` wrote."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qfr.archive.container import SUFFIX, read_archive
from qfr.archive.layout import RUN_FILE, RUNS
from qfr.archive.restoring import restore
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.tracking.environment import redact
from qfr.tracking.store import open_store

EXPERIMENT = "qfr"


def all_archives(paths: Sequence[str]) -> bool:
    """Whether the files are archives of sweeps, by their names.

    Raises
    ------
    ConfigError
        Some are and some are not.
    """
    found = [path for path in paths if path.endswith(SUFFIX)]
    if found and len(found) < len(paths):
        raise ConfigError(
            "archives of sweeps and logs of other tools in one command",
            hint="import them one after the other",
        )
    return bool(found)


def import_archives(
    paths: Sequence[str], *, uri: str | None, root: str, experiment: str | None, dry: bool
) -> int:
    """Check archives and put their sweeps into a store (`dry`: check only)."""
    out = console()
    for path in paths:
        with tempfile.TemporaryDirectory(prefix="qfr-") as folder:
            archive = read_archive(Path(path), Path(folder))
            runs = sum(name.endswith(f"/{RUN_FILE}") for name in archive.below(RUNS))
            lines = [
                f"{path}: sweep {archive.sweep}, {runs} runs, every digest as listed"
                f" (manifest {archive.digest[:12]})"
            ]
            if not dry:
                store = open_store(uri, Path(root), experiment or EXPERIMENT)
                done = restore(archive, store)
                there = f"; {done.present} were there already" if done.present else ""
                lines.append(
                    f"  {done.made} runs put into experiment {store.experiment} in {store.shown}{there}"
                )
                lines += [f"  registration {one}" for one in done.registrations]
                lines.append(f"  its report: {_report(archive.sweep, uri, root, experiment)}")
        for line in lines:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def _report(sweep: str, uri: str | None, root: str, experiment: str | None) -> str:
    words = ["qfr", "report", "--sweep", sweep]
    for flag, value, usual in (
        ("--uri", uri, None),
        ("--root", root, "mlruns"),
        ("--experiment", experiment, EXPERIMENT),
    ):
        words += [flag, value] if value is not None and value != usual else []
    return redact(shlex.join(words))
