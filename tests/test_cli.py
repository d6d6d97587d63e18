"""The back door's commands as a user types them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import TinyModel, write_model

import qfr
from qfr.cli import COMMANDS, main
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store
from tests.tracked import log_pair

GOLDEN = Path(__file__).parent / "fixtures" / "golden.json"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"qfr {qfr.__version__}\n"
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in (*COMMANDS, "run"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["contrst"], "did you mean 'contrast'"),
        (["contrast", "nowhere.json"], "nowhere.json"),
        (["report", "--root", "nowhere"], "no store"),
        (["report", "--vary", "quants"], "neither an axis nor a key"),
        (["rescore", "--policy-version", "a/b"], "no plain name"),
        (["doctor", "--model", "lama"], "did you mean 'llama'"),
        (["quantize"], "a source and a preset"),
        (["quantize", "nowhere.gguf", "Q4_K_M"], "nowhere.gguf"),
        (["quantize", "nowhere.gguf", "Q4_K_N"], "did you mean 'Q4_K_S'"),
    ],
)
def test_user_errors_are_one_message_and_exit_code_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as leaving:
        code = int(str(leaving.code))
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert "Traceback" not in error


def test_contrast_prints_the_published_figures_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contrast", str(GOLDEN), "--json"]) == 0
    contrasts = json.loads(capsys.readouterr().out)["contrasts"]
    expected = json.loads(GOLDEN.read_text())["expected"]
    found = {(c["model"], c["prompt"], c["target"]): c for c in contrasts}
    for name, values in expected.items():
        for target in ("own", "matched", "full"):
            got = found[(*name.split("/"), target)]
            assert (got["a"], got["b"]) == ("8", "4")
            assert got["points"] == pytest.approx(values[target], abs=1e-4)
            low, high = values[f"{target}_ci"]["exact"]
            assert (got["low"], got["high"]) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
        assert found[(*name.split("/"), "matched")]["sign_p"] == pytest.approx(values["sign_matched"]["p"])
        assert found[(*name.split("/"), "full")]["sign_p"] == pytest.approx(values["sign_full"]["p"])


def test_montecarlo_is_seeded(capsys: pytest.CaptureFixture[str]) -> None:
    def ends(seed: str) -> list[tuple[float, float]]:
        main(
            [
                "contrast",
                str(GOLDEN),
                "--json",
                "--method",
                "montecarlo",
                "--seed",
                seed,
                "--resamples",
                "500",
            ]
        )
        found = json.loads(capsys.readouterr().out)["contrasts"]
        return [(c["low"], c["high"]) for c in found]

    assert ends("1") == ends("1")
    assert ends("1") != ends("2")


def test_rescoring_needs_no_model_and_overwrites_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    log_pair(store)
    words = ["rescore", "--root", str(store.root), "--policy-version", "again", "--ep-min-calls", "3"]
    script = (
        f"import sys; from qfr.cli import main; code = main({words!r}); assert 'llama_cpp' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", f"{script}; sys.exit(code)"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(new)") >= 4
    before, after = read_cells(store), read_cells(store, score_version="again")
    for old, new in zip(before.cells, after.cells, strict=True):
        assert new.episodes.equals(old.episodes)
    assert main(words) == 0
    assert "stood there already" in capsys.readouterr().out
    words[-1] = "4"
    assert main(words) == 2
    assert "never overwritten" in capsys.readouterr().err


def test_doctor_finds_a_changed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--root", str(tmp_path / "mlruns"), "--model", "smollm2"]) == 0
    told = capsys.readouterr().out
    assert "as pinned" in told
    assert "0c1e57098bba43ac29e6e3b677cdceebdd22334f" in told
    (tmp_path / "mlruns").mkdir(exist_ok=True)
    (tmp_path / "mlruns" / "mlflow.db").write_text("no database")
    assert main(["doctor", "--root", str(tmp_path / "mlruns"), "--model", "smollm2"]) == 1
    assert "problem" in capsys.readouterr().out


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("source") / "tiny-f16.gguf", TinyModel(width=256))


def test_quantize_derives_and_compares(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quantize", str(source), "q8_0", "Q4_K_M", "--out", str(tmp_path), "--root", str(tmp_path / "r")]
    assert main(words) == 0
    eight, four = tmp_path / "tiny-f16-Q8_0.gguf", tmp_path / "tiny-f16-Q4_K_M.gguf"
    copy = shutil.copy(eight, tmp_path / "copy.gguf")
    capsys.readouterr()
    assert main(["quantize", "--compare", str(eight), str(copy)]) == 0
    assert "the same, byte for byte" in capsys.readouterr().out
    assert main(["quantize", "--compare", str(eight), str(four)]) == 1
    assert "Q4_K" in capsys.readouterr().out


def test_screen_ranks_tasks_and_tests_the_ranking(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    log_pair(store)
    assert main(["screen", "--root", str(store.root), "--reference", "q8_0"]) == 0
    told = capsys.readouterr().out
    assert "reference Q8_0" in told
    assert "premature_give_up" in told
    assert "untested here" in told
    assert main(["screen", "--root", str(store.root), "--reference", "q4_k_m"]) == 2


def test_the_completion_script_completes_commands_options_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion"]) == 0
    script = tmp_path / "qfr.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        code = f'source {script}; {typed}; _qfr; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("qfr", "com") == ["compare", "completion"]
    assert completed("qfr", "verify", "--oth") == ["--other-code"]
    assert completed("qfr", "contrast", "--method", "m") == ["montecarlo"]


def test_defaults_are_shown_where_they_say_something(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert "default: None" not in capsys.readouterr().out
