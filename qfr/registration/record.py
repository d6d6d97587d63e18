"""The registration record: every noun of the document, with a line under each field.

The document is the canonical JSON of a `Record` with a newline at its end; its SHA-256 is the registration's
digest (`sha256sum` of the file gives it), and `r-` with the first 16 digits its id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from qfr.canonical import canonical, sha256_hex

FORMAT = "qfr registration"
RECORD_VERSION = 1

# Digits of a digest in an id, and the fewest that name one.
ID_DIGITS, FEWEST_DIGITS = 16, 6


class Label(StrEnum):
    """What a sweep under this record may be called.

    Hu 2026 planned the second model's grid after the first one's result and calls it an extension, not a
    preregistered replication; so does this.
    """

    replication = "replication"
    extension = "extension"


class Relation(StrEnum):
    """How a run that already existed is related to the grid."""

    grid = "this grid"
    # A cell of the grid, or its clean pass.
    sibling = "sibling"
    # Another model, preset or setting on the same tasks, prompt and kind of fault.


@dataclass(frozen=True)
class FrozenText:
    """A text, exactly."""

    name: str
    # Name of the file whose bytes it is, without a folder; a prompt that is made from a file (clauses,
    # rewrites, a list of tools) has its own name.
    sha256: str
    # Of its bytes.
    text: str
    # Its bytes as UTF-8.
    base_file: str | None = None
    # Name of the file that it is made from; None = it is a file's bytes.
    base_sha256: str | None = None
    # Of that file's bytes.


@dataclass(frozen=True)
class FrozenCell:
    """A cell of the grid, or a clean pass that its fault cells need."""

    name: str
    # As `CellFacts.name`.
    design_id: str
    clean_design_id: str
    # The same for a clean pass.
    asked: bool
    # A cell of the grid; False = only the clean pass of one.
    model: str
    quant: str
    prompt: str
    fault: str
    suite: str
    executor: str
    gate: str
    trial: int
    episodes: int
    # Of its run, at most.
    design: Mapping[str, object]
    # Everything that design_id is the hash of (`qfr.identity.design_fields`).


@dataclass(frozen=True)
class FrozenSuite:
    """A suite, byte for byte."""

    name: str
    sha256: str
    tasks: int
    families: tuple[str, ...]
    # Family of each task, in order.
    content: str
    # Tools, task texts, gold paths, answers and records: `suite.json` of a run.


@dataclass(frozen=True)
class FrozenFile:
    """The GGUF that serves one (model, preset)."""

    model: str
    preset: str
    filename: str
    # The preset's own file, or the one it is derived from; "–" for an agent without a file.
    made: str
    # How the preset is made from it: quantized, requantized; empty = the file is the preset.
    sha256: str | None
    # Digest of the file at hand, else the pinned one; None = not pinned and not present yet.
    pinned: bool
    present: bool
    # Was at hand when registered; False = "not present yet".
    bytes: int | None
    repo_id: str | None
    revision: str | None


@dataclass(frozen=True)
class FrozenCode:
    """The code that registered."""

    commit: str
    # Git commit; empty outside a checkout.
    dirty: bool
    diff: str
    # What differs from the commit; empty when clean.
    sha256: str
    # Over `files`: equal code is equal wherever it is installed and whatever else was committed since.
    files: Mapping[str, str]
    # SHA-256 of every Python file of qfr and its Hydra plugin.
    qfr_version: str
    python: str
    packages: Mapping[str, str]
    # Versions of what computes and records.


@dataclass(frozen=True)
class PlannedContrast:
    """A minus B; the varied axis is None."""

    vary: str
    a: str
    b: str
    model: str | None
    quant: str | None
    prompt: str | None
    fault: str | None
    executor: str | None
    suite: str
    gate: str
    trial: int


@dataclass(frozen=True)
class AnalysisPlan:
    """What will be computed of the runs."""

    vary: str
    contrasts: tuple[PlannedContrast, ...]
    targets: tuple[str, ...]
    policies: tuple[str, ...]
    # The headline policy first.
    ep_min_calls: int
    method: str
    # Of the bootstrap: exact or montecarlo.
    resamples: int
    seed: int
    # Both for montecarlo only.
    level: float
    equivalence_margin_points: float
    fewest_certified: int
    # Fewer certified tasks carry a warning.
    family: str
    # What p values are adjusted over, in words.
    selectors: tuple[Mapping[str, str], ...]
    # The declared family: which contrasts it takes in (`qfr.analysis.contrast.family`); empty = not declared.
    groups: str
    # Named groups of presets that are compared; empty = none.
    exclusions: tuple[str, ...]
    # Which episodes, tasks and cells are left out or kept, in words.
    detectable: tuple[Detectable, ...]


@dataclass(frozen=True)
class Detectable:
    """Smallest difference that so many tasks can detect at best."""

    tasks: int
    points: float | None


@dataclass(frozen=True)
class ExistingRun:
    """A run that was there when the grid was registered."""

    relation: Relation
    name: str
    design_id: str
    run_id: str
    experiment: str
    started: str
    # UTC.
    status: str
    # MLflow's.
    complete: bool
    deleted: bool
    # Deleted in MLflow, yet it had been there to be seen.
    registration: str
    # Id of the registration that it ran under; empty for none.
    log_sha256: str


@dataclass(frozen=True)
class Record:
    """A registration."""

    format: str
    version: int
    title: str
    registered: str
    # UTC, to the second: 2026-01-31T14:25:01Z.
    label: Label
    reasons: tuple[str, ...]
    # Why it has this label.
    hypotheses: FrozenText | None
    cells: tuple[FrozenCell, ...]
    # In the order of the grid, each clean pass before its fault cells.
    excluded: tuple[str, ...]
    # Combinations that the grid leaves out.
    prompts: tuple[FrozenText, ...]
    suites: tuple[FrozenSuite, ...]
    files: tuple[FrozenFile, ...]
    llama_commit: str
    # Empty when no cell evaluates a model.
    llama_commit_source: str
    llama_cpp_python: str
    code: FrozenCode
    analysis: AnalysisPlan
    existing: tuple[ExistingRun, ...]

    @property
    def asked(self) -> tuple[FrozenCell, ...]:
        """The cells of the grid itself."""
        return tuple(cell for cell in self.cells if cell.asked)


def document(record: Record) -> bytes:
    """The record's canonical bytes."""
    fields = dataclasses.asdict(record)
    for text in (*fields["prompts"], fields["hypotheses"]):
        # A record of a version without these keys keeps its bytes.
        if text is not None and text["base_file"] is None:
            del text["base_file"], text["base_sha256"]
    return canonical(fields).encode("ascii") + b"\n"


def digest_of(data: bytes) -> str:
    """The digest of a document: SHA-256 of its bytes."""
    return sha256_hex(data)


def id_of(digest: str) -> str:
    """`r-` and the first 16 digits of the digest."""
    return f"r-{digest[:ID_DIGITS]}"
