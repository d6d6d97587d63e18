"""Presets derived from one file by llama.cpp's own quantizer, kept in a cache.

A derived file is named by what it follows from: the source's digest, the preset, llama.cpp's commit, the
importance matrix. It is made in a child process under a lock, under a temporary name, and renamed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from qfr.config import PRESET_BITS, QuantConfig
from qfr.engine import child
from qfr.engine.files.digests import Progress, digest, write_atomically
from qfr.engine.files.gguf import Derivation, GgufFacts, ModelFile, inspect, open_model
from qfr.engine.files.header import check_readable
from qfr.engine.llama.library import library_facts
from qfr.errors import ModelFileError, did_you_mean

# Part of every derived file's name: raised when what this module does to a file changes.
_RECIPE = 1
# Threads of the quantizer. The bytes do not depend on it; fixed all the same.
_THREADS = 2
# Outcome code for an importance matrix that cannot be read.
BAD_IMATRIX = -1
_PLAIN_TYPES = frozenset({"F32", "F16", "BF16"})
# Presets whose every matrix needs an importance matrix (others may, by the model's shapes), and those that
# llama.cpp runs but does not make.
_NEED_IMATRIX = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "Q2_K_S"})
_NEVER_MADE = frozenset({"NVFP4"})


@dataclass(frozen=True)
class Outcome:
    """What the quantizer's process reports."""

    code: int
    # llama.cpp's return code, 0 = done; BAD_IMATRIX before it was called.
    fallbacks: tuple[str, ...]
    # "Q4_K to Q5_0", one per tensor.
    message: str
    # Last lines of its log that tell of a failure.


def derive(
    source: Path,
    quant: QuantConfig,
    cache_dir: Path,
    *,
    allow_requantize: bool,
    progress: Progress | None = None,
    for_chat: bool = True,
) -> ModelFile:
    """The preset made from `source`, from the cache where it has been made before.

    Parameters
    ----------
    source : Path
        GGUF to start from, F16, BF16 or F32 unless `allow_requantize`.
    quant : QuantConfig
        Preset, and importance matrix if any.
    cache_dir : Path
        Derived files stand in its folder `derived`.
    allow_requantize : bool
        Accept a source that is quantized itself.
    progress
        Told how far the digest of a large source has come.
    for_chat : bool
        The source has to hold a chat template.

    Raises
    ------
    ModelFileError
        The source is no usable GGUF or is quantized itself; the preset is unknown to this llama.cpp or needs
        an importance matrix; no memory or disk space; the quantizer fails.
    """
    facts = inspect(source, for_chat=for_chat)
    requantized = is_quantized(facts)
    check_derivable(source, facts, quant, allow_requantize=allow_requantize)
    if quant.preset not in (known := library_facts().presets):
        raise ModelFileError(
            f"the installed llama.cpp cannot make {quant.preset}" + did_you_mean(quant.preset, known),
            where="quant.preset",
            hint="one of " + ", ".join(known),
        )
    imatrix = None if quant.imatrix is None else Path(quant.imatrix).expanduser()
    library = library_facts()
    made = Derivation(
        source_sha256=digest(source, cache_dir, progress),
        source_type=facts.file_type,
        preset=quant.preset,
        llama_commit=library.commit,
        requantized=requantized,
        imatrix_sha256=None if imatrix is None else _file_digest(imatrix),
        fallbacks=(),
    )
    target = cache_dir / "derived" / f"{source.stem}-{quant.preset}-{_key(made)}.gguf"
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_suffix(".lock")):
        fallbacks = _known_fallbacks(target)
        if fallbacks is None:
            _check_room(source, facts, quant.preset, target.parent)
            fallbacks = _make(source, target, quant, imatrix)
    return replace(
        open_model(target, cache_dir, origin="derived", for_chat=for_chat),
        derivation=replace(made, fallbacks=fallbacks),
    )


def is_quantized(facts: GgufFacts) -> bool:
    """Whether a file holds weights in other types than F32, F16 and BF16."""
    return not {name for name, _ in facts.tensor_types} <= _PLAIN_TYPES


def check_derivable(source: Path, facts: GgufFacts, quant: QuantConfig, *, allow_requantize: bool) -> None:
    """Refuse what can be known to fail from the source's header alone.

    Raises
    ------
    ModelFileError
        The source is quantized itself; the preset needs an importance matrix; llama.cpp never makes it.
    """
    if quant.preset in _NEVER_MADE:
        raise ModelFileError(
            f"llama.cpp runs {quant.preset} and does not make it",
            where="quant.preset",
            hint="model.path=FILE names a file of this preset",
        )
    if is_quantized(facts) and not allow_requantize:
        raise ModelFileError(
            f"is itself quantized ({facts.file_type or 'mixed types'}), so {quant.preset} made from it "
            "differs from the one made from full precision",
            where=str(source),
            hint="start from an F16 or BF16 file, or accept it with model.allow_requantize=true "
            "(qfr quantize: --allow-requantize)",
        )
    if quant.preset in _NEED_IMATRIX and quant.imatrix is None:
        raise _needs_imatrix(source, quant.preset)


def _needs_imatrix(source: Path, preset: str) -> ModelFileError:
    return ModelFileError(
        f"{preset} needs an importance matrix",
        where=str(source),
        hint="give quant.imatrix=<file>, or use a preset that needs none (Q2_K, Q3_K_M, IQ4_XS …)",
    )


def _key(made: Derivation) -> str:
    content = json.dumps({"recipe": _RECIPE, **asdict(made)}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    check_readable(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _record(target: Path) -> Path:
    return target.with_suffix(".json")


def _known_fallbacks(target: Path) -> tuple[tuple[str, int], ...] | None:
    """What is recorded of a derived file; None when there is none, or when it is not what was written."""
    try:
        entry = json.loads(_record(target).read_text("utf-8"))
        if entry["bytes"] != target.stat().st_size:
            return None
        return tuple((str(name), int(count)) for name, count in entry["fallbacks"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _make(
    source: Path, target: Path, quant: QuantConfig, imatrix: Path | None
) -> tuple[tuple[str, int], ...]:
    """Quantize in a child process and record the result."""
    temporary = target.with_name(f".{target.stem}.making.gguf")
    arguments = [str(source), str(temporary), quant.preset, str(_THREADS), str(imatrix or "")]
    try:
        done = subprocess.run(
            child.command("qfr.engine.files.quantize_main", *arguments),
            capture_output=True,
            env=child.environment(),
            check=False,
        )
        if done.returncode != 0:
            last = "\n".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-8:])
            raise ModelFileError(
                f"the quantizer's process ended ({child.describe_exit(done.returncode)}) while making "
                f"{quant.preset}\n{last}",
                where=str(source),
            )
        outcome = Outcome(**json.loads(done.stdout))
        if outcome.code != 0:
            raise _failure(source, quant, outcome)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    fallbacks = tuple(sorted(Counter(outcome.fallbacks).items()))
    write_atomically(_record(target), json.dumps({"bytes": target.stat().st_size, "fallbacks": fallbacks}))
    return fallbacks


def _failure(source: Path, quant: QuantConfig, outcome: Outcome) -> ModelFileError:
    if outcome.code == BAD_IMATRIX:
        return ModelFileError(outcome.message, where=f"quant.imatrix={quant.imatrix}")
    if re.search("requires an (imatrix|importance matrix)", outcome.message):
        return _needs_imatrix(source, quant.preset)
    return ModelFileError(
        f"llama.cpp cannot make {quant.preset} from it\n{outcome.message}", where=str(source)
    )


def _check_room(source: Path, facts: GgufFacts, preset: str, folder: Path) -> None:
    """Disk for the result, memory for the source's pages and one tensor in full precision."""
    wanted = int(facts.n_params * PRESET_BITS.get(preset, 32.0) / 8 * 1.1) + (1 << 20)
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise ModelFileError(
            f"{preset} of it needs about {wanted / 1e9:.1f} GB, {free / 1e9:.1f} GB are free in {folder}",
            where=str(source),
            hint="free some space, or set tracking.root to a folder on a larger disk",
        )
    needed, available = facts.largest_tensor * 8, _available_memory()
    if available is not None and available < needed:
        raise ModelFileError(
            f"quantizing needs about {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are available",
            where=str(source),
        )


def _available_memory() -> int | None:
    """Bytes that a new process can have, None where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    for line in meminfo.read_text("ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
