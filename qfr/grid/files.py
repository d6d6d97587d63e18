"""Which GGUF a cell will use and whether it is at hand, without loading or downloading anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from qfr.config import CellConfig, EngineKind, ExecutorKind
from qfr.engine.files import chat_template
from qfr.engine.files.chat_template import is_own
from qfr.engine.files.gguf import inspect
from qfr.engine.files.quantize import is_quantized
from qfr.engine.files.resolve import NotHere, look
from qfr.engine.native.turn import schemas
from qfr.errors import ConfigError, ModelFileError, did_you_mean
from qfr.grid.checks import build_world
from qfr.world.base import task_tools


class Presence(StrEnum):
    """Where the file is."""

    present = "present"
    download = "to download"
    missing = "missing"
    unusable = "not usable"
    # It is there, and cannot serve.
    none = "no file"
    # The scripted engine needs none.
    served = "served"
    # A server holds the model; nothing is known of its file.


@dataclass(frozen=True)
class PlannedFile:
    """The GGUF that serves one (model, preset)."""

    model: str
    preset: str
    filename: str
    place: str
    # Path on this machine, or `repository@revision`; empty for no file.
    bytes: int | None
    # Size on disk, else as published; None where unknown.
    sha256: str | None
    # Pinned digest; None = unpinned.
    presence: Presence
    origin: str
    # path, folder, package or hub; empty for no file.
    made: str
    # How the preset is made from this file: quantized, requantized (from a quantized one), "" = it is it.
    problem: ModelFileError | None
    # Why it cannot be used, None when it can (or can be downloaded).


def planned_file(cell: CellConfig) -> PlannedFile:
    """Look the file up in the order of `ModelConfig`'s fields. What cannot be used is told, not raised.

    Raises
    ------
    ConfigError
        The model neither publishes nor derives the preset.
    """
    model, preset = cell.model, cell.quant.preset
    if cell.engine.kind is EngineKind.scripted:
        return PlannedFile(model.name, preset, "–", "", None, None, Presence.none, "", "", None)
    if cell.engine.kind is EngineKind.openai:
        server = cell.engine.server
        named, place = server.model or "the only model", server.identity_name
        return PlannedFile(model.name, preset, named, place, None, None, Presence.served, "", "", None)
    given = model.path or model.base
    if given is None and preset not in model.files and model.derive_from is None:
        raise ConfigError(
            f"model={model.name} publishes no {preset}{did_you_mean(preset, model.files)}",
            where="quant",
            hint=f"published: {', '.join(model.files)}; model.derive_from=F16 derives it from the F16 file, "
            "model.path=FILE names a file of yours",
        )
    if given is not None and not Path(given).expanduser().is_file():
        return _missing(cell, Path(given).name, given, _no_such_file(cell, Path(given).expanduser()))
    try:
        found = look(model, cell.quant)
    except ModelFileError as error:
        state = Presence.missing if isinstance(error, NotHere) else Presence.unusable
        name = Path(given).name if given else _published_name(cell)
        return replace(_missing(cell, name, given or "", error), presence=state)
    return PlannedFile(
        model=model.name,
        preset=preset,
        filename=found.filename,
        place=str(found.path) if found.path else f"{found.repo_id}@{found.revision or 'main'}",
        bytes=found.bytes,
        sha256=found.sha256,
        presence=Presence.present if found.path else Presence.download,
        origin=found.origin,
        made=_made(cell, found.path) if found.derived else "",
        problem=None,
    )


def require_native(cell: CellConfig, file: PlannedFile) -> None:
    """Check that a file which is at hand can call tools natively, where the cell asks for that.

    Raises
    ------
    ModelFileError
        Its chat template has no tool calls, or loses a part of such a conversation.
    """
    wanted = cell.executor.kind is ExecutorKind.native
    if not wanted or cell.engine.kind is not EngineKind.llama_cpp or file.presence is not Presence.present:
        return
    world = build_world(cell.suite)
    tools = schemas(task_tools(world, world.tasks[0]))
    facts = inspect(Path(file.place), for_chat=is_own(cell.model))
    chat_template.require_native(facts, cell.model, tools, file.place)


def require_imatrix(cell: CellConfig) -> None:
    """Check that a given importance matrix exists.

    Raises
    ------
    ModelFileError
        It does not.
    """
    if cell.quant.imatrix is not None and not Path(cell.quant.imatrix).expanduser().is_file():
        raise ModelFileError(
            f"quant.imatrix={cell.quant.imatrix!r} is not a file",
            hint="give the path of an importance matrix, or null",
        )


def _published_name(cell: CellConfig) -> str:
    preset = cell.quant.preset if cell.quant.preset in cell.model.files else cell.model.derive_from
    return cell.model.files[preset].filename if preset is not None else ""


def _made(cell: CellConfig, source: Path | None) -> str:
    known = is_quantized(inspect(source)) if source else cell.model.derive_from not in ("F32", "BF16", "F16")
    return "requantized" if known else "quantized"


def _missing(cell: CellConfig, filename: str, place: str, problem: ModelFileError) -> PlannedFile:
    return PlannedFile(
        cell.model.name, cell.quant.preset, filename, place, None, None, Presence.missing, "", "", problem
    )


def _no_such_file(cell: CellConfig, path: Path) -> ModelFileError:
    key = "model.path" if cell.model.path else "model.base"
    if path.is_dir():
        return ModelFileError(f"{key}={str(path)!r} is a folder, not a GGUF file", hint=_near(path / "x"))
    return ModelFileError(f"{key}={str(path)!r} does not exist", hint=_near(path))


def _near(path: Path) -> str:
    quotes = "a path with blanks, ',', '=' or '#' needs both quotes on the command line"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r} either; {quotes}"
    names = sorted(other.name for other in path.parent.glob("*.gguf"))
    if not names:
        return f"no GGUF is in {str(path.parent.resolve())!r}; {quotes}"
    return f"GGUF files there: {', '.join(names)}{did_you_mean(path.name, names)}"
