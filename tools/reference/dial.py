"""Chooses the outlier dial of a trained agent by the rule of docs/model_cards/outlier_rule.md.

The rule was written before any agent of this recipe was measured. It looks at clean passes on the development
suite alone: not at recovery, not at an evaluation suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qfr.config import ExecutorKind, QuantConfig
from qfr.engine.files.quantize import derive
from tools.reference.quality import RULES, development, measure, open_engine


@dataclass(frozen=True)
class Dial:
    """Function-preserving outlier channels; factor 1 leaves the weights alone."""

    factor: int
    channels: int
    # Per norm.


PLAIN = Dial(1, 0)
CANDIDATES = (Dial(8, 4), Dial(12, 6), Dial(16, 8))
OTHERWISE = Dial(12, 6)
PRESETS = ("Q8_0", "Q4_K_M", "Q3_K_M")

# Clean passes by prompt, for each preset.
Passes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Tried:
    """One candidate and what its files did."""

    dial: Dial
    passes: dict[str, tuple[int, ...]]
    # By preset (F16 included), one number per prompt.
    qualifies: bool


def qualifies(passes: Passes) -> bool:
    """Conditions (a) to (d) of the rule."""
    f16, q8, q4, q3 = (passes[name] for name in ("F16", *PRESETS))
    return (
        sum(q8) >= 0.95 * sum(f16)
        and any(low <= 0.8 * high for low, high in zip(q3, f16, strict=True))
        and any(low >= 0.8 * high for low, high in zip(q3, f16, strict=True))
        and all(2 * low >= high for low, high in zip(q4, f16, strict=True))
    )


def clean_passes(file: Path, prompts: Mapping[str, str], cache: Path, *, native: bool) -> tuple[int, ...]:
    """Clean passes of a file on the development suite, one number per prompt."""
    engine, world = open_engine(file, cache), development()
    rules = replace(RULES, executor=ExecutorKind.native) if native else RULES
    found = tuple(measure(engine, world, name, prompts[name], (), rules).clean for name in sorted(prompts))
    engine.close()
    return found


def try_dial(
    dial: Dial, file: Path, prompts: Mapping[str, str], f16: tuple[int, ...] | None, *, native: bool
) -> Tried:
    """Derive the presets of an exported candidate and count their clean passes.

    Parameters
    ----------
    dial : Dial
    file : Path
        The candidate's F16 file; derived files stand beside it, in a folder `derived`.
    prompts : mapping of str to str
        Name -> text.
    f16 : tuple of int or None
        The passes of F16 where they are known: the dial does not change its function.
    """
    cache = file.parent
    passes = {"F16": clean_passes(file, prompts, cache, native=native) if f16 is None else f16}
    for preset in PRESETS:
        made = derive(file, QuantConfig(preset=preset, imatrix=None), cache, allow_requantize=False)
        passes[preset] = clean_passes(made.path, prompts, cache, native=native)
    return Tried(dial, passes, qualifies(passes))
