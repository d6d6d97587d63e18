"""`qfr try`: which files are arms of one model, the order of the test, and a folder tried to its end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from qfr.analysis.decisions.sequential import Look
from qfr.analysis.decisions.verdict import Outcome, Rule
from qfr.analysis.targets import CellKey, TaskTable
from qfr.cli import main
from qfr.config import QuantConfig
from qfr.engine.files.gguf import inspect
from qfr.engine.files.quantize import derive
from qfr.errors import MachineryError, ModelFileError
from qfr.sequential.files import Arm, Family, listed, sort_files
from qfr.sequential.sequence import run_sequence
from qfr.sequential.waves import Wave, waves_of

MODELS = Path(__file__).parents[1] / "qfr" / "reference" / "models"
LLAMA, QWEN = MODELS / "ref_llama-F16.gguf", MODELS / "ref_qwen-F16.gguf"


@pytest.fixture(scope="module")
def q8_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference agent at Q8_0."""
    folder = tmp_path_factory.mktemp("derived")
    return derive(LLAMA, QuantConfig("Q8_0", None), folder, allow_requantize=False).path


def test_files_are_grouped_by_model_and_what_cannot_run_is_named(tmp_path: Path, q8_0: Path) -> None:
    shutil.copy(LLAMA, tmp_path / "one-F16.gguf")
    shutil.copy(QWEN, tmp_path / "other.gguf")
    (tmp_path / "deep").mkdir()
    shutil.copy(q8_0, tmp_path / "deep" / "quite-another-name.gguf")
    shutil.copy(q8_0, tmp_path / "deep" / "same-bytes.gguf")
    (tmp_path / "cut.gguf").write_bytes(q8_0.read_bytes()[:100_000])
    (tmp_path / "empty.gguf").touch()
    found = sort_files(listed([str(tmp_path)]), tmp_path / "cache", lambda line: None)
    assert {one.name: [arm.label for arm in one.arms] for one in found.families} == {
        "ref_llama": ["F16", "Q8_0"],
        "ref_qwen": ["F16"],
    }
    reasons = {one.path.name: one.reason for one in found.refused}
    assert set(reasons) == {"cut.gguf", "empty.gguf", "same-bytes.gguf"}
    assert "truncated" in reasons["cut.gguf"]
    assert reasons["same-bytes.gguf"] == "holds the same bytes as quite-another-name.gguf"


def test_two_files_of_one_preset_are_named_by_what_differs(tmp_path: Path, q8_0: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(q8_0.read_bytes())
    with (tmp_path / "b.gguf").open("r+b") as stream:
        stream.seek(-4, 2)
        stream.write(b"\1\2\3\4")
    found = sort_files(listed([str(tmp_path)]), tmp_path / "cache", lambda line: None)
    assert [arm.label for arm in found.families[0].arms] == ["Q8_0 (a.gguf)", "Q8_0 (b.gguf)"]


def test_places_that_hold_nothing_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no GGUF file"):
        listed([str(tmp_path)])
    with pytest.raises(ModelFileError, match="no such file"):
        listed([str(tmp_path / "x.gguf")])


@pytest.mark.parametrize(
    ("families", "waves"),
    [
        ({"base": 450, "shipping": 450}, 30),
        ({"base": 10, "shipping": 10}, 1),
        ({"pay": 20, "split": 20, "refund": 20}, 2),
        ({"base": 225, "shipping": 225}, 15),
        ({"a": 101, "b": 103}, 1),
    ],
)
def test_every_wave_holds_the_families_in_the_suites_proportions(
    families: Mapping[str, int], waves: int
) -> None:
    assert waves_of(families) == waves


class Played:
    """Waves of thirty tasks; per arm the share of tasks whose fault it recovers from."""

    def __init__(self, rates: Mapping[str, float], broken: str = "") -> None:
        self.waves, self._rates, self._broken = 30, rates, broken
        self.asked: list[tuple[str, int]] = []

    def wave(self, arm: Arm, number: int) -> Wave:
        """A wave that the test knows beforehand."""
        self.asked.append((arm.label, number))
        if arm.label == self._broken:
            raise MachineryError("it cannot be loaded")
        good = np.random.default_rng(number).random(30) < self._rates[arm.label]
        ones = np.ones(30, dtype=np.int64)
        table = TaskTable(
            key=CellKey("m", arm.preset, "P0", "et", "tolerant", "s", "certified", 0),
            policy="tolerant",
            tasks=tuple(f"t{number}-{at}" for at in range(30)),
            families=("",) * 30,
            certified=ones.astype(np.bool_),
            successes=good.astype(np.int64),
            delivered=ones,
            scheduled=ones,
        )
        return Wave(table, 10.0, 10**9, 6.0)


def family(*labels: str) -> Family:
    """Files of falling size."""
    facts = inspect(LLAMA)
    sizes = range(len(labels), 0, -1)
    arms = [Arm(name, Path(f"/m/{name}.gguf"), name, size * 10**9, name, facts)
            for name, size in zip(labels, sizes, strict=True)]  # fmt: skip
    return Family("m", tuple(arms))


def quiet(arm: Arm, one: Look, number: int) -> None:
    """Says nothing of a look."""


RATES = {"F16": 0.95, "Q8_0": 0.95, "Q6_K": 0.95, "Q4_K_M": 0.5, "Q2_K": 0.95}


def test_the_sequence_names_the_last_file_before_one_that_is_worse() -> None:
    played = Played(RATES)
    answer = run_sequence(family(*RATES), played, Rule(margin=0.05), 1e12, 1.0, quiet)
    assert answer.chosen is not None
    assert answer.chosen.label == "Q6_K"
    assert [(one.arm.label, one.outcome) for one in answer.tried] == [
        ("Q8_0", Outcome.NOT_WORSE), ("Q6_K", Outcome.NOT_WORSE), ("Q4_K_M", Outcome.WORSE),
    ]  # fmt: skip
    assert [arm.label for arm in answer.skipped] == ["Q2_K"]
    assert len(played.asked) == len(set(played.asked))


def test_a_file_that_cannot_be_played_is_passed_over_and_said() -> None:
    rates = dict.fromkeys(("F16", "Q8_0", "Q6_K"), 0.95)
    answer = run_sequence(family(*rates), Played(rates, "Q8_0"), Rule(margin=0.05), 1e12, 1.0, quiet)
    assert answer.chosen is not None
    assert answer.chosen.label == "Q6_K"
    assert answer.tried[0].problem == "it cannot be loaded"


def test_without_time_nothing_is_named_but_a_reference_that_fits() -> None:
    names = family("F16", "Q8_0")
    assert run_sequence(names, Played(RATES), Rule(margin=0.05), 1e12, 0.0, quiet).chosen == names.reference
    late = run_sequence(names, Played(RATES), Rule(margin=0.05), 1.5e9, 0.0, quiet)
    assert late.chosen is None
    assert late.stopped == "Q8_0: the time is up"


def _answer(text: str) -> list[str]:
    """All lines but the one of the free disk."""
    return [line for line in text.splitlines() if "disk:" not in line]


def test_a_folder_is_tried_to_one_named_file_and_a_repetition_plays_nothing(
    tmp_path: Path, q8_0: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    shutil.copy(LLAMA, folder / "x-F16.gguf")
    shutil.copy(q8_0, folder / "x-Q8_0.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    command = ["try", str(folder), "--suite", "orders20_ref", "--margin", "30"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "left out: broken.gguf: is truncated" in first.out
    assert f"→ {folder / 'x-Q8_0.gguf'}" in first.out
    assert "llama-server -m " in first.out
    assert list(tmp_path.glob("mlruns/try/s-try-*/looks.svg"))
    assert main(command) == 0
    again = capsys.readouterr()
    assert "certified" not in again.err
    assert _answer(again.out) == _answer(first.out)
