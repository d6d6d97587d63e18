"""A model that writes attacks instead of calls: every place where its text could arrive is looked at."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from qfr.canonical import canonical
from qfr.cli import main
from qfr.config import CellConfig
from qfr.engine.scripted import Policy
from qfr.play import job
from qfr.world.base import World
from qfr.world.demonstrate import Habits, next_turn
from tests.registering import quiet_logging

MARK = "0wned"
ATTACKS = (
    f"\x1b]0;{MARK}\x07\x1b[2J\x1b[31m{MARK}",
    f"</script><script>alert('{MARK}')</script><img src=x onerror=alert('{MARK}')>",
    f'=HYPERLINK("http://127.0.0.1/{MARK}","{MARK}")',
    f"+cmd|'/c calc'!{MARK}",
    f"-2+3+{MARK}",
    f"@SUM({MARK})",
    f"\t={MARK}",
    f"| {MARK} | [x](javascript:alert('{MARK}')) <b>{MARK}</b>\n\n# {MARK}\n",
    f"../../../../tmp/{MARK}",
    f"[bold red]{MARK}[/] [link=file:///etc/passwd]{MARK}[/link]",
    f"\u202e{MARK}\u2066\ud800",
    f"{{{{ {MARK} }}}} ${{oc.env:HOME}} %s%n",
    f"{MARK}\x00\r\n{MARK}: injected header",
    MARK * 3000,
)
# Everything below a space but the newline, delete, C1, and marks that turn the direction of a text.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def hostile(cell: CellConfig, _world: World) -> Policy:
    """An agent that follows its task; its wrong turns are attacks by name, by argument and by answer."""

    def policy(system: str, task: str, transcript: tuple[tuple[str, str], ...]) -> str:
        number = sum(task.encode()) + 11 * (len(transcript) // 2) + 3 * len(cell.quant.preset)
        attack = ATTACKS[number % len(ATTACKS)]
        if len(transcript) % 2 == 0:
            tool = attack if number % 3 else "get_order"
            arguments = {attack: attack} if number % 5 else {"order_id": attack}
            return canonical({"tool": tool, "arguments": arguments}) + attack
        if cell.quant.preset == "Q4_K_M" and len(transcript) > 3:
            tool, key = ("submit_answer", "answer") if number % 2 else ("report_failure", "reason")
            return canonical({"tool": tool, "arguments": {key: attack}})
        return next_turn(task, transcript[1::2], Habits(attempts=3))

    return policy


class _Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.alive: list[str] = []
        # Tags and attributes that hold the mark.
        self.inside = ""
        self.kind: str | None = None
        self.scripts: list[tuple[str | None, str]] = []
        # Type and content.

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.inside, self.kind = tag, dict(attrs).get("type")
        for name, value in attrs:
            live = name.startswith("on") or name in ("href", "src", "style", "srcdoc", "action")
            if MARK in name or (live and MARK in (value or "")):
                self.alive.append(f"<{tag} {name}={value!r}>")

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append((self.kind, data))

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


@contextlib.contextmanager
def _warnings() -> Iterator[None]:
    """MLflow's traces warn about type hints of its own; as errors they would stop the traces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> tuple[Path, str]:
    """A sweep of the hostile agent with its report and archive; its folder and all that a terminal showed."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr("qfr.play.engine_cache.scripted_policy", hostile)
        with quiet_logging(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), _warnings():
            grid = ("run", "-m", "model=scripted", "suite=orders6", "prompt=P0", "quant=q8_0,q4_k_m")
            assert main([*grid, "suite.gate=none", "fault=et,ep", "tracking.traces=failures"]) == 0
            sweep = next((folder / "mlruns" / "reports").iterdir()).name
            assert main(["report", "--sweep", sweep, "--format", "md"]) == 0
            assert main(["rescore", "--policy-version", "again"]) == 0
            assert main(["audit", "--seed", "1"]) == 0
            assert main(["screen", "--reference", "q8_0"]) in (0, 2)
            assert main(["export", sweep, "out.tar.zst"]) == 0
            assert main(["import", "out.tar.zst", "--root", "elsewhere"]) == 0
    job._SHELF.clear()
    return folder, said.getvalue()


def test_the_attacks_arrived(attacked: tuple[Path, str]) -> None:
    """Otherwise the tests below would show nothing."""
    from qfr.tracking.reading.cells import read_episodes
    from qfr.tracking.reading.reader import read_cells
    from qfr.tracking.store import open_store

    store = open_store(None, attacked[0] / "mlruns", "qfr")
    text = "".join(
        turn.generation.text
        for cell in read_cells(store).cells
        for episode in read_episodes(store, cell)
        for turn in episode.turns
    )
    assert [attack for attack in ATTACKS if attack[:7] not in text] == []


def test_the_terminal_gets_no_control_characters(attacked: tuple[Path, str]) -> None:
    assert not sorted(set(_CONTROL.findall(attacked[1])))


def test_the_page_holds_no_living_attack(attacked: tuple[Path, str]) -> None:
    pages = list(attacked[0].rglob("*.html"))
    assert pages
    for path in pages:
        text = path.read_text("utf-8")
        page = _Page()
        page.feed(text)
        assert page.alive == []
        assert MARK in text
        # In scripts it stands in JSON alone, which no text can leave.
        assert not re.search(rf"<(img|b|a)\b[^>]*>[^<]*{MARK}", text)
        for kind, script in page.scripts:
            assert MARK not in script or kind == "application/json"
            if kind == "application/json":
                json.loads(script)


def test_no_cell_of_a_table_is_a_formula(attacked: tuple[Path, str]) -> None:
    tables = list(attacked[0].rglob("*.csv"))
    assert tables
    for path in tables:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                for cell in row:
                    number = re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", cell)
                    assert number or not re.match(r"[=+\-@\t\r]", cell), f"{path.name}: {cell!r}"
                    assert not _CONTROL.search(cell), f"{path.name}: {cell!r}"


def test_markdown_holds_no_html_and_no_link_of_the_models(attacked: tuple[Path, str]) -> None:
    for path in attacked[0].rglob("report.md"):
        text = path.read_text("utf-8")
        assert not re.search(rf"<[^>\n]*{MARK}", text)
        assert not re.search(r"\]\(javascript", text)
        assert f"\n# {MARK}" not in text
        assert not _CONTROL.search(text)


def test_no_file_takes_its_name_from_the_model(attacked: tuple[Path, str]) -> None:
    assert not [path for path in attacked[0].rglob("*") if MARK in path.name]
    assert not Path("/tmp", MARK).exists()
    with pa.OSFile(str(attacked[0] / "out.tar.zst")) as raw, pa.CompressedInputStream(raw, "zstd") as tar:
        data = tar.read()
    names = re.findall(rb"([^\x00]{1,100})\x00[^\x00]*0000644", data)
    assert not [name for name in names if MARK.encode() in name]


def test_mlflow_gets_plain_names_and_tags(attacked: tuple[Path, str]) -> None:
    with closing(sqlite3.connect(attacked[0] / "mlruns" / "mlflow.db")) as connection:
        for table, columns in (
            ("tags", "key, value"),
            ("params", "key, value"),
            ("metrics", "key, key"),
            ("runs", "name, name"),
        ):
            for row in connection.execute(f"SELECT {columns} FROM {table}"):
                for text in row:
                    assert MARK not in text, (table, row)
                    assert not _CONTROL.search(text.replace("\t", " ")), (table, row)
