"""The account of a sweep's time: parts of jobs and of the sweep, and what is left."""

from __future__ import annotations

import pytest

from qfr.play.timings import ENGINE, MODELS, REPORT, STORE, Spent, time_line


def test_parts_of_all_jobs_are_added_and_the_rest_is_named() -> None:
    jobs = [{ENGINE: 3.0, STORE: 1.0}, {ENGINE: 4.5, MODELS: 0.25}]
    line = time_line([*jobs, {REPORT: 2.0}], 12.0)
    assert line == (
        "Time: 12.0 s: deriving and loading models 0.2 s, evaluating tokens (llama.cpp) 7.5 s, MLflow 1.0 s,"
        " report 2.0 s, Hydra, Python and the rest 1.2 s"
    )


def test_jobs_side_by_side_have_no_rest() -> None:
    assert time_line([{ENGINE: 700.0}, {ENGINE: 800.0}], 900.0) == (
        "Time: 15 min: evaluating tokens (llama.cpp) 25 min, (jobs side by side)"
    )


def test_taking_starts_anew_and_a_failing_part_counts_too() -> None:
    spent = Spent()
    spent.add(STORE, 2.0)
    spent.add(STORE, 1.0)
    with pytest.raises(ValueError, match="broken"), spent.on(REPORT):
        raise ValueError("broken")
    taken = spent.take()
    assert taken[STORE] == 3.0
    assert taken[REPORT] >= 0.0
    assert spent.take() == {}
    spent.add(STORE, 1.0)
    spent.begin()
    assert spent.take() == {}
    assert spent.wall >= 0.0
