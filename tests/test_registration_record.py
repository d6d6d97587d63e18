"""The record as a document: canonical, strict, derivable; labels, differences, standing, rendering, code."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfr.analysis.levels import Axis
from qfr.analysis.results import Contrast
from qfr.config import CellConfig
from qfr.errors import RegistrationError
from qfr.facts import CellFacts
from qfr.front.models import compose_cell
from qfr.grid.design import design_of, frozen_design
from qfr.grid.grid import Grid, Point, build_grid
from qfr.identity import cell_id
from qfr.registration import checks as checking
from qfr.registration.differences import (
    Deviation,
    Difference,
    compared,
    deviation_text,
    flat,
    nearest,
    read_deviation,
)
from qfr.registration.findings import RanCell, Verdict
from qfr.registration.freeze import frozen_cells, frozen_files
from qfr.registration.label import label, relation, shape_of
from qfr.registration.markdown import markdown
from qfr.registration.markup import fenced, inline, span, table
from qfr.registration.planned_analysis import planned_contrasts
from qfr.registration.record import (
    ExistingRun,
    FrozenText,
    Label,
    Record,
    Relation,
    digest_of,
    document,
    id_of,
)
from qfr.registration.record_reader import is_id, read_record
from qfr.registration.register import make_record
from qfr.registration.source_code import code_files, code_sha256, files_below, freeze, git_state
from qfr.registration.status import Standing, missing_cells, stand
from tests.builders import make_facts
from tests.registering import git

SMALL = ("suite=orders6", "mode=register", "registration.title=Small")


def make_grid(*fixed: str, **axes: str) -> Grid:
    """The product of comma-separated choices."""
    product = itertools.product(*([f"{key}={value}" for value in axes[key].split(",")] for key in axes))
    return built([compose_cell(*fixed, *overrides) for overrides in product])


def built(cells: list[CellConfig]) -> Grid:
    """A grid of these cells."""
    points = [Point((), {}, (), functools.partial(copy.deepcopy, cell)) for cell in cells]
    return build_grid(points, lambda _: (), files_needed=False)


@pytest.fixture(scope="module")
def grid() -> Grid:
    return make_grid(*SMALL, model="scripted", quant="q8_0,q4_k_m", prompt="P0", fault="et")


@pytest.fixture(scope="module")
def record(grid: Grid) -> Record:
    git_free = git_state(Path("/"))
    code = freeze(git_free, {"qfr/a.py": "0" * 64, "qfr/b.py": "1" * 64})
    hypotheses = FrozenText("h.md", hashlib.sha256(b"H1\n").hexdigest(), "H1\n")
    return make_record(grid, frozen_cells(grid), code, hypotheses, ())


# --- the document -----------------------------------------------------------------------------------------


def test_the_document_reads_back_and_its_digest_is_its_sha256(record: Record) -> None:
    data = document(record)
    again = read_record(data, where="x")
    assert document(again) == data
    assert again == record
    assert digest_of(data) == hashlib.sha256(data).hexdigest()
    assert is_id(id_of(digest_of(data)))
    assert not is_id("r-12345")
    assert not is_id("r-12345g")
    assert data.endswith(b"}\n")
    assert data.isascii()


@given(st.data())
def test_any_changed_byte_is_found(record: Record, data: st.DataObject) -> None:
    text = document(record)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != text[at]))
    changed = text[:at] + bytes([other]) + text[at + 1 :]
    _, findings = checking.check_document(changed, id_of(digest_of(text)), "file")
    assert findings[0].verdict is Verdict.problem
    assert "changed" in findings[0].text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw | {"format": "x"}, "no registration of qfr"),
        (lambda raw: raw | {"version": 2}, "version 2, but this qfr reads version 1"),
        (lambda raw: raw | {"titel": "x"}, "does not know 'titel'"),
        (lambda raw: {key: value for key, value in raw.items() if key != "title"}, "lacks 'title'"),
        (lambda raw: raw | {"title": 1}, "title is not of type str"),
        (
            lambda raw: raw | {"cells": [raw["cells"][0] | {"trial": "0"}]},
            r"cells\[0\].trial is not of type int",
        ),
        (lambda raw: raw | {"label": "confirmed"}, "'confirmed' is not a valid Label"),
        (lambda raw: [raw], "no registration of qfr"),
    ],
)
def test_what_is_no_record_is_refused(
    record: Record, change: Callable[[dict[str, object]], object], told: str
) -> None:
    raw = change(json.loads(document(record)))
    with pytest.raises(RegistrationError, match=told):
        read_record(json.dumps(raw).encode(), where="x")


def test_a_reformatted_record_is_refused(record: Record) -> None:
    pretty = json.dumps(json.loads(document(record)), indent=1).encode()
    with pytest.raises(RegistrationError, match="not in canonical form"):
        read_record(pretty, where="x")


def test_the_contents_are_derived_again(record: Record) -> None:
    assert [one.verdict for one in checking.check_contents(record)] == [Verdict.good]
    forged = dataclasses.replace(
        record,
        prompts=(dataclasses.replace(record.prompts[0], text="Be nice."),),
        suites=(dataclasses.replace(record.suites[0], content="{}"),),
        cells=(dataclasses.replace(record.cells[0], design_id="d-0"), *record.cells[1:]),
        hypotheses=FrozenText("h.md", "0" * 64, "H2\n"),
        code=dataclasses.replace(record.code, sha256="0" * 64),
    )
    told = " ".join(one.text for one in checking.check_contents(forged))
    for part in ("prompt P0.md", "suite orders6", "does not give d-0", "hypotheses h.md", "code's digest"):
        assert part in told


# --- differences ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override",
    [
        "",
        "trial=1",
        "suite.seed=1",
        "fault.code=x",
        "engine.n_threads=1",
        "executor.max_tokens=9",
        "prompt=P1",
        "fault=it",
    ],
)
def test_differences_are_empty_exactly_when_the_design_is_frozen(record: Record, override: str) -> None:
    cell = compose_cell("model=scripted", "quant=q8_0", *SMALL, *([override] if override else []))
    found = nearest(frozen_design(cell, design_of(cell)), record.cells)
    frozen = design_of(cell).design_id in {one.design_id for one in record.cells}
    assert frozen == (not found.differences)
    assert frozen == (override == "")
    if override.partition("=")[0] in ("trial", "suite.seed", "fault.code", "engine.n_threads"):
        key, _, value = override.partition("=")
        assert any(one.key == key and one.found == value for one in found.differences)


def test_a_deviation_survives_its_text() -> None:
    told = Deviation("too long; 12 → 11", (Difference("suite.step_budget", "11", "12"),))
    assert read_deviation(deviation_text(told)) == told
    assert read_deviation("") is None
    assert read_deviation("by hand") == Deviation("by hand", ())


def test_flat_names_keys_as_the_command_line_does(record: Record) -> None:
    keys = flat(record.cells[1].design)
    assert {"engine.n_threads", "suite.families.base", "quant.preset", "model.name", "fault.message"} <= set(
        keys
    )
    assert compared({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == (
        Difference("a", "1", "nothing"),
        Difference("b", "2", "3"),
        Difference("c", "nothing", "4"),
    )


# --- planned contrasts and labels -------------------------------------------------------------------------


def test_the_papers_line_plans_twenty_contrasts() -> None:
    """Hu 2026, table 1: three pairs of Llama presets and one of Qwen's, under five prompts."""
    prompts = [compose_cell(f"prompt=P{i}").prompt for i in range(5)]
    pairs = [
        ("llama", "q8_0"),
        ("llama", "q4_k_m"),
        ("llama", "q3_k_m"),
        ("qwen", "q8_0"),
        ("qwen", "q4_k_m"),
    ]
    bases = [compose_cell("fault=et", f"model={model}", f"quant={quant}") for model, quant in pairs]
    cells = frozen_cells(
        built([dataclasses.replace(base, prompt=prompt) for base in bases for prompt in prompts])
    )
    assert len(cells) == 50
    planned = planned_contrasts(cells, Axis.quant)
    assert len(planned) == 20
    assert {(one.a, one.b) for one in planned} == {
        ("Q8_0", "Q4_K_M"),
        ("Q8_0", "Q3_K_M"),
        ("Q4_K_M", "Q3_K_M"),
    }
    assert all(one.quant is None and one.fault == "et" for one in planned)
    # Ten pairs of prompts at each of five (model, preset).
    assert len(planned_contrasts(cells, Axis.prompt)) == 50


def test_a_model_file_that_is_not_here_is_frozen_by_name_and_pin(tmp_path: Path) -> None:
    grid = make_grid(f"tracking.root={tmp_path}", "fault=et", model="llama", quant="q8_0,q2_k", prompt="P0")
    pinned, open_ = frozen_files(grid)
    assert (pinned.present, pinned.pinned, len(pinned.sha256 or "")) == (False, True, 64)
    assert (open_.present, open_.pinned, open_.sha256) == (False, False, None)
    assert pinned.repo_id is not None
    assert pinned.filename.endswith("Q8_0.gguf")


def existing(kind: Relation, name: str = "m q8_0 P0 et", *, complete: bool = True) -> ExistingRun:
    return ExistingRun(
        relation=kind,
        name=name,
        design_id="d-1",
        run_id="1",
        experiment="qfr",
        started="2026-01-01T00:00:00Z",
        status="FINISHED",
        complete=complete,
        deleted=False,
        registration="",
        log_sha256="",
    )


def test_labels() -> None:
    assert label([])[0] is Label.replication
    named, reasons = label([existing(Relation.grid, complete=False)])
    assert named is Label.replication
    assert "1 unfinished run" in reasons[0]
    assert label([existing(Relation.sibling)])[0] is Label.extension
    named, reasons = label([existing(Relation.grid)] * 2 + [existing(Relation.sibling, "o q4_1 P0 none")])
    assert named is Label.extension
    assert "2 finished runs (2 with a fault) of this grid" in reasons[0]
    assert "1 finished run (0 with a fault) of a sibling" in reasons[1]


def test_a_rehearsal_is_no_sibling_of_a_real_model(record: Record) -> None:
    shape = shape_of(record.cells)
    setting = (record.suites[0].sha256, record.prompts[0].sha256, "et")
    assert shape.scripted
    assert (
        relation(shape, design_id=record.cells[1].design_id, setting=("", "", ""), engine="") is Relation.grid
    )
    assert relation(shape, design_id="d-x", setting=setting, engine="scripted") is Relation.sibling
    assert relation(shape, design_id="d-x", setting=setting, engine="llama_cpp") is None
    assert relation(shape, design_id="d-x", setting=(*setting[:2], "it"), engine="scripted") is None


# --- standing ---------------------------------------------------------------------------------------------


def ran(record: Record, name: str = "r-1", **changes: object) -> list[CellFacts]:
    """Facts of a run of every frozen cell under the registration."""
    found = []
    for cell in record.cells:
        facts = make_facts(cell.model, cell.quant, cell.prompt, cell.fault)
        facts = dataclasses.replace(facts, suite=cell.suite, design_id=cell.design_id, registration=name)
        found.append(dataclasses.replace(facts, **changes))
    return found


def contrast(**changes: object) -> Contrast:
    """A contrast of the small grid; what does not say which it is stays empty."""
    values: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(Contrast))
    values |= {
        "model": "scripted", "prompt": "P0", "fault": "et", "executor": "tolerant", "suite": "orders6",
        "gate": "certified", "trial": 0, "policy": "tolerant", "vary": "quant", "a": "Q8_0", "b": "Q4_K_M",
        "target": "matched", "method": "exact",
    }  # fmt: skip
    changes = {"level" if name == "quant" else name: value for name, value in changes.items()}
    return Contrast(**(values | changes))


def stood(record: Record, cells: list[CellFacts], **changes: object) -> tuple[Standing, str]:
    asked = contrast(**changes)
    entering = [
        one.cell_id for one in cells if one.quant in (asked.a, asked.b) and one.prompt == asked.prompt
    ]
    (one,) = stand(record, "r-1", [dataclasses.replace(asked, cells=tuple(entering))], cells)
    return one.standing, " ".join(one.reasons)


def test_a_contrast_of_frozen_cells_is_planned(record: Record) -> None:
    cells = ran(record)
    assert stood(record, cells) == (Standing.planned, "")
    assert stood(record, cells, policy="strict", target="full") == (Standing.planned, "")
    # A file beside it in the store gives the level a longer name; what counts is which cells entered.
    (pair,) = stand(
        record,
        "r-1",
        [
            contrast(
                a="Q8_0 [file.imatrix=unset]",
                cells=tuple(one.cell_id for one in cells if one.prompt == "P0"),
            )
        ],
        cells,
    )
    assert pair.standing is Standing.planned


def test_contrasts_outside_the_plan_are_exploratory(record: Record) -> None:
    cells = ran(record)
    assert stood(record, cells, target="ungated")[0] is Standing.exploratory
    assert stood(record, cells, vary="prompt", quant="Q8_0", prompt=None)[0] is Standing.exploratory
    standing, reason = stood(record, ran(record, name=""))
    assert standing is Standing.exploratory
    assert "not run under r-1: scripted q8_0 P0 " in reason
    # One side, or its clean pass, is enough.
    mixed = [
        dataclasses.replace(facts, registration="") if i == 0 else facts for i, facts in enumerate(cells)
    ]
    assert stood(record, mixed)[0] is Standing.exploratory
    assert stood(record, [])[0] is Standing.exploratory


def test_deviations_are_named(record: Record) -> None:
    text = deviation_text(Deviation("a typo", (Difference("prompt_sha256", "a", "b"),)))
    standing, reason = stood(record, ran(record, deviation=text))
    assert standing is Standing.deviated
    # Cells that deviate alike are named together.
    assert reason.startswith("scripted q8_0 P0 ")
    assert reason.endswith(": a typo (prompt_sha256: found a, frozen b)")
    assert stood(record, ran(record), method="montecarlo", resamples=20_000, seed=1) == (
        Standing.deviated,
        "interval by montecarlo, planned was exact",
    )
    standing, reason = stood(record, ran(record, design_id="d-other"))
    assert standing is Standing.deviated
    assert "no frozen cell" in reason


def test_missing_cells_are_named(record: Record) -> None:
    cells = ran(record)
    assert missing_cells(record, "r-1", cells) == ()
    assert [one.name for one in missing_cells(record, "r-1", cells[1:])] == ["scripted q8_0 P0 none"]
    assert len(missing_cells(record, "r-1", ran(record, name=""))) == 4


# --- checks of runs ---------------------------------------------------------------------------------------


def run_of(record: Record, index: int, **changes: object) -> RanCell:
    facts = ran(record)[index]
    own = cell_id(
        facts.design_id, model_sha256=facts.model_sha256, library_sha256=facts.library_sha256,
        device=facts.device, offloaded_layers=facts.offloaded_layers, n_ctx=facts.n_ctx,
    )  # fmt: skip
    facts = dataclasses.replace(facts, cell_id=own, code_sha256=record.code.sha256)
    values: dict[str, Any] = {
        "run_id": "abc",
        "facts": facts,
        "complete": True,
        "status": "FINISHED",
        "started": 2**42,
        "first_ended": None,
        "log_sha256": "1",
        "clean_log_sha256": "1",
        "prompt": record.prompts[0].text.encode(),
        "suite": record.suites[0].content.encode(),
        "played": (),
        "certified": {"tolerant": ("a",), "strict": ()},
        "successes": {},
        "findings": (),
    }
    return RanCell(**(values | changes))


def test_checks_of_a_run(record: Record) -> None:
    cell = record.cells[1]
    assert checking.check_run(record, cell, run_of(record, 1)) == ()
    for change, told in (
        ({"started": 0}, "was started before the registration"),
        ({"first_ended": 1e9}, "holds episodes that were played before the registration"),
        ({"prompt": b"other"}, "prompt.md is not the frozen one"),
        ({"suite": b"other"}, "suite.json is not the frozen one"),
    ):
        (found,) = checking.check_run(record, cell, run_of(record, 1, **change))
        assert found.verdict is Verdict.problem
        assert told in found.text
    foreign = dataclasses.replace(run_of(record, 1).facts, n_ctx=1)
    (found,) = checking.check_run(record, cell, run_of(record, 1, facts=foreign))
    assert "what it says of itself gives c-" in found.text
    assert checking.check_clean(cell, run_of(record, 1), run_of(record, 0)) == ()
    assert checking.check_clean(cell, run_of(record, 1, clean_log_sha256="2"), run_of(record, 0))


def test_every_episode_of_the_design_once(record: Record) -> None:
    clean, fault = record.cells[0], record.cells[1]
    sites = {"a": 2, "b": 3}
    screen = run_of(record, 0)

    def told(cell: int, *played: tuple[str, int]) -> str:
        frozen = (clean, fault)[cell]
        found = checking.check_episodes(frozen, run_of(record, cell, played=played), screen, sites)
        return " ".join(one.text for one in found)

    assert told(0, ("a", -1), ("b", -1)) == ""
    assert told(0, ("a", -1)) == "its log lacks 1 episodes: b"
    # b was not certified.
    assert told(1, ("a", 0), ("a", 1)) == ""
    assert told(1, ("a", 0), ("a", 1), ("b", 0)) == "its log should not hold 1 episodes: b site 0"
    assert told(1, ("a", 0), ("a", 1), ("a", 1)) == "its log holds 1 episodes twice"
    ungated = checking.check_episodes(
        dataclasses.replace(fault, gate="none"), run_of(record, 1, played=(("a", 0), ("a", 1))), screen, sites
    )
    assert "lacks 3 episodes" in ungated[0].text


# --- the page ---------------------------------------------------------------------------------------------

HOSTILE = "``` \n# h\n|a|b| <script>alert(1)</script> `x` _y_ ![i](j)"


def test_foreign_text_cannot_break_the_page(record: Record) -> None:
    text = FrozenText("a`b|c.md", hashlib.sha256(HOSTILE.encode()).hexdigest(), HOSTILE)
    page = markdown(dataclasses.replace(record, title=HOSTILE, hypotheses=text))
    lines = page.splitlines()
    assert lines[0].startswith("# \\`\\`\\` \\# h \\|a\\|b\\| \\<script\\>")
    fence = "````text"
    start = lines.index(fence)
    assert "\n".join(lines[start + 1 : lines.index("````", start)]) == HOSTILE


@given(st.text())
def test_a_fenced_text_is_whole(text: str) -> None:
    opening, *inside, closing = fenced(text)
    assert "".join(inside) == text.removesuffix("\n")
    assert closing not in text
    assert opening == closing + "text"


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_a_row_has_as_many_cells_as_the_head(values: list[str]) -> None:
    for line in table(("x", "y"), [[values[0], f"`{span(values[1])}`"]]):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3
        assert "\n" not in line
    assert "\n" not in inline(values[0])


def test_the_page_follows_from_the_record_alone(record: Record) -> None:
    page = markdown(record)
    assert markdown(read_record(document(record), where="x")) == page
    assert id_of(digest_of(document(record))) in page
    assert "| Q8_0 | Q4_K_M | scripted | P0 | et | tolerant | orders6 |" in page


# --- the code ---------------------------------------------------------------------------------------------


def test_the_code_is_digested_file_by_file(tmp_path: Path) -> None:
    files = code_files()
    root = Path(__file__).resolve().parent.parent
    assert files["qfr/scoring.py"] == hashlib.sha256((root / "qfr" / "scoring.py").read_bytes()).hexdigest()
    assert "hydra_plugins/qfr_sweeper.py" in files
    assert re.fullmatch("[0-9a-f]{64}", code_sha256())
    (tmp_path / "qfr").mkdir()
    (tmp_path / "qfr" / "a.py").write_text("x = 1\n")
    before = files_below(tmp_path)
    (tmp_path / "qfr" / "a.py").write_text("x = 2\n")
    after = files_below(tmp_path)
    assert [one.key for one in compared(after, before)] == ["qfr/a.py"]


def test_git_says_what_is_not_committed(tmp_path: Path) -> None:
    assert git_state(tmp_path).commit == ""
    git(tmp_path, "init", "--quiet")
    # A repository without a commit.
    assert git_state(tmp_path).commit == ""
    (tmp_path / "qfr").mkdir()
    (tmp_path / "qfr" / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    state = git_state(tmp_path)
    assert (len(state.commit), state.changed, state.diff) == (40, (), "")
    # A registration or a plan beside the code is no change of the code.
    (tmp_path / "plan.md").write_text("H1\n")
    assert git_state(tmp_path).changed == ()
    (tmp_path / "qfr" / "a.py").write_text("x = 2\n")
    (tmp_path / "qfr" / "nëw file.py").write_text("y = 1\n")
    dirty = git_state(tmp_path)
    assert dirty.changed == ("qfr/a.py", "qfr/nëw file.py")
    assert "+x = 2" in dirty.diff
    assert "+y = 1" in dirty.diff
    assert freeze(dirty, {}).dirty
