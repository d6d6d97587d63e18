"""Pull finished runs back from MLflow and contrast them.

Prints the answer, the contrasts and the warnings; writes report.html (opens without network), contrasts.csv,
.parquet, .json and the tables of cells, endings and provenance. With --sweep the page and the contrasts also
go to the sweep's own MLflow run.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from qfr.analysis.levels import Axis
from qfr.commands.common import add_bootstrap, add_store, existing_store, experiments
from qfr.front.reporting import ReportRequest, report_sweep
from qfr.front.show import console
from qfr.records import Policy
from qfr.scoring import SCORER_VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_bootstrap(parser)
    parser.add_argument(
        "--vary", default=Axis.quant, type=Axis, choices=list(Axis), help="axis that is contrasted"
    )
    parser.add_argument(
        "--policy", default=Policy.tolerant, type=Policy, choices=list(Policy), help="headline policy"
    )
    parser.add_argument(
        "--policy-version", default=str(SCORER_VERSION), help="which logged scores (see qfr rescore)"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the report (left out = <root>/reports/<sweep or all>)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    store = existing_store(arguments)
    request = ReportRequest(
        sweep=arguments.sweep,
        experiments=experiments(arguments),
        condition=arguments.filter,
        score_version=arguments.policy_version,
        policy=arguments.policy,
        vary=arguments.vary,
        method=arguments.method,
        resamples=arguments.resamples,
        seed=arguments.seed,
        out=arguments.out or Path(arguments.root) / "reports" / (arguments.sweep or "all"),
        command=shlex.join(["qfr", *sys.argv[1:]]),
    )
    report_sweep(store, request, console())
    return 0
