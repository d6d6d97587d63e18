"""Presets derived from one file by llama.cpp's own quantizer."""

from __future__ import annotations

import hashlib
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from engine_builders import model_config, preset
from gguf.constants import GGMLQuantizationType
from tiny_models import TinyModel, write_model

from qfr.config import FileConfig
from qfr.engine.files.compare import compare_files
from qfr.engine.files.header import read_header
from qfr.engine.files.quantize import derive
from qfr.engine.files.resolve import look, resolve
from qfr.engine.llama.library import library_facts
from qfr.errors import ModelFileError


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("wide") / "wide-f16.gguf", TinyModel(width=256))


def test_a_preset_is_derived_once_and_is_the_same_every_time(wide: Path, tmp_path: Path) -> None:
    config = model_config(base=str(wide))
    assert look(config, preset("Q4_K_M")).derived
    file = resolve(config, preset("Q4_K_M"), tmp_path)
    assert (file.origin, file.facts.file_type) == ("derived", "Q4_K_M")
    assert dict(file.facts.tensor_types).keys() == {"F32", "Q4_K", "Q6_K"}
    made = file.derivation
    assert made is not None
    assert (made.source_type, made.preset, made.requantized, made.fallbacks) == ("F16", "Q4_K_M", False, ())
    assert made.source_sha256 == hashlib.sha256(wide.read_bytes()).hexdigest()
    stamp = file.path.stat().st_mtime_ns
    assert resolve(config, preset("Q4_K_M"), tmp_path) == file
    assert file.path.stat().st_mtime_ns == stamp
    elsewhere = resolve(config, preset("Q4_K_M"), tmp_path / "other")
    assert elsewhere.sha256 == file.sha256
    # A cached file that is not what was written is made again.
    file.path.write_bytes(file.path.read_bytes()[:-100])
    assert resolve(config, preset("Q4_K_M"), tmp_path).sha256 == elsewhere.sha256
    assert sorted(path.suffix for path in file.path.parent.iterdir()) == [".gguf", ".json", ".lock"]


def test_the_bases_own_preset_is_the_base(wide: Path, tmp_path: Path) -> None:
    file = resolve(model_config(base=str(wide)), preset("F16"), tmp_path)
    assert (file.path, file.derivation) == (wide, None)


def test_every_preset_is_reachable_by_name(wide: Path, tmp_path: Path) -> None:
    sizes = {}
    for name in ("BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_S", "IQ4_XS", "Q4_1", "Q3_K_L", "TQ1_0"):
        file = derive(wide, preset(name), tmp_path, allow_requantize=False)
        assert file.facts.file_type == name
        sizes[name] = file.bytes
    order = ["BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_S", "Q3_K_L", "TQ1_0"]
    assert sorted(order, key=lambda name: -sizes[name]) == order


def test_tensors_that_fall_back_to_another_type_are_counted(tmp_path: Path) -> None:
    """Rows of 192 are no multiple of 256: such a file still calls itself Q4_K_M."""
    narrow = write_model(tmp_path / "narrow.gguf", TinyModel(width=192))
    file = derive(narrow, preset("Q4_K_M"), tmp_path, allow_requantize=False)
    assert file.facts.file_type == "Q4_K_M"
    assert file.derivation is not None
    assert dict(file.derivation.fallbacks) == {"Q4_K to Q5_0": 13, "Q6_K to Q8_0": 2}
    types = dict(file.facts.tensor_types)
    assert types["Q5_0"] == 13
    assert "Q4_K" not in types
    # Remembered with the file.
    assert derive(narrow, preset("Q4_K_M"), tmp_path, allow_requantize=False) == file


def test_a_quantized_source_needs_leave(wide: Path, tmp_path: Path) -> None:
    small = derive(wide, preset("Q8_0"), tmp_path, allow_requantize=False)
    with pytest.raises(ModelFileError, match=r"(?s)is itself quantized .Q8_0.*model.allow_requantize=true"):
        derive(small.path, preset("Q4_K_M"), tmp_path, allow_requantize=False)
    file = derive(small.path, preset("Q4_K_M"), tmp_path, allow_requantize=True)
    assert file.derivation is not None
    assert file.derivation.requantized
    assert file.sha256 != derive(wide, preset("Q4_K_M"), tmp_path, allow_requantize=False).sha256


def test_derived_from_the_file_that_the_model_names(wide: Path, tmp_path: Path) -> None:
    config = model_config(
        folder=str(wide.parent), files={"f16": FileConfig(wide.name, None, None)}, derive_from="f16"
    )
    file = resolve(config, preset("Q8_0"), tmp_path)
    assert file.facts.file_type == "Q8_0"
    pinned = replace(config, files={"f16": FileConfig(wide.name, "ab" * 32, None)})
    with pytest.raises(ModelFileError, match="expected is abab"):
        resolve(pinned, preset("Q8_0"), tmp_path)


def importance(path: Path, wide: Path, *, legacy: bool) -> Path:
    """An importance matrix for all matrices of a model: the same numbers in either format."""
    tensors = [t for t in read_header(wide).tensors if len(t.shape) == 2 and t.name != "token_embd.weight"]
    rows = {t.name: np.linspace(1, 9, t.shape[0], dtype=np.float32) for t in tensors}
    if legacy:
        data = struct.pack("<i", len(rows))
        for name, row in rows.items():
            data += (
                struct.pack("<i", len(name))
                + name.encode()
                + struct.pack("<ii", 4, len(row))
                + (row * 4).tobytes()
            )
        path.write_bytes(data)
        return path
    writer = gguf.GGUFWriter(path, "imatrix")
    writer.add_string("general.type", "imatrix")
    for name, row in rows.items():
        writer.add_tensor(f"{name}.in_sum2", (row * 4).reshape(1, -1))
        writer.add_tensor(f"{name}.counts", np.array([[4.0]], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_presets_that_need_an_importance_matrix_take_one(wide: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"(?s)Q2_K_S needs an importance matrix.*quant.imatrix="):
        derive(wide, preset("Q2_K_S"), tmp_path, allow_requantize=False)
    old = importance(tmp_path / "imatrix.dat", wide, legacy=True)
    new = importance(tmp_path / "imatrix.gguf", wide, legacy=False)
    files = [
        derive(wide, preset("Q2_K_S", str(path)), tmp_path, allow_requantize=False) for path in (old, new)
    ]
    assert files[0].facts.tensor_types == files[1].facts.tensor_types
    assert dict(files[0].facts.tensor_types)["Q2_K"] > 0
    weights = [gguf.GGUFReader(file.path).tensors for file in files]
    for one, other in zip(*weights, strict=True):
        assert np.array_equal(one.data, other.data), one.name
    assert files[0].derivation is not None
    assert files[0].derivation.imatrix_sha256 == hashlib.sha256(old.read_bytes()).hexdigest()
    # An importance matrix is another treatment even where none is needed.
    static = derive(wide, preset("Q4_K_M"), tmp_path, allow_requantize=False)
    weighted = derive(wide, preset("Q4_K_M", str(old)), tmp_path, allow_requantize=False)
    assert static.sha256 != weighted.sha256
    assert weighted.facts.imatrix == (
        ("quantize.imatrix.entries_count", str(len(read_header(wide).tensors) - 6)),
        ("quantize.imatrix.file", "imatrix.dat"),
    )
    assert static.facts.imatrix == ()


@pytest.mark.parametrize(
    "content", [b"GGUFxxxxxxxx", b"no matrix", b"\0" * 40, struct.pack("<iii", 1, 500, 1)]
)
def test_what_is_no_importance_matrix_is_told(content: bytes, wide: Path, tmp_path: Path) -> None:
    path = tmp_path / "imatrix"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="is no importance matrix"):
        derive(wide, preset("Q4_K_M", str(path)), tmp_path, allow_requantize=False)
    assert not [entry for entry in (tmp_path / "derived").iterdir() if entry.suffix == ".gguf"]


def test_presets_that_llama_cpp_lacks_are_named(wide: Path, tmp_path: Path) -> None:
    wanted = replace(preset("Q4_K_M"))
    wanted.preset = "Q4_K_X"
    with pytest.raises(ModelFileError, match=r"cannot make Q4_K_X.*did you mean 'Q4_K_"):
        derive(wide, wanted, tmp_path, allow_requantize=False)


def test_several_at_once_make_a_file_once(wide: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        files = list(
            pool.map(lambda _: derive(wide, preset("Q5_K_M"), tmp_path, allow_requantize=False), range(3))
        )
    assert files[0] == files[1] == files[2]
    assert len(list((tmp_path / "derived").glob("*.gguf"))) == 1


def test_no_room_is_told_before_anything_is_written(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(ModelFileError, match=r"needs about .* GB, 0.0 GB are free"):
        derive(wide, preset("Q8_0"), tmp_path, allow_requantize=False)


def test_a_crash_of_the_quantizer_is_an_error_and_leaves_nothing(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "qfr.engine.child.command", lambda *_: [sys.executable, "-c", "import os; os.abort()"]
    )
    library_facts()
    with pytest.raises(ModelFileError, match=r"quantizer's process ended \(SIGABRT\) while making Q8_0"):
        derive(wide, preset("Q8_0"), tmp_path, allow_requantize=False)
    assert not list((tmp_path / "derived").glob("*.gguf"))


def test_types_of_blocks_have_the_sizes_that_llama_cpp_writes(wide: Path, tmp_path: Path) -> None:
    """A derived file passes the check of its own size for every type that it holds."""
    seen = set()
    for name in ("Q4_K_M", "Q5_0", "IQ4_XS", "TQ2_0"):
        file = derive(wide, preset(name), tmp_path, allow_requantize=False)
        header = read_header(file.path)
        last = max(header.tensors, key=lambda tensor: tensor.offset)
        padded = -(-(header.data_start + last.offset + last.size) // 32) * 32
        assert padded == file.path.stat().st_size
        seen |= {tensor.type_name for tensor in header.tensors}
    assert {kind.name for kind in (GGMLQuantizationType.Q4_K, GGMLQuantizationType.IQ4_XS)} <= seen


def test_files_are_compared_tensor_by_tensor(wide: Path, tmp_path: Path) -> None:
    q4 = derive(wide, preset("Q4_K_M"), tmp_path, allow_requantize=False).path
    again = derive(wide, preset("Q4_K_M"), tmp_path / "again", allow_requantize=False).path
    same = compare_files(q4, again)
    assert (same.equal, same.tensors, same.reasons) == (True, 21, ())
    small = derive(wide, preset("Q4_K_S"), tmp_path, allow_requantize=False).path
    smaller = compare_files(q4, small)
    types = [{t.name: t.type_name for t in read_header(path).tensors} for path in (q4, small)]
    differing = {
        name: (one, types[1][name], "type") for name, one in types[0].items() if one != types[1][name]
    }
    assert {d.name: (d.first_type, d.second_type, d.what) for d in smaller.differences} == differing
    assert differing["blk.1.ffn_down.weight"] == ("Q6_K", "Q4_K", "type")
    assert smaller.reasons == ("they are other presets: Q4_K_M and Q4_K_S",)
    matrix = importance(tmp_path / "imatrix.dat", wide, legacy=True)
    weighted = compare_files(
        q4, derive(wide, preset("Q4_K_M", str(matrix)), tmp_path, allow_requantize=False).path
    )
    assert {difference.what for difference in weighted.differences} == {"values"}
    assert weighted.reasons == ("only one was made with an importance matrix (none and imatrix.dat)",)
    other = write_model(tmp_path / "other.gguf", TinyModel(width=256, seed=1))
    foreign = compare_files(q4, derive(other, preset("Q4_K_M"), tmp_path, allow_requantize=False).path)
    assert foreign.reasons == ("same types, other values: another source file or quantizer version",)
    short = write_model(tmp_path / "short.gguf", TinyModel(width=256, layers=1))
    assert "missing" in {difference.what for difference in compare_files(wide, short).differences}
