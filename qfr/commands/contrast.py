"""Contrast a JSON table of per-task successes: published results, or results of other tools.

The file: {"sites": [2, 2, 3], "tables": {"Llama/8/P0": [2, null, 3], "Llama/4/P0": [1, 0, null]}}. `sites`
counts the fault sites of each task; each table is named model/level/prompt and holds successes per task, null
where the task failed its clean pass. Optional: "families", "task_names", "levels" (highest first), "policy",
"file_bytes" ({"Llama/8": 8540770592}: sizes of the files, for --vary memory).
"""

from __future__ import annotations

import argparse

from qfr.analysis.cells import summarize
from qfr.analysis.contrast.contrasts import Options
from qfr.analysis.contrast.equal_memory import VARY
from qfr.analysis.contrast.groups import parse_groups
from qfr.analysis.levels import Axis
from qfr.analysis.tablefile import VARIES, contrast_file, further_file, memory_file, read_table, to_json
from qfr.analysis.targets import Target
from qfr.commands.common import add_bootstrap, points
from qfr.grid.show import console
from qfr.report.console import print_contrasts, print_further

_TARGETS = tuple(target for target in Target if target is not Target.ungated)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", help="the JSON file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--vary", default=str(Axis.quant), choices=VARIES,
        help="what is contrasted: quant = the levels; memory = models whose files are of equal size",
    )  # fmt: skip
    parser.add_argument(
        "--target", action="append", type=Target, choices=_TARGETS, help="only this target; may be repeated"
    )
    parser.add_argument(
        "--groups", default="", metavar="NAME=LEVELS;…",
        help="named groups of levels on shared tasks: 'high=8,6;low=4,3'",
    )  # fmt: skip
    parser.add_argument("--margin", type=points, default=5.0, help="of equivalence, in points")
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the contrasts."""
    found = read_table(arguments.table)
    options = Options(
        vary=Axis.model if arguments.vary == VARY else Axis(arguments.vary),
        method=arguments.method,
        resamples=arguments.resamples,
        seed=arguments.seed,
        margin=arguments.margin,
    )
    chosen = memory_file if arguments.vary == VARY else contrast_file
    contrasts = chosen(found, options)
    if arguments.target:
        contrasts = tuple(one for one in contrasts if one.target in arguments.target)
    cells = summarize(found.tables, options.bootstrap, options.seed)
    further = further_file(found, parse_groups(arguments.groups), options)
    if arguments.json:
        print(to_json(contrasts, cells, further))
    else:
        print_contrasts(contrasts, cells, console())
        print_further(further, console())
    return 0
