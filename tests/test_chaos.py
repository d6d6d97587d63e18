"""A short run of the scripts under tests/chaos; their long runs' figures stand in docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import fuzz, guided, kills
from tests.chaos.mutators import damage_bytes, damage_json
from tests.chaos.targets import Target, targets

pytestmark = pytest.mark.slow

GRID = ("model=scripted", "suite=orders6", "quant=q8_0,q4_k_m", "prompt=P0", "fault=et")


def test_kills_at_chosen_moments_end_in_the_same_bytes(tmp_path: Path) -> None:
    """While the journal is written, while a run is logged, while the report is written."""
    result = kills.run_kills(tmp_path, 3, 5, GRID, ("journal", "logging", "report"))
    assert result.problems == []
    assert sum(result.kills.values()) == 3


def test_a_different_end_is_found(tmp_path: Path) -> None:
    result = kills.Result()
    folder = tmp_path / "round-1"
    (folder / "mlruns").mkdir(parents=True)
    kills._compare(folder, {"a cell: log": b"x"}, result)
    assert any("a cell: log" in problem for problem in result.problems)


def test_a_few_thousand_inputs_of_every_reader(tmp_path: Path) -> None:
    outcomes = fuzz.fuzz(6000, "short")
    assert [finding for one in outcomes for finding in one.findings] == []
    assert sum(one.inputs for one in outcomes) == 6000
    # Damage is neither so light that all is read nor so heavy that nothing is.
    assert all(0 < one.read < one.inputs for one in outcomes)


def test_every_share_of_the_inputs_has_a_reader(tmp_path: Path) -> None:
    chosen = targets(tmp_path)
    assert sum(one.share for one in chosen) == pytest.approx(1)
    assert {one.name for one in chosen} == set(guided.READERS)


def _raising(error: BaseException) -> Target:
    def check(_: object) -> bool:
        raise error

    return Target("bad", 1.0, lambda rng: rng.random(), check)


def _busy(_: object) -> bool:
    while True:
        pass


def _writing(path: Path) -> Target:
    return Target("bad", 1.0, lambda rng: rng.random(), lambda _: bool(path.write_text("x")))


def test_what_counts_as_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    monkeypatch.setattr(fuzz, "_WARM", 0)
    bad = (
        _raising(ZeroDivisionError("a crash")),
        _raising(RecursionError()),
        Target("bad", 1.0, lambda rng: rng.random(), _busy),
        Target("bad", 1.0, lambda rng: rng.random(), lambda _: bool(eval("1 + 1"))),
        _writing(tmp_path / "outside.txt"),
    )
    for target in bad:
        monkeypatch.setattr(fuzz, "targets", lambda _, one=target: (one,))
        (outcome,) = fuzz.fuzz(2, "s")
        assert len(outcome.findings) == 2
    assert not (tmp_path / "outside.txt").exists()


def test_an_input_follows_from_its_number_alone() -> None:
    from random import Random

    assert damage_bytes(Random("a/3"), b"some bytes") == damage_bytes(Random("a/3"), b"some bytes")
    value = {"a": [1, {"b": "c"}]}
    changed = [damage_json(Random(f"a/{number}"), value) for number in range(50)]
    assert value == {"a": [1, {"b": "c"}]}
    assert len({repr(one) for one in changed}) > 20
