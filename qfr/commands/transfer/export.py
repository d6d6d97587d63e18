"""Pack a sweep into one file for another machine or a reviewer.

Logs, scores, configurations, prompts, suite, registration, environment and report, with a manifest of
digests. No absolute path, no name of a machine or user, no address of a store goes in. Before it is written,
it is restored into a store of its own, and the report in it is made there: `qfr import OUT` elsewhere, then
`qfr report --sweep SWEEP`, gives the very same one.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import qfr
from qfr.archive.collecting import Collected, collect
from qfr.archive.container import SUFFIX, pack, read_archive
from qfr.archive.layout import REPORT
from qfr.archive.restoring import restore
from qfr.closing.reporting import ReportRequest, make_report
from qfr.commands.common import existing_store
from qfr.commands.transfer.neutral import export_neutral
from qfr.config import ReportConfig
from qfr.errors import ConfigError, TrackingError
from qfr.foreign.jsonl import SUFFIXES
from qfr.front.models import compose_cell
from qfr.grid.show import console
from qfr.records import Policy
from qfr.report.export import write_report
from qfr.tracking.store import open_store

_README = """This archive holds one sweep of qfr: {cells} finished runs.

  manifest.json   size and SHA-256 of every other file
  sweep/          the sweep's own run and its plan
  runs/           one folder per run: run.json (params, tags, metrics) and artifacts/ (episodes.jsonl.gz is
                  the log; then scores, configuration, prompt, suite and the tables that follow from the log)
  registration/   what was frozen before the runs, where they ran under a registration
  environment/    Python, system and packages of the machine that exported
  report/         the report that these runs give

To check and to use it:  qfr import FILE  and then  {command}
What each field and column means: docs/data_dictionary.md of qfr {version}.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("sweep", help="id of the sweep (s-…)")
    parser.add_argument("out", type=Path, help=f"file to write: NAME{SUFFIX}, or NAME{SUFFIXES[0]}")
    parser.add_argument(
        "--format", choices=["archive", "jsonl"], default="archive",
        help="archive (left out): all of it, for another machine; jsonl: a line per episode, for other tools",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace OUT when it is there")
    group = parser.add_argument_group("store")
    group.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    group.add_argument("--root", default="mlruns", help="folder of the local store")
    group.add_argument("--experiment", nargs=1, help="MLflow experiment (left out = qfr)")


def run(arguments: argparse.Namespace) -> int:
    """Write the archive."""
    out: Path = arguments.out
    neutral = arguments.format == "jsonl"
    _check_out(out, SUFFIXES[0] if neutral else SUFFIX, arguments.force)
    store = existing_store(arguments)
    if neutral:
        return export_neutral(store, arguments.sweep, out)
    with tempfile.TemporaryDirectory(prefix="qfr-") as scratch:
        folder = Path(scratch, "archive")
        folder.mkdir()
        found = collect(store, arguments.sweep, folder)
        if not found.finished:
            raise TrackingError(
                "no finished cell to export", where=f"sweep {found.sweep}", hint="run its command again first"
            )
        request = _request(found, folder / REPORT)
        text = _README.format(cells=found.finished, command=request.command, version=qfr.__version__)
        (folder / "README.txt").write_text(text, encoding="utf-8")
        _add_report(folder, found, request, Path(scratch))
        digest = pack(folder, out, sweep=found.sweep, qfr_version=qfr.__version__)
    _say(found, out, digest)
    return 0


def _check_out(out: Path, suffix: str, force: bool) -> None:
    if not out.name.endswith(suffix):
        raise ConfigError(f"{out.name!r} is no name of such a file", hint=f"end it in {suffix}")
    if out.exists() and not force:
        raise ConfigError("the file is there already", where=str(out), hint="choose another, or --force")


def _request(found: Collected, out: Path) -> ReportRequest:
    """The sweep's own report, with the command that makes it after an import.

    What a run of an earlier version did not record is as the configuration's defaults say.
    """
    usual = compose_cell()
    recorded = json.loads(found.facts[-1].config)
    report = asdict(usual.report)
    report |= {name: value for name, value in recorded.get("report", {}).items() if name in report}
    policy = recorded.get("scorer", {}).get("policy", usual.scorer.policy)
    cell = replace(
        usual,
        report=ReportConfig(**{**report, "out": None}),
        scorer=replace(usual.scorer, policy=Policy(policy)),
    )
    return replace(ReportRequest.of(cell, found.sweep), out=out)


def _add_report(folder: Path, found: Collected, request: ReportRequest, scratch: Path) -> None:
    """Restore what was collected into an empty store and report from there.

    So the archive is known to be whole, and its report to be the one that an import gives.
    """
    trial = scratch / f"trial{SUFFIX}"
    pack(folder, trial, sweep=found.sweep, qfr_version=qfr.__version__)
    unpacked = scratch / "unpacked"
    unpacked.mkdir()
    store = open_store(None, scratch / "mlruns", "qfr")
    restore(read_archive(trial, unpacked), store)
    report, _ = make_report(store, request)
    # Not the time of the export: equal sweeps are equal files.
    ended = time.strftime("%Y-%m-%d %H:%M", time.gmtime(found.last_end / 1000))
    made = replace(report.options, made=f"qfr {qfr.__version__}, {ended}")
    # The runs of the empty store are nobody's.
    without = replace(report.material, runs={})
    write_report(replace(report, options=made, material=without), request.out)


def _say(found: Collected, out: Path, digest: str) -> None:
    screen = console()
    also = f", {found.unfinished} unfinished" if found.unfinished else ""
    screen.print(
        f"{out}: sweep {found.sweep}, {found.finished} finished runs{also}, {out.stat().st_size:,} bytes",
        markup=False,
        soft_wrap=True,
    )
    screen.print(f"SHA-256 of its manifest: {digest}", markup=False, soft_wrap=True)
    for note in found.notes:
        screen.print(f"note: {note}", markup=False, soft_wrap=True)
    screen.print(f"Elsewhere: qfr import {shlex.quote(out.name)}", markup=False, soft_wrap=True)
