"""Figures as static images. Needs the extra `images` (kaleido) and a Chromium on the system."""

from __future__ import annotations

import re
from pathlib import Path

from qfr.errors import UserError
from qfr.report.figures.still import Still, write_still
from qfr.report.page import Page
from qfr.report.sections import FigureView


def write_images(page: Page, out_dir: Path, form: str = "png") -> tuple[Path, ...]:
    """Write every panel of every figure as an image of its own.

    Parameters
    ----------
    page : Page
        As `qfr.report.page.page_of` arranges it.
    out_dir : Path
        Made if need be.
    form : str
        ``png``, ``svg`` or ``pdf``.

    Raises
    ------
    UserError
        If kaleido or Chromium is missing, or the folder cannot be written.
    """
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the images cannot be written: {error.strerror}", where=str(out_dir)) from error
    stills: dict[Path, Still] = {}
    for number, (section, view) in enumerate(_figures(page), 1):
        for at, panel in enumerate(view.panels, 1):
            part = f"-{at}" if len(view.panels) > 1 else ""
            name = _name(f"{section} {view.title} {panel.title}")
            title = " · ".join(one for one in (section, view.title, panel.title) if one)
            still = Still(panel.spec, 900 if view.wide else 480, title)
            stills[out_dir / f"{number:02d}{part}-{name}.{form}"] = still
    write_still(stills)
    return tuple(stills)


def _figures(page: Page) -> list[tuple[str, FigureView]]:
    found = [(one.title, view) for one in page.sections for view in one.figures]
    further = (*page.ladders, *page.prompts, *page.process)
    found += [(one.title, view) for one in further for view in one.figures]
    return [*found, *(("map", view) for view in page.maps), *(("beside", view) for view in page.beside)]


def _name(text: str) -> str:
    """A file name of letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "figure"
