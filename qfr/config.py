"""One plain dataclass per configuration group, and the ids that follow from them.

The classes carry no defaults: each default stands once, in YAML under `conf/`. They are filled and checked
as a closed schema by the front door, and are plain Python afterwards. Every field says whether it is part of
a cell's identity (`identity()` or `aside()`); `qfr.identity` turns the marked fields into ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qfr.errors import ConfigError, did_you_mean
from qfr.records import FaultKind, Policy


def identity() -> Any:
    """Mark a field that changes what an episode can look like."""
    return field(metadata={"identity": True})


def aside() -> Any:
    """Mark a field that cannot change an episode's bytes (names, places, presentation)."""
    return field(metadata={"identity": False})


class Mode(StrEnum):
    """What the front door does with the grid."""

    run = "run"
    plan = "plan"
    register = "register"


class EngineKind(StrEnum):
    """Which engine plays."""

    llama_cpp = "llama_cpp"
    scripted = "scripted"


class ExecutorKind(StrEnum):
    """How the executor treats turns that are not strict."""

    tolerant = "tolerant"
    strict_feedback = "strict_feedback"


class Gate(StrEnum):
    """On which tasks fault episodes run."""

    certified = "certified"
    none = "none"


class Traces(StrEnum):
    """Which episodes are sent to MLflow as traces."""

    none = "none"
    failures = "failures"
    all = "all"


# Nominal bits per weight of llama.cpp's presets (its quantize tool's own table for Llama-3.1-8B, rounded).
# Used to order levels, never to compute; the file's real tensor types are recorded with every run.
PRESET_BITS: dict[str, float] = {
    "F32": 32.0, "BF16": 16.0, "F16": 16.0, "Q8_0": 8.5, "Q6_K": 6.56, "Q5_1": 6.0, "Q5_K_M": 5.7,
    "Q5_K_S": 5.57, "Q5_0": 5.5, "Q4_1": 5.0, "Q4_K_M": 4.89, "Q4_K_S": 4.67, "Q4_0": 4.55, "IQ4_NL": 4.56,
    "MXFP4_MOE": 4.5, "IQ4_XS": 4.32, "Q3_K_L": 4.3, "Q3_K_M": 4.0, "IQ3_M": 3.76, "Q3_K_S": 3.64,
    "IQ3_S": 3.66, "IQ3_XS": 3.5, "IQ3_XXS": 3.25, "Q2_K": 3.16, "Q2_K_S": 2.97, "IQ2_M": 2.93,
    "IQ2_S": 2.74, "IQ2_XS": 2.59, "IQ2_XXS": 2.38, "TQ2_0": 2.06, "IQ1_M": 2.15, "IQ1_S": 2.0, "TQ1_0": 1.69,
}  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def _check_name(key: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise ConfigError(
            f"{key}={value!r} is no plain name",
            hint="use letters, digits, '_', '-', '.', '+'; no blanks, no slashes",
        )


def _check_at_least(key: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{key}={value} is too small", hint=f"use an integer of at least {low}")


def _check_digest(key: str, value: str | None) -> None:
    if value is not None and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ConfigError(f"{key}={value!r} is no SHA-256", hint="64 lower-case hexadecimal digits, or null")


@dataclass
class FileConfig:
    """One published GGUF file of a model."""

    filename: str = aside()
    # Name in the repository (the first part for split files).
    sha256: str | None = identity()
    # Pinned digest; null = unpinned, recorded at first use.
    bytes: int | None = aside()
    # Published size.

    def __post_init__(self) -> None:
        _check_digest("model.files.*.sha256", self.sha256)


@dataclass
class ModelConfig:
    """Where a model's GGUF files come from. Looked up in the order of the fields."""

    name: str = identity()
    # Short name in tables.
    path: str | None = identity()
    # A GGUF of exactly the asked preset; wins over everything else.
    base: str | None = identity()
    # A user's own F16/BF16/F32 GGUF from which the preset is derived.
    folder: str | None = aside()
    # Local folder that is searched for the file names first.
    package: str | None = aside()
    # Python package that ships the files.
    repo_id: str | None = identity()
    # Hugging Face repository.
    revision: str | None = identity()
    # Pinned revision (commit) of the repository.
    files: dict[str, FileConfig] = identity()
    # Published files by preset.
    derive_from: str | None = identity()
    # Preset among `files` from which presets that are not published are derived; null = none is.
    allow_requantize: bool = identity()
    # Allow deriving from a file that is itself quantized (marked as such everywhere).
    reference_agent: bool = aside()
    # A small agent of our own, sensitive by design and never evidence about another model.
    license: str | None = aside()

    def __post_init__(self) -> None:
        _check_name("model.name", self.name)
        if self.path is not None and self.base is not None:
            raise ConfigError(
                "model.path and model.base are both set",
                hint="path = a file of the very preset; base = an F16/BF16 file to derive it from. Give one",
            )
        if self.derive_from is not None and self.derive_from not in self.files:
            raise ConfigError(
                f"model.derive_from={self.derive_from!r} is not among model.files ({', '.join(self.files)})"
                + did_you_mean(self.derive_from, self.files)
            )


@dataclass
class QuantConfig:
    """The quantization preset."""

    preset: str = identity()
    # llama.cpp's name: Q8_0, Q4_K_M, IQ4_XS, F16 ...
    imatrix: str | None = identity()
    # Importance matrix used when the preset is derived here.

    def __post_init__(self) -> None:
        self.preset = self.preset.upper()
        if self.preset not in PRESET_BITS:
            raise ConfigError(
                f"quant.preset={self.preset!r} is no preset of llama.cpp"
                + did_you_mean(self.preset, PRESET_BITS),
                hint="one of " + ", ".join(PRESET_BITS),
            )


@dataclass
class PromptConfig:
    """A system prompt: the exact bytes of one file."""

    name: str = identity()
    file: str = aside()
    # Path; relative paths are looked up in prompts/.
    sha256: str | None = identity()
    # Pinned digest; null = not pinned.

    def __post_init__(self) -> None:
        _check_name("prompt.name", self.name)
        _check_digest("prompt.sha256", self.sha256)


@dataclass
class FaultConfig:
    """What is injected."""

    kind: FaultKind = identity()
    code: str = identity()
    # Error code in the observation (ET, EP).
    message: str = identity()
    # Error message in the observation (ET, EP).


@dataclass
class SuiteConfig:
    """The tasks and their budgets."""

    name: str = identity()
    world: str = identity()
    # Which world generates the tasks.
    version: int = identity()
    # Version of the suite's generator.
    families: dict[str, int] = identity()
    # Number of tasks per family.
    seed: int = identity()
    # Seed of all values and ids.
    grid: str = identity()
    # cents = realistic amounts; round = a small grid of round amounts.
    step_budget: int = identity()
    # Model turns per episode at most.
    error_budget: int = identity()
    # Failed calls of the agent per episode at most, cumulative.
    gate: Gate = identity()
    # Fault episodes on certified tasks only, or on all.

    def __post_init__(self) -> None:
        _check_name("suite.name", self.name)
        _check_at_least("suite.step_budget", self.step_budget, 1)
        _check_at_least("suite.error_budget", self.error_budget, 0)
        for family, count in self.families.items():
            _check_at_least(f"suite.families.{family}", count, 0)
        if sum(self.families.values()) == 0:
            raise ConfigError("the suite has no tasks", where="suite.families", hint="give a family a count")


@dataclass
class ExecutorConfig:
    """How turns are turned into calls."""

    kind: ExecutorKind = identity()
    max_tokens: int = identity()
    # Generated tokens per turn at most.

    def __post_init__(self) -> None:
        _check_at_least("executor.max_tokens", self.max_tokens, 1)


@dataclass
class ScorerConfig:
    """Headline policy. Both policies are always computed; this is not part of a cell."""

    policy: Policy = aside()
    ep_min_calls: int = aside()
    # EP: calls of the dead tool before a report counts as correct.

    def __post_init__(self) -> None:
        _check_at_least("scorer.ep_min_calls", self.ep_min_calls, 1)


@dataclass
class EngineConfig:
    """How tokens are evaluated. Everything here can move the last bit of a logit."""

    kind: EngineKind = identity()
    n_ctx: int | None = identity()
    # Context length in tokens; null = what the suite needs at most.
    n_batch: int = identity()
    n_ubatch: int = identity()
    n_threads: int = identity()
    n_threads_batch: int = identity()
    n_gpu_layers: int = identity()
    # -1 = all layers where the build can offload.
    main_gpu: int = aside()
    split_mode: str = identity()
    # none, layer or row.
    flash_attn: bool = identity()
    type_k: str = identity()
    type_v: str = identity()
    swa_full: bool = identity()
    streams: int = identity()
    # Episodes decoded in lockstep.
    seed: int = identity()
    # Explicit although decoding is greedy.
    skill: dict[str, float] = identity()
    # Scripted engine only: probability per preset that an error is met with a retry.

    def __post_init__(self) -> None:
        for key, low in (
            ("n_batch", 1),
            ("n_ubatch", 1),
            ("n_threads", 1),
            ("n_threads_batch", 1),
            ("streams", 1),
        ):
            _check_at_least(f"engine.{key}", getattr(self, key), low)
        if self.n_ctx is not None:
            _check_at_least("engine.n_ctx", self.n_ctx, 64)
        if self.n_ubatch > self.n_batch:
            raise ConfigError(f"engine.n_ubatch={self.n_ubatch} is larger than engine.n_batch={self.n_batch}")
        if self.streams != 1:
            raise ConfigError(
                f"engine.streams={self.streams} is not available yet", hint="use engine.streams=1"
            )
        if self.split_mode not in ("none", "layer", "row"):
            raise ConfigError(
                f"engine.split_mode={self.split_mode!r}"
                + did_you_mean(self.split_mode, ("none", "layer", "row")),
                hint="one of none, layer, row",
            )


@dataclass
class TrackingConfig:
    """Where runs are logged. Not part of a cell."""

    uri: str | None = aside()
    # null = SQLite under `root`.
    root: str = aside()
    # Folder of the store, the journals and derived files.
    experiment: str = aside()
    traces: Traces = aside()


@dataclass
class ReportConfig:
    """The report written at the end of a sweep. Not part of a cell."""

    resamples: int = aside()
    seed: int = aside()
    vary: str = aside()
    # Axis whose levels are contrasted.
    method: str = aside()
    # Of the bootstrap: exact (no resampling noise, no seed) or montecarlo (the paper's).
    out: str | None = aside()
    margin: float = aside()
    # Of equivalence, in points.
    transcripts: int = aside()
    # Episodes whose transcripts go on the page, at most; 0 = none.
    family: list[dict[str, str]] = aside()
    # The declared family of contrasts: one selector per entry, field to values; empty = not declared.
    groups: str = aside()
    # Named groups of presets, "high=q8_0,q6_k;low=q4_k_m,q3_k_m"; empty = none.
    against: str | None = aside()
    # Published results to set the report beside: hu2026.

    def __post_init__(self) -> None:
        _check_at_least("report.resamples", self.resamples, 100)
        _check_at_least("report.transcripts", self.transcripts, 0)
        if not 0 < self.margin <= 100:
            raise ConfigError(
                f"report.margin is {self.margin}", hint="the margin of equivalence is in points, 0 to 100"
            )


@dataclass
class RegistrationConfig:
    """Freezing a grid before it runs, and running what was frozen. Not part of a cell."""

    title: str | None = aside()
    # mode=register: what the registration is called.
    hypotheses: str | None = aside()
    # mode=register: file with the hypotheses, frozen word for word.
    allow_dirty: bool = aside()
    # mode=register: accept code that is not committed; the difference is frozen too.
    use: str | None = aside()
    # Run under a registration: r-<digest prefix>, or its JSON file.
    deviation: str | None = aside()
    # With `use`: why something differs from what was frozen; stored with the runs and shown.


@dataclass
class CellConfig:
    """One cell, fully resolved."""

    mode: Mode = aside()
    model: ModelConfig = identity()
    quant: QuantConfig = identity()
    prompt: PromptConfig = identity()
    fault: FaultConfig = identity()
    suite: SuiteConfig = identity()
    executor: ExecutorConfig = identity()
    scorer: ScorerConfig = aside()
    engine: EngineConfig = identity()
    tracking: TrackingConfig = aside()
    report: ReportConfig = aside()
    registration: RegistrationConfig = aside()
    trial: int = identity()
    # Repetition, 0 for the first.
    walk: list[FaultKind] = aside()
    # Fault kinds played in one walk with this cell's clean pass; set by the sweeper.
    sweep: str | None = aside()
    # Id of the sweep; set by the sweeper.
    exclude: list[dict[str, str]] = aside()
    # Combinations of group choices that a grid leaves out.
