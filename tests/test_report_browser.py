"""The page in a real browser: no errors, no network, hostile text as text, both themes, both widths."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from qfr.facts import CellFacts
from qfr.records import FaultKind
from qfr.report.content.build import Material, Report, ReportOptions, build_report
from qfr.report.content.transcripts import Transcripts, pack
from qfr.report.page import render_page
from tests.builders import make_facts
from tests.diagnosed import episode, good, hit
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


def hostile_facts(quant: str, fault: str) -> CellFacts:
    return replace(make_facts("m", quant, "P0", fault), model="m" + HOSTILE)


def viewed() -> Report:
    """Two presets that part after the fault, and texts that try to break out of the viewer."""
    wild = ["</script><script>document.title='owned'</script>", "\u202egnp.exe", "\ud800", "y" * 1_000_000]
    calls = [good(text="same"), *(good(text=text) for text in wild), good("submit_answer", "1", text="end")]
    other = [good(text="same"), good(text="</script><b>else</b>"), good("submit_answer", "2", text="end")]
    packed = []
    for quant, own in (("Q8_0", calls), ("Q4_K_M", other)):
        clean = pack(hostile_facts(quant, "none"), [episode("t", calls)], 2)
        fault = [episode("t", [own[0], hit(), *own[1:]], FaultKind.et)]
        packed += [clean, pack(hostile_facts(quant, "et"), fault, 2)]
    return build_report([], material=Material(transcripts=Transcripts(tuple(packed), (), "")))


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
        "viewer": viewed(),
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
    # A busy machine takes its time.
    context.set_default_timeout(180_000)
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


def draw_everything(page: Page) -> None:
    """Draw the figures that are far from the screen too, as for printing."""
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_figures_are_drawn_without_errors_or_network(
    browser: Browser, pages: dict[str, Path], width: int, scheme: str
) -> None:
    page, troubles = opened(browser, pages["golden"], width=width, scheme=scheme)
    draw_everything(page)
    assert page.locator(".plot .scatterlayer .point").count() >= 30
    assert troubles == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".plot").count() == page.locator(".plot .main-svg:first-child").count()
    columns = page.locator(".panels").first.evaluate("e => getComputedStyle(e).gridTemplateColumns")
    assert len(columns.split()) == (3 if width == 1280 else 1)
    colour = page.locator(".plot .xtick text").first.evaluate("e => getComputedStyle(e).fill")
    assert colour == ("rgb(231, 234, 238)" if scheme == "dark" else "rgb(27, 31, 36)")
    page.context.close()


def test_the_theme_can_change_while_the_page_is_open(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["golden"])
    draw_everything(page)
    tick = page.locator(".plot .xtick text").first
    assert tick.evaluate("e => getComputedStyle(e).fill") == "rgb(27, 31, 36)"
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".plot .xtick text").first).to_have_css("fill", "rgb(231, 234, 238)", timeout=180_000)
    assert troubles == []
    page.context.close()


def test_hostile_text_is_shown_as_text(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["hostile"])
    assert troubles == []
    assert "owned" not in page.title().removeprefix("t" + HOSTILE[:-1]).replace("document.title='owned'", "")
    text = page.locator("h1").inner_text()
    assert text.startswith("t</script><script>document.title='owned'</script><b>&")
    assert text.endswith("\\ud800")
    assert "(1,000,000 characters)" in (page.locator("#provenance").text_content() or "")
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


def test_the_viewer_marks_the_fault_and_where_two_transcripts_part(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page, troubles = opened(browser, pages["viewer"])
    # It opens at the first difference, which is not in the clean pass.
    page.locator("#viewer-turns .parting").wait_for()
    assert page.locator("#viewer select[name=site]").input_value() == "et/0"
    assert "They part in turn 3" in page.locator("#viewer-summary").inner_text()
    assert page.locator("#viewer-turns .turn.fault").count() == 2
    assert page.locator("#viewer-turns .parting mark").count() == 2
    text = page.locator("#viewer-turns").inner_text()
    assert "</script><script>document.title='owned'</script>" in text
    assert "… (1,000,000 characters)" in text
    assert "\\ud800" in text
    assert page.locator("#viewer-turns script, #viewer-turns b").count() == 0
    assert "owned" not in page.title()
    # By keyboard: choose the clean pass, in which both are equal.
    page.locator("#viewer select[name=site]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.get_by_text("The two transcripts are equal.").wait_for()
    page.locator("#viewer button[name=next]").focus()
    page.keyboard.press("Enter")
    page.locator("#viewer-turns .parting").wait_for()
    assert troubles == []
    page.context.close()


def test_the_viewer_fits_a_phone(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["viewer"], width=390, scheme="dark")
    page.locator("#viewer-turns .parting").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    columns = page.locator("#viewer-turns .both").first.evaluate(
        "e => getComputedStyle(e).gridTemplateColumns"
    )
    assert len(columns.split()) == 1
    assert troubles == []
    page.context.close()


def test_a_square_of_the_map_can_be_hovered(browser: Browser, pages: dict[str, Path]) -> None:
    page, troubles = opened(browser, pages["golden"])
    plot = page.locator("#map .plot").first
    plot.scroll_into_view_if_needed()
    plot.locator(".main-svg").first.wait_for()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    label = plot.locator(".hovertext").first
    label.wait_for()
    told = label.text_content() or ""
    assert "base-00, site" in told
    assert "submitted an answer" in told
    assert troubles == []
    page.context.close()
