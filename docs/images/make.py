"""The README's pictures, made from a sweep that MLflow holds.

    python -m docs.images.make mlruns s-20260131-142501-1f3a9c
    python -m docs.images.make mlruns s-… --runs "ref_llama q8_0 P0 et" "ref_llama q2_k P0 et"

writes `mlflow_compare.png` (MLflow's compare view of two runs, only what differs) and `report.png` (the top
of the sweep's report as MLflow holds it; light, 1280 pixels wide) next to this file. It needs the extra
`test` and a Chromium on the system. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from qfr.errors import QfrError, TrackingError
from qfr.records import FaultKind
from qfr.tracking.reading.artifacts import read_artifact
from qfr.tracking.reading.cells import LoggedCell
from qfr.tracking.reading.reader import read_cells
from qfr.tracking.store import Store, open_store, ui_command
from qfr.tracking.writing.sweep import find_sweep, read_plan

WIDTH = 1280
WAIT_MILLISECONDS = 90_000
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# No sandbox in containers, and nothing that talks to the network by itself.
_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Scroll the values to a metric's row. MLflow scrolls the names one event behind the values, so the last
# events move by one pixel only.
_SCROLL = """async (box, name) => {
    const top = box.scrollTop + name.getBoundingClientRect().top - box.getBoundingClientRect().top - 12;
    for (const one of [top, top + 1, top]) {
        box.scrollTop = one;
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    }
}"""
_ALIGNED = """() => {
    const [names, values] = document.querySelectorAll('[role=grid]');
    return values.scrollTop > 1 && Math.abs(names.scrollTop - values.scrollTop) <= 1;
}"""
_START_SECONDS = 180.0


@contextmanager
def served(command: str, log: Path) -> Iterator[str]:
    """Run a shell command that serves MLflow at `--port 5000`, at a free port instead; end it afterwards.

    Parameters
    ----------
    command : str
        For example what `qfr.tracking.store.ui_command` returns.
    log : Path
        File for what the server prints.

    Yields
    ------
    str
        The server's address, once it is healthy.

    Raises
    ------
    TrackingError
        The server ends, or is not healthy after three minutes.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    moved = command.replace("--port 5000", f"--port {port}")
    address = f"http://127.0.0.1:{port}"
    # `mlflow` of this very environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            moved, shell=True, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        _await_health(address, server, log)
        yield address
    finally:
        # The server's workers are in its group.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _await_health(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise TrackingError("the MLflow server did not start", where=address, hint=log.read_text()[-2000:])


@contextmanager
def browser() -> Iterator[Browser]:
    """The system's Chromium without a window."""
    path = next((found for name in _CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        raise QfrError("no Chromium is installed", hint="apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(_ARGS))
        yield launched
        launched.close()


def open_page(opened: Browser, height: int = 900) -> Page:
    """A page with a fresh profile, light, `WIDTH` pixels wide, that waits long on a busy machine."""
    page = opened.new_context(
        viewport={"width": WIDTH, "height": height}, color_scheme="light", locale="en-US", timezone_id="UTC"
    ).new_page()
    page.set_default_timeout(WAIT_MILLISECONDS)
    return page


def show_differences(page: Page) -> tuple[Locator, Locator]:
    """On MLflow's compare page, leave only the params and metrics that differ.

    Returns
    -------
    tuple of Locator
        Names of the metrics (links), and the box with their values.
    """
    page.get_by_role("heading", name="Comparing 2 Runs").wait_for()
    for section in ("Parameters", "Metrics"):
        switch = page.get_by_role("switch", name=f"{section} - Show diff only")
        switch.click()
        expect(switch).to_be_checked(timeout=WAIT_MILLISECONDS)
    # The metrics are two boxes side by side that scroll together.
    names, values = page.get_by_role("grid").nth(0), page.get_by_role("grid").nth(1)
    return names.get_by_role("link"), values


def compare(page: Page, address: str, runs: tuple[LoggedCell, LoggedCell], experiment: str) -> bytes:
    """PNG of the compare view of two runs, their headline metrics in sight."""
    ids = ",".join(f'"{cell.run_id}"' for cell in runs)
    page.goto(
        f'{address}/#/compare-runs?runs=[{ids}]&experiments=["{experiment}"]&workflowType=machine_learning'
    )
    names, values = show_differences(page)
    page.get_by_role("button", name="Visualizations").click()
    page.get_by_role("tab", name="Box Plot").wait_for(state="hidden")
    for button in page.get_by_role("button", name="Close").all():  # The assistant's panel.
        button.click()
    headline = names.filter(has_text="strict.").or_(names.filter(has_text="tolerant.")).first
    headline.wait_for(state="attached")
    values.evaluate(_SCROLL, headline.element_handle())
    page.wait_for_function(_ALIGNED)
    page.mouse.move(0, 0)
    return page.screenshot(animations="disabled")


def report(page: Page, file: Path) -> bytes:
    """PNG of the top of a report."""
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    return page.screenshot(animations="disabled")


def pick(store: Store, sweep: str, names: Sequence[str]) -> tuple[LoggedCell, LoggedCell]:
    """The two runs to compare: those named, or the first fault cell and the last one of another preset.

    Raises
    ------
    TrackingError
        The sweep has no such finished cells.
    """
    cells = {cell.facts.name: cell for cell in read_cells(store, sweep=sweep).cells}
    chosen = [cells[name] for name in names if name in cells]
    if not names:
        planned = [cells[one.name] for one in read_plan(store, sweep) if one.name in cells]
        faulted = [cell for cell in planned if cell.facts.fault != FaultKind.none]
        first = faulted[0].facts if faulted else None
        others = [
            cell
            for cell in faulted
            if first is not None
            and cell.facts.quant != first.quant
            and (cell.facts.model, cell.facts.prompt, cell.facts.fault)
            == (first.model, first.prompt, first.fault)
        ]
        chosen = [*faulted[:1], *others[-1:]]
    if len(chosen) != 2:
        raise TrackingError(
            "no two finished cells to compare", where=sweep, hint="finished are: " + ", ".join(cells)
        )
    return chosen[0], chosen[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make both pictures."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path, help="folder of the store (tracking.root)")
    parser.add_argument("sweep", help="id of the sweep, s-…")
    parser.add_argument("--experiment", default="qfr", help="MLflow experiment (default: qfr)")
    parser.add_argument(
        "--runs", nargs=2, default=(), metavar="NAME", help="names of the two runs to compare"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder for the pictures")
    given = parser.parse_args(arguments)
    store = open_store(None, given.root, given.experiment)
    run = find_sweep(store, given.sweep)
    pair = pick(store, given.sweep, given.runs)
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="qfr-") as folder, browser() as opened:
        page_file = Path(folder) / "report.html"
        page_file.write_bytes(
            read_artifact(store, run.info.run_id, run.info.artifact_uri, "report/report.html")
        )
        (given.out / "report.png").write_bytes(report(open_page(opened), page_file))
        with served(ui_command(store), Path(folder) / "server.log") as address:
            picture = compare(open_page(opened, 1088), address, pair, store.experiment_id)
        (given.out / "mlflow_compare.png").write_bytes(picture)
    print(f"{given.out}/report.png, {given.out}/mlflow_compare.png")


if __name__ == "__main__":
    try:
        main()
    except QfrError as error:
        sys.exit(str(error))
