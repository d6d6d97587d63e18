"""What the configuration can choose from, the marks of its fields, and the checks that its classes share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from typing import Any

from qfr.errors import ConfigError, did_you_mean


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
    openai = "openai"


class ExecutorKind(StrEnum):
    """How the executor treats turns that are not strict."""

    tolerant = "tolerant"
    strict_feedback = "strict_feedback"
    native = "native"
    # The chat template's own tool calls.
    repair = "repair"
    # As tolerant, and a failed call is followed by a request to diagnose it and to issue it again.

    @property
    def text(self) -> bool:
        """Whether calls are written in the text protocol."""
        return self is not ExecutorKind.native


class Thinking(StrEnum):
    """How thoughts of earlier turns are shown to the model."""

    template = "template"
    # As its chat template shows them.
    keep = "keep"
    # As they were generated.
    drop = "drop"
    # Not at all.


class Noise(StrEnum):
    """Whose noise the presets of a model draw their tokens with, when they are sampled."""

    shared = "shared"
    own = "own"


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
    "NVFP4": 4.5, "Q2_0": 2.25, "Q1_0": 1.13,
}  # fmt: skip

# Formats that servers run and llama.cpp does not make, with nominal bits per weight: they order levels.
SERVED_BITS: dict[str, float] = {
    "FP8": 8.0, "INT8": 8.0, "W8A8": 8.0, "AWQ": 4.25, "GPTQ": 4.25, "MXFP4": 4.25, "NF4": 4.13,
}  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def check_name(key: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise ConfigError(
            f"{key}={value!r} cannot be used as a name",
            hint="use letters, digits, '_', '-', '.', '+'; no blanks, no slashes",
        )


def check_at_least(key: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{key}={value} is too small", hint=f"use an integer of at least {low}")


def check_digest(key: str, value: str | None) -> None:
    if value is not None and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ConfigError(
            f"{key}={value!r} is not a SHA-256", hint="64 lower-case hexadecimal digits, or null"
        )


def check_among(key: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ConfigError(
            f"{key}={value!r} is not possible" + did_you_mean(value, choices),
            hint="one of " + ", ".join(choices),
        )


def check_preset(key: str, value: str) -> None:
    """Refuse what is neither a preset of llama.cpp nor a format that servers run."""
    if value not in PRESET_BITS and value not in SERVED_BITS:
        raise ConfigError(
            f"{key}={value!r} is not a preset of llama.cpp" + did_you_mean(value, PRESET_BITS),
            hint="one of " + ", ".join(PRESET_BITS),
        )
