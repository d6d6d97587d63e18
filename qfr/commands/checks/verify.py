"""Verify a registration, or a card: derive everything again and compare it with what was frozen or written.

The record against its digest, in the file and in the store; the prompts and the code as frozen; every planned
cell run once, after the registration; every log, table, score and metric against what the log gives. Says for
each cell whether its clean set and its successes equal those of earlier runs outside the registration.

`qfr verify CARD.md BUNDLE` derives a card (qfr card) again from its bundle and names every line that differs.

Exit code: 0 everything is as frozen or a declared deviation, 1 something is neither (named), 2 there is no
such registration, card or bundle.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from qfr.commands.card_checks import check_card
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.registration.findings import Verdict
from qfr.registration.verify import Verification, verify

_STYLES = {
    Verdict.good: "green",
    Verdict.note: "yellow",
    Verdict.declared: "yellow",
    Verdict.problem: "bold red",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "registration", help="r-<digest prefix>, or the JSON file of a registration; or a card (card.md)"
    )
    parser.add_argument("bundle", nargs="?", type=Path, help="with a card: the bundle beside it")
    parser.add_argument(
        "--other-code",
        action="store_true",
        help="the code that verifies may be another version than the frozen one (then a note, no problem)",
    )
    group = parser.add_argument_group("store")
    group.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    group.add_argument("--root", default="mlruns", help="folder of the local store")


def run(arguments: argparse.Namespace) -> int:
    """Verify, print, and say it by the exit code."""
    if arguments.bundle is not None:
        return _run_card(Path(arguments.registration), arguments.bundle)
    if arguments.registration.endswith(".md"):
        raise ConfigError(
            "a card is checked against its bundle", hint=f"qfr verify {arguments.registration} BUNDLE.tar.zst"
        )
    found = verify(
        arguments.registration, arguments.uri, Path(arguments.root), other_code=arguments.other_code
    )
    show(found, console())
    return 1 if found.problems else 0


def _run_card(card: Path, bundle: Path) -> int:
    request, names, differences = check_card(card, bundle)
    out = console()
    for one in differences:
        out.print(f"PROBLEM  {one.file}, line {one.line}", style="bold red", soft_wrap=True)
        out.print(f"  stands:  {one.stands or '(nothing)'}", markup=False, soft_wrap=True)
        out.print(f"  derived: {one.derived or '(nothing)'}", markup=False, soft_wrap=True)
    if differences:
        many = f"{len(differences)} line{'' if len(differences) == 1 else 's'}"
        out.print(f"NOT verified: {many} of the card differ from what {bundle} gives.", style="bold red")
        return 1
    out.print(
        f"Verified: {', '.join(names)} of {request.model} follow from sweep {request.sweep} in {bundle}.",
        style="bold green",
        soft_wrap=True,
    )
    return 0


def show(found: Verification, out: Console) -> None:
    """Print what was found."""
    record = found.record
    if record is not None:
        head = f'{found.id}: "{record.title}", {record.label}, registered {record.registered}'
        out.print(head, markup=False, style="bold", soft_wrap=True)
    for one in found.findings:
        line = (
            f"[{_STYLES[one.verdict]}]{one.verdict:<8}[/] {escape(one.subject)}: {escape(_plain(one.text))}"
        )
        out.print(line, soft_wrap=True)
    if found.against:
        out.print(_table(found))
    count = len(found.problems)
    if count:
        out.print(f"NOT verified: {count} problem{'' if count == 1 else 's'}.", style="bold red")
        return
    deviations = sum(one.verdict is Verdict.declared for one in found.findings)
    if deviations:
        many = f"{deviations} declared deviation{'' if deviations == 1 else 's'}"
        out.print(f"Verified, with {many}: all else is as frozen.", style="bold yellow")
    else:
        out.print("Verified: everything is as frozen.", style="bold green")


def _table(found: Verification) -> Table:
    table = Table(title="Beside earlier runs of the same cells", title_justify="left", title_style="bold")
    for name in ("cell", "this registration", "earlier runs", "clean set and successes"):
        table.add_column(name, overflow="fold", justify="right" if name == "earlier runs" else "left")
    for one in found.against:
        verdict = {None: "–", True: "equal", False: "[bold red]DIFFERENT[/]"}[one.equal]
        table.add_row(escape(one.name), escape(one.text), str(one.earlier), verdict)
    return table


def _plain(text: str) -> str:
    """Without control characters: some of it comes from artifacts that anyone may have written."""
    return "".join(char if char.isprintable() else "�" for char in text)
