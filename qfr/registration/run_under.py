"""Running under a registration: the record is found again, and every cell compared with it before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qfr.canonical import canonical
from qfr.config import CellConfig, EngineKind, TrackingConfig
from qfr.engine.files.resolve import resolve
from qfr.errors import RegistrationError, did_you_mean
from qfr.grid.design import design_of, frozen_design
from qfr.places import data_folder
from qfr.registration.differences import (
    Deviation,
    Difference,
    code_differences,
    deviation_text,
    file_difference,
    in_words,
    nearest,
    read_deviation,
    settings_differences,
)
from qfr.registration.markdown import markdown
from qfr.registration.record import FEWEST_DIGITS, ID_DIGITS, Record, digest_of, id_of
from qfr.registration.record_reader import is_id, read_record
from qfr.registration.source_code import code_files

FOLDER = "registrations"

# Cells named in one message.
_MOST = 12


@dataclass(frozen=True)
class Found:
    """A registration, found again and unchanged."""

    record: Record
    data: bytes
    # Its document.
    digest: str
    where: str
    # The file or store that it was found in.

    @property
    def id(self) -> str:
        """`r-` and 16 digits."""
        return id_of(self.digest)


@dataclass(frozen=True)
class Under:
    """A registration that a sweep runs under."""

    found: Found
    deviation: str
    # What of the grid or its analysis is not as frozen, as `CellFacts.deviation`, shortened.

    @property
    def id(self) -> str:
        """Of the registration."""
        return self.found.id

    @property
    def line(self) -> str:
        """One line for the terminal."""
        record = self.found.record
        told = read_deviation(self.deviation)
        end = (
            "as frozen"
            if told is None
            else f"DEVIATES ({told.reason}): "
            + "; ".join(in_words(one, record.cells) for one in told.differences)
        )
        return f"registration {self.id} ({record.label}, {record.registered}): {end}"


@dataclass(frozen=True)
class Mark:
    """What a run carries of the registration that it is made under."""

    registration: str
    # Id; empty for none.
    deviation: str
    # As `CellFacts.deviation`.


def marks(cell: CellConfig, configs: Sequence[CellConfig]) -> list[Mark]:
    """Compare the cells of a walk with the registration that the configuration names, before a model loads.

    Parameters
    ----------
    cell : CellConfig
        Of the job.
    configs : sequence of CellConfig
        Its clean pass and fault cells.

    Raises
    ------
    RegistrationError
        The registration is not there or was changed, or a cell differs and no deviation was declared.
    ModelFileError
        The model file cannot be had.
    """
    use = cell.registration.use
    if use is None:
        return [Mark("", "") for _ in configs]
    found = find_record(use, cell.tracking.uri, Path(cell.tracking.root))
    extra = (*_code(found.record), *_model_file(cell, found.record))
    differing = {index: _differences(one, found.record, extra) for index, one in enumerate(configs)}
    _allow(found, [(_name(configs[i]), keys) for i, keys in differing.items()], cell.registration.deviation)
    return [
        Mark(found.id, _deviation(cell.registration.deviation, differing[index]))
        for index in range(len(configs))
    ]


def check_grid(cells: Sequence[CellConfig]) -> Under | None:
    """Compare a whole grid, and its analysis, with the registration that it names; None when it names none.

    Raises
    ------
    RegistrationError
        As `marks`, for all cells at once.
    """
    first = cells[0]
    use, reason = first.registration.use, first.registration.deviation
    if use is None:
        return None
    found = find_record(use, first.tracking.uri, Path(first.tracking.root))
    code = _code(found.record)
    settings = settings_differences(analysis_settings(first), found.record.analysis)
    listed = [("the code", code), ("the analysis", settings)]
    listed += [(_name(cell), _differences(cell, found.record, ())) for cell in cells]
    _allow(found, listed, reason)
    distinct = list(dict.fromkeys(one.shortened for _, keys in listed for one in keys))
    return Under(found, _deviation(reason, distinct[:_MOST]))


def carry(under: Under, tracking: TrackingConfig) -> None:
    """Put the registration into the store of its runs, where it is not there yet (it came as a file).

    Raises
    ------
    TrackingError
        The store does not take it.
    """
    from qfr.registration.store import log_registration

    found = under.found
    root = Path(tracking.root)
    log_registration(tracking.uri, root, found.data, found.record, markdown(found.record), origin="carried")


def analysis_settings(cell: CellConfig) -> dict[str, str]:
    """The settings of the analysis that are frozen, by their names on the command line."""
    return {
        "report.vary": cell.report.vary,
        "report.method": cell.report.method,
        "report.resamples": str(cell.report.resamples),
        "report.seed": str(cell.report.seed),
        "report.margin": f"{cell.report.margin:g}",
        "report.family": canonical(cell.report.family),
        "report.groups": cell.report.groups,
        "scorer.policy": str(cell.scorer.policy),
        "scorer.ep_min_calls": str(cell.scorer.ep_min_calls),
    }


def find_record(use: str, uri: str | None, root: Path) -> Found:
    """Find a registration by `r-<digest prefix>` or by its file.

    An id is looked up in `registrations/` of the working folder, then of the checkout, then in the store.

    Raises
    ------
    RegistrationError
        There is none, there are several, or it is not what its id says.
    """
    if not is_id(use):
        return _read(Path(use))
    files = [path for path in record_files() if path.name.startswith(use[: 2 + ID_DIGITS])]
    if files:
        if len({path.name for path in files}) > 1:
            names = ", ".join(sorted({path.stem for path in files}))
            raise RegistrationError(f"{use} names several registrations", hint=f"give more digits: {names}")
        return _as_asked(_read(files[0]), use)
    return _in_store(use, uri, root)


def record_files() -> list[Path]:
    """The registration files of the working folder and of the checkout."""
    folders = dict.fromkeys((Path.cwd() / FOLDER, data_folder() / FOLDER))
    return [path for folder in folders for path in sorted(folder.glob("r-*.json"))]


def unknown(use: str, stored: Sequence[str]) -> RegistrationError:
    """There is no such registration; `stored` are the ids that the store holds."""
    ids = dict.fromkeys([*(path.stem for path in record_files()), *stored])
    known = f"known: {', '.join(list(ids)[:8])}" if ids else "make one: the same command, mode=register"
    short = any(one.startswith(use) for one in ids)
    return RegistrationError(
        f"there is no registration {use}" + did_you_mean(use, ids),
        hint=f"give r- and at least {FEWEST_DIGITS} digits; {known}" if short else known,
    )


def _read(path: Path) -> Found:
    try:
        data = path.read_bytes()
    except OSError as error:
        near = did_you_mean(path.name, [other.name for other in record_files()])
        raise RegistrationError(
            f"no registration can be read there ({error.strerror or error}){near}",
            where=str(path),
            hint="give r-<digest prefix> or the path of a JSON file of registrations/",
        ) from None
    found = Found(read_record(data, where=str(path)), data, digest_of(data), str(path))
    return _as_asked(found, path.stem) if is_id(path.stem) else found


def _as_asked(found: Found, use: str) -> Found:
    if not f"r-{found.digest}".startswith(use):
        raise RegistrationError(
            f"it was changed after registering: its digest is r-{found.digest[:ID_DIGITS]}, not {use}",
            where=found.where,
            hint=f"restore it from git, or remove the file to take the store's copy; see qfr verify {use}",
        )
    return found


def _in_store(use: str, uri: str | None, root: Path) -> Found:
    from qfr.registration.store import find_registrations, read_document

    store, known = find_registrations(uri, root)
    matches = [one for one in known if f"r-{one.digest}".startswith(use)]
    if store is None or not matches:
        raise unknown(use, [one.id for one in known])
    if len(matches) > 1:
        raise RegistrationError(
            f"{use} names several registrations",
            hint="give more digits: " + ", ".join(one.id for one in matches),
        )
    where = f"{store.shown}, run {matches[0].run_id}"
    data = read_document(store, matches[0])
    return _as_asked(Found(read_record(data, where=where), data, digest_of(data), where), use)


def _code(record: Record) -> tuple[Difference, ...]:
    return code_differences(code_files(), record.code)


def _model_file(cell: CellConfig, record: Record) -> tuple[Difference, ...]:
    """Whether the GGUF at hand is the frozen one. Its digest is computed once and remembered."""
    if cell.engine.kind is not EngineKind.llama_cpp:
        return ()
    model = resolve(cell.model, cell.quant, Path(cell.tracking.root) / "models")
    sha256 = model.sha256 if model.derivation is None else model.derivation.source_sha256
    found = file_difference(record, cell.model.name, cell.quant.preset, sha256)
    return () if found is None else (found,)


def _differences(cell: CellConfig, record: Record, extra: Sequence[Difference]) -> tuple[Difference, ...]:
    return (*nearest(frozen_design(cell, design_of(cell)), record.cells).differences, *extra)


def _allow(found: Found, cells: Sequence[tuple[str, Sequence[Difference]]], reason: str | None) -> None:
    differing = [(name, keys) for name, keys in cells if keys]
    if not differing or reason is not None:
        return
    frozen = found.record.cells
    lines = [
        f"  {name}: " + "; ".join(in_words(one, frozen) for one in keys[:_MOST])
        for name, keys in differing[:_MOST]
    ]
    lines += [f"  … and {len(differing) - _MOST} more"] if len(differing) > _MOST else []
    raise RegistrationError(
        f"this is not what {found.id} froze:\n" + "\n".join(lines),
        hint='run what was registered, or say why not: registration.deviation="the reason"',
    )


def _deviation(reason: str | None, keys: Sequence[Difference]) -> str:
    return deviation_text(Deviation(reason or "", tuple(keys))) if keys else ""


def _name(cell: CellConfig) -> str:
    return f"{cell.model.name} {cell.quant.preset.lower()} {cell.prompt.name} {cell.fault.kind}"
