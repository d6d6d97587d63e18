"""Model files: what they say of themselves, and what is wrong with those that cannot be used."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from engine_builders import engine_config, model_config, preset, smollm2
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import CHATML, TinyModel, write_model, write_split

from qfr.engine.files.digests import digest
from qfr.engine.files.gguf import inspect, open_model
from qfr.engine.files.header import read_header
from qfr.engine.files.resolve import look
from qfr.engine.llama.engine import LlamaEngine
from qfr.errors import ModelFileError


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-f16.gguf", TinyModel())


# Headers


def test_header_says_what_the_gguf_package_reads() -> None:
    """Two readers agree on a real file: ours, which is fast, and the package's."""
    ours, theirs = read_header(smollm2()), gguf.GGUFReader(smollm2())
    assert [(t.name, t.type_name, t.size, ours.data_start + t.offset) for t in ours.tensors] == [
        (t.name, t.tensor_type.name, t.n_bytes, t.data_offset) for t in theirs.tensors
    ]
    assert [t.shape for t in ours.tensors] == [tuple(map(int, t.shape)) for t in theirs.tensors]
    scalars = {
        name: field.contents()
        for name, field in theirs.fields.items()
        if not name.startswith("GGUF.") and field.types[0] is not gguf.GGUFValueType.ARRAY
    }
    assert dict(ours.metadata) == scalars


def test_facts_of_a_real_file() -> None:
    facts = inspect(smollm2())
    assert (facts.arch, facts.file_type, facts.n_params, facts.n_ctx_train) == (
        "llama",
        "Q4_1",
        134_515_008,
        8192,
    )
    assert facts.tensor_types == (("F32", 61), ("Q4_1", 210), ("Q8_0", 1))
    assert facts.imatrix == ()
    assert facts.template_sha256 == hashlib.sha256(facts.template.encode()).hexdigest()
    assert "tokenizer.chat_template" not in dict(facts.metadata)


def test_importance_matrix_keys_stand_out(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", TinyModel(extra={"quantize.imatrix.file": "calibration.dat"}))
    assert inspect(made).imatrix == (("quantize.imatrix.file", "calibration.dat"),)


def damaged(tmp_path: Path, tiny: Path, kind: str) -> Path:
    """A file that is wrong in one way."""
    path, data = tmp_path / f"{kind}.gguf", tiny.read_bytes()
    start = read_header(tiny).data_start
    contents = {
        "empty": b"",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n",
        "page": b"<!DOCTYPE html><html><body>Not found</body></html>",
        "zip": b"PK\x03\x04" + bytes(60),
        "safetensors": struct.pack("<Q", 60) + b'{"__metadata__": {}}',
        "future": b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
        "stub": data[:10],
        "cut header": data[: start // 2],
        "cut data": data[:-1000],
        "no data": data[:start],
        "strange type": data.replace(
            b"general.architecture" + struct.pack("<I", 8), b"general.architecture" + struct.pack("<I", 77)
        ),
    }
    if kind == "directory":
        path.mkdir()
    elif kind in contents:
        path.write_bytes(contents[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "there is no such file"),
        ("directory", "is a directory"),
        ("empty", "is empty"),
        ("pointer", "is a Git LFS pointer.*git lfs pull"),
        ("zip", "is not a GGUF file but a ZIP archive"),
        ("safetensors", "is not a GGUF file but a safetensors file"),
        ("page", "is not a GGUF file but a web page or XML"),
        ("future", "is a GGUF of version 9"),
        ("stub", "is truncated"),
        ("cut header", "is truncated: its header goes on after the file's end"),
        ("cut data", r"is truncated: its header wants [\d,]+ bytes, the file has [\d,]+"),
        ("no data", r"is truncated: its header wants [\d,]+ bytes"),
        ("strange type", "is damaged: metadata of unknown type 77"),
    ],
)
def test_unusable_files_get_one_clear_error(kind: str, reason: str, tmp_path: Path, tiny: Path) -> None:
    path = damaged(tmp_path, tiny, kind)
    with pytest.raises(ModelFileError, match=f"(?s){kind}.gguf: {reason}") as caught:
        open_model(path, tmp_path / "cache")
    assert str(path) in str(caught.value)
    # Planning finds the same.
    with pytest.raises(ModelFileError, match=f"(?s){kind}.gguf: {reason}"):
        look(model_config(path=str(path)), preset("F16"))


@pytest.mark.parametrize(
    ("arch", "extra", "tensors", "reason"),
    [
        ("bert", {}, True, r"is an embedding model \(bert\)"),
        ("qwen3", {"qwen3.pooling_type": 3}, True, r"is an embedding model \(qwen3\)"),
        ("llama", {"llama.attention.causal": False}, True, "is an embedding model"),
        ("llama", {"general.type": "adapter"}, True, "is a LoRA adapter"),
        ("clip", {"general.type": "mmproj"}, True, "is a multimodal projector"),
        ("llama", {}, False, "holds no weights"),
        ("llama", {"tokenizer.chat_template": "  "}, True, "has no chat template.*instruction-tuned"),
        ("llama", {"split.count": 3}, True, "is one of 3 parts"),
    ],
)
def test_other_kinds_of_gguf_are_refused(
    arch: str, extra: dict[str, str | int | bool], tensors: bool, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, arch)
    for key, value in ({"tokenizer.chat_template": CHATML} | extra).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    if tensors:
        writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match=f"(?s)other.gguf: {reason}"):
        inspect(path)


def test_a_file_without_permission_is_told(tmp_path: Path, tiny: Path) -> None:
    """Root may read everything, so another user tries."""
    path = tmp_path / "locked.gguf"
    path.write_bytes(tiny.read_bytes())
    path.chmod(0)
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from qfr.engine.files.gguf import inspect\n"
        "from qfr.errors import ModelFileError\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: inspect(Path(sys.argv[1]))\n"
        "except ModelFileError as error: print(error)\n"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder.name.startswith("pytest"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert "locked.gguf: no permission to read it" in done.stdout, done.stderr


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_headers_never_do_worse_than_an_error(
    data: st.DataObject, tiny: Path, tmp_path_factory: Any
) -> None:
    original = tiny.read_bytes()
    start = read_header(tiny).data_start
    changed = bytearray(original[: start + 64])
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(4, start - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(changed)
    try:
        found = inspect(path)
    except ModelFileError:
        return
    # A smaller count of tensors makes a whole file of the first ones.
    assert found.n_params < inspect(tiny).n_params


# Digests


def test_digest_is_computed_once_per_path_size_and_time(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny.read_bytes())
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    seen: list[tuple[int, int]] = []

    def note(_: str, done: int, total: int) -> None:
        seen.append((done, total))

    assert digest(path, tmp_path, note) == expected
    assert seen == [(path.stat().st_size, path.stat().st_size)]
    assert digest(path, tmp_path, note) == expected
    assert len(seen) == 1
    # Changed in place, even with the same size and the old time: computed again.
    before = path.stat().st_mtime_ns
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(before, before))
    assert digest(path, tmp_path, note) == hashlib.sha256(changed).hexdigest()
    # A damaged memory is no memory.
    for memory in (tmp_path / "digests").iterdir():
        memory.write_text("{")
    assert digest(path, tmp_path, note) == hashlib.sha256(changed).hexdigest()


def test_a_wrong_pinned_digest_names_both(tiny: Path, tmp_path: Path) -> None:
    real, pinned = hashlib.sha256(tiny.read_bytes()).hexdigest(), "ab" * 32
    with pytest.raises(ModelFileError, match=f"(?s)tiny-f16.gguf: has SHA-256 {real}.*expected is {pinned}"):
        open_model(tiny, tmp_path, pinned=pinned)


def test_split_files_are_one_model(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    file = open_model(paths[0], tmp_path / "cache")
    assert file.parts == tuple(paths)
    assert file.sha256 == hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    whole = open_model(tmp_path / "whole.gguf", tmp_path / "cache")
    assert file.facts.tensor_types == whole.facts.tensor_types
    assert file.facts.n_params == whole.facts.n_params
    # Any part names the model, and llama.cpp loads it as one.
    assert open_model(paths[2], tmp_path / "cache") == file
    turns = []
    for one in (file, whole):
        engine = LlamaEngine(one, engine_config(), 256)
        turns.append(engine.begin("s", "t", 6))
        engine.close()
    assert turns[0] == turns[1]
    paths[1].unlink()
    with pytest.raises(
        ModelFileError, match="split into 3 parts, of which 1 are missing: parted-00002-of-00003"
    ):
        open_model(paths[0], tmp_path / "cache")


@pytest.mark.parametrize(
    ("number", "name", "block", "size"), [(40, "NVFP4", 64, 36), (41, "Q1_0", 128, 18), (42, "Q2_0", 64, 18)]
)
def test_tensor_types_of_the_pinned_llama_cpp_are_known(
    number: int, name: str, block: int, size: int, tmp_path: Path
) -> None:
    """Whatever the version of the gguf package: the type and its bytes, so that a cut file is seen."""
    text = struct.pack("<Q", 1) + b"w"
    data = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text + struct.pack("<IQIQ", 1, 2 * block, number, 0)
    path = tmp_path / "new.gguf"
    start = -(-len(data) // 32) * 32
    path.write_bytes(data.ljust(start + 2 * size, b"\0"))
    (tensor,) = read_header(path).tensors
    assert (tensor.type_name, tensor.size) == (name, 2 * size)
    path.write_bytes(data.ljust(start + 2 * size - 1, b"\0"))
    with pytest.raises(ModelFileError, match="is truncated"):
        read_header(path)


def test_every_file_type_and_tensor_type_of_the_library_is_known() -> None:
    import llama_cpp

    from qfr.choices import PRESET_BITS
    from qfr.engine.files.gguf import file_type_name

    types = {
        name.removeprefix("LLAMA_FTYPE_"): value
        for name, value in vars(llama_cpp).items()
        if name.startswith("LLAMA_FTYPE_")
    }
    del types["GUESSED"]
    for name, value in types.items():
        plain = name.removeprefix("MOSTLY_").removeprefix("ALL_")
        assert file_type_name(value) == plain
        assert plain in PRESET_BITS
