"""Check an installation: versions, llama.cpp's build, GPU, disk, MLflow store, model files.

Exit code 1 on a problem. With --exactness, --speed or overrides (`qfr doctor --exactness model=smollm2
quant=q4_1`) one model is loaded and tried instead: whether its forks are bit-equal to fresh evaluation
(within a minute on usual machines), and how many tokens it evaluates per second (ten seconds; `mode=plan`
uses it).
Files at hand are compared with their pinned SHA-256 (read once, then remembered by size and time).
"""

from __future__ import annotations

import argparse
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.table import Table

import qfr
from qfr.commands.checks.model_checks import check_model
from qfr.config import EngineKind, QuantConfig
from qfr.engine.files.digests import digest
from qfr.engine.files.resolve import look
from qfr.engine.llama.library import library_facts
from qfr.errors import EngineError, QfrError
from qfr.front.models import compose_cell, model_names
from qfr.front.shared_store import sqlite_file
from qfr.grid.show import console
from qfr.play.speed import SECONDS
from qfr.tracking.filesystem import network_kind
from qfr.tracking.store import peek_store

_PACKAGES = ("hydra-core", "mlflow", "numpy", "scipy", "pandas", "plotly", "gguf", "huggingface-hub")
_LOW_DISK = 10 * 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the screen."""

    what: str
    ok: bool | None
    # None = a fact, neither good nor bad.
    said: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--uri", help="MLflow tracking URI; left out = SQLite under --root")
    parser.add_argument("--root", default="mlruns", help="folder of the local store")
    parser.add_argument("--experiment", default="qfr", help="MLflow experiment")
    parser.add_argument(
        "--model",
        action="append",
        help="check this model's files only, may be repeated (left out = all of conf/model)",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="the model to try: model=… quant=… engine.streams=…"
    )
    parser.add_argument(
        "--exactness", action="store_true", help="try whether forks are bit-equal to fresh evaluation"
    )
    parser.add_argument("--speed", action="store_true", help="measure prefill and decode speed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the measurement of speed")


def run(arguments: argparse.Namespace) -> int:
    """Print the screen."""
    findings = list(_model(arguments)) if _asks_for_model(arguments) else _all(arguments)
    table = Table(show_header=False, box=None, padding=(0, 1))
    for one in findings:
        mark = {True: "[green]ok[/]", False: "[bold red]problem[/]", None: ""}[one.ok]
        table.add_row(mark, one.what, one.said)
    out = console()
    out.print(table)
    bad = [one for one in findings if one.ok is False]
    out.print(f"\n{len(bad)} problem{'s' if len(bad) > 1 else ''}" if bad else "\nno problem found")
    return 1 if bad else 0


def _asks_for_model(arguments: argparse.Namespace) -> bool:
    return bool(arguments.exactness or arguments.speed or arguments.overrides)


def _model(arguments: argparse.Namespace) -> Iterator[Finding]:
    neither = not (arguments.exactness or arguments.speed)
    checked = check_model(
        arguments.overrides,
        Path(arguments.root),
        exactness=arguments.exactness or neither,
        speed=arguments.speed or neither,
        seconds=arguments.seconds,
    )
    for ok, what, said in checked.lines():
        yield Finding(what, ok, said)


def _all(arguments: argparse.Namespace) -> list[Finding]:
    return [
        *_versions(),
        *_engine(),
        *_disk(Path(arguments.root)),
        *_store(arguments),
        *_models(arguments.model or model_names(), Path(arguments.root) / "models"),
    ]


def _versions() -> Iterator[Finding]:
    yield Finding(
        "qfr", None, f"{qfr.__version__}, Python {platform.python_version()}, {platform.platform()}"
    )
    if platform.system() == "Darwin":
        yield Finding("platform", None, "macOS: qfr has not been tried here")
    yield Finding("packages", None, ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES))


def _engine() -> Iterator[Finding]:
    try:
        facts = library_facts()
    except EngineError as error:
        yield Finding("llama.cpp", False, str(error))
        return
    known = facts.commit != "unknown"
    raw = f", reports {facts.commit_raw}" if facts.commit_raw else ""
    yield Finding(
        "llama.cpp",
        known,
        f"llama-cpp-python {facts.version}, commit {facts.commit} (from {facts.commit_source}{raw})",
    )
    yield Finding("library", None, f"sha256 {facts.sha256[:16]}; {facts.system_info}")
    if facts.gpu_offload:
        yield Finding(
            "GPU", bool(facts.devices), ", ".join(facts.devices) or "this build can offload, but sees no GPU"
        )
    else:
        yield Finding("GPU", None, "this build runs on the CPU alone (see the README for a CUDA build)")


def _disk(root: Path) -> Iterator[Finding]:
    place = root.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    yield Finding("free disk", free >= _LOW_DISK, f"{free / 2**30:.1f} GiB at {place}")


def _store(arguments: argparse.Namespace) -> Iterator[Finding]:
    database = sqlite_file(arguments.uri, str(arguments.root))
    if database is not None and (kind := network_kind(database)):
        told = f"SQLite on {kind}: never let two machines write to it (docs/cluster.md)"
        yield Finding("file system of the store", None, told)
    try:
        store = peek_store(arguments.uri, Path(arguments.root), arguments.experiment)
    except QfrError as error:
        yield Finding("MLflow store", False, str(error))
        return
    if store is None:
        yield Finding(
            "MLflow store", None, f"none yet ({arguments.uri or arguments.root}); the first grid makes it"
        )
    else:
        yield Finding("MLflow store", True, f"{store.shown}, experiment {store.experiment!r}")


def _models(names: tuple[str, ...] | list[str], cache_dir: Path) -> Iterator[Finding]:
    for name in names:
        cell = compose_cell(f"model={name}")
        if cell.engine.kind is EngineKind.scripted:
            continue
        for preset in cell.model.files:
            what = f"model={name} {preset}"
            try:
                found = look(cell.model, QuantConfig(preset, None))
                if found.path is None:
                    pin = "pinned" if found.sha256 else "unpinned"
                    yield Finding(what, None, f"not here; would be downloaded from {found.repo_id} ({pin})")
                    continue
                value = digest(found.path, cache_dir)
            except QfrError as error:
                yield Finding(what, False if cell.model.repo_id else None, str(error))
                continue
            same = found.sha256 in (None, value)
            state = (
                "unpinned" if found.sha256 is None else "as pinned" if same else f"pinned is {found.sha256}"
            )
            yield Finding(what, same, f"{found.path}: sha256 {value if not same else value[:16]}, {state}")
