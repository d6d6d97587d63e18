"""Passwords and tokens reach no file, no database, no page and no terminal, whatever is done with them."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from qfr.cli import main
from qfr.tracking.environment import redact
from qfr.tracking.store import open_store, ui_command
from tests.mlflow_server import MlflowServer, free_port, running_server
from tests.registering import GRID, command, make_checkout, register

# With a character that has to be escaped in an address.
WORD = "c4n@ry-pa55word"
TOKENS = {
    "MLFLOW_TRACKING_PASSWORD": "c4nary-tracking-word",
    "AWS_SECRET_ACCESS_KEY": "c4nary-bucket-key",
    "HF_TOKEN": "hf_c4naryhub",
    "OPENAI_API_KEY": "sk-c4nary",
    "PGPASSWORD": "c4nary-database",
}
# Every form in which one of them could stand somewhere.
FORMS = (
    *TOKENS.values(),
    WORD,
    quote(WORD),
    base64.b64encode(f"alice:{WORD}".encode()).decode(),
    "c4nary",
    "c4n@ry",
    "c4n%40ry",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Iterator[MlflowServer]:
    with running_server(tmp_path_factory.mktemp("server"), migrated_database) as running:
        yield running


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_checkout(tmp_path / "checkout")
    monkeypatch.chdir(folder)
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    return folder


def with_password(server: MlflowServer) -> str:
    return f"http://alice:{quote(WORD)}@127.0.0.1:{server.port}"


def leaks(*folders: Path, but: tuple[str, ...] = ()) -> list[str]:
    """Files below folders that hold a secret in any form; archives are looked into."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".zst":
            with pa.BufferReader(data) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
                data += stream.read()
        found += [f"{path}: {form}" for form in FORMS if form.encode() in data and path.name not in but]
    return found


def test_a_sweep_with_a_password_in_its_address_leaks_it_nowhere(
    server: MlflowServer, checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uri = with_password(server)
    given = f'tracking.uri="{uri}"'
    name = register(given)
    assert command(*GRID, given, f"registration.use={name}") == 0
    sweep = next((checkout / "mlruns" / "reports").iterdir()).name
    for words in (
        ("report", "--uri", uri, "--sweep", sweep),
        ("verify", name, "--uri", uri, "--other-code"),
        ("audit", "--uri", uri, "--seed", "1", "--cells", "1"),
        ("export", sweep, "out.tar.zst", "--uri", uri),
        ("doctor", "--uri", uri, "--model", "scripted"),
    ):
        assert main(list(words)) == 0, words
    # A failure's own text and the messages of errors.
    assert command(*GRID, given, "tracking.experiment=other", "suite.seed=3", "mode=plan") == 0
    assert command(*GRID, f'tracking.uri="http://alice:{quote(WORD)}@127.0.0.1:{free_port()}"') == 2
    assert main(["report", "--uri", f"http://alice:{quote(WORD)}@127.0.0.1:{free_port()}"]) == 2
    said = capfd.readouterr()
    assert not [form for form in FORMS if form in said.out + said.err]
    # What the password opened is there all the same.
    assert (checkout / "mlruns" / "reports" / sweep / "report.html").exists()
    assert list((checkout / "mlruns" / "multirun").rglob(".hydra/config.yaml"))
    assert leaks(checkout, server.folder) == []


def test_a_password_in_a_yaml_file_leaks_nowhere_else(server: MlflowServer, checkout: Path) -> None:
    mine = checkout / "mine" / "tracking"
    mine.mkdir(parents=True)
    default = (checkout / "conf" / "tracking" / "default.yaml").read_text()
    assert "uri: null" in default
    (mine / "ours.yaml").write_text(default.replace("uri: null", f"uri: {with_password(server)}"))
    words = ("--config-dir", str(checkout / "mine"), "tracking=ours", "tracking.experiment=yaml")
    assert command(*words, *GRID) == 0
    assert leaks(checkout, server.folder, but=("ours.yaml",)) == []


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql://alice:{quote(WORD)}@127.0.0.1:1/mlflow",
        f"postgresql://127.0.0.1:1/mlflow?user=alice&password={quote(WORD)}",
        f"https://{quote(WORD)}@127.0.0.1:1",
        f"mysql+pymysql://alice:{quote(WORD)}@[::1/x",
        f"ftp://alice:{quote(WORD)}@127.0.0.1/x",
    ],
)
def test_an_address_that_cannot_be_used_is_named_without_its_password(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("run", *GRID, f"tracking.uri='{uri}'"), ("report", "--uri", uri)):
        assert main(list(words)) == 2
        said = capfd.readouterr()
        assert said.err.startswith("error: ")
        assert not [form for form in FORMS if form in said.out + said.err]
    assert leaks(tmp_path) == []


def test_not_even_a_bugs_traceback_shows_it(checkout: Path, server: MlflowServer) -> None:
    """Hydra prints the overrides of a job that raises, and Python the lines of its traceback."""
    (checkout / "run.py").write_text(
        f"import sys\nsys.path[:0] = {sys.path!r}\n"
        "from qfr.play import job\n"
        "def broken(cell): raise ZeroDivisionError('a bug')\n"
        "job.run_job = broken\n"
        "from qfr.front.main import main\n"
        "raise SystemExit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "run.py", *GRID, f"tracking.uri='{with_password(server)}'"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ZeroDivisionError" in done.stderr
    assert not [form for form in FORMS if form in done.stdout + done.stderr]
    assert leaks(checkout, server.folder) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://a:b@h/db", "postgresql://***@h/db"),
        ("at http://t0ken@h:1/x, then", "at http://***@h:1/x, then"),
        ("postgresql://h/db?user=a&password=b&x=1", "postgresql://h/db?user=a&password=***&x=1"),
        ("https://h/x?sslkey=k;access_token=t", "https://h/x?sslkey=***;access_token=***"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("http://h/?monkeys=3", "http://h/?monkeys=***"),
    ],
)
def test_what_is_taken_out_of_a_text(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_the_printed_ui_command_binds_to_loopback_and_shows_no_password(
    server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = open_store(None, tmp_path / "mlruns", "qfr")
    assert "--host 127.0.0.1" in ui_command(local)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", TOKENS["MLFLOW_TRACKING_PASSWORD"])
    with contextlib.chdir(tmp_path):
        served = open_store(with_password(server), tmp_path / "mlruns", "qfr")
    assert ui_command(served).startswith(f"http://***@127.0.0.1:{server.port}/")
