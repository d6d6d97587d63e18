"""`qfr try`: files grouped and told apart, a fixed sequence from large to small, the answer, going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TinyModel, write_model

from qfr.analysis.decisions.sequential import Sequential
from qfr.analysis.decisions.verdict import Outcome
from qfr.analysis.targets import CellKey, TaskTable
from qfr.cli import main
from qfr.engine.files import memory
from qfr.errors import MachineryError, UserError
from qfr.play import job
from qfr.stats.lattice import FloatArray
from qfr.tracking.reading.search import search
from qfr.tracking.store import open_store
from qfr.tryout import answer as words
from qfr.tryout.files import Arm, Family, families, files_in
from qfr.tryout.plan import Plan, Question
from qfr.tryout.sequence import Answer, run
from qfr.tryout.waves import Wave, Waves, full_bounds

AGENT = Path(__file__).parent.parent / "qfr" / "reference" / "models" / "ref_llama-F16.gguf"
Q8_0 = 7


def tiny(folder: Path, name: str, *, file_type: int = Q8_0, **extra: str) -> Path:
    return write_model(folder / name, TinyModel(file_type=file_type, extra=extra))


def test_files_of_one_model_are_grouped_whoever_named_them(tmp_path: Path) -> None:
    shutil.copy(AGENT, tmp_path / "agent-F16.gguf")
    shutil.copy(AGENT, tmp_path / "ref_llama-F16.gguf")
    tiny(tmp_path, "other-Q8_0.gguf", **{"general.name": "Other"})
    (tmp_path / "damaged.gguf").write_bytes(AGENT.read_bytes()[:100_000])
    (tmp_path / "notes.txt").write_text("no model")
    made, refused = families(files_in([str(tmp_path)]))
    assert sorted((one.name, len(one.arms)) for one in made) == [("agent", 2), ("other", 1)]
    assert [one.path.name for one in refused] == ["damaged.gguf"]
    assert "truncated" in refused[0].why


def test_files_of_one_preset_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    tiny(tmp_path, "m-Q8_0.gguf")
    tiny(tmp_path, "m-UD-Q8_0.gguf", **{"quantize.imatrix.file": "calibration.dat"})
    (family,) = families(files_in([str(tmp_path)]))[0]
    assert {one.label for one in family.arms} == {"Q8_0 (static)", "Q8_0 (imatrix)"}
    tiny(tmp_path, "m-UD-Q8_0.gguf", **{"general.quantized_by": "A"})
    tiny(tmp_path, "m-Q8_0.gguf", **{"general.quantized_by": "B"})
    (family,) = families(files_in([str(tmp_path)]))[0]
    assert {one.label for one in family.arms} == {"Q8_0 (A)", "Q8_0 (B)"}


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no \.gguf file"):
        files_in([str(tmp_path)])
    with pytest.raises(UserError, match="is not there"):
        files_in([str(tmp_path / "nothing.gguf")])


class Known(Waves):
    """Waves whose rates are known beforehand."""

    def __init__(self, rates: Callable[[int], FloatArray], fails_at: int = 0) -> None:
        self._rates, self._fails_at = rates, fails_at
        self._played = {}
        self.asked: list[int] = []

    def wave(self, number: int) -> Wave:
        self.asked.append(number)
        if number == self._fails_at:
            raise MachineryError("it broke")
        self._played[number] = Wave(self._rates(number), self._rates(number), 30, 1.0, 10.0, 1)
        return self._played[number]


@pytest.fixture
def four(tmp_path: Path) -> Family:
    for name, size in (("F16", 64), ("Q8_0", 48), ("Q4_K_M", 32), ("Q2_K", 16)):
        numbers = {"F16": 1, "Q8_0": 7, "Q4_K_M": 15, "Q2_K": 10}
        path = tiny(tmp_path, f"m-{name}.gguf", file_type=numbers[name])
        with path.open("ab") as file:
            file.write(b"\0" * size * 1000)
    (family,) = families(files_in([str(tmp_path)]))[0]
    assert [one.preset for one in family.arms] == ["F16", "Q8_0", "Q4_K_M", "Q2_K"]
    return family


def played(
    family: Family, losses: dict[str, float], *, limit: float | None = None
) -> tuple[Answer, list[str]]:
    order: list[str] = []

    def waves(arm: Arm) -> Waves:
        preset = arm.preset
        order.append(preset)
        return Known(lambda _n: np.where(np.arange(30) < 30 * losses.get(preset, 0.0), 0.0, 1.0))

    return run(
        family, waves, 10, Sequential(0.05), limit, look=lambda _one: None, time_is_up=lambda: False
    ), order


def test_the_sequence_stops_at_the_first_that_is_not_shown(four: Family) -> None:
    found, order = played(four, {"Q4_K_M": 0.5})
    assert order == ["F16", "Q8_0", "Q4_K_M"]
    assert found.named is not None
    assert found.named.preset == "Q8_0"
    assert [one.outcome for one in found.tried] == [Outcome.NOT_WORSE, Outcome.WORSE]
    assert played(four, {})[0].named == four.arms[-1]
    assert played(four, {"Q8_0": 0.5})[0].named == four.arms[0]


def test_only_what_fits_is_tried_and_named(four: Family) -> None:
    limit = four.arms[2].gigabytes
    _, order = played(four, {}, limit=limit)
    assert order == ["F16", "Q4_K_M", "Q2_K"]
    assert played(four, {"Q4_K_M": 0.5}, limit=limit)[0].named is None


def test_no_time_and_a_broken_engine_are_no_answer(four: Family) -> None:
    found = run(
        four, lambda _arm: Known(lambda _n: np.ones(30)), 10, Sequential(0.05), None,
        look=lambda _one: None, time_is_up=lambda: True,
    )  # fmt: skip
    assert (found.named, found.stopped) == (None, "the time is up")
    broken = run(
        four, lambda _arm: Known(lambda _n: np.ones(30), fails_at=2), 10, Sequential(0.05), None,
        look=lambda _one: None, time_is_up=lambda: False,
    )  # fmt: skip
    assert broken.named is None
    assert broken.stopped == "F16, the reference, could not be played: it broke"


def test_a_try_that_ran_out_of_time_names_what_was_shown_and_says_so(four: Family) -> None:
    asked = iter(range(100))
    found = run(
        four, lambda _arm: Known(lambda _n: np.ones(30)), 10, Sequential(0.05), None,
        look=lambda _one: None, time_is_up=lambda: next(asked) >= 4,
    )  # fmt: skip
    assert found.named == four.arms[1]
    told = words.lines(found, {}, 300)
    assert "  stopped: the time is up; the same command goes on" in told
    with pytest.raises(SystemExit) as ended:
        main(["try", str(four.arms[0].path), "--hours", "soon"])
    assert ended.value.code == 2


def test_a_file_that_cannot_be_loaded_is_passed_over(four: Family) -> None:
    def waves(arm: Arm) -> Waves:
        return Known(lambda _n: np.ones(30), fails_at=1 if arm.preset == "Q8_0" else 0)

    found = run(
        four, waves, 10, Sequential(0.05), None, look=lambda _one: None, time_is_up=lambda: False
    )  # fmt: skip
    assert [one.failure for one in found.tried] == ["it broke", "", ""]
    assert found.named == four.arms[-1]


def test_a_reference_at_the_floor_names_nothing_and_stops_early(four: Family) -> None:
    opened: dict[Path, Waves] = {}

    def waves(arm: Arm) -> Waves:
        rates = np.where(np.arange(30) < 1, 1.0, 0.0)
        return opened.setdefault(arm.path, Known(lambda _n: rates))

    found = run(
        four, waves, 10, Sequential(0.05), None, look=lambda _one: None, time_is_up=lambda: False
    )  # fmt: skip
    assert found.named is None
    assert [len(one.looks) for one in found.tried] == [2]
    (line,) = words.lines(found, opened, 300)
    assert "reaches 3.3 % of the full pipeline: nothing could be worse by more than 5 points" in line


def test_unfired_faults_of_a_table_are_a_range() -> None:
    found = TaskTable(
        key=CellKey("m", "q", "P0", "et", "tolerant", "s", "certified", 0), policy="tolerant",
        tasks=("a", "b", "c"), families=("", "", ""), certified=np.array([True, True, False]),
        successes=np.array([1, 2, 0]), delivered=np.array([1, 2, 0]), scheduled=np.array([2, 2, 0]),
    )  # fmt: skip
    least, most = full_bounds(found)
    assert (least.tolist(), most.tolist()) == ([0.5, 1.0, 0.0], [1.0, 1.0, 0.0])


def test_the_answer_names_the_file_first_and_how_to_serve_it(four: Family) -> None:
    found, _ = played(four, {"Q2_K": 1.0})
    lines = words.lines(found, {}, 300)
    assert lines[0] == f"m: {four.arms[2].path}"
    assert any("worse by more than 5 points" in line for line in lines)
    assert lines[-1].strip().startswith("llama-server -m ")
    told = json.loads(words.record([found], {"margin": 5.0}))
    assert told["answers"][0]["named"] == str(four.arms[2].path)
    assert told["answers"][0]["tried"][0]["looks"][-1]["outcome"] == "not worse"


def test_a_folder_to_one_named_file_and_the_same_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    shutil.copy(AGENT, "files/agent-F16.gguf")
    assert main(["quantize", "files/agent-F16.gguf", "Q2_K", "--out", "files"]) == 0
    try:
        code = main(["try", "files", "--tasks", "20", "--margin", "20"])
        first = capfd.readouterr()
        assert code == 0, first.err
        assert "agent: files/agent-F16.gguf" in first.out
        assert "against F16: −" in first.out
        assert "worse by more than 20 points" in first.out
        assert "llama-server -m /" in first.out
        (looks,) = Path("mlruns/tries").glob("*/looks.json")
        before = looks.read_bytes()
        assert (looks.parent / "looks.svg").read_text().startswith("<svg")
        assert main(["try", "files", "--tasks", "20", "--margin", "20"]) == 0
        assert looks.read_bytes() == before
        store = open_store(None, Path("mlruns"), "qfr")
        (kept,) = search(store, "tags.`qfr.kind` = 'try'")
        told = json.loads(before)["answers"][0]["tried"][0]["looks"]
        series = store.client.get_metric_history(kept.info.run_id, "agent/Q2_K.low")
        assert [(one.step, one.value) for one in series] == [(one["tasks"], one["low"]) for one in told]
        assert kept.data.tags["qfr.named.agent"] == "files/agent-F16.gguf"
        # Nothing is played twice.
        assert "tokens evaluated" not in capfd.readouterr().err
        assert len(store.client.get_metric_history(kept.info.run_id, "agent/Q2_K.low")) == len(told)
        assert main(["try", "files", "--plan"]) == 0
        planned = capfd.readouterr().out
        assert "up to 450 tasks a file in 15 waves" in planned
        assert all(word in planned for word in ("memory: up to", "time: at most about", "disk: up to"))
        assert main(["try", "files", "--tasks", "7"]) == 2
        assert "cannot be shared evenly" in capfd.readouterr().err
    finally:
        job._SHELF.clear()


def test_a_file_that_does_not_fit_into_memory_is_left_out_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(AGENT, tmp_path / "agent-F16.gguf")
    family = Family("agent", families(files_in([str(tmp_path)]))[0][0].arms)
    asked = Question(5.0, None, None, None, "P0", "et", "tolerant", None, None, 1, str(tmp_path / "runs"))
    whole = Plan(family, asked)
    assert whole.family == family
    assert not whole.refused
    monkeypatch.setattr(memory, "room_here", lambda _free, _config: memory.Room(1_000_000, 500_000, ()))
    small = Plan(family, asked)
    assert not small.family.arms
    (refused,) = small.refused
    assert refused.path == tmp_path / "agent-F16.gguf"
    assert "of main memory" in refused.why


def test_two_files_in_turns_are_loaded_once_each(tmp_path: Path) -> None:
    asked = Question(5.0, None, None, None, "P0", "et", "tolerant", None, None, 1, str(tmp_path / "runs"))
    made, _ = families([AGENT, AGENT.with_name("ref_qwen-F16.gguf")])
    one, other = (Plan(family, asked).open(family.arms[0]).cell for family in made)
    try:
        job.keep_engines(2)
        first, second = job.load_engine(one), job.load_engine(other)
        assert first is not second
        assert job.load_engine(one) is first
        assert job.load_engine(other) is second
        job.keep_engines(1)
        assert job.load_engine(other) is second
        assert job.load_engine(one) is not first
    finally:
        job.keep_engines(1)
        job._SHELF.clear()
