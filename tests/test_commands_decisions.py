"""The commands compare, pick and power on a real store: exit codes, files, what is printed, errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from qfr.cli import main
from qfr.facts import CellFacts
from qfr.places import conf_folder
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store
from qfr.tracking.writing.sweep import PlannedCell, open_sweep
from qfr.tracking.writing.sweep_runs import UsedRun, settle_runs
from qfr.tracking.writing.writer import RunHandle, start_cell
from tests.builders import build_cell_episodes, make_facts, make_suite
from tests.tracked import cell, log_cell

SIZE = 64
SHAPES = make_suite([2] * SIZE)
GOOD, LOSES_HALF = [2] * SIZE, [2] * (SIZE // 2) + [None] * (SIZE // 2)
SOME = [2] * (SIZE - 3) + [1] * 3
BYTES = {"F16": 16_000_000_000, "Q8_0": 8_500_000_000, "Q4_K_M": 4_900_000_000, "Q3_K_M": 4_000_000_000}


def same(facts: CellFacts) -> CellFacts:
    return facts


def log(
    store: Store,
    quant: str,
    successes: Sequence[int | None],
    *,
    model: str = "llama",
    prompt: str = "P0",
    change: Callable[[CellFacts], CellFacts] = same,
) -> RunHandle:
    """Log a clean run and its ET run; returns the latter."""
    built = build_cell_episodes(successes, SHAPES[: len(successes)])
    clean, fault = (
        change(dataclasses.replace(make_facts(model, quant, prompt, kind), model_bytes=BYTES[quant]))
        for kind in ("none", "et")
    )
    log_cell(store, cell(clean, built.clean, built.clean))
    return log_cell(store, cell(fault, built.faulted, built.clean))


def other_build(facts: CellFacts) -> CellFacts:
    """The same cell from another library."""
    ids = {name: f"{getattr(facts, name)}-b" for name in ("cell_id", "clean_id")}
    return dataclasses.replace(
        facts, library_sha256="f" * 64, cell_id=ids["cell_id"], clean_id=ids["clean_id"]
    )


def other_suite(facts: CellFacts) -> CellFacts:
    """The same cell on another suite."""
    return dataclasses.replace(
        facts,
        suite="small",
        suite_sha256="e" * 64,
        cell_id=f"{facts.cell_id}-s",
        clean_id=f"{facts.clean_id}-s",
    )


def reference_agent(facts: CellFacts) -> CellFacts:
    return dataclasses.replace(facts, reference_agent=True)


@pytest.fixture
def call(store: Store, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command on the test's store; returns exit code, stdout (on one line), stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "--root", str(store.root)])
        except SystemExit as left:
            code = int(left.code or 0)
        said = capsys.readouterr()
        return code, " ".join(said.out.split()), said.err

    return run


Call = Callable[..., tuple[int, str, str]]


def compare(call: Call, candidate: str, *more: str, baseline: str = "q8_0") -> tuple[int, str, str]:
    return call("compare", "--baseline", baseline, "--candidate", candidate, *more)


# ------------------------------------------------------------------ compare


def test_every_exit_code(store: Store, call: Call) -> None:
    for quant, successes in (("Q8_0", GOOD), ("F16", GOOD), ("Q4_K_M", SOME), ("Q3_K_M", LOSES_HALF)):
        log(store, quant, successes)
    code, said, _ = compare(call, "F16")
    assert (code, said.endswith("not worse (exit code 0)")) == (0, True)
    code, said, _ = compare(call, "q3_k_m")
    assert (code, "worse by more than 5 points" in said) == (1, True)
    code, said, _ = compare(call, "q4_k_m")
    assert (code, "to settle it:" in said) == (2, True)
    assert compare(call, "q4_k_m", "--margin", "10")[0] == 0
    code, said, _ = compare(call, "q2_k")
    assert (code, "the candidate has no finished cell like it" in said) == (3, True)
    code, _, error = compare(call, "q8_1")
    assert code == 4
    assert "did you mean 'q8_0'" in error.lower()
    assert "Traceback" not in error


def test_a_sequential_gate_asks_for_more_and_says_what_holds(store: Store, call: Call) -> None:
    for quant in ("Q8_0", "Q4_K_M"):
        log(store, quant, GOOD)
    log(store, "Q3_K_M", LOSES_HALF)
    gate = ("compare", "--baseline", "q8_0", "--sequential", "--candidate")
    # One look needs 59 tasks without a loss, any number of looks 86: there are 64.
    assert call("compare", "--baseline", "q8_0", "--candidate", "q4_k_m")[0] == 0
    code, out, _ = call(*gate, "q4_k_m")
    assert code == 2
    assert "however often you ask" in out
    assert call(*gate, "q4_k_m", "--margin", "8")[0] == 0
    assert call(*gate, "q3_k_m")[0] == 1
    assert call(*gate, "q3_k_m", "--target", "own")[0] == 4


def test_errors_of_the_user_are_never_taken_for_inconclusive(
    store: Store, call: Call, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log(store, "Q8_0", GOOD)
    log(store, "F16", GOOD)
    for words in (
        ("--margin", "0"),
        ("--margin", "five"),
        ("--no-such-option",),
        ("--model", "lama"),
        ("--target", "s_star"),
        ("--sweep", "s-none"),
        ("--junit", str(tmp_path / "no" / "file.xml")),
    ):
        code, _, error = compare(call, "f16", *words)
        assert (code, error.startswith("error: ")) == (4, True), words
    assert compare(call, "0123456789abcdef")[0] == 4
    assert compare(call, "s-20260101-000000-abcdef")[0] == 4
    with pytest.raises(SystemExit) as left:
        main(["compare", "--baseline", "q8_0"])
    assert left.value.code == 4
    assert main(["compare", "--baseline", "a", "--candidate", "b", "--root", str(tmp_path / "none")]) == 4
    with pytest.raises(SystemExit) as left:
        main(["compare", "--help"])
    assert left.value.code == 0
    assert "2 inconclusive" in " ".join(capsys.readouterr().out.split())
    # Other commands keep their own code.
    with pytest.raises(SystemExit) as left:
        main(["power", "--tasks", "none"])
    assert left.value.code == 2


def test_what_is_not_comparable_is_named(store: Store, call: Call) -> None:
    log(store, "Q8_0", GOOD)
    log(store, "Q4_K_M", GOOD, change=other_build)
    code, said, _ = compare(call, "q4_k_m")
    assert (code, "build.library_sha256 differs" in said) == (3, True)
    code, said, _ = compare(call, "q4_k_m", "--allow", "build")
    assert (code, "as allowed" in said) == (0, True)
    log(store, "Q3_K_M", GOOD[:40], change=other_suite)
    code, said, _ = compare(call, "q3_k_m")
    assert (code, "suite.name differs (orders20 / small)" in said) == (3, True)


def test_nothing_certified_and_unfinished_are_not_comparable(store: Store, call: Call) -> None:
    log(store, "Q8_0", [None] * SIZE)
    log(store, "Q4_K_M", GOOD)
    code, said, _ = compare(call, "q4_k_m")
    assert (code, "passed no task clean" in said) == (3, True)
    start_cell(store, make_facts("llama", "Q3_K_M", "P0", "et"), None)
    code, said, _ = compare(call, "q3_k_m", baseline="q4_k_m")
    assert (code, "llama q3_k_m P0 et: running: not finished" in said) == (3, True)


def test_runs_sweeps_and_several_prompts(store: Store, call: Call) -> None:
    first = log(store, "Q8_0", GOOD)
    second = log(store, "Q4_K_M", GOOD)
    log(store, "Q8_0", GOOD, prompt="P1")
    log(store, "Q4_K_M", LOSES_HALF, prompt="P1")
    assert compare(call, second.run_id, baseline=first.run_id)[0] == 0
    assert compare(call, second.run_id[:8], "--prompt", "P0")[0] == 0
    code, said, _ = compare(call, "q4_k_m")
    assert code == 1
    assert "llama q4_k_m P0 et: not worse" in said
    assert compare(call, "q4_k_m", "--prompt", "P0")[0] == 0
    code, said, _ = compare(call, second.run_id)
    assert (code, "llama q8_0 P1 et: the candidate has no finished cell like it" in said) == (3, True)
    design = make_facts("llama", "Q4_K_M", "P0", "et").design_id
    planned = [PlannedCell(design, "llama q4_k_m P0 et"), PlannedCell("d-0", "llama q2_k P0 et")]
    open_sweep(store, "s-1", name="one", tags={}, planned=planned[:1])
    open_sweep(store, "s-2", name="two", tags={}, planned=planned)
    used = [one for one in read_cells(store).cells if one.facts.design_id == design]
    for name in ("s-1", "s-2"):
        settle_runs(store, name, [UsedRun(design, one.facts.cell_id, one.run_id) for one in used])
    assert compare(call, "s-1", "--prompt", "P0")[0] == 0
    code, said, _ = compare(call, "s-2", "--prompt", "P0")
    assert (code, "llama q2_k P0 et: planned and never begun" in said) == (3, True)


def test_targets_and_policies(store: Store, call: Call) -> None:
    log(store, "Q8_0", GOOD)
    log(store, "Q3_K_M", LOSES_HALF)
    assert compare(call, "q3_k_m", "--target", "clean")[0] == 1
    code, said, _ = compare(call, "q3_k_m", "--target", "matched", "--margin", "10")
    assert (code, "leaves out tasks that failed" in said) == (0, True)
    assert compare(call, "q3_k_m", "--target", "own", "--margin", "15")[0] == 0
    assert "strict scoring" in compare(call, "q3_k_m", "--policy", "strict")[1]


def test_cells_without_faults_are_compared_by_their_clean_pass(store: Store, call: Call) -> None:
    for quant in ("Q8_0", "F16"):
        built = build_cell_episodes(GOOD, SHAPES)
        facts = dataclasses.replace(make_facts("llama", quant, "P0", "none"), model_bytes=BYTES[quant])
        log_cell(store, cell(facts, built.clean, built.clean))
    code, _, error = compare(call, "f16")
    assert (code, "--target clean" in error) == (4, True)
    assert compare(call, "f16", "--target", "clean")[0] == 0


def test_an_unrelated_question_is_asked_about_never_counted(store: Store, call: Call) -> None:
    for quant in ("Q8_0", "F16"):
        log(store, quant, GOOD)
    assert compare(call, "f16")[0] == 0
    log(store, "F16", GOOD, change=other_suite)
    code, _, error = compare(call, "f16")
    assert code == 4
    assert "differ in more than the question (suite.name: " in error
    assert "small" in error
    assert "--suite" in error
    assert "--sweep" in error
    assert compare(call, "f16", "--suite", "orders20")[0] == 0
    for quant in ("Q8_0", "F16"):
        log(store, quant, GOOD, change=other_build)
    code, _, error = compare(call, "f16", "--suite", "orders20")
    assert (code, "build.library_sha256" in error) == (4, True)


def test_files(store: Store, call: Call, tmp_path: Path) -> None:
    log(store, "Q8_0", GOOD)
    log(store, "Q3_K_M", LOSES_HALF)
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    assert compare(call, "q3_k_m", "--junit", str(junit), "--markdown", str(markdown))[0] == 1
    root = ElementTree.parse(junit).getroot()
    assert root.get("failures") == "1"
    assert root[0][0][0].get("type") == "worse"
    assert "| llama q3\\_k\\_m P0 et | llama q8\\_0 P0 et | 64 |" in markdown.read_text(encoding="utf-8")


def test_a_reference_agent_is_marked(store: Store, call: Call) -> None:
    for quant in ("Q8_0", "F16"):
        log(store, quant, GOOD, change=reference_agent)
    assert "no evidence about any other model" in compare(call, "f16")[1]
    assert "no evidence about any other model" in call("pick", "--max-gb", "9")[1]


# ------------------------------------------------------------------ pick


def test_pick_names_the_smallest_shown(store: Store, call: Call) -> None:
    for quant, successes in (("F16", GOOD), ("Q8_0", GOOD), ("Q4_K_M", GOOD), ("Q3_K_M", LOSES_HALF)):
        log(store, quant, successes)
    code, said, _ = call("pick", "--max-gb", "9", "--reference", "f16")
    assert code == 0
    assert "q4_k_m: 4.90 GB, memory not measured, 80.0 tokens/s. Against f16: 0.0 points" in said
    assert "not worse by more than 5 points" in said
    assert "The sequence stops at q3_k_m" in said
    # The largest that was run is the reference where none is named.
    assert "Against f16" in call("pick", "--max-gb", "6")[1]
    code, said, _ = call("pick", "--max-gb", "6", "--presets", "q3_k_m", "--reference", "Q8_0")
    assert (code, "No preset can be named yet" in said) == (1, True)
    code, said, _ = call("pick", "--max-gb", "9", "--presets", "q3_k_m", "--reference", "q8_0")
    assert (code, "q8_0: the reference itself fits (8.50 GB)" in said) == (0, True)


def test_pick_says_how_many_tasks_and_hours_are_missing(store: Store, call: Call) -> None:
    for quant in ("F16", "Q4_K_M"):
        log(store, quant, GOOD[:20])
    code, said, _ = call("pick", "--max-gb", "6")
    assert code == 1
    assert "20 tasks cannot show 'not worse by 5 points'" in said
    assert "171 tasks, less than a minute at the measured speed (f16 and it, one by one)" in said
    assert "experiment=pick" in said


def test_pick_asks_where_something_is_open(store: Store, call: Call) -> None:
    log(store, "Q8_0", GOOD)
    code, _, error = call("pick", "--max-gb", "6", "--reference", "f16")
    assert (code, "no finished cell of the reference 'f16'" in error) == (2, True)
    code, _, error = call("pick", "--max-gb", "6", "--presets", "q4")
    assert (code, "--presets" in error) == (2, True)
    code, _, error = call("pick", "--max-gb", "6", "--prompt", "P7")
    assert (code, "P7" in error) == (2, True)
    assert call("pick", "--max-gb", "0")[0] == 2
    assert call("pick")[0] == 2
    log(store, "Q8_0", GOOD, model="qwen")
    code, _, error = call("pick", "--max-gb", "6")
    assert (code, "several values of model: llama, qwen" in error) == (2, True)
    assert call("pick", "--max-gb", "9", "--model", "llama")[0] == 0
    log(store, "Q8_0", GOOD, change=other_build)
    code, _, error = call("pick", "--max-gb", "9", "--model", "llama")
    assert (code, "2 different cells of q8_0" in error) == (2, True)


def test_pick_asks_which_of_several_suites(store: Store, call: Call) -> None:
    for quant in ("F16", "Q4_K_M"):
        log(store, quant, GOOD)
        log(store, quant, GOOD[:20], change=other_suite)
    code, _, error = call("pick", "--max-gb", "6")
    assert (code, "several values of suite: orders20, small" in error) == (2, True)
    assert "orders20 (64 tasks)" in call("pick", "--max-gb", "6", "--suite", "orders20")[1]
    assert "small (20 tasks)" in call("pick", "--max-gb", "6", "--suite", "small")[1]


# ------------------------------------------------------------------ power


def test_power_of_an_assumed_and_of_an_observed_spread(store: Store, call: Call) -> None:
    code, said, _ = call("power", "--tasks", "20", "--tasks", "505")
    assert code == 0
    assert "Spread 40.0 points (assumed" in said
    assert "To detect a difference of 5 points: 505 tasks." in said
    assert "never fewer than 59" in said
    for quant, successes in (("Q8_0", GOOD), ("Q4_K_M", SOME), ("F16", GOOD)):
        log(store, quant, successes)
    code, said, _ = call("power", "--baseline", "q8_0", "--candidate", "q4_k_m")
    assert (code, "observed, llama q4_k_m P0 et − llama q8_0 P0 et" in said) == (0, True)
    assert "│ 64 │" in said
    code, said, _ = call("power", "--baseline", "q8_0", "--candidate", "f16")
    assert (code, "zero spread" in said) == (0, True)
    assert call("power", "--baseline", "q8_0")[0] == 2
    assert call("power", "--baseline", "q8_0", "--candidate", "q2_k")[0] == 2
    assert "Spread 25.0 points (as given)" in call("power", "--spread", "25")[1]
    for words in (("--spread", "-1"), ("--power", "100"), ("--difference", "0")):
        assert call("power", *words)[0] == 2


# ------------------------------------------------------------------ experiment=pick


def test_the_experiment_is_large_enough_for_five_points() -> None:
    from qfr.analysis.decisions.bound import tasks_to_show

    params = yaml.safe_load((conf_folder() / "experiment" / "pick.yaml").read_text())["hydra"]["sweeper"][
        "params"
    ]
    suite = yaml.safe_load((conf_folder() / "suite" / f"{params['suite']}.yaml").read_text())
    needed = tasks_to_show(0.05).n
    assert needed is not None
    assert sum(suite["families"].values()) >= needed
