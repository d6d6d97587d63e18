"""Pull finished runs back from MLflow and contrast them.

Prints the answer, the contrasts and the warnings; writes report.html (opens without network), the table
of results (results.csv, .parquet, .json: every number with its id) and where the cells come from
(provenance.csv, runs.csv). With --sweep the page and the table also go to the sweep's own MLflow run.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from qfr.analysis.contrast.equal_memory import VARY as MEMORY
from qfr.analysis.contrast.family import selector
from qfr.analysis.contrast.groups import parse_groups
from qfr.analysis.levels import Axis
from qfr.analysis.published import NAMES, published
from qfr.canonical import digest
from qfr.closing.reporting import ReportRequest, kept_settings, make_report, report_sweep
from qfr.commands.common import (
    add_bootstrap,
    add_store,
    existing_store,
    experiments,
    not_negative,
    points,
    positive,
)
from qfr.errors import TableError, TrackingError, UserError
from qfr.grid.show import console
from qfr.records import Policy
from qfr.report.console import print_explained
from qfr.report.content.explain import explain
from qfr.scope import VARIES, check_axis
from qfr.scoring import SCORER_VERSION
from qfr.stats.intervals import Method
from qfr.tracking.environment import redact
from qfr.tracking.store import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_store(parser)
    add_bootstrap(parser)
    parser.set_defaults(method=None, resamples=None, seed=None)
    parser.add_argument(
        "--vary",
        type=_axis,
        metavar="AXIS|KEY",
        help=f"what is contrasted: {', '.join(VARIES)}, memory, or a key such as engine.type_k",
    )
    parser.add_argument("--policy", type=Policy, choices=list(Policy), help="headline policy")
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
    parser.add_argument("--groups", metavar="NAME=PRESETS;…", help="'high=q8_0,q6_k;low=q4_k_m,q3_k_m'")
    parser.add_argument("--margin", type=points, help="of 'not worse' and equivalence, in points")
    parser.add_argument("--against", choices=NAMES, help="published results to set beside")
    parser.add_argument(
        "--transcripts",
        type=not_negative,
        metavar="N",
        help="episodes in the page's viewer, at most",
    )
    parser.add_argument(
        "--stuck-after",
        type=positive,
        metavar="K",
        help="the same call with the same answer so often in a row is stuck",
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
        "--explain", metavar="ROW", help="write nothing; print what one row is made of: tasks, values, runs"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the report (left out = <root>/reports/<sweep or all>)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    store = existing_store(arguments)
    if store.read_only and arguments.out is None and arguments.explain is None:
        raise TrackingError(
            "the store is read-only: the report has no place in it",
            where=store.shown,
            hint="say where: --out FOLDER",
        )
    request = _request(store, arguments)
    if arguments.explain is not None:
        report, _ = make_report(store, request)
        print_explained(explain(report, arguments.explain), console())
        return 0
    if request.sweep is not None and not request.own:
        note = f"not as {request.sweep} was reported: its own report stays as it is"
        print(f"{note}; this one goes to {request.out}", file=sys.stderr)
    report_sweep(store, request, console())
    return 0


#: What a report is made with where neither an option nor the sweep says otherwise.
_USUAL: dict[str, object] = {
    "policy": Policy.tolerant,
    "vary": str(Axis.quant),
    "method": Method.EXACT,
    "resamples": 20_000,
    "seed": 20260101,
    "margin": 5.0,
    "transcripts": 8000,
    "stuck_after": 3,
    "family": (),
    "groups": (),
    "against": None,
}


def _request(store: Store, arguments: argparse.Namespace) -> ReportRequest:
    """The options over the sweep's own settings over what is usual."""
    sweep = arguments.sweep
    kept = _USUAL | (kept_settings(store, sweep) if sweep else {})
    plain = ("policy", "vary", "method", "resamples", "seed", "margin", "transcripts", "stuck_after")
    asked = {name: getattr(arguments, name) for name in plain}
    given: dict[str, object] = {name: value for name, value in asked.items() if value is not None}
    if arguments.family:
        given["family"] = tuple(selector(_fields(text)) for text in arguments.family)
    if arguments.groups is not None:
        given["groups"] = parse_groups(arguments.groups)
    if arguments.against:
        given["against"] = published(arguments.against)
    changed = {name: value for name, value in given.items() if value != kept[name]}
    own = not (
        changed
        or arguments.filter
        or arguments.across_builds
        or arguments.out
        or arguments.policy_version != str(SCORER_VERSION)
    )
    name = sweep or "all"
    if sweep and not own:
        name += (
            "-" + digest([sorted(map(str, changed.items())), arguments.filter, arguments.across_builds])[:8]
        )
    settings: dict[str, Any] = kept | given
    return ReportRequest(
        sweep=sweep,
        experiments=experiments(arguments),
        condition=arguments.filter,
        score_version=arguments.policy_version,
        out=arguments.out or Path(arguments.root) / "reports" / name,
        command=redact(shlex.join(["qfr", *sys.argv[1:]])),
        markdown=arguments.format == "md",
        images=arguments.images,
        across_builds=arguments.across_builds,
        own=own,
        **settings,
    )


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
