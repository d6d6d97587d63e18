"""Figures as static images. Needs the extra `images` (kaleido) and a Chromium on the system."""

from __future__ import annotations

import html
import importlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

from qfr.errors import UserError
from qfr.report.page import Page
from qfr.report.sections import FigureView

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Room for the title and for the legend, CSS pixels.
_HEAD = 40
_LEGEND = 40


@dataclass(frozen=True)
class Still:
    """One image to be written."""

    spec: str
    # Plotly's JSON.
    width: int
    # CSS pixels.
    title: str


def write_still(stills: Mapping[Path, Still]) -> None:
    """Write each image to its path; the suffix says the form.

    Raises
    ------
    UserError
        If kaleido or Chromium is missing.
    """
    try:
        kaleido = importlib.import_module("kaleido")
    except ImportError:
        raise UserError("static images need kaleido", hint="install it: pip install 'qfr[images]'") from None
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise UserError("static images need Chromium or Chrome", hint="apt-get install chromium")
    jobs = []
    for path, still in stills.items():
        figure = go.Figure(json.loads(still.spec))
        named = [trace for trace in figure.data if trace.name]
        height = int(figure.layout.height or 300) + _HEAD + (_LEGEND if len(named) > 1 else 0)
        figure.update_layout(
            paper_bgcolor="#FFFFFF",
            plot_bgcolor="#FFFFFF",
            title={"text": html.escape(still.title), "font": {"size": 13}, "x": 0.01, "xanchor": "left"},
            margin={"t": _HEAD},
            showlegend=len(named) > 1,
            legend={"orientation": "h", "yanchor": "top", "y": -0.25},
        )
        opts = {"format": path.suffix[1:], "width": still.width, "height": height, "scale": 2}
        jobs.append({"fig": figure, "path": path, "opts": opts})
    if jobs:
        kaleido.write_fig_from_object_sync(jobs, kopts={"path": browser})


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
