"""mode=register: freeze the very grid that the same command would run, before it runs."""

from __future__ import annotations

import shlex
import sys
import time
from importlib import metadata
from pathlib import Path

from rich.console import Console

from qfr.config import EngineKind
from qfr.errors import RegistrationError, did_you_mean
from qfr.grid.grid import Grid
from qfr.places import data_folder
from qfr.registration.freeze import frozen_cells, frozen_files, frozen_prompts, frozen_suites
from qfr.registration.label import label, shape_of
from qfr.registration.markdown import markdown
from qfr.registration.planned_analysis import analysis_plan
from qfr.registration.record import (
    FORMAT,
    RECORD_VERSION,
    ExistingRun,
    FrozenCell,
    FrozenCode,
    FrozenText,
    Record,
    digest_of,
    document,
    id_of,
)
from qfr.registration.run_under import FOLDER
from qfr.registration.source_code import GitState, code_files, freeze, git_state
from qfr.registration.store import EXPERIMENT, existing_runs, log_registration, utc
from qfr.tracking.environment import redact
from qfr.tracking.store import open_store


def register_grid(grid: Grid, out: Console) -> str:
    """Freeze a grid: a file under `registrations/` to commit, its rendering, and a run in the store.

    Returns
    -------
    str
        The registration's id.

    Raises
    ------
    RegistrationError
        The code is not committed, or the hypotheses cannot be read.
    TrackingError
        The store cannot be had.
    """
    first = grid.cells[0].config
    git = committed(git_state(data_folder()), allowed=first.registration.allow_dirty)
    hypotheses = _hypotheses(first.registration.hypotheses)
    cells = frozen_cells(grid)
    tracking, root = first.tracking, Path(first.tracking.root)
    store = open_store(tracking.uri, root, EXPERIMENT)
    existing = existing_runs(store, shape_of(cells))
    record = make_record(grid, cells, freeze(git, code_files()), hypotheses, existing)
    data, text = document(record), markdown(record)
    name = id_of(digest_of(data))
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    for path, content in ((folder / f"{name}.json", data), (folder / f"{name}.md", text.encode())):
        path.write_bytes(content)
    log_registration(tracking.uri, root, data, record, text, origin="registered")
    _say(out, record, name, store.shown)
    return name


def committed(git: GitState, *, allowed: bool) -> GitState:
    """Refuse code that is not committed, unless that is allowed.

    Raises
    ------
    RegistrationError
        It is not.
    """
    if git.changed and not allowed:
        shown = ", ".join(git.changed[:6]) + (
            f" and {len(git.changed) - 6} more" if len(git.changed) > 6 else ""
        )
        raise RegistrationError(
            f"the code is not the committed one ({git.commit[:12]}): {shown}",
            hint="commit it, or accept it with registration.allow_dirty=true: the difference is frozen too",
        )
    return git


def make_record(
    grid: Grid,
    cells: tuple[FrozenCell, ...],
    code: FrozenCode,
    hypotheses: FrozenText | None,
    existing: tuple[ExistingRun, ...],
) -> Record:
    """Put a record together. Reads model files that are at hand, for their digests."""
    named, reasons = label(existing)
    real = [cell for cell in grid.cells if cell.config.engine.kind is EngineKind.llama_cpp]
    return Record(
        format=FORMAT,
        version=RECORD_VERSION,
        title=(grid.cells[0].config.registration.title or "").strip(),
        registered=utc(int(time.time() * 1000)),
        label=named,
        reasons=reasons,
        hypotheses=hypotheses,
        cells=cells,
        excluded=grid.excluded,
        prompts=frozen_prompts(grid),
        suites=frozen_suites(grid),
        files=frozen_files(grid),
        llama_commit=real[0].design.llama_commit if real else "",
        llama_commit_source=real[0].design.llama_commit_source if real else "none",
        llama_cpp_python=_version("llama-cpp-python") if real else "",
        code=code,
        analysis=analysis_plan(grid.cells[0].config, cells),
        existing=existing,
    )


def _hypotheses(file: str | None) -> FrozenText | None:
    if file is None:
        return None
    path = Path(file).expanduser()
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*.md")])
        raise RegistrationError(
            f"registration.hypotheses={file!r} cannot be read ({error.strerror or error}){near}",
            hint="give a text file, from the working folder",
        ) from None
    except UnicodeDecodeError as error:
        raise RegistrationError(
            f"registration.hypotheses={file!r} is not UTF-8 (byte {error.start})", hint="save it as UTF-8"
        ) from None
    if not text.strip():
        raise RegistrationError(
            f"registration.hypotheses={file!r} is empty", hint="write down what you expect"
        )
    return FrozenText(path.name, digest_of(data), text)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _say(out: Console, record: Record, name: str, store: str) -> None:
    words = [word for word in sys.argv[1:] if not word.lstrip("+").startswith(("mode=", "registration."))]
    again = redact(shlex.join(["python", "run.py", *words, f"registration.use={name}"]))
    lines = [
        f'Registered {name}: "{record.title}", {len(record.asked)} cells, '
        f"{len(record.analysis.contrasts)} contrasts",
        f"Label: {record.label}. {' '.join(record.reasons)}",
        f"  {FOLDER}/{name}.json   commit this to git (sha256sum gives its digest)",
        f"  {FOLDER}/{name}.md     the same for people",
        f"  experiment {EXPERIMENT} at {store}",
    ]
    if record.hypotheses is None:
        lines.append("No hypotheses were given (registration.hypotheses=FILE).")
    if not record.code.commit:
        lines.append("The code stands in no git checkout: it is frozen by the digests of its files alone.")
    lines += [f"Run it:    {again}", f"Check it:  qfr verify {name}"]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
