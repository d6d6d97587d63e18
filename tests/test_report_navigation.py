"""Finding one's way on the page in a real browser: contents, folds, from a square of the map to its turns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from qfr.records import FaultKind
from qfr.report.content.build import Material, build_report
from qfr.report.content.transcripts import Transcripts, pack
from qfr.report.page import render_page
from tests.builders import build_cell_episodes, make_facts, orders20
from tests.logged import Logged, logged
from tests.test_report_browser import ARGS, opened

pytestmark = pytest.mark.browser
# A busy machine takes its time, in milliseconds.
SLOW = 180_000
HIGH: list[int | None] = [2] * 10 + [3] * 10
LOW: list[int | None] = [1] * 9 + [None] + [3] * 10


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two presets of one model with every transcript."""
    cells, packed = [], []
    for quant, table in (("Q8_0", HIGH), ("Q4_K_M", LOW)):
        built = build_cell_episodes(table, orders20(), fault=FaultKind.et)
        none, et = (make_facts("m", quant, "P0", fault) for fault in ("none", "et"))
        clean: Logged = logged(none, built.clean)
        cells += [clean, replace(logged(et, built.faulted), clean=clean)]
        packed += [pack(none, built.clean, 2), pack(et, built.faulted, 2)]
    report = build_report(cells, material=Material(transcripts=Transcripts(tuple(packed), (), "")))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )
    assert path is not None, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield launched
        launched.close()


def current(page: Page) -> str:
    return str(page.evaluate("document.querySelector('nav a[aria-current]').hash"))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_contents_stay_in_sight_and_say_where_the_reader_is(
    chromium: Browser, page_path: Path, width: int
) -> None:
    page, troubles = opened(chromium, page_path, width=width)
    assert current(page) == "#answer"
    link = page.locator("nav a[href='#transcripts']")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("nav a[aria-current]")).to_have_attribute("href", "#transcripts", timeout=SLOW)
    # The heading is not hidden behind the bar, and the bar shows the link.
    bar, heading = page.locator("nav").bounding_box(), page.locator("#transcripts h2").bounding_box()
    assert bar is not None
    assert heading is not None
    assert bar["y"] == 0
    assert heading["y"] >= bar["height"]
    assert link.evaluate(
        "e => { const b = e.getBoundingClientRect(); return b.right <= innerWidth && b.left >= 0; }"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert troubles == []
    page.context.close()


def test_what_is_not_needed_at_first_sight_is_folded(chromium: Browser, page_path: Path) -> None:
    page, troubles = opened(chromium, page_path)
    folds = page.locator("details").count()
    assert folds >= 8
    height = page.evaluate("document.documentElement.scrollHeight")
    # The headline policy's figure is in sight, the other policy's is not.
    assert page.get_by_text("Differences, tolerant scoring").is_visible()
    strict = page.locator(
        "details", has=page.locator("summary", has_text="Differences, strict scoring")
    ).first
    assert not strict.locator(".plot").first.is_visible()
    strict.locator("summary").first.focus()
    page.keyboard.press("Enter")
    strict.locator(".plot .main-svg").first.wait_for()
    button = page.locator("#unfold")
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == folds
    assert button.inner_text() == "Fold everything"
    assert page.evaluate("document.documentElement.scrollHeight") > height
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 0
    assert troubles == []
    page.context.close()


def test_a_click_on_a_square_of_the_map_opens_its_transcript(chromium: Browser, page_path: Path) -> None:
    page, troubles = opened(chromium, page_path)
    page.locator("#viewer-turns .row").first.wait_for()
    plot = page.locator("#map .plot").first
    plot.scroll_into_view_if_needed()
    plot.locator(".main-svg").first.wait_for()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    # The second row of the second column: base-00, site 1, the lower preset.
    rows = 50
    x, y = box["x"] + 0.75 * box["width"], box["y"] + 1.5 * box["height"] / rows
    page.mouse.move(x, y)
    label = plot.locator(".hovertext").first
    label.wait_for()
    told = label.text_content() or ""
    assert "base-00, site 1" in told
    assert "Q4_K_M P0" in told
    assert "reported failure" in told or "submitted an answer" in told
    page.mouse.click(x, y)
    expect(page.locator("#viewer select[name=left]")).to_have_value("m Q4_K_M P0", timeout=SLOW)
    expect(page.locator("#viewer select[name=site]")).to_have_value("et/1", timeout=SLOW)
    assert page.locator("#viewer select[name=task]").input_value() == "base-00"
    assert page.locator("#viewer select[name=right]").input_value() == "m Q8_0 P0"
    assert page.locator("#transcripts h2").is_visible()
    assert troubles == []
    page.context.close()
