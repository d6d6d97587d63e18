"""Derive a preset from a GGUF with llama.cpp's own quantizer, or compare two GGUF files tensor by tensor.

qfr quantize SOURCE PRESET [PRESET …] puts each file into --out (or into the cache that grids use).
qfr quantize --compare A B says whether two files hold the same tensors, and why not (then exit code 1).
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from rich.table import Table

from qfr.config import QuantConfig
from qfr.engine.files.compare import compare_files
from qfr.engine.files.gguf import ModelFile
from qfr.engine.files.quantize import derive
from qfr.errors import ConfigError
from qfr.grid.show import console

_MOST = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", nargs="?", type=Path, help="an F16, BF16 or F32 GGUF")
    parser.add_argument("presets", nargs="*", metavar="preset", help="Q8_0, Q4_K_M, IQ4_XS, …")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare two files instead")
    parser.add_argument("--imatrix", help="importance matrix")
    parser.add_argument(
        "--allow-requantize", action="store_true", help="accept a source that is quantized itself"
    )
    parser.add_argument("--out", type=Path, help="folder that the files are put into")
    parser.add_argument("--root", default=Path("mlruns"), type=Path, help="folder whose models/ is the cache")


def run(arguments: argparse.Namespace) -> int:
    """Derive or compare."""
    if arguments.compare is not None:
        return _compare(*arguments.compare)
    if arguments.source is None or not arguments.presets:
        raise ConfigError("a source and a preset are needed", hint="qfr quantize model-f16.gguf Q4_K_M Q8_0")
    quants = [_preset(name, arguments) for name in arguments.presets]
    table = Table(title=f"Derived from {arguments.source.name}", title_justify="left", title_style="bold")
    for name in ("preset", "MB", "tensor types", "not of the asked type", "sha256", "file"):
        table.add_column(name, overflow="fold")
    for quant in quants:
        made = derive(
            arguments.source, quant, arguments.root / "models", allow_requantize=arguments.allow_requantize
        )
        table.add_row(*_row(quant.preset, made, _place(made, arguments.source, arguments.out, quant.preset)))
    console().print(table)
    return 0


def _preset(name: str, arguments: argparse.Namespace) -> QuantConfig:
    """All of them are read before the first file is made."""
    if name.endswith(".gguf") or "/" in name:
        wanted = " ".join(one for one in arguments.presets if one != name) or "Q4_K_M"
        raise ConfigError(
            f"{name!r} is a file, and a preset stands here",
            hint=f"--out names a folder for the files: qfr quantize {arguments.source} {wanted} --out FOLDER",
        )
    return QuantConfig(name, arguments.imatrix)


def _place(made: ModelFile, source: Path, out: Path | None, preset: str) -> Path:
    """Copy the file to the user's folder under a plain name; the cache keeps its own."""
    if out is None:
        return made.path
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{source.stem}-{preset}.gguf"
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(made.path, draft)
    draft.replace(target)
    return target


def _row(preset: str, made: ModelFile, path: Path) -> tuple[str, ...]:
    types = " ".join(f"{name}:{count}" for name, count in made.facts.tensor_types)
    fallbacks = made.derivation.fallbacks if made.derivation is not None else ()
    fallen = ", ".join(f"{count} {what}" for what, count in fallbacks) or "none"
    return preset, f"{made.bytes / 1e6:.2f}", types, fallen, made.sha256[:16], str(path)


def _compare(first: Path, second: Path) -> int:
    found = compare_files(first, second)
    out = console()
    same = found.tensors - len(found.differences)
    out.print(f"{same} of {found.tensors} tensors are the same, byte for byte", markup=False)
    if found.differences:
        table = Table("tensor", "what", "first", "second", title="Differences", title_justify="left")
        for item in found.differences[:_MOST]:
            table.add_row(item.name, item.what, item.first_type or "–", item.second_type or "–")
        out.print(table)
    if len(found.differences) > _MOST:
        out.print(f"… and {len(found.differences) - _MOST} more tensors")
    for reason in found.reasons:
        out.print(f"• {reason}", markup=False, soft_wrap=True)
    return 0 if found.equal else 1
