"""Two GGUFs of one model and preset, tensor by tensor: a published file against one derived here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from qfr.engine.files.gguf import GgufFacts, inspect
from qfr.engine.files.header import TensorInfo, read_header
from qfr.engine.files.parts import parts_of

_CHUNK = 1 << 22


@dataclass(frozen=True)
class TensorDifference:
    """A tensor that is not the same in both files."""

    name: str
    first_type: str
    # GGML type, "" where the file has no such tensor.
    second_type: str
    what: str
    # missing, shape, type or values.


@dataclass(frozen=True)
class Comparison:
    """What two files share."""

    tensors: int
    # Names in either file.
    differences: tuple[TensorDifference, ...]
    # In name order.
    reasons: tuple[str, ...]
    # What the headers tell about why; empty when they tell nothing.

    @property
    def equal(self) -> bool:
        """All tensors are the same bytes of the same type."""
        return not self.differences


@dataclass(frozen=True)
class _Place:
    tensor: TensorInfo
    path: Path
    start: int
    # Byte of the file where the tensor's data starts.


def compare_files(first: Path, second: Path) -> Comparison:
    """Compare all tensors of two models and say what the headers tell about the differences.

    Raises
    ------
    ModelFileError
        A file cannot be read or is no language model.
    """
    ours, theirs = _places(first), _places(second)
    names = sorted(ours.keys() | theirs.keys())
    found = [_difference(name, ours.get(name), theirs.get(name)) for name in names]
    differences = tuple(difference for difference in found if difference is not None)
    facts = inspect(first, for_chat=False), inspect(second, for_chat=False)
    return Comparison(len(names), differences, _reasons(*facts, differences) if differences else ())


def _places(path: Path) -> dict[str, _Place]:
    headers = [read_header(part) for part in parts_of(path)]
    return {
        tensor.name: _Place(tensor, header.path, header.data_start + tensor.offset)
        for header in headers
        for tensor in header.tensors
    }


def _difference(name: str, first: _Place | None, second: _Place | None) -> TensorDifference | None:
    types = tuple("" if place is None else place.tensor.type_name for place in (first, second))
    if first is None or second is None:
        what = "missing"
    elif first.tensor.shape != second.tensor.shape:
        what = "shape"
    elif first.tensor.type_name != second.tensor.type_name:
        what = "type"
    elif _digest(first) != _digest(second):
        what = "values"
    else:
        return None
    return TensorDifference(name, types[0], types[1], what)


def _digest(place: _Place) -> bytes:
    running, left = hashlib.sha256(), place.tensor.size
    with place.path.open("rb") as stream:
        stream.seek(place.start)
        while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
            running.update(chunk)
            left -= len(chunk)
    return running.digest()


def _reasons(
    first: GgufFacts, second: GgufFacts, differences: tuple[TensorDifference, ...]
) -> tuple[str, ...]:
    reasons = []
    if first.file_type != second.file_type:
        reasons.append(
            f"they are other presets: {first.file_type or 'unnamed'} and {second.file_type or 'unnamed'}"
        )
    matrices = [dict(facts.imatrix).get("quantize.imatrix.file", "none") for facts in (first, second)]
    if bool(first.imatrix) != bool(second.imatrix):
        reasons.append(f"only one was made with an importance matrix ({' and '.join(matrices)})")
    elif first.imatrix != second.imatrix:
        reasons.append(f"they were made with other importance matrices ({' and '.join(matrices)})")
    versions = [dict(facts.metadata).get("general.quantization_version", "?") for facts in (first, second)]
    if versions[0] != versions[1]:
        reasons.append(f"other quantization versions: {versions[0]} and {versions[1]}")
    kinds = {difference.what for difference in differences}
    if "type" in kinds and not reasons:
        reasons.append("other tensor types: another mixture of the preset (quantizer version or its options)")
    if kinds == {"values"} and not reasons:
        reasons.append("same types, other values: another source file or quantizer version")
    return tuple(reasons)
