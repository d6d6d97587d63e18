"""What is fuzzed: each target makes an input out of chance and says what must hold of it."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from qfr.analysis.tablefile import read_table
from qfr.archive.container import pack, read_archive
from qfr.archive.layout import check_log
from qfr.archive.records import MANIFEST, read_manifest, read_run
from qfr.arithmetic import evaluate
from qfr.canonical import canonical, sha256_hex
from qfr.engine.files.header import read_header
from qfr.errors import QfrError
from qfr.foreign.reading import read_foreign
from qfr.journal import encode, log_bytes, read_log
from qfr.protocol import read_answer, read_turn
from qfr.records import Policy
from qfr.scoring import score
from qfr.world.tools import COMMON
from tests.builders import build_cell_episodes, orders20
from tests.chaos.mutators import NASTY, PIECES, damage_bytes, damage_json, damage_text, json_bytes, sample

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

_EXPRESSION = (*"0123456789", "12.50", ".5", "5.", *"+-*/()", " ", "**", "//", "%", "e9", "1_000", "٣", "x")
_TURN = (
    *(piece.decode("utf-8", "surrogateescape") for piece in PIECES),
    *(text for text in NASTY if isinstance(text, str)),
    "I will call ",
    '"tool"',
    '"arguments"',
    '"answer": 12.5 * 3',
    "}}",
)


@dataclass(frozen=True)
class Target:
    """One reader of foreign bytes."""

    name: str
    share: float
    # Of all inputs.
    make: Callable[[Random], Any]
    # An input.
    check: Callable[[Any], bool]
    # Reads it; True = it was read, False = it was refused. Anything raised is a finding.


def targets(scratch: Path) -> tuple[Target, ...]:
    """All targets; files are written below `scratch` (a memory file system is fastest)."""
    return (
        Target("turn", 0.36, _turn, _check_turn),
        Target("answer", 0.24, _answer, _check_answer),
        Target("log", 0.20, _Log().make, _check_log),
        Target("tau", 0.10, _Tau().make, _Files(scratch / "tau").check_foreign),
        Target("archive", 0.05, _Archive(scratch / "seed").make, _Files(scratch / "archive").check_archive),
        Target("table", 0.04, _table, _Files(scratch / "table").check_table),
        Target("gguf", 0.01, _Gguf(scratch / "gguf_seed").make, _Files(scratch / "gguf").check_gguf),
    )


def _turn(rng: Random) -> str:
    good = {"tool": rng.choice(COMMON).name, "arguments": {"order_id": "ORD-1001", "answer": 12.5}}
    kind = rng.randrange(4)
    if kind == 0:
        return sample(rng, _TURN, 12)
    text = json_bytes(damage_json(rng, good)).decode()
    if kind == 1:
        return sample(rng, _TURN, 3) + text + sample(rng, _TURN, 3)
    return damage_text(rng, text) if kind == 2 else text * rng.choice((1, 2, 50))


def _check_turn(text: str) -> bool:
    read = False
    for repair in (True, False):
        found = read_turn(text, COMMON, repair=repair)
        if (found.tool is None) == (found.problem is None):
            raise AssertionError("neither or both of a call and a problem")
        if found.call is not None and canonical(json.loads(found.call.arguments)) == "":
            raise AssertionError("arguments that are no JSON")
        if found.submitted is not None:
            _check_answer(found.submitted)
        read |= found.tool is not None
    return read


def _answer(rng: Random) -> str:
    text = sample(rng, _EXPRESSION, 40) if rng.randrange(3) else sample(rng, _TURN, 4)
    kind = rng.randrange(3)
    return text if kind == 0 else canonical(text) if kind == 1 else damage_text(rng, canonical(text))


def _check_answer(argument: str) -> bool:
    found = read_answer(argument)
    for value in (found.value, evaluate(argument)):
        if not isinstance(value, Fraction | None):
            raise AssertionError(f"a {type(value).__name__} came out of arithmetic")
    return found.value is not None


class _Log:
    """Logs with damage in them."""

    def __init__(self) -> None:
        built = build_cell_episodes([2, None, 3, 1], orders20()[8:12])
        self._lines = [encode(episode) for episode in (*built.clean, *built.faulted)]
        self._whole = log_bytes(built.clean)

    def make(self, rng: Random) -> bytes:
        kind = rng.randrange(4)
        if kind == 0:
            return damage_bytes(rng, self._whole)
        line = rng.choice(self._lines)
        if kind == 1:
            return damage_bytes(rng, line)
        return json_bytes(damage_json(rng, json.loads(line))) + b"\n"


def _check_log(data: bytes) -> bool:
    try:
        episodes = read_log(data, where="log")
    except QfrError:
        return False
    if log_bytes(episodes) != log_bytes(read_log(log_bytes(episodes), where="again")):
        raise AssertionError("what was read is not what is written")
    for episode in episodes:
        for policy in Policy:
            score(episode, policy)
    return True


class _Tau:
    """Logs of tau2-bench and tau-bench with damage in them."""

    def __init__(self) -> None:
        files = (FIXTURES / "tau2" / "retail_before.json", FIXTURES / "tau1" / "gpt-4o-retail.json")
        self._texts = [file.read_bytes() for file in files]
        self._values = [json.loads(text) for text in self._texts]

    def make(self, rng: Random) -> bytes:
        if rng.randrange(3) == 0:
            return damage_bytes(rng, rng.choice(self._texts))
        return json_bytes(damage_json(rng, rng.choice(self._values)))


class _Archive:
    """Archives: damaged outside, damaged inside, or whole with a damaged manifest or record."""

    def __init__(self, folder: Path) -> None:
        inside = folder / "inside"
        run = {"name": "a", "status": "FINISHED", "started": 1, "ended": 2, "params": {}, "tags": {}}
        self._run = json_bytes({**run, "points": [{"key": "m", "value": 0.5, "time": 1, "step": 0}]})
        (inside / "runs").mkdir(parents=True, exist_ok=True)
        (inside / "runs" / "run.json").write_bytes(self._run)
        (inside / "a.txt").write_bytes(b"a" * 700)
        pack(inside, folder / "a.tar.zst", sweep="s-20260101-000000-abcdef", qfr_version="1")
        self._packed = (folder / "a.tar.zst").read_bytes()
        with pa.OSFile(str(folder / "a.tar.zst")) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            self._tar = stream.read()
        size = int(self._tar[124:135], 8)
        self._manifest = json.loads(self._tar[512 : 512 + size])
        self._log = gzip.compress(b"{}\n" * 50, mtime=0)

    def make(self, rng: Random) -> tuple[str, bytes]:
        kind = rng.randrange(6)
        if kind == 0:
            return "file", damage_bytes(rng, self._packed)
        if kind <= 2:
            data = damage_bytes(rng, self._tar, 3)
            return "file", pa.compress(data, codec="zstd", asbytes=True)
        if kind == 3:
            return "manifest", json_bytes(damage_json(rng, self._manifest))
        if kind == 4:
            return "run", json_bytes(damage_json(rng, json.loads(self._run)))
        return "gzip", damage_bytes(rng, self._log)


def _table(rng: Random) -> bytes:
    good = {
        "sites": [2, 2, 3],
        "families": ["base", "base", "shipping"],
        "tables": {"Llama/8/P0": [2, None, 3], "Llama/4/P0": [1, 0, 3]},
    }
    if rng.randrange(3) == 0:
        return damage_bytes(rng, json_bytes(good))
    return json_bytes(damage_json(rng, good))


class _Gguf:
    """Headers of GGUF files with damage in them."""

    def __init__(self, folder: Path) -> None:
        from tests.tiny_models import TinyModel, write_model

        folder.mkdir(parents=True, exist_ok=True)
        self._data = write_model(folder / "seed.gguf", TinyModel()).read_bytes()

    def make(self, rng: Random) -> bytes:
        head = damage_bytes(rng, self._data[: rng.choice((64, 512, 4096))], 3)
        return head + self._data[len(head) :]


class _Files:
    """Readers that want a file; everything that they write must stay below their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def _refused(self, data: bytes, name: str, read: Callable[[Path], object]) -> bool:
        path = self.folder / name
        path.write_bytes(data)
        try:
            read(path)
        except QfrError as error:
            if not str(error).strip():
                raise AssertionError("an error without words") from error
            return False
        return True

    def check_foreign(self, data: bytes) -> bool:
        """Logs of other tools."""
        return self._refused(data, "results.json", read_foreign)

    def check_table(self, data: bytes) -> bool:
        """Tables of `qfr contrast`."""
        return self._refused(data, "table.json", read_table)

    def check_gguf(self, data: bytes) -> bool:
        """Headers of GGUF files."""
        return self._refused(data, "model.gguf", read_header)

    def check_archive(self, made: tuple[str, bytes]) -> bool:
        """Archives as files, and what stands in them."""
        kind, data = made
        readers: Mapping[str, Callable[[Path], object]] = {
            "file": self._unpack,
            "manifest": lambda path: read_manifest(path.read_bytes(), where=MANIFEST),
            "run": lambda path: read_run(path.read_bytes(), where="run.json"),
            "gzip": lambda path: check_log(path.read_bytes(), sha256_hex(b"{}\n" * 50), where="log"),
        }
        return self._refused(data, f"a.{kind}", readers[kind])

    def _unpack(self, path: Path) -> None:
        inside = self.folder / "unpacked"
        shutil.rmtree(inside, ignore_errors=True)
        inside.mkdir()
        read_archive(path, inside)
