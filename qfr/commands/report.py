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

from qfr.analysis.equal_memory import VARY as MEMORY
from qfr.analysis.family import selector
from qfr.analysis.levels import Axis
from qfr.analysis.named_groups import parse_groups
from qfr.commands.common import (
    add_bootstrap,
    add_store,
    existing_store,
    experiments,
    not_negative,
    points,
)
from qfr.errors import TableError, TrackingError, UserError
from qfr.front.reporting import ReportRequest, report_sweep
from qfr.front.show import console
from qfr.records import Policy
from qfr.report.published import NAMES, published
from qfr.scope import VARIES, check_axis
from qfr.scoring import SCORER_VERSION
from qfr.tracking.environment import redact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_bootstrap(parser)
    parser.add_argument(
        "--vary",
        default=str(Axis.quant),
        type=_axis,
        metavar="AXIS|KEY",
        help=f"what is contrasted: {', '.join(VARIES)}, memory, or a key such as engine.type_k",
    )
    parser.add_argument(
        "--policy", default=Policy.tolerant, type=Policy, choices=list(Policy), help="headline policy"
    )
    parser.add_argument(
        "--policy-version", default=str(SCORER_VERSION), help="which logged scores (see qfr rescore)"
    )
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="FIELD=VALUES;…",
        help="contrasts whose tests are adjusted together: 'a=q8_0;b=q4_k_m;target=full'; may be repeated",
    )
    parser.add_argument(
        "--groups", default="", metavar="NAME=PRESETS;…", help="'high=q8_0,q6_k;low=q4_k_m,q3_k_m'"
    )
    parser.add_argument("--margin", type=points, default=5.0, help="of equivalence, in points")
    parser.add_argument("--against", choices=NAMES, help="published results to set beside")
    parser.add_argument(
        "--transcripts",
        type=not_negative,
        default=8000,
        metavar="N",
        help="episodes in the page's viewer, at most",
    )
    parser.add_argument(
        "--across-builds",
        action="store_true",
        help="also contrast cells of different llama.cpp builds (kept apart otherwise); both are named",
    )
    parser.add_argument(
        "--format", default="text", choices=("text", "md"), help="what is printed: tables, or Markdown"
    )
    parser.add_argument(
        "--images", choices=("png", "svg", "pdf"), help="also write the figures as images (extra: images)"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the report (left out = <root>/reports/<sweep or all>)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    store = existing_store(arguments)
    if store.read_only and arguments.out is None:
        raise TrackingError(
            "the store is read-only: the report has no place in it",
            where=store.shown,
            hint="say where: --out FOLDER",
        )
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
        command=redact(shlex.join(["qfr", *sys.argv[1:]])),
        margin=arguments.margin,
        transcripts=arguments.transcripts,
        family=tuple(selector(_fields(text)) for text in arguments.family),
        groups=parse_groups(arguments.groups),
        against=published(arguments.against) if arguments.against else None,
        markdown=arguments.format == "md",
        images=arguments.images,
        across_builds=arguments.across_builds,
    )
    report_sweep(store, request, console())
    return 0


def _axis(text: str) -> str:
    try:
        return check_axis(text, (MEMORY,))
    except TableError as error:
        raise argparse.ArgumentTypeError(f"{error.what}; {error.hint}") from None


def _fields(text: str) -> dict[str, str]:
    """Read ``a=q8_0;target=full``."""
    found = {}
    for part in text.split(";"):
        name, equals, values = part.partition("=")
        if not equals:
            raise UserError(
                f"a selector cannot be read from {part.strip()!r}",
                where="--family",
                hint="write FIELD=VALUE,VALUE;FIELD=VALUE",
            )
        found[name.strip()] = values
    return found
