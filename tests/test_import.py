"""`qfr import`: logs of other programs as runs, as task tables, against each other, and what it refuses."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qfr.analysis.contrast.contrasts import contrast_table
from qfr.analysis.frames import join
from qfr.analysis.imported import Comparison, Side, compare
from qfr.analysis.levels import Axis
from qfr.analysis.pairing import kept_apart
from qfr.analysis.targets import CellKey, TaskTable
from qfr.analysis.trials import planned, table_of_run
from qfr.archive.foreign_logs import cell_of
from qfr.cli import main
from qfr.errors import LogError
from qfr.foreign import Options as ReadOptions
from qfr.foreign import Requestor, read_foreign
from qfr.foreign.measures import BudgetRule, budget_curve
from qfr.report.content.build import build_report
from qfr.report.notices import notices
from qfr.report.words import answers, overview
from qfr.tracking.reading.cells import read_calls, read_episodes
from qfr.tracking.reading.reader import Reading, read_cells
from qfr.tracking.store import Store, peek_store
from tests.foreign_files import Row, Simulated, write_tau2

FIXTURES = Path(__file__).parent / "fixtures"
GOOD, BAD = Simulated(True), Simulated(False)
LOST = Simulated(False, reason="infrastructure_error")

# Success per task: 1, 1/2, 1 (of the one scored trial), 1/2; failing calls 0, 2 + 1, 0, 1.
HIGH: tuple[Row, ...] = (
    (GOOD, GOOD),
    (Simulated(True, ("entity", "arguments"), 1), Simulated(False, ("entity",))),
    (GOOD, LOST),
    (Simulated(True, ("tool_name",)), BAD),
)
# Success per task: 1/2, 1/2, 0, none scored; one task more than the other plans.
LOW: tuple[Row, ...] = (
    (Simulated(True, ("entity",)), Simulated(False, ("entity", "policy"))),
    (Simulated(True, ("entity", "entity", "arguments")), BAD),
    (BAD, Simulated(False, ("entity",))),
    (LOST, None),
    (GOOD, GOOD),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two logs of one model."""
    folder = tmp_path_factory.mktemp("logs")
    return write_tau2(folder / "high.json", HIGH), write_tau2(folder / "low.json", LOW)


@pytest.fixture(scope="module")
def root(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Path:
    """A store that holds both."""
    folder = tmp_path_factory.mktemp("mlruns")
    shutil.copy(migrated_database, folder / "mlflow.db")
    assert run(*map(str, files), "--model", "m", "--quant", "BF16", "--quant", "INT4", root=folder) == 0
    return folder


@pytest.fixture(scope="module")
def reading(root: Path) -> Reading:
    """What the store holds."""
    return read_cells(opened(root))


def run(*words: str, root: Path) -> int:
    """Run the command."""
    return main(["import", *words, "--root", str(root)])


def opened(root: Path) -> Store:
    """The store of imported logs."""
    store = peek_store(None, root, "qfr-foreign")
    assert store is not None
    return store


def compared(files: tuple[Path, Path]) -> Comparison:
    """The two logs against each other, without a store."""
    (found,) = compare([Side(label, read_foreign(path)) for label, path in zip("AB", files, strict=True)])
    return found


# --- a file is a run ---------------------------------------------------------------------------------


def test_a_log_is_one_complete_run(files: tuple[Path, Path], root: Path, reading: Reading) -> None:
    assert [(c.facts.quant, c.facts.executor, c.facts.fault, c.facts.suite) for c in reading.cells] == [
        ("BF16", "foreign", "none", "retail"),
        ("INT4", "foreign", "none", "retail"),
    ]
    high = reading.cells[0]
    log = read_foreign(files[0])
    assert (high.facts.engine, high.facts.prompt, high.complete) == ("tau2", "-", True)
    assert high.facts.cell_id == f"f-{log.info.sha256[:16]}"
    assert read_episodes(opened(root), high) == tuple(found.episode for found in log.episodes)
    assert high.metrics["tolerant.clean_rate"] == pytest.approx((1 + 1 / 2 + 1 + 1 / 2) / 4)
    assert high.metrics["foreign.success"] == pytest.approx(5 / 7)
    assert high.metrics["foreign.success_excluded_failed"] == pytest.approx(5 / 8)
    assert high.metrics["foreign.pass_hat_1_excluded_failed"] == pytest.approx(
        (1 + 1 / 2 + 1 / 2 + 1 / 2) / 4
    )
    assert high.metrics["foreign.entity_per_call"] == pytest.approx(2 / 11)
    assert high.metrics["channels.tool_name"] == 1
    assert len(read_calls(opened(root), high)) == 11
    assert planned(high.facts).excluded == ("2",)
    # No model file stands behind a log.
    assert opened(root).client.search_logged_models([opened(root).experiment_id]) == []


def test_a_second_import_adds_nothing(
    files: tuple[Path, Path], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(files[0]), "--model", "m", "--quant", "BF16", root=root) == 0
    assert "in the store already: run" in capsys.readouterr().out
    assert len(opened(root).client.search_runs([opened(root).experiment_id])) == 2


def test_a_file_counts_under_one_name_only(
    files: tuple[Path, Path], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(files[0]), "--model", "m", "--quant", "FP8", root=root) == 2
    assert "high.json is in the store already, as m BF16" in capsys.readouterr().err
    assert len(opened(root).client.search_runs([opened(root).experiment_id])) == 2


def test_the_fixtures_are_logged_and_reported(
    tmp_path: Path, migrated_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(migrated_database, tmp_path / "mlflow.db")
    names = ("tau2/retail_before.json", "tau2/telecom_since", "tau1/gpt-4o-retail.json")
    assert run(*(str(FIXTURES / name) for name in names), root=tmp_path) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "in no rate: 1 infrastructure_error (task/trial 0/1)" in out
    assert "success 50.0 % of the scored (1 of 2); between 25.0 % and 75.0 %" in out
    assert "censored: simulations with invented" in out
    found = read_cells(opened(tmp_path))
    assert [cell.facts.engine for cell in found.cells] == ["tau-bench", "tau2", "tau2"]
    report = build_report(found.cells)
    # Other programs, domains and models: nothing is paired, and each log says its success.
    assert report.contrasts == ()
    told = "gpt-4o-retail retail (gpt-4o-retail.json): success 75.0 % [50.0, 100.0], n = 2 tasks."
    assert any(line.startswith(told) for line in overview(report))


# --- as task tables ----------------------------------------------------------------------------------


def test_a_table_counts_trials(files: tuple[Path, Path]) -> None:
    table = table_of_run(read_foreign(files[1]), key("INT4"), "tolerant")
    # The task without a scored trial comes last.
    assert table.tasks == ("0", "1", "2", "4", "3")
    assert table.successes.tolist() == [1, 1, 0, 2, 0]
    assert table.delivered.tolist() == [2, 2, 2, 2, 0]
    assert table.scheduled.tolist() == [2, 2, 2, 2, 2]
    assert table.repeated


def test_store_and_file_give_the_same_table(files: tuple[Path, Path], reading: Reading) -> None:
    joined = {(t.key.quant, t.policy): t for t in join(reading.cells).tables}
    for quant, path in zip(("BF16", "INT4"), files, strict=True):
        direct = table_of_run(read_foreign(path), key(quant), "tolerant")
        for policy in ("tolerant", "strict"):
            same_counts(joined[quant, policy], direct)


def key(quant: str) -> CellKey:
    return CellKey("m", quant, "-", "none", "foreign", "retail", "certified", 0)


def same_counts(one: TaskTable, other: TaskTable) -> None:
    assert one.tasks == other.tasks
    for name in ("successes", "delivered", "scheduled", "certified"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_contrast_pairs_tasks_and_bounds_the_excluded(reading: Reading) -> None:
    contrasts = [c for c in contrast_table(join(reading.cells).tables) if c.policy == "tolerant"]
    assert [(c.a, c.b, c.target, c.family) for c in contrasts] == [("BF16", "INT4", "clean", None)]
    found = contrasts[0]
    # Tasks 0 to 2: 1 - 1/2, 1/2 - 1/2, 1 - 0. Task 3 has no scored trial in B, task 4 is not planned in A.
    assert (found.n_tasks, found.favour_a, found.favour_b, found.ties) == (3, 2, 0, 1)
    assert found.points == pytest.approx(50)
    assert [found.low, found.high] == pytest.approx([0, 100])
    assert (found.dropped_a, found.dropped_b) == (("3",), ("3", "4"))
    assert found.undelivered_b == ("3",)
    # Over the tasks 0 to 3 that both planned: A between 1+1/2+1/2+1/2 and 1+1/2+1+1/2, B between 1 and 2.
    assert found.undelivered_low_points is not None
    assert [found.undelivered_low_points, found.undelivered_high_points] == pytest.approx(
        [100 * 0.5 / 4, 100 * 2 / 4]
    )
    assert found.equivalent is False


def test_report_speaks_of_logs_and_not_of_faults(reading: Reading) -> None:
    report = build_report(reading.cells)
    told = overview(report)
    assert told[0] == "2 imported logs, 15 scored simulations; success is the mean over a task's trials."
    assert not any("certified" in line or "Clean episodes" in line for line in told)
    titles = [notice.title for notice in notices(report)]
    assert "Simulations that are in no rate" in titles
    assert not {"Faults that never fired", "Fewer than 8 certified tasks"} & set(titles)
    (answer,) = answers(report)
    assert "(success)" in answer.lines[0].text


def test_a_replicate_is_another_variant_and_never_pooled(reading: Reading) -> None:
    high = reading.cells[0]
    twin = replace(high, facts=replace(high.facts, cell_id="f-0000000000000000"))
    contrasts = contrast_table(join([*reading.cells, twin]).tables)
    assert sorted({c.a for c in contrasts}) == [
        "BF16 [log 1 of 2]",
        "BF16 [log 2 of 2]",
    ]
    assert {c.b for c in contrasts} == {"INT4"}


def test_another_user_simulator_is_kept_apart(
    files: tuple[Path, Path], tmp_path: Path, reading: Reading
) -> None:
    other = read_foreign(write_tau2(tmp_path / "other.json", LOW, user="another"), ReadOptions(model="m"))
    low = replace(reading.cells[1], facts=cell_of(other, "FP8"))
    tables = join([reading.cells[0], low]).tables
    assert contrast_table(tables) == ()
    (apart,) = kept_apart(tables, Axis.quant)
    assert apart.a == "m BF16 retail (high.json)"
    assert "executor.user_model differs (gpt-4.1 / another)" in apart.reason
    # Asked for directly it is done, and said.
    (found,) = compare([Side("high", read_foreign(files[0])), Side("low", other)])
    assert "user simulator: gpt-4.1 / another" in found.differences
    assert found.contrast.points == pytest.approx(50)


def test_a_changed_configuration_is_an_error(reading: Reading) -> None:
    cell = reading.cells[0]
    for config in ("", "{}", '{"foreign":{"tasks":["0"],"excluded":[["9",0,"","",""]],"max_errors":null}}'):
        with pytest.raises(LogError, match="planned"):
            planned(replace(cell.facts, config=config))
    short = replace(cell.facts, config=cell.facts.config.replace('"tasks":["0","1",', '"tasks":["1",'))
    with pytest.raises(LogError, match="task 0 has episodes but is not among the planned tasks"):
        join([replace(cell, facts=short)])


# --- against each other ------------------------------------------------------------------------------


def test_direct_contrast_equals_the_report(files: tuple[Path, Path], reading: Reading) -> None:
    stored = next(c for c in contrast_table(join(reading.cells).tables) if c.policy == "tolerant")
    direct = compared(files).contrast
    for name in (
        "points", "low", "high", "n_tasks", "sign_p", "signflip_p", "undelivered_low_points",
        "undelivered_high_points", "equivalence_low_points", "detectable_points",
        "rate_a", "rate_b", "dropped_a", "dropped_b",
    ):  # fmt: skip
        assert getattr(direct, name) == getattr(stored, name), name


def test_amplification_names_counts_and_rates(files: tuple[Path, Path]) -> None:
    found = {one.event: one for one in compared(files).amplifications}
    entity = found["entity"]
    # Five simulations are scored by both. A: 2 of 8 calls of the agent; B: 4 of 11.
    assert (entity.reference_count, entity.reference_calls) == (2, 8)
    assert (entity.other_count, entity.other_calls) == (4, 11)
    assert entity.count_ratio.value == pytest.approx(4 / 2)
    assert entity.rate_ratio.value == pytest.approx((4 / 11) / (2 / 8))
    assert found["policy"].verdict == "new channel"
    # A's one invented name is in a simulation that B does not score.
    assert found["tool_name"].verdict == "neither"
    assert found["format"].verdict == "neither"


def test_more_trials_of_the_same_behaviour_amplify_nothing(tmp_path: Path) -> None:
    trial = Simulated(True, ("entity",))
    four = write_tau2(tmp_path / "four.json", ((trial,) * 4,) * 8)
    two = write_tau2(tmp_path / "two.json", ((trial,) * 2,) * 8)
    entity = {one.event: one for one in compared((four, two)).amplifications}["entity"]
    assert (entity.reference_count, entity.other_count) == (16, 16)
    assert entity.count_ratio.value == pytest.approx(1)


def test_novelty_counts_new_signatures(files: tuple[Path, Path]) -> None:
    everything, names = compared(files).novelty
    # Over the shared simulations: entity and arguments in A; entity, arguments and policy in B.
    assert (everything.reference_events, everything.other_events) == (3, 6)
    assert everything.novel_occurrences == 1
    assert everything.novel_share.value == pytest.approx(1 / 5)
    # Each of A's two signatures stands in one task alone.
    assert everything.expected_share == 1.0
    assert (names.channel, names.other_events) == ("tool_name", 0)


def test_budget_gap_counts_both_sides_or_the_agent_alone(files: tuple[Path, Path]) -> None:
    both, alone = compared(files).gaps
    assert (both.whose, alone.whose) == ("both sides", "agent alone")
    at = {point.budget: point for point in both.curve.points}
    agent = {point.budget: point for point in alone.curve.points}
    assert sorted(at) == list(range(11))
    # Task 1 of A succeeds once, with 2 failing calls of the agent and 1 of the user; shared tasks are 0 to 2.
    assert agent[2].first == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert at[2].first == pytest.approx((1 + 0 + 1) / 3)
    assert at[3].first == agent[2].first
    assert at[2].second == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert at[10].gap.value == pytest.approx(0.5)


@pytest.mark.parametrize("whose", [None, Requestor.agent])
def test_two_ways_to_the_budget_curve(whose: Requestor | None, tmp_path: Path) -> None:
    # The same number of scored trials everywhere: the mean over tasks is the share of simulations.
    rows = [
        tuple(Simulated((at + k) % 3 > 0, ("entity",) * (at % 4), k) for k in range(3)) for at in range(6)
    ]
    runs = [read_foreign(write_tau2(tmp_path / name, rows)) for name in ("a.json", "b.json")]
    (found,) = compare([Side(str(at), run) for at, run in enumerate(runs)])
    gap = found.gaps[whose is Requestor.agent]
    curve = {point.budget: point.success.share for point in budget_curve(runs[0], BudgetRule.allow, whose)}
    assert {point.budget: pytest.approx(point.first) for point in gap.curve.points} == curve
    assert len(set(curve.values())) > 2
    assert all(point.gap.value == 0 for point in gap.curve.points)


def test_contrast_on_the_terminal(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", *map(str, files), "--no-log", "--contrast"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "high.json (reference, A) against low.json (B)" in out
    assert "success per task, A − B: +50.0 points [0.0, +100.0] (95 %, tasks resampled, exact)" in out
    assert "planned tasks: 4 shared, 0 / 1 on one side only (not paired)" in out
    assert (
        "Count ratio: events, whatever the number of calls. Rate ratio: events per call of the agent." in out
    )
    assert "Amplification B / A, over the 5 simulations that both score (of 7 and 8)." in out
    assert "S(K), at most K failing calls (both sides)" in out
    assert "novelty, failing calls: 1 of 5 signatures of B (once per episode) are not among A's" in out


def test_a_log_without_scored_simulations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write_tau2(tmp_path / "empty.json", [(LOST, LOST)])
    other = write_tau2(tmp_path / "other.json", [(GOOD, GOOD)])
    assert main(["import", str(empty), "--no-log"]) == 0
    assert "0 of 2 simulations scored" in capsys.readouterr().out
    assert main(["import", str(empty), str(other), "--no-log", "--contrast"]) == 2
    assert "empty.json: holds no scored simulation" in capsys.readouterr().err


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.json"], "no such file"),
        (["damaged.json"], "line 1"),
        (["lacking.json"], "simulations[0]: the key 'termination_reason' is missing"),
        (["good.json", "damaged.json"], "damaged.json"),
        (["unknown.json"], "no results of tau2-bench"),
        (["good.json", "good.json"], "the same log is given twice"),
        (["good.json", "--quant", "MINE"], "no number of bits"),
        (["good.json", "--quant", "FP8", "--quant", "FP4"], "given 2 times for 1 files"),
        (["good.json", "--model", ""], "is no name"),
        (["good.json", "--model", "a\nb"], "is no name"),
        (["good.json", "--contrast"], "needs two logs of one suite"),
        (["good.json", "--release", "later"], "invalid choice"),
    ],
)
def test_errors_name_the_place_and_log_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = write_tau2(tmp_path / "good.json", [(GOOD,)]).read_text()
    (tmp_path / "damaged.json").write_text(whole[: len(whole) // 2])
    (tmp_path / "lacking.json").write_text(whole.replace('"termination_reason"', '"terminated"'))
    (tmp_path / "unknown.json").write_text('{"results": []}')
    try:
        code = main(["import", *words])
    except SystemExit as leaving:
        code = int(str(leaving.code))
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith("error: ")
    assert said in captured.err
    assert captured.out == ""
    assert not (tmp_path / "mlruns").exists()


def test_hostile_names_reach_neither_the_terminal_nor_the_store(
    tmp_path: Path, migrated_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(migrated_database, tmp_path / "mlflow.db")
    model = "m\x1b[31m[bold]\ud800" + "x" * 9000
    path = write_tau2(tmp_path / "log.json", [(Simulated(True, ("entity",)), BAD)], model=model)
    assert run(str(path), root=tmp_path) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "m\\x1b[31m[bold]" in out
    (cell,) = read_cells(opened(tmp_path)).cells
    assert cell.facts.model.startswith("m\x1b[31m[bold]\\ud800")
    assert len(cell.facts.model) == 200
