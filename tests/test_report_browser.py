"""The page in a real browser: no errors, no network, hostile text as text, both themes, both widths."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from qfr.report.build import ReportOptions, build_report
from qfr.report.page import render_page
from tests.logged import logged_pair
from tests.test_report import HOSTILE, changed, golden_cells

pytestmark = pytest.mark.browser
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
ARGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    hostile = [
        changed(
            cell, model="m" + HOSTILE, imatrix=HOSTILE, tensor_types="x" * 1_000_000, reference_agent=True
        )
        for quant in ("Q8_0", "Q4_K_M")
        for cell in logged_pair(quant, [2] * 20)
    ]
    made = {
        "golden": build_report(golden_cells()),
        "hostile": build_report(hostile, ReportOptions(title="t" + HOSTILE, command=HOSTILE)),
        "nothing": build_report([]),
    }
    paths = {name: folder / f"{name}.html" for name in made}
    for name, report in made.items():
        paths[name].write_text(render_page(report), encoding="utf-8")
    return paths


def opened(
    browser: Browser, path: Path, *, width: int = 1280, scheme: str = "light"
) -> tuple[Page, list[str]]:
    """Open a page without network and collect whatever goes wrong or leaves the file."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
    )
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))

    def seen(url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            troubles.append(url)

    page.on("request", lambda request: seen(request.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    return page, troubles


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_figures_are_drawn_without_errors_or_network(
    browser: Browser, pages: dict[str, Path], width: int, scheme: str
) -> None:
    page, troubles = opened(browser, pages["golden"], width=width, scheme=scheme)
    page.wait_for_function("document.querySelectorAll('.plot .scatterlayer .point').length >= 30")
    assert troubles == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".plot svg.main-svg").count() >= 12
    columns = page.locator(".panels").first.evaluate("e => getComputedStyle(e).gridTemplateColumns")
    assert len(columns.split()) == (3 if width == 1280 else 1)
    colour = page.locator(".plot .xtick text").first.evaluate("e => getComputedStyle(e).fill")
    assert colour == ("rgb(231, 234, 238)" if scheme == "dark" else "rgb(27, 31, 36)")
    page.context.close()


def test_the_theme_can_change_while_the_page_is_open(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["golden"])
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.plot .xtick text')).fill === 'rgb(231, 234, 238)'"
    )
    assert troubles == []
    page.context.close()


def test_hostile_text_is_shown_as_text(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["hostile"])
    assert troubles == []
    assert "owned" not in page.title().removeprefix("t" + HOSTILE[:-1]).replace("document.title='owned'", "")
    text = page.locator("h1").inner_text()
    assert text.startswith("t</script><script>document.title='owned'</script><b>&")
    assert text.endswith("\\ud800")
    assert "(1,000,000 characters)" in page.locator("#provenance").inner_text()
    assert page.locator("h1 script, h1 b, td script, td b").count() == 0
    # A right-to-left override stays inside its own element.
    assert page.locator("h1 bdi").count() == 1
    assert "Nothing on this page is evidence" in page.locator(".banner").inner_text()
    page.context.close()


def test_an_empty_report_opens(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["nothing"])
    assert troubles == []
    assert "No finished cell was found." in page.locator("#answer").inner_text()
    page.context.close()


def test_the_keyboard_reaches_links_tables_and_details(browser: Browser, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["golden"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "DIV.scroll", "SUMMARY."} <= reached
    closed = page.locator("details.flag").first
    closed.locator("summary").focus()
    page.keyboard.press("Enter")
    assert closed.evaluate("e => e.open")
    page.context.close()
