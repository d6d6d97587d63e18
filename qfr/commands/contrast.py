"""Contrast a JSON table of per-task successes: published results, or results of other tools.

The file: {"sites": [2, 2, 3], "tables": {"Llama/8/P0": [2, null, 3], "Llama/4/P0": [1, 0, null]}}. `sites`
counts the fault sites of each task; each table is named model/level/prompt and holds successes per task, null
where the task failed its clean pass. Optional: "families", "task_names", "levels" (highest first), "policy".
"""

from __future__ import annotations

import argparse

from qfr.analysis.cells import summarize
from qfr.analysis.contrasts import Options, contrast_table
from qfr.analysis.levels import Axis
from qfr.analysis.tablefile import read_table
from qfr.analysis.tablejson import to_json
from qfr.commands.common import add_bootstrap
from qfr.front.show import console
from qfr.report.console import print_contrasts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", help="the JSON file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--vary", default=Axis.quant, type=Axis, choices=[Axis.quant, Axis.prompt, Axis.model],
        help="axis that is contrasted: quant = the levels",
    )  # fmt: skip
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the contrasts."""
    found = read_table(arguments.table)
    options = Options(
        vary=arguments.vary,
        method=arguments.method,
        resamples=arguments.resamples,
        seed=arguments.seed,
        order=found.levels if arguments.vary is Axis.quant else (),
    )
    contrasts = contrast_table(found.tables, options)
    cells = summarize(found.tables, options.bootstrap, options.seed)
    if arguments.json:
        print(to_json(contrasts, cells))
    else:
        print_contrasts(contrasts, cells, console())
    return 0
