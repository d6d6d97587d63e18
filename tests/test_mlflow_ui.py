"""What a user of MLflow sees after one command: its pages in a real browser, and a real server as store."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from docs.images import make
from qfr.errors import TrackingError
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.reading.search import search
from qfr.tracking.store import Store, open_store
from qfr.tracking.writing.sweep import find_sweep

ROOT = Path(__file__).resolve().parent.parent
PAIR = ("scripted q8_0 P0 et", "scripted q4_k_m P0 et")
# Centres of the boxes that stand beside a metric's name, as the eye finds them.
BESIDE = """name => {
    const middle = element => {
        const box = element.getBoundingClientRect();
        return (box.top + box.bottom) / 2;
    };
    const values = document.querySelectorAll('[role=grid]')[1].querySelectorAll('span');
    return [...values].filter(one => Math.abs(middle(one) - middle(name)) < 5).map(one => one.innerText);
}"""


@dataclass(frozen=True)
class Swept:
    """A sweep that ran from the command line."""

    folder: Path
    printed: str

    @property
    def sweep(self) -> str:
        return next((self.folder / "mlruns" / "reports").iterdir()).name

    def said(self, what: str) -> str:
        """The rest of a line that the sweep printed."""
        found = re.search(rf"^{what}:  (.+)$", self.printed, re.MULTILINE)
        assert found is not None, self.printed
        return found[1]

    def contrast(self, prompt: str, target: str) -> dict[str, str]:
        """A line of results.csv."""
        with (self.folder / "mlruns" / "reports" / self.sweep / "results.csv").open(newline="") as file:
            (line,) = (
                row
                for row in csv.DictReader(file)
                if row["kind"] == "contrast"
                and (row["prompt"], row["target"], row["policy"], row["family"])
                == (prompt, target, "tolerant", "")
            )
        return line


def swept(folder: Path, *overrides: str) -> Swept:
    command = [sys.executable, str(ROOT / "run.py"), "experiment=smoke", *overrides]
    command.append(f"hydra.sweep.dir={folder}/multirun")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Swept(folder, done.stdout)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, migrated_database: Path) -> Swept:
    """The sweep with its SQLite store, in a folder whose name needs quoting."""
    folder = tmp_path_factory.mktemp("a folder")
    (folder / "mlruns").mkdir()
    shutil.copy(migrated_database, folder / "mlruns" / "mlflow.db")
    return swept(folder)


@pytest.fixture(scope="module")
def store(local: Swept) -> Store:
    return open_store(None, local.folder / "mlruns", "qfr")


@pytest.fixture(scope="module")
def address(local: Swept, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MLflow's UI, started by the very command that the sweep printed, but for the port."""
    command = local.said("Open the MLflow UI")
    assert "--host 127.0.0.1 --port 5000" in command
    with make.served(command, tmp_path_factory.mktemp("ui") / "server.log") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=make.WAIT_MILLISECONDS)
    with make.browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    found = make.open_page(browser)
    yield found
    found.context.close()


def row(page: Page, run: str | re.Pattern[str]) -> Locator:
    """The row of a run in MLflow's table."""
    link = page.get_by_role("link", name=run, exact=True)
    return page.get_by_role("row").filter(has=link)


def open_runs(page: Page, address: str, local: Swept) -> Locator:
    """Go where the sweep says its runs are; returns the sweep's row."""
    page.goto(local.said("and in it the runs").replace("http://127.0.0.1:5000", address))
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    found = row(page, f"smoke {local.sweep}")
    found.wait_for()
    return found


@pytest.mark.browser
def test_comparing_two_presets_shows_what_differs(
    local: Swept, store: Store, address: str, page: Page
) -> None:
    sweep = open_runs(page, address, local)
    sweep.get_by_role("gridcell").filter(has=page.get_by_role("link")).get_by_role("button").click()
    for run in PAIR:
        row(page, run).get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_role("heading", name="Comparing 2 Runs")).to_be_visible()
    expect(page.get_by_role("row", name="Run Name:").get_by_role("cell")).to_have_text(list(PAIR))
    # Before any click the plot shows the headline, not a number that happens to be first.
    expect(page.get_by_role("tabpanel").get_by_text("tolerant.full", exact=True).first).to_be_visible()
    names, _ = make.show_differences(page)
    quant = page.get_by_role("row", name="quant Q8_0 Q4_K_M", exact=True)
    expect(quant.get_by_role("cell")).to_have_text(["Q8_0", "Q4_K_M"])
    assert page.get_by_role("row", name="prompt P0 P0", exact=True).count() == 0

    cells = {cell.facts.name: cell for cell in read_cells(store).cells}
    for metric in ("tolerant.full", "tolerant.own", "tolerant.successes", "faults.recovered"):
        logged = [cells[run].metrics[metric] for run in PAIR]
        assert logged[0] > logged[1]
        assert beside(names, metric) == pytest.approx(logged, abs=5e-4)
    assert names.filter(has_text=re.compile("^tolerant.certified")).count() == 0


def beside(names: Locator, metric: str) -> list[float]:
    """Values that stand in one line with a metric's name."""
    name = names.and_(names.page.get_by_role("link", name=metric, exact=True))
    name.wait_for(state="attached")
    return [float(text) for text in name.evaluate(BESIDE)]


@pytest.mark.browser
def test_the_page_of_the_sweep_shows_contrasts_and_the_report(local: Swept, address: str, page: Page) -> None:
    open_runs(page, address, local).get_by_role("link").click()
    search = page.get_by_role("textbox", name="Search metrics")
    for prompt in ("P0", "P4"):
        wanted = local.contrast(prompt, "full")
        name = f"full/tolerant/scripted {prompt} Q8_0-Q4_K_M"
        for column in ("points", "low"):
            search.fill(f"{name} {column}")
            line = page.get_by_role("row").filter(
                has=page.get_by_role("link", name=f"{name} {column}", exact=True)
            )
            value = line.get_by_role("cell").nth(1).inner_text()
            assert float(value) == pytest.approx(float(wanted[column]), abs=1e-6)

    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_role("listitem").filter(has_text="report").get_by_text("report", exact=True).click()
    expect(page.get_by_text("results.csv", exact=True)).to_be_visible()
    page.get_by_text("report.html", exact=True).click()
    shown = page.frame_locator("iframe")
    expect(shown.get_by_role("heading", name="Recovery from tool failures")).to_be_visible()
    expect(shown.get_by_text("Q4_K_M against Q8_0: ").first).to_be_visible()


@pytest.mark.browser
def test_the_pictures_of_the_readme_can_be_made_again(
    local: Swept, store: Store, address: str, browser: Browser, page: Page
) -> None:
    pair = make.pick(store, local.sweep, ())
    assert tuple(cell.facts.name for cell in pair) == PAIR
    with pytest.raises(TrackingError, match="no two finished cells"):
        make.pick(store, local.sweep, ("scripted q8_0 P0 et", "scripted q2_k P0 et"))
    picture = make.compare(page, address, pair, store.experiment_id)
    names = page.get_by_role("grid").first.get_by_role("link")
    logged = [cell.metrics["tolerant.full"] for cell in pair]
    assert beside(names, "tolerant.full") == pytest.approx(logged, abs=5e-4)
    assert size(picture)[0] == make.WIDTH
    file = next((local.folder / "mlruns" / "reports").glob("*/report.html"))
    assert size(make.report(make.open_page(browser), file))[0] == make.WIDTH


def size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_a_sweep_over_a_real_server_is_the_same_sweep(
    local: Swept, store: Store, migrated_database: Path, tmp_path: Path
) -> None:
    shutil.copy(migrated_database, tmp_path / "server.db")
    command = [
        *("mlflow", "server", "--host", "127.0.0.1", "--port", "5000", "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{tmp_path}/server.db"),
        *("--artifacts-destination", str(tmp_path / "served")),
    ]
    line = f"MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false {shlex.join(command)}"
    with make.served(line, tmp_path / "server.log") as uri:
        remote = swept(tmp_path, f"tracking.uri={uri}")
        served = open_store(uri, tmp_path / "mlruns", "qfr")
        assert remote.said("Open the MLflow UI").startswith(
            f"{uri}/#/experiments/{served.experiment_id}/runs"
        )
        assert "scripted: No preset is shown to be as good as Q8_0" in remote.printed
        assert not (tmp_path / "mlruns" / "mlflow.db").exists()

        there, here = by_name(served), by_name(store)
        assert list(there) == list(here)
        assert len(there) == 8
        for name, cell in there.items():
            assert (cell.status, cell.complete) == ("FINISHED", True)
            assert cell.log_sha256 == here[name].log_sha256, name
            assert cell.clean_log_sha256 == here[name].clean_log_sha256
            assert cell.metrics["episodes"] == len(cell.episodes)
        assert tags(served) == tags(store)
        assert {"qfr.cell_id", "qfr.llama_commit", "qfr.model_sha256", "qfr.git_dirty"} <= tags(served)

        run = find_sweep(served, remote.sweep)
        assert run.info.status == "FINISHED"
        page = next((tmp_path / "mlruns" / "reports").glob("*/report.html"))
        artifact = read_artifact(served, run.info.run_id, run.info.artifact_uri, "report/report.html")
        assert artifact == page.read_bytes()
        points = run.data.metrics["full/tolerant/scripted P4 Q8_0-Q4_K_M points"]
        assert points == pytest.approx(float(local.contrast("P4", "full")["points"]))


def by_name(store: Store) -> dict[str, LoggedCell]:
    return {cell.facts.name: cell for cell in read_cells(store).cells}


def tags(store: Store) -> set[str]:
    """Names of the tags that every cell's run carries."""
    runs = list(search(store, "tags.`qfr.kind` = 'cell'"))
    return set.intersection(*(set(run.data.tags) for run in runs))
