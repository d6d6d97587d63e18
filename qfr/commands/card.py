"""Write a card for a model page from a sweep, and the bundle by which others can check it.

Writes into --out: card.md (a Markdown block: files, success when tools fail, recovery, tasks won and lost,
loops, cost, size, speed, one sentence), card.svg (the intervals), a badge-PRESET.json in the form of the
endpoint of shields.io for each preset about which something is settled, .eval_results/qfr.yaml for the
Hugging Face hub (with --dataset), and bundle.tar.zst, the whole sweep. Anyone derives every number again:

  qfr card s-… --out card/
  qfr verify card/card.md card/bundle.tar.zst
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qfr.closing.cards import card_report, kept_request
from qfr.commands.common import existing_store, points
from qfr.commands.transfer import export
from qfr.errors import ConfigError
from qfr.grid.show import console
from qfr.records import Policy
from qfr.report.card import CARD, CardRequest, files_of, models_of

BUNDLE = "bundle.tar.zst"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("sweep", help="id of the sweep (s-…)")
    parser.add_argument("--out", type=Path, default=Path("card"), help="folder to write into")
    parser.add_argument("--model", help="which model (needed where the sweep has several)")
    parser.add_argument(
        "--policy", type=Policy, choices=list(Policy), help="scoring policy (left out = the sweep's)"
    )
    parser.add_argument("--margin", type=points, help="of the verdicts, in points (left out = the sweep's)")
    parser.add_argument("--dataset", help="dataset on the Hugging Face hub, OWNER/NAME, for .eval_results")
    parser.add_argument("--force", action="store_true", help="replace a card that is there")
    group = parser.add_argument_group("store")
    group.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    group.add_argument("--root", default="mlruns", help="folder of the local store")
    group.add_argument("--experiment", nargs=1, help="MLflow experiment (left out = qfr)")


def run(arguments: argparse.Namespace) -> int:
    """Write the card."""
    out: Path = arguments.out
    if (out / CARD).exists() and not arguments.force:
        raise ConfigError("a card is there already", where=str(out / CARD), hint="choose --out, or --force")
    if arguments.dataset is not None and not _is_dataset(arguments.dataset):
        raise ConfigError(f"--dataset {arguments.dataset!r} is no dataset of the hub", hint="OWNER/NAME")
    store = existing_store(arguments)
    policy, margin = kept_request(store, arguments.sweep)
    policy = arguments.policy or policy
    margin = arguments.margin if arguments.margin is not None else margin
    report = card_report(store, arguments.sweep, policy, margin)
    model = arguments.model or _only(models_of(report))
    request = CardRequest(arguments.sweep, model, str(policy), margin, arguments.dataset)
    files = files_of(report, request)
    for path, data in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(data)
    export.run(
        argparse.Namespace(
            sweep=arguments.sweep,
            out=out / BUNDLE,
            format="archive",
            force=True,
            uri=arguments.uri,
            root=arguments.root,
            experiment=arguments.experiment,
        )
    )
    _say(out, files, arguments.dataset)
    return 0


def _only(models: tuple[str, ...]) -> str:
    if len(models) == 1:
        return models[0]
    if not models:
        raise ConfigError("nothing in that sweep can be ranked: it has no cell with a fault")
    raise ConfigError(f"the sweep has {len(models)} models", hint="--model " + " or ".join(models))


def _is_dataset(text: str) -> bool:
    owner, slash, name = text.partition("/")
    return bool(owner and slash and name) and " " not in text and "/" not in name


def _say(out: Path, files: dict[Path, bytes], dataset: str | None) -> None:
    screen = console()
    for path in files:
        screen.print(f"{out / path}", markup=False, soft_wrap=True)
    if not any(path.name.startswith("badge-") for path in files):
        screen.print(
            "No badge: no preset has one settled verdict under every prompt and no flagged interval.",
            markup=False,
            soft_wrap=True,
        )
    if dataset is None:
        screen.print(
            "No .eval_results: --dataset OWNER/NAME says where on the hub.", markup=False, soft_wrap=True
        )
    screen.print(f"Check it:  qfr verify {out / CARD} {out / BUNDLE}", markup=False, soft_wrap=True)
