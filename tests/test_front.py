"""The front door as a user meets it: messages, plans, and what a sweep launches."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from qfr import places
from qfr.config import CellConfig
from qfr.errors import ModelFileError
from qfr.front.main import main, unsupported
from qfr.front.models import model_names
from qfr.records import FaultKind

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder: the package's checkout supplies conf/ and prompts/. Hydra sets up logging for
    the process; give it back."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


@dataclass
class Stub:
    """Stands for the job and the closing, which have tests of their own."""

    jobs: list[CellConfig] = field(default_factory=list)
    closed: list[tuple[str, Sequence[CellConfig], Sequence[object]]] = field(default_factory=list)
    exit_code: int = 0
    fails: Exception | None = None
    # Raised by the first job.

    def run_job(self, cell: CellConfig) -> str:
        self.jobs.append(cell)
        if self.fails is not None and len(self.jobs) == 1:
            raise self.fails
        return f"outcome {len(self.jobs)}"

    def close_sweep(
        self, sweep: str, cells: Sequence[CellConfig], outcomes: Sequence[object], *, broken: bool
    ) -> int:
        self.closed.append((sweep, cells, outcomes))
        return self.exit_code


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A stub in the place of job and closing; the store is real."""
    found = Stub()
    job, closer = ModuleType("qfr.play.job"), ModuleType("qfr.closing.summary")
    monkeypatch.setattr(job, "run_job", found.run_job, raising=False)
    monkeypatch.setattr(closer, "close_sweep", found.close_sweep, raising=False)
    monkeypatch.setattr(closer, "planned", lambda _: [], raising=False)
    monkeypatch.setitem(sys.modules, "qfr.play.job", job)
    monkeypatch.setitem(sys.modules, "qfr.closing.summary", closer)
    return found


@pytest.fixture
def stub(rooms: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """As `rooms`, without a store: creating a database takes seconds."""
    monkeypatch.setattr("qfr.front.sweep.register_sweep", lambda *_: (None, "", None))
    monkeypatch.setattr("qfr.front.sweep.left_running", lambda *_: [])
    monkeypatch.setattr("qfr.tracking.writing.claims.Heartbeat", lambda *_: nullcontext())
    return rooms


GRID = ["model=scripted", "suite=orders6", "quant=q8_0,q4_k_m", "prompt=P0,P4", "fault=ep,none,et"]
SMALL = ["model=scripted", "suite=orders6", "prompt=P0,P4"]


def test_a_sweep_launches_one_job_per_clean_pass(stub: Stub, tmp_path: Path) -> None:
    stub.exit_code = 1
    assert main(["-m", *GRID]) == 1
    assert [(cell.quant.preset, cell.prompt.name) for cell in stub.jobs] == [
        ("Q8_0", "P0"),
        ("Q8_0", "P4"),
        ("Q4_K_M", "P0"),
        ("Q4_K_M", "P4"),
    ]
    assert {tuple(cell.walk) for cell in stub.jobs} == {(FaultKind.et, FaultKind.ep)}
    ((sweep, cells, outcomes),) = stub.closed
    assert {cell.sweep for cell in [*stub.jobs, *cells]} == {sweep}
    assert outcomes == [f"outcome {number}" for number in range(1, 5)]
    assert [cell.fault.kind for cell in cells[:3]] == [FaultKind.ep, FaultKind.none, FaultKind.et]
    assert len(cells) == 12
    # One folder per sweep; the working folder stays.
    assert sorted(
        path.name for path in (tmp_path / "mlruns" / "multirun" / sweep).iterdir() if path.is_dir()
    ) == list("0123")
    assert Path.cwd() == tmp_path


# MLflow's own SQLAlchemy models.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_the_store_and_the_sweep_exist_before_the_first_job(rooms: Stub, tmp_path: Path) -> None:
    assert main(["experiment=smoke", "quant=q8_0", "prompt=P0"]) == 0
    with closing(sqlite3.connect(tmp_path / "mlruns" / "mlflow.db")) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM runs")]
    assert names == [f"smoke {rooms.closed[0][0]}"]


def test_sweeps_of_one_second_have_folders_of_their_own(stub: Stub, tmp_path: Path) -> None:
    for _ in range(2):
        assert main(["experiment=smoke", "quant=q8_0", "prompt=P0", "fault=none"]) == 0
    assert stub.jobs[0].walk == []
    assert len(list((tmp_path / "mlruns" / "multirun").iterdir())) == 2


def test_one_cell_needs_no_m(stub: Stub) -> None:
    assert main(["model=scripted", "quant=q8_0", "suite=orders6"]) == 0
    assert [(cell.prompt.name, cell.walk) for cell in stub.jobs] == [("P0", [FaultKind.et])]


def test_a_user_error_in_a_job_does_not_end_the_grid(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.fails = ModelFileError("truncated", where="x.gguf")
    assert main(["-m", *SMALL]) == 2
    assert len(stub.jobs) == 2
    assert [len(outcomes) for _, _, outcomes in stub.closed] == [1]
    assert "error: x.gguf: truncated" in capsys.readouterr().err


def test_a_bug_in_a_job_is_not_hidden(stub: Stub) -> None:
    stub.fails = ZeroDivisionError("bug")
    with pytest.raises(ZeroDivisionError):
        main(["-m", *SMALL])
    assert [len(outcomes) for _, _, outcomes in stub.closed] == [1]


def test_the_papers_line_plans_exactly_twenty_cells(tmp_path: Path) -> None:
    line = "-m model=llama,qwen quant=q8_0,q4_k_m prompt=P0,P1,P2,P3,P4 mode=plan"
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *line.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Plan: 20 cells")
    assert sum(line.count("│ d-") for line in done.stdout.splitlines()) == 20
    assert "20 cells in 20 walks, at most 1,400 episodes (400 clean, 1,000 with a fault)" in done.stdout
    assert "9da71c45c90a" in done.stdout
    assert "Smallest difference that 20 tasks detect: 26 points" in done.stdout
    # Nothing ran, nothing was created.
    assert list(tmp_path.iterdir()) == []


def test_users_see_one_message_and_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "model=lama"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: model=lama: there is no such choice (did you mean 'llama'?)\n"
        f"  → choices: {', '.join(model_names())}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("modell=llama", ("no key 'modell' (did you mean 'model'?)", "keys here: mode, model")),
        ("quant.prest=Q8_0", ("no key 'quant.prest' (did you mean 'quant.preset'?)",)),
        ("+typo=1", ("no key 'typo'",)),
        ("++quant.presett=1", ("no key 'quant.presett' (did you mean 'quant.preset'?)",)),
        ("quant=q4_1,q9", ("quant=q9: there is no such choice", "choices: awq, bf16")),
        ("experiment=demoo", ("experiment=demoo", "did you mean 'demo'?")),
        ("mode=pla", ("mode='pla' is not possible (did you mean 'plan'?)", "one of run, plan, register")),
        ("suite.seed=abc", ("suite.seed='abc'", "an integer")),
        ("engine.flash_attn=3", ("engine.flash_attn=3", "true or false")),
        ("trial=true", ("trial=True", "an integer")),
        ("suite.step_budget=0", ("suite.step_budget=0 is too small", "at least 1")),
        ("suite.grid=cent", ("'cent' is no grid (did you mean 'cents'?)",)),
        ("engine.skill={Q8_0:2} model=scripted", ("engine.skill",)),
        ("model=local", ("model=local names no GGUF file", "model.path=FILE")),
        ("model=scripted engine=llama_cpp", ("model=scripted names no GGUF file", "engine=scripted")),
        ("model=scripted quant=q5_0", ("no skill for quant.preset=Q5_0",)),
        ("model=llama quant=q5_0", ("publishes no Q5_0", "published: F16, Q8_0")),
        ("model=local model.path=nowhere/x.gguf", ("'nowhere/x.gguf' does not exist", "no folder 'nowhere'")),
        ("quant.imatrix=none.dat", ("quant.imatrix='none.dat' is not a file",)),
        ("prompt.file=P9.md", ("no prompt file 'P9.md'", "prompts")),
        ("prompt.sha256=" + "0" * 64, ("the prompt's SHA-256 is", "a changed prompt is a new prompt")),
        ("prompt.file=${x.y}", ("prompt.file: Interpolation key 'x.y' not found",)),
        ("exclude=3", ("exclude=3 is not possible", "list of maps")),
        ("exclude=[{modle:llama}]", ("exclude names modle=llama", "did you mean 'model'")),
        ("--config-dir nowhere", ("there is no folder", "--config-dir")),
        ("-m --cfg job", ("only one of",)),
        ("--cfg job quant=q4_1,q8_0", ("--cfg shows one cell",)),
        ("mode=register", ("registration.title is missing",)),
        ("mode=register registration.title=x registration.use=r-123456", ("makes a new registration",)),
        ("registration.title=x", ("this command would run it", "registration.use=r-")),
        ("registration.deviation=x", ("why a run is not what was frozen",)),
        (
            "registration.use=r-123456 model=scripted quant=q8_0",
            ("no registration r-123456", "mode=register"),
        ),
        ("hydra/launcher=basik", ("hydra/launcher=basik", "did you mean 'basic'")),
    ],
)
def test_messages(arguments: str, parts: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split(" ")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert "HYDRA_FULL_ERROR" not in err
    for part in parts:
        assert part in err


def test_a_damaged_yaml_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine" / "prompt").mkdir(parents=True)
    (tmp_path / "mine" / "prompt" / "broken.yaml").write_text("name: x\nfile: [\n")
    assert main(["--config-dir", "mine", "prompt=broken"]) == 2
    err = capsys.readouterr().err
    assert "broken.yaml, line" in err
    assert "Traceback" not in err


def test_a_users_folder_adds_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "gé ü=1,2#x"
    folder.mkdir()
    for group, name, text in (
        ("prompt", "mine", "name: mine\nfile: 'gé ü=1,2#x/p.md'\n"),
        ("suite", "wide", "name: wide\nfamilies: {base: 150, shipping: 50}\n"),
        ("model", "mine", "name: mine\npath: 'gé ü=1,2#x/m.gguf'\n"),
        ("quant", "odd", "preset: IQ3_S\n"),
    ):
        (tmp_path / "mine" / group).mkdir(parents=True)
        (tmp_path / "mine" / group / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "p.md").write_bytes(b'Say ${x} {{y}} %s {"a": 1}\n')
    grid = ["prompt=mine,P0", "suite=wide", "model=mine", "quant=odd"]
    assert main(["--config-dir", "mine", *grid, "mode=plan"]) == 0
    out = capsys.readouterr().out
    assert "2 cells in 2 walks, at most 1,300 episodes (400 clean, 900 with a fault)" in out
    assert "IQ3_S".lower() in out
    assert "missing" in out


def test_a_prompt_reaches_the_job_byte_for_byte(stub: Stub, tmp_path: Path) -> None:
    from qfr.grid.design import design_of

    raw = b'Say ${x} {{y}} %s \\n {"a": 1}\r\n'
    (tmp_path / "odd prompt.md").write_bytes(raw)
    line = ["model=scripted", "quant=q8_0", "suite=orders6", "prompt.name=odd"]
    assert main([*line, 'prompt.file="odd prompt.md"', "prompt.sha256=null"]) == 0
    assert design_of(stub.jobs[0]).prompt.text.encode() == raw


def test_command_line_replaces_an_experiments_axes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment=hu2026_ladder", "quant=q8_0", "fault=none,ep", "mode=plan"]) == 0
    assert "2 cells in 1 walk, at most 70 episodes (20 clean, 50 with a fault)" in capsys.readouterr().out


def test_a_plan_names_what_is_excluded_and_folded(capsys: pytest.CaptureFixture[str]) -> None:
    line = "model=llama,qwen quant=q8_0,q3_k_m,q8_0 exclude=[{model:qwen,quant:q3_k_m}] mode=plan"
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert "3 cells in 3 walks" in out
    assert out.count("excluded: model=qwen quant=q3_k_m") == 1
    assert "folded, the same cell as one above: model=qwen quant=q8_0" in out


def test_a_store_that_does_not_answer_is_told_in_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    # Port 9 of this machine: nobody listens there.
    line = ["model=scripted", "suite=orders6", "tracking.uri=http://127.0.0.1:9", "mode=plan"]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "Store: cannot be read: " in out
    assert "nobody answers" in out


def test_full_errors_are_raised_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ModelFileError):
        main(["model=local", "model.path=nowhere.gguf"])


@pytest.mark.parametrize(
    ("platform", "version", "told"),
    [
        ("win32", (3, 12), "Windows"),
        ("linux", (3, 10), "Python 3.10 is not supported"),
        ("linux", (3, 14), "Python 3.14 is not supported"),
        ("linux", (3, 11), None),
        ("darwin", (3, 13), None),
    ],
)
def test_platforms(platform: str, version: tuple[int, int], told: str | None) -> None:
    found = unsupported(platform, version)
    assert found is None if told is None else found is not None and told in found


def test_windows_is_refused_before_anything_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["mode=plan"]) == 2
    assert "WSL" in capsys.readouterr().err


def test_a_checkout_that_one_stands_in_wins(tmp_path: Path) -> None:
    assert places.data_folder() == ROOT
    (tmp_path / "conf").mkdir()
    (tmp_path / "prompts").mkdir()
    (tmp_path / "conf" / "config.yaml").touch()
    assert places.data_folder() == ROOT
    (tmp_path / "run.py").touch()
    assert places.data_folder() == tmp_path


def test_an_installed_package_carries_its_own_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "qfr").mkdir(parents=True)
    monkeypatch.setattr("qfr.__file__", str(tmp_path / "site" / "qfr" / "__init__.py"))
    assert places.data_folder() == tmp_path / "site" / "qfr" / "_data"


def test_the_front_door_loads_nothing_heavy() -> None:
    """Shell completion and `--cfg` run it at every keystroke."""
    code = (
        "import sys, qfr, qfr.front.main\n"
        "print([name for name in ('hydra', 'numpy', 'yaml') if name in sys.modules])\n"
        "import qfr.front.hydra_app, hydra_plugins.qfr_sweeper\n"
        "print([name for name in ('mlflow', 'llama_cpp', 'plotly', 'scipy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n[]\n"


def test_the_shell_completes_choices(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "-sc", "query=bash"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"COMP_LINE": "python run.py quant=q4_k", "COMP_POINT": "99"},
    )
    assert done.stdout.split() == ["quant=q4_k_m", "quant=q4_k_s"]


def test_a_prompts_text_may_lie_beside_its_yaml(stub: Stub, tmp_path: Path) -> None:
    folder = tmp_path / "own" / "prompt"
    folder.mkdir(parents=True)
    (folder / "P5.yaml").write_text("name: P5\nfile: P5.md\n")
    (folder / "P5.md").write_text("Use the tools.")
    line = ["model=scripted", "quant=q8_0", "suite=orders6"]
    assert main(["--config-dir", str(tmp_path / "own"), *line, "prompt=P5"]) == 0
    assert stub.jobs[0].prompt.file == str(folder / "P5.md")
    assert main([*line, "prompt=P0"]) == 0
    assert stub.jobs[1].prompt.file == "P0.md"


def test_a_plan_with_a_file_that_cannot_serve_ends_as_its_run_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    line = ["model=local", "model.path=page.gguf", "quant=q8_0"]
    for mode in ("plan", "run"):
        assert main([*line, f"mode={mode}"]) == 2
        said = capsys.readouterr()
        assert "page.gguf: is not a GGUF file but a web page" in said.err
        assert ("not usable" in said.out) == (mode == "plan")
