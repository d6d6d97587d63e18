"""GGUF files: what they are, which parts they have, their digest. Never loads a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gguf.constants import LlamaFileType

from qfr.engine.files.digests import Progress, verify
from qfr.engine.files.header import Header, check_readable, read_header
from qfr.engine.files.parts import parts_of, total_bytes
from qfr.engine.llama.template import sha256_of
from qfr.errors import ModelFileError

# Texts longer than this are left out of the recorded metadata (the template has its own digest).
_MAX_VALUE = 256
# Values of general.file_type of the pinned llama.cpp that the `gguf` package may be too old for.
_NEWER = {38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0"}
# Kinds of GGUF that are no language model (general.type).
_OTHER_KINDS = {
    "adapter": "a LoRA adapter",
    "mmproj": "a multimodal projector",
    "imatrix": "an importance matrix",
    "vocab": "a vocabulary without weights",
}
# Architectures that only embed (llama.cpp's encoders).
_EMBEDDERS = frozenset(
    {
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
        *("eurobert", "gemma-embedding", "t5encoder", "clip"),
    }
)


@dataclass(frozen=True)
class GgufFacts:
    """What a GGUF says of itself."""

    arch: str
    # Architecture name: llama, qwen2 …
    name: str
    # The model's own name, "" when it has none.
    file_type: str
    # Preset the file calls itself (Q4_K_M), "" when it says nothing; tensor_types is what it is.
    n_params: int
    # Number of weights.
    largest_tensor: int
    # Weights of the largest tensor.
    n_ctx_train: int
    # Context that the model was trained for, in tokens.
    tensor_types: tuple[tuple[str, int], ...]
    # Histogram over all parts: GGML type name, number of tensors; sorted by name.
    metadata: tuple[tuple[str, str], ...]
    # Scalars and short texts, sorted by key.
    imatrix: tuple[tuple[str, str], ...]
    # quantize.imatrix.* alone: a static and an importance-matrix file are different treatments.
    template: str
    # Chat template.
    template_sha256: str
    # Its digest.
    template_options: str = "{}"
    # More variables of the template, as canonical JSON.


@dataclass(frozen=True)
class Derivation:
    """How a file was made here from another one."""

    source_sha256: str
    # Digest of the source.
    source_type: str
    # Preset that the source calls itself.
    preset: str
    llama_commit: str
    # Quantizer's commit.
    requantized: bool
    # The source was quantized itself.
    imatrix_sha256: str | None
    # Digest of the importance matrix file.
    fallbacks: tuple[tuple[str, int], ...]
    # "Q4_K to Q5_0": number of tensors whose rows do not fit the type that the preset wants for them.


@dataclass(frozen=True)
class ModelFile:
    """A GGUF that is ready to be loaded."""

    path: Path
    # File, or first part.
    parts: tuple[Path, ...]
    # All parts in order.
    sha256: str
    # Digest over all parts in order.
    bytes: int
    # Size of all parts.
    origin: str
    # path, folder, package, hub or derived.
    revision: str | None
    # Commit of the repository it came from.
    facts: GgufFacts
    derivation: Derivation | None


def file_type_name(number: object) -> str:
    """Preset name of a general.file_type value, "" when it is not known."""
    # Above GUESSED (1024) the writer did not know for sure.
    if not isinstance(number, int):
        return ""
    try:
        return LlamaFileType(number & 1023).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return _NEWER.get(number & 1023, "")


def inspect(path: Path, *, for_chat: bool = True) -> GgufFacts:
    """What a GGUF says of itself, read from its header alone.

    `for_chat` false accepts a file without a chat template (a source to quantize).

    Raises
    ------
    ModelFileError
        The file or a part of it cannot be read, is damaged, or is no generative language model.
    """
    # A grid asks again for each of its cells: read anew is only a file that changed.
    for part in parts_of(path):
        check_readable(part)
    stats = [part.stat() for part in parts_of(path)]
    return _facts(path, for_chat, tuple((one.st_ino, one.st_size, one.st_ctime_ns) for one in stats))


@lru_cache(maxsize=64)
def _facts(path: Path, for_chat: bool, stamps: tuple[tuple[int, int, int], ...]) -> GgufFacts:
    headers = [read_header(part) for part in parts_of(path)]
    first = headers[0]
    _check_split(first, len(headers))
    values = dict(first.metadata)
    arch = str(values.get("general.architecture", ""))
    _check_kind(first, arch)
    template = values.get("tokenizer.chat_template")
    if not isinstance(template, str) or not template.strip():
        if for_chat:
            raise ModelFileError(
                "has no chat template (tokenizer.chat_template)",
                where=str(path),
                hint="use an instruction-tuned model, or give its template: model.template=FILE",
            )
        template = ""
    tensors = [tensor for header in headers for tensor in header.tensors]
    metadata = tuple(
        sorted((key, str(value)) for key, value in values.items() if len(str(value)) <= _MAX_VALUE)
    )
    context = values.get(f"{arch}.context_length", 0)
    return GgufFacts(
        arch=arch,
        name=str(values.get("general.name", "")),
        file_type=file_type_name(values.get("general.file_type")),
        n_params=sum(tensor.elements for tensor in tensors),
        largest_tensor=max(tensor.elements for tensor in tensors),
        n_ctx_train=context if isinstance(context, int) else 0,
        tensor_types=tuple(sorted(Counter(tensor.type_name for tensor in tensors).items())),
        metadata=metadata,
        imatrix=tuple(pair for pair in metadata if pair[0].startswith("quantize.imatrix.")),
        template=template,
        template_sha256=sha256_of(template),
    )


def _check_split(header: Header, found: int) -> None:
    count, number = header.get("split.count"), header.get("split.no")
    if isinstance(count, int) and count not in (0, found):
        raise ModelFileError(
            f"is one of {count} parts",
            where=str(header.path),
            hint="name the parts like model-00001-of-00002.gguf, all in one folder, and give the first",
        )
    if isinstance(number, int) and number != 0:
        raise ModelFileError(f"is part {number + 1}, not the first", where=str(header.path))


def _check_kind(header: Header, arch: str) -> None:
    where = str(header.path)
    kind = str(header.get("general.type") or "model")
    if kind in _OTHER_KINDS:
        raise ModelFileError(f"is {_OTHER_KINDS[kind]}, not a language model", where=where)
    if not arch:
        raise ModelFileError("names no architecture (general.architecture)", where=where)
    pooling, causal = header.get(f"{arch}.pooling_type"), header.get(f"{arch}.attention.causal")
    if arch in _EMBEDDERS or causal is False or pooling not in (None, 0):
        raise ModelFileError(
            f"is an embedding model ({arch}): it cannot write text",
            where=where,
            hint="use a generative (causal) model",
        )
    if not header.tensors:
        raise ModelFileError("holds no weights", where=where)


def open_model(
    path: Path,
    cache_dir: Path,
    *,
    origin: str = "path",
    revision: str | None = None,
    pinned: str | None = None,
    progress: Progress | None = None,
    for_chat: bool = True,
) -> ModelFile:
    """A GGUF on disk, inspected and with its digest.

    Raises
    ------
    ModelFileError
        See `inspect` and `verify`.
    """
    parts = parts_of(path)
    facts = inspect(parts[0], for_chat=for_chat)
    value = verify(parts[0], cache_dir, pinned, progress)
    return ModelFile(parts[0], parts, value, total_bytes(parts), origin, revision, facts, None)
